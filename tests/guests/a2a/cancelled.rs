//! A cancel stops the agent's task, and so does the end of the turn's time.

use std::time::Duration;

use talaria_engine::Limits;
use talaria_fakes::{FakeAgent, Reply, Say, Spoken, params};
use talaria_turns::{Executor as _, FailureKind, Turn};
use tokio_util::sync::CancellationToken;

use super::{bare, rig, streaming, task};

#[tokio::test]
async fn a_cancel_stops_the_agents_task() {
    for spoken in [Spoken::V1, Spoken::Rest] {
        let agent = FakeAgent::start(spoken, true).await;
        agent.next("SendStreamingMessage", Say::stream([task("WORKING", "", "")]).hang());
        let rig = rig(&agent).await;
        let cancelled = CancellationToken::new();
        let (running, mut said) = rig.begin_until(rig.turn("hello"), cancelled.clone());
        let mut checkpoint = None;
        let (result, ()) = tokio::join!(running, async {
            while let Some(signal) = said.recv().await {
                if let talaria_turns::TurnSignal::Checkpoint { data, kept } = signal {
                    checkpoint = Some(data);
                    kept.send(Ok(())).unwrap();
                    cancelled.cancel();
                }
            }
        });
        assert_eq!(result.unwrap_err().kind, FailureKind::Cancelled);
        agent.task(bare("CANCELED", "", ""));
        let turn = Turn { checkpoint, ..rig.turn("hello") };
        rig.executor().cancel(turn.clone()).await.unwrap();
        let stops = agent.asked("CancelTask");
        match spoken {
            Spoken::Rest => assert_eq!(stops[0].path, "/rpc/tasks/t1:cancel"),
            _ => assert_eq!(params(&stops[0])["id"], "t1"),
        }
        // A task that is over, or forgotten, needs no cancel.
        agent.next("CancelTask", Say::error(-32001, "which task?"));
        rig.executor().cancel(turn).await.unwrap();
        assert_eq!(agent.messages().len(), 1);
    }
}

#[tokio::test]
async fn a_cancel_that_fails_is_reported_to_the_operator() {
    let agent = streaming(Say::stream([task("COMPLETED", "", "hi")])).await;
    let rig = rig(&agent).await;
    let checkpoint = rig.run("hello").await.checkpoints.last().cloned();
    agent.next("CancelTask", Say::reply(Reply::status(500, "text/plain", "oops")));
    let failure = rig.executor().cancel(Turn { checkpoint, ..rig.turn("hello") }).await.unwrap_err();
    assert_eq!(failure.message, "[agent error 500] oops");
}

#[tokio::test]
async fn a_cancel_before_there_is_a_task_calls_nothing() {
    let agent = FakeAgent::start(Spoken::V1, true).await;
    let rig = rig(&agent).await;
    rig.executor().cancel(rig.turn("hello")).await.unwrap();
    assert_eq!(agent.gateway().connections(), 0);
}

#[tokio::test]
async fn a_task_that_takes_longer_than_the_turn_may_is_cancelled() {
    let agent = streaming(Say::stream([task("WORKING", "", "")]).hang()).await;
    agent.task(bare("WORKING", "", ""));
    let limits = Limits { deadline: Duration::from_secs(5), ..Limits::default() };
    let ran = rig(&agent).await.limits(limits).run("hello").await;
    assert_eq!(
        (ran.failure().kind, ran.failure().message.as_str()),
        (FailureKind::TimedOut, "[agent error] its task took longer than the turn may and was cancelled")
    );
    assert_eq!(agent.asked("CancelTask").len(), 1);
}
