//! What the engine promises, on real components.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "in tests a panic is the failure"
)]

mod cancelled;
mod chat_completions;
mod conformance;
mod contained;
mod contract;
mod hermes;
mod hermes_runs;
mod hostile;
mod loads;
mod plugin_callback;
mod reach;
mod runs;
mod sessions;
mod trace;
