//! Every change of the table of executors, one at a time, each in the audit log.
//!
//! A version comes from the main file, from the folder, from an upload, or from the version store. All of them go through
//! [`Executors::take`]:
//!
//! - if any step of loading fails, the version is refused: the version in service stays, and the entry says why;
//! - if the new version is not ready while the version in service is, the new one waits and takes over after the first
//!   probe that passes;
//! - otherwise the new version goes into service: it takes new turns, while running turns finish on the old version.
//!
//! A version that is in service and ready goes into the version store. If a version is refused at the start, the host
//! serves the last good one from that store instead.

use std::sync::Arc;

use talaria_oci::Progress;
use tracing::warn;

use crate::audit::{Entry, What, Who};
use crate::change_lock::ChangeLock;
use crate::config::{ComponentRef, Executor, ExecutorName, FailMode};
use crate::executors::Executors;
use crate::loaded::LoadedExecutor;
use crate::table::{Table, TableEntry};
use crate::versions::{Content, VersionStore};
use crate::watch::{self, Change};

/// When a new version goes into service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It is in service.
    Now,
    /// It goes into service when its upstream answers; until then the old version stays.
    WhenReady,
}

/// Called with the progress of slow steps, for the operator.
pub(super) type Report<'a> = &'a (dyn Fn(String) + Sync);

// === impl Executors ===

impl Executors {
    /// Loads every executor, at the start.
    pub(super) async fn load_all(&self, report: Report<'_>) {
        let mut lock = self.changes.lock().await;
        for (name, config) in &self.fixed {
            let taken = match self.read_component(config, report).await {
                Ok((_, Some(content))) if lock.skips(name, &content.id()) => Err(()),
                Ok((wasm, content)) => {
                    let taken = self.take(&lock, config.clone(), wasm, content, &Who::Start, report);
                    taken.await.map(drop).map_err(drop)
                }
                Err(reason) => {
                    self.refuse(&lock, name, Some(config), &reason, &Who::Start).await;
                    Err(())
                }
            };
            if taken.is_err() {
                self.restore(&lock, name, report).await;
            }
        }
        self.follow(&mut lock, &Who::Start, report).await;
        // The default executor may be gone from the folder; its last good version still serves.
        let default = self.table().default.clone();
        if self.table().entry(&default).is_none_or(|entry| entry.current.is_none()) {
            self.restore(&lock, &default, report).await;
        }
    }

    /// Takes in what changed in the folder.
    pub(super) async fn follow_folder(&self, report: Report<'_>) {
        let mut lock = self.changes.lock().await;
        self.follow(&mut lock, &Who::Folder, report).await;
    }

    async fn follow(&self, lock: &mut ChangeLock, who: &Who, report: Report<'_>) {
        let is_first = *who == Who::Start;
        let (folder, mut watch) = (self.folder.clone(), std::mem::take(&mut lock.watch));
        let looked = tokio::task::spawn_blocking(move || {
            let changes = watch.look(&folder, is_first);
            (watch, changes)
        });
        let changes = match looked.await {
            Ok((watch, changes)) => {
                lock.watch = watch;
                changes
            }
            Err(error) => {
                warn!(%error, "cannot look at the executors folder");
                return;
            }
        };
        for change in changes {
            match change {
                Change::Present(name, content) => {
                    if lock.skips(&name, &content.id()) {
                        if is_first {
                            self.restore(lock, &name, report).await;
                        }
                        continue;
                    }
                    lock.set_skipped(&name, None);
                    if self.take_content(lock, &name, content, who, report).await.is_err() {
                        self.restore_if_empty(lock, &name, report).await;
                    }
                }
                Change::Unreadable(name, reason) => {
                    self.refuse(lock, &name, None, &reason, who).await;
                    self.restore_if_empty(lock, &name, report).await;
                }
                Change::Gone(name) => self.gone(lock, &name, who, report).await,
            }
        }
    }

    /// Takes a version whose component is in the folder.
    pub(super) async fn take_content(
        &self,
        lock: &ChangeLock,
        name: &ExecutorName,
        content: Content,
        who: &Who,
        report: Report<'_>,
    ) -> Result<Taken, String> {
        let config = match self.configure(name, content.policy.as_deref()) {
            Ok(config) => config,
            Err(reason) => {
                self.refuse(lock, name, None, &reason, who).await;
                return Err(reason);
            }
        };
        self.take(lock, config, Arc::clone(&content.wasm), Some(content), who, report).await
    }

    /// Resolves the configuration of an executor in the folder.
    pub(super) fn configure(&self, name: &ExecutorName, policy: Option<&str>) -> Result<Executor, String> {
        let mut warnings = Vec::new();
        let config = self.folder.executor(name, policy, &*self.variables, &mut warnings);
        let config = config.map_err(|error| error.to_string())?;
        for warning in warnings {
            warn!(executor = name.as_str(), "{warning}");
        }
        if config.grant.callbacks && !self.takes_callbacks {
            return Err(
                "`grant.callbacks` needs the callback listener: add a `[callback]` section to talaria.toml and restart"
                    .into(),
            );
        }
        if let Some(fallback) = &config.fallback
            && !self.fixed.contains_key(fallback)
            && self.table().entry(fallback).is_none()
        {
            warn!(executor = name.as_str(), %fallback, "the fallback is not loaded yet");
        }
        Ok(config)
    }

    /// Loads a version and puts it into service, as the head of this file describes.
    pub(super) async fn take(
        &self,
        lock: &ChangeLock,
        config: Executor,
        wasm: Arc<[u8]>,
        content: Option<Content>,
        who: &Who,
        report: Report<'_>,
    ) -> Result<Taken, String> {
        let name = config.name.clone();
        let loaded = match self.loader.load_version(config.clone(), wasm, content, report).await {
            Ok(loaded) => Arc::new(loaded),
            Err(reason) => {
                self.refuse(lock, &name, Some(&config), &reason, who).await;
                return Err(reason);
            }
        };
        Ok(self.settle(lock, &loaded, who).await)
    }

    /// Puts a loaded version into service, or lets it wait.
    pub(super) async fn settle(&self, lock: &ChangeLock, loaded: &Arc<LoadedExecutor>, who: &Who) -> Taken {
        let name = &loaded.config.name;
        let before = self.table().entry(name).and_then(|entry| entry.current.clone());
        let is_worse = !loaded.is_ready() && before.as_ref().is_some_and(|before| before.is_ready());
        if is_worse {
            let reason = loaded.readiness().to_string();
            self.change(name, |entry| {
                entry.refused = None;
                entry.waiting = Some(Arc::clone(loaded));
            });
            let mut entry = Entry::new(who.clone(), What::Waiting, name);
            entry.digest = Some(loaded.digest().to_owned());
            entry.before = before.map(|before| before.digest().to_owned());
            entry.reason = Some(reason);
            lock.record(entry).await;
            return Taken::WhenReady;
        }
        let what = if before.is_some() { What::Swapped } else { What::Loaded };
        self.put_in_service(lock, loaded, what, who).await;
        Taken::Now
    }

    /// Puts a version into service: new turns of its name are its own.
    pub(super) async fn put_in_service(
        &self,
        lock: &ChangeLock,
        loaded: &Arc<LoadedExecutor>,
        what: What,
        who: &Who,
    ) {
        let name = &loaded.config.name;
        let before = self.table().entry(name).and_then(|entry| entry.current.clone());
        self.change(name, |entry| {
            *entry = TableEntry {
                current: Some(Arc::clone(loaded)),
                waiting: None,
                refused: None,
                fallback: loaded.config.fallback.clone(),
            };
        });
        loaded.readiness().log(name);
        if loaded.is_ready() {
            lock.store(loaded).await;
        }
        // The audit log does not list the built-in executors at every start.
        if loaded.content.is_none() && *who == Who::Start {
            self.loader.observer.changed(name.as_str(), what);
            return;
        }
        let mut entry = Entry::new(who.clone(), what, name);
        entry.digest = Some(loaded.digest().to_owned());
        entry.before = before.map(|before| before.digest().to_owned());
        lock.record(entry).await;
    }

    async fn refuse(
        &self,
        lock: &ChangeLock,
        name: &ExecutorName,
        config: Option<&Executor>,
        reason: &str,
        who: &Who,
    ) {
        warn!(executor = name.as_str(), reason, "executor refused");
        self.change(name, |entry| {
            entry.waiting = None;
            entry.refused = Some(reason.to_owned());
            if let (None, Some(config)) = (&entry.current, config) {
                entry.fallback.clone_from(&config.fallback);
            }
        });
        let mut entry = Entry::new(who.clone(), What::Refused, name);
        entry.reason = Some(reason.to_owned());
        lock.record(entry).await;
    }

    async fn restore_if_empty(&self, lock: &ChangeLock, name: &ExecutorName, report: Report<'_>) {
        if self.table().entry(name).is_none_or(|entry| entry.current.is_none()) {
            self.restore(lock, name, report).await;
        }
    }

    /// Serves the stored version, where nothing is in service or the newer version was rolled back.
    async fn restore(&self, lock: &ChangeLock, name: &ExecutorName, report: Report<'_>) {
        let reason = self.table().entry(name).and_then(|entry| entry.refused.clone());
        let restored = match lock.stored(name, VersionStore::current).await {
            Ok(Some(content)) => self.load_stored(name, content, report).await,
            Ok(None) => return,
            Err(error) => Err(error),
        };
        match restored {
            Ok(loaded) => {
                warn!(executor = name.as_str(), digest = loaded.digest(), "serving the last good version");
                self.put_in_service(lock, &loaded, What::Loaded, &Who::Start).await;
                self.change(name, |entry| entry.refused = reason);
            }
            Err(error) => {
                warn!(executor = name.as_str(), error, "the last good version does not load either")
            }
        }
    }

    pub(super) async fn load_stored(
        &self,
        name: &ExecutorName,
        content: Content,
        report: Report<'_>,
    ) -> Result<Arc<LoadedExecutor>, String> {
        let config = match self.fixed.get(name).filter(|config| !is_builtin(config)) {
            Some(config) => config.clone(),
            None => self.configure(name, content.policy.as_deref())?,
        };
        let wasm = Arc::clone(&content.wasm);
        self.loader.load_version(config, wasm, Some(content), report).await.map(Arc::new)
    }

    /// Handles an executor whose files are gone from the folder.
    pub(super) async fn gone(&self, lock: &ChangeLock, name: &ExecutorName, who: &Who, report: Report<'_>) {
        if let Some(config) = self.fixed.get(name) {
            if let Ok((wasm, content)) = self.read_component(config, report).await {
                let _ = self.take(lock, config.clone(), wasm, content, who, report).await;
            }
            return;
        }
        if *name == self.table().default {
            let reason =
                "its file is gone, but it is the default: it takes turns until the host is told otherwise";
            warn!(executor = name.as_str(), "{reason}");
            self.change(name, |entry| entry.refused = Some(reason.into()));
            return;
        }
        let before = self.table().entry(name).and_then(|entry| entry.current.clone());
        self.table.rcu(|table| {
            let mut table = Table::clone(table);
            table.entries.remove(name);
            table
        });
        self.changed.notify_one();
        if let Some(Err(error)) = lock.versions.as_ref().map(|versions| versions.delete(name)) {
            warn!(%error, executor = name.as_str(), "stored versions not deleted");
        }
        let mut entry = Entry::new(who.clone(), What::Removed, name);
        entry.before = before.map(|before| before.digest().to_owned());
        lock.record(entry).await;
    }

    /// After the probes: versions that waited and are ready go into service; versions that became ready are stored.
    pub(super) async fn after_probe(&self) {
        let lock = self.changes.lock().await;
        let table = self.table();
        for (_, entry) in table.entries() {
            match (&entry.current, &entry.waiting) {
                (Some(current), Some(waiting)) if waiting.is_ready() || !current.is_ready() => {
                    self.put_in_service(&lock, waiting, What::Swapped, &Who::Host).await;
                }
                (Some(current), None) if current.is_ready() && entry.refused.is_none() => {
                    lock.store(current).await;
                }
                _ => {}
            }
        }
    }

    /// After turns: records which versions completed one, and an executor that went into quarantine goes back to the last
    /// version that did, if its `fail_mode` says so. That version crashed less recently than this one, or never.
    pub(super) async fn after_faults(&self) {
        let mut lock = self.changes.lock().await;
        let table = self.table();
        for (_, loaded) in table.loaded().filter(|(_, loaded)| loaded.is_newly_completed()) {
            lock.set_good(loaded, true).await;
        }
        for (name, loaded) in table.loaded().filter(|(_, loaded)| loaded.is_newly_quarantined()) {
            let mut entry = Entry::new(Who::Host, What::Quarantined, name);
            entry.digest = Some(loaded.digest().to_owned());
            lock.record(entry).await;
            lock.set_good(loaded, false).await;
            if loaded.config.fail_mode == FailMode::LastGood
                && let Err(error) = self.go_back_to_good(&mut lock, name).await
            {
                warn!(executor = name.as_str(), %error, "not rolled back; its turns fail until the quarantine ends");
            }
        }
    }

    /// Reads a component that does not come from the folder. A built-in one has no content to store.
    pub(super) async fn read_component(
        &self,
        config: &Executor,
        report: Report<'_>,
    ) -> Result<(Arc<[u8]>, Option<Content>), String> {
        let wasm: Arc<[u8]> = match &config.component {
            component @ ComponentRef::Builtin(name) => {
                let found = self.builtins.get(name);
                let found = found.ok_or_else(|| format!("{component}: there is no such component"));
                return found.map(|builtin| (Arc::from(builtin.wasm), None));
            }
            ComponentRef::File(path) => {
                watch::read_component(path).map_err(|error| error.to_string())?.into()
            }
            ComponentRef::Oci(reference) => {
                let progress = |Progress { received, total }| {
                    report(format!("pulling {}: {} of {} KiB", config.name, received >> 10, total >> 10));
                };
                let pulled = talaria_oci::pull(reference, &self.oci, &progress).await;
                pulled.map_err(|error| error.to_string())?.as_ref().into()
            }
        };
        Ok((Arc::clone(&wasm), Some(Content { wasm, policy: None })))
    }

    /// Replaces an entry of the table; creates it if it is absent.
    fn change(&self, name: &ExecutorName, change: impl FnOnce(&mut TableEntry)) {
        let mut table = Table::clone(&self.table());
        let mut entry = table.entries.get(name).map(|entry| TableEntry::clone(entry)).unwrap_or_default();
        change(&mut entry);
        table.entries.insert(name.clone(), Arc::new(entry));
        self.table.store(Arc::new(table));
        self.changed.notify_one();
    }
}

pub(super) fn is_builtin(config: &Executor) -> bool {
    matches!(config.component, ComponentRef::Builtin(_))
}

#[cfg(test)]
mod tests;
