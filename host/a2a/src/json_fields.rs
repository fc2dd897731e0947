//! Decodes JSON objects from untrusted clients: lenient about form, strict about content, and every error has a path.
//!
//! Lenient as ProtoJSON asks: camelCase or snake_case names, `null` for absent, integers as strings, base64 in either
//! alphabet with or without padding, unknown fields ignored. Strict otherwise: a field of the wrong type is rejected, never
//! dropped.
//!
//! The decoder walks an owned [`Value`] and moves strings and objects out of it, so only the parser copies a request. A derived
//! `Deserialize` would not do: its errors have no paths, and it knows one spelling per field.

use std::fmt;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value};
use talaria_turns::{Id, Metadata, Timestamp};

use crate::rejection::Violation;
use crate::rfc3339;

/// A position in the request: a linked list on the stack, formatted only for an error.
#[derive(Clone, Copy)]
pub(crate) enum Path<'p> {
    /// The parameters themselves.
    Root,
    /// A member of an object.
    Field(&'p Path<'p>, &'static str),
    /// An element of a list.
    Index(&'p Path<'p>, usize),
}

/// The members of an object that have not been decoded yet.
pub(crate) struct Fields<'p> {
    members: Map<String, Value>,
    /// Whether any name has an underscore; only then is the snake_case spelling tried.
    snake: bool,
    /// Whether the members come from a query, where every value is text.
    texts: bool,
    path: Path<'p>,
}

/// Padding is optional, and the trailing bits are ignored.
const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_allow_trailing_bits(true)
    .with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

// === impl Path ===

impl Path<'_> {
    /// Returns an error about this position; `description` continues the sentence that the path begins.
    pub(crate) fn violation(&self, description: impl Into<String>) -> Violation {
        Violation { field: self.to_string(), description: description.into() }
    }

    /// Returns an error about the type of the value at this position.
    pub(crate) fn wrong(&self, wanted: &str, found: &Value) -> Violation {
        self.violation(format!("must be {wanted}, not {}", kind(found)))
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("params"),
            Self::Field(Path::Root, name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

// === impl Fields ===

impl<'p> Fields<'p> {
    /// Takes the members of `value`, which must be an object.
    pub(crate) fn of(value: Value, path: Path<'p>) -> Result<Self, Violation> {
        match value {
            Value::Object(members) => {
                let snake = members.keys().any(|name| name.contains('_'));
                Ok(Self { members, snake, texts: false, path })
            }
            other => Err(path.wrong("an object", &other)),
        }
    }

    /// Takes the parameters of a query.
    pub(crate) fn of_query(pairs: impl Iterator<Item = (String, String)>) -> Self {
        let members: Map<_, _> = pairs.map(|(name, value)| (name, Value::String(value))).collect();
        let snake = members.keys().any(|name| name.contains('_'));
        Self { members, snake, texts: true, path: Path::Root }
    }

    /// Adds a value from the path. If the object has the member too, the two must be equal.
    pub(crate) fn bind(&mut self, name: &'static str, value: &str) -> Result<(), Violation> {
        match self.string(name)? {
            Some(said) if said != value => {
                Err(self.at(name).violation("must be what the path says, or be left out"))
            }
            _ => {
                self.members.insert(name.into(), value.into());
                Ok(())
            }
        }
    }

    /// The position of a member.
    pub(crate) fn at<'s>(&'s self, name: &'static str) -> Path<'s> {
        Path::Field(&self.path, name)
    }

    /// The position of the object.
    pub(crate) fn path(&self) -> Path<'p> {
        self.path
    }

    /// Whether the member is present, even as `null`.
    pub(crate) fn is_written(&self, name: &'static str) -> bool {
        self.members.contains_key(name)
    }

    /// Takes a member of any type; `null` counts as absent.
    pub(crate) fn any(&mut self, name: &'static str) -> Option<Value> {
        let mut value = self.members.swap_remove(name);
        if value.is_none() && self.snake && name.contains(|c: char| c.is_ascii_uppercase()) {
            value = self.members.swap_remove(&snake_case(name));
        }
        value.filter(|value| !value.is_null())
    }

    /// Takes a string, which may be empty.
    pub(crate) fn text(&mut self, name: &'static str) -> Result<Option<String>, Violation> {
        self.any(name).map(|value| string(value, self.at(name))).transpose()
    }

    /// Takes a string; empty counts as absent, as in ProtoJSON for fields without presence.
    pub(crate) fn string(&mut self, name: &'static str) -> Result<Option<String>, Violation> {
        Ok(self.text(name)?.filter(|text| !text.is_empty()))
    }

    /// Takes an id; empty counts as absent.
    pub(crate) fn id<K>(&mut self, name: &'static str) -> Result<Option<Id<K>>, Violation> {
        let Some(text) = self.string(name)? else { return Ok(None) };
        text.parse()
            .map(Some)
            .map_err(|error: talaria_turns::InvalidId| self.at(name).violation(error.to_string()))
    }

    /// Takes an id that is required.
    pub(crate) fn required_id<K>(&mut self, name: &'static str) -> Result<Id<K>, Violation> {
        self.id(name)?.ok_or_else(|| self.at(name).violation("is required and must not be empty"))
    }

    /// Takes bytes in base64.
    pub(crate) fn bytes(&mut self, name: &'static str) -> Result<Option<Vec<u8>>, Violation> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let engine = if text.contains(['-', '_']) { &URL_SAFE } else { &STANDARD };
        engine
            .decode(text)
            .map(Some)
            .map_err(|error| self.at(name).violation(format!("must be base64: {error}")))
    }

    /// Takes a boolean.
    pub(crate) fn boolean(&mut self, name: &'static str) -> Result<Option<bool>, Violation> {
        match self.any(name) {
            None => Ok(None),
            Some(Value::Bool(yes)) => Ok(Some(yes)),
            Some(Value::String(text)) if self.texts && matches!(&*text, "true" | "1") => Ok(Some(true)),
            Some(Value::String(text)) if self.texts && matches!(&*text, "false" | "0" | "") => {
                Ok(Some(false))
            }
            Some(other) => Err(self.at(name).wrong("true or false", &other)),
        }
    }

    /// Takes an integer from 0 to 2147483647, as a number or as a string.
    pub(crate) fn count(&mut self, name: &'static str) -> Result<Option<usize>, Violation> {
        let Some(value) = self.any(name).filter(|value| !(self.texts && value == "")) else {
            return Ok(None);
        };
        let number = match &value {
            // An integer may be written with a decimal point or an exponent.
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.parse::<i64>().ok().map(|number| number as f64),
            _ => None,
        };
        let Some(number) = number.filter(|number| number.fract() == 0.0) else {
            return Err(self.at(name).wrong("an integer", &value));
        };
        if !(0.0..=f64::from(i32::MAX)).contains(&number) {
            return Err(self.at(name).violation("must be from 0 to 2147483647"));
        }
        Ok(Some(number as usize))
    }

    /// Takes an RFC 3339 timestamp.
    pub(crate) fn timestamp(&mut self, name: &'static str) -> Result<Option<Timestamp>, Violation> {
        let Some(text) = self.string(name)? else { return Ok(None) };
        let wanted = "must be a moment of RFC 3339, like 2026-11-16T01:52:58.686Z";
        rfc3339::parse(&text).map(Some).ok_or_else(|| self.at(name).violation(wanted))
    }

    /// Takes an object without looking into it.
    pub(crate) fn metadata(&mut self, name: &'static str) -> Result<Option<Metadata>, Violation> {
        match self.any(name) {
            None => Ok(None),
            Some(Value::Object(members)) => Ok(Some(members)),
            Some(other) => Err(self.at(name).wrong("an object", &other)),
        }
    }

    /// Takes an object, decoded by `read`.
    pub(crate) fn object<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(Fields<'_>) -> Result<T, Violation>,
    ) -> Result<Option<T>, Violation> {
        self.any(name).map(|value| read(Fields::of(value, self.at(name))?)).transpose()
    }

    /// Takes a list whose elements are decoded by `read`; absent counts as empty.
    pub(crate) fn list<T>(
        &mut self,
        name: &'static str,
        mut read: impl FnMut(Value, Path<'_>) -> Result<T, Violation>,
    ) -> Result<Vec<T>, Violation> {
        match self.any(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(elements)) => {
                let path = self.at(name);
                let read = |(index, element)| read(element, Path::Index(&path, index));
                elements.into_iter().enumerate().map(read).collect()
            }
            Some(other) => Err(self.at(name).wrong("a list", &other)),
        }
    }

    /// Takes a list of strings; absent counts as empty.
    pub(crate) fn strings(&mut self, name: &'static str) -> Result<Vec<String>, Violation> {
        self.list(name, string)
    }
}

fn string(value: Value, path: Path<'_>) -> Result<String, Violation> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(path.wrong("a string", &other)),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The name of a field as protos spell it.
pub(crate) fn snake_case(camel: &str) -> String {
    let mut snake = String::with_capacity(camel.len() + 4);
    for c in camel.chars() {
        if c.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(value: Value) -> Fields<'static> {
        Fields::of(value, Path::Root).unwrap()
    }

    #[test]
    fn accepts_both_spellings_and_treats_null_as_absent() {
        let mut read = fields(json!({ "context_id": "c", "taskId": "t", "messageId": null, "x_y": 1 }));
        assert_eq!(read.string("contextId"), Ok(Some("c".into())));
        assert_eq!(read.string("taskId"), Ok(Some("t".into())));
        assert_eq!(read.string("messageId"), Ok(None));
    }

    #[test]
    fn counts_may_be_strings_but_not_negative_or_fractional() {
        for good in [json!(10), json!("10"), json!(10.0), json!(1e1)] {
            assert_eq!(fields(json!({ "n": good })).count("n"), Ok(Some(10)), "{good}");
        }
        for bad in [json!(-1), json!("-1"), json!(1.5), json!("ten"), json!(true), json!(2_147_483_648_u64)] {
            let violation = fields(json!({ "n": bad })).count("n").unwrap_err();
            assert_eq!(violation.field, "n", "{bad}");
        }
    }

    #[test]
    fn accepts_base64_in_either_alphabet_with_or_without_padding() {
        for good in ["+/8=", "-_8=", "+/8", "-_8"] {
            assert_eq!(fields(json!({ "raw": good })).bytes("raw"), Ok(Some(vec![0xfb, 0xff])), "{good}");
        }
        assert_eq!(fields(json!({ "raw": "" })).bytes("raw"), Ok(Some(Vec::new())));
        for bad in ["+_8=", "a", "hello world", "====", "ü"] {
            assert_eq!(fields(json!({ "raw": bad })).bytes("raw").unwrap_err().field, "raw", "{bad}");
        }
    }

    #[test]
    fn an_error_names_the_position_and_the_type_found() {
        let violation = fields(json!({ "parts": [{}, { "tags": ["a", 1] }] }))
            .list("parts", |part, path| Fields::of(part, path)?.strings("tags"))
            .unwrap_err();
        assert_eq!(violation.field, "parts[1].tags[1]");
        assert_eq!(violation.description, "must be a string, not a number");
        let violation = Fields::of(json!([]), Path::Root).err().unwrap();
        assert_eq!(violation.field, "params");
    }
}
