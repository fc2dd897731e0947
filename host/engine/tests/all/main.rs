//! The engine's promises, tested with real components.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "in tests a panic is the failure"
)]

mod cancelled;
mod contained;
mod contract;
mod hostile;
mod loads;
mod reach;
mod runs;
mod sessions;
mod tools;
mod workers;
