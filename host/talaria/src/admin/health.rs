//! Whether the host is ready.
//!
//! Ready means that a turn would be accepted and could succeed: the last probe of the default executor passed, the store
//! accepts writes, and the host is not shutting down. Other executors are part of the report, but they do not make the host
//! unready.
//!
//! If the default executor is not ready but its fallback is, the host is ready, and the report names the fallback.
//!
//! The store is asked to write a value and to delete it, so that a disk that is read-only or at its end shows here, and
//! whether it has room for a new message, which it rejects before that. Requests share the result for a second, because anybody
//! may ask.
//!
//! Executors are probed on a timer and not on request: a probe calls the upstream, and the operator decides how often that
//! happens.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use talaria_engine::Load;
use talaria_observe::metrics::executors::OneExecutor;
use talaria_turns::{ContextId, Principal, StateKey, Store};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::ExecutorName;
use talaria_executors::{Executors, LoadedExecutor, Readiness};

/// How long the store may take. A write takes milliseconds; kubelet gives up after one second by default, but the log should
/// tell a slow store from one that does not answer.
const STORE: Duration = Duration::from_secs(2);

/// How long requests share what the store answered.
const SHARED: Duration = Duration::from_secs(1);

/// The sources of the host's health.
pub(crate) struct Health {
    executors: Arc<Executors>,
    store: Arc<dyn Store>,
    /// What the store answered last, and when.
    written: Mutex<Option<(Instant, Readiness)>>,
    draining: CancellationToken,
}

/// The report of `/readyz`.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) ready: bool,
    /// The executor that must be ready.
    default: String,
    /// The executor that takes its turns while it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    stand_in: Option<String>,
    executors: BTreeMap<String, Readiness>,
    store: Readiness,
    draining: bool,
}

// === impl Health ===

impl Health {
    /// `draining` is cancelled when no more turns are accepted.
    pub(crate) fn new(executors: Arc<Executors>, store: Arc<dyn Store>, draining: CancellationToken) -> Self {
        Self { executors, store, written: Mutex::default(), draining }
    }

    /// The state of the executors, for metrics.
    pub(crate) fn executors(&self) -> Vec<OneExecutor> {
        let table = self.executors.table();
        let one = |(name, loaded): (&ExecutorName, &Arc<LoadedExecutor>)| {
            let Load { in_use, limit, waiting, queue_limit } = loaded.executor.load();
            OneExecutor {
                name: name.as_str().to_owned(),
                is_ready: loaded.is_ready(),
                is_quarantined: loaded.is_quarantined(),
                is_stood_in_for: table.stand_in(name).is_some_and(|(other, _)| other != name),
                callers_held_back: loaded.callers_held_back(),
                in_use,
                limit,
                waiting,
                queue_limit,
            }
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

    /// Whether the store accepts writes, by what it answered within the last second.
    async fn store(&self) -> Readiness {
        // Others wait for this answer.
        let mut written = self.written.lock().await;
        if let Some((at, readiness)) = &*written
            && at.elapsed() < SHARED
        {
            return readiness.clone();
        }
        let readiness = self.write().await;
        *written = Some((Instant::now(), readiness.clone()));
        readiness
    }

    /// Writes a value and deletes it. A delete alone would write nothing, and succeed on a full disk.
    async fn write(&self) -> Readiness {
        let key = StateKey {
            owner: Principal::anyone(),
            context: ContextId::fresh(),
            executor: "".into(),
            key: "readyz".into(),
        };
        let writing = async {
            self.store.set_state(&key, Some(Arc::from(*b"readyz"))).await?;
            self.store.set_state(&key, None).await?;
            self.store.has_room().await
        };
        match tokio::time::timeout(STORE, writing).await {
            Ok(Ok(())) => Readiness::Ready,
            Ok(Err(error)) => Readiness::NotReady(error.to_string()),
            Err(_) => Readiness::NotReady(format!("the store did not answer within {STORE:?}")),
        }
    }
}
