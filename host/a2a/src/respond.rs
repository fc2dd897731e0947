//! HTTP responses.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use http::header::{HeaderValue, RETRY_AFTER, VARY};
use http::{Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use crate::rejection::Rejection;
use crate::version::{self, Version};

/// The body of every response.
pub(crate) enum Body {
    Whole(Full<Bytes>),
    /// The frames of a stream, each encoded when the connection asks for it; or a frame with trailers after it.
    Frames(Pin<Box<dyn Stream<Item = Frame<Bytes>> + Send>>),
}

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The headers that an answer depends on.
const DEPENDS: HeaderValue = HeaderValue::from_static("A2A-Version, A2A-Extensions, Accept");

/// Returns a JSON response.
pub(crate) fn json(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    talaria_listen::json(status, body).map(Body::Whole)
}

/// Returns a response with this media type.
pub(crate) fn typed(status: StatusCode, media_type: HeaderValue, body: impl Into<Bytes>) -> Response<Body> {
    talaria_listen::typed(status, media_type, body).map(Body::Whole)
}

/// Returns a failure of HTTP itself, in the form that A2A gives to errors outside of JSON-RPC.
pub(crate) fn failure(status: StatusCode, name: &str, message: &str) -> Response<Body> {
    talaria_listen::error(status, name, message).map(Body::Whole)
}

/// Adds the version of the answer, if the request settled one, and the headers that the answer depends on.
pub(crate) fn versioned(response: &mut Response<Body>, version: Option<Version>) {
    let headers = response.headers_mut();
    headers.insert(VARY, DEPENDS);
    if let Some(version) = version {
        headers.insert(version::HEADER, HeaderValue::from_static(version.as_str()));
    }
}

/// Adds the time after which a retry makes sense, if there is one.
pub(crate) fn retry(response: &mut Response<Body>, rejection: &Rejection) {
    if let Some(seconds) = rejection.retry_after {
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
            Self::Frames(frames) => frames.as_mut().poll_next(context).map(|frame| frame.map(Ok)),
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
