//! An accepted message is in the store, and its turn runs apart from the request that sent it.

use std::sync::Arc;
use std::time::Duration;

use talaria_turns::{Limits, Principal, Refused, SendError, State, StoreError};

use crate::kit::{choosing, message, service, text};

#[tokio::test]
async fn the_task_is_in_the_store_before_send_returns() {
    let (turns, executor) = service(Limits::default());
    let accepted = turns.send(message("wait")).await.unwrap();
    let task = turns.task(&Principal::anyone(), &accepted.task.id).await.unwrap();
    assert_eq!(task.history.len(), 1);
    executor.go.notify_one();
    let task = accepted.settled().await;
    assert_eq!(task.status.state, State::Completed);
    assert_eq!(text(task.text_reply()), "waited");
}

#[tokio::test]
async fn a_turn_carries_on_if_the_client_disconnects() {
    let (turns, executor) = service(Limits::default());
    let id = turns.send(message("wait")).await.unwrap().task.id.clone();
    executor.go.notify_one();
    turns.drain(Duration::from_secs(300)).await;
    let task = turns.task(&Principal::anyone(), &id).await.unwrap();
    assert_eq!(task.status.state, State::Completed);
}

#[tokio::test]
async fn a_rejected_message_makes_no_task_and_takes_no_room() {
    let (turns, executor) = service(Limits { turns: 1, ..Limits::default() });
    let mut wrong = message("hi");
    Arc::make_mut(&mut wrong.message).metadata = choosing("nope");
    assert!(matches!(turns.send(wrong).await, Err(SendError::NoExecutor(_))));
    let mut missing = message("hi");
    missing.task = Some("no-such-task".parse().unwrap());
    assert!(matches!(turns.send(missing).await, Err(SendError::TaskNotFound(_))));

    let first = turns.send(message("wait")).await.unwrap();
    assert!(matches!(turns.send(message("hi")).await, Err(SendError::Busy(1))));
    assert_eq!(turns.refused(), Refused { busy: 1, ..Refused::default() });
    executor.go.notify_one();
    first.settled().await;
    turns.send(message("hi")).await.expect("there is room again").settled().await;
}

#[tokio::test]
async fn another_callers_task_looks_like_a_missing_one() {
    let (turns, _) = service(Limits::default());
    let mut mine = message("hi");
    mine.principal = Principal::named("a");
    let id = turns.send(mine).await.unwrap().settled().await.id.clone();
    let theirs = turns.task(&Principal::named("b"), &id).await;
    assert!(matches!(theirs, Err(StoreError::NotFound)));
    let mut follow_up = message("and?");
    follow_up.principal = Principal::named("b");
    follow_up.task = Some(id);
    assert!(matches!(turns.send(follow_up).await, Err(SendError::TaskNotFound(_))));
}
