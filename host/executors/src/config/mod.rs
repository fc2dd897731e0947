//! The configuration of executors.
//!
//! The sections have the shape of `talaria.toml`, exactly as written, and are part of its reference. A [`Resolver`] makes an
//! [`Executor`] from a section: with its grant, its secrets, and the preset of its component if that is built in.
//!
//! | file | holds |
//! |---|---|
//! | `section` | `[executor.NAME]`, and the executor that it configures |
//! | `grant`, `secret` | `[executor.NAME.grant]`: what an executor may do |
//! | `builtin` | the components that ship with the host, and their presets |
//! | `folder` | the executors folder |
//! | `standalone` | one executor by itself, for `talaria executor test` |
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

use talaria_engine::{Claims, EngineConfig, SessionKeys};
use talaria_redact::Replies;

pub use builtin::{Builtin, Builtins, Preset, Settle};
pub use folder::{Files, Folder, Listing};
pub use grant::{Grant, GrantSection};
pub use name::{ComponentRef, ExecutorName, Fallback};
pub use rule::{Patterns, RouteRule, Weight};
pub use secret::SecretGrant;
pub use section::{Executor, ExecutorSection, FailMode, Resolver};
pub use standalone::standalone;

/// The configuration of all executors of a host.
#[derive(Debug, Clone)]
pub struct Config {
    /// The executors of the main file, and built-in ones.
    pub fixed: BTreeMap<ExecutorName, Executor>,
    /// The folder where operators add others at any time.
    pub folder: Folder,
    /// The folder for the last good versions and the audit log; `None` to store neither.
    pub state: Option<PathBuf>,
    /// The executor that takes a turn if no rule applies.
    pub default: ExecutorName,
    /// Whether a message may name its executor.
    pub caller_may_choose: bool,
    /// The rules; the first that matches a message picks its executor.
    pub routes: Vec<RouteRule>,
    /// How often executors are probed.
    pub probe_every: Duration,
    /// The WebAssembly engine.
    pub engine: EngineConfig,
    /// How their calls leave this host.
    pub egress: talaria_egress::Config,
    /// The session variables that executors are given.
    pub session_keys: SessionKeys,
    /// The metadata keys that executors see only from callers that are believed.
    pub claims: Claims,
    /// What is redacted in their replies.
    pub replies: Replies,
    /// How to pull components from registries.
    pub oci: talaria_oci::Options,
    /// Whether there is a callback listener, or would be in a host that serves.
    pub takes_callbacks: bool,
    /// The components that ship with the host.
    pub builtins: Builtins,
}
