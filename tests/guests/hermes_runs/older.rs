//! A gateway without runs gets the turn as a chat completion.

use std::sync::Arc;

use serde_json::json;
use talaria_fakes::{FakeRuns, Reply, Script, Stream};
use talaria_rig::Rig;
use talaria_turns::{Emitted, FailureKind, Turn};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{KEY, rig};

async fn old() -> (FakeRuns, Rig) {
    let runs = FakeRuns::start([]).await;
    runs.grow_old();
    let rig = rig(&runs).await.secret(KEY, "a-key-of-16-chars");
    (runs, rig)
}

#[tokio::test]
async fn an_older_gateway_gets_a_chat_completion_in_the_contexts_session() {
    let (runs, rig) = old().await;
    let rig = rig.setting("system_prompt", "Be brief.");
    let first = rig.turn("hello there");
    let session = format!("talaria-{}", first.task);
    assert_eq!(rig.execute(first).await.text(), "hi");
    assert_eq!(rig.run("again").await.text(), "hi");
    let asked = runs.requests("POST", "/v1/chat/completions");
    assert_eq!(
        asked[0].json(),
        json!({ "model": "hermes-agent", "stream": true, "messages": [
            { "role": "system", "content": "Be brief." }, { "role": "user", "content": "hello there" },
        ] })
    );
    for request in &asked {
        assert_eq!(request.header("x-hermes-session-id"), Some(session.as_str()));
        assert_eq!(request.header("authorization"), Some("Bearer a-key-of-16-chars"));
    }
    assert_eq!(runs.submitted(), [] as [serde_json::Value; 0]);
}

#[tokio::test]
async fn a_gateway_that_lacks_one_feature_gets_chat_completions() {
    for feature in ["run_submission", "run_status", "run_events_sse", "run_stop"] {
        let runs = FakeRuns::start([Script::new().completed("a run")]).await;
        runs.lacks(feature);
        assert_eq!(rig(&runs).await.run("hello").await.text(), "hi", "{feature}");
    }
}

#[tokio::test]
async fn after_an_upgrade_the_context_goes_on_with_runs_in_the_same_session() {
    let runs = FakeRuns::start([Script::new().completed("a run")]).await;
    let rig = rig(&runs).await.secret(KEY, "a-key-of-16-chars");
    runs.lacks("run_stop");
    let _ = rig.run("first").await;
    let session = runs.requests("POST", "/completions")[0].header("x-hermes-session-id").unwrap().to_owned();
    runs.remember(&session, &[("user", "first"), ("assistant", "hi")]);
    runs.offers("run_stop");
    assert_eq!(rig.run("second").await.text(), "a run");
    assert_eq!(runs.submitted()[0]["session_id"], session);
    assert_eq!(runs.submitted()[0]["conversation_history"][1]["content"], "hi");
}

#[tokio::test]
async fn deltas_are_passed_on_if_the_caller_streams_and_tools_always() {
    let (runs, rig) = old().await;
    let stream =
        || Stream::new().tool_running("terminal", "c1", "ls").delta("Hel").delta("lo").finish("stop");
    runs.next("POST", "/completions", stream().into());
    let watched = rig.stream("hello").await;
    assert_eq!((watched.text(), watched.deltas().concat().as_str()), ("Hello", "Hello"));
    assert!(watched.events.iter().any(|event| matches!(event, Emitted::Tool(_))), "{:?}", watched.events);
    runs.next("POST", "/completions", stream().into());
    let alone = rig.run("hello").await;
    assert_eq!(alone.text(), "Hello");
    assert!(matches!(alone.events.as_slice(), [Emitted::Tool(_)]), "{:?}", alone.events);
}

#[tokio::test]
async fn a_cancel_closes_the_stream_even_if_the_caller_does_not_stream() {
    let (runs, rig) = old().await;
    runs.next("POST", "/completions", Stream::new().delta("one ").hang().into());
    let cancelled = CancellationToken::new();
    let (ran, ()) = tokio::join!(rig.execute_until(rig.turn("hello"), cancelled.clone()), async {
        runs.gateway().asked(2).await;
        cancelled.cancel();
    });
    assert_eq!(ran.failure().kind, FailureKind::Cancelled);
    runs.gateway().let_go().await;
}

#[tokio::test]
async fn a_busy_gateway_is_waited_for_and_a_failure_is_reported() {
    let (runs, rig) = old().await;
    let busy = || Reply::status(429, "application/json", "{}").header("retry-after", "1");
    runs.next("POST", "/completions", busy());
    let ran = rig.stream("hello").await;
    assert_eq!(ran.text(), "hi");
    assert!(ran.events.iter().any(|event| matches!(event, Emitted::Status(text) if text.contains("busy"))));
    runs.next("POST", "/completions", Reply::error_in_200("HTTP 401: no"));
    assert!(rig.run("hello").await.failure().message.starts_with("[hermes-agent error] HTTP 401"));
    runs.next("POST", "/completions", Reply::status(500, "text/plain", "500 Internal Server Error"));
    assert_eq!(
        rig.run("hello").await.failure().message,
        "[hermes-agent error 500] 500 Internal Server Error"
    );
}

#[tokio::test]
async fn a_gateway_whose_features_are_unknown_gets_a_run() {
    let runs = FakeRuns::start((0..2).map(|_| Script::new().completed("a run"))).await;
    let rig = rig(&runs).await;
    runs.next("GET", "/capabilities", Reply::status(500, "text/plain", "500 Internal Server Error"));
    assert_eq!(rig.run("hello").await.text(), "a run");
    // The grant does not include the list of features.
    let base = runs.base_url();
    let grant = [format!("POST {base}/runs"), format!("GET {base}/runs/*"), format!("POST {base}/runs/*")];
    let rig = rig.grant(grant.iter().map(String::as_str));
    assert_eq!(rig.run("hello").await.text(), "a run");
}

#[tokio::test]
async fn a_checkpointed_run_is_followed_whatever_the_gateway_offers_now() {
    let released = Arc::new(Notify::new());
    let runs = FakeRuns::start([Script::new().wait(&released).completed("a run")]).await;
    let rig = rig(&runs).await;
    let checkpoint = {
        let (running, mut said) = rig.begin(rig.turn("hello"));
        let mut running = Box::pin(running);
        loop {
            tokio::select! {
                _ = &mut running => panic!("the run is not over"),
                Some(piece) = said.recv() => if let talaria_turns::TurnSignal::Checkpoint { data, kept } = piece {
                    let _ = kept.send(Ok(()));
                    break data;
                },
            }
        }
    };
    runs.lacks("run_submission");
    released.notify_one();
    let ran = rig.execute(Turn { checkpoint: Some(checkpoint), ..rig.turn("hello") }).await;
    assert_eq!(ran.text(), "a run");
}
