//! Responses of the admin server, and the JSON bodies of its requests.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use serde::de::DeserializeOwned;
use serde_json::Value;
use talaria_budget::Budget;
use talaria_listen::{BodyError, read_body};
use talaria_redact::Redactor;

use super::executors::Upload;

pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;
pub(super) type Reply = Response<Body>;

/// The longest JSON body: an answer that a person writes.
const LONGEST: usize = 256 << 10;

/// The longest wait for one.
const WITHIN: Duration = Duration::from_secs(10);

pub(super) fn whole(reply: Response<Full<Bytes>>) -> Reply {
    reply.map(|body| body.boxed_unsync())
}

pub(super) fn failure(status: StatusCode, name: &str, message: &str) -> Reply {
    whole(talaria_listen::error(status, name, message))
}

pub(super) fn invalid(message: &str) -> Reply {
    failure(StatusCode::BAD_REQUEST, "INVALID_ARGUMENT", message)
}

pub(super) fn not_found(message: &str) -> Reply {
    failure(StatusCode::NOT_FOUND, "NOT_FOUND", message)
}

pub(super) fn conflict(message: &str) -> Reply {
    failure(StatusCode::CONFLICT, "CONFLICT", message)
}

/// A failure of the store. The operator may read its text.
pub(super) fn unavailable(error: &dyn std::error::Error) -> Reply {
    failure(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", &error.to_string())
}

pub(super) fn respond(status: StatusCode, body: &Value) -> Reply {
    whole(talaria_listen::json(status, body.to_string()))
}

pub(super) fn ok(body: &Value) -> Reply {
    respond(StatusCode::OK, body)
}

/// Reads a JSON body. It must say what it is: the forms of a web page cannot send `application/json`.
pub(super) async fn read_json<T: DeserializeOwned>(
    head: &http::request::Parts,
    body: impl Upload,
    budget: &Budget,
) -> Result<T, Reply> {
    let media = head.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media = media.and_then(|media| media.split(';').next()).unwrap_or_default().trim();
    if !media.eq_ignore_ascii_case("application/json") {
        let message = "send the body as content-type: application/json";
        return Err(failure(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UNSUPPORTED_MEDIA_TYPE", message));
    }
    let mut charge = budget.nothing();
    let bytes = read_body(body, LONGEST, WITHIN, &mut charge).await.map_err(|error| match error {
        BodyError::TooLarge => {
            let message = format!("the body has more than {LONGEST} bytes");
            failure(StatusCode::PAYLOAD_TOO_LARGE, "TOO_LARGE", &message)
        }
        BodyError::Full(_) => {
            failure(StatusCode::TOO_MANY_REQUESTS, "RESOURCE_EXHAUSTED", "no memory for the body now")
        }
        BodyError::TooSlow => {
            failure(StatusCode::REQUEST_TIMEOUT, "DEADLINE_EXCEEDED", "the body did not arrive in time")
        }
        BodyError::Incomplete => invalid("the body did not arrive whole"),
    })?;
    serde_json::from_slice(&bytes).map_err(|error| invalid(&format!("bad JSON: {error}")))
}

/// The text without secrets.
pub(super) fn scrubbed(text: &str) -> String {
    Redactor::process().all(text).into_owned()
}

/// Replaces secrets in every text of a value.
pub(super) fn scrub(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let std::borrow::Cow::Owned(clean) = Redactor::process().all(text) {
                *text = clean;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(scrub),
        Value::Object(entries) => entries.values_mut().for_each(scrub),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The first characters of a text, and whether there are more.
pub(super) fn beginning(text: &str, characters: usize) -> (&str, bool) {
    match text.char_indices().nth(characters) {
        Some((end, _)) => (text.get(..end).unwrap_or(text), true),
        None => (text, false),
    }
}
