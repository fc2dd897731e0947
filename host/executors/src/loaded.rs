//! One version of an executor: its component, loaded and probed, and its record since.
//!
//! Loading a version takes these steps, and the first that fails refuses the version: validate the component, check the
//! version of its contract, compile it or take it from the cache, link it, call `describe`, check the settings against the
//! component's schema, and call `setup`, the probe. If only the upstream is down the version still loads, marked
//! [`Readiness::NotReady`]. So does one whose component declares calls of which none is granted: whatever its probe says,
//! its turns can reach nothing.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use serde::Serialize;
use serde_json::{Map, Value};
use talaria_egress::Denials;
use talaria_engine::{Component, Engine, GrantedTools, Sent, Spec, Stage};
use talaria_turns::{Callbacks, Failure, FailureKind, NoExecutor, Principal, Toolboxes, Workspaces};
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{info, warn};

use super::input::InputModes;
use super::observer::ExecutorObserver;
use super::quarantine::{Admission, Consequence, Faults, Recovery};
use super::versions::Content;
use super::{needs, suggested, tools};
use crate::config::{Executor, ExecutorName};

/// A loaded version of an executor.
pub struct LoadedExecutor {
    /// Its configuration, with everything that its component is granted.
    pub config: Executor,
    /// Runs its turns.
    pub executor: Arc<talaria_engine::Executor>,
    /// The media types that it takes.
    pub input: InputModes,
    /// The files that it was loaded from; `None` for a built-in component.
    pub(super) content: Option<Content>,
    /// Whether these are in the version store as the current version.
    pub(super) is_stored: AtomicBool,
    /// What is wrong with it that does not keep it from taking turns, a sentence each.
    pub warnings: Vec<String>,
    /// Why it can call nothing, whatever its probe says.
    no_call_granted: Option<String>,
    record: Arc<Record>,
}

/// The record of a version since it was loaded. The engine reports faults and successes to it.
struct Record {
    name: ExecutorName,
    readiness: RwLock<Readiness>,
    faults: Mutex<Faults>,
    /// Whether it went into quarantine and that has not been handled yet.
    is_newly_quarantined: AtomicBool,
    /// Whether it completed a turn since its last quarantine.
    has_completed: AtomicBool,
    /// Whether it did and that has not been recorded yet.
    is_newly_completed: AtomicBool,
    /// Notified when it goes into quarantine, and when it completes its first turn.
    quarantined: Arc<Notify>,
}

/// Whether an executor's turns can succeed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state", content = "reason")]
pub enum Readiness {
    /// The last probe passed.
    Ready,
    /// The last probe failed; turns fail with this reason.
    NotReady(String),
    /// It crashed several times in a row and takes no turns for a while.
    Quarantined(String),
}

/// Loads versions.
pub struct Loader {
    pub(super) engine: Engine,
    /// For executors that are granted callbacks.
    pub(super) callbacks: Option<Arc<dyn Callbacks>>,
    /// The workspace that the host serves, if any.
    pub(super) workspaces: Option<Arc<dyn Workspaces>>,
    /// The tools of the host, for executors that are granted some.
    pub(super) tools: Toolboxes,
    pub(super) quarantined: Arc<Notify>,
    pub(super) observer: Arc<dyn ExecutorObserver>,
}

// === impl Loader ===

impl Loader {
    /// A loader for an executor outside of any [`Executors`](crate::Executors); nothing acts on its quarantine.
    pub fn standalone(engine: Engine, callbacks: Arc<dyn Callbacks>) -> Self {
        let tools = Toolboxes::default();
        let quarantined = Arc::default();
        Self {
            engine,
            callbacks: Some(callbacks),
            workspaces: None,
            tools,
            quarantined,
            observer: Arc::new(()),
        }
    }

    /// Loads and probes an executor. The error says why it was refused.
    pub async fn load(
        &self,
        config: Executor,
        wasm: Arc<[u8]>,
        report: &(dyn Fn(String) + Sync),
    ) -> Result<LoadedExecutor, String> {
        self.load_version(config, wasm, None, report).await
    }

    /// Loads and probes a version whose files are `content`.
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
        let given = given(&component, &config);
        let settings =
            component.settings(&given).map_err(|error| format!("{}: {error}", config.component))?;
        drop(given);
        config.grant.fill_in(&component.description().needs.egress, &settings);
        let granted = &config.grant.tools;
        let warnings = tools::problems(granted, component.uses_tools(), &self.tools).await;
        for problem in &warnings {
            warn!(executor = config.name.as_str(), problem, "granted tool not usable");
        }
        let tools = GrantedTools { names: granted.clone(), toolboxes: self.tools.clone() };
        let no_call_granted = needs::no_call_granted(&component, &settings, &config.grant);
        let name = config.name.as_str();
        let (observer, denied) = (Arc::clone(&self.observer), name.to_owned());
        let denials = Denials::reported_to(Arc::new(move |kind| observer.denied(&denied, kind)));
        let executor = talaria_engine::Executor::new(Spec {
            name: name.to_owned(),
            access: config.access(&component, &settings, denials),
            limits: config.limits(),
            wasi: config.grant.wasi.clone(),
            settings,
            component: Arc::new(component),
            callbacks,
            tools,
        });
        let record = Arc::new(Record {
            name: config.name.clone(),
            readiness: RwLock::new(Readiness::Ready),
            faults: Mutex::new(Faults::none()),
            is_newly_quarantined: AtomicBool::new(false),
            has_completed: AtomicBool::new(false),
            is_newly_completed: AtomicBool::new(false),
            quarantined: Arc::clone(&self.quarantined),
        });
        let (faults, successes) = (Arc::clone(&record), Arc::clone(&record));
        let observer = Arc::clone(&self.observer);
        let executor = executor
            .on_fault(move |fault, sent| {
                observer.fault(faults.name.as_str(), fault);
                faults.fault(sent);
            })
            .on_success(move |sent| successes.success(&sent.by));
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
        let readiness = Readiness::of(setup, no_call_granted.as_ref());
        *record.readiness.write().unwrap_or_else(PoisonError::into_inner) = readiness;
        Ok(LoadedExecutor {
            config,
            input: InputModes::of(executor.component().description().metadata.as_deref()),
            executor: Arc::new(executor),
            content,
            is_stored: AtomicBool::new(false),
            warnings,
            no_call_granted,
            record,
        })
    }
}

/// The settings of the configuration, with those that the workspace suggests.
fn given(component: &Component, config: &Executor) -> Map<String, Value> {
    let mut given = config.settings.clone();
    let about = component.description();
    let fits = |settings: &_| component.settings(settings).map(drop).map_err(|error| error.to_string());
    let schema = (about.settings_schema.as_str(), about.needs.egress.as_slice());
    for problem in suggested::add(&config.suggested, &mut given, schema, fits) {
        warn!(executor = config.name.as_str(), problem, "a setting of the workspace is not used");
    }
    given
}

// === impl LoadedExecutor ===

impl LoadedExecutor {
    /// Its state, by the last probe.
    pub fn readiness(&self) -> Readiness {
        self.record.readiness.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the last probe passed.
    pub fn is_ready(&self) -> bool {
        *self.record.readiness.read().unwrap_or_else(PoisonError::into_inner) == Readiness::Ready
    }

    /// Whether it is in quarantine.
    pub fn is_quarantined(&self) -> bool {
        self.record.faults().is_quarantined()
    }

    /// The number of callers that it holds back.
    pub fn callers_held_back(&self) -> usize {
        self.record.faults().callers_held_back(Instant::now())
    }

    /// Whether it went into quarantine since the last call of this function.
    pub(super) fn is_newly_quarantined(&self) -> bool {
        self.record.is_newly_quarantined.swap(false, Ordering::AcqRel)
    }

    /// Whether it completed a turn since its last quarantine.
    pub(super) fn has_completed(&self) -> bool {
        self.record.has_completed.load(Ordering::Acquire)
    }

    /// Whether it completed its first turn since the last call of this function.
    pub(super) fn is_newly_completed(&self) -> bool {
        self.record.is_newly_completed.swap(false, Ordering::AcqRel)
    }

    /// The component's digest.
    pub fn digest(&self) -> &str {
        self.executor.component().digest()
    }

    /// The engine's executor, to run a turn of this caller.
    ///
    /// # Errors
    /// [`NoExecutor::OutOfService`] while it is in quarantine, or while the caller is held back.
    pub(super) fn for_turn(
        &self,
        caller: &Principal,
    ) -> Result<Arc<dyn talaria_turns::Executor>, NoExecutor> {
        let name = self.config.name.as_str();
        let message = match self.record.faults().admits(caller, Instant::now()) {
            Admission::Yes => return Ok(Arc::clone(&self.executor) as _),
            Admission::Quarantined => {
                format!("the executor `{name}` crashed again and again and is out of service for now")
            }
            Admission::HeldBack(left) => format!(
                "the executor `{name}` crashed on the last messages of this caller and takes no more of them \
                 for {} s",
                left.as_secs() + 1
            ),
        };
        let failure = Failure { retryable: true, ..Failure::new(FailureKind::Busy, message) };
        Err(NoExecutor::OutOfService { executor: name.into(), failure })
    }

    /// Sets the result of a probe, for tests of what follows from it.
    #[cfg(test)]
    pub(crate) fn set_ready(&self, is_ready: bool) {
        let down = || Failure::new(FailureKind::Upstream, "the upstream is down");
        self.record.set_readiness(Readiness::of(if is_ready { Ok(()) } else { Err(down()) }, None));
    }

    /// Reports a turn that succeeded, for tests of what follows from it.
    #[cfg(test)]
    pub(crate) fn complete(&self) {
        self.record.success(&Principal::anyone());
    }

    /// Reports a fault, for tests of what follows from it.
    #[cfg(test)]
    pub(crate) fn crash(&self) {
        self.record.fault(None);
    }

    /// Probes it again. A version in quarantine is left alone until its pause is over.
    pub(super) async fn probe(&self) {
        let record = &self.record;
        if !record.faults().may_be_probed(Instant::now()) {
            return;
        }
        // A fault of the guest in a probe does not refuse a version that has taken turns.
        let probed = self.executor.recheck().await;
        let pause = record.faults().probed(probed.is_ok(), Instant::now());
        match pause {
            Some(pause) => record.set_readiness(Readiness::quarantined(pause)),
            None if self.is_quarantined() => {}
            None => record.set_readiness(Readiness::of(probed, self.no_call_granted.as_ref())),
        }
    }
}

// === impl Record ===

impl Record {
    fn set_readiness(&self, now: Readiness) {
        let mut known = self.readiness.write().unwrap_or_else(PoisonError::into_inner);
        // Only a change of state is logged, not another reason for the same state.
        if std::mem::discriminant(&*known) != std::mem::discriminant(&now) {
            now.log(&self.name);
        }
        *known = now;
    }

    /// Records a call that ended by the executor's own fault.
    fn fault(&self, sent: Option<&Sent>) {
        let consequence = self.faults().fault(sent, Instant::now());
        match consequence {
            Consequence::Nothing => {}
            Consequence::HeldBack(pause) => {
                let caller = sent.and_then(|sent| sent.by.name()).unwrap_or_default();
                let executor = self.name.as_str();
                warn!(executor, caller, ?pause, "caller held back: its messages crashed the executor");
            }
            Consequence::Quarantine(pause) => {
                self.set_readiness(Readiness::quarantined(pause));
                self.has_completed.store(false, Ordering::Release);
                self.is_newly_quarantined.store(true, Ordering::Release);
                self.quarantined.notify_one();
            }
        }
    }

    /// Records a successful turn.
    fn success(&self, caller: &Principal) {
        let recovery = self.faults().success(caller, Instant::now());
        match recovery {
            Recovery::Nothing => {}
            Recovery::Trial => {
                info!(executor = self.name.as_str(), "executor passed its trial after quarantine");
            }
            Recovery::Quarantine => self.set_readiness(Readiness::Ready),
        }
        // A turn that began before a quarantine does not count. Read first: every turn comes here.
        if !self.has_completed.load(Ordering::Acquire) && !self.faults().is_quarantined() {
            self.has_completed.store(true, Ordering::Release);
            self.is_newly_completed.store(true, Ordering::Release);
            self.quarantined.notify_one();
        }
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Readiness ===

impl Readiness {
    fn of(probed: Result<(), Failure>, no_call_granted: Option<&String>) -> Self {
        match (no_call_granted, probed) {
            (Some(reason), _) => Self::NotReady(reason.clone()),
            (None, Ok(())) => Self::Ready,
            (None, Err(failure)) => Self::NotReady(failure.message),
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
