//! A message that a caller with a name sends again is executed once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use talaria_store::{Memory, Sqlite, SqliteConfig};
use talaria_turns::{Incoming, Limits, Principal, SendError, State, Store};

use crate::kit::{message, on, service, text};

fn from_alice(text: &str) -> Incoming {
    Incoming { principal: Principal::named("alice"), ..message(text) }
}

async fn each_runs_once(store: Arc<dyn Store>) {
    const MESSAGES: usize = 40;
    let (turns, executor) = on(store, Limits::default());
    let mut senders = tokio::task::JoinSet::new();
    let messages: Vec<Incoming> = (0..MESSAGES).map(|number| from_alice(&format!("hi {number}"))).collect();
    for _ in 0..4 {
        for (number, message) in messages.iter().cloned().enumerate() {
            let turns = turns.clone();
            senders.spawn(async move {
                let accepted = turns.send(message).await.unwrap();
                let (id, task) = (accepted.task.id.clone(), accepted.settled().await);
                assert_eq!(text(task.text_reply()), format!("hi {number}"));
                (number, id)
            });
        }
    }
    let mut tasks = HashMap::new();
    while let Some(sent) = senders.join_next().await {
        let (number, id) = sent.unwrap();
        assert_eq!(*tasks.entry(number).or_insert_with(|| id.clone()), id, "all four get the same task");
    }
    assert_eq!((tasks.len(), executor.runs.load(Ordering::SeqCst)), (MESSAGES, MESSAGES));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn four_copies_at_once_are_one_task_in_memory() {
    each_runs_once(Arc::new(Memory::new(1_000))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn four_copies_at_once_are_one_task_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::open(&folder.path().join("store.db"), &SqliteConfig::default()).unwrap();
    each_runs_once(Arc::new(store)).await;
}

#[tokio::test]
async fn an_id_that_is_used_in_two_contexts_runs_once_in_each() {
    let (turns, executor) = service(Limits::default());
    let once = from_alice("hi");
    let send = async |context: &str| {
        let incoming = Incoming { context: Some(context.parse().unwrap()), ..once.clone() };
        turns.send(incoming).await.unwrap().settled().await
    };
    let (first, second, third) = (send("A").await, send("B").await, send("A").await);
    assert_eq!(executor.runs.load(Ordering::SeqCst), 2);
    assert_eq!(first.id, third.id);
    assert_ne!(first.id, second.id);
    assert_eq!((first.context.as_str(), second.context.as_str()), ("A", "B"));
}

#[tokio::test]
async fn four_copies_of_an_answer_answer_once() {
    let (turns, executor) = service(Limits::default());
    let asked = turns.send(from_alice("question")).await.unwrap().settled().await;
    let answer = Incoming { task: Some(asked.id.clone()), ..from_alice("this one") };
    let (a, b, c, d) = tokio::join!(
        turns.send(answer.clone()),
        turns.send(answer.clone()),
        turns.send(answer.clone()),
        turns.send(answer.clone()),
    );
    for accepted in [a, b, c, d] {
        let task = accepted.unwrap().settled().await;
        assert_eq!((&task.id, task.status.state), (&asked.id, State::Completed));
        assert_eq!(text(task.text_reply()), "you said this one");
    }
    assert_eq!(executor.runs.load(Ordering::SeqCst), 1);
    // The task is over by now, and takes no other message.
    let again = turns.send(answer).await.unwrap().settled().await;
    assert_eq!(again.id, asked.id);
    let other = Incoming { task: Some(asked.id.clone()), ..from_alice("that one") };
    assert!(matches!(turns.send(other).await, Err(SendError::TaskOver { .. })));
}

#[tokio::test]
async fn a_copy_finds_its_task_even_if_the_lane_is_full() {
    let (turns, executor) = service(Limits { lane: 1, ..Limits::default() });
    let context = Some("c".parse().unwrap());
    let once = Incoming { context: context.clone(), ..from_alice("wait") };
    let first = turns.send(once.clone()).await.unwrap();
    let again = turns.send(once).await.unwrap();
    assert_eq!(again.task.id, first.task.id);
    let other = turns.send(Incoming { context, ..from_alice("hi") }).await;
    assert!(matches!(other, Err(SendError::LaneFull(1))));
    executor.go.notify_one();
    assert_eq!(again.settled().await.status.state, State::Completed);
}
