//! All that knows hermes-agent and the environment of the Python bridge that Talaria replaces.
//!
//! The core crates name no product: they take what is particular to hermes-agent as a value or a trait from here, and the
//! binary hands it over. To support another agent gateway, write a crate beside this one.
//!
//! | module | knows |
//! |---|---|
//! | `wire` | how the platform plugin of hermes-agent posts callbacks |
//! | `gateway` | how the gateway is prepared, started and kept running |
//! | `session` | the metadata keys that set session variables |
#![forbid(unsafe_code)]

pub mod gateway;
mod session;
mod wire;

pub use session::SESSION_KEYS;
pub use wire::{CALLBACK_PATH, HermesWire};
