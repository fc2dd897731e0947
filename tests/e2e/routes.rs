//! `[[route]]`: which of several executors takes a message, and the command that explains it.

use std::path::Path;

use serde_json::{Value, json};
use talaria_fakes::guest;

use crate::bridge::{Bridge, Start, admin, message, run, stdout, talaria};

const RULES: &str = r#"
[[route]]
name = "papers"
skill = "papers-*"
executor = "mine"

[[route]]
tenant = "acme"
executor = "mine"

[[route]]
name = "broken"
metadata = { tier = "tin" }
executor = "broken"

[[route]]
name = "canary"
metadata = { tier = "gold" }
weight = 50
executor = "mine"

[executor.mine]
component = "probe.wasm"
fallback = "chat-completions"

[executor.broken]
component = "probe.wasm"
settings = { setup = "invalid" }
"#;

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("probe.wasm"), guest("probe")).unwrap();
    folder
}

/// Whether the executor `mine` answered, which echoes; the demo's gateway does not.
async fn is_mine(bridge: &Bridge, params: Value) -> bool {
    let answer = bridge.call("SendMessage", params).await;
    let text = answer["result"]["message"]["parts"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
    text == "me"
}

fn with(metadata: Value) -> Value {
    let mut params = message("echo me");
    params["message"]["metadata"] = metadata;
    params
}

#[tokio::test]
async fn the_first_rule_that_fits_decides_and_a_conversation_stays() {
    let folder = folder();
    let bridge = Start::new(folder.path()).config(RULES).arg("--demo").up();
    assert!(!is_mine(&bridge, message("echo me")).await, "no rule fits: the default");
    assert!(is_mine(&bridge, with(json!({ "skill": "papers-new" }))).await);
    assert!(!is_mine(&bridge, with(json!({ "skill": "paper" }))).await);
    let mut tenant = message("echo me");
    tenant["tenant"] = json!("acme");
    assert!(is_mine(&bridge, tenant).await);

    let mut taken = 0;
    for number in 0..20 {
        let mut params = with(json!({ "tier": "gold" }));
        params["message"]["contextId"] = json!(format!("conversation-{number}"));
        let first = is_mine(&bridge, params.clone()).await;
        params["message"]["messageId"] = json!(format!("again-{number}"));
        assert_eq!(is_mine(&bridge, params).await, first, "conversation {number} stays where it is");
        let context = format!("conversation-{number}");
        let said = explain(folder.path(), &["--metadata", "tier=gold", "--context", &context]);
        assert_eq!(said["takes"][0]["executor"] == "mine", first, "the explanation is what happens: {said}");
        taken += usize::from(first);
    }
    assert!((1..20).contains(&taken), "{taken} of 20 conversations");

    let (_, metrics) = admin(&bridge, "GET", "/metrics").await;
    let metrics = metrics.as_str().unwrap();
    for line in [
        "talaria_messages_routed_total{route=\"papers\"} 1".to_owned(),
        "talaria_messages_routed_total{route=\"route[1]\"} 1".to_owned(),
        format!("talaria_messages_routed_total{{route=\"canary\"}} {}", taken * 2),
    ] {
        assert!(metrics.lines().any(|said| said == line), "{line} is not in:\n{metrics}");
    }
}

#[tokio::test]
async fn a_rule_whose_executor_was_refused_refuses_its_messages_and_no_others() {
    let folder = folder();
    let bridge = Start::new(folder.path()).config(RULES).arg("--demo").up();
    assert_eq!(bridge.banner["refused"][0]["name"], "broken");
    let answer = bridge.call("SendMessage", with(json!({ "tier": "tin" }))).await;
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    assert_eq!(answer["error"]["message"], "the executor for this message is not available");
    let tasks = bridge.call("ListTasks", json!({})).await;
    assert_eq!(tasks["result"]["totalSize"], 0, "nothing was made: {tasks}");
    assert!(!is_mine(&bridge, message("echo me")).await);
}

#[tokio::test]
async fn the_next_message_of_a_task_goes_where_the_task_is() {
    let folder = folder();
    let bridge = Start::new(folder.path()).config(RULES).arg("--demo").up();
    let mut first = with(json!({ "skill": "papers-new" }));
    first["message"]["parts"][0]["text"] = json!("ask-back which?");
    let asked = bridge.call("SendMessage", first).await;
    let task = &asked["result"]["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{asked}");
    // It does not name the skill again.
    let mut next = message("echo me");
    next["message"]["taskId"] = task["id"].clone();
    let answer = bridge.call("SendMessage", next).await;
    assert!(answer.to_string().contains("\"text\":\"me\""), "{answer}");
}

fn explain(folder: &Path, args: &[&str]) -> Value {
    let said = run(talaria(folder).args(["route", "explain", "--output", "json"]).args(args));
    serde_json::from_slice(&said.stdout).unwrap_or_else(|_| panic!("{}", crate::bridge::stderr(&said)))
}

#[test]
fn every_rule_is_explained() {
    let folder = folder();
    std::fs::write(folder.path().join("talaria.toml"), RULES).unwrap();
    let said = run(talaria(folder.path()).args([
        "route",
        "explain",
        "hi",
        "--metadata",
        "tier=gold",
        "--skill",
        "x",
    ]));
    assert_eq!(said.status.code(), Some(0));
    let text = stdout(&said);
    for line in [
        "papers -> mine: does not fit",
        "  no   skill papers-*: the message has x",
        "route[1] -> mine: does not fit",
        "  no   tenant acme: the message has none",
        "canary -> mine: fits some conversations",
        "  yes  metadata.tier gold: the message has gold",
        "mine takes 50.00 of 100 conversations: canary fits; chat-completions stands in while it is not ready",
        "chat-completions takes 50.00 of 100 conversations: no rule fits, and it is the default",
    ] {
        assert!(text.lines().any(|said| said == line), "{line} is not in:\n{text}");
    }
    let request = json!({ "params": { "tenant": "acme", "message": { "contextId": "c" } } }).to_string();
    let said = explain(folder.path(), &[&request]);
    assert_eq!((&said["takes"][0]["route"], &said["context"]), (&json!("route[1]"), &json!("c")), "{said}");
    let choice = ["route", "explain", "--metadata", "talaria/executor=mine"];
    let said = run(talaria(folder.path()).args(choice));
    assert_eq!(said.status.code(), Some(1), "callers may not choose here: {}", stdout(&said));
}
