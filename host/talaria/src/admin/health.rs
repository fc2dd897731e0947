//! Whether the host can do its work.
//!
//! Ready means that a turn would be taken and could succeed: the default executor reached its upstream when it was last
//! probed, the store takes writes now, and the host is not shutting down. Other executors are told of, but one that is
//! not ready is no reason to take the whole host out of service.
//!
//! A default executor that is not ready, and whose fallback is, leaves the host ready: turns are taken and can succeed. The
//! report says who stands in.
//!
//! Executors are probed again on a timer, not when somebody asks: a probe goes to the upstream, and how often that
//! happens is the operator's to say.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use talaria_observe::metrics::OneExecutor;
use talaria_turns::{ContextId, Principal, StateKey, Store};
use tokio_util::sync::CancellationToken;

use crate::config::ExecutorName;
use talaria_executors::{Executors, LoadedExecutor, Readiness};

/// How long the store may take. A write is milliseconds; kubelet gives up after one second by default, but a store that
/// is that slow should be told from one that is gone.
const STORE: Duration = Duration::from_secs(2);

/// What is known of the host's health.
pub(crate) struct Health {
    executors: Arc<Executors>,
    store: Arc<dyn Store>,
    draining: CancellationToken,
}

/// What `/readyz` says.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) ready: bool,
    /// The executor that must be ready.
    default: String,
    /// Who takes its turns while it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    stand_in: Option<String>,
    executors: BTreeMap<String, Readiness>,
    store: Readiness,
    draining: bool,
}

// === impl Health ===

impl Health {
    /// As it was when the executors were loaded. `draining` says that no more turns are taken.
    pub(crate) fn new(executors: Arc<Executors>, store: Arc<dyn Store>, draining: CancellationToken) -> Self {
        Self { executors, store, draining }
    }

    /// How the executors fare.
    pub(crate) fn executors(&self) -> Vec<OneExecutor> {
        let table = self.executors.table();
        let one = |(name, loaded): (&ExecutorName, &Arc<LoadedExecutor>)| OneExecutor {
            name: name.as_str().to_owned(),
            is_ready: loaded.is_ready(),
            is_quarantined: loaded.is_quarantined(),
            is_stood_in_for: table.stand_in(name).is_some_and(|(other, _)| other != name),
        };
        table.loaded().map(one).collect()
    }

    pub(crate) async fn report(&self) -> Report {
        let store = self.store().await;
        let table = self.executors.table();
        let all = table.loaded();
        let executors = all.map(|(name, loaded)| (name.as_str().to_owned(), loaded.readiness())).collect();
        let default = table.default_name();
        let taking = table.stand_in(default);
        let draining = self.draining.is_cancelled();
        let can_succeed = taking.is_some_and(|(_, loaded)| loaded.is_ready());
        let stand_in = taking.filter(|(name, _)| *name != default).map(|(name, _)| name.as_str().to_owned());
        let default = default.as_str().to_owned();
        let ready = !draining && store == Readiness::Ready && can_succeed;
        Report { ready, default, stand_in, executors, store, draining }
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
