//! The requests to the gateway.

use serde_json::json;
use talaria_fakes::{FakeRuns, Reply, Script};
use talaria_turns::{Content, FailureKind, Part, Turn, Usage};

use super::{KEY, rig};

async fn polite() -> FakeRuns {
    FakeRuns::start((0..4).map(|_| Script::new().completed("hi"))).await
}

#[tokio::test]
async fn a_turn_is_sent_as_a_run() {
    let runs = polite().await;
    let rig = rig(&runs).await;
    let turn = rig.turn("hello there");
    let task = turn.task.to_string();
    let ran = rig.execute(turn).await;
    assert_eq!(ran.text(), "hi");
    assert_eq!(ran.events, [], "a buffered turn says nothing meanwhile");
    assert_eq!(ran.result.unwrap().usage, Some(Usage { input_tokens: 11, output_tokens: 7 }));
    assert_eq!(
        runs.submitted(),
        [json!({ "input": "hello there", "session_id": format!("talaria-{task}") })]
    );
    let submit = &runs.requests("POST", "/v1/runs")[0];
    assert_eq!(submit.header("content-type"), Some("application/json"));
    assert_eq!(submit.header("authorization"), None, "no key is set");
    assert_eq!(submit.header("origin"), None, "the gateway refuses any request that has one");
    assert_eq!(runs.requests("GET", "/events").len(), 1, "events are given once");
}

#[tokio::test]
async fn images_are_sent_in_a_message() {
    let runs = polite().await;
    let rig = rig(&runs).await;
    let image =
        Part { media_type: Some("image/png".into()), ..Part::new(Content::Bytes(b"\x89PNG".to_vec())) };
    assert_eq!(rig.execute(rig.turn_of(vec![Part::text("look"), image])).await.text(), "hi");
    assert_eq!(
        runs.submitted()[0]["input"],
        json!([{ "role": "user", "content": [
            { "type": "text", "text": "look" },
            { "type": "image_url", "image_url": { "url": "data:image/png;base64,iVBORw==" } },
        ] }])
    );
}

#[tokio::test]
async fn a_long_text_is_sent_whole() {
    let runs = polite().await;
    let text = "ä".repeat(70_000);
    assert_eq!(rig(&runs).await.run(&text).await.text(), "hi");
    assert_eq!(runs.submitted()[0]["input"], text);
}

#[tokio::test]
async fn the_model_and_the_system_prompt_are_sent() {
    let runs = polite().await;
    let rig = rig(&runs).await.setting("model", "fast").setting("system_prompt", "Be brief.");
    assert_eq!(rig.run("hello").await.text(), "hi");
    let body = &runs.submitted()[0];
    assert_eq!((&body["model"], &body["instructions"]), (&json!("fast"), &json!("Be brief.")));
}

#[tokio::test]
async fn every_call_carries_the_key() {
    let runs = FakeRuns::start([Script::new().approval("rm -rf /x").completed("hi")]).await;
    runs.want_key("a-key-of-16-chars");
    let rig = rig(&runs).await.secret(KEY, "a-key-of-16-chars");
    rig.executor().setup().await.unwrap();
    let ran = super::converse(&rig, rig.turn("hello"), [super::says("yes")]).await;
    assert_eq!(ran.text(), "hi");
    let turn = Turn { checkpoint: ran.checkpoints.last().cloned(), ..rig.turn("hello") };
    talaria_turns::Executor::cancel(&rig.executor(), turn).await.unwrap();
    for request in runs.gateway().requests() {
        assert_eq!(request.header("authorization"), Some("Bearer a-key-of-16-chars"), "{}", request.path);
    }
}

#[tokio::test]
async fn a_rejected_key_is_reported() {
    let runs = polite().await;
    runs.want_key("a-key-of-16-chars");
    let failure = rig(&runs).await.run("hello").await.result.unwrap_err();
    assert!(failure.message.starts_with("[hermes-agent error 401] "), "{failure}");
    assert!(!failure.retryable);
}

#[tokio::test]
async fn a_blank_prompt_is_answered_without_a_call() {
    let runs = polite().await;
    assert_eq!(rig(&runs).await.run(" \n").await.text(), "(empty prompt — nothing to do)");
    assert_eq!(runs.gateway().connections(), 0);
}

#[tokio::test]
async fn an_error_is_reported_with_its_body_json_or_text() {
    for (status, kind, body) in [
        (400, "application/json", r#"{"error":{"message":"Missing 'input' field"}}"#),
        (404, "text/plain", "404: Not Found"),
        (500, "text/plain", "500 Internal Server Error\n\nServer got itself in trouble"),
        (403, "application/octet-stream", ""),
    ] {
        let runs = polite().await;
        runs.next("POST", "/v1/runs", Reply::status(status, kind, body));
        let failure = rig(&runs).await.run("hello").await.result.unwrap_err();
        assert_eq!(failure.message, format!("[hermes-agent error {status}] {body}"));
        assert_eq!((failure.kind, failure.retryable), (FailureKind::Upstream, status >= 500));
    }
}

#[tokio::test]
async fn a_run_without_a_usable_id_is_a_failure() {
    for body in ["{}", "not json", r#"{"run_id":""}"#, r#"{"run_id":"../../admin"}"#, r#"{"run_id":7}"#] {
        let runs = polite().await;
        runs.next("POST", "/v1/runs", Reply::status(202, "application/json", body));
        let failure = rig(&runs).await.run("hello").await.result.unwrap_err();
        assert_eq!(failure.message, "[hermes-agent error] the gateway started a run and did not say which");
        assert_eq!(runs.requests("GET", "/events").len(), 0, "{body}");
    }
}

#[tokio::test]
async fn a_call_without_a_grant_never_reaches_the_gateway() {
    let runs = polite().await;
    let failure = rig(&runs).await.grant([]).run("hello").await.result.unwrap_err();
    assert_eq!(failure.message, "[hermes-agent unreachable] the operator's policy does not allow it");
    assert_eq!(failure.kind, FailureKind::Denied);
    assert_eq!(runs.gateway().connections(), 0);
}
