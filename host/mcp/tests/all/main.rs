//! The client of servers of tools, against a scripted server and against our own.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "in tests a panic is the failure"
)]

mod kit;

mod answers;
mod bounds;
mod calls;
mod list;
mod own_server;
mod secrets;
