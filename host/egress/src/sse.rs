//! Server-sent events, parsed by the host with a bound on each.
//!
//! The parser buffers an event until its blank line, without a limit of its own. So the bytes are counted before the parser
//! gets them: an event, or an endless line, that exceeds the bound ends the call, and no more than the bound is ever buffered.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use memchr::memchr2;
use sse_stream::SseByteStream;

use crate::error::Error;
use crate::exchange::Frames;

/// One server-sent event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SseEvent {
    /// The event's name; `message` if it has none.
    pub event: String,
    /// The data lines, joined with line feeds.
    pub data: String,
    /// The event's own id, not inherited from an earlier one.
    pub id: Option<String>,
}

/// The events of a body.
pub(crate) struct SseEvents<S: Stream<Item = Result<Bytes, Error>> + Unpin = Frames> {
    parser: SseByteStream<Bounded<S>>,
}

/// Passes bytes on until an event in them is longer than `most`.
struct Bounded<S> {
    chunks: S,
    most: usize,
    measure: Measure,
    failed: bool,
}

/// The position in the event stream: bytes of the current event and of its current line.
#[derive(Debug, Default)]
struct Measure {
    /// Bytes of the event's complete lines; comments do not count, because the parser drops them.
    event: usize,
    line: usize,
    comment: bool,
    /// The last byte was a carriage return: a line feed now belongs to it.
    after_cr: bool,
}

// === impl SseEvents ===

impl<S: Stream<Item = Result<Bytes, Error>> + Unpin> SseEvents<S> {
    pub(crate) fn new(chunks: S, most: usize) -> Self {
        let bounded = Bounded { chunks, most, measure: Measure::default(), failed: false };
        Self { parser: SseByteStream::new(bounded) }
    }

    pub(crate) async fn next(&mut self) -> Result<Option<SseEvent>, Error> {
        while let Some(block) = self.parser.next().await {
            let block = block.map_err(from_parser)?;
            let Some(data) = block.data else { continue };
            let event = block.event.filter(|name| !name.is_empty()).unwrap_or_else(|| "message".to_owned());
            return Ok(Some(SseEvent { event, data, id: block.id }));
        }
        Ok(None)
    }
}

impl fmt::Debug for SseEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SseEvents")
    }
}

fn from_parser(error: sse_stream::Error) -> Error {
    match error {
        sse_stream::Error::Body(error) => match error.downcast::<Error>() {
            Ok(error) => *error,
            Err(_) => Error::protocol("the event stream broke off"),
        },
        _ => Error::protocol("the event stream is not valid UTF-8"),
    }
}

// === impl Bounded ===

impl<S: Stream<Item = Result<Bytes, Error>> + Unpin> Stream for Bounded<S> {
    type Item = Result<Bytes, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let too_large = || Error::too_large(format!("an event is longer than {} bytes", this.most));
        if this.failed {
            return Poll::Ready(Some(Err(too_large())));
        }
        let Some(chunk) = ready!(this.chunks.poll_next_unpin(cx)).transpose()? else {
            return Poll::Ready(None);
        };
        match this.measure.admit(&chunk, this.most) {
            Ok(()) => Poll::Ready(Some(Ok(chunk))),
            Err(0) => {
                this.failed = true;
                Poll::Ready(Some(Err(too_large())))
            }
            // The complete events before the long one are passed on first.
            Err(good) => {
                this.failed = true;
                Poll::Ready(Some(Ok(chunk.slice(..good))))
            }
        }
    }
}

// === impl Measure ===

impl Measure {
    /// Counts the bytes; fails with the end of the last complete event if one exceeds `most`.
    fn admit(&mut self, bytes: &[u8], most: usize) -> Result<(), usize> {
        let mut complete = 0;
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let end = memchr2(b'\n', b'\r', rest);
            let text = end.unwrap_or(rest.len());
            if text > 0 {
                if self.line == 0 {
                    self.comment = rest.starts_with(b":");
                }
                self.line += text;
                self.after_cr = false;
            }
            if self.event + self.line > most {
                return Err(complete);
            }
            at += text;
            let Some(end) = end else { break };
            at += 1;
            let is_cr = rest.get(end) == Some(&b'\r');
            let belongs_to_cr = std::mem::replace(&mut self.after_cr, is_cr) && !is_cr;
            if belongs_to_cr {
                continue;
            }
            if self.line == 0 {
                self.event = 0;
                complete = at;
            } else if !self.comment {
                self.event += self.line + 1;
                if self.event > most {
                    return Err(complete);
                }
            }
            self.line = 0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
