//! What goes to the plugin, and what comes back.

use serde::Deserialize;
use serde_json::{Value, json};
use talaria_guest::{Failure, FailureKind, Turn};

use crate::chat;

/// A message to the plugin.
pub(crate) struct Message<'a> {
    pub(crate) chat_id: &'a str,
    pub(crate) message_id: &'a str,
    pub(crate) content: &'a str,
    pub(crate) callback_url: &'a str,
    /// The turn that it comes from.
    pub(crate) turn: &'a Turn,
    /// It is what a peer says, and not a command of ours: what was said before goes along.
    pub(crate) is_said: bool,
}

/// Something that came back.
#[derive(Deserialize)]
pub(crate) struct Letter {
    pub(crate) kind: Kind,
    pub(crate) content: String,
}

/// What it is.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// The answer.
    Reply,
    /// Something about the chat.
    Notice,
    /// The answer could not be delivered.
    DeliveryFailed,
}

// === impl Message ===

impl Message<'_> {
    pub(crate) fn body(&self) -> Value {
        let mut body = json!({
            "chat_id": self.chat_id,
            "peer_id": self.chat_id,
            "peer_name": self.chat_id,
            "content": self.content,
            "message_id": self.message_id,
            "callback_url": self.callback_url,
        });
        let turn = self.turn;
        let Some(fields) = body.as_object_mut() else { return body };
        let metadata: Option<Value> =
            turn.message.metadata.as_deref().and_then(|text| serde_json::from_str(text).ok());
        for name in ["peer_id", "peer_name", "peer_role"] {
            let said = metadata.as_ref().and_then(|metadata| metadata.get(name)).and_then(Value::as_str);
            if let Some(said) = said.filter(|said| !said.is_empty()) {
                fields.insert(name.into(), said.into());
            }
        }
        if !turn.session.thread_id.is_empty() {
            fields.insert("thread_id".into(), turn.session.thread_id.as_str().into());
        }
        let history = if self.is_said { chat::history(turn) } else { Vec::new() };
        if !history.is_empty() {
            fields.insert("messages_history".into(), history.into());
        }
        body
    }
}

// === impl Letter ===

impl Letter {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Failure> {
        serde_json::from_slice(body).map_err(|error| {
            Failure::new(
                FailureKind::Internal,
                format!("[hermes plugin error] a malformed callback: {error}"),
            )
        })
    }
}

/// 32 hexadecimal digits that nobody can guess.
pub(crate) fn fresh_id() -> Result<String, Failure> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::new(FailureKind::Internal, format!("[hermes plugin error] {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
