//! Server-sent events: one frame per update, with its sequence number as `id:` and one line of JSON as `data:`.
//!
//! ```text
//! id: 7
//! data: {"statusUpdate":{…}}
//!
//! ```
//! `Last-Event-ID` resumes exactly after that number. After [`Streaming::keep_alive`] of silence the stream sends a comment, so
//! that no proxy takes it for dead. An error in the middle becomes the last event, in the form of the binding and without a
//! number.
//!
//! On shutdown a stream sends what is already in the log. If it is not over then, it closes with the number to resume from
//! and the time to wait before that:
//!
//! ```text
//! : closing
//! id: 7
//! retry: 1000
//! ```
//! Neither this block nor a keep-alive comment ends with an empty line. By the standard an empty line without data before it
//! means nothing, but httpx-sse, which the Python SDK of 0.3 uses, makes it an event without data once it has seen an `id:`.
//! The SDK fails on such an event: 0.3.26 when it resubscribes, 0.3.10 in every stream.
//!
//! No task runs beside the connection: hyper asks for a frame when the socket has room, and the frame is encoded then. A client
//! that does not read costs a cursor and one frame, both charged to the host's memory; a frame that does not fit ends the
//! stream, which can be resumed. If the client disconnects, the body is dropped, and the reader with it.

use std::fmt::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use http_body_util::Full;
use serde::Serialize;
use serde_json::Value;
use talaria_budget::{Budget, Charge};
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::dialect::{Dialect, InDialect};
use crate::memory;
use crate::rejection::{ErrorKind, Rejection};
use crate::respond::Body;
use crate::update_stream::{StreamItem, Update, UpdateStream};

/// What the streams of a server share.
#[derive(Debug, Clone)]
pub(crate) struct Streaming {
    /// The longest silence.
    pub(crate) keep_alive: Duration,
    /// Cancelled when the server shuts down.
    pub(crate) closing: CancellationToken,
    /// The number of open streams.
    pub(crate) open: Arc<AtomicUsize>,
    /// The memory for requests and responses.
    pub(crate) budget: Budget,
}

/// What surrounds an update.
#[derive(Debug, Clone)]
pub(crate) enum Envelope {
    /// Nothing.
    Rest,
    /// A response to the call with this id.
    JsonRpc(Value),
}

/// An open stream.
struct Frames {
    updates: UpdateStream,
    dialect: Dialect,
    envelope: Envelope,
    keep_alive: Duration,
    // Created once per stream, not per frame: each one takes an entry in a list that all streams share.
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Fires when the stream may have been silent for long enough.
    silence: Pin<Box<Sleep>>,
    /// When the last frame was encoded.
    last_frame: Instant,
    /// The number of the last event, if there was one.
    last: Option<u64>,
    /// Whether the last frame has been returned.
    over: bool,
    budget: Budget,
    _counted: Counted,
    _charge: Charge,
}

/// Counts a stream while it is open.
struct Counted(Arc<AtomicUsize>);

#[derive(Serialize)]
struct Success<'a> {
    jsonrpc: &'static str,
    id: &'a Value,
    result: InDialect<'a, StreamItem>,
}

/// Asks nginx, and the proxies that imitate it, not to buffer the stream.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
/// Enough bytes for most frames: a chunk of an answer and its envelope.
const FRAME: usize = 512;
const KEEP_ALIVE: Bytes = Bytes::from_static(b": keep-alive\n");
/// Milliseconds before a client reconnects. Another server takes it at once; a restart of this one takes about as long.
const RETRY: u32 = 1000;

/// Returns the response that carries a stream.
pub(crate) fn respond(
    updates: UpdateStream,
    dialect: Dialect,
    envelope: Envelope,
    streaming: &Streaming,
) -> Response<Body> {
    let Streaming { keep_alive, closing, open, budget } = streaming;
    let mut charge = budget.nothing();
    charge.force(memory::STREAM);
    // Boxed because it is moved with every frame.
    let frames = Box::new(Frames {
        updates,
        dialect,
        envelope,
        keep_alive: *keep_alive,
        closing: Box::pin(closing.clone().cancelled_owned()),
        silence: Box::pin(sleep(*keep_alive)),
        last_frame: Instant::now(),
        last: None,
        over: false,
        budget: budget.clone(),
        _counted: Counted::new(open),
        _charge: charge,
    });
    let frames = stream::unfold(frames, async |mut frames| frames.next().await.map(|frame| (frame, frames)));
    streamed(Body::Frames(Box::pin(frames)))
}

/// Returns a stream of one event, without a number.
pub(crate) fn only(event: &Value) -> Response<Body> {
    streamed(Body::Whole(Full::new(format!("data: {event}\n\n").into())))
}

fn streamed(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(BUFFERING, HeaderValue::from_static("no"));
    response
}

// === impl Frames ===

impl Frames {
    async fn next(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        let update = loop {
            tokio::select! {
                biased;
                () = self.closing.as_mut() => match self.updates.next_known().await {
                    Ok(None) if !self.updates.is_over() => return Some(self.close()),
                    known => break known,
                },
                update = self.updates.next() => break update,
                () = self.silence.as_mut() => {
                    // The timer is reset when it fires, not with every frame: most streams never see it fire.
                    let now = Instant::now();
                    let is_silent = now >= self.last_frame + self.keep_alive;
                    if is_silent {
                        self.last_frame = now;
                    }
                    self.silence.as_mut().reset(self.last_frame + self.keep_alive);
                    if is_silent {
                        return Some(KEEP_ALIVE);
                    }
                }
            }
        };
        self.last_frame = Instant::now();
        match update {
            Ok(Some(update)) => Some(self.frame(&update)),
            Ok(None) => {
                self.over = true;
                None
            }
            Err(rejection) => Some(self.failure(&rejection)),
        }
    }

    fn close(&mut self) -> Bytes {
        self.over = true;
        let id = self.last.map(|last| format!("id: {last}\n")).unwrap_or_default();
        format!(": closing\n{id}retry: {RETRY}\n").into()
    }

    fn frame(&mut self, update: &Update) -> Bytes {
        let mut frame = String::with_capacity(FRAME);
        // Writing to a string cannot fail.
        let _ = write!(frame, "id: {}\ndata: ", update.sequence);
        let mut frame = frame.into_bytes();
        let result = InDialect(self.dialect, &update.item);
        let written = match &self.envelope {
            Envelope::Rest => serde_json::to_writer(&mut frame, &result),
            Envelope::JsonRpc(id) => {
                serde_json::to_writer(&mut frame, &Success { jsonrpc: "2.0", id, result })
            }
        };
        if let Err(error) = written {
            tracing::warn!(%error, "update could not be encoded");
            return self.failure(&Rejection::new(ErrorKind::Internal, "the update could not be written"));
        }
        frame.extend_from_slice(b"\n\n");
        match memory::try_hold(&self.budget, frame) {
            Ok(frame) => {
                self.last = Some(update.sequence);
                frame
            }
            Err(full) => self.failure(&full.into()),
        }
    }

    fn failure(&mut self, rejection: &Rejection) -> Bytes {
        self.over = true;
        let body = match &self.envelope {
            Envelope::Rest => rejection.rest_body(self.dialect.version()),
            Envelope::JsonRpc(id) => rejection.jsonrpc_body(id),
        };
        format!("data: {body}\n\n").into()
    }
}

// === impl Counted ===

impl Counted {
    fn new(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(open))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
