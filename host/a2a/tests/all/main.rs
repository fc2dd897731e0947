//! Tests of the server over real sockets.
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
mod cancel;
mod card;
mod connections;
mod cors;
mod detached;
mod doors;
mod extensions;
mod follow;
mod grpc;
mod grpc_kit;
mod grpc_rejected;
mod grpc_v03;
mod kit;
mod list;
mod memory;
mod no_memory;
mod push;
mod rejected;
mod rest;
mod rest_v03;
mod script;
mod sse;
mod stream_end;
mod stream_forms;
mod streaming;
mod tenants;
mod wire;
