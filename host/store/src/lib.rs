//! The stores of tasks and their events.
//!
//! [`Sqlite`] is for hosts whose tasks must survive a restart; [`Memory`] is for demos, tests and hosts whose tasks need
//! not. Both pass the same tests, in `suite`.
#![forbid(unsafe_code)]

mod memory;
mod sqlite;
#[cfg(test)]
mod suite;

pub use memory::Memory;
#[cfg(fuzzing)]
#[doc(hidden)]
pub use sqlite::fuzz;
pub use sqlite::{
    Checked, Config as SqliteConfig, Copied, CopyError, OpenError, Owner, Progress, Restored, Sqlite,
    Synchronous, backup, check, restore, try_write,
};

/// Returns the number of an event in the log of all tasks, from the number of its append and its index there. Both stores
/// count alike, and JavaScript can represent the numbers of 137 billion appends.
fn number(append: u64, place: usize) -> u64 {
    (append << PLACES) | (place as u64).min((1 << PLACES) - 1)
}

/// Returns the append that a number belongs to.
fn append_of(number: u64) -> u64 {
    number >> PLACES
}

/// The bits of a number for the index within an append.
const PLACES: u32 = 16;
