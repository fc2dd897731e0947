//! Where tasks and their events live.
//!
//! [`Memory`] is for demos, tests and hosts that may forget. Every store passes the same tests, in `suite`.
#![forbid(unsafe_code)]

mod memory;
#[cfg(test)]
mod suite;

pub use memory::Memory;
