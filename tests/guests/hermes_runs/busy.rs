//! A busy gateway.

use std::time::Duration;

use talaria_engine::Limits;
use talaria_fakes::{FakeRuns, Reply, Script};
use talaria_turns::{Emitted, FailureKind};
use tokio_util::sync::CancellationToken;

use super::rig;

const BODY: &str =
    r#"{"error":{"message":"Too many concurrent runs (max 10)","code":"rate_limit_exceeded"}}"#;

fn busy(status: u16, after: Option<&str>) -> Reply {
    let reply = Reply::status(status, "application/json", BODY);
    match after {
        Some(after) => reply.header("retry-after", after),
        None => reply,
    }
}

#[tokio::test]
async fn a_busy_gateway_is_asked_again_after_the_pause_that_it_names() {
    for reply in [
        busy(429, Some("1")),
        busy(429, None),
        busy(503, Some("1")),
        busy(429, Some("Wed, 21 Oct 2026 07:28:00 GMT")),
    ] {
        let runs = FakeRuns::start([Script::new().completed("hi")]).await;
        runs.next("POST", "/v1/runs", reply);
        let ran = rig(&runs).await.stream("hello").await;
        assert_eq!(ran.text(), "hi");
        assert_eq!(runs.submitted().len(), 2);
        assert_eq!(ran.events[0], Emitted::Status("The agent is busy; waiting for a place.".into()));
    }
}

#[tokio::test]
async fn a_busy_gateway_is_not_waited_for_beyond_the_turns_time() {
    let runs = FakeRuns::start([Script::new().completed("hi")]).await;
    runs.next("POST", "/v1/runs", busy(429, Some("30")));
    let limits = Limits { deadline: Duration::from_secs(20), ..Limits::default() };
    let ran = rig(&runs).await.limits(limits).run("hello").await;
    let failure = ran.failure();
    assert_eq!(failure.message, format!("[hermes-agent error 429] {BODY}"));
    assert_eq!((failure.kind, failure.retryable), (FailureKind::Upstream, true));
    assert_eq!(runs.submitted().len(), 1);
}

#[tokio::test]
async fn a_503_without_a_pause_is_not_asked_again() {
    let runs = FakeRuns::start([Script::new().completed("hi")]).await;
    runs.next("POST", "/v1/runs", busy(503, None));
    assert_eq!(
        rig(&runs).await.run("hello").await.failure().message,
        format!("[hermes-agent error 503] {BODY}")
    );
}

#[tokio::test]
async fn a_turn_that_waits_for_a_busy_gateway_can_be_cancelled() {
    let runs = FakeRuns::start([Script::new().completed("hi")]).await;
    runs.next("POST", "/v1/runs", busy(429, Some("60")));
    let rig = rig(&runs).await;
    let cancelled = CancellationToken::new();
    let (ran, ()) = tokio::join!(rig.execute_until(rig.turn("hello"), cancelled.clone()), async {
        runs.gateway().asked(2).await;
        cancelled.cancel();
    });
    assert_eq!(ran.failure().kind, FailureKind::Cancelled);
}
