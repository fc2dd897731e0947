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
//! What streams of every binding have in common is in `open_stream`.

use std::fmt::Write as _;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use http_body_util::Full;
use hyper::body::Frame;
use serde::Serialize;
use serde_json::Value;
use tokio::time::{Instant, Sleep, sleep};

use crate::dialect::{Dialect, InDialect};
use crate::memory;
use crate::open_stream::{Next, OpenStream, Streaming};
use crate::rejection::{ErrorKind, Rejection};
use crate::respond::Body;
use crate::update_stream::{StreamItem, Update, UpdateStream};

/// What surrounds an update.
#[derive(Debug, Clone)]
pub(crate) enum Envelope {
    /// Nothing.
    Rest,
    /// A response to the call with this id.
    JsonRpc(Value),
}

/// The frames of an open stream.
struct Frames {
    open: OpenStream,
    dialect: Dialect,
    envelope: Envelope,
    keep_alive: Duration,
    /// Fires when the stream may have been silent for long enough.
    silence: Pin<Box<Sleep>>,
    /// When the last frame was encoded.
    last_frame: Instant,
    /// The number of the last event, if there was one.
    last: Option<u64>,
    /// Whether the last frame has been returned.
    over: bool,
}

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
    let keep_alive = streaming.keep_alive;
    // Boxed because it is moved with every frame.
    let frames = Box::new(Frames {
        open: OpenStream::new(updates, streaming),
        dialect,
        envelope,
        keep_alive,
        silence: Box::pin(sleep(keep_alive)),
        last_frame: Instant::now(),
        last: None,
        over: false,
    });
    let frames = stream::unfold(frames, async |mut frames| {
        frames.next().await.map(|frame| (Frame::data(frame), frames))
    });
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
        let next = loop {
            tokio::select! {
                biased;
                next = self.open.next() => break next,
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
        match next {
            Ok(Next::Update(update)) => Some(self.frame(&update)),
            Ok(Next::End) => {
                self.over = true;
                None
            }
            Ok(Next::Closing) => Some(self.close()),
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
        match memory::try_hold(self.open.budget(), frame) {
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
