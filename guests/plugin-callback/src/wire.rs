//! The plugin's wire: messages that are sent to it, and callbacks that come back.

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
    /// The turn that it belongs to.
    pub(crate) turn: &'a Turn,
    /// Whether it is the caller's message and not a command of ours; earlier messages go along then.
    pub(crate) is_said: bool,
}

/// A callback of the plugin, as the host hands it over.
#[derive(Deserialize)]
pub(crate) struct Callback {
    pub(crate) kind: Kind,
    pub(crate) content: String,
}

/// The kind of a callback.
#[derive(Debug, Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// The answer.
    Reply,
    /// News about the chat: progress, a question, an error.
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
            // The gateway joins it with the chat, see `chat::id`.
            fields.insert("thread_id".into(), chat::escaped(&turn.session.thread_id).into());
        }
        let history = if self.is_said { chat::history(turn) } else { Vec::new() };
        if !history.is_empty() {
            fields.insert("messages_history".into(), history.into());
        }
        body
    }
}

// === impl Callback ===

impl Callback {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Failure> {
        serde_json::from_slice(body).map_err(|error| {
            Failure::new(
                FailureKind::Internal,
                format!("[hermes plugin error] a malformed callback: {error}"),
            )
        })
    }
}

/// An unguessable id of 32 hexadecimal digits.
pub(crate) fn fresh_id() -> Result<String, Failure> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::new(FailureKind::Internal, format!("[hermes plugin error] {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use talaria_guest::testing::turn;

    use super::*;

    fn body(turn: &Turn, is_said: bool) -> Value {
        let message = Message {
            chat_id: "c",
            message_id: "m",
            content: "hello",
            callback_url: "http://h/",
            turn,
            is_said,
        };
        message.body()
    }

    #[test]
    fn a_message_names_its_peer_by_its_metadata_or_by_its_chat() {
        let plain = json!({
            "chat_id": "c", "peer_id": "c", "peer_name": "c", "content": "hello", "message_id": "m",
            "callback_url": "http://h/",
        });
        let mut turn = turn("hello");
        assert_eq!(body(&turn, true), plain);
        turn.session.thread_id = "t".into();
        let metadata = json!({ "peer_id": "p", "peer_name": "", "peer_role": "boss", "history": [
            { "role": "user", "content": "before" },
        ] });
        turn.message.metadata = Some(metadata.to_string());
        let mut expected = plain;
        for (name, value) in [("peer_id", "p"), ("peer_role", "boss"), ("thread_id", "t")] {
            expected[name] = value.into();
        }
        assert_eq!(body(&turn, false), expected, "a command of ours has no history");
        expected["messages_history"] = json!([{ "role": "user", "content": "before" }]);
        assert_eq!(body(&turn, true), expected);
    }

    #[test]
    fn callbacks_are_parsed_by_their_kind() {
        for (body, kind) in [
            (r#"{"kind":"reply","content":"hi"}"#, Some(Kind::Reply)),
            (r#"{"kind":"notice","content":"hi","chat":"c"}"#, Some(Kind::Notice)),
            (r#"{"kind":"delivery-failed","content":""}"#, Some(Kind::DeliveryFailed)),
            (r#"{"kind":"other","content":""}"#, None),
            (r#"{"kind":"reply"}"#, None),
            ("", None),
        ] {
            let parsed = Callback::parse(body.as_bytes()).ok().map(|callback| callback.kind);
            assert_eq!(parsed, kind, "{body}");
        }
    }

    #[test]
    fn ids_are_of_32_digits_and_differ() {
        let (one, two) = (fresh_id().unwrap(), fresh_id().unwrap());
        assert!(one.len() == 32 && one.bytes().all(|byte| byte.is_ascii_hexdigit()), "{one}");
        assert_ne!(one, two);
    }
}
