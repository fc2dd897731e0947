//! The executors of this host: loaded, probed, and chosen from.
//!
//! A component that is refused is named, and the host goes on with the others; only the default executor must be
//! there, since without it no turn can be taken. An upstream that is down refuses nothing: the executor is loaded, not
//! ready, and its turns say so, or its fallback takes them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use futures_util::future::join_all;
use serde::Serialize;
use talaria_egress::{Access, Bounds, Egress};
use talaria_engine::{Component, Engine, EngineConfig, Limits, Spec, Stage, with_defaults};
use talaria_turns::{Callbacks, Executor as _, Failure, FailureKind, Message, Principal, Route, Workspaces};
use tracing::{info, warn};

use crate::config::{ComponentRef, Config, Executor, ExecutorName};

/// The built-in components, by the name after `builtin:`.
const BUILTIN: [(&str, &[u8]); 5] = [
    ("chat-completions", include_bytes!("../../../guests/dist/chat-completions.wasm")),
    ("conformance", include_bytes!("../../../guests/dist/conformance.wasm")),
    ("hermes", include_bytes!("../../../guests/dist/hermes.wasm")),
    ("hermes-runs", include_bytes!("../../../guests/dist/hermes-runs.wasm")),
    ("plugin-callback", include_bytes!("../../../guests/dist/plugin-callback.wasm")),
];

/// What a message's metadata names an executor with.
const CHOICE: &str = "talaria/executor";

/// The executors that take turns, and those that were refused.
pub(crate) struct Executors {
    loaded: BTreeMap<ExecutorName, Loaded>,
    refused: BTreeMap<ExecutorName, String>,
    /// Who takes whose turns while that one is not ready, or was refused.
    fallbacks: BTreeMap<ExecutorName, ExecutorName>,
    default: ExecutorName,
    caller_may_choose: bool,
}

/// An executor that takes turns.
pub(crate) struct Loaded {
    pub(crate) executor: Arc<talaria_engine::Executor>,
    /// What the last probe said.
    readiness: RwLock<Readiness>,
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
    /// Loads and probes every executor of the configuration. Those that are granted callbacks get them from `callbacks`.
    /// `report` hears of what takes a while.
    pub(crate) async fn load(
        config: &Config,
        callbacks: Option<Arc<dyn Callbacks>>,
        report: &(dyn Fn(String) + Sync),
    ) -> anyhow::Result<Self> {
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
            fallbacks: BTreeMap::new(),
            default: config.default_executor.clone(),
            caller_may_choose: config.caller_may_choose,
        };
        let workspaces = config.workspace.as_ref().map(|of| Arc::clone(&of.assembly) as Arc<dyn Workspaces>);
        for (name, executor) in &config.executors {
            if let Some(fallback) = &executor.fallback {
                executors.fallbacks.insert(name.clone(), fallback.clone());
            }
            let callbacks = callbacks.clone().filter(|_| executor.grant.callbacks);
            match load(&engine, executor, callbacks, workspaces.clone(), report).await {
                Ok(loaded) => {
                    loaded.readiness().log(name);
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
        let fallback = self.fallbacks.get(&self.default).and_then(|name| self.loaded.get(name));
        match self.refused.get(&self.default) {
            Some(reason) if fallback.is_none() => {
                Err(NoDefault { name: self.default, reason: reason.clone() })
            }
            _ => Ok(self),
        }
    }

    /// Probes all that take turns, beside each other, each within the bound of a setup.
    pub(crate) async fn probe(&self) {
        let probes = self.loaded.iter().map(async |(name, loaded)| {
            // A fault of the guest is no reason to drop one that took turns so far.
            let now = Readiness::of(loaded.executor.recheck().await);
            let mut known = loaded.readiness.write().unwrap_or_else(PoisonError::into_inner);
            // Another reason for the same trouble is no news.
            if std::mem::discriminant(&*known) != std::mem::discriminant(&now) {
                now.log(name);
            }
            *known = now;
        });
        join_all(probes).await;
    }

    /// The executor that takes the turns of this one now, and its name.
    pub(crate) fn stand_in<'a>(&'a self, name: &'a ExecutorName) -> Option<(&'a ExecutorName, &'a Loaded)> {
        let own = self.loaded.get(name).map(|loaded| (name, loaded));
        if own.is_some_and(|(_, loaded)| loaded.is_ready()) {
            return own;
        }
        let fallback = self.fallbacks.get(name).and_then(|name| Some((name, self.loaded.get(name)?)));
        match (own, fallback) {
            // Where neither is ready, the first one's answer is the honest one.
            (Some(_), Some((_, loaded))) if !loaded.is_ready() => own,
            (_, Some(fallback)) => Some(fallback),
            (own, None) => own,
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
            None => self.stand_in(&self.default),
            Some(_) if !self.caller_may_choose => {
                return Err(format!(
                    "metadata[\"{CHOICE}\"] is not allowed: callers may not choose the executor here"
                ));
            }
            Some(choice) => {
                let name = choice.as_str().ok_or_else(|| format!("metadata[\"{CHOICE}\"] must be a text"))?;
                name_of(name, &self.loaded).and_then(|name| self.stand_in(name))
            }
        };
        match found {
            Some((_, loaded)) => Ok(Arc::clone(&loaded.executor) as _),
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

fn name_of<'a>(text: &str, known: &'a BTreeMap<ExecutorName, Loaded>) -> Option<&'a ExecutorName> {
    known.keys().find(|name| name.as_str() == text)
}

/// Loads and probes one. The error says why it takes no turns.
async fn load(
    engine: &Engine,
    config: &Executor,
    callbacks: Option<Arc<dyn Callbacks>>,
    workspaces: Option<Arc<dyn Workspaces>>,
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
        callbacks,
    });
    let executor = match workspaces {
        Some(workspaces) => executor.in_workspace(workspaces),
        None => executor,
    };
    let setup = executor.setup().await;
    if let Err(Failure { kind: FailureKind::InvalidSettings | FailureKind::Internal, message, .. }) = &setup {
        return Err(format!("{}: setup failed: {message}", Source(&config.component)));
    }
    Ok(Loaded { executor: Arc::new(executor), readiness: RwLock::new(Readiness::of(setup)) })
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

// === impl Loaded ===

impl Loaded {
    /// What the last probe said.
    pub(crate) fn readiness(&self) -> Readiness {
        self.readiness.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn is_ready(&self) -> bool {
        *self.readiness.read().unwrap_or_else(PoisonError::into_inner) == Readiness::Ready
    }
}

// === impl Readiness ===

impl Readiness {
    fn of(probed: Result<(), Failure>) -> Self {
        match probed {
            Ok(()) => Self::Ready,
            Err(failure) => Self::NotReady(failure.message),
        }
    }

    fn log(&self, executor: &ExecutorName) {
        let executor = executor.as_str();
        match self {
            Self::Ready => info!(executor, "executor ready"),
            Self::NotReady(reason) => warn!(executor, reason, "executor not ready"),
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
