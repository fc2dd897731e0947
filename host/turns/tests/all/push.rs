//! Push notifications: what is sent, when, and what happens if a receiver fails.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use talaria_store::Memory;
use talaria_turns::{
    Event, Incoming, Limits, Part, Principal, PushConfig, PushConfigId, PushContent, PushError, PushFailure,
    PushLimits, PushNotification, PushSender, Retry, SendError, State, Store, StoreError, StreamAs, TaskId,
    TaskKey, Turns,
};
use tokio::sync::Notify;

use crate::kit::{Only, Scripted, message};

/// Keeps what it is given; fails as often as it is told to.
#[derive(Default)]
pub(crate) struct Kept {
    notification: Mutex<Vec<(String, PushNotification)>>,
    failures: Mutex<VecDeque<Retry>>,
    came: Notify,
}

impl Kept {
    pub(crate) fn told(&self) -> Vec<(String, PushNotification)> {
        self.notification.lock().unwrap().clone()
    }

    /// Waits until as much was told.
    pub(crate) async fn until(&self, count: usize) -> Vec<(String, PushNotification)> {
        loop {
            let came = self.came.notified();
            let told = self.told();
            if told.len() >= count {
                return told;
            }
            came.await;
        }
    }
}

#[async_trait]
impl PushSender for Kept {
    async fn admits(&self, url: &str) -> Result<(), String> {
        if url.starts_with("https://") { Ok(()) } else { Err("must be https".into()) }
    }

    async fn deliver(&self, config: &PushConfig, notification: &PushNotification) -> Result<(), PushFailure> {
        if let Some(retry) = self.failures.lock().unwrap().pop_front() {
            return Err(PushFailure { why: "as asked".into(), retry });
        }
        self.notification.lock().unwrap().push((config.id.to_string(), notification.clone()));
        self.came.notify_waiters();
        Ok(())
    }
}

pub(crate) fn config(id: &str) -> PushConfig {
    PushConfig {
        id: id.parse().unwrap(),
        url: "https://example.com/".into(),
        content: PushContent::Events,
        stream: Default::default(),
        token: None,
        authentication: None,
    }
}

fn quick() -> PushLimits {
    PushLimits { configs: 2, tries: 3, pause: Duration::from_millis(1), ..PushLimits::default() }
}

pub(crate) fn service(store: &Arc<dyn Store>) -> (Turns, Arc<Scripted>, Arc<Kept>) {
    let (executor, sender) = (Arc::new(Scripted::default()), Arc::new(Kept::default()));
    let route = Arc::new(Only(Arc::clone(&executor)));
    let turns = Turns::builder(Arc::clone(store), route, Limits::default())
        .push_sender(Arc::clone(&sender) as _, quick())
        .build();
    (turns, executor, sender)
}

pub(crate) fn store() -> Arc<dyn Store> {
    Arc::new(Memory::new(100))
}

pub(crate) fn with_push(text: &str, config: PushConfig) -> Incoming {
    Incoming { push: Some(config), ..message(text) }
}

/// The numbers of the events that were told.
pub(crate) fn numbers(told: &[(String, PushNotification)]) -> Vec<u64> {
    let number = |(_, notification): &(String, PushNotification)| match notification {
        PushNotification::Event(_, entry) => entry.sequence,
        PushNotification::Task(task) => task.version,
    };
    told.iter().map(number).collect()
}

pub(crate) fn key(task: &TaskId) -> TaskKey {
    TaskKey { owner: Principal::anyone(), task: task.clone() }
}

async fn given_up(turns: &Turns) -> Vec<String> {
    loop {
        let all = turns.given_up(10).await.unwrap();
        if !all.is_empty() {
            return all.into_iter().filter_map(|stored| stored.given_up).map(|why| why.why).collect();
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn every_event_after_the_message_is_sent_once_in_order() {
    let (turns, _, sender) = service(&store());
    let task = turns.send(with_push("stream", config("h"))).await.unwrap().settled().await;
    let told = sender.until(5).await;
    // 1 is the message itself; then working, two deltas, the whole, completed.
    assert_eq!(numbers(&told), [2, 3, 4, 5, 6]);
    assert_eq!(task.version, 6);
    let (_, PushNotification::Event(_, last)) = &told[4] else { panic!("an event") };
    assert_eq!(last.event.state(), Some(State::Completed));
    // Nothing is left to tell.
    turns.drain(Duration::ZERO).await;
    assert_eq!(sender.told().len(), 5);
}

#[tokio::test]
async fn a_receiver_of_whole_answers_gets_no_pieces() {
    let (turns, _, sender) = service(&store());
    let whole = PushConfig { stream: StreamAs::Whole, ..config("h") };
    turns.send(with_push("stream", whole)).await.unwrap().settled().await;
    let told = sender.until(3).await;
    assert_eq!(numbers(&told), [2, 5, 6]);
    let (_, PushNotification::Event(_, whole)) = &told[1] else { panic!("an event") };
    assert!(matches!(&*whole.event, Event::Whole(artifact) if artifact.parts == [Part::text("Hello")]));
}

#[tokio::test]
async fn a_task_notification_has_the_whole_task_when_its_status_changes() {
    let (turns, executor, sender) = service(&store());
    let tells = PushConfig { content: PushContent::Task, ..config("h") };
    let accepted = turns.send(with_push("wait", tells)).await.unwrap();
    let told = sender.until(1).await;
    assert!(
        matches!(&told[0].1, PushNotification::Task(task) if task.status.state == State::Working),
        "{told:?}"
    );
    executor.go.notify_one();
    accepted.settled().await;
    let told = sender.until(2).await;
    let (_, PushNotification::Task(task)) = &told[1] else { panic!("a task") };
    assert_eq!((task.status.state, task.artifacts.len()), (State::Completed, 1));
}

#[tokio::test]
async fn a_push_configuration_that_is_set_later_gets_later_events_only() {
    let (turns, executor, sender) = service(&store());
    let accepted = turns.send(message("wait")).await.unwrap();
    let id = accepted.task.id.clone();
    // Until it works.
    accepted.reader().next().await.unwrap();
    turns.set_push_config(&Principal::anyone(), &id, config("late")).await.unwrap();
    executor.go.notify_one();
    accepted.settled().await;
    let told = sender.until(2).await;
    assert_eq!(numbers(&told), [3, 4]);
}

#[tokio::test]
async fn a_failed_notification_is_retried_and_keeps_its_order() {
    let (turns, _, sender) = service(&store());
    sender.failures.lock().unwrap().extend([Retry::Later, Retry::After(Duration::from_millis(1))]);
    turns.send(with_push("stream", config("h"))).await.unwrap().settled().await;
    assert_eq!(numbers(&sender.until(5).await), [2, 3, 4, 5, 6]);
}

#[tokio::test]
async fn a_push_configuration_that_fails_too_often_is_given_up_and_carries_on_when_retried() {
    let (turns, _, sender) = service(&store());
    sender.failures.lock().unwrap().extend([Retry::Later; 3]);
    let task = turns.send(with_push("hi", config("h"))).await.unwrap().settled().await;
    assert_eq!(given_up(&turns).await, ["as asked"]);
    assert_eq!(sender.told().len(), 0, "what comes later waits behind it");
    turns.retry_push_config(&key(&task.id), &config("h").id).await.unwrap();
    let told = sender.until(3).await;
    assert_eq!(numbers(&told), [2, 3, 4]);
    assert_eq!(turns.given_up(10).await.unwrap(), []);
    let unknown: PushConfigId = "x".parse().unwrap();
    assert!(matches!(
        turns.retry_push_config(&key(&task.id), &unknown).await,
        Err(PushError::NoSuchConfig(_))
    ));
}

#[tokio::test]
async fn a_failure_without_retry_is_given_up_at_once() {
    let (turns, _, sender) = service(&store());
    sender.failures.lock().unwrap().push_back(Retry::Never);
    turns.send(with_push("hi", config("h"))).await.unwrap().settled().await;
    given_up(&turns).await;
    assert_eq!(turns.given_up(1).await.unwrap()[0].given_up.as_ref().map(|why| why.tries), Some(1));
}

#[tokio::test]
async fn notifications_left_by_a_restart_are_sent_after_it() {
    let store = store();
    let (turns, _, sender) = service(&store);
    sender.failures.lock().unwrap().push_back(Retry::After(Duration::from_secs(3600)));
    let long = PushLimits { longest_pause: Duration::from_secs(3600), ..quick() };
    let route = Arc::new(Only(Arc::default()));
    let first = Turns::builder(Arc::clone(&store), route, Limits::default())
        .push_sender(Arc::clone(&sender) as _, long)
        .build();
    first.send(with_push("stream", config("h"))).await.unwrap().settled().await;
    // It is in its pause; ending the host does not wait for that.
    first.drain(Duration::from_secs(1)).await;
    assert_eq!(sender.told().len(), 0);
    turns.recover().await.unwrap();
    assert_eq!(numbers(&sender.until(5).await), [2, 3, 4, 5, 6]);
    turns.drain(Duration::ZERO).await;
    assert_eq!(store.open_push_configs().await.unwrap(), [], "all was told, and that is written down");
}

#[tokio::test]
async fn a_deleted_push_configuration_gets_nothing_more() {
    let (turns, executor, sender) = service(&store());
    let accepted = turns.send(with_push("wait", config("h"))).await.unwrap();
    sender.until(1).await;
    let id = accepted.task.id.clone();
    turns.delete_push_config(&Principal::anyone(), &id, &config("h").id).await.unwrap();
    executor.go.notify_one();
    accepted.settled().await;
    turns.drain(Duration::from_secs(1)).await;
    assert_eq!(sender.told().len(), 1);
    assert_eq!(turns.push_configs(&Principal::anyone(), &id).await.unwrap(), []);
}

#[tokio::test]
async fn a_bad_push_configuration_changes_nothing() {
    let store = store();
    let (turns, _, _) = service(&store);
    let bad = PushConfig { url: "ftp://example.com/".into(), ..config("h") };
    let refused = turns.send(with_push("hi", bad.clone())).await.err();
    assert!(matches!(refused, Some(SendError::Push(PushError::Refused(_)))), "{refused:?}");
    let all = talaria_turns::Query {
        context: None,
        state: None,
        since: None,
        after: None,
        limit: 10,
        bytes: usize::MAX,
    };
    assert_eq!(turns.list(&Principal::anyone(), &all).await.unwrap().total, 0, "no task was made");

    let task = turns.send(message("ask")).await.unwrap().settled().await;
    let anyone = Principal::anyone();
    assert!(matches!(turns.set_push_config(&anyone, &task.id, bad).await, Err(PushError::Refused(_))));
    for (owner, id) in [(Principal::named("mallory"), task.id.clone()), (anyone.clone(), TaskId::fresh())] {
        let set = turns.set_push_config(&owner, &id, config("h")).await;
        assert!(matches!(set, Err(PushError::Store(StoreError::NotFound))), "{set:?}");
        assert!(matches!(turns.push_configs(&owner, &id).await, Err(StoreError::NotFound)));
    }
    for name in ["a", "b", "a"] {
        turns.set_push_config(&anyone, &task.id, config(name)).await.unwrap();
    }
    assert!(matches!(
        turns.set_push_config(&anyone, &task.id, config("c")).await,
        Err(PushError::TooMany(2))
    ));
    let one_more = Incoming { task: Some(task.id.clone()), ..with_push("hi", config("c")) };
    let refused = turns.send(one_more).await.err();
    assert!(matches!(refused, Some(SendError::Push(PushError::TooMany(2)))), "{refused:?}");
    assert_eq!(
        turns.task(&anyone, &task.id).await.unwrap().version,
        task.version,
        "and the task is as it was"
    );
}

#[tokio::test]
async fn a_host_without_a_push_sender_supports_no_push_configurations() {
    let turns = Turns::new(store(), Arc::new(Only(Arc::default())), Limits::default());
    let refused = turns.send(with_push("hi", config("h"))).await.err();
    assert!(matches!(refused, Some(SendError::Push(PushError::Unsupported))), "{refused:?}");
}

#[tokio::test]
async fn a_question_without_an_answer_fails_in_the_end() {
    let (turns, _, _) = service(&store());
    let fresh = turns.send(message("ask")).await.unwrap().settled().await;
    assert_eq!(turns.fail_stuck(Duration::from_secs(3600)).await.unwrap(), 0);
    // Its turn waits inside the executor.
    let waits = turns.send(message("question")).await.unwrap().settled().await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(turns.fail_stuck(Duration::from_millis(1)).await.unwrap(), 2);
    for id in [&fresh.id, &waits.id] {
        let task = turns.task(&Principal::anyone(), id).await.unwrap();
        assert_eq!(task.status.state, State::Failed);
        let said = task.status.message.as_ref().map(|said| talaria_turns::message_text(&said.parts));
        assert_eq!(said.as_deref(), Some("nothing happened for 1ms"));
    }
    // The turn that waited is over as well, and adds nothing.
    turns.drain(Duration::from_secs(300)).await;
    let ends = turns.task(&Principal::anyone(), &waits.id).await.unwrap();
    assert_eq!(ends.status.state, State::Failed);
}
