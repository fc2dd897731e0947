//! Components in the executors folder: valid ones take turns, invalid ones are refused by name and do no harm.

use talaria_client::{ClientError, Delivery, Message};
use talaria_fakes::guest;

use crate::bridge::Start;

#[tokio::test]
async fn invalid_components_are_refused_by_name_and_the_server_runs() {
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
    let chosen = Message::new("hi").with("talaria/executor", "conformance");
    let error = bridge.client().send(&chosen, Delivery::Whole).await.expect_err("a rejection");
    assert!(matches!(error, ClientError::Rejected { code: -32602, .. }), "{error}");
}

#[tokio::test]
async fn a_message_can_name_its_executor() {
    let folder = tempfile::tempdir().unwrap();
    let executors = folder.path().join("executors");
    std::fs::create_dir(&executors).unwrap();
    std::fs::write(executors.join("mine.wasm"), guest("probe")).unwrap();
    let bridge = Start::new(folder.path()).config("[executors]\ncaller_may_choose = true").arg("--demo").up();
    let chosen = Message::new("echo it is me").with("talaria/executor", "mine");
    assert_eq!(bridge.send(chosen, Delivery::Whole).await.text(), "it is me");

    let unknown = Message::new("echo it is me").with("talaria/executor", "nobody");
    let error = bridge.client().send(&unknown, Delivery::Whole).await.expect_err("a rejection");
    let ClientError::Rejected { code, message, .. } = error else { panic!("{error}") };
    assert_eq!(code, -32602);
    assert!(message.contains("chat-completions"), "it lists the executors: {message}");
}
