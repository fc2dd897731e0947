//! What is asked of an agent, in the words of either version.

use serde_json::{Value, json};

use crate::cli::Protocol;

use super::card::Interface;

/// A message to an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outgoing {
    /// What is said.
    pub(super) text: String,
    /// The conversation that it belongs to.
    pub(super) context: Option<String>,
    /// The task that it goes on with.
    pub(super) task: Option<String>,
}

/// How the answer to a message comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivery {
    /// In one piece, when the turn is over.
    Whole,
    /// As it is made.
    Streamed,
}

/// What can be asked about a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    /// How it stands.
    Get,
    /// That it ends.
    Cancel,
    /// What becomes of it.
    Subscribe,
}

/// The request that sends a message.
pub(super) fn send(interface: &Interface, outgoing: &Outgoing, delivery: Delivery) -> Value {
    let (id, text) = (uuid::Uuid::new_v4().to_string(), &outgoing.text);
    let method = match (interface.protocol, delivery) {
        (Protocol::V1_0, Delivery::Whole) => "SendMessage",
        (Protocol::V1_0, Delivery::Streamed) => "SendStreamingMessage",
        (Protocol::V0_3, Delivery::Whole) => "message/send",
        (Protocol::V0_3, Delivery::Streamed) => "message/stream",
    };
    let mut message = match interface.protocol {
        Protocol::V1_0 => json!({ "messageId": id, "role": "ROLE_USER", "parts": [{ "text": text }] }),
        Protocol::V0_3 => {
            json!({ "kind": "message", "messageId": id, "role": "user", "parts": [{ "kind": "text", "text": text }] })
        }
    };
    let ids = [("contextId", &outgoing.context), ("taskId", &outgoing.task)];
    if let Some(message) = message.as_object_mut() {
        let given = ids.into_iter().filter_map(|(key, id)| Some((key.to_owned(), Value::from(id.clone()?))));
        message.extend(given);
    }
    let params = match (interface.protocol, delivery) {
        // 1.0 waits unless told.
        (Protocol::V0_3, Delivery::Whole) => {
            json!({ "configuration": { "blocking": true }, "message": message })
        }
        _ => json!({ "message": message }),
    };
    envelope(interface, method, params)
}

/// A request about a task.
pub(super) fn about(interface: &Interface, task: &str, about: About) -> Value {
    let method = match (interface.protocol, about) {
        (Protocol::V1_0, About::Get) => "GetTask",
        (Protocol::V1_0, About::Cancel) => "CancelTask",
        (Protocol::V1_0, About::Subscribe) => "SubscribeToTask",
        (Protocol::V0_3, About::Get) => "tasks/get",
        (Protocol::V0_3, About::Cancel) => "tasks/cancel",
        (Protocol::V0_3, About::Subscribe) => "tasks/resubscribe",
    };
    envelope(interface, method, json!({ "id": task }))
}

fn envelope(interface: &Interface, method: &str, mut params: Value) -> Value {
    if let (Some(params), Some(tenant)) = (params.as_object_mut(), &interface.tenant) {
        params.insert("tenant".into(), tenant.as_str().into());
    }
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
}
