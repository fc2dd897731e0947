//! A task is cancelled once, whatever races with the cancel, and the upstream is stopped.

use std::sync::atomic::Ordering;

use talaria_turns::{CancelError, Limits, Principal, State, StoreError, TaskId};

use crate::kit::{message, service, text};

#[tokio::test]
async fn a_running_turn_is_stopped_and_so_is_its_upstream() {
    let (turns, executor) = service(Limits::default());
    let accepted = turns.send(message("until cancelled")).await.unwrap();
    // Until it runs.
    while executor.runs.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let id = accepted.task.id.clone();
    let cancelled = turns.cancel(&Principal::anyone(), &id).await.unwrap();
    assert_eq!(cancelled.status.state, State::Canceled);
    assert_eq!(executor.cancels.load(Ordering::SeqCst), 1);
    assert_eq!(accepted.settled().await.version, cancelled.version, "callers that wait are answered");
    let again = turns.cancel(&Principal::anyone(), &id).await;
    assert!(
        matches!(again, Err(CancelError::Over { state: State::Canceled, .. })),
        "the second cancel fails: {again:?}"
    );
    assert_eq!(turns.task(&Principal::anyone(), &id).await.unwrap().version, cancelled.version);
}

#[tokio::test]
async fn a_cancelled_turn_that_waits_in_its_lane_never_begins() {
    let (turns, executor) = service(Limits::default());
    let first = turns.send(message("wait")).await.unwrap();
    let mut second = message("hi");
    second.context = Some(first.task.context.clone());
    let second = turns.send(second).await.unwrap();
    let cancelled = turns.cancel(&Principal::anyone(), &second.task.id).await.unwrap();
    assert_eq!(cancelled.status.state, State::Canceled);
    executor.go.notify_one();
    assert_eq!(first.settled().await.status.state, State::Completed);
    assert_eq!(executor.runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_task_that_has_ended_cannot_be_cancelled() {
    let (turns, _) = service(Limits::default());
    let done = turns.send(message("hi")).await.unwrap().settled().await;
    let refused = turns.cancel(&Principal::anyone(), &done.id).await;
    assert!(matches!(refused, Err(CancelError::Over { state: State::Completed, .. })));
    let missing = turns.cancel(&Principal::anyone(), &TaskId::fresh()).await;
    assert!(matches!(missing, Err(CancelError::Store(StoreError::NotFound))));
    let foreign = turns.cancel(&Principal::named("b"), &done.id).await;
    assert!(matches!(foreign, Err(CancelError::Store(StoreError::NotFound))));
}

#[tokio::test]
async fn a_task_that_asks_is_cancelled_with_or_without_its_turn() {
    let (turns, _) = service(Limits::default());
    for prompt in ["question", "ask"] {
        let asked = turns.send(message(prompt)).await.unwrap().settled().await;
        assert_eq!(asked.status.state, State::InputRequired);
        let cancelled = turns.cancel(&Principal::anyone(), &asked.id).await.unwrap();
        assert_eq!(cancelled.status.state, State::Canceled, "{prompt}");
    }
}

#[tokio::test]
async fn a_task_that_asks_without_a_turn_has_its_work_upstream_stopped() {
    let (turns, executor) = service(Limits::default());
    let asked = turns.send(message("leave work and ask")).await.unwrap().settled().await;
    assert_eq!(asked.status.state, State::InputRequired);
    turns.cancel(&Principal::anyone(), &asked.id).await.unwrap();
    assert_eq!(*executor.cancelled_at.lock().unwrap(), [b"work".to_vec()]);

    // Without a checkpoint there is nothing to find.
    let asked = turns.send(message("ask")).await.unwrap().settled().await;
    turns.cancel(&Principal::anyone(), &asked.id).await.unwrap();
    assert_eq!(executor.cancels.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn the_next_turn_of_a_task_does_not_begin_at_the_checkpoint_of_the_last() {
    let (turns, _) = service(Limits::default());
    let asked = turns.send(message("leave work and ask")).await.unwrap().settled().await;
    let mut answer = message("checkpoint?");
    answer.task = Some(asked.id.clone());
    let done = turns.send(answer).await.unwrap().settled().await;
    assert_eq!(text(done.text_reply()), "none");
    assert_eq!(done.checkpoint, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_cancel_and_an_answer_one_wins() {
    let (turns, _) = service(Limits::default());
    for _ in 0..200 {
        let accepted = turns.send(message("hi")).await.unwrap();
        let id = accepted.task.id.clone();
        let cancel = turns.cancel(&Principal::anyone(), &id).await;
        let task = accepted.settled().await;
        match cancel {
            Ok(_) => assert_eq!(task.status.state, State::Canceled),
            Err(CancelError::Over { state, .. }) => {
                assert_eq!((state, task.status.state), (State::Completed, state))
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn an_executor_that_notices_the_cancel_first_is_still_cancelled() {
    let (turns, executor) = service(Limits::default());
    let task = turns.send(message("hear of a cancel first")).await.unwrap().settled().await;
    assert_eq!(task.status.state, State::Canceled);
    assert_eq!(executor.cancels.load(Ordering::SeqCst), 1, "its upstream is told");
}
