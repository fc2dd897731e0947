//! A restart during a turn that does not stream: the caller gets the answer, and the agent does the work once.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use talaria_fakes::{FakeGateway, Reply};

use crate::bridge::{Bridge, Start};

const KEY: &str = "a-long-key-of-the-tests-7291";

/// A gateway that has been up since the given time and never answers its first request.
async fn gateway(since: &'static str) -> FakeGateway {
    let asked = AtomicUsize::new(0);
    FakeGateway::start(move |request| match request.path.as_str() {
        "/health/detailed" => Reply::json(&json!({
            "gateway_state": "running",
            "platforms": { "api_server": { "updated_at": since } },
        })),
        "/v1/chat/completions" if asked.fetch_add(1, Ordering::SeqCst) == 0 => Reply::hang(),
        _ => Reply::completion("the answer"),
    })
    .await
}

fn up(folder: &std::path::Path, gateway: &FakeGateway) -> Bridge {
    Start::new(folder).env("HERMES_API_BASE", &gateway.base_url()).env("API_SERVER_KEY", KEY).up()
}

/// Kills the bridge while the gateway works on a turn. Returns the task after the next start.
async fn interrupted(gateway: &FakeGateway) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let bridge = up(folder.path(), gateway);
    let id = bridge.start_turn("hello").await;
    // Probes count as requests too.
    let mut requests = 0;
    while completions(gateway).is_empty() {
        requests += 1;
        gateway.asked(requests).await;
    }
    bridge.kill();
    up(folder.path(), gateway).settled(&id).await
}

fn completions(gateway: &FakeGateway) -> Vec<talaria_fakes::Recorded> {
    gateway.requests().into_iter().filter(|request| request.path == "/v1/chat/completions").collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_repeats_the_request_with_the_same_idempotency_key() {
    let gateway = gateway("2020-01-01T00:00:00+00:00").await;
    let task = interrupted(&gateway).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
    assert_eq!(task["artifacts"][0]["parts"][0]["text"], "the answer");
    let completions = completions(&gateway);
    let [first, second] = completions.as_slice() else { panic!("{completions:?}") };
    let key = format!("{}-1", task["id"].as_str().unwrap());
    assert_eq!(first.header("idempotency-key"), Some(key.as_str()));
    assert_eq!((second.header("idempotency-key"), &second.body), (Some(key.as_str()), &first.body));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_fails_if_the_gateway_was_restarted_too() {
    let gateway = gateway("2999-01-01T00:00:00+00:00").await;
    let task = interrupted(&gateway).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_FAILED", "{task}");
    assert_eq!(
        task["status"]["message"]["parts"][0]["text"],
        "interrupted by a restart, and not asked again: the gateway was restarted too"
    );
    assert_eq!(completions(&gateway).len(), 1, "its tools do not run twice");
}
