//! The agent's stream: answers that arrive one after the other.

use serde_json::Value;
use talaria_guest::{Request, http};
use talaria_upstream::{is_event_stream, is_success, read};

use crate::answer::{Id, body, result};
use crate::fault::Fault;
use crate::peer::ANSWER_BYTES;

/// What was opened: a stream, or the only answer of an agent that has none.
pub(crate) enum Stream {
    /// Events that arrive.
    Events(http::Exchange, Id),
    /// The one answer, until it is taken.
    One(Option<Value>),
}

impl Stream {
    /// Sends a request that asks for a stream.
    pub(crate) fn open(request: Request, id: Id) -> Result<Self, Fault> {
        let exchange = request.open()?;
        let status = exchange.status();
        if is_success(status) && is_event_stream(&exchange) {
            return Ok(Self::Events(exchange, id));
        }
        let text = read(&exchange, ANSWER_BYTES as usize)?;
        Ok(Self::One(Some(body(status, &exchange.headers(), &text, &id)?)))
    }

    /// Waits until [`Stream::next`] returns at once; `false` if the time passes first.
    pub(crate) fn is_ready(&self, timeout_ms: u32) -> bool {
        match self {
            Self::Events(exchange, _) => exchange.await_event(timeout_ms),
            Self::One(_) => true,
        }
    }

    /// The next answer; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Value>, Fault> {
        match self {
            Self::Events(exchange, id) => loop {
                let Some(event) = exchange.next_event()? else { return Ok(None) };
                // Some servers keep a stream alive with events that have no data.
                if event.data.trim().is_empty() {
                    continue;
                }
                let answer = serde_json::from_str(&event.data)
                    .map_err(|_| Fault::Nonsense("an event of its stream is not JSON".into()))?;
                return result(answer, id).map(Some);
            },
            Self::One(answer) => Ok(answer.take()),
        }
    }
}
