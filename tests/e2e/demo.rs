//! The first minutes of a new user: `serve --demo`, `send` and curl, in both versions of the protocol.

use serde_json::{Value, json};

use crate::bridge::{Start, keep_off_the_default_port, message, run, stderr, stdout, talaria};

#[tokio::test]
async fn the_binary_alone_answers_a_turn() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = Start::new(folder.path()).arg("--demo").up();
    assert_eq!(bridge.banner["executors"][0]["name"], "chat-completions");
    assert_eq!(bridge.banner["executors"][0]["readiness"], json!({ "state": "ready" }));

    assert!(bridge.say("hello there").await.starts_with("You said: \"hello there\""));

    let old = json!({ "message": {
        "kind": "message", "messageId": "m1", "role": "user", "parts": [{ "kind": "text", "text": "hello" }],
    } });
    let answer = bridge.call_v03("message/send", old).await;
    assert_eq!(answer["result"]["kind"], "message");
    assert_eq!(answer["result"]["parts"][0]["kind"], "text");
    assert!(answer["result"]["parts"][0]["text"].as_str().unwrap().starts_with("You said: \"hello\""));

    // There is a task behind either answer.
    assert_eq!(answer["result"].get("taskId"), None, "the task is over and accepts no message");
    let query = json!({ "contextId": answer["result"]["contextId"] });
    let id = bridge.call("ListTasks", query).await["result"]["tasks"][0]["id"].clone();
    let task = bridge.call_v03("tasks/get", json!({ "id": id })).await;
    assert_eq!(task["result"]["status"]["state"], "completed");
    let task = bridge.call("GetTask", json!({ "id": id })).await;
    assert_eq!(task["result"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(task["result"]["history"][0]["parts"][0]["text"], "hello");
}

#[tokio::test]
async fn a_failure_of_the_upstream_is_a_failed_task_and_not_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = Start::new(folder.path()).arg("--demo").up();
    let answer = bridge.call("SendMessage", message("fail please")).await;
    let status = &answer["result"]["task"]["status"];
    assert_eq!(status["state"], "TASK_STATE_FAILED");
    let said = status["message"]["parts"][0]["text"].as_str().unwrap();
    assert!(said.starts_with("[hermes-agent error]"), "{answer}");
}

#[tokio::test]
async fn one_card_serves_both_versions() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = Start::new(folder.path()).arg("--demo").up();
    let response = bridge.request("GET", "/.well-known/agent-card.json", &[], "").await;
    let old_path = bridge.request("GET", "/.well-known/agent.json", &[], "").await;
    assert_eq!((response.status, &response.body), (200, &old_path.body));
    let card: Value = serde_json::from_slice(&response.body).unwrap();
    assert_eq!(card["supportedInterfaces"][0]["protocolVersion"], "1.0");
    assert_eq!(card["supportedInterfaces"][0]["url"], bridge.url());
    assert_eq!(card["url"], bridge.url());
    assert_eq!(card["preferredTransport"], "JSONRPC");
}

#[tokio::test]
async fn the_banner_lists_addresses_and_a_command_to_paste() {
    use std::io::BufRead as _;
    let folder = tempfile::tempdir().unwrap();
    keep_off_the_default_port(folder.path());
    let mut child = talaria(folder.path())
        .args(["serve", "--demo", "--listen", "127.0.0.1:0"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let said: Vec<String> = lines.take_while(|line| !line.contains("curl")).collect();
    let said = said.join("\n");
    child.kill().unwrap();
    child.wait().unwrap();
    for expected in [
        "serves A2A at http://127.0.0.1:",
        "admin     http://127.0.0.1:",
        "executor  chat-completions (default): ready",
        "gateway",
        " send http",
    ] {
        assert!(said.contains(expected), "{expected} is not in:\n{said}");
    }
}

#[tokio::test]
async fn the_pasted_command_works() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = Start::new(folder.path()).arg("--demo").up();
    for protocol in ["1.0", "0.3"] {
        let sent = run(talaria(folder.path()).args(["send", bridge.url(), "hello", "--protocol", protocol]));
        assert!(sent.status.success(), "{protocol}: {}", stderr(&sent));
        assert!(stdout(&sent).starts_with("You said: \"hello\""), "{protocol}: {}", stdout(&sent));
    }
}
