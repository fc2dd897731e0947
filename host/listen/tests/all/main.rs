//! Connections over real sockets.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "in tests a panic is the failure"
)]

mod stalled;
mod workers;
