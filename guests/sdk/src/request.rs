//! Builds a request in one expression.

use serde::Serialize;

use crate::http;

/// A request to be sent with [`Request::fetch`] or [`Request::open`].
#[must_use = "a request does nothing until it is sent"]
pub struct Request(http::Request);

impl Request {
    /// A request without headers and body.
    pub fn new(method: &str, url: impl Into<String>) -> Self {
        Self(http::Request {
            method: method.into(),
            url: url.into(),
            headers: Vec::new(),
            body: Vec::new(),
            timeout_ms: None,
            max_bytes: None,
        })
    }

    /// Adds a header. `{secret:NAME}` in the value is filled in by the host.
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.0.headers.push((name.into(), value.into()));
        self
    }

    /// Sets a JSON body and its content type: a [`Value`](serde_json::Value), or any type that serializes. A map whose
    /// keys are not strings is not JSON and leaves the body empty.
    pub fn json(self, body: &impl Serialize) -> Self {
        self.body("application/json", serde_json::to_vec(body).unwrap_or_default())
    }

    /// Sets a body and its content type.
    pub fn body(mut self, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        self.0.body = body.into();
        self.header("content-type", content_type)
    }

    /// Bounds the time of the whole exchange.
    pub fn timeout_ms(mut self, ms: u32) -> Self {
        self.0.timeout_ms = Some(ms);
        self
    }

    /// Bounds the size of the response.
    pub fn max_bytes(mut self, bytes: u32) -> Self {
        self.0.max_bytes = Some(bytes);
        self
    }

    /// Sends the request and reads the whole response.
    ///
    /// # Errors
    /// The host's [`http::Error`].
    pub fn fetch(self) -> Result<http::Response, http::Error> {
        http::fetch(&self.0)
    }

    /// Sends the request and returns as soon as the head of the response has arrived.
    ///
    /// # Errors
    /// The host's [`http::Error`].
    pub fn open(self) -> Result<http::Exchange, http::Error> {
        http::open(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_has_what_was_set() {
        let Request(request) = Request::new("POST", "http://h/x")
            .header("authorization", "Bearer {secret:KEY}")
            .json(&json!({ "a": 1 }))
            .timeout_ms(5)
            .max_bytes(7);
        assert_eq!((request.method.as_str(), request.url.as_str()), ("POST", "http://h/x"));
        assert_eq!((request.timeout_ms, request.max_bytes), (Some(5), Some(7)));
        assert_eq!(request.body, br#"{"a":1}"#);
        let names: Vec<&str> = request.headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["authorization", "content-type"]);
    }
}
