//! A caller reads the class of a failure, and nothing that a provider wrote.

use std::time::Duration;

use serde_json::json;
use talaria_egress::Bounds;
use talaria_engine::Limits;
use talaria_fakes::{FakeGateway, PROVIDER_KEY, Reply, Stream, free_port};
use talaria_rig::{Ran, Trace};
use talaria_turns::FailureKind;

use super::{KEY, rig, run_against, stream_against};

fn assert_failed(ran: &Ran, class: &str, kind: FailureKind, retryable: bool) {
    let failure = ran.failure();
    assert_eq!(failure.message, format!("Agent error: {class}"));
    assert_eq!((failure.kind, failure.retryable), (kind, retryable), "{class}");
}

#[tokio::test]
async fn a_status_is_reported_by_the_name_of_its_class() {
    let cases = [
        (400, "BadRequestError", false),
        (401, "AuthenticationError", false),
        (402, "APIStatusError", false),
        (403, "PermissionDeniedError", false),
        (404, "NotFoundError", false),
        (408, "APIStatusError", true),
        (409, "ConflictError", true),
        (422, "UnprocessableEntityError", false),
        (429, "RateLimitError", true),
        (500, "InternalServerError", true),
        (503, "InternalServerError", true),
        (302, "APIStatusError", false),
    ];
    for (status, class, retryable) in cases {
        let body = format!(r#"{{"error":{{"message":"quota of account 4711, key {PROVIDER_KEY}"}}}}"#);
        let reply = Reply::status(status, "application/json", body);
        for ran in [run_against(reply.clone()).await, stream_against(reply.clone()).await] {
            assert_failed(&ran, class, FailureKind::Upstream, retryable);
            assert_eq!(ran.events, []);
        }
    }
}

#[tokio::test]
async fn a_failure_inside_a_200_is_a_failure() {
    let cases = [
        (json!({ "error": { "message": "Provider returned error", "code": 429 } }), "RateLimitError", true),
        (
            json!({ "error": { "message": "Provider returned error", "code": "server_error" } }),
            "APIError",
            false,
        ),
        (json!({ "error": { "message": "no", "code": 7 } }), "APIError", false),
        (
            json!({ "choices": [{ "message": { "content": "HTTP 401: no" }, "finish_reason": "error" }] }),
            "APIError",
            false,
        ),
        (
            json!({
                "choices": [{ "message": { "content": "no" }, "finish_reason": "stop" }],
                "hermes": { "failed": true, "error": "HTTP 401: no" },
            }),
            "APIError",
            false,
        ),
    ];
    for (body, class, retryable) in cases {
        let ran = run_against(Reply::json(&body)).await;
        assert_failed(&ran, class, FailureKind::Upstream, retryable);
    }
    let stream =
        Stream::new().delta("Well, ").bytes("data: {\"error\":{\"message\":\"no\",\"code\":502}}\n\n");
    assert_failed(&stream_against(stream).await, "InternalServerError", FailureKind::Upstream, true);
    assert_failed(&stream_against(Stream::new().fail("no")).await, "APIError", FailureKind::Upstream, false);
}

#[tokio::test]
async fn an_answer_of_another_shape_is_a_failure() {
    for body in [
        "[]",
        "null",
        r#""hi""#,
        "{}",
        r#"{"choices":[]}"#,
        r#"{"choices":null}"#,
        r#"{"choices":[{"message":null}]}"#,
        r#"{"choices":[{"message":{"content":42}}]}"#,
        r#"{"choices":[{"message":{"content":[{"type":"hologram"}]}}]}"#,
        "{",
        "",
        "<!doctype html>",
    ] {
        let reply = Reply::status(200, "application/json", body);
        for ran in [run_against(reply.clone()).await, stream_against(reply.clone()).await] {
            assert_failed(&ran, "APIResponseValidationError", FailureKind::Upstream, false);
        }
    }
    assert_eq!(run_against(Reply::status(200, "application/json", "[".repeat(100_000))).await.events, []);
}

#[tokio::test]
async fn an_endpoint_that_is_not_there_is_a_connection_error() {
    let address = format!("127.0.0.1:{}", free_port());
    let rig = super::rig_at(&format!("http://{address}/v1")).await;
    for ran in [rig.run("hello").await, rig.stream("hello").await] {
        assert_failed(&ran, "APIConnectionError", FailureKind::Upstream, true);
    }
    let ran = run_against(Reply::raw(b"SSH-2.0-OpenSSH_9.2\r\n".as_slice())).await;
    assert_failed(&ran, "APIConnectionError", FailureKind::Upstream, true);
}

#[tokio::test]
async fn an_endpoint_that_does_not_answer_in_time_is_a_timeout() {
    let endpoint = FakeGateway::always(Reply::hang()).await;
    let bounds = Bounds { timeout: Duration::from_millis(250), ..Bounds::default() };
    let ran = rig(&endpoint).await.bounds(bounds).run("hello").await;
    assert_failed(&ran, "APITimeoutError", FailureKind::TimedOut, true);
    endpoint.let_go().await;
}

#[tokio::test]
async fn the_end_of_the_turns_time_reads_as_a_timeout_of_the_endpoint() {
    let limits = Limits { deadline: Duration::from_secs(2), ..Limits::default() };
    for reply in [Reply::hang(), Stream::new().delta("Well, ").hang().into()] {
        let endpoint = FakeGateway::always(reply).await;
        let ran = rig(&endpoint).await.limits(limits).stream("hello").await;
        assert_failed(&ran, "APITimeoutError", FailureKind::TimedOut, true);
        endpoint.let_go().await;
    }
}

#[tokio::test]
async fn an_answer_above_the_bound_is_not_read() {
    let endpoint = FakeGateway::always(Reply::completion(&"x".repeat(2_000))).await;
    let bounds = Bounds { response_body: 1_000, ..Bounds::default() };
    let ran = rig(&endpoint).await.bounds(bounds).run("hello").await;
    assert_failed(&ran, "APIResponseValidationError", FailureKind::Upstream, false);
}

#[tokio::test]
async fn a_call_without_a_grant_never_reaches_the_endpoint() {
    let endpoint = super::polite().await;
    for grant in [vec![], vec![format!("GET {}/models", endpoint.base_url())]] {
        let rig = rig(&endpoint).await.grant(grant.iter().map(String::as_str));
        assert_failed(&rig.run("hello").await, "APIConnectionError", FailureKind::Denied, false);
    }
    assert_eq!(endpoint.connections(), 0);
}

#[tokio::test]
async fn the_log_has_the_reason_and_no_key() {
    let key = "sk-or-0123456789abcdef";
    let endpoint = FakeGateway::start(|request| {
        let sent = request.header("authorization").unwrap_or_default().to_owned();
        Reply::status(401, "text/plain", format!("no such account: {sent}"))
    })
    .await;
    let rig = rig(&endpoint).await.secret(KEY, key);
    let trace = Trace::start();
    assert_failed(&rig.run("hello").await, "AuthenticationError", FailureKind::Upstream, false);
    let everything = trace.everything();
    assert!(everything.contains("no such account"), "{everything}");
    assert!(!everything.contains(key), "{everything}");
}
