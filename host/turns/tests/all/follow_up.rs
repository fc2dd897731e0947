//! The next message of a task, and what an executor remembers between two.

use std::sync::atomic::Ordering;

use talaria_turns::{ContextId, Limits, SendError, State};

use crate::kit::{message, service, text};

#[tokio::test]
async fn an_interrupted_task_goes_on_with_the_next_message() {
    let (turns, _) = service(Limits::default());
    let asked = turns.send(message("ask")).await.unwrap().settled(&turns).await.unwrap();
    assert_eq!(asked.status.state, State::InputRequired);

    let mut answer = message("history");
    answer.task = Some(asked.id.clone());
    let done = turns.send(answer).await.unwrap().settled(&turns).await.unwrap();
    assert_eq!((&done.id, &done.context), (&asked.id, &asked.context), "the context is inferred");
    assert_eq!(text(done.text_reply()), "2", "the question and what was asked before it");
    let said: Vec<String> = done.history.iter().map(|message| text(Some(message.clone()))).collect();
    assert_eq!(said, ["ask", "which?", "history"]);
}

#[tokio::test]
async fn a_task_takes_one_message_at_a_time_and_none_after_its_end() {
    let (turns, executor) = service(Limits::default());
    let accepted = turns.send(message("wait")).await.unwrap();
    let mut second = message("hi");
    second.task = Some(accepted.task.id.clone());
    assert!(matches!(turns.send(second.clone()).await, Err(SendError::TaskBusy(_))));
    executor.go.notify_one();
    accepted.settled(&turns).await.unwrap();
    assert!(matches!(turns.send(second).await, Err(SendError::TaskOver { state: State::Completed, .. })));
    assert_eq!(executor.runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_message_for_another_context_than_its_tasks_is_refused() {
    let (turns, _) = service(Limits::default());
    let asked = turns.send(message("ask")).await.unwrap().settled(&turns).await.unwrap();
    let mut wrong = message("hi");
    wrong.task = Some(asked.id.clone());
    wrong.context = Some(ContextId::fresh());
    assert!(matches!(turns.send(wrong).await, Err(SendError::ContextMismatch { .. })));
}

#[tokio::test]
async fn an_executor_remembers_within_a_context_only() {
    let (turns, _) = service(Limits::default());
    let mut first = message("remember");
    let context = ContextId::fresh();
    first.context = Some(context.clone());
    turns.send(first).await.unwrap().settled(&turns).await.unwrap();
    let mut again = message("recall");
    again.context = Some(context);
    let again = turns.send(again).await.unwrap().settled(&turns).await.unwrap();
    assert_eq!(text(again.text_reply()), "v");
    let elsewhere = turns.send(message("recall")).await.unwrap().settled(&turns).await.unwrap();
    assert_eq!(text(elsewhere.text_reply()), "nothing");
}
