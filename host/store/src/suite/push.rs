//! Push notification configurations and their cursors.

use std::sync::Arc;

use talaria_turns::{
    Authentication, Credential, GivenUp, PushConfig, PushConfigId, PushContent, Retention, State, Store,
    StoreError, StoredPushConfig, TaskKey, Timestamp,
};

use super::{accepted, create, key, note, status};

fn config(id: &str) -> PushConfig {
    PushConfig {
        id: id.parse().unwrap(),
        url: format!("https://example.com/{id}"),
        content: PushContent::Events,
        stream: Default::default(),
        token: Some(Credential::new("t0ken")),
        authentication: Some(Authentication {
            scheme: "Bearer".into(),
            credentials: Some(Credential::new("s3cret")),
        }),
    }
}

fn id(text: &str) -> PushConfigId {
    text.parse().unwrap()
}

fn ids(configs: &[StoredPushConfig]) -> Vec<&str> {
    configs.iter().map(|stored| stored.config.id.as_str()).collect()
}

async fn configs(store: &dyn Store, key: &TaskKey) -> Vec<StoredPushConfig> {
    store.push_configs(key).await.unwrap()
}

pub(crate) async fn a_push_configuration_is_read_back_unchanged(store: Arc<dyn Store>) {
    let key = create(&*store, "a", &[accepted("m1")]).await;
    let plain = PushConfig { token: None, authentication: None, content: PushContent::Task, ..config("b") };
    store.set_push_config(&key, &plain, 1).await.unwrap();
    store.set_push_config(&key, &config("a"), 0).await.unwrap();
    let expected = [(config("a"), 0), (plain, 1)].map(|(config, cursor)| StoredPushConfig {
        key: key.clone(),
        config,
        cursor,
        given_up: None,
    });
    assert_eq!(configs(&*store, &key).await, expected, "in the order of their ids");
    store.delete_push_config(&key, &id("a")).await.unwrap();
    store.delete_push_config(&key, &id("a")).await.unwrap();
    assert_eq!(ids(&configs(&*store, &key).await), ["b"]);
}

pub(crate) async fn the_push_configurations_of_another_owner_are_absent(store: Arc<dyn Store>) {
    let mine = create(&*store, "a", &[accepted("m1")]).await;
    store.set_push_config(&mine, &config("h"), 1).await.unwrap();
    for other in [TaskKey { owner: key("b").owner, task: mine.task.clone() }, key("a")] {
        assert!(matches!(store.push_configs(&other).await, Err(StoreError::NotFound)));
        assert!(matches!(store.set_push_config(&other, &config("x"), 1).await, Err(StoreError::NotFound)));
        assert!(matches!(store.delete_push_config(&other, &id("h")).await, Err(StoreError::NotFound)));
        store.move_push_cursor(&other, &id("h"), 7, None).await.unwrap();
    }
    let [found] = &*configs(&*store, &mine).await else { panic!("one configuration") };
    assert_eq!(found.cursor, 1);
}

pub(crate) async fn a_push_configuration_that_is_set_again_keeps_its_cursor(store: Arc<dyn Store>) {
    let key = create(&*store, "a", &[accepted("m1")]).await;
    store.set_push_config(&key, &config("h"), 1).await.unwrap();
    let given_up = GivenUp { at: Timestamp::from_millis(5), tries: 12, why: "refused".into() };
    store.move_push_cursor(&key, &id("h"), 3, Some(&given_up)).await.unwrap();
    let [found] = &*configs(&*store, &key).await else { panic!("one configuration") };
    assert_eq!((found.cursor, found.given_up.as_ref()), (3, Some(&given_up)));
    let elsewhere = PushConfig { url: "https://example.com/else".into(), ..config("h") };
    store.set_push_config(&key, &elsewhere, 9).await.unwrap();
    let [found] = &*configs(&*store, &key).await else { panic!("one configuration") };
    assert_eq!((&found.config, found.cursor, &found.given_up), (&elsewhere, 3, &None));
}

pub(crate) async fn open_push_configurations_are_those_with_something_left_to_send(store: Arc<dyn Store>) {
    let at_work = create(&*store, "a", &[accepted("m1")]).await;
    store.set_push_config(&at_work, &config("waits"), 1).await.unwrap();
    let over = create(&*store, "b", &[accepted("m2")]).await;
    for (name, cursor) in [("behind", 1), ("done", 3), ("dead", 1)] {
        store.set_push_config(&over, &config(name), cursor).await.unwrap();
    }
    store.append(&over, 1, &[note("x"), status(State::Completed, 7, true)]).await.unwrap();
    let given_up = GivenUp { at: Timestamp::from_millis(5), tries: 1, why: "gone".into() };
    store.move_push_cursor(&over, &id("dead"), 1, Some(&given_up)).await.unwrap();
    let mut open = store.open_push_configs().await.unwrap();
    open.sort_by(|one, other| one.config.id.as_str().cmp(other.config.id.as_str()));
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
        store.set_push_config(&key, &config(name), 1).await.unwrap();
        let given_up = GivenUp { at: Timestamp::from_millis(at), tries: 1, why: "gone".into() };
        store.move_push_cursor(&key, &id(name), 1, Some(&given_up)).await.unwrap();
    }
    assert_eq!(ids(&store.given_up(2).await.unwrap()), ["three", "two"]);
    assert_eq!(store.forget(&Retention::since(Timestamp::from_millis(8))).await.unwrap(), 1);
    assert_eq!(store.given_up(10).await.unwrap(), []);
}

pub(crate) async fn a_task_is_stuck_when_its_status_is_old(store: Arc<dyn Store>) {
    let old = create(&*store, "a", &[accepted("m1"), status(State::InputRequired, 5, false)]).await;
    create(&*store, "a", &[accepted("m2"), status(State::Working, 50, false)]).await;
    create(&*store, "b", &[accepted("m3"), status(State::Completed, 5, true)]).await;
    assert_eq!(store.stuck(Timestamp::from_millis(5)).await.unwrap(), [], "5 is not before 5");
    assert_eq!(store.stuck(Timestamp::from_millis(50)).await.unwrap(), [old]);
}
