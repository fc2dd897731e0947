//! Server-sent events: one update a frame, `id:` its sequence number, `data:` one line of JSON.
//!
//! ```text
//! id: 7
//! data: {"statusUpdate":{…}}
//!
//! ```
//! The number is what `Last-Event-ID` resumes from, exactly. Every [`Streaming::keep_alive`] of silence there is a comment,
//! so that no proxy takes the stream for dead. An error in the middle is a last event of its own, in the form of the
//! binding, without a number.
//!
//! When the server shuts down, what the log has already goes out. A stream that is not over then closes with the number
//! to resume from, and with how long to wait before that:
//!
//! ```text
//! : closing
//! id: 7
//! retry: 1000
//! ```
//! Neither this nor the comment of a silence ends with an empty line. By the standard the line would mean nothing
//! without data before it, but httpx-sse, which the Python SDK of 0.3 uses, makes an event without data of it as soon as it
//! has seen an `id:`. The SDK fails on that: 0.3.26 when it resubscribes, 0.3.10 in every stream.
//!
//! Nothing runs beside the connection: a frame is made when hyper asks for it, and hyper asks when the socket takes more.
//! A client that does not read holds a cursor and one frame; one that hangs up drops the body, and with it the reader.

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
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::dialect::{Dialect, Written};
use crate::refusal::{Kind, Refusal};
use crate::respond::Body;
use crate::updates::{Item, Update, Updates};

/// What all streams of a server share.
#[derive(Debug, Clone)]
pub(crate) struct Streaming {
    /// Longest silence.
    pub(crate) keep_alive: Duration,
    /// The server shuts down.
    pub(crate) closing: CancellationToken,
    /// How many there are.
    pub(crate) open: Arc<AtomicUsize>,
}

/// What is around an update.
#[derive(Debug, Clone)]
pub(crate) enum Envelope {
    /// Nothing.
    Rest,
    /// A response to the call of this id.
    JsonRpc(Value),
}

/// A stream under way.
struct Frames {
    updates: Updates,
    dialect: Dialect,
    envelope: Envelope,
    keep_alive: Duration,
    // Made once a stream, not once a frame: each takes its place in a list that all streams share.
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Fires when there may have been silence for long enough.
    silence: Pin<Box<Sleep>>,
    /// When the last frame was made.
    said: Instant,
    /// The number of the last event, once there was one.
    last: Option<u64>,
    /// The last frame is out, or about to be.
    over: bool,
    _counted: Counted,
}

/// Counts a stream for as long as it is open.
struct Counted(Arc<AtomicUsize>);

#[derive(Serialize)]
struct Success<'a> {
    jsonrpc: &'static str,
    id: &'a Value,
    result: Written<'a, Item>,
}

/// nginx and those who follow it hold streams back unless told.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
/// Bytes of most frames: a piece of an answer, and what is around it.
const FRAME: usize = 512;
const KEEP_ALIVE: Bytes = Bytes::from_static(b": keep-alive\n");
/// Milliseconds before a client comes back. Another server takes it at once; this one is back after about as long.
const RETRY: u32 = 1000;

/// The response that carries a stream.
pub(crate) fn respond(
    updates: Updates,
    dialect: Dialect,
    envelope: Envelope,
    streaming: &Streaming,
) -> Response<Body> {
    let Streaming { keep_alive, closing, open } = streaming;
    // Boxed, since it is moved with every frame.
    let frames = Box::new(Frames {
        updates,
        dialect,
        envelope,
        keep_alive: *keep_alive,
        closing: Box::pin(closing.clone().cancelled_owned()),
        silence: Box::pin(sleep(*keep_alive)),
        said: Instant::now(),
        last: None,
        over: false,
        _counted: Counted::new(open),
    });
    let frames = stream::unfold(frames, async |mut frames| frames.next().await.map(|frame| (frame, frames)));
    streamed(Body::Frames(Box::pin(frames)))
}

/// A stream of one event, without a number.
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
                    // Set again when it fires, and not with every frame: most never see it.
                    let now = Instant::now();
                    let is_silent = now >= self.said + self.keep_alive;
                    if is_silent {
                        self.said = now;
                    }
                    self.silence.as_mut().reset(self.said + self.keep_alive);
                    if is_silent {
                        return Some(KEEP_ALIVE);
                    }
                }
            }
        };
        self.said = Instant::now();
        match update {
            Ok(Some(update)) => Some(self.frame(&update)),
            Ok(None) => {
                self.over = true;
                None
            }
            Err(refusal) => Some(self.failure(&refusal)),
        }
    }

    fn close(&mut self) -> Bytes {
        self.over = true;
        let id = self.last.map(|last| format!("id: {last}\n")).unwrap_or_default();
        format!(": closing\n{id}retry: {RETRY}\n").into()
    }

    fn frame(&mut self, update: &Update) -> Bytes {
        self.last = Some(update.sequence);
        let mut frame = String::with_capacity(FRAME);
        // Writing to a string cannot fail.
        let _ = write!(frame, "id: {}\ndata: ", update.sequence);
        let mut frame = frame.into_bytes();
        let result = Written(self.dialect, &update.item);
        let written = match &self.envelope {
            Envelope::Rest => serde_json::to_writer(&mut frame, &result),
            Envelope::JsonRpc(id) => {
                serde_json::to_writer(&mut frame, &Success { jsonrpc: "2.0", id, result })
            }
        };
        if let Err(error) = written {
            tracing::warn!(%error, "an update could not be written");
            return self.failure(&Refusal::new(Kind::Internal, "the update could not be written"));
        }
        frame.extend_from_slice(b"\n\n");
        frame.into()
    }

    fn failure(&mut self, refusal: &Refusal) -> Bytes {
        self.over = true;
        let body = match &self.envelope {
            Envelope::Rest => refusal.rest_body(self.dialect.version()),
            Envelope::JsonRpc(id) => refusal.jsonrpc_body(id),
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
