//! A push notification configuration: a line that says the dialect (`1.0`, `0.3`, `rest`), then the parameters of a set.
#![no_main]

use std::sync::Arc;

use http::HeaderValue;
use libfuzzer_sys::fuzz_target;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use talaria_a2a::Notification;
use talaria_a2a::fuzz::{self, Dialect};
use talaria_fuzz::{first_line, wire};
use talaria_turns::{ContextId, Hook, News, Task, TaskId};

fuzz_target!(|data: &[u8]| {
    let (line, params) = first_line(data);
    let dialect = match line {
        b"1.0" => Dialect::V1,
        b"0.3" => Dialect::V03,
        b"rest" => Dialect::V03Rest,
        _ => return,
    };
    let Some(params) = fuzz::json(params) else { return };
    let Some((task, hook)) = fuzz::read_hook(dialect, params) else { return };
    assert!(hook.url.len() <= 2048, "what is refused is not set");
    shown(dialect, &task, &hook);
    told(&hook);
});

/// Its owner sees all of it but the secrets.
fn shown(dialect: Dialect, task: &TaskId, hook: &Hook) {
    let written = fuzz::write_hook(dialect, task, hook).expect("a hook can be written");
    wire::one_document(&written);
    let mut seen: Value = serde_json::from_str(&written).expect("one document");
    if dialect == Dialect::V03Rest {
        seen = json!({ "taskId": task.as_str(), "config": seen });
    }
    let mut public = hook.clone();
    public.token = None;
    if let Some(authentication) = &mut public.authentication {
        authentication.credentials = None;
    }
    let again = fuzz::read_hook(dialect, seen);
    assert_eq!(
        again,
        Some((task.clone(), public)),
        "what is shown is what was set, without secrets: {written}"
    );
}

/// What its receiver is sent can be sent, and has each secret once.
fn told(hook: &Hook) {
    let task = Task::new(TaskId::fresh(), ContextId::fresh());
    let push = Notification::new(hook, &News::Task(Arc::new(task))).expect("a task can be written");
    wire::one_document(std::str::from_utf8(&push.body).expect("text"));
    for (name, value) in &push.headers {
        assert!(HeaderValue::from_str(value.expose_secret()).is_ok(), "{name} cannot be sent");
    }
}
