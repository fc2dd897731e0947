//! Failures of a gateway that answers with an error or not at all.

use std::time::Duration;

use talaria_egress::Bounds;
use talaria_engine::Limits;
use talaria_fakes::{FakeGateway, Reply, Stream, free_port};
use talaria_rig::{Ran, Rig};
use talaria_turns::FailureKind;

use super::{KEY, rig};

async fn run_against(reply: Reply) -> Ran {
    let gateway = FakeGateway::always(reply).await;
    rig(&gateway).await.run("hello").await
}

#[tokio::test]
async fn an_error_status_is_reported_with_its_body_json_or_text() {
    let cases = [
        (
            401,
            "application/json",
            r#"{"error":{"message":"Invalid API key","code":"invalid_api_key"}}"#,
            false,
        ),
        (404, "text/plain; charset=utf-8", "404: Not Found", false),
        (405, "text/plain", "405: Method Not Allowed", false),
        (429, "application/json", r#"{"error":{"message":"Too many concurrent runs (max 10)"}}"#, true),
        (500, "text/plain", "500 Internal Server Error\n\nServer got itself in trouble", true),
        (502, "application/json", r#"{"error":{"code":"agent_incomplete"}}"#, true),
        (503, "application/json", "", true),
        (302, "text/html", "moved", false),
        (403, "text/plain", "", false),
    ];
    for (status, content_type, body, retryable) in cases {
        let ran = run_against(Reply::status(status, content_type, body)).await;
        let failure = ran.failure();
        assert_eq!(failure.message, format!("[hermes-agent error {status}] {body}"));
        assert_eq!(failure.kind, FailureKind::Upstream, "{status}");
        assert_eq!(failure.retryable, retryable, "{status}");
        assert_eq!(ran.events, []);
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let gateway = FakeGateway::start(|request| {
        assert_eq!(request.path, "/v1/chat/completions");
        Reply::status(307, "text/plain", "elsewhere").header("location", "/elsewhere")
    })
    .await;
    let ran = rig(&gateway).await.run("hello").await;
    assert_eq!(ran.failure().message, "[hermes-agent error 307] elsewhere");
    assert_eq!(gateway.requests().len(), 1);
}

#[tokio::test]
async fn an_error_is_cut_after_500_characters_not_bytes() {
    for filler in ["x", "ä", "€", "🦀", "e\u{301}"] {
        let body: String = filler.repeat(600);
        let ran = run_against(Reply::status(500, "text/plain", body.clone())).await;
        let expected: String = body.chars().take(500).collect();
        assert_eq!(ran.failure().message, format!("[hermes-agent error 500] {expected}"), "of {filler:?}");
    }
}

#[tokio::test]
async fn an_error_of_exactly_500_characters_is_whole() {
    let body = "ä".repeat(500);
    let ran = run_against(Reply::status(500, "text/plain", body.clone())).await;
    assert_eq!(ran.failure().message, format!("[hermes-agent error 500] {body}"));
}

#[tokio::test]
async fn an_error_that_is_not_utf8_is_still_readable() {
    let ran = run_against(Reply::status(500, "application/octet-stream", b"caf\xe9 \xff!".as_slice())).await;
    assert_eq!(ran.failure().message, "[hermes-agent error 500] caf\u{fffd} \u{fffd}!");
}

#[tokio::test]
async fn a_refused_connection_is_reported_with_its_reason() {
    let address = format!("127.0.0.1:{}", free_port());
    let rig = Rig::new("chat-completions").await.setting("base_url", format!("http://{address}/v1"));
    for ran in [rig.run("hello").await, rig.stream("hello").await] {
        let failure = ran.failure();
        assert_eq!(failure.message, format!("[hermes-agent unreachable] connection refused ({address})"));
        assert_eq!(failure.kind, FailureKind::Upstream);
        assert!(failure.retryable, "it may be up a moment later");
    }
}

#[tokio::test]
async fn a_gateway_that_does_not_answer_in_time_is_unreachable() {
    let gateway = FakeGateway::always(Reply::hang()).await;
    let bounds = Bounds { timeout: Duration::from_millis(250), ..Bounds::default() };
    let ran = rig(&gateway).await.bounds(bounds).run("hello").await;
    let failure = ran.failure();
    let expected = "[hermes-agent unreachable] timed out after 250ms (127.0.0.1:";
    assert!(failure.message.starts_with(expected), "{}", failure.message);
    assert_eq!(failure.kind, FailureKind::TimedOut);
    assert!(failure.retryable);
    gateway.let_go().await;
}

#[tokio::test]
async fn the_end_of_the_turns_time_reads_as_an_unreachable_gateway() {
    let limits = Limits { deadline: Duration::from_secs(2), ..Limits::default() };
    for reply in [Reply::hang(), Stream::new().delta("Well, ").hang().into()] {
        let gateway = FakeGateway::always(reply).await;
        let ran = rig(&gateway).await.limits(limits).stream("hello").await;
        let failure = ran.failure();
        assert!(failure.message.starts_with("[hermes-agent unreachable] timed out after 1"), "{failure:?}");
        assert_eq!(failure.kind, FailureKind::TimedOut);
        gateway.let_go().await;
    }
}

#[tokio::test]
async fn a_gateway_that_breaks_the_connection_or_the_protocol_is_unreachable() {
    let cases: [(&str, &[u8]); 4] = [
        ("nothing at all", b""),
        ("no HTTP", b"SSH-2.0-OpenSSH_9.2\r\n"),
        ("half a head", b"HTTP/1.1 200 OK\r\ncontent-len"),
        ("half a body", b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"choices\":"),
    ];
    for (what, bytes) in cases {
        let ran = run_against(Reply::raw(bytes)).await;
        let failure = ran.failure();
        assert!(failure.message.starts_with("[hermes-agent unreachable] "), "{what}: {}", failure.message);
        assert!(failure.message.contains("(127.0.0.1:"), "{what}: it says where: {}", failure.message);
        assert_eq!((failure.kind, failure.retryable), (FailureKind::Upstream, true), "{what}");
    }
}

#[tokio::test]
async fn an_answer_above_the_bound_is_not_read() {
    let bounds = Bounds { response_body: 1_000, ..Bounds::default() };
    let gateway = FakeGateway::always(Reply::completion(&"x".repeat(2_000))).await;
    let ran = rig(&gateway).await.bounds(bounds).run("hello").await;
    let message = &ran.failure().message;
    assert!(message.contains("longer than 1000 bytes"), "{message}");
}

#[tokio::test]
async fn the_gateways_key_in_an_error_is_scrubbed() {
    let key = "k-0123456789abcdef-gateway";
    let gateway = FakeGateway::start(move |request| {
        let sent = request.header("authorization").unwrap_or_default().to_owned();
        Reply::status(401, "text/plain", format!("bad credentials: {sent}"))
    })
    .await;
    for ran in [
        rig(&gateway).await.secret(KEY, key).run("hello").await,
        rig(&gateway).await.secret(KEY, key).stream("hello").await,
    ] {
        let message = &ran.failure().message;
        assert!(message.starts_with("[hermes-agent error 401] bad credentials: "), "{message}");
        assert!(!message.contains(key), "{message}");
    }
    assert_eq!(gateway.requests().len(), 2);
}

#[tokio::test]
async fn the_cut_does_not_leave_half_a_key_behind() {
    let key = "k-0123456789abcdef-gateway";
    // The cut falls after the key's 20th character.
    let body = format!("{}{key} and so on", "x".repeat(480));
    let gateway = FakeGateway::always(Reply::status(500, "text/plain", body)).await;
    let ran = rig(&gateway).await.secret(KEY, key).run("hello").await;
    let message = &ran.failure().message;
    assert!(!message.contains("k-0123456789abcdef"), "{message}");
}
