//! Responses, as bytes.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, VARY};
use http::{Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use serde_json::json;

use crate::refusal::Refusal;
use crate::version::{self, Version};

/// The body of every response.
pub(crate) enum Body {
    Whole(Full<Bytes>),
    /// Frames of a stream, each made when the connection asks for it.
    Frames(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// What an answer depends on beside the path and the body.
const DEPENDS: HeaderValue = HeaderValue::from_static("A2A-Version, A2A-Extensions, Accept");

/// A response of JSON.
pub(crate) fn json(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    typed(status, JSON, body)
}

/// A response of some type.
pub(crate) fn typed(status: StatusCode, media_type: HeaderValue, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::Whole(Full::new(body.into())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}

/// A failure of HTTP itself, in the form that A2A gives to errors outside of JSON-RPC.
pub(crate) fn failure(status: StatusCode, name: &str, message: &str) -> Response<Body> {
    let body = json!({ "error": { "code": status.as_u16(), "status": name, "message": message } });
    json(status, body.to_string())
}

/// Says which version the answer is in, where one was agreed on, and what it depends on.
pub(crate) fn versioned(response: &mut Response<Body>, version: Option<Version>) {
    let headers = response.headers_mut();
    headers.insert(VARY, DEPENDS);
    if let Some(version) = version {
        headers.insert(version::HEADER, HeaderValue::from_static(version.as_str()));
    }
}

/// Says when to try again, where it is worth it.
pub(crate) fn retry(response: &mut Response<Body>, refusal: &Refusal) {
    if let Some(seconds) = refusal.retry_after {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
}

// === impl Body ===

impl Default for Body {
    fn default() -> Self {
        Self::Whole(Full::default())
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(body) => Pin::new(body).poll_frame(context),
            Self::Frames(frames) => {
                frames.as_mut().poll_next(context).map(|frame| frame.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Frames(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Frames(_) => SizeHint::default(),
        }
    }
}
