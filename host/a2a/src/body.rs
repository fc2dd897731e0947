//! Reads the body of a request and parses it as JSON, with a limit on everything that an untrusted client controls:
//!
//! - size: rejected by the declared length before a byte is read, or as soon as the limit is exceeded;
//! - time: one deadline for the whole body, so a slow client cannot hold a connection for long;
//! - depth: [`MAX_DEPTH`] levels, so that the parser's stack is safe and stored messages can be parsed again;
//! - count: [`MAX_VALUES`], since `[0,0,…` takes 36 times its size once it is parsed;
//! - memory: the body as it arrives, and the tree that it becomes as it is parsed, are charged to the host's budget.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as _, Incoming};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use talaria_budget::{Charge, Full};
use talaria_listen::{BodyError, discard_body, read_body};

use crate::rejection::{ErrorKind, Rejection};

/// Values in one body, including nested ones. At about 120 bytes each, a request takes at most 60 MB.
const MAX_VALUES: usize = 500_000;

/// The bytes of a value in memory, with its entry in an object's table.
const VALUE: usize = 128;

/// The values that are charged at once.
const CHARGED: usize = 256;

/// Levels of lists and objects in one body. A store wraps messages in a few levels of its own, and serde_json stops at 128
/// when it reads them back.
const MAX_DEPTH: usize = 100;

/// Reads a whole body.
///
/// A client that sent `Expect: 100-continue` (`expects_continue`) has sent no body yet, so one that is too large is rejected
/// unread. Any other body that is too large is read and discarded, up to twice the limit, because a client that is still
/// writing when the connection closes often never reads the answer.
pub(crate) async fn read(
    mut body: Incoming,
    expects_continue: bool,
    limit: usize,
    timeout: Duration,
    charge: &mut Charge,
) -> Result<Bytes, Rejection> {
    let is_declared = body.size_hint().lower() > limit as u64;
    let error = match read_body(&mut body, limit, timeout, charge).await {
        Ok(bytes) => return Ok(bytes),
        Err(error) => error,
    };
    Err(match error {
        BodyError::TooLarge => {
            if !is_declared {
                discard_body(body, limit).await;
            } else if !expects_continue {
                discard_body(body, limit.saturating_mul(2)).await;
            }
            Rejection::new(ErrorKind::TooLarge, format!("the body is over {limit} bytes, which is the most"))
        }
        BodyError::Full(full) => {
            discard_body(body, limit).await;
            full.into()
        }
        BodyError::Incomplete => Rejection::new(ErrorKind::InvalidRequest, "the body ended early"),
        BodyError::TooSlow => {
            let seconds = timeout.as_secs();
            let message = format!("the body was not there after {seconds} seconds, which is the longest");
            Rejection::new(ErrorKind::TooSlow, message)
        }
    })
}

/// Parses a whole body. The error names the position and never quotes the body. What the tree takes is added to `charge`.
pub(crate) fn parse(body: &[u8], charge: &mut Charge) -> Result<Value, Rejection> {
    // The strings of the tree are no longer than the body.
    charge.grow(body.len())?;
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let left = Left {
        values: Cell::new(MAX_VALUES),
        is_over: Cell::new(false),
        full: Cell::new(None),
        charge: RefCell::new(charge),
    };
    Counted { left: &left, depth: 0 }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|error| match (left.full.get(), left.is_over.get()) {
            (Some(full), _) => full.into(),
            (_, true) => Rejection::new(ErrorKind::InvalidRequest, format!("the body has {error}")),
            (_, false) => Rejection::new(ErrorKind::Malformed, format!("the body is not JSON: {error}")),
        })
}

/// The remaining budget of a body.
struct Left<'c> {
    values: Cell<usize>,
    /// Whether the body exceeded a limit, as opposed to not being JSON.
    is_over: Cell<bool>,
    /// Set if there is no memory for it.
    full: Cell<Option<Full>>,
    charge: RefCell<&'c mut Charge>,
}

/// Builds a [`Value`] as serde_json does, and counts values and levels.
#[derive(Clone, Copy)]
struct Counted<'c> {
    left: &'c Left<'c>,
    /// The number of lists and objects around the value.
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
        if values % CHARGED == 0
            && let Err(full) = self.left.charge.borrow_mut().grow(CHARGED * VALUE)
        {
            self.left.full.set(Some(full));
            return Err(D::Error::custom("no memory"));
        }
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
    use talaria_budget::Budget;

    use super::*;

    /// Parses with memory to spare.
    fn parse(body: &[u8]) -> Result<Value, Rejection> {
        super::parse(body, &mut Budget::unlimited().nothing())
    }

    fn not_json(body: &[u8]) -> String {
        rejected_as(ErrorKind::Malformed, body)
    }

    fn rejected_as(kind: ErrorKind, body: &[u8]) -> String {
        let rejection = parse(body).unwrap_err();
        assert_eq!(rejection.kind, kind);
        rejection.message
    }

    #[test]
    fn rejects_invalid_json_with_its_position() {
        assert_eq!(not_json(b""), "the body is not JSON: EOF while parsing a value at line 1 column 0");
        assert_eq!(not_json(b"{}\n{}"), "the body is not JSON: trailing characters at line 2 column 1");
        assert!(not_json(b"\"\xff\xfe\"").contains("invalid unicode code point at line 1 column"));
        assert!(not_json(b"\"\\ud800\"").contains("at line 1 column"), "half of a surrogate pair");
    }

    #[test]
    fn values_may_be_nested_up_to_a_limit() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(nested(MAX_DEPTH + 1).as_bytes()).is_ok(), "the innermost list is {MAX_DEPTH} deep");
        for depth in [MAX_DEPTH + 2, 200, 10_000] {
            let message = rejected_as(ErrorKind::InvalidRequest, nested(depth).as_bytes());
            assert_eq!(message, "the body has values nested more than 100 deep at line 1 column 101");
        }
    }

    #[test]
    fn rejects_too_many_small_values_before_they_take_memory() {
        let body = format!("[{}0]", "0,".repeat(MAX_VALUES));
        let message = rejected_as(ErrorKind::InvalidRequest, body.as_bytes());
        assert!(message.contains("the body has more than 500000 values at line 1 column"), "{message}");
    }

    #[test]
    fn a_tree_is_charged_while_it_is_parsed() {
        let budget = Budget::new(1 << 20);
        let zeros = |count: usize| format!("[{}0]", "0,".repeat(count));
        let mut charge = budget.nothing();
        super::parse(zeros(5_000).as_bytes(), &mut charge).unwrap();
        assert!(charge.bytes() > 5_000 * size_of::<Value>(), "{}", charge.bytes());
        charge.shrink_to(0);
        let rejection = super::parse(zeros(50_000).as_bytes(), &mut charge).unwrap_err();
        assert_eq!((rejection.kind, rejection.retry_after), (ErrorKind::Busy, Some(1)), "100 KB become 6 MB");
        assert!(budget.used() <= budget.limit());
    }

    #[test]
    fn the_last_of_two_equal_keys_wins() {
        assert_eq!(parse(br#"{"a":1,"a":2}"#).unwrap(), serde_json::json!({ "a": 2 }));
    }

    proptest! {
        #[test]
        fn parses_as_serde_json_does(text in r#"[ \[\]{}:,"a0-9.eE+\\-]{0,40}"#) {
            let ours = parse(text.as_bytes());
            match serde_json::from_str::<Value>(&text) {
                Ok(theirs) => prop_assert_eq!(ours.unwrap(), theirs),
                Err(_) => prop_assert!(ours.is_err()),
            }
        }
    }
}
