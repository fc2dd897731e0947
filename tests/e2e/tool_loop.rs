//! A workspace whose executor talks to a model directly and runs the workspace's tools itself.

use serde_json::json;
use talaria_fakes::{FakePlatform, PROVIDER_KEY, Provider};

use crate::bridge::{Bridge, Start, run, stdout, talaria};
use crate::workspace::Folders;

const CONFIG: &str = "
[executors]
default = \"hermes\"

[executor.hermes.settings]
model = \"fake-model\"
tool_loop = true

[executor.hermes.grant]
tools = [\"list_peers\", \"delegate_task\", \"delegate_task_async\"]
";

/// A workspace with one peer, Ann.
struct Lead {
    bridge: Bridge,
    platform: FakePlatform,
    provider: Provider,
    _folders: Folders,
}

impl Lead {
    async fn start() -> Self {
        let folders = Folders::new("name: Lead\n");
        let (platform, provider) = (FakePlatform::start().await, Provider::start().await);
        let peers =
            json!([{ "id": "peer-1", "name": "Ann", "status": "online", "agent_card": { "name": "Ann" } }]);
        platform.set_surroundings(peers, "");
        let at = folders.bridge();
        let bridge = Start::new(&at)
            .config(CONFIG)
            .env("WORKSPACE_ID", "ws-1")
            .env("WORKSPACE_CONFIG_PATH", &folders.configs().to_string_lossy())
            .env("PLATFORM_URL", &platform.url())
            .env("OPENAI_BASE_URL", &provider.base_url())
            .env("OPENAI_API_KEY", PROVIDER_KEY)
            .up();
        Self { bridge, platform, provider, _folders: folders }
    }
}

// Waiting for the bridge blocks a thread.
#[tokio::test(flavor = "multi_thread")]
async fn a_model_lists_its_peers_delegates_and_answers_with_what_the_peer_found() {
    let lead = Lead::start().await;
    let (text, name) = Provider::turn(
        r#"call list_peers {} && delegate_task {"workspace_id":"Ann","task":"look it up","wait_seconds":60}"#,
    );
    let answer = async {
        lead.platform.told_delegation(1).await;
        lead.platform.answer_delegation(1, "three papers on fish");
    };
    let (said, ()) = tokio::join!(lead.bridge.say(&text), answer);
    assert!(said.contains("\"id\":\"peer-1\"") && said.contains("three papers on fish"), "{said}");
    assert_eq!(lead.provider.times(&name), 3);
    assert_eq!(lead.platform.delegated()[0].body["task"], "look it up");
    let offered = lead.provider.requests().iter().find(|request| request.method == "POST").unwrap().json();
    let offered = offered["tools"].to_string();
    assert!(offered.contains("delegate_task") && !offered.contains("commit_memory"), "only those granted");
    assert!(!offered.contains("ticket"), "the turn is known without one");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_whose_loop_delegated_waits_for_the_answer() {
    let lead = Lead::start().await;
    let (text, name) = Provider::turn(r#"call delegate_task_async {"workspace_id":"Ann","task":"papers"}"#);
    let id = lead.bridge.start_turn(&text).await;
    let task =
        lead.bridge.until(&id, "has the promise", |task| task.to_string().contains("the tool said")).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_WORKING", "{task}");
    assert_eq!(lead.provider.times(&name), 2);
    lead.platform.told_delegation(1).await;
    lead.platform.answer_delegation(1, "three papers on fish");
    lead.bridge.in_state(&id, "TASK_STATE_COMPLETED").await;
    let last = lead.provider.requests().last().unwrap().json()["messages"].to_string();
    assert!(last.contains("three papers on fish"), "the model reads the result in the same task: {last}");
}

#[test]
fn check_names_the_tools_of_a_grant_and_the_one_that_is_misspelt() {
    let folders = Folders::new("name: Lead\n");
    let at = folders.bridge();
    let config = CONFIG.replace("\"list_peers\"", "\"list_pears\"");
    std::fs::write(at.join("talaria.toml"), config).unwrap();
    let checked = run(talaria(&at)
        .args(["check"])
        .env("WORKSPACE_ID", "ws-1")
        .env("WORKSPACE_CONFIG_PATH", folders.configs())
        .env("PLATFORM_URL", "http://127.0.0.1:9")
        .env("OPENAI_BASE_URL", "http://127.0.0.1:9/v1"));
    let text = stdout(&checked);
    assert!(
        text.contains(
            "`grant.tools` names `list_pears`, which this host does not have; did you mean `list_peers`?"
        ),
        "{text}"
    );
    assert!(
        text.lines().any(|line| line.contains("tool")
            && line.contains("delegate_task_async")
            && line.contains("granted")),
        "{text}"
    );
}
