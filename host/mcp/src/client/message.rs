//! What a server sends: JSON-RPC messages, from a body or from an event.
//!
//! A server is not trusted. A document is measured before it is parsed: its depth and the number of its values are bounded,
//! because a value takes many times the room of its text. What is no message of the protocol is skipped, as it answers
//! nothing; a document that cannot be read at all is an error.

use serde_json::Value;

use super::text::{clip, visible};

/// The most values in a document. The largest list of tools needs a few thousand.
pub(crate) const VALUES: usize = 64 << 10;
/// The deepest nesting. Schemas of arguments have less than ten levels; below the limit of the parser.
pub(crate) const DEPTH: usize = 64;
/// The longest reason of an error that is passed on, in bytes.
const REASON: usize = 4 << 10;

/// A message from a server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Message {
    /// The response to the request of this number.
    Response(u64, Result<Value, Refused>),
    /// A request to the client.
    Request {
        /// Its id, a text or a number.
        id: Value,
        /// What is asked for.
        method: String,
    },
    /// A notification of this method.
    Notification(String),
}

/// The error with which a server answered a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) code: i64,
    /// Its reason, safe to show.
    pub(crate) reason: String,
}

/// The messages in a document: one, or several in an array, as one version of the protocol has it.
pub(crate) fn read(document: &[u8]) -> Result<Vec<Message>, &'static str> {
    measure(document)?;
    match serde_json::from_slice(document) {
        Ok(Value::Array(items)) => Ok(items.into_iter().filter_map(message).collect()),
        Ok(value @ Value::Object(_)) => Ok(message(value).into_iter().collect()),
        Ok(_) => Ok(Vec::new()),
        Err(_) => Err("not JSON"),
    }
}

/// Bounds the values and the depth of a document, without parsing it.
pub(crate) fn measure(document: &[u8]) -> Result<(), &'static str> {
    let (mut depth, mut values, mut in_text, mut escaped) = (0_usize, 1_usize, false, false);
    for byte in document {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'[' | b'{' => {
                depth += 1;
                values += 1;
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' | b':' => values += 1,
            _ => {}
        }
        if depth > DEPTH {
            return Err("nested too deeply");
        }
        if values > VALUES {
            return Err("of too many values");
        }
    }
    Ok(())
}

fn message(mut value: Value) -> Option<Message> {
    let id = value.get("id").cloned();
    if let Some(method) = value.get("method") {
        let method = method.as_str()?.to_owned();
        return match id {
            None | Some(Value::Null) => Some(Message::Notification(method)),
            Some(id @ (Value::String(_) | Value::Number(_))) => Some(Message::Request { id, method }),
            Some(_) => None,
        };
    }
    let id = id?.as_u64()?;
    if let Some(error) = value.get("error").filter(|error| !error.is_null()) {
        return Some(Message::Response(id, Err(Refused::of(error))));
    }
    Some(Message::Response(id, Ok(value.get_mut("result")?.take())))
}

// === impl Refused ===

impl Refused {
    fn of(error: &Value) -> Self {
        let reason = error.get("message").and_then(Value::as_str).filter(|reason| !reason.is_empty());
        let reason = clip(&visible(reason.unwrap_or("no reason was given")), REASON);
        Self { code: error.get("code").and_then(Value::as_i64).unwrap_or_default(), reason }
    }

    /// The reason in an error document, whichever request it answers.
    pub(crate) fn in_document(document: &[u8]) -> Option<Self> {
        measure(document).ok()?;
        let value: Value = serde_json::from_slice(document).ok()?;
        value.get("error").filter(|error| error.is_object()).map(Self::of)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn one(value: Value) -> Option<Message> {
        read(value.to_string().as_bytes()).expect("a document").pop()
    }

    #[test]
    fn responses_requests_and_notifications_are_told_apart() {
        assert_eq!(one(json!({ "id": 3, "result": [1] })), Some(Message::Response(3, Ok(json!([1])))));
        let refused = Refused { code: -32_602, reason: "no".into() };
        let error = json!({ "code": -32_602, "message": "no" });
        assert_eq!(one(json!({ "id": 3, "error": error })), Some(Message::Response(3, Err(refused))));
        let ping = Message::Request { id: json!("a"), method: "ping".into() };
        assert_eq!(one(json!({ "id": "a", "method": "ping" })), Some(ping));
        assert_eq!(one(json!({ "method": "x" })), Some(Message::Notification("x".into())));
        for no in [json!({}), json!({ "id": 1 }), json!({ "id": "1", "result": 1 }), json!({ "method": 7 })] {
            assert_eq!(one(no.clone()), None, "{no}");
        }
        let batch = json!([{ "id": 1, "result": 1 }, 7, { "method": "x" }]);
        assert_eq!(read(batch.to_string().as_bytes()).expect("a batch").len(), 2);
    }

    #[test]
    fn a_document_is_measured_before_it_is_parsed() {
        let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(measure(deep(DEPTH).as_bytes()), Ok(()));
        assert_eq!(read(deep(DEPTH + 1).as_bytes()), Err("nested too deeply"));
        let wide = |values: usize| format!("[{}0]", "0,".repeat(values - 2));
        assert_eq!(measure(wide(VALUES).as_bytes()), Ok(()));
        assert_eq!(read(wide(VALUES + 1).as_bytes()), Err("of too many values"));
        let text = json!({ "result": "[{,:\"\\".repeat(VALUES) }).to_string();
        assert_eq!(measure(text.as_bytes()), Ok(()), "what is in a text is no value");
        assert_eq!(read(b"<html>"), Err("not JSON"));
    }
}
