//! All that knows hermes-agent and the environment of the Python bridge that Talaria replaces.
//!
//! The core crates name no product: they take what is particular to hermes-agent as a value or a trait from here, and the
//! binary hands it over. To support another agent gateway, write a crate beside this one.
//!
//! | module | knows |
//! |---|---|
//! | `env` | the environment variables of the Python bridge |
//! | `builtins`, `plugin` | what the environment gives to the components that ship |
//! | `wire` | how the platform plugin of hermes-agent posts callbacks |
//! | `session` | the metadata keys that set session variables |
//! | `gateway` | how the gateway is configured, prepared, started and kept running |
//! | `doctor` | what can be wrong with the gateway, and the fixes |
//! | `demo` | a gateway for trying Talaria out, in this process |
#![forbid(unsafe_code)]

mod builtins;
pub mod demo;
pub mod doctor;
mod env;
pub mod gateway;
mod plugin;
mod session;
mod wire;

pub use builtins::{CHAT_COMPLETIONS, builtins, point_at};
pub use env::BridgeEnv;
pub use plugin::{PLUGIN_CALLBACK, SHARED_SECRET};
pub use session::{PEER_KEYS, SESSION_KEYS};
pub use wire::{CALLBACK_PATH, HermesWire};
