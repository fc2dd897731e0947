use std::sync::Arc;

use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use talaria_turns::{
    Authentication, ContextId, Credential, Entry, Event, PushConfig, PushContent, PushNotification, State,
    StreamAs, Task,
};

use super::decode::MAX_URL;
use super::*;
use crate::dialect::Dialect;
use crate::json_fields::{Fields, Path};
use crate::operation::{Operation, Verb};
use crate::rejection::Violation;

fn read(dialect: Dialect, verb: Verb, value: Value) -> Result<Operation, Violation> {
    operation(dialect, verb, Fields::of(value, Path::Root).unwrap())
}

fn set(dialect: Dialect, value: Value) -> PushConfig {
    match read(dialect, Verb::CreatePushConfig, value).unwrap() {
        Operation::CreatePushConfig(task, config) => {
            assert_eq!(task.as_str(), "t");
            *config
        }
        other => panic!("{other:?}"),
    }
}

fn config(id: &str, content: PushContent) -> PushConfig {
    PushConfig {
        id: id.parse().unwrap(),
        url: "https://a.example/h".into(),
        content,
        stream: StreamAs::default(),
        token: Some(Credential::new("tok")),
        authentication: Some(Authentication {
            scheme: "Bearer".into(),
            credentials: Some(Credential::new("s3cret")),
        }),
    }
}

#[test]
fn one_configuration_has_three_forms() {
    let one = json!({
        "taskId": "t", "id": "c", "url": "https://a.example/h", "token": "tok",
        "authentication": { "scheme": "Bearer", "credentials": "s3cret" },
    });
    assert_eq!(set(Dialect::V1, one), config("c", PushContent::Events));
    let inner = json!({
        "id": "c", "url": "https://a.example/h", "token": "tok",
        "authentication": { "schemes": ["Bearer", "Basic"], "credentials": "s3cret" },
    });
    let old = json!({ "taskId": "t", "pushNotificationConfig": inner });
    assert_eq!(set(Dialect::V03, old.clone()), config("c", PushContent::Task));
    let whole = json!({ "taskId": "t", "parent": "tasks/t", "config": { "pushNotificationConfig": inner } });
    for body in [old, whole] {
        assert_eq!(set(Dialect::V03Rest, body), config("c", PushContent::Task));
    }
    let named = json!({ "taskId": "t", "configId": "d", "config": { "pushNotificationConfig": inner } });
    assert_eq!(set(Dialect::V03Rest, named), config("d", PushContent::Task));
}

#[test]
fn without_an_id_a_task_has_one_configuration_in_0_3_and_any_number_in_1_0() {
    let old = json!({ "taskId": "t", "pushNotificationConfig": { "url": "https://a.example" } });
    assert_eq!(set(Dialect::V03, old).id.as_str(), "t");
    let one = || set(Dialect::V1, json!({ "taskId": "t", "url": "https://a.example" })).id;
    assert_ne!(one(), one());
}

#[test]
fn a_bad_configuration_is_rejected_with_its_field() {
    let long = "x".repeat(MAX_URL + 1);
    for (bad, field) in [
        (json!({ "taskId": "t" }), "url"),
        (json!({ "url": "https://a.example" }), "taskId"),
        (json!({ "taskId": "t", "url": 7 }), "url"),
        (json!({ "taskId": "t", "url": long }), "url"),
        (json!({ "taskId": "t", "url": "https://a.example", "id": "a\nb" }), "id"),
        (json!({ "taskId": "t", "url": "https://a.example", "token": "a\r\nx: y" }), "token"),
        (json!({ "taskId": "t", "url": "https://a.example", "authentication": {} }), "authentication.scheme"),
        (
            json!({ "taskId": "t", "url": "https://a.example", "authentication": { "scheme": "a b" } }),
            "authentication.scheme",
        ),
        (
            json!({ "taskId": "t", "url": "https://a.example", "authentication": { "scheme": "a", "credentials": "ü" } }),
            "authentication.credentials",
        ),
    ] {
        assert_eq!(read(Dialect::V1, Verb::CreatePushConfig, bad.clone()).unwrap_err().field, field, "{bad}");
    }
    let violation = read(Dialect::V1, Verb::GetPushConfig, json!({ "taskId": "t" })).unwrap_err();
    assert_eq!(violation.field, "id");
    let violation = read(Dialect::V03, Verb::DeletePushConfig, json!({ "id": "t" })).unwrap_err();
    assert_eq!(violation.field, "pushNotificationConfigId");
}

#[test]
fn secrets_are_never_encoded() {
    let (task, config) = ("t".parse().unwrap(), config("c", PushContent::Events));
    for (dialect, written) in [
        (
            Dialect::V1,
            json!({ "id": "c", "taskId": "t", "url": "https://a.example/h", "authentication": { "scheme": "Bearer" } }),
        ),
        (
            Dialect::V03,
            json!({ "taskId": "t", "pushNotificationConfig": {
                "id": "c", "url": "https://a.example/h", "authentication": { "schemes": ["Bearer"] },
            } }),
        ),
        (
            Dialect::V03Rest,
            json!({ "name": "tasks/t/pushNotificationConfigs/c", "pushNotificationConfig": {
                "id": "c", "url": "https://a.example/h", "authentication": { "schemes": ["Bearer"] },
            } }),
        ),
    ] {
        assert_eq!(serde_json::to_value(PushConfigOut(dialect, &task, &config)).unwrap(), written);
    }
    assert!(!format!("{config:?}").contains("s3cret") && !format!("{config:?}").contains("tok\""));
}

#[test]
fn a_notification_has_the_form_of_its_version_and_every_header() {
    let task = Arc::new(Task::new("t".parse().unwrap(), "c".parse::<ContextId>().unwrap()));
    let entry = Entry { sequence: 2, event: Arc::new(Event::moved(State::Working)) };
    let push = Notification::new(
        &config("c", PushContent::Events),
        &PushNotification::Event(Arc::clone(&task), entry),
    )
    .unwrap();
    let header = |push: &Notification, name: &str| {
        let found = push.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.expose_secret().to_owned())
    };
    for (name, value) in [
        ("content-type", "application/a2a+json"),
        ("authorization", "Bearer s3cret"),
        ("x-a2a-notification-token", "tok"),
        ("a2a-notification-token", "tok"),
    ] {
        assert_eq!(header(&push, name).as_deref(), Some(value), "{name}");
    }
    let body: Value = serde_json::from_slice(&push.body).unwrap();
    assert_eq!(body["statusUpdate"]["status"]["state"], "TASK_STATE_WORKING");
    assert!(!format!("{push:?}").contains("s3cret"));

    let push = Notification::new(&config("c", PushContent::Task), &PushNotification::Task(task)).unwrap();
    assert_eq!(header(&push, "content-type").as_deref(), Some("application/json"));
    let body: Value = serde_json::from_slice(&push.body).unwrap();
    assert_eq!((&body["kind"], &body["id"]), (&json!("task"), &json!("t")));
}
