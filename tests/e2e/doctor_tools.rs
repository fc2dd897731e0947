//! `talaria doctor` finds an agent that never calls its tools.

use serde_json::{Value, json};
use talaria_fakes::{FakeGateway, FakePlatform, Reply, free_port};

use crate::bridge::{Start, run, stderr, stdout, talaria};
use crate::doctor::finding;
use crate::tools::Client;
use crate::workspace::Folders;

// Waiting for the bridge blocks a thread.
#[tokio::test(flavor = "multi_thread")]
async fn finds_a_coordinator_that_never_calls_its_tools() {
    let folders = Folders::new("name: Lead\n");
    let platform = FakePlatform::start().await;
    let peer = |parent: Value| json!([{ "id": "peer-1", "name": "Ann", "agent_card": { "name": "Ann" }, "parent_id": parent }]);
    platform.set_surroundings(peer(json!("ws-1")), "");
    let gateway = FakeGateway::always(Reply::completion("I will ask Ann.")).await;
    let (at, configs) = (folders.bridge(), folders.configs());
    let (base, url) = (gateway.base_url(), platform.url());
    let env = [
        ("WORKSPACE_ID", "ws-1"),
        ("WORKSPACE_CONFIG_PATH", configs.to_str().unwrap()),
        ("PLATFORM_URL", url.as_str()),
        ("HERMES_API_BASE", base.as_str()),
    ];
    let toml = format!(
        "[admin]\nlisten = \"127.0.0.1:{}\"\ntoken = {{ env = \"ADMIN_TOKEN\" }}\nopen = [\"healthz\"]\n\
         [tools]\nlisten = \"127.0.0.1:{}\"\n",
        free_port(),
        free_port()
    );
    let doctor = || {
        let mut command = talaria(&at);
        command
            .args(["doctor", "--output", "json"])
            .env("HOME", &at)
            .env("ADMIN_TOKEN", "admin-token-0123456789");
        let output = run(command.envs(env));
        serde_json::from_str::<Value>(&stdout(&output)).unwrap_or_else(|_| panic!("{}", stderr(&output)))
    };
    let is_quiet =
        |report: &Value| report["checks"].as_array().unwrap().iter().all(|check| check["name"] != "tool use");
    let start = env.iter().fold(Start::new(&at).config(&toml), |start, (name, value)| start.env(name, value));
    assert!(is_quiet(&doctor()), "no host runs, so nothing is known");
    let bridge = start.env("ADMIN_TOKEN", "admin-token-0123456789").up();
    platform.registered(1).await;
    for turn in 0..5 {
        assert!(turn > 0 || is_quiet(&doctor()), "there were no turns");
        bridge.say("hello").await;
    }
    let report = doctor();
    let (verdict, found, fix) = finding(&report, "tool use");
    assert_eq!(verdict, "warning", "{found}");
    assert!(found.contains("a team of 1") && found.contains("in 5 turns"), "{found}");
    for part in ["hermes mcp list", "tool_search", "model"] {
        assert!(fix.contains(part), "{fix}");
    }
    // A workspace without a team need not delegate.
    platform.set_surroundings(peer(Value::Null), "");
    assert!(is_quiet(&doctor()));
    platform.set_surroundings(peer(json!("ws-1")), "");
    Client::of(&bridge, &at).call("list_peers", json!({})).await;
    let report = doctor();
    let (verdict, found, _) = finding(&report, "tool use");
    assert!(verdict == "ok" && found.starts_with("1 call of its tools"), "{found}");
}
