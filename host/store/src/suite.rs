//! What every store must do. A store's tests call [`run`] with a way to make an empty one.
use std::sync::Arc;

use talaria_turns::{
    ContextId, Event, Message, Part, Principal, State, StateKey, Store, StoreError, TaskId, TaskKey,
};

/// Runs all of it, each on a store of its own.
pub(crate) async fn run<S: Store>(empty: impl Fn() -> Arc<S>) {
    a_task_is_what_its_events_add_up_to(&*empty()).await;
    sequence_numbers_have_no_gaps_and_resume_exactly(&*empty()).await;
    only_one_of_two_writers_wins(empty()).await;
    an_illegal_event_changes_nothing(&*empty()).await;
    another_owners_task_is_absent(&*empty()).await;
    state_belongs_to_owner_context_and_executor(&*empty()).await;
}

fn key(owner: &str) -> TaskKey {
    TaskKey { owner: Principal::named(owner), task: TaskId::fresh() }
}

fn said(text: &str) -> Event {
    Event::Message(Message::agent(vec![Part::text(text)]))
}

async fn a_task_is_what_its_events_add_up_to(store: &dyn Store) {
    let (key, context) = (key("a"), ContextId::fresh());
    let created = store.create(&key, &context, vec![said("one")]).await.unwrap();
    assert_eq!((created.version, created.status.state), (1, State::Submitted));
    let appended = store.append(&key, 1, vec![Event::moved(State::Working), said("two")]).await.unwrap();
    assert_eq!((appended.version, appended.status.state), (3, State::Working));
    let found = store.task(&key).await.unwrap().expect("it is there");
    assert_eq!(found, appended);
    assert_eq!(found.context, context);
    assert_eq!(found.history.len(), 2);
    let again = store.create(&key, &context, vec![]).await;
    assert!(matches!(again, Err(StoreError::Exists)), "a key is taken once");
}

async fn sequence_numbers_have_no_gaps_and_resume_exactly(store: &dyn Store) {
    let (key, context) = (key("a"), ContextId::fresh());
    store.create(&key, &context, vec![said("1")]).await.unwrap();
    for version in 1..10 {
        store.append(&key, version, vec![said(&(version + 1).to_string())]).await.unwrap();
    }
    let all = store.events(&key, 0, 100).await.unwrap();
    assert_eq!(all.iter().map(|entry| entry.sequence).collect::<Vec<_>>(), (1..=10).collect::<Vec<_>>());
    for after in 0..=10 {
        let rest = store.events(&key, after, 3).await.unwrap();
        let from = usize::try_from(after).unwrap();
        assert_eq!(rest, all[from..(from + 3).min(10)], "after {after}");
    }
    assert_eq!(store.events(&key, u64::MAX - 1, 3).await.unwrap(), vec![], "beyond the end is nothing");
}

async fn only_one_of_two_writers_wins<S: Store>(store: Arc<S>) {
    let (key, context) = (key("a"), ContextId::fresh());
    store.create(&key, &context, vec![said("1")]).await.unwrap();
    let writers = (0..8).map(|writer| {
        let (store, key) = (Arc::clone(&store), key.clone());
        async move { store.append(&key, 1, vec![said(&writer.to_string())]).await }
    });
    let mut set = tokio::task::JoinSet::new();
    for writer in writers {
        set.spawn(writer);
    }
    let mut won = 0;
    for result in set.join_all().await {
        match result {
            Ok(task) => {
                assert_eq!(task.version, 2);
                won += 1;
            }
            Err(StoreError::Conflict { expected: 1, actual: 2 }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(won, 1);
}

async fn an_illegal_event_changes_nothing(store: &dyn Store) {
    let (key, context) = (key("a"), ContextId::fresh());
    store.create(&key, &context, vec![said("1")]).await.unwrap();
    let before = store.task(&key).await.unwrap();
    let events = vec![said("2"), Event::moved(State::Completed), said("after the end")];
    assert!(matches!(store.append(&key, 1, events).await, Err(StoreError::Illegal(_))));
    assert_eq!(store.task(&key).await.unwrap(), before, "all or nothing");
    assert_eq!(store.events(&key, 0, 10).await.unwrap().len(), 1);
}

async fn another_owners_task_is_absent(store: &dyn Store) {
    let (mine, context) = (key("a"), ContextId::fresh());
    store.create(&mine, &context, vec![said("1")]).await.unwrap();
    for other in [Principal::named("b"), Principal::anyone()] {
        let theirs = TaskKey { owner: other, task: mine.task.clone() };
        assert_eq!(store.task(&theirs).await.unwrap(), None);
        assert!(matches!(store.append(&theirs, 1, vec![said("2")]).await, Err(StoreError::NotFound)));
        assert!(matches!(store.events(&theirs, 0, 10).await, Err(StoreError::NotFound)));
    }
}

async fn state_belongs_to_owner_context_and_executor(store: &dyn Store) {
    let key = StateKey {
        owner: Principal::named("a"),
        context: ContextId::fresh(),
        executor: "one".into(),
        key: "session".into(),
    };
    assert_eq!(store.state(&key).await.unwrap(), None);
    store.set_state(&key, Some(b"s1".as_slice().into())).await.unwrap();
    store.set_state(&key, Some(b"s2".as_slice().into())).await.unwrap();
    assert_eq!(store.state(&key).await.unwrap().as_deref(), Some(b"s2".as_slice()));
    let others = [
        StateKey { owner: Principal::named("b"), ..key.clone() },
        StateKey { context: ContextId::fresh(), ..key.clone() },
        StateKey { executor: "two".into(), ..key.clone() },
    ];
    for other in others {
        assert_eq!(store.state(&other).await.unwrap(), None, "{other:?}");
    }
    store.set_state(&key, None).await.unwrap();
    assert_eq!(store.state(&key).await.unwrap(), None);
}
