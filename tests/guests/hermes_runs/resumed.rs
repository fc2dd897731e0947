//! After a restart of this host the run is followed by its status, and no answer is taken for another.

use std::sync::Arc;

use serde_json::json;
use talaria_fakes::{FakeRuns, Script};
use talaria_rig::{Ran, Rig};
use talaria_turns::{Part, Turn, TurnSignal};
use tokio::sync::Notify;

use super::{converse, rig, says};

const COMMAND: &str = "rm -rf /srv/data";

/// Runs a turn up to its first question, or until that many requests were made, then drops it as a crash does; returns
/// its checkpoint.
async fn crash(runs: &FakeRuns, rig: &Rig, requests: Option<usize>) -> Vec<u8> {
    let (running, mut said) = rig.begin(rig.turn("hello"));
    let mut kept_last = None;
    let until = async {
        match requests {
            Some(requests) => runs.gateway().asked(requests).await,
            None => std::future::pending().await,
        }
    };
    let asks = async {
        while let Some(piece) = said.recv().await {
            match piece {
                TurnSignal::Checkpoint { data, kept } => {
                    kept_last = Some(data);
                    kept.send(Ok(())).unwrap();
                }
                TurnSignal::Ask { .. } => return,
                TurnSignal::Emitted(_) => {}
            }
        }
        panic!("it ended");
    };
    tokio::select! {
        result = running => panic!("it ended: {result:?}"),
        () = asks => {}
        () = until => {}
    }
    kept_last.expect("a checkpoint")
}

async fn resume(rig: &Rig, checkpoint: Vec<u8>, answers: impl IntoIterator<Item = Vec<Part>>) -> Ran {
    converse(rig, Turn { checkpoint: Some(checkpoint), streaming: true, ..rig.turn("hello") }, answers).await
}

#[tokio::test]
async fn the_run_is_followed_by_its_status_and_not_started_again() {
    let released = Arc::new(Notify::new());
    let runs = FakeRuns::start([Script::new().delta("one ").wait(&released).completed("the answer")]).await;
    let rig = rig(&runs).await;
    let kept = crash(&runs, &rig, Some(3)).await;
    released.notify_one();
    let ran = resume(&rig, kept, []).await;
    assert_eq!(ran.text(), "the answer");
    assert_eq!(runs.submitted().len(), 1);
    assert_eq!(runs.requests("GET", "/events").len(), 1, "its events went to a reader that is gone");
}

#[tokio::test]
async fn a_run_that_the_gateway_forgot_is_a_failure() {
    let runs = FakeRuns::start([Script::new().hang()]).await;
    let rig = rig(&runs).await;
    let kept = crash(&runs, &rig, Some(3)).await;
    runs.restart();
    let ran = resume(&rig, kept, []).await;
    assert!(ran.failure().message.contains("gateway restarted"), "{}", ran.failure());
    assert_eq!(runs.submitted().len(), 1);
}

#[tokio::test]
async fn a_question_is_asked_again_in_the_same_words() {
    let runs = FakeRuns::start([Script::new().approval(COMMAND).completed("done")]).await;
    let rig = rig(&runs).await;
    let kept = crash(&runs, &rig, None).await;
    let ran = resume(&rig, kept, [says("yes")]).await;
    assert!(ran.questions[0].contains(COMMAND), "{:?}", ran.questions);
    assert_eq!(ran.text(), "done");
    assert_eq!(runs.choices(), ["once"]);
    assert_eq!(ran.checkpoints.len(), 1, "no new point before the answer, which belongs to the old one");
}

#[tokio::test]
async fn an_answer_to_a_question_that_is_over_allows_nothing() {
    let patience = Arc::new(Notify::new());
    let script = Script::new().approval_until("rm -rf /a", &patience).approval("rm -rf /b").completed("done");
    let runs = FakeRuns::start([script]).await;
    let rig = rig(&runs).await;
    let kept = crash(&runs, &rig, None).await;
    patience.notify_one();
    while runs.asked_for() < 2 {
        tokio::task::yield_now().await;
    }
    // The second command is unknown here, so it is denied without a question.
    let ran = resume(&rig, kept, []).await;
    assert_eq!(ran.text(), "done");
    assert_eq!(runs.choices(), ["deny"]);
}

#[tokio::test]
async fn an_unreadable_checkpoint_is_a_failure() {
    let runs = FakeRuns::start([]).await;
    let rig = rig(&runs).await;
    for kept in [b"".to_vec(), b"{}".to_vec(), json!({ "run": 7 }).to_string().into_bytes()] {
        let ran = resume(&rig, kept, []).await;
        assert!(ran.failure().message.contains("checkpoint is unreadable"), "{}", ran.failure());
    }
    assert_eq!(runs.gateway().connections(), 0);
}
