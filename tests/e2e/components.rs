//! Components that operators drop in: one that fits takes turns, one that does not is named and harms nobody.

use serde_json::json;
use talaria_fakes::guest;

use crate::bridge::{Start, message};

#[tokio::test]
async fn what_does_not_fit_is_refused_by_name_and_the_server_runs() {
    let folder = tempfile::tempdir().unwrap();
    let executors = folder.path().join("executors");
    std::fs::create_dir(&executors).unwrap();
    let whole = guest("probe");
    std::fs::write(executors.join("whole.wasm"), &whole).unwrap();
    std::fs::write(executors.join("truncated.wasm"), &whole[..whole.len() / 2]).unwrap();
    std::fs::write(executors.join("script.wasm"), "#!/bin/sh").unwrap();
    std::fs::write(executors.join("other-world.wasm"), b"\0asm\x0d\0\x01\0").unwrap();
    std::fs::write(executors.join("traps.wasm"), guest("trap-describe")).unwrap();

    let bridge = Start::new(folder.path()).arg("--demo").up();
    let refused: Vec<&str> = bridge.banner["refused"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["name"].as_str().unwrap())
        .collect();
    assert_eq!(refused, ["other-world", "script", "traps", "truncated"]);
    for entry in bridge.banner["refused"].as_array().unwrap() {
        assert!(entry["reason"].as_str().unwrap().contains(".wasm: "), "it names the file: {entry}");
    }
    assert!(bridge.say("hello").await.starts_with("You said"), "the default executor is there");
}

#[tokio::test]
async fn a_message_cannot_name_its_executor_unless_the_operator_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = Start::new(folder.path()).arg("--demo").up();
    let mut chosen = message("hi");
    chosen["message"]["metadata"] = json!({ "talaria/executor": "conformance" });
    let answer = bridge.call("SendMessage", chosen).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
}

#[tokio::test]
async fn a_message_can_name_its_executor() {
    let folder = tempfile::tempdir().unwrap();
    let executors = folder.path().join("executors");
    std::fs::create_dir(&executors).unwrap();
    std::fs::write(executors.join("mine.wasm"), guest("probe")).unwrap();
    let bridge = Start::new(folder.path()).config("[executors]\ncaller_may_choose = true").arg("--demo").up();
    let mut chosen = message("echo it is me");
    chosen["message"]["metadata"] = json!({ "talaria/executor": "mine" });
    let answer = bridge.call("SendMessage", chosen.clone()).await;
    assert_eq!(answer["result"]["message"]["parts"][0]["text"], "it is me");

    chosen["message"]["metadata"] = json!({ "talaria/executor": "nobody" });
    let answer = bridge.call("SendMessage", chosen).await;
    assert_eq!(answer["error"]["code"], -32602);
    assert!(
        answer["error"]["message"].as_str().unwrap().contains("chat-completions"),
        "it lists them: {answer}"
    );
}
