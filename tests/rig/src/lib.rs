//! Parts of the product without the rest around them.
//!
//! [`Rig`] is an executor without a server: a component, its settings and its grant, on a store in memory. [`MailHost`] is
//! a mailbox with its listener. They need the engine, and with it wasmtime; what needs neither is in `talaria-fakes`.
//!
//! Everything here fails by panicking, with a sentence about what the test lacks.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support: a panic is a failed test"
)]

mod mail;
mod rig;
mod trace;

pub use mail::MailHost;
pub use rig::{Ran, Rig};
pub use trace::Trace;
