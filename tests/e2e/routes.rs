//! `[[route]]`: which of several executors takes a message, and the command that explains it.

use std::path::Path;

use serde_json::{Value, json};
use talaria_client::{ClientError, Delivery, Message};
use talaria_fakes::guest;

use crate::bridge::{Bridge, Start, admin, run, stdout, talaria};

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
grant = { egress = ["GET http://127.0.0.1:9/*"] }

[executor.broken]
component = "probe.wasm"
settings = { setup = "invalid" }
"#;

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("probe.wasm"), guest("probe")).unwrap();
    folder
}

/// Whether the executor `mine` answers a message; it echoes, unlike the demo gateway.
async fn is_mine(bridge: &Bridge, message: Message) -> bool {
    bridge.send(message, Delivery::Whole).await.text() == "me"
}

fn echo() -> Message {
    Message::new("echo me")
}

#[tokio::test]
async fn the_first_matching_rule_decides_and_a_context_stays_with_its_executor() {
    let folder = folder();
    let bridge = Start::new(folder.path()).config(RULES).arg("--demo").up();
    assert!(!is_mine(&bridge, echo()).await, "no rule matches: the default");
    assert!(is_mine(&bridge, echo().with("skill", "papers-new")).await);
    assert!(!is_mine(&bridge, echo().with("skill", "paper")).await);
    let mut tenant = bridge.client().interface().clone();
    tenant.tenant = Some("acme".into());
    let tenant = bridge.client().agent().client(tenant);
    assert_eq!(tenant.send(&echo(), Delivery::Whole).await.unwrap().text(), "me");

    let mut taken = 0;
    for number in 0..20 {
        let context = format!("context-{number}");
        let message = || echo().with("tier", "gold").in_context(&context);
        let first = is_mine(&bridge, message()).await;
        assert_eq!(is_mine(&bridge, message()).await, first, "{context} stays with its executor");
        let said = explain(folder.path(), &["--metadata", "tier=gold", "--context", &context]);
        assert_eq!(
            said["takes"][0]["executor"] == "mine",
            first,
            "the explanation agrees with what happens: {said}"
        );
        taken += usize::from(first);
    }
    assert!((1..20).contains(&taken), "{taken} of 20 contexts");

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
async fn messages_for_a_refused_executor_are_rejected_and_no_others() {
    let folder = folder();
    let bridge = Start::new(folder.path()).config(RULES).arg("--demo").up();
    assert_eq!(bridge.banner["refused"][0]["name"], "broken");
    let error = bridge.client().send(&echo().with("tier", "tin"), Delivery::Whole).await;
    let Err(ClientError::Rejected { code, message, .. }) = error else { panic!("{error:?}") };
    assert_eq!((code, message.as_str()), (-32603, "the executor for this message is not available"));
    let tasks = bridge.call("ListTasks", json!({})).await;
    assert_eq!(tasks["result"]["totalSize"], 0, "no task was created: {tasks}");
    assert!(!is_mine(&bridge, echo()).await);
}

#[tokio::test]
async fn later_messages_of_a_task_go_to_its_executor() {
    let folder = folder();
    let bridge = Start::new(folder.path()).config(RULES).arg("--demo").up();
    let first = Message::new("ask-back which?").with("skill", "papers-new");
    let asked = bridge.send(first, Delivery::Whole).await;
    assert!(asked.status.wants_input(), "{}", asked.raw());
    // The next message does not name the skill again.
    assert!(is_mine(&bridge, echo().to_task(asked.status.task.unwrap())).await);
}

fn explain(folder: &Path, args: &[&str]) -> Value {
    let said = run(talaria(folder).args(["route", "explain", "--output", "json"]).args(args));
    serde_json::from_slice(&said.stdout).unwrap_or_else(|_| panic!("{}", crate::bridge::stderr(&said)))
}

#[test]
fn explains_every_rule() {
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
