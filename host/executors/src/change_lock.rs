//! The right to change the table of executors, and what every change works with.
//!
//! There is one [`ChangeLock`], behind a mutex, so changes happen one at a time.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tracing::{info, warn};

use crate::audit::{Audit, Entry};
use crate::config::ExecutorName;
use crate::loaded::LoadedExecutor;
use crate::observer::ExecutorObserver;
use crate::versions::{Content, Id, VersionStore};
use crate::watch::Watch;

/// Its holder may change the table.
pub(crate) struct ChangeLock {
    pub(crate) watch: Watch,
    /// `None` if versions are not stored.
    pub(crate) versions: Option<VersionStore>,
    pub(crate) audit: Option<Audit>,
    pub(crate) observer: Arc<dyn ExecutorObserver>,
}

// === impl ChangeLock ===

impl ChangeLock {
    /// Opens the version store and the audit log in the folder `state`. If that fails, the host works without them and logs
    /// a warning.
    pub(crate) fn open(state: Option<&Path>, observer: Arc<dyn ExecutorObserver>) -> Self {
        let versions = state.and_then(|folder| {
            VersionStore::open(folder)
                .inspect_err(|error| {
                    warn!(%error, folder = %folder.display(), "cannot store versions of executors; no rollback");
                })
                .ok()
        });
        let audit = versions.as_ref().and_then(|versions| {
            Audit::open(versions.folder())
                .inspect_err(|error| warn!(%error, "cannot open the audit log; changes go to this log only"))
                .ok()
        });
        Self { watch: Watch::default(), versions, audit, observer }
    }

    /// Writes a change to the log and to the audit log.
    pub(crate) async fn record(&self, entry: Entry) {
        let Entry { who, what, executor, digest, reason, .. } = &entry;
        self.observer.changed(executor, *what);
        info!(?who, ?what, executor, digest, reason, "executor changed");
        if let Some(audit) = &self.audit {
            audit.append(&entry).await;
        }
    }

    /// Stores a version that is in service and ready.
    pub(crate) async fn store(&self, loaded: &LoadedExecutor) {
        if loaded.is_stored.swap(true, Ordering::Relaxed) {
            return;
        }
        let (Some(versions), Some(content)) = (self.versions.clone(), loaded.content.clone()) else { return };
        let name = loaded.config.name.clone();
        let result = blocking(move || versions.store(&name, &content)).await;
        if let Err(error) = result {
            warn!(%error, executor = loaded.config.name.as_str(), "version not stored; no rollback to it");
        }
        if loaded.has_completed() {
            self.set_good(loaded, true).await;
        }
    }

    /// Records that a version completed a turn, or that it was quarantined.
    pub(crate) async fn set_good(&self, loaded: &LoadedExecutor, is_good: bool) {
        let (Some(versions), Some(content)) = (self.versions.clone(), loaded.content.as_ref()) else {
            return;
        };
        let (name, id) = (loaded.config.name.clone(), content.id());
        let result = blocking(move || match is_good {
            true => versions.set_completed(&name, &id),
            false => versions.set_quarantined(&name, &id),
        });
        if let Err(error) = result.await {
            warn!(%error, executor = loaded.config.name.as_str(), "not recorded whether the version is good");
        }
    }

    /// Reads a stored version; `which` picks it.
    pub(crate) async fn stored(
        &self,
        name: &ExecutorName,
        which: fn(&VersionStore, &ExecutorName) -> Option<Id>,
    ) -> Result<Option<Content>, String> {
        let Some(versions) = self.versions.clone() else { return Ok(None) };
        let name = name.clone();
        blocking(move || which(&versions, &name).map(|id| versions.content(&name, &id)).transpose())
            .await
            .map_err(|error| format!("the stored version cannot be read: {error}"))
    }

    /// Whether this version in the folder was rolled back, and is skipped until its files change.
    pub(crate) fn skips(&self, name: &ExecutorName, id: &Id) -> bool {
        self.versions.as_ref().and_then(|versions| versions.skipped(name)).as_ref() == Some(id)
    }

    /// Sets the version to skip, or clears it.
    pub(crate) fn set_skipped(&self, name: &ExecutorName, id: Option<&Id>) {
        let Some(versions) = &self.versions else { return };
        if let Err(error) = versions.set_skipped(name, id) {
            warn!(%error, executor = name.as_str(), "rollback not persisted; lost on restart");
        }
    }
}

/// Reads or writes files off the threads that serve.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}
