//! A callback as the mailbox sees it, whatever wire it came in on, and the body that a waiting turn gets for it.

use std::borrow::Cow;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// A callback that a peer posted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Callback {
    /// The message that it answers. Without one it is a notice about its chat.
    pub reply_to: Option<String>,
    /// The upstream's chat that it belongs to.
    pub chat: Option<String>,
    /// What the peer says about its delivery.
    pub kind: CallbackKind,
    /// The text, without anything that the peer added for the delivery.
    pub content: String,
}

/// What a peer says about the delivery of a callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallbackKind {
    /// Nothing: a reply if it names a message, else a notice.
    Plain,
    /// The peer could not deliver the answer; this callback is not the answer.
    DeliveryFailed,
    /// A repeated answer from before the peer restarted. The peer no longer knows which message it answers.
    Recovered,
    /// The answer of a turn that the peer resumed after a restart. It no longer knows which message it answers.
    Resumed,
}

/// What a turn is given a callback as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveredAs {
    /// The answer to its message.
    Reply,
    /// Information about the turn or its chat; the answer is still to come.
    Notice,
    /// The report that the answer could not be delivered.
    DeliveryFailed,
}

/// Why a callback body was rejected: the text that the peer reads.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidCallback(pub Cow<'static, str>);

// === impl Callback ===

impl Callback {
    /// The digest by which a repeated answer is recognised.
    pub(crate) fn digest(&self) -> [u8; 32] {
        Sha256::digest(&self.content).into()
    }

    /// The JSON object that the contract of executors promises to the turn that waits for `message`: `kind`, `chat_id`,
    /// `reply_to` and `content`. An answer whose message the mailbox had to find carries `recovered`, and names it.
    #[must_use]
    pub fn turn_body(&self, message: &str, delivered_as: DeliveredAs) -> Value {
        let mut body = json!({
            "kind": delivered_as.word(),
            "chat_id": self.chat,
            "reply_to": self.reply_to,
            "content": self.content,
        });
        let is_recovered = matches!(self.kind, CallbackKind::Recovered | CallbackKind::Resumed);
        if let (true, DeliveredAs::Reply, Some(body)) = (is_recovered, delivered_as, body.as_object_mut()) {
            body.insert("reply_to".into(), message.into());
            body.insert("recovered".into(), true.into());
        }
        body
    }
}

// === impl DeliveredAs ===

impl DeliveredAs {
    fn word(self) -> &'static str {
        match self {
            Self::Reply => "reply",
            Self::Notice => "notice",
            Self::DeliveryFailed => "delivery-failed",
        }
    }
}

// === impl InvalidCallback ===

impl From<&'static str> for InvalidCallback {
    fn from(text: &'static str) -> Self {
        Self(text.into())
    }
}
