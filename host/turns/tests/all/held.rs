//! A task whose turn has completed stays open while it is held.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use talaria_store::Memory;
use talaria_turns::keys::HOST_MESSAGE;
use talaria_turns::{
    Accepted, Event, Hold, Incoming, Limits, Message, MessageId, Principal, SendError, State, Store, Task,
    TaskKey, Turns,
};

use crate::kit::{Only, Scripted, message, text};

/// Holds every task, or none.
#[derive(Default)]
struct Holder {
    holds: AtomicBool,
    over: Mutex<Vec<TaskKey>>,
}

impl Hold for Holder {
    fn is_held(&self, _: &TaskKey) -> bool {
        self.holds.load(Ordering::SeqCst)
    }

    fn is_over(&self, task: &TaskKey) {
        self.over.lock().unwrap().push(task.clone());
    }
}

fn service(store: Arc<dyn Store>, holds: bool) -> (Turns, Arc<Holder>) {
    let holder = Arc::new(Holder { holds: AtomicBool::new(holds), ..Holder::default() });
    let route = Arc::new(Only(Arc::new(Scripted::default())));
    let turns = Turns::builder(store, route, Limits::default()).hold(Arc::clone(&holder) as _).build();
    (turns, holder)
}

fn memory() -> Arc<dyn Store> {
    Arc::new(Memory::new(100))
}

fn key(accepted: &Accepted) -> TaskKey {
    TaskKey { owner: Principal::anyone(), task: accepted.task.id.clone() }
}

/// Waits until a task is held.
async fn held(turns: &Turns, key: &TaskKey) -> Arc<Task> {
    loop {
        let task = turns.task(&key.owner, &key.task).await.unwrap();
        if task.is_held() {
            return task;
        }
        assert!(!task.status.state.is_settled(), "{:?}", task.status);
        tokio::task::yield_now().await;
    }
}

fn to(key: &TaskKey, prompt: &str) -> Incoming {
    Incoming { task: Some(key.task.clone()), ..message(prompt) }
}

#[tokio::test]
async fn the_caller_gets_the_answer_to_the_next_message_and_not_the_promise() {
    let (turns, holder) = service(memory(), true);
    let first = turns.send(message("I have asked Ann")).await.unwrap();
    let key = key(&first);
    let waiting = held(&turns, &key).await;
    assert_eq!(text(waiting.status.message.clone()), "I have asked Ann", "the promise is shown as progress");
    assert!(waiting.artifacts.is_empty(), "a promise is no result");
    holder.holds.store(false, Ordering::SeqCst);
    turns.send(to(&key, "Ann says 42")).await.unwrap();
    let done = first.settled().await;
    assert_eq!((done.status.state, text(done.text_reply())), (State::Completed, "Ann says 42".to_owned()));
    let said: Vec<String> = done.history.iter().map(|message| text(Some(message.clone()))).collect();
    assert_eq!(said, ["I have asked Ann", "Ann says 42", "I have asked Ann"]);
}

#[tokio::test]
async fn a_streamed_promise_is_replaced_by_the_answer() {
    let (turns, holder) = service(memory(), true);
    let first = turns.send(message("stream")).await.unwrap();
    let mut reader = first.reader();
    let key = key(&first);
    let waiting = held(&turns, &key).await;
    assert!(waiting.status.message.is_none(), "it was read piece by piece");
    holder.holds.store(false, Ordering::SeqCst);
    turns.send(to(&key, "stream blanks")).await.unwrap();
    let done = first.settled().await;
    assert_eq!(text(done.text_reply()).trim(), "Hello");
    assert_eq!(done.artifacts.len(), 1);
    let mut pieces = Vec::new();
    while let Some(entry) = reader.next().await.unwrap() {
        if let Event::Artifact { append, .. } = entry.event.as_ref() {
            pieces.push(*append);
        }
    }
    assert_eq!(pieces, [false, true, false, true], "the second answer begins anew");
}

#[tokio::test]
async fn a_released_task_completes_with_the_answer_that_it_has() {
    for (prompt, answer) in [("a promise", "a promise"), ("stream", "Hello")] {
        let (turns, holder) = service(memory(), true);
        let first = turns.send(message(prompt)).await.unwrap();
        let key = key(&first);
        held(&turns, &key).await;
        holder.holds.store(false, Ordering::SeqCst);
        assert!(turns.release(&key).await.unwrap());
        assert!(!turns.release(&key).await.unwrap(), "once");
        assert_eq!(text(first.settled().await.text_reply()), answer);
    }
}

#[tokio::test]
async fn only_a_completed_turn_leaves_its_task_open() {
    let (turns, _) = service(memory(), true);
    for (prompt, state) in [("fail", State::Failed), ("ask", State::InputRequired), ("panic", State::Failed)]
    {
        assert_eq!(
            turns.send(message(prompt)).await.unwrap().settled().await.status.state,
            state,
            "{prompt}"
        );
    }
}

#[tokio::test]
async fn a_held_task_can_be_cancelled_and_its_holder_hears_of_it() {
    let (turns, holder) = service(memory(), true);
    let first = turns.send(message("a promise")).await.unwrap();
    let key = key(&first);
    held(&turns, &key).await;
    turns.cancel(&key.owner, &key.task).await.unwrap();
    assert_eq!(*holder.over.lock().unwrap(), std::slice::from_ref(&key));
    assert!(!turns.release(&key).await.unwrap());
    let late = turns.send(to(&key, "too late")).await.err();
    assert!(matches!(late, Some(SendError::TaskOver { state: State::Canceled, .. })));
}

#[tokio::test]
async fn a_held_task_outlives_a_restart_and_is_completed_if_nobody_holds_it() {
    for holds in [true, false] {
        let store = memory();
        let (turns, _) = service(Arc::clone(&store), true);
        let first = turns.send(message("a promise")).await.unwrap();
        let key = key(&first);
        held(&turns, &key).await;
        // Forgotten, not drained: nothing is written any more, as after SIGKILL.
        std::mem::forget((turns, first));
        let (turns, _) = service(store, holds);
        turns.recover().await.unwrap();
        let task = turns.task(&key.owner, &key.task).await.unwrap();
        assert_eq!(task.is_held(), holds);
        if !holds {
            assert_eq!(text(task.text_reply()), "a promise");
        }
    }
}

#[tokio::test]
async fn a_message_of_the_host_is_executed_once_whoever_passes_it_on() {
    let (turns, _) = service(memory(), false);
    let sent = |id: &str| {
        let id: MessageId = id.parse().unwrap();
        let Incoming { message, .. } = message("results");
        Incoming { message: Arc::new(Message { id, ..Message::clone(&message) }), ..self::message("results") }
    };
    let id = format!("{HOST_MESSAGE}4c1d");
    let first = turns.send(sent(&id)).await.unwrap().settled().await;
    let again = turns.send(sent(&id)).await.unwrap().settled().await;
    assert_eq!(first.id, again.id);
    let other = turns.send(sent("m-1")).await.unwrap().settled().await;
    let repeated = turns.send(sent("m-1")).await.unwrap().settled().await;
    assert_ne!(other.id, repeated.id, "messages of callers without a name are each new");
}
