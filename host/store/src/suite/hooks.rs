//! Push notification configurations and their cursors.

use std::sync::Arc;

use talaria_turns::{
    Authentication, Credential, GivenUp, Hook, HookId, Hooked, State, Store, StoreError, TaskKey, Tells,
    Timestamp,
};

use super::{accepted, create, key, note, status};

fn hook(id: &str) -> Hook {
    Hook {
        id: id.parse().unwrap(),
        url: format!("https://example.com/{id}"),
        tells: Tells::Events,
        stream: Default::default(),
        token: Some(Credential::new("t0ken")),
        authentication: Some(Authentication {
            scheme: "Bearer".into(),
            credentials: Some(Credential::new("s3cret")),
        }),
    }
}

fn id(text: &str) -> HookId {
    text.parse().unwrap()
}

fn ids(hooks: &[Hooked]) -> Vec<&str> {
    hooks.iter().map(|hooked| hooked.hook.id.as_str()).collect()
}

async fn hooks(store: &dyn Store, key: &TaskKey) -> Vec<Hooked> {
    store.hooks(key).await.unwrap()
}

pub(crate) async fn a_push_configuration_is_read_back_unchanged(store: Arc<dyn Store>) {
    let key = create(&*store, "a", &[accepted("m1")]).await;
    let plain = Hook { token: None, authentication: None, tells: Tells::Task, ..hook("b") };
    store.set_hook(&key, &plain, 1).await.unwrap();
    store.set_hook(&key, &hook("a"), 0).await.unwrap();
    let expected = [(hook("a"), 0), (plain, 1)].map(|(hook, cursor)| Hooked {
        key: key.clone(),
        hook,
        cursor,
        given_up: None,
    });
    assert_eq!(hooks(&*store, &key).await, expected, "in the order of their ids");
    store.remove_hook(&key, &id("a")).await.unwrap();
    store.remove_hook(&key, &id("a")).await.unwrap();
    assert_eq!(ids(&hooks(&*store, &key).await), ["b"]);
}

pub(crate) async fn the_push_configurations_of_another_owner_are_absent(store: Arc<dyn Store>) {
    let mine = create(&*store, "a", &[accepted("m1")]).await;
    store.set_hook(&mine, &hook("h"), 1).await.unwrap();
    for other in [TaskKey { owner: key("b").owner, task: mine.task.clone() }, key("a")] {
        assert!(matches!(store.hooks(&other).await, Err(StoreError::NotFound)));
        assert!(matches!(store.set_hook(&other, &hook("x"), 1).await, Err(StoreError::NotFound)));
        assert!(matches!(store.remove_hook(&other, &id("h")).await, Err(StoreError::NotFound)));
        store.move_hook(&other, &id("h"), 7, None).await.unwrap();
    }
    let [found] = &*hooks(&*store, &mine).await else { panic!("one configuration") };
    assert_eq!(found.cursor, 1);
}

pub(crate) async fn a_push_configuration_that_is_set_again_keeps_its_cursor(store: Arc<dyn Store>) {
    let key = create(&*store, "a", &[accepted("m1")]).await;
    store.set_hook(&key, &hook("h"), 1).await.unwrap();
    let given_up = GivenUp { at: Timestamp::from_millis(5), tries: 12, why: "refused".into() };
    store.move_hook(&key, &id("h"), 3, Some(&given_up)).await.unwrap();
    let [found] = &*hooks(&*store, &key).await else { panic!("one configuration") };
    assert_eq!((found.cursor, found.given_up.as_ref()), (3, Some(&given_up)));
    let elsewhere = Hook { url: "https://example.com/else".into(), ..hook("h") };
    store.set_hook(&key, &elsewhere, 9).await.unwrap();
    let [found] = &*hooks(&*store, &key).await else { panic!("one configuration") };
    assert_eq!((&found.hook, found.cursor, &found.given_up), (&elsewhere, 3, &None));
}

pub(crate) async fn open_push_configurations_are_those_with_something_left_to_send(store: Arc<dyn Store>) {
    let at_work = create(&*store, "a", &[accepted("m1")]).await;
    store.set_hook(&at_work, &hook("waits"), 1).await.unwrap();
    let over = create(&*store, "b", &[accepted("m2")]).await;
    for (name, cursor) in [("behind", 1), ("done", 3), ("dead", 1)] {
        store.set_hook(&over, &hook(name), cursor).await.unwrap();
    }
    store.append(&over, 1, &[note("x"), status(State::Completed, 7, true)]).await.unwrap();
    let given_up = GivenUp { at: Timestamp::from_millis(5), tries: 1, why: "gone".into() };
    store.move_hook(&over, &id("dead"), 1, Some(&given_up)).await.unwrap();
    let mut open = store.open_hooks().await.unwrap();
    open.sort_by(|one, other| one.hook.id.as_str().cmp(other.hook.id.as_str()));
    assert_eq!(ids(&open), ["behind", "waits"]);
    assert_eq!(open[0].key, over);
    let given_up = store.given_up(10).await.unwrap();
    assert_eq!(ids(&given_up), ["dead"]);
}

pub(crate) async fn abandoned_push_configurations_are_listed_newest_first_and_deleted_with_their_task(
    store: Arc<dyn Store>,
) {
    let key = create(&*store, "a", &[accepted("m1"), status(State::Completed, 7, true)]).await;
    for (name, at) in [("one", 1), ("three", 3), ("two", 2)] {
        store.set_hook(&key, &hook(name), 1).await.unwrap();
        let given_up = GivenUp { at: Timestamp::from_millis(at), tries: 1, why: "gone".into() };
        store.move_hook(&key, &id(name), 1, Some(&given_up)).await.unwrap();
    }
    assert_eq!(ids(&store.given_up(2).await.unwrap()), ["three", "two"]);
    assert_eq!(store.forget(Timestamp::from_millis(8), usize::MAX).await.unwrap(), 1);
    assert_eq!(store.given_up(10).await.unwrap(), []);
}

pub(crate) async fn a_task_is_stuck_when_its_status_is_old(store: Arc<dyn Store>) {
    let old = create(&*store, "a", &[accepted("m1"), status(State::InputRequired, 5, false)]).await;
    create(&*store, "a", &[accepted("m2"), status(State::Working, 50, false)]).await;
    create(&*store, "b", &[accepted("m3"), status(State::Completed, 5, true)]).await;
    assert_eq!(store.stuck(Timestamp::from_millis(5)).await.unwrap(), [], "5 is not before 5");
    assert_eq!(store.stuck(Timestamp::from_millis(50)).await.unwrap(), [old]);
}
