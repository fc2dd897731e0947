//! What the outside gets to see: logs, metrics, and the redaction that every outgoing text passes.
//!
//! - [`scrub()`] takes out what looks like a secret, by rules.
//! - [`Redactor`] also takes out the secrets that are known by value; [`RedactorStream`] does the same for text that
//!   arrives in pieces.
//! - [`logs::init`] sends events to stderr, each line scrubbed.
//! - [`tap()`] gives events to a command that shows them itself.
//! - [`metrics`] are numbers for Prometheus, with no word of what was said.

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
