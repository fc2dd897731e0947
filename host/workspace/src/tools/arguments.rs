//! The arguments of a call, whatever the model sent.

use serde_json::{Map, Value};

use super::refusal::Refusal;

const CORRECT: &str = "correct the arguments and call again";

/// The arguments of a call.
#[derive(Debug)]
pub(super) struct Arguments(Map<String, Value>);

// === impl Arguments ===

impl Arguments {
    /// Takes an object; null counts as an empty one.
    pub(super) fn read(value: Value) -> Result<Self, Refusal> {
        match value {
            Value::Object(map) => Ok(Self(map)),
            Value::Null => Ok(Self(Map::new())),
            _ => Err(Refusal::new("the arguments are not an object", CORRECT)),
        }
    }

    /// A text of at most `most` bytes; `None` if it is absent or empty.
    pub(super) fn text(&self, name: &str, most: usize) -> Result<Option<&str>, Refusal> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.len() > most => Err(Refusal::new(
                format!("`{name}` has {} bytes, and at most {most} are allowed", text.len()),
                "shorten it, or put it into a file and name the file",
            )),
            Some(Value::String(text)) => Ok(Some(text.trim()).filter(|text| !text.is_empty())),
            Some(_) => Err(Refusal::new(format!("`{name}` is not a text"), CORRECT)),
        }
    }

    /// A text that must be there.
    pub(super) fn required(&self, name: &str, most: usize) -> Result<&str, Refusal> {
        let missing = || Refusal::new(format!("`{name}` is missing or empty"), CORRECT);
        self.text(name, most)?.ok_or_else(missing)
    }

    /// A whole number; a text of digits counts as one, since models write both.
    pub(super) fn number(&self, name: &str, most: u64) -> Result<Option<u64>, Refusal> {
        let wrong = || Refusal::new(format!("`{name}` is not a whole number from 0 to {most}"), CORRECT);
        let number = match self.0.get(name) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Number(number)) => number.as_u64().or_else(|| whole(number.as_f64()?)),
            Some(Value::String(text)) => text.trim().parse().ok(),
            Some(_) => None,
        };
        number.filter(|number| *number <= most).map(Some).ok_or_else(wrong)
    }

    /// One of these words, in any case.
    pub(super) fn word(&self, name: &str, words: &[&'static str]) -> Result<Option<&'static str>, Refusal> {
        let Some(text) = self.text(name, 100)? else { return Ok(None) };
        let found = words.iter().find(|word| word.eq_ignore_ascii_case(text)).copied();
        let wrong = || Refusal::new(format!("`{name}` must be one of {}", words.join(", ")), CORRECT);
        found.map(Some).ok_or_else(wrong)
    }

    /// A list; absent is empty.
    pub(super) fn list(&self, name: &str, most: usize) -> Result<&[Value], Refusal> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(&[]),
            Some(Value::Array(items)) if items.len() <= most => Ok(items),
            Some(_) => Err(Refusal::new(format!("`{name}` is not a list of at most {most} items"), CORRECT)),
        }
    }
}

/// A number that a model wrote as `20.0`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is a whole number within the range that a double represents exactly"
)]
fn whole(number: f64) -> Option<u64> {
    (number.fract() == 0.0 && (0.0..9e15).contains(&number)).then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_of_the_wrong_type_are_refused_with_their_names() {
        for value in [json!([]), json!("text"), json!(7), json!(true)] {
            assert!(Arguments::read(value).is_err());
        }
        let arguments = Arguments::read(json!({
            "number": 20.0, "digits": " 7 ", "list": ["a"], "text": " a ", "long": "x".repeat(10 << 20), "empty": " ",
        }))
        .unwrap();
        assert_eq!(
            (arguments.number("number", 60), arguments.number("digits", 60)),
            (Ok(Some(20)), Ok(Some(7)))
        );
        assert_eq!((arguments.text("text", 9), arguments.text("none", 9)), (Ok(Some("a")), Ok(None)));
        assert_eq!(arguments.word("text", &["B", "A"]), Ok(Some("A")));
        for refused in [
            arguments.text("list", 9).unwrap_err(),
            arguments.required("empty", 9).unwrap_err(),
            arguments.required("none", 9).unwrap_err(),
            arguments.text("long", 100).unwrap_err(),
            arguments.number("text", 60).unwrap_err(),
            arguments.number("number", 19).unwrap_err(),
            arguments.word("digits", &["A"]).unwrap_err(),
            arguments.list("text", 9).unwrap_err(),
        ] {
            assert!(refused.text().len() < 300 && refused.reason.starts_with('`'), "{refused:?}");
        }
    }
}
