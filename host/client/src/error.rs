//! Why a call to an agent failed.

use std::time::Duration;

use serde_json::Value;
use talaria_egress::Response;

use crate::card::Protocol;
use crate::printable::Printable;

/// Characters of an unexpected response body that an error quotes.
const EXCERPT: usize = 300;

/// Why a call to an agent failed. The messages name no command line flag: the caller knows the way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The address or token that the caller gave cannot be used.
    #[error("{0}")]
    InvalidInput(String),
    /// The agent has no card at any of the known paths.
    #[error("there is no agent card at {card}; is `{agent}` the address of an A2A agent?")]
    NoCard {
        /// The first path that was tried.
        card: String,
        /// The address that the caller gave.
        agent: String,
    },
    /// The agent offers only bindings or versions that this client does not speak.
    #[error("the agent offers {offered} only; this client speaks A2A 1.0 and 0.3 over JSON-RPC")]
    NoCommonInterface {
        /// What the card lists, like `GRPC 1.0`.
        offered: String,
    },
    /// The agent does not offer the requested protocol version.
    #[error("the agent does not offer A2A {}; it offers {}", .wanted.as_str(), .newest.as_str())]
    VersionNotOffered {
        /// The version that the caller asked for.
        wanted: Protocol,
        /// The newest version that the agent offers.
        newest: Protocol,
    },
    /// The agent's card says that it does not stream.
    #[error("the agent does not stream, as its card says")]
    NoStreaming,
    /// The card names an address at another origin, and the token must not go there.
    #[error(
        "the card names {url} as the agent's address, and the token goes to `{agent}` only; if you trust that address, give it instead"
    )]
    ForeignAddress {
        /// The address in the card.
        url: String,
        /// The address that the caller gave.
        agent: String,
    },
    /// The agent responded with an HTTP status other than 200.
    #[error("{url} answered with HTTP {status}{excerpt}")]
    Status {
        /// The address that responded.
        url: String,
        /// The HTTP status.
        status: u16,
        /// Whether the request carried a token.
        with_token: bool,
        /// The start of the body, ready to append; may be empty.
        excerpt: String,
    },
    /// The turn was not over within the caller's time limit.
    #[error("no reply within {}; the turn may still go on", humantime::format_duration(*.limit))]
    TimedOut {
        /// The time limit.
        limit: Duration,
    },
    /// The agent cannot be reached, or what it sent is not A2A.
    #[error("{0}")]
    Agent(String),
    /// The agent responded with a JSON-RPC error.
    #[error("the agent refused: {message} ({code})")]
    Rejected {
        /// The JSON-RPC error code.
        code: i64,
        /// The agent's message.
        message: String,
        /// The whole error object.
        error: Value,
    },
}

// === impl ClientError ===

impl ClientError {
    /// Whether the same request may succeed later: the fault is neither in the caller's input nor the agent's decision.
    pub fn is_transient(&self) -> bool {
        !matches!(self, Self::InvalidInput(_) | Self::Rejected { .. })
    }
}

/// The start of an unexpected response body, on a line of its own and safe for a terminal.
pub(crate) fn excerpt(response: &Response) -> String {
    let text = String::from_utf8_lossy(&response.body);
    let text: String = text.trim().chars().take(EXCERPT).collect();
    match text.is_empty() {
        true => String::new(),
        false => format!(":\n{}", Printable(&text)),
    }
}
