//! A restart: what was accepted is run, resumed, or failed with a reason. Nothing is lost, nothing is run twice.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use talaria_store::Memory;
use talaria_turns::{Limits, Message, Principal, State, Store, Task, TaskId, Turns};

use crate::kit::{Scripted, message, on, text};

/// A store that outlives its host, as one on disk does.
fn store() -> Arc<dyn Store> {
    Arc::new(Memory::new(100))
}

/// Sends a message to a host that dies while it runs.
async fn interrupted(store: &Arc<dyn Store>, prompt: &str, until: impl Fn(&Task) -> bool) -> TaskId {
    let (turns, _) = on(Arc::clone(store), Limits::default());
    let id = turns.send(message(prompt)).await.unwrap().task.id.clone();
    while !until(&turns.task(&Principal::anyone(), &id).await.unwrap()) {
        tokio::task::yield_now().await;
    }
    // Forgotten, not drained: nothing is written any more, as after SIGKILL.
    std::mem::forget(turns);
    id
}

async fn restarted(store: &Arc<dyn Store>) -> (Turns, Arc<Scripted>, (usize, usize)) {
    let (turns, executor) = on(Arc::clone(store), Limits::default());
    let recovered = turns.recover().await.unwrap();
    (turns, executor, recovered)
}

async fn settled(turns: &Turns, id: &TaskId) -> Arc<Task> {
    loop {
        let task = turns.task(&Principal::anyone(), id).await.unwrap();
        if task.status.state.is_settled() {
            return task;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_turn_with_a_checkpoint_is_resumed_from_it() {
    let store = store();
    let id = interrupted(&store, "checkpoint", |task| task.checkpoint.is_some()).await;
    let (turns, _, recovered) = restarted(&store).await;
    assert_eq!(recovered, (1, 0));
    assert_eq!(text(settled(&turns, &id).await.text_reply()), "resumed at one");
}

#[tokio::test]
async fn a_turn_without_a_checkpoint_fails_with_a_reason() {
    let store = store();
    let id = interrupted(&store, "never", |task| task.status.state == State::Working).await;
    let (turns, executor, recovered) = restarted(&store).await;
    assert_eq!(recovered, (0, 1));
    let task = settled(&turns, &id).await;
    assert_eq!(task.status.state, State::Failed);
    assert_eq!(text(task.status.message.clone()), "interrupted by a restart");
    assert_eq!(executor.runs.load(Ordering::SeqCst), 0, "it is not run again");
}

#[tokio::test]
async fn a_turn_that_had_not_begun_is_run() {
    let store = store();
    let (turns, _) = on(Arc::clone(&store), Limits::default());
    let first = turns.send(message("never")).await.unwrap();
    let mut second = message("hi");
    second.context = Some(first.task.context.clone());
    let second = turns.send(second).await.unwrap().task.id.clone();
    std::mem::forget(turns);
    let (turns, _, _) = restarted(&store).await;
    assert_eq!(text(settled(&turns, &second).await.text_reply()), "hi");
}

#[tokio::test]
async fn a_question_survives_and_is_not_asked_twice() {
    let store = store();
    let asks = |task: &Task| task.status.state == State::InputRequired;
    let id = interrupted(&store, "ask again", asks).await;
    let (turns, _, recovered) = restarted(&store).await;
    assert_eq!(recovered, (1, 0));
    let task = settled(&turns, &id).await;
    assert_eq!(task.status.state, State::InputRequired, "it still asks");
    let mut answer = message("this one");
    answer.task = Some(id.clone());
    let done = turns.send(answer).await.unwrap().settled().await;
    assert_eq!(text(done.text_reply()), "you said this one");
    let said: Vec<String> = done.history.iter().map(|said| text(Some(Message::clone(said)))).collect();
    assert_eq!(said, ["ask again", "which?", "this one"]);
}

#[tokio::test]
async fn an_answer_from_before_the_checkpoint_answers_nothing_after_it() {
    let store = store();
    let (turns, _) = on(Arc::clone(&store), Limits::default());
    let first = turns.send(message("two questions")).await.unwrap().settled().await;
    let answer = |text: &str| talaria_turns::Incoming { task: Some(first.id.clone()), ..message(text) };
    turns.send(answer("one")).await.unwrap();
    let asks_second =
        |task: &Task| task.status.message.clone().is_some_and(|said| text(Some(said)) == "second?");
    while !asks_second(&turns.task(&Principal::anyone(), &first.id).await.unwrap()) {
        tokio::task::yield_now().await;
    }
    std::mem::forget(turns);
    let (turns, _, _) = restarted(&store).await;
    assert_eq!(
        settled(&turns, &first.id).await.status.state,
        State::InputRequired,
        "it asks, and nobody answered"
    );
    let done = turns.send(answer("two")).await.unwrap().settled().await;
    assert_eq!(text(done.text_reply()), "you said two");
}

#[tokio::test]
async fn tasks_that_had_ended_are_left_alone() {
    let store = store();
    let (turns, _) = on(Arc::clone(&store), Limits::default());
    let done = turns.send(message("hi")).await.unwrap().settled().await;
    std::mem::forget(turns);
    let (turns, _, recovered) = restarted(&store).await;
    assert_eq!(recovered, (0, 0));
    assert_eq!(turns.task(&Principal::anyone(), &done.id).await.unwrap(), done);
}

#[tokio::test]
async fn a_turn_that_had_begun_is_resumed_before_those_behind_it() {
    let store = store();
    let (turns, _) = on(Arc::clone(&store), Limits::default());
    let begun = turns.send(message("checkpoint")).await.unwrap().task;
    while turns.task(&Principal::anyone(), &begun.id).await.unwrap().checkpoint.is_none() {
        tokio::task::yield_now().await;
    }
    for _ in 0..10 {
        // Were one of these first, nothing behind it would ever run.
        let waiting = talaria_turns::Incoming { context: Some(begun.context.clone()), ..message("never") };
        turns.send(waiting).await.unwrap();
    }
    std::mem::forget(turns);
    let (turns, _, recovered) = restarted(&store).await;
    assert_eq!(recovered, (11, 0));
    assert_eq!(text(settled(&turns, &begun.id).await.text_reply()), "resumed at one");
}
