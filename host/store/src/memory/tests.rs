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

#[tokio::test]
async fn at_the_bound_the_owner_that_has_the_most_loses_its_oldest() {
    let store = Memory::new(6);
    let context = ContextId::fresh();
    let of = |owner: &str| TaskKey { owner: Principal::named(owner), task: TaskId::fresh() };
    let ended = [Event::moved(State::Completed)];
    let quiet = of("quiet");
    store.create(&quiet, &context, &ended).await.unwrap();
    for _ in 0..20 {
        store.create(&of("busy"), &context, &ended).await.unwrap();
    }
    assert!(store.task(&quiet).await.unwrap().is_some());
    // Unfinished tasks take the room of their own owner only.
    for _ in 0..5 {
        store.create(&of("busy"), &context, &[]).await.unwrap();
    }
    let refused = store.create(&of("busy"), &context, &[]).await.unwrap_err();
    assert!(matches!(refused, StoreError::Full(_)), "{refused}");
    assert!(store.task(&quiet).await.unwrap().is_some());
}

#[tokio::test]
async fn at_its_largest_size_it_rejects_messages_and_lets_turns_end() {
    let store = Memory::new(100).with_max_bytes(8_000);
    let context = ContextId::fresh();
    let first = key();
    store.create(&first, &context, &[crate::suite::note(&"x".repeat(7_000))]).await.unwrap();
    let refused = store.create(&key(), &context, &[]).await.unwrap_err();
    assert!(refused.to_string().contains("raise `store.max_size`"), "{refused}");
    assert!(matches!(store.has_room().await.unwrap_err(), StoreError::Full(_)));
    let again = store.append(&first, 1, &[crate::suite::accepted("m")]).await.unwrap_err();
    assert!(matches!(again, StoreError::Full(_)), "{again}");
    store.append(&first, 1, &[Event::moved(State::Completed)]).await.unwrap();
    store.forget(&Retention::since(Timestamp::now()).tasks(0)).await.unwrap();
    store.has_room().await.unwrap();
    store.create(&key(), &context, &[]).await.unwrap();
}
