//! The failure of a call, and its class, which is all that the caller reads of it.
//!
//! The classes are the names of the exceptions of OpenAI's Python library, because the Python executor printed those.
//! Two replace the name of an accident in that executor's code: a response of another shape is an
//! `APIResponseValidationError`, and a failure inside a 2xx response is an `APIError`, or the class of the status that
//! it reports.

use serde_json::json;
use talaria_guest::{Failure, FailureKind, events, http, log};
use talaria_upstream::excerpt;

use crate::retry::Advice;

/// A call without an answer.
pub(crate) struct Fault {
    class: &'static str,
    kind: FailureKind,
    retryable: bool,
    status: Option<u16>,
    /// The endpoint's own word on another attempt.
    pub(crate) advice: Advice,
    /// For the operator's log.
    reason: String,
}

impl Fault {
    fn new(class: &'static str, reason: impl Into<String>) -> Self {
        Self {
            class,
            kind: FailureKind::Upstream,
            retryable: false,
            status: None,
            advice: Advice::default(),
            reason: reason.into(),
        }
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

    /// A failure inside a 2xx response, with the status that it reports, if it does.
    pub(crate) fn inside(code: Option<u16>, said: &str) -> Self {
        match code {
            Some(code @ 400..600) => Self::status(code, said.as_bytes()),
            _ => Self::new("APIError", excerpt(said)),
        }
    }

    /// A response that is not a chat completion.
    pub(crate) fn shape() -> Self {
        Self::new("APIResponseValidationError", "the response is no chat completion")
    }

    /// A stream that ended too soon.
    pub(crate) fn cut() -> Self {
        Self { retryable: true, ..Self::new("APIConnectionError", "the stream ended before the answer did") }
    }

    /// A turn that was cancelled between two attempts.
    pub(crate) fn cancelled() -> Self {
        Self { kind: FailureKind::Cancelled, ..Self::new("APIConnectionError", "the turn was cancelled") }
    }

    /// The same, with the headers of the response.
    pub(crate) fn with(self, headers: &[http::Header]) -> Self {
        Self { advice: Advice::of(headers), ..self }
    }

    /// The name of its class.
    pub(crate) fn class(&self) -> &'static str {
        self.class
    }

    /// Whether another attempt may succeed.
    pub(crate) fn is_worth_retrying(&self) -> bool {
        self.advice.again.unwrap_or(self.retryable)
    }

    /// The failure for the caller; the reason is for the operator.
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

/// An event that could not be sent to the caller.
impl From<events::Error> for Fault {
    fn from(error: events::Error) -> Self {
        let kind = match error.kind {
            events::ErrorKind::Cancelled => FailureKind::Cancelled,
            _ => FailureKind::Internal,
        };
        Self { kind, ..Self::new("APIError", error.message) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_has_the_class_that_openais_library_gives_it() {
        for (status, class, retryable) in [
            (400, "BadRequestError", false),
            (401, "AuthenticationError", false),
            (403, "PermissionDeniedError", false),
            (404, "NotFoundError", false),
            (408, "APIStatusError", true),
            (409, "ConflictError", true),
            (418, "APIStatusError", false),
            (422, "UnprocessableEntityError", false),
            (429, "RateLimitError", true),
            (500, "InternalServerError", true),
            (529, "InternalServerError", true),
        ] {
            let fault = Fault::status(status, b"no");
            assert_eq!((fault.class, fault.retryable), (class, retryable), "{status}");
            let inside = Fault::inside(Some(status), "no");
            assert_eq!((inside.class, inside.retryable), (class, retryable), "{status} inside a 200");
        }
        for code in [None, Some(0), Some(200), Some(700)] {
            assert_eq!(Fault::inside(code, "no").class, "APIError", "{code:?}");
        }
    }
}
