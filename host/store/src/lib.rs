//! Where tasks and their events live.
//!
//! [`Sqlite`] is for hosts that keep what they accepted; [`Memory`] for demos, tests and hosts that may forget. Every
//! store passes the same tests, in `suite`.
#![forbid(unsafe_code)]

mod memory;
mod sqlite;
#[cfg(test)]
mod suite;

pub use memory::Memory;
#[cfg(fuzzing)]
#[doc(hidden)]
pub use sqlite::fuzz;
pub use sqlite::{Config as SqliteConfig, OpenError, Sqlite, Synchronous};

/// The number in the log of all tasks that an event has, by its append and its place there. Both stores count alike, and
/// JavaScript can hold the numbers of 137 billion appends.
fn number(append: u64, place: usize) -> u64 {
    (append << PLACES) | (place as u64).min((1 << PLACES) - 1)
}

/// The append that a number belongs to.
fn append_of(number: u64) -> u64 {
    number >> PLACES
}

/// Bits of a number that tell the place within an append.
const PLACES: u32 = 16;
