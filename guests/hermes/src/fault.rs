//! What went wrong with a call, and the one word that the caller reads of it.
//!
//! The words are the names that OpenAI's Python library gives its exceptions, because that is what the Python executor
//! printed. Two are used where that executor named an accident of its own code: an answer of another shape is an
//! `APIResponseValidationError`, a failure inside a good response an `APIError`, or what its code would have been.

use serde_json::json;
use talaria_guest::{Failure, FailureKind, events, http, log};
use talaria_upstream::excerpt;

/// A call without an answer.
pub(crate) struct Fault {
    class: &'static str,
    kind: FailureKind,
    retryable: bool,
    status: Option<u16>,
    /// For the operator's log.
    reason: String,
}

impl Fault {
    fn new(class: &'static str, reason: impl Into<String>) -> Self {
        Self { class, kind: FailureKind::Upstream, retryable: false, status: None, reason: reason.into() }
    }

    /// A response that is not 2xx.
    pub(crate) fn status(status: u16, body: &[u8]) -> Self {
        let class = match status {
            400 => "BadRequestError",
            401 => "AuthenticationError",
            403 => "PermissionDeniedError",
            404 => "NotFoundError",
            409 => "ConflictError",
            422 => "UnprocessableEntityError",
            429 => "RateLimitError",
            500.. => "InternalServerError",
            _ => "APIStatusError",
        };
        Self {
            retryable: matches!(status, 408 | 409 | 429) || status >= 500,
            status: Some(status),
            ..Self::new(class, excerpt(&String::from_utf8_lossy(body)))
        }
    }

    /// A failure that came as a good response, with the status that it would have had, where it says so.
    pub(crate) fn inside(code: Option<u16>, said: &str) -> Self {
        match code {
            Some(code @ 400..600) => Self::status(code, said.as_bytes()),
            _ => Self::new("APIError", excerpt(said)),
        }
    }

    /// A response that is no chat completion.
    pub(crate) fn shape() -> Self {
        Self::new("APIResponseValidationError", "the response is no chat completion")
    }

    /// A stream that ended too soon.
    pub(crate) fn cut() -> Self {
        Self { retryable: true, ..Self::new("APIConnectionError", "the stream ended before the answer did") }
    }

    /// What the caller gets; the reason stays with the operator.
    pub(crate) fn failure(self, model: &str) -> Failure {
        let fields = json!({ "model": model, "class": self.class, "status": self.status });
        log::write(log::Level::Error, "the model's endpoint failed", Some(&fields.to_string()));
        Failure {
            kind: self.kind,
            message: format!("Agent error: {}", self.class),
            retryable: self.retryable,
            details: Some(json!({ "reason": self.reason }).to_string()),
        }
    }
}

impl From<http::Error> for Fault {
    fn from(error: http::Error) -> Self {
        let (class, kind) = match error.kind {
            http::ErrorKind::TimedOut => ("APITimeoutError", FailureKind::TimedOut),
            http::ErrorKind::Denied => ("APIConnectionError", FailureKind::Denied),
            http::ErrorKind::Cancelled => ("APIConnectionError", FailureKind::Cancelled),
            http::ErrorKind::InvalidRequest => ("BadRequestError", FailureKind::Upstream),
            http::ErrorKind::TooLarge => ("APIResponseValidationError", FailureKind::Upstream),
            _ => ("APIConnectionError", FailureKind::Upstream),
        };
        let retryable = matches!(kind, FailureKind::TimedOut)
            || (class == "APIConnectionError" && kind == FailureKind::Upstream);
        Self { kind, retryable, ..Self::new(class, error.message) }
    }
}

/// Something that could not be told to the caller.
impl From<events::Error> for Fault {
    fn from(error: events::Error) -> Self {
        let kind = match error.kind {
            events::ErrorKind::Cancelled => FailureKind::Cancelled,
            _ => FailureKind::Internal,
        };
        Self { kind, ..Self::new("APIError", error.message) }
    }
}
