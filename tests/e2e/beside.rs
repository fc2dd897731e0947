//! The agent beside the host is not trusted: what its process gets, and what is told to it in another's name.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::json;
use talaria_client::{Delivery, Message};
use talaria_fakes::{FakePlatform, FakePlugin, free_port, soon};

use crate::bridge::{Start, client_with_token, run, stderr, stdout, talaria};
use crate::gateway;

/// A gateway that records its environment and then serves.
const RECORDS: &str = "import json, os\n\
    with open(os.path.join(os.environ['HERMES_HOME'], 'environment'), 'w') as out: json.dump(dict(os.environ), out)\n";

#[test]
fn a_started_gateway_gets_no_secret_of_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!("{RECORDS}{}", gateway::SCRIPT.split_once('\n').unwrap().1);
    fs::write(folder.path().join("gateway.py"), script).unwrap();
    let config = |env: &str| {
        format!(
            "[gateway]\ncommand = \"python3 {}/gateway.py\"\nhome = \"home\"\nport = {}\nenv = [{env}]\n\
             [admin]\nlisten = \"127.0.0.1:0\"\ntoken = {{ env = \"ADMIN_TOKEN\" }}\n\
             [a2a.auth]\ntokens = [{{ name = \"alice\", token = {{ env = \"HERMES_ALICE\" }} }}]\n\
             [executor.chat-completions.grant]\nsecrets = [\"API_SERVER_KEY\", \"SEARCH_KEY\"]\n",
            folder.path().display(),
            free_port()
        )
    };
    let secrets = [
        ("ADMIN_TOKEN", "token-of-the-operator"),
        ("HERMES_ALICE", "token-of-a-caller"),
        ("SEARCH_KEY", "key-of-an-executor"),
        ("MOLECULE_WORKSPACE_TOKEN", "token-of-the-workspace"),
        ("UNLISTED_KEY", "key-of-nobody-we-know"),
    ];
    let passed = [
        ("SEARCH_URL", "http://search"),
        ("EXA_API_KEY", "key-of-a-tool"),
        ("OPENROUTER_API_KEY", "key-of-a-provider"),
        ("LC_ALL", "C.UTF-8"),
    ];
    let mut start = Start::new(folder.path()).config(&config("\"SEARCH_*\", \"EXA_API_KEY\""));
    for (name, value) in secrets.iter().chain(&passed) {
        start = start.env(name, value);
    }
    let bridge = start.up();
    let text = fs::read_to_string(folder.path().join("home/environment")).unwrap();
    for (name, value) in secrets {
        assert!(!text.contains(name) && !text.contains(value), "{name}: {text}");
    }
    let environment: serde_json::Value = serde_json::from_str(&text).unwrap();
    for (name, value) in passed {
        assert_eq!(environment[name], value, "{text}");
    }
    drop(bridge);

    // To list a secret by its name is a mistake.
    fs::write(folder.path().join("talaria.toml"), config("\"ADMIN_TOKEN\"")).unwrap();
    let output = run(talaria(folder.path()).args(["serve"]).envs(secrets));
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert!(said.contains("`ADMIN_TOKEN` is a secret of this host (`admin.token`)"), "{said}");
}

#[test]
fn a_link_in_a_plugin_or_a_skill_brings_no_file_of_others_into_the_prompt() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["configs/plugins/p/rules", "configs/skills/s", "configs/skills/good"] {
        fs::create_dir_all(at(name)).unwrap();
    }
    fs::write(
        at("configs/config.yaml"),
        "skills: [s, good, out]\nprompt_files: [.auth_token, link.md, good.md]\n",
    )
    .unwrap();
    fs::write(at("configs/.auth_token"), "token-of-the-workspace").unwrap();
    fs::write(at("configs/good.md"), "a good prompt").unwrap();
    fs::write(at("configs/skills/good/SKILL.md"), "a good skill").unwrap();
    fs::create_dir(at("elsewhere")).unwrap();
    fs::write(at("elsewhere/SKILL.md"), "file-of-others").unwrap();
    for (target, link) in [
        ("../../../.auth_token", "configs/plugins/p/rules/token.md"),
        ("/etc/passwd", "configs/plugins/p/passwd.md"),
        ("../../.auth_token", "configs/skills/s/SKILL.md"),
        ("../../elsewhere", "configs/skills/out"),
        (".auth_token", "configs/link.md"),
    ] {
        symlink(target, at(link)).unwrap();
    }
    let mut command = talaria(folder.path());
    command
        .args(["workspace", "prompt"])
        .env("WORKSPACE_ID", "ws-1")
        .env("WORKSPACE_CONFIG_PATH", at("configs"));
    let output = run(command.env("PLUGINS_DIR", at("none")).env("PLATFORM_URL", "http://127.0.0.1:1"));
    let (prompt, said) = (stdout(&output), stderr(&output));
    assert!(prompt.contains("a good prompt") && prompt.contains("a good skill"), "{prompt}{said}");
    for text in [&prompt, &said] {
        for secret in ["token-of-the-workspace", "root:", "file-of-others"] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
    }
    let both = format!("{prompt}{said}");
    for file in ["rules/token.md", "passwd.md", "skills/s/SKILL.md", "skills/out", "link.md", ".auth_token"] {
        assert!(both.contains(file), "one problem names {file}: {both}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_have_chats_of_their_own_and_only_the_platform_speaks_for_a_peer() {
    let plugin = FakePlugin::echo().await;
    let (folder, platform) = (tempfile::tempdir().unwrap(), FakePlatform::start().await);
    let config = format!(
        "[executors]\ndefault = \"plugin-callback\"\n[callback]\nlisten = \"127.0.0.1:0\"\n\
         [a2a.auth]\ntokens = [{{ name = \"team\", token = {{ env = \"ONE\" }} }}, \
         {{ name = \"team:ops\", token = {{ env = \"TWO\" }} }}]\n\
         [executor.plugin-callback.settings]\ninbound_url = \"{}\"\nchat_id = [\"context\"]\n",
        plugin.inbound_url()
    );
    let bridge = Start::new(folder.path())
        .config(&config)
        .env("ONE", "token-one")
        .env("TWO", "token-two")
        .env("WORKSPACE_ID", "ws-1")
        .env("WORKSPACE_CONFIG_PATH", &folder.path().to_string_lossy())
        .env("PLATFORM_URL", &platform.url())
        .up();
    platform.registered(1).await;
    let claim = |context: &str| {
        Message::new("hello").in_context(context).with("peer_id", "ws-9").with("peer_name", "The boss")
    };
    for (token, context) in [("token-one", "ops:x"), ("token-two", "x"), ("token-one", "plain")] {
        let client = client_with_token(bridge.url(), token);
        soon("an answer", client.send(&claim(context), Delivery::Whole)).await.unwrap();
    }
    let platforms = client_with_token(bridge.url(), "inbound-secret-1");
    soon("the platform's secret", async {
        while platforms.send(&claim("canvas"), Delivery::Whole).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let heard = plugin.messages();
    let chats: Vec<_> = heard.iter().map(|message| message.chat()).collect();
    assert_eq!(chats, ["team:ops%3ax", "team%3aops:x", "team:plain", "workspace-platform:canvas"]);
    for (message, chat) in heard.iter().zip(&chats).take(3) {
        assert_eq!((&message.body["peer_id"], &message.body["peer_name"]), (&json!(chat), &json!(chat)));
    }
    assert_eq!(
        (&heard[3].body["peer_id"], &heard[3].body["peer_name"]),
        (&json!("ws-9"), &json!("The boss"))
    );
}
