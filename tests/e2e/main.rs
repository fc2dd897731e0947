//! The whole product: the real binary, real components, real sockets.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "in tests a panic is the failure"
)]

mod bridge;

mod bad_configuration;
mod check;
mod components;
mod crash;
mod demo;
mod drain;
mod durable;
mod first_executor;
mod hermes;
mod hermes_runs;
mod seeds;
mod send;
mod tokens;
