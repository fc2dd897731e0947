//! Reads a chat completion, and trusts none of its fields to be there.

use serde_json::Value;
use talaria_guest::{Failure, FinalState, Outcome, Turn};

use crate::completion::Plain;
use crate::{Beside, Ending, at, hermes_agent};

/// A completion, gathered from one body or from many chunks.
#[derive(Default)]
pub(super) struct Reply {
    /// The text; `None` if the response does not have the shape of a completion.
    pub(super) text: Option<String>,
    /// The parts beside the text.
    pub(super) beside: Beside,
    pub(super) ending: Ending,
}

/// Reads a whole body.
pub(super) fn parse(body: &[u8]) -> Result<Reply, Failure> {
    if let Some(plain) = Plain::of_body(body) {
        let mut reply = Reply { text: plain.text, ..Reply::default() };
        reply.ending.note_plain(plain.finish_reason, plain.usage);
        return Ok(reply);
    }
    let data: Value = serde_json::from_slice(body).map_err(|_| hermes_agent::no_content())?;
    let mut reply = Reply::default();
    reply.ending.note(&data);
    // `content: null` is an empty reply; without `content` there is no reply.
    reply.text = at(&data, "/choices/0/message").and_then(|message| reply.beside.take(message));
    Ok(reply)
}

impl Reply {
    /// The failure that the upstream reported, if it did.
    pub(super) fn error(&self) -> Option<Failure> {
        self.ending.error().map(hermes_agent::error)
    }

    /// What the turn returns.
    pub(super) fn outcome(self, turn: &Turn) -> Result<Outcome, Failure> {
        if self.ending.is_failed() {
            let said = self.ending.error().or(self.text.as_deref());
            return Err(hermes_agent::error(said.unwrap_or_default()));
        }
        let text = match self.text {
            None if self.beside.is_empty() => return Err(hermes_agent::no_content()),
            text => text.unwrap_or_default(),
        };
        let parts = self.beside.with_text(text, turn);
        Ok(Outcome { usage: self.ending.usage(), ..Outcome::new(FinalState::Completed, parts) })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use talaria_guest::Content;
    use talaria_guest::testing::turn;

    use super::*;

    fn outcome(body: &str) -> String {
        let ended = parse(body.as_bytes()).and_then(|reply| reply.outcome(&turn("hello")));
        match ended {
            Ok(outcome) => match outcome.parts.first().map(|part| &part.content) {
                Some(Content::Text(text)) => format!("text {text}"),
                _ => format!("{} parts", outcome.parts.len()),
            },
            Err(failure) => failure.message,
        }
    }

    #[test]
    fn a_body_is_an_answer_a_failure_or_neither() {
        let message = |message| json!({ "choices": [{ "message": message, "finish_reason": "stop" }] });
        for (body, expected) in [
            (message(json!({ "content": "hi" })), "text hi"),
            (message(json!({ "content": null })), "text "),
            (message(json!({ "content": [{ "type": "json", "json": 1 }] })), "1 parts"),
            (message(json!({})), "(hermes-agent returned no content)"),
            (json!({ "choices": [] }), "(hermes-agent returned no content)"),
            (
                json!({ "choices": [{ "message": { "content": "HTTP 401" }, "finish_reason": "error" }] }),
                "[hermes-agent error] HTTP 401",
            ),
            (
                json!({ "choices": [{ "message": { "content": "no" } }], "hermes": { "failed": true, "error": "HTTP 500" } }),
                "[hermes-agent error] HTTP 500",
            ),
        ] {
            assert_eq!(outcome(&body.to_string()), expected, "{body}");
        }
        assert_eq!(outcome("<html>"), "(hermes-agent returned no content)");
    }
}
