//! The configuration of executors.
//!
//! The sections are shapes of `talaria.toml`, exactly as written, and part of its reference. [`Resolver`] makes an
//! [`Executor`] of a section: with its grant and its secrets, and with what its component is given by itself where that is
//! built in.
//!
//! | file | holds |
//! |---|---|
//! | `section` | `[executor.NAME]`, and the executor that becomes of it |
//! | `grant`, `secret` | `[executor.NAME.grant]`: what an executor may do |
//! | `builtin` | the components that ship with the host, and what they are given without being configured |
//! | `folder` | executors that are dropped into a folder |
//! | `standalone` | one executor without the rest, for a command that tries it |
//! | `rule` | `[[route]]`: which executor takes which messages |
//! | `name` | names of executors, and references to components |

mod builtin;
mod folder;
mod grant;
mod name;
mod rule;
mod secret;
mod section;
mod standalone;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use talaria_engine::{EngineConfig, SessionKeys};

pub use builtin::{Builtin, Builtins, Preset, Settle};
pub use folder::{Files, Folder, Listing};
pub use grant::{Grant, GrantSection};
pub use name::{ComponentRef, ExecutorName, Fallback};
pub use rule::{Patterns, RouteRule, Weight};
pub use secret::SecretGrant;
pub use section::{Executor, ExecutorSection, FailMode, Resolver};
pub use standalone::standalone;

/// Everything that is configured about executors.
#[derive(Debug, Clone)]
pub struct Config {
    /// The executors of the main file, and built-in ones.
    pub fixed: BTreeMap<ExecutorName, Executor>,
    /// Where operators drop others, at any time.
    pub folder: Folder,
    /// Where the last good versions of executors are kept; `None` is nowhere.
    pub state: Option<PathBuf>,
    /// The executor that takes a turn when nothing else is said.
    pub default: ExecutorName,
    /// Whether a message may name its executor.
    pub caller_may_choose: bool,
    /// Which executor takes which messages, the first rule that fits.
    pub routes: Vec<RouteRule>,
    /// How often executors are probed again.
    pub probe_every: Duration,
    /// The WebAssembly engine.
    pub engine: EngineConfig,
    /// The session variables that executors are given.
    pub session_keys: SessionKeys,
    /// How components are pulled.
    pub oci: talaria_oci::Options,
    /// Whether there is a callback listener, or would be in a host that serves.
    pub takes_callbacks: bool,
    /// The components that ship with the host.
    pub builtins: Builtins,
}
