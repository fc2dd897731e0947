//! Callers with tokens: none gets in without, and none sees another's tasks.

use serde_json::json;

use crate::bridge::{Start, call, message, request};

const CONFIG: &str = r#"
[a2a.auth]
tokens = [
  { name = "alice", token = { env = "ALICE_TOKEN" } },
  { name = "bob", token = { env = "BOB_TOKEN" } },
]
"#;

#[tokio::test]
async fn a_task_belongs_to_the_caller_that_made_it() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = Start::new(folder.path())
        .config(CONFIG)
        .arg("--demo")
        .env("ALICE_TOKEN", "alice-token-0123456789")
        .env("BOB_TOKEN", "bob-token-0123456789")
        .up();
    let url = bridge.url();
    let alice = [("a2a-version", "1.0"), ("authorization", "Bearer alice-token-0123456789")];
    let bob = [("a2a-version", "1.0"), ("authorization", "Bearer bob-token-0123456789")];
    let answer = call(url, "SendMessage", message("hi"), &alice).await;
    let task = json!({ "id": answer["result"]["message"]["taskId"] });
    assert_eq!(call(url, "GetTask", task.clone(), &alice).await["result"]["id"], task["id"]);
    assert_eq!(call(url, "GetTask", task, &bob).await["error"]["code"], -32001, "it looks missing");

    let nobody = request(url, "POST", "/", &[("content-type", "application/json")], "{}").await;
    assert_eq!(nobody.status, 401);
    let card = request(url, "GET", "/.well-known/agent-card.json", &[], "").await;
    assert_eq!(card.status, 200, "the card is public");
}
