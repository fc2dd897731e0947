//! The executors of this host: loaded, probed, swapped while turns run, and chosen from.
//!
//! Each name has a [`TableEntry`]: the version that takes its turns, and what is known of a newer one that does not. Seats are
//! replaced, never changed, in a table that whoever picks an executor reads without a lock. A turn holds the version that
//! it began with; the last turn of an old version takes it along.
//!
//! A version that is refused is named, and the host goes on with what it has; only the default executor must be there at
//! the start, since without it no turn can be taken. An upstream that is down refuses nothing: the executor is loaded, not
//! ready, and its turns say so, or its fallback takes them.
//!
//! | file | holds |
//! |---|---|
//! | `executors` | all of them: how they are loaded, looked after and picked from |
//! | `table` | who takes turns, at one moment |
//! | `config` | the sections of `talaria.toml` about executors |
//! | `route` | which executor takes a message |
//! | `needs` | what a component needs beside what it is granted |
//! | `change` | every change of a entry, one at a time: at the start, from the folder, after probes and crashes |
//! | `operator` | the changes that an operator asks for |
//! | `watch` | what is in the folder of executors, looked at every second |
//! | `loaded` | one version: how it is loaded, whether it is ready, how it has fared |
//! | `input` | the media types that a version takes |
//! | `faults` | when a version is in quarantine |
//! | `versions` | the last good versions, on disk |
//! | `audit` | who changed what |

#![forbid(unsafe_code)]

mod audit;
mod change;
mod change_lock;
pub mod config;
mod executors;
mod input;
mod loaded;
pub mod needs;
mod operator;
mod quarantine;
pub mod route;
mod table;
mod versions;
mod watch;

pub use audit::{Entry, What, Who};
pub use change::Taken;
pub use config::{
    Builtin, Builtins, ComponentRef, Config, Executor, ExecutorName, FailMode, Fallback, Grant, Preset,
};
pub use executors::{Executors, NoDefault, Services};
pub use input::InputModes;
pub use loaded::{LoadedExecutor, Loader, Readiness};
pub use operator::{NotChanged, Upload};
pub use table::{Table, TableEntry};
