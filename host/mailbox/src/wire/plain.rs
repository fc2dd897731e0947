//! A wire that needs no Rust: a path, a header with a secret, and where in a JSON body the values are.
//!
//! The places are JSON pointers (RFC 6901), such as `/reply/text`. A body is read once, and only what the pointers name is
//! kept, so a large body costs no more than its text. A member that leads to a value must not be given twice, since two
//! parsers could disagree on which one counts. Every callback is [`CallbackKind::Plain`]: a reply if the body names a
//! message, else a notice about its chat.

use std::fmt;
use std::str::FromStr;

use http::request::Parts;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;

use super::{CallbackWire, SecretHeader};
use crate::callback::{Callback, CallbackKind, InvalidCallback};

/// A wire made of a path, a secret header and JSON pointers.
pub struct PlainWire {
    /// The path that peers post to, with its leading slash.
    pub path: String,
    /// The header that proves who posts.
    pub secret: SecretHeader,
    /// Where the id of the message is that a callback answers. An absent, null or empty one makes it a notice.
    pub message: Pointer,
    /// Where the text is. It must be a string.
    pub content: Pointer,
    /// Where the name of the chat is, if callbacks name one.
    pub chat: Option<Pointer>,
}

/// A JSON pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer {
    text: String,
    tokens: Vec<Box<str>>,
}

/// What is at a pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Found {
    Absent,
    Text(String),
    /// A value of another type than a string.
    Other,
}

/// Looks below one value for what several pointers name.
struct Seek<'p, 'f> {
    /// What is left of each pointer, and its index in `found`.
    wanted: Vec<(&'p [Box<str>], usize)>,
    found: &'f mut [Found],
}

// === impl PlainWire ===

impl CallbackWire for PlainWire {
    fn path(&self) -> &str {
        &self.path
    }

    fn verify_head(&self, head: &Parts) -> bool {
        self.secret.is_in(head)
    }

    fn parse(&self, body: &[u8]) -> Result<Callback, InvalidCallback> {
        let pointers = [Some(&self.message), Some(&self.content), self.chat.as_ref()];
        let [message, content, chat] = find(body, pointers)?;
        let optional = |found, pointer: Option<&Pointer>| match found {
            Found::Text(text) => Ok(Some(text).filter(|text| !text.is_empty())),
            Found::Absent => Ok(None),
            Found::Other => Err(not_a_string(pointer)),
        };
        let Found::Text(content) = content else { return Err(not_a_string(Some(&self.content))) };
        Ok(Callback {
            reply_to: optional(message, Some(&self.message))?,
            chat: optional(chat, self.chat.as_ref())?,
            kind: CallbackKind::Plain,
            content,
        })
    }
}

fn not_a_string(pointer: Option<&Pointer>) -> InvalidCallback {
    let pointer = pointer.map(|pointer| pointer.text.as_str()).unwrap_or_default();
    InvalidCallback(format!("a string is required at `{pointer}`").into())
}

/// What is at each pointer of a body.
fn find<const N: usize>(body: &[u8], pointers: [Option<&Pointer>; N]) -> Result<[Found; N], InvalidCallback> {
    // Values that are skipped are not checked for UTF-8 by the parser.
    let body = std::str::from_utf8(body).map_err(|_| InvalidCallback::from("invalid json"))?;
    let mut found = [const { Found::Absent }; N];
    let wanted = pointers.iter().enumerate();
    let wanted = wanted.filter_map(|(index, pointer)| Some((pointer.as_ref()?.tokens.as_slice(), index)));
    let seek = Seek { wanted: wanted.collect(), found: &mut found };
    let mut json = serde_json::Deserializer::from_str(body);
    seek.deserialize(&mut json).and_then(|()| json.end()).map_err(|error| match error.classify() {
        Category::Data => InvalidCallback("a member is given twice".into()),
        Category::Io | Category::Syntax | Category::Eof => InvalidCallback::from("invalid json"),
    })?;
    Ok(found)
}

// === impl Seek ===

impl Seek<'_, '_> {
    /// Records this value for every pointer that ends here.
    fn record(&mut self, value: Found) {
        for (rest, index) in &self.wanted {
            if rest.is_empty()
                && let Some(slot) = self.found.get_mut(*index)
            {
                *slot = value.clone();
            }
        }
    }

    /// The search below the member or element `token`, if a pointer leads there.
    fn below(&mut self, token: &str) -> Option<Seek<'_, '_>> {
        let below = self.wanted.iter().filter_map(|(rest, index)| {
            let (first, rest) = rest.split_first()?;
            (**first == *token).then_some((rest, *index))
        });
        let wanted: Vec<_> = below.collect();
        (!wanted.is_empty()).then_some(Seek { wanted, found: self.found })
    }
}

impl<'de> DeserializeSeed<'de> for Seek<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seek<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        self.record(Found::Other);
        let mut seen: Vec<String> = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            let Some(below) = self.below(&key) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if seen.contains(&key) {
                return Err(A::Error::custom("given twice"));
            }
            map.next_value_seed(below)?;
            seen.push(key);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        self.record(Found::Other);
        let mut place = 0_usize;
        loop {
            let next = match self.below(&place.to_string()) {
                Some(below) => seq.next_element_seed(below)?.is_some(),
                None => seq.next_element::<IgnoredAny>()?.is_some(),
            };
            if !next {
                return Ok(());
            }
            place += 1;
        }
    }

    fn visit_str<E>(mut self, text: &str) -> Result<(), E> {
        self.record(Found::Text(text.to_owned()));
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(mut self, _: bool) -> Result<(), E> {
        self.record(Found::Other);
        Ok(())
    }

    fn visit_i64<E>(mut self, _: i64) -> Result<(), E> {
        self.record(Found::Other);
        Ok(())
    }

    fn visit_u64<E>(mut self, _: u64) -> Result<(), E> {
        self.record(Found::Other);
        Ok(())
    }

    fn visit_f64<E>(mut self, _: f64) -> Result<(), E> {
        self.record(Found::Other);
        Ok(())
    }
}

// === impl Pointer ===

impl FromStr for Pointer {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some(rest) = text.strip_prefix('/') else {
            return Err("not a JSON pointer; write one such as `/reply/text`");
        };
        let token = |token: &str| {
            let mut escapes = token.split('~').skip(1);
            let is_valid = escapes.all(|rest| rest.starts_with(['0', '1']));
            is_valid.then(|| token.replace("~1", "/").replace("~0", "~").into_boxed_str())
        };
        let tokens: Option<_> = rest.split('/').map(token).collect();
        let tokens = tokens.ok_or("`~` must be followed by 0 (for `~`) or 1 (for `/`)")?;
        Ok(Self { text: text.to_owned(), tokens })
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn wire(message: &str, content: &str, chat: Option<&str>) -> PlainWire {
        PlainWire {
            path: "/replies".into(),
            secret: SecretHeader::new(http::HeaderName::from_static("x-secret"), None),
            message: message.parse().unwrap(),
            content: content.parse().unwrap(),
            chat: chat.map(|chat| chat.parse().unwrap()),
        }
    }

    fn read(wire: &PlainWire, body: &str) -> Result<(Option<String>, Option<String>, String), String> {
        let callback = wire.parse(body.as_bytes()).map_err(|invalid| invalid.to_string())?;
        assert_eq!(callback.kind, CallbackKind::Plain);
        Ok((callback.reply_to, callback.chat, callback.content))
    }

    #[test]
    fn reads_what_the_pointers_name_and_skips_the_rest() {
        let wire = wire("/in~1reply~0to", "/data/1/text", Some("/room"));
        let body = json!({
            "skipped": { "text": "no" }, "in/reply~to": "m1", "room": "r", "data": [7, { "text": "hi" }, 8],
        });
        assert_eq!(read(&wire, &body.to_string()), Ok((Some("m1".into()), Some("r".into()), "hi".into())));
        let deep = "[".repeat(1_000) + &"]".repeat(1_000);
        let deep = format!(r#"{{"skipped":{deep},"data":[{deep},{{"text":"hi"}}]}}"#);
        assert_eq!(read(&wire, &deep), Ok((None, None, "hi".into())), "skipped at any depth");
    }

    #[test]
    fn a_callback_without_a_message_is_a_notice() {
        let wire = wire("/id", "/text", None);
        for body in [r#"{"text":"x"}"#, r#"{"text":"x","id":null}"#, r#"{"text":"x","id":""}"#] {
            assert_eq!(read(&wire, body), Ok((None, None, "x".into())), "{body}");
        }
    }

    #[test]
    fn rejects_other_types_missing_text_doubled_members_and_what_is_not_json() {
        let wire = wire("/a/id", "/text", Some("/room"));
        for (body, error) in [
            (r#"{}"#, "a string is required at `/text`"),
            (r#"{"text":null}"#, "a string is required at `/text`"),
            (r#"{"text":{"text":"x"}}"#, "a string is required at `/text`"),
            (r#"["x"]"#, "a string is required at `/text`"),
            (r#"{"text":"x","a":{"id":7}}"#, "a string is required at `/a/id`"),
            (r#"{"text":"x","room":[]}"#, "a string is required at `/room`"),
            (r#"{"text":"x","text":"y"}"#, "a member is given twice"),
            (r#"{"text":"x","a":{},"a":{"id":"m"}}"#, "a member is given twice"),
            ("", "invalid json"),
            (r#"{"text":"x"}{}"#, "invalid json"),
        ] {
            assert_eq!(read(&wire, body), Err(error.into()), "{body}");
        }
        let error = wire.parse(b"{\"text\":\"x\",\"skipped\":\"\xff\"}").unwrap_err();
        assert_eq!(error.to_string(), "invalid json");
    }

    #[test]
    fn a_pointer_is_checked_when_it_is_written() {
        for bad in ["", "text", "a/b", "/a~", "/a~2"] {
            assert!(bad.parse::<Pointer>().is_err(), "{bad}");
        }
        assert_eq!("/a/~01".parse::<Pointer>().unwrap().tokens, ["a".into(), "~1".into()]);
    }

    proptest! {
        #[test]
        fn agrees_with_the_pointers_of_a_parsed_tree(body in any_json(), at in "(/[ab01]){1,3}") {
            let text = body.to_string();
            let found = read(&wire("/none", &at, None), &text).ok().map(|(.., content)| content);
            let expected = body.pointer(&at).and_then(Value::as_str).map(str::to_owned);
            prop_assert_eq!(found, expected);
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i32>().prop_map(Value::from),
            ".{0,5}".prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 20, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[ab01]", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }
}
