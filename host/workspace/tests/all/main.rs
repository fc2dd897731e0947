//! Tests of a workspace's session with a platform, including one that misbehaves.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "in tests a panic is the failure"
)]

mod delegations;
mod heartbeat;
mod kit;
mod nonsense;
mod toolbox;
mod tools;
