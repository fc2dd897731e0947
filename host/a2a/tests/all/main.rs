//! What the server promises, over real sockets.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on says so by panicking"
)]

mod auth;
mod bad_input;
mod both_versions;
mod card;
mod connections;
mod detached;
mod kit;
