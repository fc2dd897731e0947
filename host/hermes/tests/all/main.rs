//! What this crate promises, through its public surface.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod callbacks;
mod gateway;
mod hostile_home;
