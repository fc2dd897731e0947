//! CORS: pages in browsers may call if their origin is configured.
//!
//! An answer names the origin of the request, never `*`, and never allows the browser's own credentials: a page authenticates
//! with a token that it sends itself. If no origin is configured, no CORS header is sent. Requests of any
//! other page do not get here: the [`door`](crate::door) refuses them, and sends no CORS header.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, HeaderValue,
    ORIGIN, VARY,
};
use http::{HeaderMap, Method, Response, StatusCode};

use crate::origin::Origin;
use crate::respond::Body;

/// The origins whose pages may call.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cors(Vec<Origin>);

/// The headers that pages may send.
const HEADERS: HeaderValue = HeaderValue::from_static(
    "Authorization, Content-Type, Accept, A2A-Version, A2A-Extensions, X-A2A-Extensions, Last-Event-ID, If-None-Match, \
     Traceparent",
);
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE");
/// The headers that pages may read.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "A2A-Version, A2A-Extensions, X-A2A-Extensions, ETag, Retry-After, WWW-Authenticate",
);
/// Seconds for which a browser may cache a preflight; a changed configuration takes effect within this time.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

// === impl Cors ===

impl Cors {
    pub(crate) fn new(origins: Vec<Origin>) -> Self {
        Self(origins)
    }

    /// Answers a preflight request; `None` if the request is not one, or its origin is not allowed.
    pub(crate) fn preflight(&self, method: &Method, headers: &HeaderMap) -> Option<Response<Body>> {
        if method != Method::OPTIONS || !headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
            return None;
        }
        self.allowed(headers)?;
        let mut response = Response::new(Body::default());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let answer = response.headers_mut();
        answer.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        answer.insert(ACCESS_CONTROL_ALLOW_HEADERS, HEADERS);
        answer.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        Some(response)
    }

    /// Adds the headers of an answer to this origin.
    pub(crate) fn mark(&self, origin: Option<HeaderValue>, answer: &mut HeaderMap) {
        if self.0.is_empty() {
            return;
        }
        answer.append(VARY, HeaderValue::from_static("Origin"));
        if let Some(origin) = origin {
            answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            answer.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        }
    }

    /// Returns the origin of a request if it is allowed.
    pub(crate) fn allowed(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(ORIGIN)?;
        self.0.iter().any(|known| known.as_str().as_bytes() == origin.as_bytes()).then(|| origin.clone())
    }
}
