use super::*;

crate::suite::every_promise!(|| (Memory::new(10_000), ()));

fn key() -> TaskKey {
    TaskKey { owner: Principal::anyone(), task: TaskId::fresh() }
}

#[tokio::test]
async fn deletes_the_task_that_ended_longest_ago_and_never_one_that_has_not_ended() {
    let store = Memory::new(2);
    let context = ContextId::fresh();
    let (under_way, ended, next) = (key(), key(), key());
    store.create(&under_way, &context, &[]).await.unwrap();
    store.create(&ended, &context, &[Event::moved(State::Completed)]).await.unwrap();
    store.create(&next, &context, &[]).await.unwrap();
    assert!(store.task(&ended).await.unwrap().is_none());
    assert!(store.task(&under_way).await.unwrap().is_some());
    let refused = store.create(&key(), &context, &[]).await.unwrap_err();
    assert!(matches!(refused, StoreError::Full(_)), "{refused}");
}

#[tokio::test]
async fn the_values_of_executors_are_bounded_oldest_first() {
    let store = Memory::new(2);
    let context = ContextId::fresh();
    let keys = ["one", "two", "three"].map(|key| StateKey {
        owner: Principal::anyone(),
        context: context.clone(),
        executor: "it".into(),
        key: key.into(),
    });
    for key in &keys {
        store.set_state(key, Some(b"value".as_slice().into())).await.unwrap();
    }
    let [one, two, three] = &keys;
    assert_eq!(store.state(one).await.unwrap(), None, "the oldest is deleted");
    for kept in [two, three] {
        assert!(store.state(kept).await.unwrap().is_some(), "{kept:?}");
    }
}
