//! One version of an executor: loaded, probed, and how it has fared since.
//!
//! Loading goes through these steps, and the first that fails refuses the version: the component is validated, its
//! contract's version checked, compiled or taken from the cache, linked, asked who it is (`describe`); the settings are
//! put against its schema; then `setup` probes. Only an upstream that is down refuses nothing: that is
//! [`Readiness::NotReady`].

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use serde::Serialize;
use talaria_engine::{Component, Engine, Spec, Stage};
use talaria_turns::{Callbacks, Failure, FailureKind, NoExecutor, Workspaces};
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{info, warn};

use super::faults::Faults;
use super::input::InputModes;
use super::versions::Content;
use crate::config::{Executor, ExecutorName};

/// A version that is loaded.
pub struct LoadedExecutor {
    /// Its configuration.
    pub config: Executor,
    /// What runs its turns.
    pub executor: Arc<talaria_engine::Executor>,
    /// What it takes.
    pub input: InputModes,
    /// What it was made of; none for a built-in component.
    pub(super) content: Option<Content>,
    /// Whether that is on disk as the current version.
    pub(super) is_stored: AtomicBool,
    standing: Arc<Standing>,
}

/// How a version fares.
struct Standing {
    name: ExecutorName,
    readiness: RwLock<Readiness>,
    faults: Mutex<Faults>,
    /// It went into quarantine, and nobody has dealt with that.
    is_news: AtomicBool,
    /// Told when it goes into quarantine.
    quarantined: Arc<Notify>,
}

/// Whether an executor's turns can succeed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state", content = "reason")]
pub enum Readiness {
    /// It can reach what it needs.
    Ready,
    /// It cannot; its turns say so.
    NotReady(String),
    /// It crashed again and again, and takes no turns for a while.
    Quarantined(String),
}

/// What versions are loaded with.
pub struct Loader {
    pub(super) engine: Engine,
    /// For those that are granted callbacks.
    pub(super) callbacks: Option<Arc<dyn Callbacks>>,
    /// The workspace that is served, where there is one.
    pub(super) workspaces: Option<Arc<dyn Workspaces>>,
    pub(super) quarantined: Arc<Notify>,
}

// === impl Loader ===

impl Loader {
    /// For an executor that is in no table: nobody hears of its quarantine.
    pub fn standalone(engine: Engine, callbacks: Arc<dyn Callbacks>) -> Self {
        Self { engine, callbacks: Some(callbacks), workspaces: None, quarantined: Arc::default() }
    }

    /// Loads and probes a component. The error says why it takes no turns.
    pub async fn load(
        &self,
        config: Executor,
        wasm: Arc<[u8]>,
        report: &(dyn Fn(String) + Sync),
    ) -> Result<LoadedExecutor, String> {
        self.load_version(config, wasm, None, report).await
    }

    /// The same for a version that is made of `content`.
    pub(crate) async fn load_version(
        &self,
        mut config: Executor,
        wasm: Arc<[u8]>,
        content: Option<Content>,
        report: &(dyn Fn(String) + Sync),
    ) -> Result<LoadedExecutor, String> {
        let name = config.name.as_str();
        let callbacks = self.callbacks.clone().filter(|_| config.grant.callbacks);
        let component = Component::load(&self.engine, wasm, |stage| match stage {
            Stage::Compiling { bytes } => {
                report(format!("compiling {name} ({} KiB, the first time only)", bytes >> 10));
            }
            Stage::Compiled { took } => {
                report(format!("compiled {name} in {:.1} s", took.as_secs_f64()));
            }
        })
        .await
        .map_err(|error| format!("{}: {error}", config.component))?;
        let settings =
            component.settings(&config.settings).map_err(|error| format!("{}: {error}", config.component))?;
        config.grant.fill_in(&component.description().needs.egress, &settings);
        let name = config.name.as_str();
        let executor = talaria_engine::Executor::new(Spec {
            name: name.to_owned(),
            access: config.access(&component, &settings),
            limits: config.limits(),
            wasi: config.grant.wasi.clone(),
            settings,
            component: Arc::new(component),
            callbacks,
        });
        let standing = Arc::new(Standing {
            name: config.name.clone(),
            readiness: RwLock::new(Readiness::Ready),
            faults: Mutex::new(Faults::NONE),
            is_news: AtomicBool::new(false),
            quarantined: Arc::clone(&self.quarantined),
        });
        let (faults, successes) = (Arc::clone(&standing), Arc::clone(&standing));
        let executor = executor.on_fault(move |_| faults.fault()).on_success(move || successes.no_fault());
        let executor = match &self.workspaces {
            Some(workspaces) => executor.in_workspace(Arc::clone(workspaces)),
            None => executor,
        };
        let setup = executor.setup().await;
        if let Err(Failure { kind: FailureKind::InvalidSettings | FailureKind::Internal, message, .. }) =
            &setup
        {
            return Err(format!("{}: setup failed: {message}", config.component));
        }
        *standing.readiness.write().unwrap_or_else(PoisonError::into_inner) = Readiness::of(setup);
        Ok(LoadedExecutor {
            config,
            input: InputModes::of(executor.component().description().metadata.as_deref()),
            executor: Arc::new(executor),
            content,
            is_stored: AtomicBool::new(false),
            standing,
        })
    }
}

// === impl LoadedExecutor ===

impl LoadedExecutor {
    /// Its state, as far as is known.
    pub fn readiness(&self) -> Readiness {
        self.standing.readiness.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether its turns can succeed, as far as is known.
    pub fn is_ready(&self) -> bool {
        *self.standing.readiness.read().unwrap_or_else(PoisonError::into_inner) == Readiness::Ready
    }

    /// Whether it takes no turns because it crashed again and again.
    pub fn is_quarantined(&self) -> bool {
        self.standing.faults().is_quarantined()
    }

    /// Whether it went into quarantine since this was asked last.
    pub(super) fn is_newly_quarantined(&self) -> bool {
        self.standing.is_news.swap(false, Ordering::AcqRel)
    }

    /// The component's digest.
    pub fn digest(&self) -> &str {
        self.executor.component().digest()
    }

    /// What executes its turns.
    ///
    /// # Errors
    /// [`NoExecutor::OutOfService`] while it is in quarantine.
    pub(super) fn taker(&self) -> Result<Arc<dyn talaria_turns::Executor>, NoExecutor> {
        if !self.is_quarantined() {
            return Ok(Arc::clone(&self.executor) as _);
        }
        let name = self.config.name.as_str();
        let message = format!("the executor `{name}` crashed again and again and is out of service for now");
        let failure = Failure { retryable: true, ..Failure::new(FailureKind::Busy, message) };
        Err(NoExecutor::OutOfService { executor: name.into(), failure })
    }

    /// Probes it again. A version in quarantine is left alone until its pause is over.
    pub(super) async fn probe(&self) {
        let standing = &self.standing;
        if !standing.faults().may_be_probed(Instant::now()) {
            return;
        }
        // A fault of the guest is no reason to drop one that took turns so far.
        let probed = self.executor.recheck().await;
        let pause = standing.faults().probed(probed.is_ok(), Instant::now());
        match pause {
            Some(pause) => standing.now_is(Readiness::quarantined(pause)),
            None if self.is_quarantined() => {}
            None => standing.now_is(Readiness::of(probed)),
        }
    }
}

// === impl Standing ===

impl Standing {
    fn now_is(&self, now: Readiness) {
        let mut known = self.readiness.write().unwrap_or_else(PoisonError::into_inner);
        // Another reason for the same trouble is no news.
        if std::mem::discriminant(&*known) != std::mem::discriminant(&now) {
            now.log(&self.name);
        }
        *known = now;
    }

    /// A call ended by the executor's own fault.
    fn fault(&self) {
        let pause = self.faults().fault(Instant::now());
        if let Some(pause) = pause {
            self.now_is(Readiness::quarantined(pause));
            self.is_news.store(true, Ordering::Release);
            self.quarantined.notify_one();
        }
    }

    /// A turn ended well.
    fn no_fault(&self) {
        if self.faults().no_fault() {
            info!(executor = self.name.as_str(), "the executor's trial is over: it takes turns again");
        }
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn quarantined(pause: std::time::Duration) -> Self {
        Self::Quarantined(format!("it crashed again and again; it is tried again in {} s", pause.as_secs()))
    }

    pub(super) fn log(&self, executor: &ExecutorName) {
        let executor = executor.as_str();
        match self {
            Self::Ready => info!(executor, "executor ready"),
            Self::NotReady(reason) => warn!(executor, reason, "executor not ready"),
            Self::Quarantined(reason) => warn!(executor, reason, "executor in quarantine"),
        }
    }
}

impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("ready"),
            Self::NotReady(reason) => write!(f, "not ready: {reason}"),
            Self::Quarantined(reason) => write!(f, "in quarantine: {reason}"),
        }
    }
}
