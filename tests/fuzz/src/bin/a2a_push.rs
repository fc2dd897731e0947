//! A push notification configuration: a line with the dialect (`1.0`, `0.3`, `rest`), then the parameters that create it.
#![no_main]

use std::sync::Arc;

use http::HeaderValue;
use libfuzzer_sys::fuzz_target;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use talaria_a2a::Notification;
use talaria_a2a::fuzz::{self, Dialect};
use talaria_fuzz::{first_line, wire};
use talaria_turns::{ContextId, PushConfig, PushNotification, Task, TaskId};

fuzz_target!(|data: &[u8]| {
    let (line, params) = first_line(data);
    let dialect = match line {
        b"1.0" => Dialect::V1,
        b"0.3" => Dialect::V03,
        b"rest" => Dialect::V03Rest,
        _ => return,
    };
    let Some(params) = fuzz::json(params) else { return };
    let Some((task, config)) = fuzz::read_push_config(dialect, params) else { return };
    assert!(config.url.len() <= 2048, "a longer address is rejected");
    check_shown(dialect, &task, &config);
    check_notification(&config);
});

/// The owner of a configuration sees all of it but the secrets.
fn check_shown(dialect: Dialect, task: &TaskId, config: &PushConfig) {
    let written = fuzz::write_push_config(dialect, task, config).expect("a configuration can be encoded");
    wire::one_document(&written);
    let mut shown: Value = serde_json::from_str(&written).expect("one document");
    if dialect == Dialect::V03Rest {
        shown = json!({ "taskId": task.as_str(), "config": shown });
    }
    let mut public = config.clone();
    public.token = None;
    if let Some(authentication) = &mut public.authentication {
        authentication.credentials = None;
    }
    let again = fuzz::read_push_config(dialect, shown);
    assert_eq!(again, Some((task.clone(), public)), "it is shown as it was set, without secrets: {written}");
}

/// A notification can be sent.
fn check_notification(config: &PushConfig) {
    let task = Task::new(TaskId::fresh(), ContextId::fresh());
    let push =
        Notification::new(config, &PushNotification::Task(Arc::new(task))).expect("a task can be encoded");
    wire::one_document(std::str::from_utf8(&push.body).expect("text"));
    for (name, value) in &push.headers {
        assert!(HeaderValue::from_str(value.expose_secret()).is_ok(), "{name} cannot be sent");
    }
}
