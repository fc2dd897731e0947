//! The status decides; events may be wrong, incomplete or missing.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use talaria_engine::Limits;
use talaria_fakes::{FakeRuns, Reply, Script, Stream};
use talaria_turns::{FailureKind, Usage};
use tokio::sync::Notify;

use super::{rig, run_against, stream_against};

#[tokio::test]
async fn a_failed_run_is_a_failure_with_its_text() {
    for ran in [
        run_against(Script::new().failed("HTTP 401: no credits")).await,
        stream_against(Script::new().delta("Well. ").failed("HTTP 401: no credits")).await,
    ] {
        assert_eq!(ran.failure().message, "[hermes-agent error] HTTP 401: no credits");
        assert_eq!(ran.failure().kind, FailureKind::Upstream);
    }
    let long = run_against(Script::new().failed(&"ä".repeat(600))).await;
    assert_eq!(long.failure().message, format!("[hermes-agent error] {}", "ä".repeat(500)));
}

#[tokio::test]
async fn a_run_that_somebody_else_stopped_is_a_failure() {
    let ran = run_against(Script::new().cancelled()).await;
    assert_eq!(ran.failure().message, "[hermes-agent error] the run was cancelled at the gateway");
}

#[tokio::test]
async fn a_run_without_output_says_so() {
    let end = || Script::new().ends(json!({ "event": "run.completed" }), json!({ "status": "completed" }));
    assert_eq!(run_against(end()).await.text(), "(hermes-agent returned no content)");
    assert_eq!(run_against(Script::new().completed("")).await.text(), "(hermes-agent returned no content)");
}

#[tokio::test]
async fn if_event_and_status_differ_the_status_wins() {
    let event = json!({ "event": "run.completed", "output": "wrong" });
    let ran =
        run_against(Script::new().ends(event.clone(), json!({ "status": "completed", "output": "right" })))
            .await;
    assert_eq!(ran.text(), "right");
    let ran =
        run_against(Script::new().ends(event, json!({ "status": "failed", "error": "it broke" }))).await;
    assert_eq!(ran.failure().message, "[hermes-agent error] it broke");
}

#[tokio::test]
async fn the_event_counts_if_the_status_is_unreadable() {
    let runs = FakeRuns::start([Script::new().completed("hi")]).await;
    let id = format!("/v1/runs/run_{:032x}", 1);
    runs.next("GET", &id, Reply::status(500, "text/plain", "500 Internal Server Error"));
    assert_eq!(rig(&runs).await.run("hello").await.text(), "hi");
}

#[tokio::test]
async fn a_stream_of_keepalives_does_not_delay_the_end() {
    // A second subscriber gets this for ever, although the run is over.
    let runs = FakeRuns::start([Script::new().delta("hi").completed("hi")]).await;
    runs.next("GET", "/events", Stream::default().bytes(": keepalive\n\n").hang().into());
    let ran = rig(&runs).await.stream("hello").await;
    assert_eq!(ran.text(), "hi");
    assert_eq!(ran.result.unwrap().usage, Some(Usage { input_tokens: 11, output_tokens: 7 }));
    assert_eq!(runs.requests("GET", "/events").len(), 1);
}

#[tokio::test]
async fn a_stream_that_breaks_is_never_opened_again() {
    let released = Arc::new(Notify::new());
    let script = Script::new().delta("Hello ").breaks().wait(&released).completed("Hello there");
    let runs = FakeRuns::start([script]).await;
    let rig = rig(&runs).await;
    let (ran, ()) = tokio::join!(rig.stream("hello"), async {
        // The run, its events, and a first look at its status.
        runs.gateway().asked(4).await;
        released.notify_one();
    });
    assert_eq!(ran.text(), "Hello there");
    assert_eq!(ran.deltas().concat(), "Hello ");
    assert_eq!(runs.requests("GET", "/events").len(), 1);
}

#[tokio::test]
async fn a_run_without_events_is_followed_by_its_status() {
    for reply in [
        Reply::status(404, "application/json", r#"{"error":{"code":"run_not_found"}}"#),
        Reply::status(500, "text/plain", "500 Internal Server Error"),
        Reply::status(200, "text/html", "<p>hi"),
        Reply::raw(b"".as_slice()),
    ] {
        let runs = FakeRuns::start([Script::new().completed("hi")]).await;
        runs.next("GET", "/events", reply);
        assert_eq!(rig(&runs).await.run("hello").await.text(), "hi");
        assert_eq!(runs.requests("GET", "/events").len(), 1);
    }
}

#[tokio::test]
async fn a_restart_of_the_gateway_is_reported() {
    let runs = FakeRuns::start([Script::new().delta("Hello ").hang()]).await;
    let rig = rig(&runs).await;
    let (ran, ()) = tokio::join!(rig.stream("hello"), async {
        runs.gateway().asked(3).await;
        runs.restart();
    });
    let failure = ran.failure();
    assert_eq!(failure.message, "[hermes-agent error] gateway restarted: it does not know the run any more");
    assert_eq!(failure.kind, FailureKind::Upstream);
}

#[tokio::test]
async fn an_unreadable_status_is_asked_for_again() {
    let runs = FakeRuns::start([Script::new().completed("hi")]).await;
    let id = format!("/v1/runs/run_{:032x}", 1);
    runs.next("GET", "/events", Reply::status(404, "text/plain", "no"));
    for reply in [
        Reply::status(500, "text/plain", "500 Internal Server Error"),
        Reply::status(429, "application/json", "{}"),
        Reply::status(200, "text/plain", "hello?"),
        Reply::raw(b"".as_slice()),
    ] {
        runs.next("GET", &id, reply);
    }
    assert_eq!(rig(&runs).await.run("hello").await.text(), "hi");
    assert_eq!(runs.requests("GET", &id).len(), 5);
}

#[tokio::test]
async fn a_gateway_that_does_not_come_back_is_unreachable() {
    let runs = FakeRuns::start([Script::new().breaks().hang()]).await;
    let id = format!("/v1/runs/run_{:032x}", 1);
    for _ in 0..20 {
        runs.next("GET", &id, Reply::raw(b"".as_slice()));
    }
    let ran = rig(&runs).await.run("hello").await;
    assert!(ran.failure().message.starts_with("[hermes-agent unreachable] "), "{}", ran.failure());
    assert!(ran.failure().retryable);
}

#[tokio::test]
async fn a_key_that_the_gateway_no_longer_accepts_ends_the_turn_at_once() {
    let runs = FakeRuns::start([Script::new().breaks().hang()]).await;
    runs.next("GET", &format!("/v1/runs/run_{:032x}", 1), Reply::status(401, "application/json", "{}"));
    let ran = rig(&runs).await.run("hello").await;
    assert_eq!(ran.failure().message, "[hermes-agent error 401] {}");
}

#[tokio::test]
async fn a_status_of_a_later_gateway_is_understood() {
    let script =
        Script::new().ends(json!({ "event": "run.interrupted" }), json!({ "status": "interrupted" }));
    assert!(run_against(script).await.failure().message.contains("cancelled at the gateway"));
    // An unknown status counts as under way.
    let runs = FakeRuns::start([Script::new().completed("hi")]).await;
    let id = format!("/v1/runs/run_{:032x}", 1);
    runs.next("GET", "/events", Reply::status(404, "text/plain", "no"));
    runs.next("GET", &id, Reply::json(&json!({ "status": "pondering", "new": [1] })));
    assert_eq!(rig(&runs).await.run("hello").await.text(), "hi");
}

#[tokio::test]
async fn a_run_that_outlasts_its_turn_is_stopped() {
    let runs = FakeRuns::start([Script::new().hang()]).await;
    let limits = Limits { deadline: Duration::from_secs(4), ..Limits::default() };
    let ran = rig(&runs).await.limits(limits).run("hello").await;
    assert_eq!(ran.failure().kind, FailureKind::TimedOut);
    assert_eq!(
        ran.failure().message,
        "[hermes-agent error] the run took longer than the turn may and was stopped"
    );
    assert_eq!(runs.requests("POST", "/stop").len(), 1);
}
