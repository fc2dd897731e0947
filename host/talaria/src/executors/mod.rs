//! The executors of this host: loaded, probed, swapped while turns run, and chosen from.
//!
//! Each name has a [`Seat`]: the version that takes its turns, and what is known of a newer one that does not. Seats are
//! replaced, never changed, in a table that whoever picks an executor reads without a lock. A turn holds the version that
//! it began with; the last turn of an old version takes it along.
//!
//! A version that is refused is named, and the host goes on with what it has; only the default executor must be there at
//! the start, since without it no turn can be taken. An upstream that is down refuses nothing: the executor is loaded, not
//! ready, and its turns say so, or its fallback takes them.
//!
//! | file | holds |
//! |---|---|
//! | `change` | every change of a seat, one at a time: at the start, from the folder, after probes and crashes |
//! | `operator` | the changes that an operator asks for |
//! | `watch` | what is in the folder of executors, looked at every second |
//! | `loaded` | one version: how it is loaded, whether it is ready, how it has fared |
//! | `input` | the media types that a version takes |
//! | `faults` | when a version is in quarantine |
//! | `kept` | the last good versions, on disk |
//! | `audit` | who changed what |

mod audit;
mod change;
mod faults;
mod input;
mod kept;
mod loaded;
mod operator;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use secrecy::{ExposeSecret as _, SecretString};
use talaria_egress::Egress;
use talaria_engine::{Engine, EngineConfig, SessionKeys};
use talaria_hermes::SESSION_KEYS;
use talaria_turns::{Asked, Callbacks, NoExecutor, Route, Workspaces};
use tokio::sync::{Mutex, Notify};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::warn;

pub(crate) use audit::Who;
pub(crate) use change::Taken;
pub(crate) use loaded::{Loaded, Loader, Readiness};
pub(crate) use operator::{NotChanged, Upload};

use change::Keeper;

use crate::config::{Config, Executor, ExecutorName, FailMode, Folder, GATEWAY_KEY};
use crate::route::{CHOICE, Routes, Why};

/// The executors.
pub(crate) struct Executors {
    table: ArcSwap<Table>,
    routes: Arc<Routes>,
    loader: Loader,
    /// Those that do not come from the folder.
    fixed: BTreeMap<ExecutorName, Executor>,
    folder: Folder,
    /// Whether there is a callback listener, or would be in a host that serves.
    takes_callbacks: bool,
    /// How components are pulled from registries.
    oci: talaria_oci::Options,
    /// Reads the environment, for secrets.
    env: fn(&str) -> Option<String>,
    /// The key of the gateway that this process starts, which may be in no variable.
    gateway_key: Option<SecretString>,
    /// Whoever holds it may change the table.
    keeper: Mutex<Keeper>,
    /// Told when a version goes into quarantine.
    quarantined: Arc<Notify>,
    /// Told when the table changes.
    changed: Notify,
}

/// Who takes turns, at one moment.
#[derive(Clone)]
pub(crate) struct Table {
    seats: BTreeMap<ExecutorName, Arc<Seat>>,
    default: ExecutorName,
}

/// The place of one executor.
#[derive(Clone, Default)]
pub(crate) struct Seat {
    /// What takes its turns; none where nothing could be loaded.
    pub(crate) current: Option<Arc<Loaded>>,
    /// A newer version, whose upstream is down while the current one is ready. It takes over when it is ready.
    pub(crate) waiting: Option<Arc<Loaded>>,
    /// Why the newest version was refused.
    pub(crate) refused: Option<String>,
    /// Who takes its turns while it is not ready, as its configuration says, or said when it could be read last.
    pub(crate) fallback: Option<ExecutorName>,
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
    /// Loads and probes every executor. Those that are granted callbacks get them from `callbacks`. `report` hears of what
    /// takes a while.
    pub(crate) async fn load(
        config: &Config,
        callbacks: Option<Arc<dyn Callbacks>>,
        env: fn(&str) -> Option<String>,
        report: &(dyn Fn(String) + Sync),
    ) -> anyhow::Result<Self> {
        let engine = Engine::new(
            &EngineConfig {
                slots: config.engine.slots.get(),
                scripted_slots: config.engine.scripted_slots.get(),
                cache_dir: config.engine.cache_dir.clone(),
            },
            Egress::new(talaria_egress::Config::default()),
        )?
        .with_session_keys(SessionKeys(SESSION_KEYS));
        let quarantined = Arc::new(Notify::new());
        let workspaces = config.workspace.as_ref().map(|of| Arc::clone(&of.assembly) as Arc<dyn Workspaces>);
        let table = Table { seats: BTreeMap::new(), default: config.default_executor.clone() };
        let executors = Self {
            table: ArcSwap::from_pointee(table),
            routes: Arc::new(Routes::new(config)),
            loader: Loader { engine, callbacks, workspaces, quarantined: Arc::clone(&quarantined) },
            fixed: config.executors.clone(),
            folder: config.folder.clone(),
            takes_callbacks: config.callback.is_some(),
            oci: config.oci.clone(),
            env,
            gateway_key: config.gateway.as_ref().map(|gateway| gateway.wanted.key.clone()),
            keeper: Mutex::new(Keeper::open(config)),
            quarantined,
            changed: Notify::new(),
        };
        executors.load_all(report).await;
        Ok(executors)
    }

    /// Itself, if it can take turns.
    pub(crate) fn with_default(self) -> Result<Self, NoDefault> {
        let table = self.table();
        if table.stand_in(&table.default).is_some() {
            return Ok(self);
        }
        let refused = table.seats.get(&table.default).and_then(|seat| seat.refused.clone());
        let reason = refused.unwrap_or_else(|| "there is no such executor".into());
        Err(NoDefault { name: table.default.clone(), reason })
    }

    /// The value of a variable, as executors see it.
    fn variable(&self, name: &str) -> Option<String> {
        match &self.gateway_key {
            Some(key) if name == GATEWAY_KEY => Some(key.expose_secret().to_owned()),
            _ => (self.env)(name),
        }
    }

    /// Who takes turns now.
    pub(crate) fn table(&self) -> Arc<Table> {
        self.table.load_full()
    }

    /// Resolves when the table changed since the last call. For one who waits.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Which of them takes which messages.
    pub(crate) fn routes(&self) -> &Arc<Routes> {
        &self.routes
    }

    /// Looks after the executors until `shutdown`: probes them every so often, follows the folder, and deals with those
    /// that crash.
    pub(crate) async fn tend(self: Arc<Self>, probe_every: Duration, shutdown: CancellationToken) {
        let mut timer = interval(probe_every);
        let mut look = interval(watch::EVERY);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first ticks are now, and everything was just loaded.
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
                    _ = look.tick() => self.look(&log).await,
                    () = self.quarantined.notified() => self.after_crashes().await,
                }
            }
        };
        Box::pin(shutdown.run_until_cancelled(async { tokio::join!(probing, watching) })).await;
    }

    /// Probes all that take turns, or wait to, beside each other, each within the bound of a setup.
    async fn probe(&self) {
        let table = self.table();
        let seats = table.seats.values();
        let versions = seats.flat_map(|seat| [seat.current.as_deref(), seat.waiting.as_deref()]);
        join_all(versions.flatten().map(Loaded::probe)).await;
        self.after_probe().await;
    }
}

/// What happens while the host runs is in its log.
fn log(line: String) {
    tracing::info!("{line}");
}

impl Route for Executors {
    fn pick(&self, asked: &Asked<'_>) -> Result<Arc<dyn talaria_turns::Executor>, NoExecutor> {
        let table = self.table.load();
        let picked = self.routes.pick(asked, |name: &ExecutorName| table.seats.contains_key(name))?;
        match table.stand_in(&picked.executor) {
            Some((_, loaded)) => {
                loaded.input.admit(&asked.message.parts).map_err(NoExecutor::Media)?;
                self.routes.count(&picked.why);
                loaded.taker()
            }
            None if picked.why == Why::Chosen => {
                let known: Vec<_> = table.loaded().map(|(name, _)| name.as_str()).collect();
                let what = format!("names no executor of this host; it has {}", known.join(", "));
                Err(NoExecutor::Refused(format!("metadata[\"{CHOICE}\"] {what}")))
            }
            // Another one would answer what it was not made for: the rule said who.
            None => {
                let refused = table.seat(&picked.executor).and_then(|seat| seat.refused.as_deref());
                let (executor, reason) = (picked.executor.as_str(), refused.unwrap_or("there is none"));
                warn!(executor, why = %picked.why, reason, "no executor for a message");
                Err(NoExecutor::Unavailable("the executor for this message is not available".into()))
            }
        }
    }

    fn named(&self, name: &str) -> Option<Arc<dyn talaria_turns::Executor>> {
        let table = self.table.load();
        let (_, seat) = table.seats.iter().find(|(known, _)| known.as_str() == name)?;
        Some(Arc::clone(&seat.current.as_ref()?.executor) as _)
    }
}

// === impl Table ===

impl Table {
    /// The executor that takes the turns of this one now, and its name.
    pub(crate) fn stand_in<'a>(
        &'a self,
        name: &'a ExecutorName,
    ) -> Option<(&'a ExecutorName, &'a Arc<Loaded>)> {
        let seat = self.seats.get(name)?;
        let own = seat.current.as_ref().map(|loaded| (name, loaded));
        let is_closed =
            |loaded: &Loaded| loaded.is_quarantined() && loaded.config.fail_mode != FailMode::Fallback;
        if own.is_some_and(|(_, loaded)| loaded.is_ready() || is_closed(loaded)) {
            return own;
        }
        let fallback = seat.fallback.as_ref().and_then(|name| {
            let seat = self.seats.get(name)?;
            Some((name, seat.current.as_ref()?))
        });
        match (own, fallback) {
            // Where neither is ready, the first one's answer is the honest one.
            (Some(_), Some((_, loaded))) if !loaded.is_ready() => own,
            (_, Some(fallback)) => Some(fallback),
            (own, None) => own,
        }
    }

    /// Every executor.
    pub(crate) fn seats(&self) -> impl Iterator<Item = (&ExecutorName, &Seat)> {
        self.seats.iter().map(|(name, seat)| (name, &**seat))
    }

    pub(crate) fn seat(&self, name: &ExecutorName) -> Option<&Seat> {
        self.seats.get(name).map(|seat| &**seat)
    }

    /// Those that take turns.
    pub(crate) fn loaded(&self) -> impl Iterator<Item = (&ExecutorName, &Arc<Loaded>)> {
        self.seats.iter().filter_map(|(name, seat)| Some((name, seat.current.as_ref()?)))
    }

    /// Those whose newest version was refused, and why.
    pub(crate) fn refused(&self) -> impl Iterator<Item = (&ExecutorName, &str)> {
        self.seats.iter().filter_map(|(name, seat)| Some((name, seat.refused.as_deref()?)))
    }

    /// The one that takes a turn when nothing else is said.
    pub(crate) fn default_name(&self) -> &ExecutorName {
        &self.default
    }
}
