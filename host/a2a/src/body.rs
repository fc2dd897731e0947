//! From the bytes of a request to a JSON value, with a bound on everything that a stranger controls.
//!
//! - size: refused by its declared length before a byte is read, or as soon as it is over;
//! - time: the whole body within one deadline, so a slow drip holds a connection only so long;
//! - depth: [`MAX_DEPTH`] levels, so the parser's stack is safe, and what is stored can be read again;
//! - count: [`MAX_VALUES`], since `[0,0,…` costs 36 times its size once it is parsed.

use std::cell::Cell;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::refusal::{Kind, Refusal};

/// Values in one body, nested ones counted. At some 120 bytes each, 60 MB is the most that one request can take.
const MAX_VALUES: usize = 500_000;

/// Levels of lists and objects in one body. A store wraps what it keeps into some levels of its own, and its reader, as
/// serde_json's always does, stops at 128.
const MAX_DEPTH: usize = 100;

/// Longest that a body too large is still read and thrown away.
const DISCARD_FOR: Duration = Duration::from_secs(5);

/// Reads a whole body.
///
/// `prompted` says that the client waits for a word before it sends: such a body is refused unseen. Of others that
/// are too large, twice the limit is read and thrown away before the answer, because a client that is still writing
/// when the connection closes often never reads the answer.
pub(crate) async fn read(
    mut body: Incoming,
    prompted: bool,
    limit: usize,
    within: Duration,
) -> Result<Bytes, Refusal> {
    let too_large =
        || Refusal::new(Kind::TooLarge, format!("the body is over {limit} bytes, which is the most"));
    if body.size_hint().lower() > limit as u64 {
        if !prompted {
            discard(body, limit.saturating_mul(2)).await;
        }
        return Err(too_large());
    }
    match tokio::time::timeout(within, Limited::new(&mut body, limit).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            discard(body, limit).await;
            Err(too_large())
        }
        Ok(Err(_)) => Err(Refusal::new(Kind::InvalidRequest, "the body ended early")),
        Err(_) => Err(Refusal::new(
            Kind::TooSlow,
            format!("the body was not there after {} seconds, which is the longest", within.as_secs()),
        )),
    }
}

async fn discard(mut body: Incoming, most: usize) {
    let mut left = most;
    let _ = tokio::time::timeout(DISCARD_FOR, async {
        while let Some(Ok(frame)) = body.frame().await {
            let size = frame.data_ref().map_or(0, Bytes::len);
            let Some(rest) = left.checked_sub(size) else { return };
            left = rest;
        }
    })
    .await;
}

/// Parses a whole body. The error says where it went wrong, never what stands there.
pub(crate) fn parse(body: &[u8]) -> Result<Value, Refusal> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let left = Left { values: Cell::new(MAX_VALUES), is_over: Cell::new(false) };
    Counted { left: &left, depth: 0 }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|error| match left.is_over.get() {
            true => Refusal::new(Kind::InvalidRequest, format!("the body has {error}")),
            false => Refusal::new(Kind::NotJson, format!("the body is not JSON: {error}")),
        })
}

/// What a body may still hold.
struct Left {
    values: Cell<usize>,
    /// Whether it held too much, which is no fault of its JSON.
    is_over: Cell<bool>,
}

/// Builds a [`Value`] as serde_json does, and counts.
#[derive(Clone, Copy)]
struct Counted<'c> {
    left: &'c Left,
    /// Lists and objects around the value.
    depth: usize,
}

// === impl Counted ===

impl Counted<'_> {
    fn inside(self) -> Self {
        Self { depth: self.depth + 1, ..self }
    }
}

impl<'de> DeserializeSeed<'de> for Counted<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let over = |what: fmt::Arguments<'_>| {
            self.left.is_over.set(true);
            Err(D::Error::custom(what))
        };
        let Some(values) = self.left.values.get().checked_sub(1) else {
            return over(format_args!("more than {MAX_VALUES} values"));
        };
        self.left.values.set(values);
        if self.depth > MAX_DEPTH {
            return over(format_args!("values nested more than {MAX_DEPTH} deep"));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Counted<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = seq.next_element_seed(self.inside())? {
            elements.push(element);
        }
        Ok(Value::Array(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            members.insert(name, map.next_value_seed(self.inside())?);
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refused(body: &[u8]) -> String {
        refused_as(Kind::NotJson, body)
    }

    fn refused_as(kind: Kind, body: &[u8]) -> String {
        let refusal = parse(body).unwrap_err();
        assert_eq!(refusal.kind, kind);
        refusal.message
    }

    #[test]
    fn what_is_not_json_is_refused_with_its_position() {
        assert_eq!(refused(b""), "the body is not JSON: EOF while parsing a value at line 1 column 0");
        assert_eq!(refused(b"{}\n{}"), "the body is not JSON: trailing characters at line 2 column 1");
        assert!(refused(b"\"\xff\xfe\"").contains("invalid unicode code point at line 1 column"));
        assert!(refused(b"\"\\ud800\"").contains("at line 1 column"), "half of a surrogate pair");
    }

    #[test]
    fn values_may_be_nested_and_not_too_deep() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(nested(MAX_DEPTH + 1).as_bytes()).is_ok(), "the innermost list is {MAX_DEPTH} deep");
        for depth in [MAX_DEPTH + 2, 200, 10_000] {
            let refused = refused_as(Kind::InvalidRequest, nested(depth).as_bytes());
            assert_eq!(refused, "the body has values nested more than 100 deep at line 1 column 101");
        }
    }

    #[test]
    fn many_small_values_are_refused_before_they_cost_memory() {
        let body = format!("[{}0]", "0,".repeat(MAX_VALUES));
        let refused = refused_as(Kind::InvalidRequest, body.as_bytes());
        assert!(refused.contains("the body has more than 500000 values at line 1 column"), "{refused}");
    }

    #[test]
    fn the_last_of_two_keys_wins() {
        assert_eq!(parse(br#"{"a":1,"a":2}"#).unwrap(), serde_json::json!({ "a": 2 }));
    }

    proptest! {
        #[test]
        fn it_parses_as_serde_json_does(text in r#"[ \[\]{}:,"a0-9.eE+\\-]{0,40}"#) {
            let ours = parse(text.as_bytes());
            match serde_json::from_str::<Value>(&text) {
                Ok(theirs) => prop_assert_eq!(ours.unwrap(), theirs),
                Err(_) => prop_assert!(ours.is_err()),
            }
        }
    }
}
