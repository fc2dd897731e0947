//! What a peer posts, and what it is.
//!
//! The shape is that of the molecule-a2a plugin of hermes-agent: `{"chat_id", "content", "reply_to", "metadata"}`. Only
//! `content` must be there. `reply_to` names the message that is answered; without it the post is a notice about its
//! chat. The gateway says some things about delivery inside of `content`, in texts that have not changed since they were
//! written; they are read here, so that nothing behind takes them for an answer.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use sha2::{Digest as _, Sha256};

/// What a peer posted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posted {
    /// The message that it answers; none for a notice.
    pub(crate) reply_to: Option<String>,
    /// The chat that it is about.
    pub(crate) chat: Option<String>,
    /// What it says, without what the gateway put before it.
    pub(crate) content: String,
    /// What that was.
    pub(crate) kind: Kind,
}

/// What the gateway says about a post by how it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing.
    Plain,
    /// It could not deliver the answer, and this is not it.
    DeliveryFailed,
    /// It delivers an answer that it owes from before it was restarted. It no longer knows to which message.
    Recovered,
    /// It has taken a turn up again after a restart, and this is the answer. It no longer knows to which message.
    Resumed,
}

/// Why a post is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invalid {
    /// The body is not JSON.
    NotJson,
    /// It is no object, or `content` is not a text.
    NoContent,
}

/// What a turn is told that a letter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The answer.
    Reply,
    /// About the turn, or about its chat.
    Notice,
    /// The answer could not be delivered.
    DeliveryFailed,
}

/// Before the text of an answer that the gateway sends once more because a post was refused with 4xx.
const PLAIN_TEXT: &str = "(Response formatting failed, plain text:)\n\n";
/// Instead of an answer whose posts failed with 5xx three times.
const DELIVERY_FAILED: &str = "⚠️ Message delivery failed after multiple attempts";
/// Before an answer from before a restart; a blank line ends it.
const RECOVERED: &str = "♻️ Recovered reply — ";

#[derive(Deserialize)]
struct Wire {
    #[serde(default)]
    reply_to: Option<String>,
    #[serde(default)]
    chat_id: Option<String>,
    content: String,
}

/// What a post has that is the last word of a turn. The gateway says it of nothing else.
#[derive(Deserialize)]
struct LastWord {
    metadata: Notify,
}

#[derive(Deserialize)]
struct Notify {
    notify: bool,
}

// === impl Posted ===

impl Posted {
    /// Reads a post. What else is in it is skipped without being built up.
    ///
    /// # Errors
    /// [`Invalid`], which says what the peer is told.
    pub fn parse(body: &[u8]) -> Result<Self, Invalid> {
        // What is skipped is not looked into, so that it is text at all is seen here.
        let body = std::str::from_utf8(body).map_err(|_| Invalid::NotJson)?;
        serde_json::from_str::<IgnoredAny>(body).map_err(|_| Invalid::NotJson)?;
        // An array would be read as the fields in their order.
        if !body.trim_ascii_start().starts_with('{') {
            return Err(Invalid::NoContent);
        }
        let Wire { reply_to, chat_id, content } =
            serde_json::from_str(body).map_err(|_| Invalid::NoContent)?;
        let is_last = serde_json::from_str(body).is_ok_and(|LastWord { metadata }| metadata.notify);
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let reply_to = given(reply_to);
        let (kind, content) = match classify(&content) {
            (Kind::Plain, content) if is_last && reply_to.is_none() => (Kind::Resumed, content),
            classified => classified,
        };
        Ok(Self { reply_to, chat: given(chat_id), content: content.to_owned(), kind })
    }

    /// What makes two posts the same answer.
    pub(crate) fn digest(&self) -> [u8; 32] {
        Sha256::digest(&self.content).into()
    }

    /// What the turn gets that waits for `message`.
    pub(crate) fn body(&self, message: &str, role: Role) -> Vec<u8> {
        let mut body = json!({
            "kind": role.word(),
            "chat_id": self.chat,
            "reply_to": self.reply_to,
            "content": self.content,
        });
        if let (Kind::Recovered | Kind::Resumed, Role::Reply, Some(body)) =
            (self.kind, role, body.as_object_mut())
        {
            body.insert("reply_to".into(), message.into());
            body.insert("recovered".into(), true.into());
        }
        body.to_string().into_bytes()
    }
}

fn classify(content: &str) -> (Kind, &str) {
    let content = content.strip_prefix(PLAIN_TEXT).unwrap_or(content);
    if content.starts_with(DELIVERY_FAILED) {
        return (Kind::DeliveryFailed, content);
    }
    match content.strip_prefix(RECOVERED).and_then(|rest| rest.split_once("\n\n")) {
        Some((_, answer)) => (Kind::Recovered, answer),
        None => (Kind::Plain, content),
    }
}

// === impl Invalid ===

impl Invalid {
    /// What the peer is told, in the words of the Python bridge.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::NotJson => "invalid json",
            Self::NoContent => "reply_to and content required",
        }
    }
}

// === impl Role ===

impl Role {
    fn word(self) -> &'static str {
        match self {
            Self::Reply => "reply",
            Self::Notice => "notice",
            Self::DeliveryFailed => "delivery-failed",
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn kind(content: &str) -> (Kind, String) {
        let posted = Posted::parse(json!({ "content": content }).to_string().as_bytes()).unwrap();
        (posted.kind, posted.content)
    }

    #[test]
    fn what_the_gateway_says_about_delivery_is_told_from_what_the_agent_says() {
        // The texts as hermes-agent 0.19 sends them.
        let failed = "⚠️ Message delivery failed after multiple attempts. Please try again — your request was \
                      processed but the response could not be sent.";
        assert_eq!(kind(failed).0, Kind::DeliveryFailed);
        let recovered = "♻️ Recovered reply — the gateway restarted during delivery, so this may be a duplicate:\n\n\
                         the answer\n\nin two paragraphs";
        assert_eq!(kind(recovered), (Kind::Recovered, "the answer\n\nin two paragraphs".into()));
        let plain = "(Response formatting failed, plain text:)\n\nthe answer";
        assert_eq!(kind(plain), (Kind::Plain, "the answer".into()));
        for said in ["the answer", "", " ♻️ Recovered reply — x\n\ny", "♻️ Recovered reply — without an end"]
        {
            assert_eq!(kind(said), (Kind::Plain, said.into()));
        }
    }

    #[test]
    fn the_last_word_of_a_turn_is_known_without_its_name() {
        let kind = |body: Value| Posted::parse(body.to_string().as_bytes()).unwrap().kind;
        let last =
            json!({ "chat_id": "c", "content": "x", "reply_to": null, "metadata": { "notify": true } });
        assert_eq!(kind(last), Kind::Resumed);
        for metadata in [json!({}), json!(null), json!([]), json!(1), json!({ "notify": "true" })] {
            assert_eq!(kind(json!({ "content": "x", "metadata": metadata })), Kind::Plain, "{metadata}");
        }
        let deep = format!(r#"{{"content":"x","metadata":{}}}"#, "[".repeat(1_000) + &"]".repeat(1_000));
        assert_eq!(Posted::parse(deep.as_bytes()).unwrap().kind, Kind::Plain);
        let named = json!({ "content": "x", "reply_to": "m", "metadata": { "notify": true } });
        assert_eq!(kind(named), Kind::Plain);
    }

    #[test]
    fn only_content_must_be_there() {
        for body in [
            r#"{"content":"x"}"#,
            r#"{"content":"x","reply_to":null,"chat_id":null}"#,
            r#" {"content":"x","reply_to":"","chat_id":"","metadata":{"thread_id":[1]},"more":1}"#,
        ] {
            let posted = Posted::parse(body.as_bytes()).unwrap();
            assert_eq!((posted.reply_to, posted.chat, posted.content.as_str()), (None, None, "x"), "{body}");
        }
        for body in [
            "{}",
            "null",
            "7",
            "[]",
            r#"["r","c","x"]"#,
            r#"{"content":null}"#,
            r#"{"content":1}"#,
            r#"{"content":"x","reply_to":1}"#,
        ] {
            assert_eq!(Posted::parse(body.as_bytes()), Err(Invalid::NoContent), "{body}");
        }
        for body in ["", "{", "x", "{}{}", &"[".repeat(10_000)] {
            assert_eq!(Posted::parse(body.as_bytes()), Err(Invalid::NotJson), "{body}");
        }
        let no_text = b"{\"content\":\"x\",\"skipped\":\"\xff\"}";
        assert_eq!(Posted::parse(no_text), Err(Invalid::NotJson), "also where nobody reads it");
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_keeps_what_was_said(said in ".{0,60}", id in "[a-f0-9]{1,32}") {
            let _ = Posted::parse(said.as_bytes());
            let body = json!({ "chat_id": "c", "content": said, "reply_to": id }).to_string();
            let posted = Posted::parse(body.as_bytes()).unwrap();
            prop_assert_eq!(posted.reply_to.as_deref(), Some(id.as_str()));
            if posted.kind == Kind::Plain {
                prop_assert!(said.ends_with(&posted.content));
            }
        }
    }
}
