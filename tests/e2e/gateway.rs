//! A gateway process for a bridge to supervise.

/// A Python program that reads its port and its key where hermes-agent does, is healthy, and answers every message with
/// [`ANSWER`]. If its home holds a file `fail`, it exits at once.
pub(crate) const SCRIPT: &str = include_str!("gateway.py");

/// Its answer to every message.
pub(crate) const ANSWER: &str = "still here";
