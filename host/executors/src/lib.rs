//! The life of an executor: load it, probe it, swap it while turns run, roll it back, take it out of service, route to it.
//!
//! Each name has a [`TableEntry`]: the version in service, and what is known of a newer one that is not. Entries are
//! replaced, never changed, in a table that is read without a lock. A turn holds the version that it began with; an old
//! version is dropped with its last turn.
//!
//! A version that is refused is named, and the host goes on with what it has; only the default executor must load at the
//! start, because without it no turn can be accepted. If the upstream is down the executor still loads, marked not ready:
//! its turns fail with that reason, or its fallback takes them.
//!
//! This crate knows no product: which components ship with the host, and what each is given by the environment, comes in
//! as a value ([`Builtin`]).
//!
//! | file | holds |
//! |---|---|
//! | `config` | the sections of `talaria.toml` about executors; grants; built-in components |
//! | `executors` | all executors: how they are loaded, maintained and picked |
//! | `table` | the executors at one moment |
//! | `change`, `change_lock` | every change of the table: at the start, from the folder, after probes and faults |
//! | `observer` | what is reported to those who count |
//! | `operator` | the changes that an operator makes |
//! | `watch` | what changed in the executors folder |
//! | `loaded` | one version: how it is loaded, whether it is ready |
//! | `quarantine` | after how many faults a version is taken out of service, and when it is tried again |
//! | `versions` | the last good versions, on disk |
//! | `audit` | who changed what |
//! | `input` | the media types that a version takes |
//! | `needs` | what a component needs, compared with its grant |
//! | `tools` | the tools of a grant, compared with those of the host |
//! | `suggested` | settings that a workspace suggests |
//! | `route` | which executor takes a message, and why |
#![forbid(unsafe_code)]

mod audit;
mod change;
mod change_lock;
pub mod config;
mod executors;
mod input;
mod loaded;
pub mod needs;
mod observer;
mod operator;
mod quarantine;
pub mod route;
mod suggested;
mod table;
mod tools;
mod versions;
mod watch;

pub use audit::{Entry, What, Who};
pub use change::Taken;
pub use config::{
    Builtin, Builtins, ComponentRef, Config, Executor, ExecutorName, FailMode, Fallback, Grant, Preset,
};
pub use executors::{Executors, NoDefault, Services, Variables};
pub use input::InputModes;
pub use loaded::{LoadedExecutor, Loader, Readiness};
pub use observer::ExecutorObserver;
pub use operator::{NotChanged, Upload};
pub use table::{Table, TableEntry};
pub use versions::KeptVersion;
