//! Every executor against the real hermes-agent: the real gateway, the real binary, and a scripted model.
//!
//! The first run installs hermes-agent; `docs/hermes.md` has the observations.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "in tests a panic is the failure"
)]

#[allow(dead_code, reason = "the tests in e2e use the rest of it")]
#[path = "../e2e/bridge.rs"]
mod bridge;
mod cases;
mod gateway;
mod partner;
mod relay;
mod stream;

mod chat_completions;
mod hermes;
mod hermes_runs;
mod long_text;
mod plugin_callback;
mod plugin_wire;
mod supervised;
mod team;
mod tool_servers;
mod tools;
