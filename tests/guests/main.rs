//! The promises of the built-in executors. Each is loaded as the component in `guests/dist` and talks to a fake
//! upstream.
//!
//! Logic that needs no host is tested natively, beside the guests' sources; the engine's own promises are in
//! `host/engine/tests`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "in tests a panic is the failure"
)]

mod a2a;
mod chat_completions;
mod components;
mod conformance;
mod contract;
mod hermes;
mod hermes_runs;
mod memory;
mod plugin_callback;
