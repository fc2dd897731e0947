//! Callers with tokens: a token is required, hides the tasks of other callers, and can be renewed without a restart.

use serde_json::{Value, json};
use talaria_fakes::soon;

use crate::bridge::{Bridge, Start, call, message, request};

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
    let query = json!({ "contextId": answer["result"]["message"]["contextId"] });
    let task = json!({ "id": call(url, "ListTasks", query, &alice).await["result"]["tasks"][0]["id"] });
    assert_eq!(call(url, "GetTask", task.clone(), &alice).await["result"]["id"], task["id"]);
    assert_eq!(
        call(url, "GetTask", task, &bob).await["error"]["code"],
        -32001,
        "it looks like a missing task"
    );

    let anonymous = request(url, "POST", "/", &[("content-type", "application/json")], "{}").await;
    assert_eq!(anonymous.status, 401);
    let card = request(url, "GET", "/.well-known/agent-card.json", &[], "").await;
    assert_eq!(card.status, 200, "the card is public");
}

const IN_FILES: &str = r#"
[a2a.auth]
tokens = [
  { name = "alice", token = { file = "secrets/alice" } },
  { name = "bob", token = { file = "secrets/bob" } },
]
"#;

/// Calls with this token and returns the status and the answer.
async fn get(bridge: &Bridge, token: &str, task: &Value) -> (u16, Value) {
    let bearer = format!("Bearer {token}");
    let headers = [("a2a-version", "1.0"), ("content-type", "application/json"), ("authorization", &bearer)];
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": task }).to_string();
    let response = bridge.request("POST", "/", &headers, &body).await;
    (response.status, serde_json::from_slice(&response.body).unwrap())
}

async fn accepted(bridge: &Bridge, token: &str) {
    soon("the new token is accepted", async {
        while get(bridge, token, &json!({ "id": "t" })).await.0 == 401 {
            // The files are read every two seconds.
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_token_in_a_file_is_renewed_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let secrets = folder.path().join("secrets");
    std::fs::create_dir(&secrets).unwrap();
    let write = |name: &str, text: &str| std::fs::write(secrets.join(name), text).unwrap();
    write("alice", "alice-token-1\n");
    write("bob", "bob-token-1\n");
    let bridge = Start::new(folder.path()).config(IN_FILES).arg("--demo").up();
    let alice = [("a2a-version", "1.0"), ("authorization", "Bearer alice-token-1")];
    let answer = call(bridge.url(), "SendMessage", message("hi"), &alice).await;
    let query = json!({ "contextId": answer["result"]["message"]["contextId"] });
    let tasks = call(bridge.url(), "ListTasks", query, &alice).await;
    let task = json!({ "id": tasks["result"]["tasks"][0]["id"] });

    write("alice", "alice-token-2\n");
    accepted(&bridge, "alice-token-2").await;
    assert_eq!(get(&bridge, "alice-token-1", &task).await.0, 401, "the old token is rejected");
    let (_, answer) = get(&bridge, "alice-token-2", &task).await;
    assert_eq!(answer["result"]["id"], task["id"], "the caller keeps its tasks");

    // The file of alice is read before the file of bob.
    write("alice", "");
    write("bob", "bob-token-2");
    accepted(&bridge, "bob-token-2").await;
    assert_eq!(get(&bridge, "alice-token-2", &task).await.0, 200, "an empty file keeps the last good token");
    write("alice", "not a token");
    write("bob", "bob-token-3");
    accepted(&bridge, "bob-token-3").await;
    assert_eq!(get(&bridge, "alice-token-2", &task).await.0, 200, "a malformed file does too");
    assert_eq!(get(&bridge, "", &task).await.0, 401, "a token is still required");

    bridge.terminate();
    let (code, said) = bridge.end();
    assert_eq!(code, Some(0));
    assert_eq!(said.matches("token renewed").count(), 3, "{said}");
    assert_eq!(said.matches("`secrets/alice` is empty").count(), 1, "once: {said}");
    assert!(!said.contains("-token-"), "{said}");
}
