//! hermes-agent: its sessions, its chat route, its runs, and the texts that callers read when something is wrong. These
//! texts are those of the Python bridge, to the letter, because platforms match on them.

mod chat;
mod memory;
mod reply;
mod restart;
pub mod runs;
mod session;
pub mod transcript;

use talaria_guest::{Failure, FailureKind, events, http};

use crate::excerpt;

pub use chat::Chat;
pub use restart::OnRestart;
pub use session::Session;

/// The name of the gateway's key.
pub const KEY: &str = "API_SERVER_KEY";
/// The answer to an empty prompt.
pub const EMPTY_PROMPT: &str = "(empty prompt — nothing to do)";
/// The text of an answer without content.
pub const NO_CONTENT: &str = "(hermes-agent returned no content)";

/// The failure of a call without a response. The reasons of a denial are for the operator, and the host has logged
/// them.
#[must_use]
pub fn unreachable(error: &http::Error) -> Failure {
    let (kind, reason) = match error.kind {
        http::ErrorKind::Denied => (FailureKind::Denied, "the operator's policy does not allow it"),
        http::ErrorKind::TimedOut => (FailureKind::TimedOut, error.message.as_str()),
        http::ErrorKind::Cancelled => (FailureKind::Cancelled, error.message.as_str()),
        _ => (FailureKind::Upstream, error.message.as_str()),
    };
    Failure {
        retryable: matches!(kind, FailureKind::Upstream | FailureKind::TimedOut),
        ..Failure::new(kind, format!("[hermes-agent unreachable] {reason}"))
    }
}

/// The failure of a response that is not 2xx. Its body may be JSON or plain text.
#[must_use]
pub fn error_status(status: u16, body: &[u8]) -> Failure {
    let text = excerpt(&String::from_utf8_lossy(body));
    Failure {
        retryable: status == 429 || status >= 500,
        ..Failure::new(FailureKind::Upstream, format!("[hermes-agent error {status}] {text}"))
    }
}

/// The failure that the gateway reports.
#[must_use]
pub fn error(said: &str) -> Failure {
    Failure::new(FailureKind::Upstream, format!("[hermes-agent error] {}", excerpt(said)))
}

/// The failure of an answer without content.
#[must_use]
pub fn no_content() -> Failure {
    Failure::new(FailureKind::Upstream, NO_CONTENT)
}

/// Sends an event to the caller.
///
/// # Errors
/// The failure of a turn whose caller cannot be reached.
pub fn emit(event: &events::Event) -> Result<(), Failure> {
    events::emit(event).map_err(|error| not_passed_on(&error))
}

/// The failure of an event that could not be sent to the caller.
#[must_use]
pub fn not_passed_on(error: &events::Error) -> Failure {
    let kind = match error.kind {
        events::ErrorKind::Cancelled => FailureKind::Cancelled,
        _ => FailureKind::Internal,
    };
    Failure::new(kind, format!("[hermes-agent error] the answer could not be passed on: {}", error.message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_read_as_those_of_the_python_bridge() {
        let error = |kind| http::Error { kind, message: "no route".into() };
        for (failure, kind, message, retryable) in [
            (
                unreachable(&error(http::ErrorKind::Denied)),
                FailureKind::Denied,
                "[hermes-agent unreachable] the operator's policy does not allow it",
                false,
            ),
            (
                unreachable(&error(http::ErrorKind::TimedOut)),
                FailureKind::TimedOut,
                "[hermes-agent unreachable] no route",
                true,
            ),
            (
                unreachable(&error(http::ErrorKind::Cancelled)),
                FailureKind::Cancelled,
                "[hermes-agent unreachable] no route",
                false,
            ),
            (error_status(401, b"no key"), FailureKind::Upstream, "[hermes-agent error 401] no key", false),
            (error_status(429, b""), FailureKind::Upstream, "[hermes-agent error 429] ", true),
            (error_status(502, b"<html>"), FailureKind::Upstream, "[hermes-agent error 502] <html>", true),
            (super::error("no"), FailureKind::Upstream, "[hermes-agent error] no", false),
            (no_content(), FailureKind::Upstream, "(hermes-agent returned no content)", false),
        ] {
            assert_eq!(
                (failure.kind, failure.message.as_str(), failure.retryable),
                (kind, message, retryable)
            );
        }
    }
}
