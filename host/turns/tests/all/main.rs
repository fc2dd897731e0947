//! The promises of the service, tested on the memory store.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "in tests a panic is the failure"
)]

mod kit;

mod accepted;
mod cancel;
mod computing;
mod ends;
mod follow_up;
mod held;
mod history;
mod hops;
mod late;
mod memory;
mod push;
mod readers;
mod repeated;
mod restart;
mod shares;
mod strangers;
