//! The environment of the Python bridge is enough to run.
//!
//! The tests need several threads, because starting a bridge blocks one while the gateway answers its probe.

use serde_json::json;
use talaria_fakes::{FakeGateway, Reply};

use crate::bridge::Start;

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_gets_what_the_python_bridge_sent() {
    let gateway = FakeGateway::always(Reply::completion("from the gateway")).await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = Start::new(folder.path())
        .env("HERMES_API_BASE", &format!("{}/", gateway.base_url()))
        .env("API_SERVER_KEY", "a-key-of-16-chars")
        .up();
    assert_eq!(bridge.say("hi").await, "from the gateway");
    // The probe, which checks the key, comes first.
    let [probe, request] = <[_; 2]>::try_from(gateway.requests()).unwrap();
    assert_eq!((probe.method.as_str(), probe.path.as_str()), ("GET", "/v1/models"));
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/chat/completions"));
    assert_eq!(request.header("authorization"), Some("Bearer a-key-of-16-chars"));
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(
        request.json(),
        json!({ "model": "hermes-agent", "messages": [{ "role": "user", "content": "hi" }], "stream": false })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_down_fails_turns_but_not_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let port = talaria_fakes::free_port();
    let bridge =
        Start::new(folder.path()).env("HERMES_API_BASE", &format!("http://127.0.0.1:{port}/v1")).up();
    assert_eq!(bridge.banner["executors"][0]["readiness"]["state"], "not-ready");
    let unreachable = format!("[hermes-agent unreachable] connection refused (127.0.0.1:{port})");
    assert_eq!(bridge.say("hi").await, unreachable);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blank_prompt_is_not_sent() {
    let gateway = FakeGateway::always(Reply::completion("never")).await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = Start::new(folder.path()).env("HERMES_API_BASE", &gateway.base_url()).up();
    assert_eq!(bridge.say("  \n").await, "(empty prompt — nothing to do)");
    assert!(gateway.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_in_a_reply_or_in_the_log() {
    let key = "hunter2-hunter2-hunter2";
    let gateway = FakeGateway::always(Reply::error_in_200(&format!("401: bad key {key}"))).await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = Start::new(folder.path())
        .arg("--log=trace")
        .env("HERMES_API_BASE", &gateway.base_url())
        .env("API_SERVER_KEY", key)
        .up();
    let said = bridge.say("hi").await;
    assert!(said.starts_with("[hermes-agent error]"), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
    bridge.terminate();
    let (code, log) = bridge.end();
    assert_eq!(code, Some(0));
    assert!(!log.contains(key), "the log holds the key");
}
