//! Whether the host can do its work.
//!
//! Ready means that a turn would be taken and could succeed: the default executor reached its upstream when it was last
//! probed, the store takes writes now, and the host is not shutting down. Other executors are told of, but one that is
//! not ready is no reason to take the whole host out of service.
//!
//! Executors are probed again on a timer, not when somebody asks: a probe goes to the upstream, and how often that
//! happens is the operator's to say. The probes of a round run beside each other, each within the bound of a setup; a
//! round that takes longer than the pause delays the next.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use serde::Serialize;
use talaria_turns::{ContextId, Principal, StateKey, Store};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::config::ExecutorName;
use crate::executors::{Executors, Readiness};

/// How long the store may take. A write is milliseconds; kubelet gives up after one second by default, but a store that
/// is that slow should be told from one that is gone.
const STORE: Duration = Duration::from_secs(2);

/// What is known of the host's health.
pub(crate) struct Health {
    executors: Arc<Executors>,
    store: Arc<dyn Store>,
    draining: CancellationToken,
    /// What the last probes said.
    last: Mutex<BTreeMap<ExecutorName, Readiness>>,
}

/// What `/readyz` says.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) ready: bool,
    /// The executor that must be ready.
    default: String,
    executors: BTreeMap<String, Readiness>,
    store: Readiness,
    draining: bool,
}

// === impl Health ===

impl Health {
    /// As it was when the executors were loaded. `draining` says that no more turns are taken.
    pub(crate) fn new(executors: Arc<Executors>, store: Arc<dyn Store>, draining: CancellationToken) -> Self {
        let last =
            executors.loaded().map(|(name, loaded)| (name.clone(), loaded.readiness.clone())).collect();
        Self { executors, store, draining, last: Mutex::new(last) }
    }

    /// Probes the executors every so often, until `shutdown`.
    pub(crate) async fn watch(self: Arc<Self>, every: Duration, shutdown: CancellationToken) {
        let mut timer = interval(every);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick is now, and they were probed when they were loaded.
        timer.tick().await;
        let probing = async {
            loop {
                timer.tick().await;
                self.probe().await;
            }
        };
        shutdown.run_until_cancelled(probing).await;
    }

    async fn probe(&self) {
        let probes = self.executors.loaded().map(async |(name, loaded)| {
            let now = match loaded.executor.recheck().await {
                Ok(()) => Readiness::Ready,
                Err(failure) => Readiness::NotReady(failure.message),
            };
            self.note(name, now);
        });
        join_all(probes).await;
    }

    /// Keeps it, and says so where it is news.
    fn note(&self, name: &ExecutorName, now: Readiness) {
        let before =
            self.last.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), now.clone());
        match now {
            Readiness::Ready if before != Some(Readiness::Ready) => {
                info!(executor = name.as_str(), "executor ready");
            }
            Readiness::NotReady(reason) if !matches!(before, Some(Readiness::NotReady(_))) => {
                warn!(executor = name.as_str(), reason, "executor not ready");
            }
            _ => {}
        }
    }

    /// The executors, and whether they are ready.
    pub(crate) fn executors(&self) -> Vec<(String, bool)> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.iter().map(|(name, now)| (name.as_str().to_owned(), *now == Readiness::Ready)).collect()
    }

    pub(crate) async fn report(&self) -> Report {
        let store = self.store().await;
        let executors: BTreeMap<_, _> = {
            let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            last.iter().map(|(name, now)| (name.as_str().to_owned(), now.clone())).collect()
        };
        let default = self.executors.default_name().as_str().to_owned();
        let draining = self.draining.is_cancelled();
        let ready =
            !draining && store == Readiness::Ready && executors.get(&default) == Some(&Readiness::Ready);
        Report { ready, default, executors, store, draining }
    }

    /// Whether the store takes writes: it is told to forget what was never there, which takes the same way as any
    /// write and leaves nothing.
    async fn store(&self) -> Readiness {
        let key = StateKey {
            owner: Principal::anyone(),
            context: ContextId::fresh(),
            executor: "".into(),
            key: "readyz".into(),
        };
        match tokio::time::timeout(STORE, self.store.set_state(&key, None)).await {
            Ok(Ok(())) => Readiness::Ready,
            Ok(Err(error)) => Readiness::NotReady(error.to_string()),
            Err(_) => Readiness::NotReady(format!("the store did not answer within {STORE:?}")),
        }
    }
}
