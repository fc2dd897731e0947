//! hermes-agent: its sessions, its chat route, and the texts that its callers read when something is wrong: those of the
//! Python bridge, to the letter, because platforms match on them.

mod chat;
mod memory;
mod reply;
mod restart;
mod session;
pub mod transcript;

use talaria_guest::{Failure, FailureKind, events, http};

use crate::excerpt;

pub use chat::Chat;
pub use restart::OnRestart;
pub use session::Session;

/// The secret that the gateway wants, where it wants one.
pub const KEY: &str = "API_SERVER_KEY";
/// What a prompt gets that holds nothing.
pub const EMPTY_PROMPT: &str = "(empty prompt — nothing to do)";
/// What an answer without content becomes.
pub const NO_CONTENT: &str = "(hermes-agent returned no content)";

/// No response. Policy's reasons are for the operator's log, where the host wrote them already.
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

/// A response that is not 2xx. Bodies may be JSON or plain text.
#[must_use]
pub fn error_status(status: u16, body: &[u8]) -> Failure {
    let text = excerpt(&String::from_utf8_lossy(body));
    Failure {
        retryable: status == 429 || status >= 500,
        ..Failure::new(FailureKind::Upstream, format!("[hermes-agent error {status}] {text}"))
    }
}

/// What the gateway says went wrong.
#[must_use]
pub fn error(said: &str) -> Failure {
    Failure::new(FailureKind::Upstream, format!("[hermes-agent error] {}", excerpt(said)))
}

/// An answer that holds no content.
#[must_use]
pub fn no_content() -> Failure {
    Failure::new(FailureKind::Upstream, NO_CONTENT)
}

/// Tells the caller.
///
/// # Errors
/// What the caller reads where it could not be told.
pub fn tell(event: &events::Event) -> Result<(), Failure> {
    events::emit(event).map_err(|error| not_passed_on(&error))
}

/// Something that could not be told to the caller.
#[must_use]
pub fn not_passed_on(error: &events::Error) -> Failure {
    let kind = match error.kind {
        events::ErrorKind::Cancelled => FailureKind::Cancelled,
        _ => FailureKind::Internal,
    };
    Failure::new(kind, format!("[hermes-agent error] the answer could not be passed on: {}", error.message))
}
