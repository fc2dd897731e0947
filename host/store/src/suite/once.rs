//! A message is accepted once.

use std::collections::HashMap;
use std::sync::Arc;

use talaria_turns::{
    ContextId, Event, Once, Onto, Principal, Role, State, Store, StoreError, TaskId, TaskKey,
};

use super::{accepted, create, key, message, note, once, shared, task};

/// Creates a task with a message that is accepted once.
async fn begin(
    store: &dyn Store,
    owner: &str,
    context: &ContextId,
    once: &Once,
) -> Result<TaskKey, StoreError> {
    let key = key(owner);
    let onto = Onto::Nothing { context, host_made: false };
    store.write(&key, onto, &shared(&[accepted(once.message.as_str())]), Some(once)).await.map(|()| key)
}

fn sent(result: Result<TaskKey, StoreError>) -> TaskId {
    match result {
        Err(StoreError::Sent(task)) => task,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn one_of_many_concurrent_writes_accepts_the_message(store: Arc<dyn Store>) {
    const MESSAGES: usize = 40;
    let context = ContextId::fresh();
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        for number in 0..MESSAGES {
            let (store, context) = (Arc::clone(&store), context.clone());
            writers.spawn(async move {
                let once = once(&format!("m{number}"));
                (number, begin(&*store, "a", &context, &once).await)
            });
        }
    }
    let (mut created, mut duplicates) = (HashMap::new(), Vec::new());
    while let Some(joined) = writers.join_next().await {
        match joined.unwrap() {
            (number, Ok(key)) => {
                assert!(created.insert(number, key.task).is_none(), "{number} is created twice")
            }
            (number, Err(StoreError::Sent(task))) => duplicates.push((number, task)),
            (number, other) => panic!("{number}: {other:?}"),
        }
    }
    assert_eq!((created.len(), duplicates.len()), (MESSAGES, 3 * MESSAGES));
    for (number, task) in &duplicates {
        assert_eq!(created.get(number), Some(task), "a duplicate leads to the first task");
    }
    let page = store.list(&Principal::named("a"), &super::all()).await.unwrap();
    assert_eq!(page.total, MESSAGES);
}

pub(crate) async fn a_repeated_message_writes_nothing(store: Arc<dyn Store>) {
    let context = ContextId::fresh();
    let first = begin(&*store, "a", &context, &once("m1")).await.unwrap();
    let other = begin(&*store, "a", &context, &once("m2")).await.unwrap();
    assert_eq!(sent(begin(&*store, "a", &context, &once("m1")).await), first.task);
    // The same holds for an existing task, and this error takes precedence over all others.
    for (key, version) in [(&first, 1), (&other, 1), (&other, 7)] {
        let events = [accepted("m1"), Event::moved(State::Failed)];
        let again = store.write(key, Onto::Version(version), &shared(&events), Some(&once("m1"))).await;
        assert!(matches!(&again, Err(StoreError::Sent(task)) if *task == first.task), "{again:?}");
        assert_eq!(task(&*store, key).await.version, 1);
    }
    assert_eq!(store.list(&first.owner, &super::all()).await.unwrap().total, 2);
}

pub(crate) async fn another_digest_owner_or_id_is_another_message(store: Arc<dyn Store>) {
    let context = ContextId::fresh();
    let first = begin(&*store, "a", &context, &once("m1")).await.unwrap();
    let elsewhere = Once { digest: [1; 32], ..once("m1") };
    let second = begin(&*store, "a", &context, &elsewhere).await.unwrap();
    let theirs = begin(&*store, "b", &context, &once("m1")).await.unwrap();
    begin(&*store, "a", &context, &once("m2")).await.unwrap();
    // The second did not replace the first.
    let known = [(&first, once("m1")), (&second, elsewhere), (&theirs, once("m1"))];
    for (key, once) in &known {
        assert_eq!(store.accepted(&key.owner, once).await.unwrap().as_ref(), Some(&key.task));
        let owner = key.owner.name().unwrap();
        assert_eq!(sent(begin(&*store, owner, &context, once).await), key.task);
    }
}

pub(crate) async fn a_message_leads_to_the_task_that_accepted_it(store: Arc<dyn Store>) {
    let find = async |id: &str| store.accepted(&Principal::named("a"), &once(id)).await.unwrap();
    assert_eq!(find("m1").await, None);
    let first = begin(&*store, "a", &ContextId::fresh(), &once("m1")).await.unwrap();
    let answered = [Event::Answered(message("m2", Role::User, "yes").into()), note("m3")];
    store.write(&first, Onto::Version(1), &shared(&answered), Some(&once("m2"))).await.unwrap();
    for id in ["m1", "m2"] {
        assert_eq!(find(id).await.as_ref(), Some(&first.task), "{id}");
    }
    // Callers without a name write without an identity, as often as they like.
    for _ in 0..2 {
        create(&*store, "a", &[accepted("m4")]).await;
    }
    assert_eq!(find("m4").await, None);
}

pub(crate) async fn a_rejected_write_accepts_no_message(store: Arc<dyn Store>) {
    let first = begin(&*store, "a", &ContextId::fresh(), &once("m1")).await.unwrap();
    let context = ContextId::fresh();
    let onto = Onto::Nothing { context: &context, host_made: true };
    let exists = store.write(&first, onto, &shared(&[accepted("m2")]), Some(&once("m2"))).await;
    assert!(matches!(exists, Err(StoreError::Exists)), "{exists:?}");
    let behind = store.write(&first, Onto::Version(0), &shared(&[accepted("m2")]), Some(&once("m2"))).await;
    assert!(matches!(behind, Err(StoreError::Conflict { .. })), "{behind:?}");
    let illegal = [accepted("m2"), Event::moved(State::Submitted), Event::moved(State::Failed), note("late")];
    let illegal = store.write(&first, Onto::Version(1), &shared(&illegal), Some(&once("m2"))).await;
    assert!(matches!(illegal, Err(StoreError::Illegal(_))), "{illegal:?}");
    assert_eq!(store.accepted(&first.owner, &once("m2")).await.unwrap(), None);
    store.write(&first, Onto::Version(1), &shared(&[accepted("m2")]), Some(&once("m2"))).await.unwrap();
}
