//! A response whose body is read chunk by chunk.
//!
//! Nothing is read from the connection until the guest asks for it: a guest that does not read stops the sender, and the
//! host holds at most one chunk and the window of the connection. Dropping an exchange ends the call: HTTP/1.1 closes the
//! connection, HTTP/2 resets the stream.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use http_body::Body as _;
use hyper::body::Incoming;
use talaria_redact::{MaskedBody, Values};
use tokio::time::Instant;

use crate::client::Response;
use crate::error::Error;
use crate::sse::{SseEvent, SseEvents};

/// A response in progress: status and headers have arrived, the body is read as bytes *or* as server-sent events. The first
/// read decides which; the other kind then fails with a `Protocol` error. After an error, every further read returns the
/// same error.
#[derive(Debug)]
pub struct Exchange {
    status: u16,
    headers: Vec<(String, String)>,
    deadline: Deadline,
    sse_event: usize,
    authority: Arc<str>,
    body: Body,
    /// The result of [`Exchange::await_event`], until it is taken.
    ahead: Option<Box<Result<Option<SseEvent>, Error>>>,
}

#[derive(Debug)]
enum Body {
    Unread(Frames),
    Bytes {
        frames: Frames,
        rest: Bytes,
    },
    Events(Box<SseEvents>),
    Failed(Error),
    /// Only during a change of state.
    Taken,
}

/// The data frames of a body, up to a number of bytes, with secrets masked.
#[derive(Debug)]
pub(crate) struct Frames {
    body: Incoming,
    most: usize,
    left: usize,
    authority: Arc<str>,
    masked: MaskedBody,
}

/// The time by which a call must be over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    at: Instant,
    limit: Duration,
}

// === impl Exchange ===

impl Exchange {
    pub(crate) fn new(
        status: u16,
        headers: Vec<(String, String)>,
        frames: Frames,
        deadline: Deadline,
        sse_event: usize,
    ) -> Self {
        let authority = frames.authority.clone();
        Self { status, headers, deadline, sse_event, authority, body: Body::Unread(frames), ahead: None }
    }

    /// The status, whatever it is.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The headers, as in [`Response::headers`].
    pub fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    /// Reads the next bytes, at most `max` and at least one; `None` at the end. Waits until some have arrived, but not beyond
    /// the call's deadline. Dropping the future loses nothing. A `max` of 0 is rejected, because it could never make
    /// progress.
    pub async fn read(&mut self, max: usize) -> Result<Option<Bytes>, Error> {
        if max == 0 {
            return Err(Error::invalid("a read of 0 bytes never ends; ask for at least 1"));
        }
        if matches!(self.body, Body::Unread(_)) {
            self.body = match std::mem::replace(&mut self.body, Body::Taken) {
                Body::Unread(frames) => Body::Bytes { frames, rest: Bytes::new() },
                other => other,
            };
        }
        let (frames, rest) = match &mut self.body {
            Body::Bytes { frames, rest } => (frames, rest),
            Body::Failed(error) => return Err(error.clone()),
            _ => {
                return Err(Error::protocol(
                    "this response is being read as events; read it as bytes or as events",
                ));
            }
        };
        if rest.is_empty() {
            match self.deadline.bound(frames.next(), &self.authority).await.and_then(Option::transpose) {
                Ok(Some(chunk)) => *rest = chunk,
                Ok(None) => return Ok(None),
                Err(error) => return Err(self.fail(error)),
            }
        }
        Ok(Some(rest.split_to(max.min(rest.len()))))
    }

    /// Reads the next server-sent event; `None` at the end. Comments, keep-alives and blocks without data are skipped, and an
    /// incomplete event at the end is dropped, as the standard says. Waits no longer than the call's deadline. Dropping the
    /// future loses nothing.
    pub async fn next_event(&mut self) -> Result<Option<SseEvent>, Error> {
        if let Some(event) = self.ahead.take() {
            return *event;
        }
        if matches!(self.body, Body::Unread(_)) {
            self.body = match std::mem::replace(&mut self.body, Body::Taken) {
                Body::Unread(frames) => Body::Events(Box::new(SseEvents::new(frames, self.sse_event))),
                other => other,
            };
        }
        let events = match &mut self.body {
            Body::Events(events) => events,
            Body::Failed(error) => return Err(error.clone()),
            _ => {
                return Err(Error::protocol(
                    "this response is being read as bytes; read it as bytes or as events",
                ));
            }
        };
        match self.deadline.bound(events.next(), &self.authority).await.and_then(|event| event) {
            Ok(event) => Ok(event),
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Waits up to `limit` until [`Exchange::next_event`] would return at once: with an event, the end, or an error. The result
    /// is kept for that call.
    pub async fn await_event(&mut self, limit: Duration) -> bool {
        if self.ahead.is_none() {
            self.ahead = tokio::time::timeout(limit, self.next_event()).await.ok().map(Box::new);
        }
        self.ahead.is_some()
    }

    /// Reads the whole body.
    pub(crate) async fn collect(self) -> Result<Response, Error> {
        let Body::Unread(mut frames) = self.body else {
            return Err(Error::protocol("this response was read already"));
        };
        let deadline = self.deadline;
        // A single frame, the usual case, needs no copy.
        let mut body = Bytes::new();
        let mut joined = BytesMut::new();
        while let Some(chunk) = deadline.bound(frames.next(), &self.authority).await?.transpose()? {
            if body.is_empty() {
                body = chunk;
                continue;
            }
            if joined.is_empty() {
                let announced =
                    usize::try_from(frames.body.size_hint().lower()).unwrap_or(0).min(frames.left);
                joined.reserve(body.len() + chunk.len() + announced);
                joined.extend_from_slice(&body);
            }
            joined.extend_from_slice(&chunk);
        }
        let body = if joined.is_empty() { body } else { joined.freeze() };
        Ok(Response { status: self.status, headers: self.headers, body })
    }

    /// Ends the call, and keeps the error for further reads.
    fn fail(&mut self, error: Error) -> Error {
        self.body = Body::Failed(error.clone());
        error
    }
}

// === impl Frames ===

impl Frames {
    /// Rejects a body that announces more than `most` bytes.
    pub(crate) fn new(
        body: Incoming,
        most: usize,
        authority: Arc<str>,
        secrets: Values,
    ) -> Result<Self, Error> {
        let frames = Self { body, most, left: most, authority, masked: MaskedBody::new(secrets) };
        let announced = frames.body.size_hint().lower();
        if usize::try_from(announced).map_or(true, |announced| announced > most) {
            return Err(frames.too_large());
        }
        Ok(frames)
    }

    fn too_large(&self) -> Error {
        Error::too_large(format!("the response is longer than {} bytes ({})", self.most, self.authority))
    }
}

impl Stream for Frames {
    type Item = Result<Bytes, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let frame = match std::task::ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                None => {
                    let rest = self.masked.finish();
                    return Poll::Ready((!rest.is_empty()).then_some(Ok(rest)));
                }
                Some(Err(error)) => {
                    return Poll::Ready(Some(Err(Error::from_client(&error, &self.authority))));
                }
                Some(Ok(frame)) => frame,
            };
            // Trailers are ignored.
            let Ok(data) = frame.into_data() else { continue };
            let Some(left) = self.left.checked_sub(data.len()) else {
                return Poll::Ready(Some(Err(self.too_large())));
            };
            self.left = left;
            let data = self.masked.push(data);
            if !data.is_empty() {
                return Poll::Ready(Some(Ok(data)));
            }
        }
    }
}

// === impl Deadline ===

impl Deadline {
    pub(crate) fn after(limit: Duration) -> Self {
        let now = Instant::now();
        // A limit beyond the range of the clock means no limit.
        let at = now.checked_add(limit).unwrap_or_else(|| now + Duration::from_secs(365 * 24 * 3600));
        Self { at, limit }
    }

    pub(crate) async fn bound<F: Future>(&self, future: F, authority: &str) -> Result<F::Output, Error> {
        tokio::time::timeout_at(self.at, future)
            .await
            .map_err(|_elapsed| Error::timed_out(self.limit, authority))
    }
}
