//! How the platform plugin of hermes-agent posts callbacks.
//!
//! A body is `{"chat_id", "content", "reply_to", "metadata"}`, of which only `content` is required. `reply_to` names the
//! message that is answered; without it the callback is a notice about its chat. The gateway reports some deliveries
//! inside `content`, in phrases that have not changed since they were written. They are recognised here, so that no
//! executor takes one for an answer.
//!
//! A request must carry the shared secret in [`SECRET_HEADER`], if there is one. The answers are those of the Python bridge,
//! which are the defaults of [`CallbackWire::answer`].

use std::fmt;

use http::HeaderName;
use http::request::Parts;
use secrecy::SecretString;
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use talaria_mailbox::{Callback, CallbackKind, CallbackWire, InvalidCallback, SecretHeader};

/// The path that the plugin posts to.
pub const CALLBACK_PATH: &str = "/a2a/reply";

/// The header in which plugin and host prove themselves to each other.
const SECRET_HEADER: HeaderName = HeaderName::from_static("x-molecule-a2a-secret");

/// Precedes an answer that the gateway sends again because a callback was rejected with a 4xx.
const PLAIN_TEXT: &str = "(Response formatting failed, plain text:)\n\n";
/// Replaces an answer whose callbacks failed three times with a 5xx.
const DELIVERY_FAILED: &str = "⚠️ Message delivery failed after multiple attempts";
/// Precedes an answer from before a restart of the gateway; it ends with a blank line.
const RECOVERED: &str = "♻️ Recovered reply — ";

/// The callbacks of the platform plugin of hermes-agent.
pub struct HermesWire {
    secret: SecretHeader,
}

/// The members of a body that matter.
#[derive(Default)]
struct Body {
    reply_to: Option<String>,
    chat_id: Option<String>,
    content: String,
    /// Whether this is the last callback of a turn: `metadata.notify` is true, which the gateway says of nothing else.
    is_last: bool,
}

/// `metadata`, or a part of it: whether it is an object with `notify`, and whether it is itself true.
#[derive(Default)]
struct Metadata {
    is_true: bool,
    notify: bool,
}

// === impl HermesWire ===

impl HermesWire {
    /// The wire of a plugin that shares `secret` with this host. Without one, every callback counts as the plugin's.
    #[must_use]
    pub fn new(secret: Option<SecretString>) -> Self {
        Self { secret: SecretHeader::new(SECRET_HEADER, secret) }
    }
}

impl CallbackWire for HermesWire {
    fn path(&self) -> &str {
        CALLBACK_PATH
    }

    fn verify_head(&self, head: &Parts) -> bool {
        self.secret.is_in(head)
    }

    fn parse(&self, body: &[u8]) -> Result<Callback, InvalidCallback> {
        let Body { reply_to, chat_id, content, is_last } = read(body)?;
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let reply_to = given(reply_to);
        let (kind, content) = match classify(&content) {
            (CallbackKind::Plain, content) if is_last && reply_to.is_none() => {
                (CallbackKind::Resumed, content)
            }
            classified => classified,
        };
        Ok(Callback { reply_to, chat: given(chat_id), kind, content: content.to_owned() })
    }
}

/// Reads a body in one pass. Members that do not matter are skipped without being built.
fn read(body: &[u8]) -> Result<Body, InvalidCallback> {
    const NOT_JSON: &str = "invalid json";
    const NO_CONTENT: &str = "reply_to and content required";
    // The parser does not check what it skips for UTF-8.
    let body = std::str::from_utf8(body).map_err(|_| NOT_JSON)?;
    serde_json::from_str(body).map_err(|error| {
        // A value of the wrong type may come before a mistake in the JSON, which is the graver one.
        let is_json = error.is_data() && serde_json::from_str::<IgnoredAny>(body).is_ok();
        InvalidCallback::from(if is_json { NO_CONTENT } else { NOT_JSON })
    })
}

/// What the gateway says about the delivery of a text, and the text without it.
fn classify(content: &str) -> (CallbackKind, &str) {
    let content = content.strip_prefix(PLAIN_TEXT).unwrap_or(content);
    if content.starts_with(DELIVERY_FAILED) {
        return (CallbackKind::DeliveryFailed, content);
    }
    match content.strip_prefix(RECOVERED).and_then(|rest| rest.split_once("\n\n")) {
        Some((_, answer)) => (CallbackKind::Recovered, answer),
        None => (CallbackKind::Plain, content),
    }
}

// === impl Body ===

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(body: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Body;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Body, A::Error> {
                let (mut reply_to, mut chat_id, mut content) = (None, None, None);
                let mut is_last = None;
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "reply_to" => once(&mut reply_to, map.next_value()?)?,
                        "chat_id" => once(&mut chat_id, map.next_value()?)?,
                        "content" => once(&mut content, map.next_value()?)?,
                        "metadata" => {
                            let notify = map.next_value::<Metadata>()?.notify;
                            // Given twice, it says nothing.
                            is_last = Some(is_last.is_none() && notify);
                        }
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                let content = content.ok_or_else(|| A::Error::missing_field("content"))?;
                let is_last = is_last.unwrap_or_default();
                Ok(Body { reply_to: reply_to.flatten(), chat_id: chat_id.flatten(), content, is_last })
            }
        }

        body.deserialize_map(Members)
    }
}

fn once<T, E: serde::de::Error>(slot: &mut Option<T>, value: T) -> Result<(), E> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(E::custom("given twice")),
    }
}

// === impl Metadata ===

impl<'de> Deserialize<'de> for Metadata {
    /// Accepts any value: what the gateway puts there is its own affair.
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Metadata;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Metadata, A::Error> {
                let mut notify = None;
                while let Some(key) = map.next_key::<String>()? {
                    if key != "notify" {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    }
                    let value: Metadata = map.next_value()?;
                    notify = Some(notify.is_none() && value.is_true);
                }
                Ok(Metadata { notify: notify.unwrap_or_default(), is_true: false })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Metadata, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Metadata::default())
            }

            fn visit_bool<E>(self, is_true: bool) -> Result<Metadata, E> {
                Ok(Metadata { is_true, notify: false })
            }

            fn visit_unit<E>(self) -> Result<Metadata, E> {
                Ok(Metadata::default())
            }

            fn visit_str<E>(self, _: &str) -> Result<Metadata, E> {
                Ok(Metadata::default())
            }

            fn visit_i64<E>(self, _: i64) -> Result<Metadata, E> {
                Ok(Metadata::default())
            }

            fn visit_u64<E>(self, _: u64) -> Result<Metadata, E> {
                Ok(Metadata::default())
            }

            fn visit_f64<E>(self, _: f64) -> Result<Metadata, E> {
                Ok(Metadata::default())
            }
        }

        value.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn parse(body: &[u8]) -> Result<Callback, String> {
        HermesWire::new(None).parse(body).map_err(|invalid| invalid.to_string())
    }

    fn kind(content: &str) -> (CallbackKind, String) {
        let callback = parse(json!({ "content": content }).to_string().as_bytes()).unwrap();
        (callback.kind, callback.content)
    }

    #[test]
    fn tells_reports_of_the_gateway_from_the_words_of_the_agent() {
        // The texts as hermes-agent 0.19 sends them.
        let failed = "⚠️ Message delivery failed after multiple attempts. Please try again — your request was \
                      processed but the response could not be sent.";
        assert_eq!(kind(failed).0, CallbackKind::DeliveryFailed);
        let recovered = "♻️ Recovered reply — the gateway restarted during delivery, so this may be a duplicate:\n\n\
                         the answer\n\nin two paragraphs";
        assert_eq!(kind(recovered), (CallbackKind::Recovered, "the answer\n\nin two paragraphs".into()));
        let plain = "(Response formatting failed, plain text:)\n\nthe answer";
        assert_eq!(kind(plain), (CallbackKind::Plain, "the answer".into()));
        for said in ["the answer", "", " ♻️ Recovered reply — x\n\ny", "♻️ Recovered reply — without an end"]
        {
            assert_eq!(kind(said), (CallbackKind::Plain, said.into()));
        }
    }

    #[test]
    fn recognises_the_last_callback_of_a_turn_without_its_message() {
        let kind = |body: Value| parse(body.to_string().as_bytes()).unwrap().kind;
        let last =
            json!({ "chat_id": "c", "content": "x", "reply_to": null, "metadata": { "notify": true } });
        assert_eq!(kind(last), CallbackKind::Resumed);
        for metadata in [
            json!({}),
            json!(null),
            json!([]),
            json!(1),
            json!(-1.5),
            json!(true),
            json!({ "notify": "true" }),
            json!({ "notify": { "notify": true } }),
        ] {
            let body = json!({ "content": "x", "metadata": metadata });
            assert_eq!(kind(body), CallbackKind::Plain, "{metadata}");
        }
        let deep = format!(r#"{{"content":"x","metadata":{}}}"#, "[".repeat(1_000) + &"]".repeat(1_000));
        assert_eq!(parse(deep.as_bytes()).unwrap().kind, CallbackKind::Plain);
        let twice = r#"{"content":"x","metadata":{"notify":true},"metadata":{"notify":true}}"#;
        assert_eq!(parse(twice.as_bytes()).unwrap().kind, CallbackKind::Plain);
        let named = json!({ "content": "x", "reply_to": "m", "metadata": { "notify": true } });
        assert_eq!(kind(named), CallbackKind::Plain);
    }

    #[test]
    fn requires_content_and_nothing_else() {
        for body in [
            r#"{"content":"x"}"#,
            r#"{"content":"x","reply_to":null,"chat_id":null}"#,
            r#" {"content":"x","reply_to":"","chat_id":"","metadata":{"thread_id":[1]},"more":1}"#,
        ] {
            let callback = parse(body.as_bytes()).unwrap();
            let read = (callback.reply_to, callback.chat, callback.content.as_str());
            assert_eq!(read, (None, None, "x"), "{body}");
        }
        for body in [
            "{}",
            "null",
            "7",
            "[]",
            r#"["r","c","x"]"#,
            r#"{"content":null}"#,
            r#"{"content":1}"#,
            r#"{"content":"x","content":"x"}"#,
            r#"{"content":"x","reply_to":1}"#,
        ] {
            assert_eq!(parse(body.as_bytes()), Err("reply_to and content required".into()), "{body}");
        }
        for body in ["", "{", "x", "{}{}", r#"{"content":1} x"#, &"[".repeat(10_000)] {
            assert_eq!(parse(body.as_bytes()), Err("invalid json".into()), "{body}");
        }
        let skipped = b"{\"content\":\"x\",\"skipped\":\"\xff\"}";
        assert_eq!(parse(skipped), Err("invalid json".into()), "also where nobody reads it");
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_keeps_the_text(said in ".{0,60}", id in "[a-f0-9]{1,32}") {
            let _ = parse(said.as_bytes());
            let body = json!({ "chat_id": "c", "content": said, "reply_to": id }).to_string();
            let callback = parse(body.as_bytes()).unwrap();
            prop_assert_eq!(callback.reply_to.as_deref(), Some(id.as_str()));
            if callback.kind == CallbackKind::Plain {
                prop_assert!(said.ends_with(&callback.content));
            }
        }
    }
}
