//! Logs, metrics, and the redaction of every text that leaves the host.
//!
//! - [`scrub()`] removes what looks like a secret, by rules.
//! - [`Redactor`] also removes the secrets that are known by value; [`RedactorStream`] does the same for text that arrives
//!   in pieces.
//! - [`logs::init`] writes events to stderr, each line scrubbed.
//! - [`tap()`] passes events to a command that displays them itself.
//! - [`metrics`] are numbers for Prometheus, without any content of messages.

#![forbid(unsafe_code)]

pub mod logs;
pub mod metrics;
mod redactor;
mod scrub;
mod stream;
mod tap;

pub use redactor::Redactor;
pub use scrub::scrub;
pub use stream::RedactorStream;
pub use tap::{Line, tap};
