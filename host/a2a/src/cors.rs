//! Pages in browsers that may call: those from the origins that are configured, and no others.
//!
//! An answer names the one origin that asked, never `*`, and never allows credentials of the browser's own: callers prove
//! who they are by a token that the page sends itself. Where no origin is configured nothing is said, so browsers keep
//! every page out. Nobody else is kept out by this: it is the browser that holds to it.

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

/// What pages may send.
const HEADERS: HeaderValue = HeaderValue::from_static(
    "Authorization, Content-Type, Accept, A2A-Version, A2A-Extensions, X-A2A-Extensions, Last-Event-ID, If-None-Match, \
     Traceparent",
);
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE");
/// What pages may read beside the body.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "A2A-Version, A2A-Extensions, X-A2A-Extensions, ETag, Retry-After, WWW-Authenticate",
);
/// Seconds for which a browser need not ask again. A changed configuration is known within as long.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

// === impl Cors ===

impl Cors {
    pub(crate) fn new(origins: Vec<Origin>) -> Self {
        Self(origins)
    }

    /// Answers the question that a browser asks before a page's request; none where it is no such question.
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

    /// What an answer to this origin says.
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

    /// The origin of a request, if its pages may call.
    pub(crate) fn allowed(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(ORIGIN)?;
        self.0.iter().any(|known| known.as_str().as_bytes() == origin.as_bytes()).then(|| origin.clone())
    }
}
