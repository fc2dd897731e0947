//! The WebAssembly host: the only crate that names wasmtime.
//!
//! It loads components that fit the contract in `wit/`, and runs each turn in a fresh instance, under a deadline, a CPU
//! budget and a memory limit. A turn is a future: dropping it ends the guest wherever it waits and releases everything
//! that it held (instance, connections, stack). Two turns never share an instance, since one trap would end both.
//!
//! A guest reaches only what `host` links: the imports of the contract, and a WASI 0.2 that is empty but for clocks and
//! random numbers.

mod cache;
mod compiler;
mod component;
mod contract;
mod convert;
mod executor;
mod host;
mod limits;
mod pending_calls;
mod pool;
mod schema;
mod session;
mod settings;
mod size;
mod transcript;

pub use cache::UntrustedFolder;
pub use compiler::{CompileLimits, Compiler, compile_if_child};
pub use component::{Component, LoadError, Stage};
pub use contract::bindings::talaria::executor::types::{Capabilities, Description, Needs};
pub use executor::{Executor, Fault, GrantedTools, Load, Sent, Spec};
pub use limits::{FOLDER, Limits, Wasi};
pub use pool::{Engine, EngineConfig, EngineError};
pub use schema::InvalidSettings;
pub use session::{Claims, SessionKeys};
pub use settings::{UnknownSetting, fill_in, refers_to};
pub use transcript::{Line, Page};

/// The contract that this host speaks, as the WIT package names it.
pub const CONTRACT: &str = "talaria:executor@0.1.0";
