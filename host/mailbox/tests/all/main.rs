//! What the mailbox promises, through its public surface.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod durable;
mod kit;
mod late;
mod posts;
mod signed;
mod waits;
