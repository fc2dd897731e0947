//! Responses: a frame and a status in the trailers, a status alone, or the frames of a stream.
//!
//! A stream's message has the number of its event in its metadata ([`keys::EVENT`](talaria_turns::keys::EVENT)), and
//! `last-event-id` resumes exactly after it. The trailers repeat the last number if the stream ends early: on shutdown with
//! UNAVAILABLE, at the caller's deadline with DEADLINE_EXCEEDED, or with the status of an error. Silence needs no comments;
//! HTTP/2 has pings.
//!
//! As in the streams of the other bindings, a message is encoded when the connection asks for it, and is charged until it is
//! sent.

use bytes::Bytes;
use futures_util::stream;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{HeaderName, Response};
use hyper::body::Frame;
use tokio::time::Instant;
use tonic::Status;

use super::{Call, Method, status, v1, v03};
use crate::memory;
use crate::open_stream::{Next, OpenStream, Streaming};
use crate::operation::{Answer, Reply};
use crate::rejection::{ErrorKind, Rejection};
use crate::respond::Body;
use crate::update_stream::{Update, UpdateStream};
use crate::version::{self, Version};

/// The number of the last event that was sent.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");

/// An open stream.
struct Frames {
    open: OpenStream,
    version: Version,
    deadline: Option<Instant>,
    /// The number of the last event, if there was one.
    last: Option<u64>,
    /// Whether the trailers have been returned.
    over: bool,
}

/// Encodes the response to a call, and returns the kind of an error for the access log.
pub(crate) fn respond(
    version: Version,
    method: Option<&Method>,
    deadline: Option<Instant>,
    reply: Result<Reply, Rejection>,
    streaming: &Streaming,
) -> (Response<Body>, Option<ErrorKind>) {
    let written = match reply {
        Ok(Reply::Stream(updates)) => Ok(streamed(*updates, version, deadline, streaming)),
        Ok(Reply::Once(answer)) => once(&answer, version, streaming),
        Err(rejection) => Err(rejection),
    };
    let (mut response, kind) = match written {
        Ok(response) => (response, None),
        Err(rejection) => (refuse(&rejection, version), Some(rejection.kind)),
    };
    if method.is_some() && kind != Some(ErrorKind::VersionNotSupported) {
        response.headers_mut().insert(version::HEADER, HeaderValue::from_static(version.as_str()));
    }
    (response, kind)
}

/// Returns a response of a status alone.
pub(crate) fn refuse(rejection: &Rejection, version: Version) -> Response<Body> {
    let mut response = empty(Body::default());
    add(&status::of(rejection, version), response.headers_mut());
    response
}

fn once(answer: &Answer, version: Version, streaming: &Streaming) -> Result<Response<Body>, Rejection> {
    let frame = memory::hold(&streaming.budget, encode(version, answer)?);
    let frames = [Frame::data(frame), trailers(&Status::ok(""), None)];
    Ok(empty(Body::Frames(Box::pin(stream::iter(frames)))))
}

/// Encodes an answer as a frame.
pub(crate) fn encode(version: Version, answer: &Answer) -> Result<Vec<u8>, Rejection> {
    Ok(match version {
        Version::V1 => v1::answer(answer)?,
        Version::V03 => v03::answer(answer)?,
    })
}

fn streamed(
    updates: UpdateStream,
    version: Version,
    deadline: Option<Instant>,
    streaming: &Streaming,
) -> Response<Body> {
    let open = OpenStream::new(updates, streaming);
    // Boxed because it is moved with every frame.
    let frames = Box::new(Frames { open, version, deadline, last: None, over: false });
    let frames = stream::unfold(frames, async |mut frames| frames.next().await.map(|frame| (frame, frames)));
    empty(Body::Frames(Box::pin(frames)))
}

fn empty(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    response
}

fn trailers(status: &Status, last: Option<u64>) -> Frame<Bytes> {
    let mut headers = HeaderMap::new();
    add(status, &mut headers);
    if let Some(last) = last {
        headers.insert(LAST_EVENT_ID, last.into());
    }
    Frame::trailers(headers)
}

fn add(status: &Status, headers: &mut HeaderMap) {
    if let Err(error) = status.add_header(headers) {
        // Messages and details are escaped, so this is a bug.
        tracing::warn!(%error, "status could not be encoded");
        headers.insert("grpc-status", HeaderValue::from_static("13"));
    }
}

// === impl Frames ===

impl Frames {
    async fn next(&mut self) -> Option<Frame<Bytes>> {
        if self.over {
            return None;
        }
        let frame = match Call::in_time(self.deadline, self.open.next()).await {
            Ok(Next::Update(update)) => self.frame(&update),
            Ok(Next::End) => Ok(self.end(&Status::ok(""), None)),
            Ok(Next::Closing) => {
                let status = Status::unavailable("the server shuts down; resume with last-event-id");
                Ok(self.end(&status, self.last))
            }
            Err(rejection) => Err(rejection),
        };
        Some(frame.unwrap_or_else(|rejection| self.end(&status::of(&rejection, self.version), self.last)))
    }

    fn frame(&mut self, update: &Update) -> Result<Frame<Bytes>, Rejection> {
        let Update { sequence, item } = update;
        let frame = match self.version {
            Version::V1 => super::frame::frame(&v1::update(item, *sequence)?),
            Version::V03 => super::frame::frame(&v03::update(item, *sequence)?),
        };
        let frame = memory::try_hold(self.open.budget(), frame)?;
        self.last = Some(*sequence);
        Ok(Frame::data(frame))
    }

    fn end(&mut self, status: &Status, last: Option<u64>) -> Frame<Bytes> {
        self.over = true;
        trailers(status, last)
    }
}
