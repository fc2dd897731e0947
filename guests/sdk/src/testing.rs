//! Values for native unit tests of an executor's own logic.
//!
//! A crate that uses this one also compiles for the machine that builds it, and `cargo test` runs its tests there.
//! There is no host then: a function of the contract ([`http`](crate::http), [`log`](crate::log), …) panics when it is
//! called, so only logic without such calls can be tested this way.

use serde_json::{Map, Value};

use crate::types::Session;
use crate::{Content, Description, Message, Part, Role, Turn};

/// A message of a user with these parts.
#[must_use]
pub fn message(parts: impl IntoIterator<Item = Content>) -> Message {
    let parts = parts.into_iter().map(Part::new).collect();
    Message { id: "message-1".into(), role: Role::User, parts, metadata: None }
}

/// A turn with this text: the first of its task, without a workspace or a principal, not streamed.
#[must_use]
pub fn turn(text: &str) -> Turn {
    Turn {
        task_id: "task-1".into(),
        context_id: "context-1".into(),
        message: message([Content::Text(text.into())]),
        text: text.into(),
        history: Vec::new(),
        workspace: None,
        session: Session {
            platform: "a2a".into(),
            source: String::new(),
            chat_id: String::new(),
            chat_name: String::new(),
            thread_id: String::new(),
            user_id: String::new(),
            user_name: String::new(),
            key: String::new(),
            id: String::new(),
            message_id: "message-1".into(),
            cwd: String::new(),
            async_delivery: false,
        },
        principal: None,
        settings: "{}".into(),
        streaming: false,
        budget_ms: 600_000,
        checkpoint: None,
        metadata: None,
    }
}

impl Description {
    /// The defaults of the settings' schema as a JSON object, which an executor without configuration gets.
    #[must_use]
    pub fn default_settings(&self) -> String {
        let schema: Value = serde_json::from_str(&self.settings_schema).unwrap_or_default();
        let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let defaults =
            properties.filter_map(|(name, property)| Some((name.clone(), property.get("default")?.clone())));
        Value::Object(defaults.collect::<Map<_, _>>()).to_string()
    }
}
