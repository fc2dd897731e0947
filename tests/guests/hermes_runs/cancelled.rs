//! A cancel stops the run, in an instance of its own.

use talaria_fakes::{FakeRuns, Reply, Script};
use talaria_turns::{Executor as _, FailureKind, Turn};
use tokio_util::sync::CancellationToken;

use super::{rig, run_against};

#[tokio::test]
async fn a_cancel_stops_the_run_and_ends_the_turn() {
    let runs = FakeRuns::start([Script::new().delta("one ").hang()]).await;
    let rig = rig(&runs).await;
    let cancelled = CancellationToken::new();
    let (ran, ()) = tokio::join!(rig.execute_until(rig.turn("hello"), cancelled.clone()), async {
        runs.gateway().asked(3).await;
        cancelled.cancel();
    });
    assert_eq!(ran.failure().kind, FailureKind::Cancelled);
    let turn = Turn { checkpoint: ran.checkpoints.last().cloned(), ..rig.turn("hello") };
    rig.executor().cancel(turn.clone()).await.unwrap();
    let stops = runs.requests("POST", "/stop");
    assert_eq!(stops[0].path, format!("/v1/runs/run_{:032x}/stop", 1));
    // Stopping a run that is over succeeds too.
    rig.executor().cancel(turn).await.unwrap();
}

#[tokio::test]
async fn a_run_that_cannot_be_stopped_is_reported_to_the_operator() {
    let runs = FakeRuns::start([Script::new().completed("hi")]).await;
    let rig = rig(&runs).await;
    let ran = rig.run("hello").await;
    let turn = || Turn { checkpoint: ran.checkpoints.last().cloned(), ..rig.turn("hello") };
    rig.executor().cancel(turn()).await.expect("it is over: 404");
    runs.next(
        "POST",
        "/stop",
        Reply::status(409, "application/json", r#"{"error":{"code":"run_not_active"}}"#),
    );
    rig.executor().cancel(turn()).await.expect("a later gateway says it so");
    runs.next("POST", "/stop", Reply::status(500, "text/plain", "500 Internal Server Error"));
    let failure = rig.executor().cancel(turn()).await.unwrap_err();
    assert_eq!(failure.message, "[hermes-agent error 500] 500 Internal Server Error");
}

#[tokio::test]
async fn a_cancel_before_the_run_calls_nothing() {
    let runs = FakeRuns::start([]).await;
    let rig = rig(&runs).await;
    rig.executor().cancel(rig.turn("hello")).await.unwrap();
    assert_eq!(runs.gateway().connections(), 0);
}

#[tokio::test]
async fn the_run_is_checkpointed_before_anything_else() {
    let ran = run_against(Script::new().completed("hi")).await;
    let kept: serde_json::Value = serde_json::from_slice(&ran.checkpoints[0]).unwrap();
    assert_eq!(kept, serde_json::json!({ "run": format!("run_{:032x}", 1) }));
}
