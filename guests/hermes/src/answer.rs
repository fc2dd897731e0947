//! A model's answer, gathered from one body or from many chunks.

use serde_json::Value;
use talaria_guest::{Content, Failure, FailureKind, FinalState, Outcome, Part, Turn, Usage};
use talaria_upstream::{Beside, Ending, at, reads_data};

use crate::calls::Calls;
use crate::fault::Fault;
use crate::reasoning::Reasoning;
use crate::think::{Sorted, Think};
use crate::tool_loop::Said;

/// The answer of a model that says nothing.
const NOTHING: &str = "(no response generated)";
/// What stands between the texts of two answers of one turn.
pub(crate) const GAP: &str = "\n\n";
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

/// What a turn said before its last answer, while it called tools.
#[derive(Default)]
pub(crate) struct Before {
    text: String,
    parts: Vec<Part>,
    usage: Option<Usage>,
}

impl Before {
    /// Whether no text came before.
    pub(crate) fn is_silent(&self) -> bool {
        self.text.is_empty()
    }

    /// Adds an answer that another one follows.
    pub(crate) fn add(&mut self, answer: Answer, turn: &Turn) {
        self.text = self.joined(answer.text.trim());
        self.usage = self.used(answer.ending.usage());
        if !answer.beside.is_empty() {
            self.parts.extend(answer.beside.with_text(String::new(), turn));
        }
    }

    /// The text so far with another one, as a stream has passed them on.
    fn joined(&self, text: &str) -> String {
        let gap = if self.text.is_empty() || text.is_empty() { "" } else { GAP };
        format!("{}{gap}{text}", self.text)
    }

    /// The usage so far with that of another answer.
    fn used(&self, usage: Option<Usage>) -> Option<Usage> {
        match (self.usage, usage) {
            (Some(before), Some(now)) => Some(Usage {
                input_tokens: before.input_tokens.saturating_add(now.input_tokens),
                output_tokens: before.output_tokens.saturating_add(now.output_tokens),
            }),
            (before, now) => before.or(now),
        }
    }
}

impl Answer {
    /// What a loop of tools goes on with.
    pub(crate) fn said(&self) -> Said<'_> {
        Said { text: self.text.trim(), calls: self.calls.list() }
    }

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

    /// What the turn returns, with what it said before this answer. Text and the parts beside it count before calls.
    /// Calls are a text, and data as well if the caller accepts data.
    pub(crate) fn outcome(self, turn: &Turn, before: Before) -> Result<Outcome, Failure> {
        let usage = before.used(self.ending.usage());
        let said = self.text.trim();
        let is_mute = said.is_empty() && self.beside.is_empty();
        let parts = if !is_mute || (self.calls.is_empty() && !(before.is_silent() && before.parts.is_empty()))
        {
            let parts = self.beside.with_text(before.joined(said), turn);
            parts.into_iter().chain(before.parts).collect()
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
        Ok(answer.outcome(&turn("hello"), Before::default()).map_err(|_| "failure")?.parts)
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
    fn what_was_said_before_a_call_stays_in_the_answer() {
        let answered = |message: Value| {
            let usage = json!({ "prompt_tokens": 3, "completion_tokens": 2 });
            let body =
                json!({ "choices": [{ "message": message, "finish_reason": "stop" }], "usage": usage });
            let mut answer = Answer::default();
            answer.parse(body.to_string().as_bytes()).map_err(|_| "fault").unwrap();
            answer
        };
        let turn = turn("hello");
        let mut before = Before::default();
        before.add(answered(json!({ "content": "Let me look. " })), &turn);
        before.add(answered(json!({ "content": null })), &turn);
        let outcome = answered(json!({ "content": "Found." })).outcome(&turn, before).unwrap();
        assert_eq!(texts(&outcome.parts), ["Let me look.\n\nFound."]);
        let usage = outcome.usage.unwrap();
        assert_eq!((usage.input_tokens, usage.output_tokens), (9, 6));
        let mut before = Before::default();
        before.add(answered(json!({ "content": "Done." })), &turn);
        let outcome = answered(json!({ "content": "" })).outcome(&turn, before).unwrap();
        assert_eq!(texts(&outcome.parts), ["Done."], "an empty last answer takes nothing away");
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
