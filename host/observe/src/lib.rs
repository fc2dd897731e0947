//! Logs and metrics.
//!
//! - [`logs::init`] writes events to stderr, each redacted and on one line.
//! - [`tap()`] passes events to a command that displays them itself.
//! - [`metrics`] are numbers for Prometheus, without any content of messages.

#![forbid(unsafe_code)]

pub mod logs;
pub mod metrics;
mod one_line;
mod tap;

pub use tap::{Line, tap};
