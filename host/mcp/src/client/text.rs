//! Text of a server, made safe for a model, a log and a terminal.
//!
//! The text is redacted first: a server may repeat what it was sent, or find a secret of this host elsewhere. Then whatever a
//! reader does not see is written as an escape: control characters, which drive terminals, and the characters that hide or
//! reorder text, which have been used to give orders to models that no person sees.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde_json::{Map, Value};
use talaria_redact::Redactor;

/// The text without secrets of this host and without invisible characters. Line feeds and tabs stay.
pub(crate) fn visible(text: &str) -> String {
    escape(&Redactor::process().values(text)).into_owned()
}

/// [`visible`], for every text in a value.
pub(crate) fn visible_value(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(visible(text)),
        Value::Array(items) => Value::Array(items.iter().map(visible_value).collect()),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (visible(name), visible_value(value)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// The beginning of a text, at most so many bytes, with `…` if it goes on.
pub(crate) fn clip(text: &str, most: usize) -> String {
    match text.get(..text.floor_char_boundary(most)) {
        Some(beginning) if beginning.len() < text.len() => format!("{beginning}…"),
        _ => text.to_owned(),
    }
}

/// A text of one line, for messages.
pub(crate) fn line(text: &str) -> String {
    clip(&visible(text).replace(['\n', '\t'], " "), 200)
}

fn escape(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for char in text.replace("\r\n", "\n").chars() {
        if is_hidden(char) {
            // Writing into a string does not fail.
            let _ = write!(escaped, "{}", char.escape_unicode());
        } else {
            escaped.push(char);
        }
    }
    Cow::Owned(escaped)
}

/// Control characters but line feed and tab, separators of lines, marks of direction, and the invisible alphabet of tags.
pub(crate) fn is_hidden(char: char) -> bool {
    (char.is_control() && !matches!(char, '\n' | '\t'))
        || matches!(char, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_reader_does_not_see_is_written_out() {
        assert_eq!(visible("a\tb\r\nc ü 👩‍💻"), "a\tb\nc ü 👩‍💻");
        assert_eq!(visible("\u{1b}[2J\u{202e}\u{e0041}"), r"\u{1b}[2J\u{202e}\u{e0041}");
        assert_eq!(visible_value(&json!({ "\u{7}": ["\u{0}", 1] })), json!({ r"\u{7}": [r"\u{0}", 1] }));
        assert_eq!(line("a\nb"), "a b");
    }

    #[test]
    fn secrets_of_the_host_are_redacted() {
        Redactor::process().learn(["a-secret-of-the-host"]);
        assert!(!visible("see a-secret-of-the-host here").contains("a-secret-of"));
        assert!(!visible_value(&json!(["a-secret-of-the-host"])).to_string().contains("a-secret-of"));
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!((clip("äöü", 3), clip("äöü", 6)), ("ä…".into(), "äöü".into()));
    }
}
