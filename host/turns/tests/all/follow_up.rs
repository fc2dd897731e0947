//! The next message of a task, and the state of executors between two messages.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use talaria_turns::{ContextId, Incoming, Limits, Principal, SendError, State, Task, TaskId, Turns};

use crate::kit::{message, service, text};

#[tokio::test]
async fn an_interrupted_task_continues_with_the_next_message() {
    let (turns, _) = service(Limits::default());
    let asked = turns.send(message("ask")).await.unwrap().settled().await;
    assert_eq!(asked.status.state, State::InputRequired);

    let mut answer = message("history");
    answer.task = Some(asked.id.clone());
    let done = turns.send(answer).await.unwrap().settled().await;
    assert_eq!((&done.id, &done.context), (&asked.id, &asked.context), "the context is inferred");
    assert_eq!(text(done.text_reply()), "2", "the question and what was asked before it");
    let said: Vec<String> = done.history.iter().map(|message| text(Some(message.clone()))).collect();
    assert_eq!(said, ["ask", "which?", "history"]);
}

#[tokio::test]
async fn a_message_to_a_working_task_waits_and_the_task_with_it() {
    let (turns, executor) = service(Limits::default());
    let first = turns.send(message("wait")).await.unwrap();
    let mut second = message("history");
    second.task = Some(first.task.id.clone());
    let second = turns.send(second).await.unwrap();
    executor.go.notify_one();
    let (first, second) = (first.settled().await, second.settled().await);
    assert_eq!(first.version, second.version, "both wait for the same end");
    assert_eq!(second.status.state, State::Completed);
    assert_eq!(text(second.text_reply()), "1", "the first message was before it");
    assert_eq!(executor.runs.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_task_that_has_ended_takes_no_more_messages() {
    let (turns, executor) = service(Limits::default());
    let done = turns.send(message("hi")).await.unwrap().settled().await;
    let mut late = message("and?");
    late.task = Some(done.id.clone());
    assert!(matches!(turns.send(late).await, Err(SendError::TaskOver { state: State::Completed, .. })));
    assert_eq!(executor.runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn turns_of_one_context_run_one_after_the_other() {
    let (turns, executor) = service(Limits { lane: 2, ..Limits::default() });
    let context = ContextId::fresh();
    let in_context =
        |prompt: &str| talaria_turns::Incoming { context: Some(context.clone()), ..message(prompt) };
    let first = turns.send(in_context("wait")).await.unwrap();
    let second = turns.send(in_context("hi")).await.unwrap();
    assert!(matches!(turns.send(in_context("hi")).await, Err(SendError::LaneFull(2))), "a lane is bounded");
    assert_eq!(turns.refused().lane_full, 1);
    // Another conversation is not held up.
    turns.send(message("hi")).await.unwrap().settled().await;
    let now = turns.task(&Principal::anyone(), &second.task.id).await.unwrap();
    assert_eq!(now.status.state, State::Submitted, "it waits");
    executor.go.notify_one();
    assert_eq!(first.settled().await.status.state, State::Completed);
    assert_eq!(second.settled().await.status.state, State::Completed);
}

#[tokio::test]
async fn a_turn_that_asks_continues_with_the_answer() {
    let (turns, executor) = service(Limits::default());
    let asked = turns.send(message("question")).await.unwrap().settled().await;
    assert_eq!(asked.status.state, State::InputRequired);
    assert_eq!(text(asked.status.message.clone()), "which?");
    let mut answer = message("this one");
    answer.task = Some(asked.id.clone());
    let done = turns.send(answer).await.unwrap().settled().await;
    assert_eq!(text(done.text_reply()), "you said this one");
    assert_eq!(executor.runs.load(Ordering::SeqCst), 1, "it is the same turn");
}

#[tokio::test]
async fn of_two_answers_the_first_answers_and_the_second_is_a_turn() {
    let (turns, executor) = service(Limits::default());
    let asked = turns.send(message("question")).await.unwrap().settled().await;
    let answer = |text: &str| talaria_turns::Incoming { task: Some(asked.id.clone()), ..message(text) };
    let (one, two) = tokio::join!(turns.send(answer("one")), turns.send(answer("two")));
    let (one, two) = (one.unwrap().settled().await, two.unwrap().settled().await);
    assert_eq!(one.version, two.version, "both wait for the same end");
    assert_eq!(one.status.state, State::Completed);
    assert_eq!(executor.runs.load(Ordering::SeqCst), 2, "neither is lost");
    assert_eq!(one.answers.len() + one.pending.len(), 0, "and nothing is left over");
}

/// The task once it is in this state.
async fn in_state(turns: &Turns, id: &TaskId, state: State) -> Arc<Task> {
    loop {
        let task = turns.task(&Principal::anyone(), id).await.unwrap();
        if task.status.state == state {
            return task;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_task_works_on_after_its_question_is_withdrawn() {
    let (turns, executor) = service(Limits::default());
    let asked = turns.send(message("changes its mind")).await.unwrap().settled().await;
    assert_eq!(text(asked.status.message.clone()), "which?");
    executor.go.notify_one();
    in_state(&turns, &asked.id, State::Working).await;
    executor.go.notify_one();
    let again = in_state(&turns, &asked.id, State::InputRequired).await;
    assert_eq!(text(again.status.message.clone()), "or rather?");
    let answer = Incoming { task: Some(asked.id.clone()), ..message("that one") };
    let done = turns.send(answer).await.unwrap().settled().await;
    assert_eq!(text(done.text_reply()), "you said that one");
}

#[tokio::test]
async fn an_answer_to_a_withdrawn_question_does_not_answer_the_next_one() {
    let (turns, executor) = service(Limits::default());
    let asked = turns.send(message("changes its mind")).await.unwrap().settled().await;
    let answer = |text: &str| Incoming { task: Some(asked.id.clone()), ..message(text) };
    turns.send(answer("yes")).await.unwrap();
    in_state(&turns, &asked.id, State::Working).await;
    while turns.task(&Principal::anyone(), &asked.id).await.unwrap().status.state == State::Working {
        executor.go.notify_one();
        tokio::task::yield_now().await;
    }
    let again = in_state(&turns, &asked.id, State::InputRequired).await;
    assert_eq!(text(again.status.message.clone()), "or rather?");
    let done = turns.send(answer("no")).await.unwrap().settled().await;
    assert_eq!(text(done.text_reply()), "you said no");
}

#[tokio::test]
async fn the_same_message_sent_again_gets_the_first_answer() {
    let (turns, executor) = service(Limits::default());
    let once = talaria_turns::Incoming { principal: Principal::named("alice"), ..message("hi") };
    let first = turns.send(once.clone()).await.unwrap().settled().await;
    let again = turns.send(once.clone()).await.unwrap().settled().await;
    assert_eq!(first, again);
    assert_eq!(executor.runs.load(Ordering::SeqCst), 1);
    // The same id with other content is another message.
    let mut other = message("ho");
    Arc::make_mut(&mut other.message).id = once.message.id.clone();
    other.principal = once.principal.clone();
    assert_ne!(turns.send(other).await.unwrap().settled().await.id, first.id);
    // Nobody knows who says it when nobody says who it is.
    let nameless = talaria_turns::Incoming { principal: Principal::anyone(), ..once };
    let one = turns.send(nameless.clone()).await.unwrap().settled().await;
    assert_ne!(turns.send(nameless).await.unwrap().settled().await.id, one.id);
}

#[tokio::test]
async fn a_message_for_another_context_than_its_tasks_is_rejected() {
    let (turns, _) = service(Limits::default());
    let asked = turns.send(message("ask")).await.unwrap().settled().await;
    let mut wrong = message("hi");
    wrong.task = Some(asked.id.clone());
    wrong.context = Some(ContextId::fresh());
    assert!(matches!(turns.send(wrong).await, Err(SendError::ContextMismatch { .. })));
}

#[tokio::test]
async fn the_state_of_an_executor_belongs_to_one_context() {
    let (turns, _) = service(Limits::default());
    let mut first = message("remember");
    let context = ContextId::fresh();
    first.context = Some(context.clone());
    turns.send(first).await.unwrap().settled().await;
    let mut again = message("recall");
    again.context = Some(context);
    let again = turns.send(again).await.unwrap().settled().await;
    assert_eq!(text(again.text_reply()), "v");
    let elsewhere = turns.send(message("recall")).await.unwrap().settled().await;
    assert_eq!(text(elsewhere.text_reply()), "nothing");
}

#[tokio::test]
async fn the_route_gets_the_executor_of_the_last_turn() {
    let (turns, executor) = service(Limits::default());
    let asked = turns.send(message("ask")).await.unwrap().settled().await;
    assert_eq!(asked.executor.as_deref(), Some("scripted"));
    assert_eq!(executor.continued.lock().unwrap().as_slice(), [None]);
    let mut answer = message("hi");
    answer.task = Some(asked.id.clone());
    turns.send(answer).await.unwrap().settled().await;
    assert_eq!(executor.continued.lock().unwrap().as_slice(), [None, Some("scripted".to_owned())]);
}
