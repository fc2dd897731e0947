//! Responses, as bytes.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::json;

/// The body of every response: whole, today. Streams will make it a sum of two.
pub(crate) type Body = Full<Bytes>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A response of JSON.
pub(crate) fn json(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// A failure of HTTP itself, in the form that A2A gives to errors outside of JSON-RPC.
pub(crate) fn failure(status: StatusCode, name: &str, message: &str) -> Response<Body> {
    let body = json!({ "error": { "code": status.as_u16(), "status": name, "message": message } });
    json(status, body.to_string())
}
