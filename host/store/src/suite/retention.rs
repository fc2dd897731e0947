//! Retention: which tasks are deleted, and which are kept.

use std::sync::Arc;

use talaria_turns::{
    CallerLimits, ContextId, Event, Kept, Onto, Principal, Retention, Shares, State, StateKey, Store,
    StoreError, TaskKey, Timestamp,
};

use super::{accepted, all, create, key, note, once, shared, status};

/// Creates a task that ended at `at`, with a message of that name.
async fn ended(store: &dyn Store, owner: &str, at: u64) -> TaskKey {
    let key = create(store, owner, &[accepted(&format!("m{at}"))]).await;
    end(store, &key, at).await;
    key
}

/// Creates a task that ended at `at`, with a message that is accepted once.
async fn ended_once(store: &dyn Store, owner: &str, at: u64) -> TaskKey {
    let (key, id) = (key(owner), format!("m{at}"));
    let onto = Onto::Nothing { context: &ContextId::fresh(), host_made: false };
    store.write(&key, onto, &shared(&[accepted(&id)]), Some(&once(&id))).await.unwrap();
    end(store, &key, at).await;
    key
}

async fn end(store: &dyn Store, key: &TaskKey, at: u64) {
    let state = if at.is_multiple_of(2) { State::Completed } else { State::Failed };
    store.append(key, 1, &[note("nearly there"), status(state, at, true)]).await.unwrap();
}

async fn is_there(store: &dyn Store, key: &TaskKey) -> bool {
    store.task(key).await.unwrap().is_some()
}

fn since(at: u64) -> Retention {
    Retention::since(Timestamp::from_millis(at))
}

/// Keeps so many tasks, whatever their age.
fn keep(tasks: usize) -> Retention {
    since(0).tasks(tasks)
}

/// Gives the owner `a` a share of its own.
fn share(limits: CallerLimits) -> Retention {
    let callers = [(Principal::named("a"), limits)].into();
    Retention { shares: Arc::new(Shares { callers, ..Shares::default() }), ..since(0) }
}

pub(crate) async fn deletes_by_age(store: Arc<dyn Store>) {
    let old = [ended_once(&*store, "a", 10).await, ended(&*store, "b", 11).await];
    let new = [ended_once(&*store, "a", 12).await, ended(&*store, "b", 13).await];
    assert_eq!(store.forget(&since(10)).await.unwrap(), 0, "10 is not before 10");
    assert_eq!(store.forget(&since(12)).await.unwrap(), 2);
    for key in &old {
        assert!(!is_there(&*store, key).await);
        let events = store.events(key, 0, 10).await;
        assert!(matches!(events, Err(StoreError::NotFound)), "{events:?}");
        assert!(!store.list(&key.owner, &all()).await.unwrap().tasks.iter().any(|task| task.id == key.task));
    }
    assert_eq!(store.accepted(&old[0].owner, &once("m10")).await.unwrap(), None);
    for key in &new {
        assert!(is_there(&*store, key).await);
        assert_eq!(store.events(key, 0, 10).await.unwrap().len(), 3);
        assert_eq!(store.list(&key.owner, &all()).await.unwrap().total, 1);
    }
    let message = store.accepted(&new[0].owner, &once("m12")).await.unwrap();
    assert_eq!(message.as_ref(), Some(&new[0].task));
    // The key can be used again.
    store.create(&old[0], &ContextId::fresh(), &[accepted("m1")]).await.unwrap();
    assert_eq!(store.events(&old[0], 0, 10).await.unwrap().len(), 1, "nothing of the old task is left");
}

pub(crate) async fn deletes_by_count(store: Arc<dyn Store>) {
    let mut keys = Vec::new();
    // The tasks do not end in this order, and two end at the same time.
    for at in [14, 10, 13, 12, 12, 11] {
        keys.push(ended(&*store, "a", at).await);
    }
    assert_eq!(store.forget(&keep(6)).await.unwrap(), 0);
    assert_eq!(store.forget(&keep(4)).await.unwrap(), 2);
    assert!(!is_there(&*store, &keys[1]).await && !is_there(&*store, &keys[5]).await, "the oldest two");
    assert_eq!(store.forget(&keep(3)).await.unwrap(), 1, "one of the two that ended at the same time");
    assert!(is_there(&*store, &keys[3]).await != is_there(&*store, &keys[4]).await);
    assert_eq!(store.forget(&since(14).tasks(3)).await.unwrap(), 2, "the stricter limit applies: age");
    assert!(is_there(&*store, &keys[0]).await);
    assert_eq!(store.forget(&since(14).tasks(0)).await.unwrap(), 1, "the stricter limit applies: count");
    assert_eq!(store.forget(&since(14).tasks(0)).await.unwrap(), 0);
}

pub(crate) async fn the_load_of_one_owner_deletes_no_task_of_another(store: Arc<dyn Store>) {
    // The oldest tasks of all are those of the owner that has few.
    let few = [ended(&*store, "quiet", 10).await, ended(&*store, "quiet", 11).await];
    let mut many = Vec::new();
    for at in 20..60 {
        many.push(ended(&*store, if at < 50 { "busy" } else { "other" }, at).await);
    }
    assert_eq!(store.forget(&keep(12)).await.unwrap(), 30);
    for key in &few {
        assert!(is_there(&*store, key).await, "within its equal part of four");
    }
    for (nth, key) in many.iter().enumerate() {
        assert_eq!(is_there(&*store, key).await, (25..30).contains(&nth) || nth >= 35, "{nth}: the oldest");
    }
    let kept = store.kept(&Principal::named("busy")).await.unwrap();
    assert_eq!((kept.tasks, kept.finished), (5, 5));
}

pub(crate) async fn an_owner_is_cut_to_its_share(store: Arc<dyn Store>) {
    let mut keys = Vec::new();
    for at in 10..20 {
        keys.push(ended(&*store, "a", at).await);
    }
    let others = ended(&*store, "b", 1).await;
    create(&*store, "a", &[accepted("under way")]).await;
    let tasks = CallerLimits { tasks: Some(7), ..CallerLimits::default() };
    assert_eq!(store.forget(&share(tasks)).await.unwrap(), 4, "the unfinished one counts");
    let Kept { bytes, tasks, .. } = store.kept(&Principal::named("a")).await.unwrap();
    assert_eq!(tasks, 7);
    let bytes = CallerLimits { bytes: Some(bytes - 1), ..CallerLimits::default() };
    assert_eq!(store.forget(&share(bytes)).await.unwrap(), 1);
    assert_eq!(store.forget(&share(bytes)).await.unwrap(), 0);
    assert!(!is_there(&*store, &keys[4]).await && is_there(&*store, &keys[5]).await, "oldest first");
    let nothing = CallerLimits { bytes: Some(0), ..CallerLimits::default() };
    assert_eq!(store.forget(&share(nothing)).await.unwrap(), 5);
    assert!(is_there(&*store, &others).await);
    assert_eq!(store.kept(&Principal::named("a")).await.unwrap().tasks, 1, "the unfinished one stays");
}

pub(crate) async fn what_an_owner_has_is_counted(store: Arc<dyn Store>) {
    let (a, b) = (Principal::named("a"), Principal::named("b"));
    assert_eq!(store.kept(&a).await.unwrap(), Kept::default());
    let key = create(&*store, "a", &[accepted("m")]).await;
    let first = store.kept(&a).await.unwrap();
    assert_eq!((first.tasks, first.finished), (1, 0));
    store.append(&key, 1, &[note(&"x".repeat(1_000))]).await.unwrap();
    let second = store.kept(&a).await.unwrap();
    let grown = second.bytes - first.bytes;
    assert!((1_000..1_100).contains(&grown), "{grown}");
    store.append(&key, 7, &[note("x")]).await.unwrap_err();
    store.append(&key, 2, &[]).await.unwrap();
    assert_eq!(store.kept(&a).await.unwrap(), second, "what was rejected, and no event, takes nothing");
    store.append(&key, 2, &[status(State::Completed, 9, true)]).await.unwrap();
    let third = store.kept(&a).await.unwrap();
    assert_eq!((third.tasks, third.finished), (1, 1));
    assert_eq!(store.kept(&b).await.unwrap(), Kept::default());
    store.forget(&keep(0)).await.unwrap();
    assert_eq!(store.kept(&a).await.unwrap(), Kept::default());
}

pub(crate) async fn never_deletes_a_task_that_is_not_over(store: Arc<dyn Store>) {
    let submitted = create(&*store, "a", &[accepted("m1")]).await;
    let working = create(&*store, "a", &[accepted("m2"), status(State::Working, 1, false)]).await;
    let waiting = create(&*store, "a", &[accepted("m3"), status(State::InputRequired, 1, true)]).await;
    let bare = create(&*store, "a", &[]).await;
    let over = ended(&*store, "a", 1).await;
    assert_eq!(store.forget(&Retention::since(Timestamp::now()).tasks(0)).await.unwrap(), 1);
    assert!(!is_there(&*store, &over).await);
    for key in [&submitted, &working, &waiting, &bare] {
        assert!(is_there(&*store, key).await);
    }
    assert_eq!(store.forget(&since(u64::MAX).tasks(0)).await.unwrap(), 0);
    assert_eq!(store.unfinished().await.unwrap().len(), 2);
}

pub(crate) async fn deletes_many(store: Arc<dyn Store>) {
    const MANY: u64 = 1_050;
    let mut set = tokio::task::JoinSet::new();
    for number in 0..MANY {
        let store = Arc::clone(&store);
        set.spawn(async move {
            let (key, id) = (key("a"), format!("m{number}"));
            let events = [accepted(&id), status(State::Completed, 100 + number, true)];
            let onto = Onto::Nothing { context: &ContextId::fresh(), host_made: false };
            store.write(&key, onto, &shared(&events), Some(&once(&id))).await.unwrap();
            key
        });
    }
    let keys = set.join_all().await;
    // Writes continue meanwhile.
    let busy = create(&*store, "a", &[]).await;
    let appending = {
        let (store, busy) = (Arc::clone(&store), busy.clone());
        async move {
            for version in 0..50 {
                store.append(&busy, version, &[note("at it")]).await.unwrap();
            }
        }
    };
    let retention = keep(25);
    let (forgotten, again, ()) = tokio::join!(store.forget(&retention), store.forget(&retention), appending);
    assert_eq!(forgotten.unwrap() + again.unwrap(), 1_025, "two concurrent calls delete no more than one");
    let page = store.list(&Principal::named("a"), &all()).await.unwrap();
    assert_eq!(page.total, 26);
    let newest = Timestamp::from_millis(100 + MANY - 25);
    assert!(page.tasks.iter().all(|task| task.id == busy.task || task.status.at >= newest));
    let mut messages = 0;
    for number in 0..MANY {
        let once = once(&format!("m{number}"));
        messages += usize::from(store.accepted(&keys[0].owner, &once).await.unwrap().is_some());
    }
    assert_eq!(messages, 25);
}

pub(crate) async fn the_state_of_executors_is_deleted_with_the_last_task_of_its_context(
    store: Arc<dyn Store>,
) {
    let context = ContextId::fresh();
    let state = |owner: &str, context: &ContextId| StateKey {
        owner: Principal::named(owner),
        context: context.clone(),
        executor: "it".into(),
        key: "session".into(),
    };
    let (mine, theirs, elsewhere) =
        (state("a", &context), state("b", &context), state("a", &ContextId::fresh()));
    for key in [&mine, &theirs, &elsewhere] {
        store.set_state(key, Some(b"s".as_slice().into())).await.unwrap();
    }
    let tasks = [super::key("a"), super::key("a")];
    for key in &tasks {
        store.create(key, &context, &[Event::moved(State::Working)]).await.unwrap();
    }
    store.append(&tasks[0], 1, &[status(State::Completed, 5, true)]).await.unwrap();
    assert_eq!(store.forget(&Retention::since(Timestamp::now()).tasks(0)).await.unwrap(), 1);
    assert!(store.state(&mine).await.unwrap().is_some(), "the context still has a task");
    store.append(&tasks[1], 1, &[status(State::Completed, 5, true)]).await.unwrap();
    assert_eq!(store.forget(&Retention::since(Timestamp::now()).tasks(0)).await.unwrap(), 1);
    assert_eq!(store.state(&mine).await.unwrap(), None);
    for key in [&theirs, &elsewhere] {
        assert!(store.state(key).await.unwrap().is_some(), "{key:?}");
    }
}
