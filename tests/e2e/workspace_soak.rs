//! A workspace over many bad days: the platform, the gateway and the bridge are killed in turn, while messages come.
//!
//! Afterwards everything works, and every turn that was accepted has an end.

use std::fs;

use serde_json::{Value, json};
use talaria_testkit::{FakeGateway, FakePlatform, Reply, soon};

use crate::bridge::{Bridge, Start, message};

const ROUNDS: usize = 9;

/// Every task that the bridge knows, over all pages.
async fn tasks(bridge: &Bridge) -> Vec<Value> {
    let (mut all, mut token) = (Vec::new(), String::new());
    loop {
        let page = bridge.call("ListTasks", json!({ "pageSize": 100, "pageToken": token })).await;
        all.extend(page["result"]["tasks"].as_array().cloned().unwrap_or_default());
        token = page["result"]["nextPageToken"].as_str().unwrap_or_default().to_owned();
        if token.is_empty() {
            return all;
        }
    }
}

fn is_over(task: &Value) -> bool {
    let state = task["status"]["state"].as_str().unwrap_or_default();
    ["TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED"]
        .contains(&state)
}

// The bridge is waited for in a way that blocks its thread.
#[tokio::test(flavor = "multi_thread")]
async fn after_many_bad_days_all_is_well_and_every_turn_has_an_end() {
    let root = tempfile::tempdir().unwrap();
    let (configs, at) = (root.path().join("configs"), root.path().join("bridge"));
    fs::create_dir(&configs).unwrap();
    fs::create_dir(&at).unwrap();
    fs::write(configs.join("config.yaml"), "name: Soak\nobservability: {heartbeat_interval_seconds: 5}\n")
        .unwrap();
    let mut platform = FakePlatform::start().await;
    let answer = |_: &talaria_testkit::Recorded| Reply::completion("still here");
    let mut gateway = FakeGateway::start(answer).await;
    let gateway_at = gateway.address().to_string();
    let base = gateway.base_url();
    let start = |platform: &FakePlatform| {
        Start::new(&at)
            .config("[executors]\nprobe_every = \"1s\"\n")
            .env("WORKSPACE_ID", "ws-1")
            .env("WORKSPACE_CONFIG_PATH", &configs.to_string_lossy())
            .env("PLATFORM_URL", &platform.url())
            .env("HERMES_API_BASE", &base)
            .up()
    };
    let mut bridge = start(&platform);
    let mut sent = 0;
    for round in 0..ROUNDS {
        // Some turns are under way when the next thing goes wrong.
        let answered = bridge.call("SendMessage", message(&format!("round {round}"))).await;
        assert!(answered.get("result").is_some(), "{answered}");
        let mut later = message(&format!("round {round}, later"));
        later["configuration"] = json!({ "returnImmediately": true });
        assert!(bridge.call("SendMessage", later).await.get("result").is_some());
        sent += 2;
        match round % 3 {
            0 => {
                platform.go_down();
                let said = bridge.say("the platform is down").await;
                assert_eq!(said, "still here");
                platform.come_back().await;
            }
            1 => {
                drop(gateway);
                let said = bridge.say("the gateway is down").await;
                assert!(said.starts_with("[hermes-agent unreachable]"), "{said}");
                gateway = FakeGateway::start_at(&gateway_at, answer).await;
            }
            _ => {
                bridge.kill();
                bridge = start(&platform);
                let said = bridge.say("the bridge was killed").await;
                assert_eq!(said, "still here");
            }
        }
        sent += 1;
    }
    let from = platform.heartbeats().len();
    assert_eq!(bridge.say("an ordinary turn").await, "still here");
    platform
        .heartbeat(from, "a heartbeat after all that", |beat| {
            beat["active_tasks"] == 0 && beat.get("runtime_state").is_none()
        })
        .await;
    assert!(platform.registrations().len() > ROUNDS / 3, "every start registers");
    assert_eq!(platform.token().as_deref(), Some("workspace-token-1"), "one token for all of it");
    soon("every turn ends", async {
        while !tasks(&bridge).await.iter().all(is_over) {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!(tasks(&bridge).await.len(), sent + 1, "none is lost, none is there twice");
    drop(gateway);
}
