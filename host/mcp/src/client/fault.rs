//! Why a server cannot be used: what happened, and what its operator can do. No word of it is a secret.

use std::fmt;
use std::time::Duration;

use talaria_egress::{Error, ErrorKind};

use super::message::Refused;
use super::text::line;

/// Why a server cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What happened.
    pub what: String,
    /// What the operator can do.
    pub fix: String,
}

// === impl Fault ===

impl Fault {
    pub(crate) fn new(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what: what.into(), fix: fix.into() }
    }

    /// The server does not keep to the protocol.
    pub(crate) fn protocol(what: impl Into<String>) -> Self {
        Self::new(
            what,
            "check that `url` is the server's address for MCP over streamable HTTP, and its version",
        )
    }

    pub(crate) fn too_slow(limit: Duration) -> Self {
        let what = format!("it did not answer within {} s", limit.as_secs_f32());
        Self::new(what, "look at the server's log, or set a longer `timeout`")
    }

    /// The call failed on its way.
    pub(crate) fn of_call(error: &Error) -> Self {
        let fix = match error.kind() {
            ErrorKind::Denied => {
                let what = "its name leads to an address of this machine or of a private network";
                return Self::new(what, "write the address into `url`, or set `private = true`");
            }
            ErrorKind::Dns | ErrorKind::Connect => "check that the server runs, and its `url`",
            ErrorKind::Tls => "check the server's certificate; `egress.ca` adds an authority",
            ErrorKind::TimedOut => "look at the server's log, or set a longer `timeout`",
            ErrorKind::TooLarge => "choose tools that answer with less, or have the server page its answers",
            ErrorKind::InvalidRequest => "check `headers` and the arguments of the call",
            ErrorKind::Protocol => return Self::protocol(line(error.message())),
        };
        Self::new(line(error.message()), fix)
    }

    /// The answer has a status other than success. `body` is the beginning of its body.
    pub(crate) fn of_status(status: u16, body: &[u8]) -> Self {
        let reason = Refused::in_document(body).map(|refused| format!(": {}", line(&refused.reason)));
        let what = format!("it answered {status}{}", reason.unwrap_or_default());
        let fix = match status {
            300..=399 => "redirects are not followed; write the address that it points to into `url`",
            401 | 403 | 407 => "check `token` and `headers`",
            404 | 405 => "check the path in `url`; it must take POST, as MCP over streamable HTTP does",
            429 => "wait, or ask for a higher limit there",
            500.. => "look at the server's log",
            _ => return Self::protocol(what),
        };
        Self::new(what, fix)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}
