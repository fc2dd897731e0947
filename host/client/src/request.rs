//! The JSON-RPC requests of both protocol versions.

use serde_json::{Map, Value, json};

use crate::card::{Interface, Protocol};

/// A message to an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// The text, sent as the only part.
    pub text: String,
    /// The message id. A random one is chosen if this is `None`.
    pub id: Option<String>,
    /// The context that the message belongs to.
    pub context: Option<String>,
    /// The task that the message continues.
    pub task: Option<String>,
    /// Metadata of the message; left out if empty.
    pub metadata: Map<String, Value>,
}

/// How the agent delivers its answer to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// In one piece, when the turn is over.
    Whole,
    /// As a stream, while the turn runs.
    Streamed,
    /// Not at all: the agent returns the task at once and the turn carries on.
    Detached,
}

/// A method that takes nothing but the id of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskMethod {
    /// Returns the task.
    Get,
    /// Cancels the task.
    Cancel,
    /// Streams the task's events.
    Subscribe,
}

// === impl Message ===

impl Message {
    /// A message with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Sets the context.
    #[must_use]
    pub fn in_context(self, context: impl Into<String>) -> Self {
        Self { context: Some(context.into()), ..self }
    }

    /// Sets the task.
    #[must_use]
    pub fn to_task(self, task: impl Into<String>) -> Self {
        Self { task: Some(task.into()), ..self }
    }

    /// Adds a member to the metadata.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }

    /// Encodes the message in a protocol version.
    fn encode(&self, protocol: Protocol) -> Value {
        let id = self.id.clone().unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
        let text = &self.text;
        let mut message = match protocol {
            Protocol::V1_0 => json!({ "messageId": id, "role": "ROLE_USER", "parts": [{ "text": text }] }),
            Protocol::V0_3 => {
                json!({ "kind": "message", "messageId": id, "role": "user", "parts": [{ "kind": "text", "text": text }] })
            }
        };
        if let Some(message) = message.as_object_mut() {
            let ids = [("contextId", &self.context), ("taskId", &self.task)];
            let given =
                ids.into_iter().filter_map(|(key, id)| Some((key.to_owned(), Value::from(id.clone()?))));
            message.extend(given);
            if !self.metadata.is_empty() {
                message.insert("metadata".into(), self.metadata.clone().into());
            }
        }
        message
    }
}

/// Encodes the request that sends a message.
pub(crate) fn send(interface: &Interface, message: &Message, delivery: Delivery) -> Value {
    let method = match (interface.protocol, delivery) {
        (Protocol::V1_0, Delivery::Whole | Delivery::Detached) => "SendMessage",
        (Protocol::V1_0, Delivery::Streamed) => "SendStreamingMessage",
        (Protocol::V0_3, Delivery::Whole | Delivery::Detached) => "message/send",
        (Protocol::V0_3, Delivery::Streamed) => "message/stream",
    };
    let message = message.encode(interface.protocol);
    let params = match (interface.protocol, delivery) {
        (Protocol::V0_3, Delivery::Whole | Delivery::Detached) => {
            json!({ "configuration": { "blocking": delivery == Delivery::Whole }, "message": message })
        }
        (Protocol::V1_0, Delivery::Detached) => {
            json!({ "configuration": { "returnImmediately": true }, "message": message })
        }
        // 1.0 waits by default.
        _ => json!({ "message": message }),
    };
    call(interface, method, params)
}

/// Encodes a request that names a task.
pub(crate) fn task(interface: &Interface, task: &str, method: TaskMethod) -> Value {
    let method = match (interface.protocol, method) {
        (Protocol::V1_0, TaskMethod::Get) => "GetTask",
        (Protocol::V1_0, TaskMethod::Cancel) => "CancelTask",
        (Protocol::V1_0, TaskMethod::Subscribe) => "SubscribeToTask",
        (Protocol::V0_3, TaskMethod::Get) => "tasks/get",
        (Protocol::V0_3, TaskMethod::Cancel) => "tasks/cancel",
        (Protocol::V0_3, TaskMethod::Subscribe) => "tasks/resubscribe",
    };
    call(interface, method, json!({ "id": task }))
}

/// Encodes a call of any method. The interface's tenant joins the parameters.
pub(crate) fn call(interface: &Interface, method: &str, mut params: Value) -> Value {
    if let (Some(params), Some(tenant)) = (params.as_object_mut(), &interface.tenant) {
        params.insert("tenant".into(), tenant.as_str().into());
    }
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
}
