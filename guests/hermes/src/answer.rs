//! A model's answer, gathered from one body or from many chunks.

use serde_json::Value;
use talaria_guest::{Content, Failure, FailureKind, FinalState, Outcome, Part, Turn};
use talaria_upstream::{Beside, Ending, at, reads_data};

use crate::calls::Calls;
use crate::fault::Fault;
use crate::reasoning::Reasoning;
use crate::think::{Sorted, Think};

/// What a model gets to say that says nothing.
const NOTHING: &str = "(no response generated)";
/// The media type of calls.
const JSON: &str = "application/json";

/// The answer so far.
#[derive(Default)]
pub(crate) struct Answer {
    text: String,
    think: Think,
    calls: Calls,
    beside: Beside,
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
            // Calls come without content, and some endpoints leave it out when there is none.
            Some(None | Some(Value::Null | Value::String(_))) => Ok(()),
            // One in which something makes sense.
            Some(Some(Value::Array(_) | Value::Object(_)))
                if !(self.text.is_empty() && self.beside.is_empty()) =>
            {
                Ok(())
            }
            _ => Err(Fault::shape()),
        }
    }

    /// Takes a message, or a delta of one, and gives the text in it that is no thought.
    pub(crate) fn take(&mut self, message: &Value, streamed: bool) -> String {
        self.reasoning.take(message);
        self.calls.take(message, streamed);
        let content = self.beside.take(message).unwrap_or_default();
        let sorted = self.think.push(&content);
        self.add(sorted)
    }

    /// Takes what was held back of the content, and gives the text in it.
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

    /// What the upstream says went wrong, inside a good response.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        match self.ending.error() {
            Some(said) => Err(Fault::inside(self.ending.code(), said)),
            None if self.ending.is_failed() => Err(Fault::inside(self.ending.code(), &self.text)),
            None => Ok(()),
        }
    }

    /// The end of the turn. Text, and what came beside it, goes before calls; calls are a text, and data beside it for whoever reads data.
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
