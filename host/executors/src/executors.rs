//! All executors of a host: load them, maintain them, pick one for a message.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use talaria_egress::Egress;
use talaria_engine::{Engine, EngineError};
use talaria_turns::keys::EXECUTOR;
use talaria_turns::{Callbacks, NoExecutor, Route, RouteQuery, Toolboxes, Workspaces};
use tokio::sync::{Mutex, Notify};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::audit::Audit;
use crate::change_lock::ChangeLock;
use crate::config::{Builtins, Config, Executor, ExecutorName, Folder};
use crate::loaded::{LoadedExecutor, Loader};
use crate::observer::ExecutorObserver;
use crate::route::{Routes, Why};
use crate::table::Table;
use crate::versions::VersionStore;
use crate::watch;

/// The executors of a host.
pub struct Executors {
    pub(crate) table: ArcSwap<Table>,
    pub(crate) routes: Arc<Routes>,
    pub(crate) loader: Loader,
    /// The executors that do not come from the folder.
    pub(crate) fixed: BTreeMap<ExecutorName, Executor>,
    pub(crate) folder: Folder,
    /// Whether there is a callback listener, or would be in a host that serves.
    pub(crate) takes_callbacks: bool,
    /// How to pull components from registries.
    pub(crate) oci: talaria_oci::Options,
    pub(crate) builtins: Builtins,
    pub(crate) variables: Variables,
    /// Its holder may change the table.
    pub(crate) changes: Mutex<ChangeLock>,
    /// What [`ChangeLock`] has too, for those who do not wait for a change.
    pub(crate) audit: Option<Audit>,
    pub(crate) versions: Option<VersionStore>,
    /// Notified when a version goes into quarantine.
    pub(crate) quarantined: Arc<Notify>,
    /// Notified when the table changes.
    pub(crate) changed: Notify,
}

/// Looks environment variables up.
pub type Variables = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// What the host provides to its executors.
pub struct Services {
    /// Looks environment variables up, for secrets.
    pub variables: Variables,
    /// Delivers callbacks, for executors that are granted them.
    pub callbacks: Option<Arc<dyn Callbacks>>,
    /// The workspace that the host serves, if any.
    pub workspaces: Option<Arc<dyn Workspaces>>,
    /// The tools of the host, for executors that are granted some.
    pub tools: Toolboxes,
    /// Sees what happens to executors.
    pub observer: Arc<dyn ExecutorObserver>,
}

/// The default executor cannot take turns.
#[derive(Debug, thiserror::Error)]
#[error("the default executor `{name}` was refused: {reason}")]
pub struct NoDefault {
    name: ExecutorName,
    reason: String,
}

// === impl Executors ===

impl Executors {
    /// Loads and probes every executor. `report` is called with the progress of slow steps.
    pub async fn load(
        config: &Config,
        services: Services,
        report: &(dyn Fn(String) + Sync),
    ) -> Result<Self, EngineError> {
        let engine = Engine::new(&config.engine, Egress::new(config.egress.clone()))?;
        let engine = engine.with_session_keys(config.session_keys).with_claims(config.claims);
        let engine = engine.with_replies(config.replies);
        let quarantined = Arc::new(Notify::new());
        let Services { variables, callbacks, workspaces, tools, observer } = services;
        let lock = ChangeLock::open(config.state.as_deref(), Arc::clone(&observer));
        let table = Table { entries: BTreeMap::new(), default: config.default.clone() };
        let (audit, versions) = (lock.audit.clone(), lock.versions.clone());
        let executors = Self {
            table: ArcSwap::from_pointee(table),
            routes: Arc::new(Routes::new(config)),
            loader: Loader {
                engine,
                callbacks,
                workspaces,
                tools,
                quarantined: Arc::clone(&quarantined),
                observer,
            },
            fixed: config.fixed.clone(),
            folder: config.folder.clone(),
            takes_callbacks: config.takes_callbacks,
            oci: config.oci.clone(),
            builtins: config.builtins.clone(),
            variables,
            changes: Mutex::new(lock),
            audit,
            versions,
            quarantined,
            changed: Notify::new(),
        };
        // The future is large; boxing it keeps the callers' futures small.
        Box::pin(executors.load_all(report)).await;
        Ok(executors)
    }

    /// Returns itself if the default executor, or its fallback, is in service.
    pub fn with_default(self) -> Result<Self, NoDefault> {
        let table = self.table();
        if table.stand_in(&table.default).is_some() {
            return Ok(self);
        }
        let refused = table.entries.get(&table.default).and_then(|entry| entry.refused.clone());
        let reason = refused.unwrap_or_else(|| "there is no such executor".into());
        Err(NoDefault { name: table.default.clone(), reason })
    }

    /// The current table.
    pub fn table(&self) -> Arc<Table> {
        self.table.load_full()
    }

    /// Resolves when the table has changed since the last call. One task may wait.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The rules that pick an executor for a message.
    pub fn routes(&self) -> &Arc<Routes> {
        &self.routes
    }

    /// Maintains the executors until `shutdown`: probes them, follows the folder, and handles quarantines.
    pub async fn tend(self: Arc<Self>, probe_every: Duration, shutdown: CancellationToken) {
        let mut timer = interval(probe_every);
        let mut look = interval(watch::EVERY);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first ticks are immediate, and everything was just loaded.
        timer.tick().await;
        look.tick().await;
        let probing = async {
            loop {
                timer.tick().await;
                self.probe().await;
            }
        };
        let watching = async {
            loop {
                tokio::select! {
                    _ = look.tick() => self.follow_folder(&log).await,
                    () = self.quarantined.notified() => self.after_faults().await,
                }
            }
        };
        Box::pin(shutdown.run_until_cancelled(async { tokio::join!(probing, watching) })).await;
    }

    /// Probes all versions in service or waiting, concurrently, each within the bound of a setup.
    pub(crate) async fn probe(&self) {
        let table = self.table();
        let entries = table.entries.values();
        let versions = entries.flat_map(|entry| [entry.current.as_deref(), entry.waiting.as_deref()]);
        join_all(versions.flatten().map(LoadedExecutor::probe)).await;
        self.after_probe().await;
    }
}

/// Reports progress to the log, while the host runs.
pub(crate) fn log(line: String) {
    tracing::info!("{line}");
}

impl Route for Executors {
    fn pick(&self, asked: &RouteQuery<'_>) -> Result<Arc<dyn talaria_turns::Executor>, NoExecutor> {
        let table = self.table.load();
        let picked = self.routes.pick(asked, |name: &ExecutorName| table.entries.contains_key(name))?;
        match table.stand_in(&picked.executor) {
            Some((_, loaded)) => {
                loaded.input.admit(&asked.message.parts).map_err(NoExecutor::Media)?;
                self.routes.count(&picked.why);
                loaded.for_turn(asked.principal)
            }
            None if picked.why == Why::Chosen => {
                let known: Vec<_> = table.loaded().map(|(name, _)| name.as_str()).collect();
                let what = format!("names no executor of this host; it has {}", known.join(", "));
                Err(NoExecutor::Refused(format!("metadata[\"{EXECUTOR}\"] {what}")))
            }
            // The rule named this executor; another one might not be able to answer the message.
            None => {
                let refused = table.entry(&picked.executor).and_then(|entry| entry.refused.as_deref());
                let (executor, reason) = (picked.executor.as_str(), refused.unwrap_or("no such executor"));
                warn!(executor, why = %picked.why, reason, "no executor for a message");
                Err(NoExecutor::Unavailable("the executor for this message is not available".into()))
            }
        }
    }

    fn named(&self, name: &str) -> Option<Arc<dyn talaria_turns::Executor>> {
        let table = self.table.load();
        let (_, entry) = table.entries.iter().find(|(known, _)| known.as_str() == name)?;
        Some(Arc::clone(&entry.current.as_ref()?.executor) as _)
    }
}
