//! A chat completion, read with suspicion.

use serde_json::Value;
use talaria_guest::{Failure, FinalState, Outcome, Turn};

use crate::{Beside, Ending, at, hermes_agent};

/// What of a completion matters, gathered from one body or from many chunks.
#[derive(Default)]
pub(super) struct Reply {
    /// The text; none where the shape is not that of a completion.
    pub(super) text: Option<String>,
    /// What came with it.
    pub(super) beside: Beside,
    pub(super) ending: Ending,
}

/// Reads a whole body.
pub(super) fn parse(body: &[u8]) -> Result<Reply, Failure> {
    let data: Value = serde_json::from_slice(body).map_err(|_| hermes_agent::no_content())?;
    let mut reply = Reply::default();
    reply.ending.note(&data);
    // `content: null` is an empty reply; no `content` at all is no reply.
    reply.text = at(&data, "/choices/0/message").and_then(|message| reply.beside.take(message));
    Ok(reply)
}

impl Reply {
    /// What the upstream said went wrong, if it said so.
    pub(super) fn error(&self) -> Option<Failure> {
        self.ending.error().map(hermes_agent::error)
    }

    /// The end of the turn.
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
