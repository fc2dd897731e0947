//! Callers without a token, at an address beyond loopback: each reads the tasks that it knows, and no others.

use std::path::Path;

use serde_json::{Value, json};
use talaria_client::{Delivery, Message};
use talaria_fakes::{FakePlatform, FakePlugin, Step};

use crate::bridge::{Bridge, Start, run, stdout, talaria};

const V1: (&str, &str) = ("a2a-version", "1.0");

/// A bridge that everybody in the network can call, before an agent that asks for an approval.
fn open<'a>(folder: &'a Path, plugin: &FakePlugin, more: &str) -> Start<'a> {
    let start = Start::new(folder).config(&format!(
        "{more}\n[executors]\ndefault = \"plugin-callback\"\n[callback]\nlisten = \"127.0.0.1:0\"\n\
         [executor.plugin-callback.settings]\ninbound_url = \"{}\"\n",
        plugin.inbound_url()
    ));
    start.in_place_of("http://0.0.0.0:0").env("HOSTNAME", "127.0.0.1")
}

async fn agent() -> FakePlugin {
    FakePlugin::start(|_| vec![Step::Approval("rm -rf /tmp/x".into())]).await
}

async fn asked(bridge: &Bridge) -> String {
    let task = bridge.start_turn("clean up").await;
    bridge.in_state(&task, "TASK_STATE_INPUT_REQUIRED").await;
    task
}

async fn check_that_nothing_is_listed(bridge: &Bridge, task: &str) {
    let rpc = bridge.call("ListTasks", json!({})).await;
    assert_eq!(rpc["error"]["code"], -32004, "{rpc}");
    for path in ["/tasks", "/any-tenant/tasks"] {
        let rest = bridge.request("GET", path, &[V1], "").await;
        let answer: Value = serde_json::from_slice(&rest.body).unwrap();
        assert_eq!((rest.status, answer["tasks"].is_null()), (400, true), "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("only for callers with a token"), "{message}");
    }
    assert_eq!(bridge.task(task).await["id"], task, "a caller that knows a task reads it");
    let configs = bridge.call("ListTaskPushNotificationConfigs", json!({ "taskId": task })).await;
    assert!(configs["result"].is_object(), "{configs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_list_no_tasks_and_approve_no_commands() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), agent().await);
    let bridge = open(folder.path(), &plugin, "[a2a.auth]\nopen = true").up();
    let task = asked(&bridge).await;
    check_that_nothing_is_listed(&bridge, &task).await;
    let mut approve = crate::bridge::message("approve");
    approve["message"]["taskId"] = json!(task);
    for method in ["SendMessage", "SendStreamingMessage"] {
        let refused = bridge.call(method, approve.clone()).await;
        assert_eq!(refused["error"]["code"], -32004, "{refused}");
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains("only a caller with a token may give"), "{message}");
    }
    let old = json!({ "kind": "message", "messageId": "m", "role": "user", "taskId": task, "parts": [{ "kind": "text", "text": "approve" }] });
    let refused = bridge.call_v03("message/send", json!({ "message": old })).await;
    assert_eq!(refused["error"]["code"], -32004, "{refused}");
    assert!(plugin.commands().is_empty(), "nothing was approved");
    assert_eq!(bridge.task(&task).await["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_workspace_the_caller_that_names_a_task_approves_and_doctor_warns() {
    let (folder, plugin, platform) =
        (tempfile::tempdir().unwrap(), agent().await, FakePlatform::start().await);
    let configs = folder.path().to_string_lossy().into_owned();
    let variables =
        [("WORKSPACE_ID", "ws-1"), ("WORKSPACE_CONFIG_PATH", &configs), ("PLATFORM_URL", &platform.url())];
    let mut start = open(folder.path(), &plugin, "");
    for (name, value) in variables {
        start = start.env(name, value);
    }
    let bridge = start.up();
    let task = asked(&bridge).await;
    check_that_nothing_is_listed(&bridge, &task).await;
    bridge.send(Message::new("approve").to_task(&task), Delivery::Detached).await;
    bridge.in_state(&task, "TASK_STATE_COMPLETED").await;
    assert_eq!(plugin.commands(), ["/approve"]);

    let output = run(talaria(folder.path()).args(["doctor"]).envs(variables));
    let text = stdout(&output);
    assert!(text.contains("warning  approvals: a caller without a token"), "{text}");
}
