//! The stores of tasks and their events.
//!
//! [`Sqlite`] is for hosts whose tasks must survive a restart; [`Memory`] is for demos, tests and hosts whose tasks need
//! not. Both pass the same tests, in `suite`.
#![forbid(unsafe_code)]

mod counts;
mod memory;
mod sqlite;
#[cfg(test)]
mod suite;

pub use memory::Memory;
#[cfg(fuzzing)]
#[doc(hidden)]
pub use sqlite::fuzz;
pub use sqlite::{
    Checked, Config as SqliteConfig, Copied, CopyError, OpenError, Operation, Owner, Progress, Restored,
    Sqlite, StoreObserver, Synchronous, backup, check, restore, try_write,
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

/// Says that a store has reached its largest size.
fn full(size: u64, max: u64) -> String {
    let (size, max) = (size_text(size), size_text(max));
    format!(
        "it holds {size} of at most {max}, and the rest is for turns under way; raise `store.max_size` or lower \
         `store.keep_for`"
    )
}

/// Prints a size for people, such as `9.5 GiB`.
fn size_text(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0..0x10_0000 => (1 << 10, "KiB"),
        0x10_0000..0x4000_0000 => (1 << 20, "MiB"),
        _ => (1 << 30, "GiB"),
    };
    let tenths = u128::from(bytes) * 10 / unit;
    format!("{}.{} {name}", tenths / 10, tenths % 10)
}
