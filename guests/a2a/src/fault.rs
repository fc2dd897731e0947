//! Why a request to the agent has no answer, and the texts that a caller reads for it.

use talaria_guest::{Failure, FailureKind, http};
use talaria_upstream::{cut, excerpt};

/// The characters of the agent's reason for a failure that a caller reads.
const REASON_CHARS: usize = 2_000;

/// A task that the agent does not know.
pub(crate) const TASK_NOT_FOUND: i64 = -32001;
/// A task that cannot be cancelled, because it is over.
pub(crate) const TASK_NOT_CANCELABLE: i64 = -32002;
/// What the agent does not do.
pub(crate) const UNSUPPORTED: i64 = -32004;

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The exchange failed.
    Http(http::Error),
    /// A status that is no success, without an error of the protocol. Redirects are among them.
    Status { status: u16, text: String, location: Option<String> },
    /// The agent refused the request: it did nothing.
    Refused { code: i64, message: String },
    /// An answer that cannot be used.
    Nonsense(String),
}

impl Fault {
    /// Whether the agent said that it does not know the task.
    pub(crate) fn is_no_task(&self) -> bool {
        matches!(self, Self::Refused { code: TASK_NOT_FOUND, .. })
    }

    /// Whether the agent said that the task is over, or does not know it.
    pub(crate) fn is_over(&self) -> bool {
        self.is_no_task() || matches!(self, Self::Refused { code: TASK_NOT_CANCELABLE, .. })
    }

    /// Whether the agent said that it does not do this.
    pub(crate) fn is_unsupported(&self) -> bool {
        matches!(self, Self::Refused { code: UNSUPPORTED, .. })
    }

    /// Whether the same question may be answered a little later: the agent is away or busy.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Http(error) => !matches!(
                error.kind,
                http::ErrorKind::Denied
                    | http::ErrorKind::InvalidRequest
                    | http::ErrorKind::TooLarge
                    | http::ErrorKind::Cancelled
                    | http::ErrorKind::Unsupported
            ),
            Self::Status { status, .. } => matches!(status, 408 | 425 | 429 | 500..=599),
            Self::Refused { .. } | Self::Nonsense(_) => false,
        }
    }

    /// Whether our caller cancelled the turn.
    pub(crate) fn is_cancelled(&self) -> bool {
        matches!(self, Self::Http(http::Error { kind: http::ErrorKind::Cancelled, .. }))
    }
}

impl From<http::Error> for Fault {
    fn from(error: http::Error) -> Self {
        Self::Http(error)
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        let retryable = fault.is_passing();
        let (kind, message) = match fault {
            Fault::Http(error) => {
                let kind = match error.kind {
                    http::ErrorKind::Denied => FailureKind::Denied,
                    http::ErrorKind::TimedOut => FailureKind::TimedOut,
                    http::ErrorKind::Cancelled => FailureKind::Cancelled,
                    _ => FailureKind::Upstream,
                };
                (kind, format!("[agent unreachable] {}", error.message))
            }
            Fault::Status { status, location: Some(location), .. } => (
                FailureKind::Upstream,
                format!(
                    "[agent error {status}] it redirects to {}, and redirects are not followed; set `url` to where \
                     the agent is",
                    excerpt(&location)
                ),
            ),
            Fault::Status { status: status @ (401 | 403), .. } => (
                FailureKind::Upstream,
                format!(
                    "[agent error {status}] it wants a token, or another one: set the secret that `token` names"
                ),
            ),
            Fault::Status { status, text, .. } => (
                FailureKind::Upstream,
                format!("[agent error {status}] {}", excerpt(&text)).trim_end().to_owned(),
            ),
            Fault::Refused { code, message } => {
                (FailureKind::Upstream, format!("[agent error {code}] {}", excerpt(&message)))
            }
            Fault::Nonsense(why) => (FailureKind::Upstream, format!("[agent error] {why}")),
        };
        Self { retryable, ..Self::new(kind, message) }
    }
}

/// A failure of ours with this text.
pub(crate) fn error(why: &str) -> Failure {
    Failure::new(FailureKind::Upstream, format!("[agent error] {why}"))
}

/// The failure of a task that the agent failed: its reason, or that it gave none.
pub(crate) fn reason(text: &str, otherwise: &str) -> Failure {
    let text = text.trim();
    if text.is_empty() {
        error(otherwise)
    } else {
        Failure::new(FailureKind::Upstream, cut(text, REASON_CHARS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_reads_as_a_sentence_with_its_fix() {
        let http = |kind| Fault::Http(http::Error { kind, message: "why".into() });
        let status = |status, text: &str, location: Option<&str>| Fault::Status {
            status,
            text: text.into(),
            location: location.map(str::to_owned),
        };
        for (fault, text, retryable) in [
            (http(http::ErrorKind::Connect), "[agent unreachable] why", true),
            (http(http::ErrorKind::Denied), "[agent unreachable] why", false),
            (status(502, "<html>", None), "[agent error 502] <html>", true),
            (status(404, "", None), "[agent error 404]", false),
            (
                status(401, "no", None),
                "[agent error 401] it wants a token, or another one: set the secret that `token` names",
                false,
            ),
            (
                status(307, "", Some("http://other/")),
                "[agent error 307] it redirects to http://other/, and redirects are not followed; set `url` to where the \
                 agent is",
                false,
            ),
            (
                Fault::Refused { code: -32602, message: "message is required".into() },
                "[agent error -32602] message is required",
                false,
            ),
            (Fault::Nonsense("no JSON".into()), "[agent error] no JSON", false),
        ] {
            let failure = Failure::from(fault);
            assert_eq!((failure.message.as_str(), failure.retryable), (text, retryable));
        }
    }

    #[test]
    fn the_agents_reason_is_what_the_caller_reads() {
        assert_eq!(reason(" no model \n", "x").message, "no model");
        assert_eq!(reason("", "it said nothing").message, "[agent error] it said nothing");
        assert_eq!(reason(&"ä".repeat(3_000), "x").message.chars().count(), REASON_CHARS);
    }
}
