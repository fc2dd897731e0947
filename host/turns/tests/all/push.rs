//! What hooks are told, when, and what becomes of those that cannot be told.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use talaria_store::Memory;
use talaria_turns::{
    Again, Courier, Event, Hook, HookError, HookId, HookLimits, Incoming, Limits, News, Part, Principal,
    SendError, State, Store, StoreError, StreamAs, TaskId, TaskKey, Tells, Turns, Undelivered,
};
use tokio::sync::Notify;

use crate::kit::{Only, Scripted, message};

/// Keeps what it is given; fails as often as it is told to.
#[derive(Default)]
pub(crate) struct Kept {
    news: Mutex<Vec<(String, News)>>,
    failures: Mutex<VecDeque<Again>>,
    came: Notify,
}

impl Kept {
    pub(crate) fn told(&self) -> Vec<(String, News)> {
        self.news.lock().unwrap().clone()
    }

    /// Waits until as much was told.
    pub(crate) async fn until(&self, count: usize) -> Vec<(String, News)> {
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
impl Courier for Kept {
    async fn admits(&self, url: &str) -> Result<(), String> {
        if url.starts_with("https://") { Ok(()) } else { Err("must be https".into()) }
    }

    async fn deliver(&self, hook: &Hook, news: &News) -> Result<(), Undelivered> {
        if let Some(again) = self.failures.lock().unwrap().pop_front() {
            return Err(Undelivered { why: "as asked".into(), again });
        }
        self.news.lock().unwrap().push((hook.id.to_string(), news.clone()));
        self.came.notify_waiters();
        Ok(())
    }
}

pub(crate) fn hook(id: &str) -> Hook {
    Hook {
        id: id.parse().unwrap(),
        url: "https://example.com/".into(),
        tells: Tells::Events,
        stream: Default::default(),
        token: None,
        authentication: None,
    }
}

fn quick() -> HookLimits {
    HookLimits { hooks: 2, tries: 3, pause: Duration::from_millis(1), ..HookLimits::default() }
}

pub(crate) fn service(store: &Arc<dyn Store>) -> (Turns, Arc<Scripted>, Arc<Kept>) {
    let (executor, courier) = (Arc::new(Scripted::default()), Arc::new(Kept::default()));
    let route = Arc::new(Only(Arc::clone(&executor)));
    let turns = Turns::builder(Arc::clone(store), route, Limits::default())
        .courier(Arc::clone(&courier) as _, quick())
        .build();
    (turns, executor, courier)
}

pub(crate) fn store() -> Arc<dyn Store> {
    Arc::new(Memory::new(100))
}

pub(crate) fn with_hook(text: &str, hook: Hook) -> Incoming {
    Incoming { hook: Some(hook), ..message(text) }
}

/// The numbers of the events that were told.
pub(crate) fn numbers(told: &[(String, News)]) -> Vec<u64> {
    let number = |(_, news): &(String, News)| match news {
        News::Event(_, entry) => entry.sequence,
        News::Task(task) => task.version,
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
            return all.into_iter().filter_map(|hooked| hooked.given_up).map(|why| why.why).collect();
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn every_event_after_the_message_is_told_once_in_order() {
    let (turns, _, courier) = service(&store());
    let task = turns.send(with_hook("stream", hook("h"))).await.unwrap().settled().await;
    let told = courier.until(5).await;
    // 1 is the message itself; then working, two deltas, the whole, completed.
    assert_eq!(numbers(&told), [2, 3, 4, 5, 6]);
    assert_eq!(task.version, 6);
    let (_, News::Event(_, last)) = &told[4] else { panic!("an event") };
    assert_eq!(last.event.state(), Some(State::Completed));
    // Nothing is left to tell.
    turns.drain(Duration::ZERO).await;
    assert_eq!(courier.told().len(), 5);
}

#[tokio::test]
async fn whoever_wants_the_whole_is_told_no_pieces() {
    let (turns, _, courier) = service(&store());
    let whole = Hook { stream: StreamAs::Whole, ..hook("h") };
    turns.send(with_hook("stream", whole)).await.unwrap().settled().await;
    let told = courier.until(3).await;
    assert_eq!(numbers(&told), [2, 5, 6]);
    let (_, News::Event(_, whole)) = &told[1] else { panic!("an event") };
    assert!(matches!(&*whole.event, Event::Whole(artifact) if artifact.parts == [Part::text("Hello")]));
}

#[tokio::test]
async fn a_task_teller_gets_the_whole_task_when_its_status_changes() {
    let (turns, executor, courier) = service(&store());
    let tells = Hook { tells: Tells::Task, ..hook("h") };
    let accepted = turns.send(with_hook("wait", tells)).await.unwrap();
    let told = courier.until(1).await;
    assert!(matches!(&told[0].1, News::Task(task) if task.status.state == State::Working), "{told:?}");
    executor.go.notify_one();
    accepted.settled().await;
    let told = courier.until(2).await;
    let (_, News::Task(task)) = &told[1] else { panic!("a task") };
    assert_eq!((task.status.state, task.artifacts.len()), (State::Completed, 1));
}

#[tokio::test]
async fn a_hook_set_later_is_told_what_happens_from_then_on() {
    let (turns, executor, courier) = service(&store());
    let accepted = turns.send(message("wait")).await.unwrap();
    let id = accepted.task.id.clone();
    // Until it works.
    accepted.reader().next().await.unwrap();
    turns.set_hook(&Principal::anyone(), &id, hook("late")).await.unwrap();
    executor.go.notify_one();
    accepted.settled().await;
    let told = courier.until(2).await;
    assert_eq!(numbers(&told), [3, 4]);
}

#[tokio::test]
async fn what_fails_is_tried_again_and_keeps_its_order() {
    let (turns, _, courier) = service(&store());
    courier.failures.lock().unwrap().extend([Again::Later, Again::After(Duration::from_millis(1))]);
    turns.send(with_hook("stream", hook("h"))).await.unwrap().settled().await;
    assert_eq!(numbers(&courier.until(5).await), [2, 3, 4, 5, 6]);
}

#[tokio::test]
async fn a_hook_that_fails_too_often_is_given_up_and_goes_on_when_retried() {
    let (turns, _, courier) = service(&store());
    courier.failures.lock().unwrap().extend([Again::Later; 3]);
    let task = turns.send(with_hook("hi", hook("h"))).await.unwrap().settled().await;
    assert_eq!(given_up(&turns).await, ["as asked"]);
    assert_eq!(courier.told().len(), 0, "what comes later waits behind it");
    turns.retry_hook(&key(&task.id), &hook("h").id).await.unwrap();
    let told = courier.until(3).await;
    assert_eq!(numbers(&told), [2, 3, 4]);
    assert_eq!(turns.given_up(10).await.unwrap(), []);
    let unknown: HookId = "x".parse().unwrap();
    assert!(matches!(turns.retry_hook(&key(&task.id), &unknown).await, Err(HookError::NoSuchHook(_))));
}

#[tokio::test]
async fn one_that_says_never_is_given_up_at_once() {
    let (turns, _, courier) = service(&store());
    courier.failures.lock().unwrap().push_back(Again::Never);
    turns.send(with_hook("hi", hook("h"))).await.unwrap().settled().await;
    given_up(&turns).await;
    assert_eq!(turns.given_up(1).await.unwrap()[0].given_up.as_ref().map(|why| why.tries), Some(1));
}

#[tokio::test]
async fn what_was_not_told_before_a_restart_goes_out_after_it() {
    let store = store();
    let (turns, _, courier) = service(&store);
    courier.failures.lock().unwrap().push_back(Again::After(Duration::from_secs(3600)));
    let long = HookLimits { longest_pause: Duration::from_secs(3600), ..quick() };
    let route = Arc::new(Only(Arc::default()));
    let first = Turns::builder(Arc::clone(&store), route, Limits::default())
        .courier(Arc::clone(&courier) as _, long)
        .build();
    first.send(with_hook("stream", hook("h"))).await.unwrap().settled().await;
    // It is in its pause; ending the host does not wait for that.
    first.drain(Duration::from_secs(1)).await;
    assert_eq!(courier.told().len(), 0);
    turns.recover().await.unwrap();
    assert_eq!(numbers(&courier.until(5).await), [2, 3, 4, 5, 6]);
    turns.drain(Duration::ZERO).await;
    assert_eq!(store.open_hooks().await.unwrap(), [], "all was told, and that is written down");
}

#[tokio::test]
async fn a_hook_that_is_removed_is_told_no_more() {
    let (turns, executor, courier) = service(&store());
    let accepted = turns.send(with_hook("wait", hook("h"))).await.unwrap();
    courier.until(1).await;
    let id = accepted.task.id.clone();
    turns.remove_hook(&Principal::anyone(), &id, &hook("h").id).await.unwrap();
    executor.go.notify_one();
    accepted.settled().await;
    turns.drain(Duration::from_secs(1)).await;
    assert_eq!(courier.told().len(), 1);
    assert_eq!(turns.hooks(&Principal::anyone(), &id).await.unwrap(), []);
}

#[tokio::test]
async fn bad_hooks_change_nothing() {
    let store = store();
    let (turns, _, _) = service(&store);
    let bad = Hook { url: "ftp://example.com/".into(), ..hook("h") };
    let refused = turns.send(with_hook("hi", bad.clone())).await.err();
    assert!(matches!(refused, Some(SendError::Hook(HookError::Refused(_)))), "{refused:?}");
    let all = talaria_turns::Query { context: None, state: None, since: None, after: None, limit: 10 };
    assert_eq!(turns.list(&Principal::anyone(), &all).await.unwrap().total, 0, "no task was made");

    let task = turns.send(message("ask")).await.unwrap().settled().await;
    let anyone = Principal::anyone();
    assert!(matches!(turns.set_hook(&anyone, &task.id, bad).await, Err(HookError::Refused(_))));
    for (owner, id) in [(Principal::named("mallory"), task.id.clone()), (anyone.clone(), TaskId::fresh())] {
        let set = turns.set_hook(&owner, &id, hook("h")).await;
        assert!(matches!(set, Err(HookError::Store(StoreError::NotFound))), "{set:?}");
        assert!(matches!(turns.hooks(&owner, &id).await, Err(StoreError::NotFound)));
    }
    for name in ["a", "b", "a"] {
        turns.set_hook(&anyone, &task.id, hook(name)).await.unwrap();
    }
    assert!(matches!(turns.set_hook(&anyone, &task.id, hook("c")).await, Err(HookError::TooMany(2))));
    let one_more = Incoming { task: Some(task.id.clone()), ..with_hook("hi", hook("c")) };
    let refused = turns.send(one_more).await.err();
    assert!(matches!(refused, Some(SendError::Hook(HookError::TooMany(2)))), "{refused:?}");
    assert_eq!(
        turns.task(&anyone, &task.id).await.unwrap().version,
        task.version,
        "and the task is as it was"
    );
}

#[tokio::test]
async fn a_host_without_a_courier_has_no_hooks() {
    let turns = Turns::new(store(), Arc::new(Only(Arc::default())), Limits::default());
    let refused = turns.send(with_hook("hi", hook("h"))).await.err();
    assert!(matches!(refused, Some(SendError::Hook(HookError::Unsupported))), "{refused:?}");
}

#[tokio::test]
async fn a_question_that_nobody_answers_ends_as_failed() {
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
