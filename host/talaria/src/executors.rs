//! The executors of this host: loaded, probed, and chosen from.
//!
//! A component that is refused is named, and the host goes on with the others; only the default executor must be
//! there, since without it no turn can be taken. An upstream that is down refuses nothing: the executor is loaded, not
//! ready, and its turns say so.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use talaria_egress::{Access, Bounds, Egress};
use talaria_engine::{Component, Engine, EngineConfig, Limits, Spec, Stage, with_defaults};
use talaria_turns::{Executor as _, FailureKind, Message, Principal, Route};
use tracing::{info, warn};

use crate::config::{ComponentRef, Config, Executor, ExecutorName};

/// The built-in components, by the name after `builtin:`.
const BUILTIN: [(&str, &[u8]); 4] = [
    ("chat-completions", include_bytes!("../../../guests/dist/chat-completions.wasm")),
    ("conformance", include_bytes!("../../../guests/dist/conformance.wasm")),
    ("hermes", include_bytes!("../../../guests/dist/hermes.wasm")),
    ("hermes-runs", include_bytes!("../../../guests/dist/hermes-runs.wasm")),
];

/// What a message's metadata names an executor with.
const CHOICE: &str = "talaria/executor";

/// The executors that take turns, and those that were refused.
pub(crate) struct Executors {
    loaded: BTreeMap<ExecutorName, Loaded>,
    refused: BTreeMap<ExecutorName, String>,
    default: ExecutorName,
    caller_may_choose: bool,
}

/// An executor that takes turns.
pub(crate) struct Loaded {
    pub(crate) executor: Arc<talaria_engine::Executor>,
    pub(crate) readiness: Readiness,
}

/// What the probe said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state", content = "reason")]
pub(crate) enum Readiness {
    /// It can reach what it needs.
    Ready,
    /// It cannot; its turns say so.
    NotReady(String),
}

/// No turn could be taken.
#[derive(Debug, thiserror::Error)]
#[error("the default executor `{name}` was refused: {reason}")]
pub(crate) struct NoDefault {
    name: ExecutorName,
    reason: String,
}

// === impl Executors ===

impl Executors {
    /// Loads and probes every executor of the configuration. `report` hears of what takes a while.
    pub(crate) async fn load(config: &Config, report: &(dyn Fn(String) + Sync)) -> anyhow::Result<Self> {
        let engine = Engine::new(
            &EngineConfig {
                slots: config.engine.slots.get(),
                scripted_slots: config.engine.scripted_slots.get(),
                cache_dir: config.engine.cache_dir.clone(),
            },
            Egress::new(talaria_egress::Config::default()),
        )?;
        let mut executors = Self {
            loaded: BTreeMap::new(),
            refused: BTreeMap::new(),
            default: config.default_executor.clone(),
            caller_may_choose: config.caller_may_choose,
        };
        for (name, executor) in &config.executors {
            match load(&engine, executor, report).await {
                Ok(loaded) => {
                    match &loaded.readiness {
                        Readiness::Ready => info!(executor = name.as_str(), "executor ready"),
                        Readiness::NotReady(reason) => {
                            warn!(executor = name.as_str(), reason, "executor not ready")
                        }
                    }
                    executors.loaded.insert(name.clone(), loaded);
                }
                Err(reason) => {
                    warn!(executor = name.as_str(), reason, "executor refused");
                    executors.refused.insert(name.clone(), reason);
                }
            }
        }
        Ok(executors)
    }

    /// Itself, if it can take turns.
    pub(crate) fn with_default(self) -> Result<Self, NoDefault> {
        match self.refused.get(&self.default) {
            Some(reason) => Err(NoDefault { name: self.default, reason: reason.clone() }),
            None => Ok(self),
        }
    }

    /// Those that take turns.
    pub(crate) fn loaded(&self) -> impl Iterator<Item = (&ExecutorName, &Loaded)> {
        self.loaded.iter()
    }

    /// Those that were refused, and why.
    pub(crate) fn refused(&self) -> impl Iterator<Item = (&ExecutorName, &str)> {
        self.refused.iter().map(|(name, reason)| (name, reason.as_str()))
    }

    /// The one that takes a turn when nothing else is said.
    pub(crate) fn default_name(&self) -> &ExecutorName {
        &self.default
    }
}

impl Route for Executors {
    fn pick(&self, _: &Principal, message: &Message) -> Result<Arc<dyn talaria_turns::Executor>, String> {
        let choice = message.metadata.as_ref().and_then(|metadata| metadata.get(CHOICE));
        let found = match choice {
            None => self.named(self.default.as_str()),
            Some(_) if !self.caller_may_choose => {
                return Err(format!(
                    "metadata[\"{CHOICE}\"] is not allowed: callers may not choose the executor here"
                ));
            }
            Some(choice) => {
                let name = choice.as_str().ok_or_else(|| format!("metadata[\"{CHOICE}\"] must be a text"))?;
                self.named(name)
            }
        };
        match found {
            Some(executor) => Ok(executor),
            None => {
                let known: Vec<_> = self.loaded.keys().map(ExecutorName::as_str).collect();
                Err(format!(
                    "metadata[\"{CHOICE}\"] names no executor of this host; it has {}",
                    known.join(", ")
                ))
            }
        }
    }

    fn named(&self, name: &str) -> Option<Arc<dyn talaria_turns::Executor>> {
        let found = self.loaded.values().find(|loaded| loaded.executor.name() == name)?;
        Some(Arc::clone(&found.executor) as _)
    }
}

/// Loads and probes one. The error says why it takes no turns.
async fn load(
    engine: &Engine,
    config: &Executor,
    report: &(dyn Fn(String) + Sync),
) -> Result<Loaded, String> {
    let wasm = read(&config.component)?;
    let component = Component::load(engine, wasm, |stage| match stage {
        Stage::Compiling { bytes } => {
            report(format!("compiling {} ({} KiB, the first time only)", config.name.as_str(), bytes >> 10));
        }
        Stage::Compiled { took } => {
            report(format!("compiled {} in {:.1} s", config.name.as_str(), took.as_secs_f64()));
        }
    })
    .await
    .map_err(|error| format!("{}: {error}", Source(&config.component)))?;
    let schema = serde_json::from_str(&component.description().settings_schema).unwrap_or_default();
    let executor = talaria_engine::Executor::new(Spec {
        name: config.name.as_str().to_owned(),
        settings: with_defaults(&schema, &config.settings),
        component: Arc::new(component),
        access: Arc::new(Access {
            executor: config.name.as_str().to_owned(),
            patterns: config.grant.egress.clone(),
            secrets: config.grant.secrets.clone(),
            bounds: Bounds { timeout: config.deadline, ..Bounds::default() },
        }),
        limits: Limits {
            deadline: config.deadline,
            memory: usize::try_from(config.grant.memory.bytes()).unwrap_or(usize::MAX),
            concurrency: usize::try_from(config.concurrency.get()).unwrap_or(usize::MAX),
            ..Limits::default()
        },
    });
    let readiness = match executor.setup().await {
        Ok(()) => Readiness::Ready,
        Err(failure) => match failure.kind {
            FailureKind::InvalidSettings | FailureKind::Internal => {
                return Err(format!("{}: setup failed: {}", Source(&config.component), failure.message));
            }
            FailureKind::Upstream
            | FailureKind::Denied
            | FailureKind::TimedOut
            | FailureKind::Busy
            | FailureKind::Cancelled
            | FailureKind::InvalidTurn => Readiness::NotReady(failure.message),
        },
    };
    Ok(Loaded { executor: Arc::new(executor), readiness })
}

fn read(component: &ComponentRef) -> Result<Arc<[u8]>, String> {
    match component {
        ComponentRef::Builtin(name) => BUILTIN
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, bytes)| Arc::from(*bytes))
            .ok_or_else(|| format!("builtin:{name}: there is no such component")),
        ComponentRef::File(path) => read_file(path).map_err(|error| format!("{}: {error}", path.display())),
    }
}

fn read_file(path: &Path) -> std::io::Result<Arc<[u8]>> {
    std::fs::read(path).map(Into::into)
}

/// Where a component comes from, for people.
struct Source<'a>(&'a ComponentRef);

impl fmt::Display for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ComponentRef::Builtin(name) => write!(f, "builtin:{name}"),
            ComponentRef::File(path) => write!(f, "{}", path.display()),
        }
    }
}

impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("ready"),
            Self::NotReady(reason) => write!(f, "not ready: {reason}"),
        }
    }
}
