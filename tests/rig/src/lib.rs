//! Parts of the product in isolation, for tests and benchmarks.
//!
//! [`Rig`] is an executor without a server: a component, its settings and its grant, on a store in memory. [`MailHost`] is
//! a mailbox with its listener. They need the engine, and with it wasmtime; what needs neither is in `talaria-fakes`.
//!
//! Everything here fails by panicking, with a sentence that says what is wrong.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support: a panic is a failed test"
)]

mod logged;
mod mail;
mod rig;
mod tools;
mod trace;

pub use logged::Logged;
pub use mail::MailHost;
pub use rig::{Ran, Rig};
pub use talaria_observe::logs::Format;
pub use tools::FakeTools;
pub use trace::Trace;
