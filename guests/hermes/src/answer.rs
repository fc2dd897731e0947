//! A model's answer, gathered from one body or from many chunks.

use serde_json::Value;
use talaria_guest::{Content, Failure, FailureKind, FinalState, Outcome, Part, Turn};
use talaria_upstream::{Beside, Ending, at, reads_data};

use crate::calls::Calls;
use crate::fault::Fault;
use crate::reasoning::Reasoning;
use crate::think::{Sorted, Think};

/// The answer of a model that says nothing.
const NOTHING: &str = "(no response generated)";
/// The media type of tool calls.
const JSON: &str = "application/json";

/// The answer so far.
#[derive(Default)]
pub(crate) struct Answer {
    text: String,
    think: Think,
    calls: Calls,
    beside: Beside,
    /// Whether a caller has read a part of it.
    pub(crate) passed_on: bool,
    pub(crate) reasoning: Reasoning,
    pub(crate) ending: Ending,
}

impl Answer {
    /// Takes a whole body.
    pub(crate) fn parse(&mut self, body: &[u8]) -> Result<(), Fault> {
        let data: Value = serde_json::from_slice(body).map_err(|_| Fault::shape())?;
        self.ending.note(&data);
        let message = at(&data, "/choices/0/message").filter(|message| message.is_object());
        if let Some(message) = message {
            self.take(message, false);
        }
        self.finish();
        self.check()?;
        match message.map(|message| message.get("content")) {
            // Calls come without content, and some endpoints leave empty content out.
            Some(None | Some(Value::Null | Value::String(_))) => Ok(()),
            // Content with at least one usable part.
            Some(Some(Value::Array(_) | Value::Object(_)))
                if !(self.text.is_empty() && self.beside.is_empty()) =>
            {
                Ok(())
            }
            _ => Err(Fault::shape()),
        }
    }

    /// Takes a message, or a delta of one, and returns its text without thoughts.
    pub(crate) fn take(&mut self, message: &Value, streamed: bool) -> String {
        self.reasoning.take(message);
        self.calls.take(message, streamed);
        let content = self.beside.take(message).unwrap_or_default();
        let sorted = self.think.push(&content);
        self.add(sorted)
    }

    /// Takes the content that was held back, and returns the text in it.
    pub(crate) fn finish(&mut self) -> String {
        let sorted = self.think.finish();
        self.add(sorted)
    }

    fn add(&mut self, Sorted { text, thought, disowns }: Sorted) -> String {
        if disowns {
            self.reasoning.push(&core::mem::take(&mut self.text));
        }
        self.reasoning.push(&thought);
        self.text.push_str(&text);
        text
    }

    /// Fails if the upstream reports an error inside a 2xx response.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        match self.ending.error() {
            Some(said) => Err(Fault::inside(self.ending.code(), said)),
            None if self.ending.is_failed() => Err(Fault::inside(self.ending.code(), &self.text)),
            None => Ok(()),
        }
    }

    /// What the turn returns. Text and the parts beside it count before calls. Calls are a text, and data as well if
    /// the caller accepts data.
    pub(crate) fn outcome(self, turn: &Turn) -> Result<Outcome, Failure> {
        let usage = self.ending.usage();
        let said = self.text.trim();
        let parts = if !(said.is_empty() && self.beside.is_empty()) {
            self.beside.with_text(said.to_owned(), turn)
        } else if self.calls.is_empty() {
            vec![Part::text(NOTHING)]
        } else {
            let calls = self.calls.json();
            let calls = calls.map_err(|error| Failure::new(FailureKind::Internal, error.to_string()))?;
            let data = reads_data(turn)
                .then(|| Part { media_type: Some(JSON.into()), ..Part::new(Content::Data(calls.clone())) });
            [Part::text(calls)].into_iter().chain(data).collect()
        };
        Ok(Outcome { usage, ..Outcome::new(FinalState::Completed, parts) })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use talaria_guest::testing::turn;

    use super::*;

    fn parsed(message: Value) -> Result<Vec<Part>, &'static str> {
        let body = json!({ "choices": [{ "message": message, "finish_reason": "stop" }] }).to_string();
        let mut answer = Answer::default();
        answer.parse(body.as_bytes()).map_err(|_| "fault")?;
        Ok(answer.outcome(&turn("hello")).map_err(|_| "failure")?.parts)
    }

    fn texts(parts: &[Part]) -> Vec<&str> {
        parts
            .iter()
            .filter_map(|part| match &part.content {
                Content::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn an_answer_is_text_before_calls_before_nothing() {
        let calls = json!([{ "id": "a", "function": { "name": "ls", "arguments": "{}" } }]);
        let listed = r#"[{"id":"a","type":"function","function":{"name":"ls","arguments":"{}"}}]"#;
        for (message, expected) in [
            (json!({ "content": " hi\n" }), "hi"),
            (json!({ "content": "<think>hm</think>hi" }), "hi"),
            (json!({ "content": "hm</think>hi" }), "hi"),
            (json!({ "content": "hi", "tool_calls": calls }), "hi"),
            (json!({ "content": null, "tool_calls": calls }), listed),
            (json!({ "tool_calls": calls }), listed),
            (json!({ "content": "" }), NOTHING),
            (json!({ "content": "<think>hm" }), NOTHING),
        ] {
            let parts = parsed(message.clone()).unwrap();
            assert_eq!(texts(&parts), [expected], "{message}");
        }
    }

    #[test]
    fn other_shapes_are_faults() {
        for message in
            [json!({ "content": 7 }), json!({ "content": [{ "type": "unknown" }] }), json!("hi"), json!(null)]
        {
            assert_eq!(parsed(message.clone()).err(), Some("fault"), "{message}");
        }
        let mut answer = Answer::default();
        assert!(answer.parse(b"<html>").is_err());
        let mut answer = Answer::default();
        assert!(
            answer.parse(br#"{"error":{"message":"no"},"choices":[{"message":{"content":"hi"}}]}"#).is_err()
        );
    }
}
