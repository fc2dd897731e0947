//! Responses whose whole body is at hand.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::json;

/// Builds a response of this media type.
pub fn typed(status: StatusCode, media_type: HeaderValue, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}

/// Builds a response of JSON that is already encoded.
pub fn json(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    typed(status, HeaderValue::from_static("application/json"), body)
}

/// Builds an error response in the form that A2A uses outside of JSON-RPC:
/// `{"error":{"code":404,"status":"NOT_FOUND","message":"…"}}`.
pub fn error(status: StatusCode, name: &str, message: &str) -> Response<Full<Bytes>> {
    let body = json!({ "error": { "code": status.as_u16(), "status": name, "message": message } });
    json(status, body.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_its_code_name_and_message() {
        let response = error(StatusCode::NOT_FOUND, "NOT_FOUND", "no such \"task\"");
        assert_eq!(response.status(), 404);
        assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
        let expected = r#"{"error":{"code":404,"status":"NOT_FOUND","message":"no such \"task\""}}"#;
        assert_eq!(format!("{:?}", response.body()), format!("{:?}", Full::new(Bytes::from(expected))));
    }
}
