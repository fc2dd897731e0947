//! Every change of who takes turns, one at a time, each in the audit log.
//!
//! A version comes from the main file, from the folder, from an operator's upload, or back from disk; it always goes
//! through [`Executors::take`]:
//!
//! - refused at any step: what takes turns goes on, and the entry says why;
//! - loaded, its upstream down, while the version before is ready: it waits, and takes over when a probe passes;
//! - else it takes over: new turns are its own, turns under way end on the version that they began with.
//!
//! A version that took over and is ready is kept on disk. At the start, a version that is refused makes room for the one
//! that was kept.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use talaria_oci::Progress;
use tracing::{info, warn};

use super::audit::{Audit, Entry, What, Who};
use super::loaded::LoadedExecutor;
use super::versions::{Content, Id, VersionStore};
use super::watch::{self, Change, Watch};
use crate::config::{ComponentRef, Executor, ExecutorName, FailMode};
use crate::executors::{Executors, log};
use crate::table::{Table, TableEntry};

/// What a change needs besides the table.
#[derive(Default)]
pub(super) struct ChangeLock {
    pub(super) watch: Watch,
    /// None where nothing is kept.
    pub(super) versions: Option<VersionStore>,
    pub(super) audit: Option<Audit>,
}

/// What came of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It takes turns.
    Now,
    /// It takes turns as soon as its upstream answers; until then the version before does.
    WhenReady,
}

/// Hears of what takes a while.
pub(super) type Report<'a> = &'a (dyn Fn(String) + Sync);

// === impl ChangeLock ===

impl ChangeLock {
    /// With what is kept below a folder. Where that cannot be used the host goes on without, and says so.
    pub(super) fn open(state: Option<&Path>) -> Self {
        let versions = state.and_then(|folder| {
            VersionStore::open(folder)
                .inspect_err(|error| {
                    warn!(%error, folder = %folder.display(), "versions of executors are not kept: no rollback");
                })
                .ok()
        });
        let audit = versions.as_ref().and_then(|versions| {
            Audit::open(versions.folder())
                .inspect_err(|error| warn!(%error, "changes of executors are only in the log"))
                .ok()
        });
        Self { watch: Watch::default(), versions, audit }
    }

    pub(super) async fn note(&self, entry: Entry) {
        let Entry { who, what, executor, digest, reason, .. } = &entry;
        info!(?who, ?what, executor, digest, reason, "executor changed");
        if let Some(audit) = &self.audit {
            audit.append(&entry).await;
        }
    }

    /// Keeps a version that takes turns and is ready.
    pub(super) async fn keep(&self, loaded: &LoadedExecutor) {
        if loaded.is_stored.swap(true, Ordering::Relaxed) {
            return;
        }
        let (Some(kept), Some(content)) = (self.versions.clone(), loaded.content.clone()) else { return };
        let name = loaded.config.name.clone();
        let result = blocking(move || kept.keep(&name, &content)).await;
        if let Err(error) = result {
            warn!(%error, executor = loaded.config.name.as_str(), "a good version was not kept");
        }
    }

    /// What is kept of an executor, by `which` of its versions.
    pub(super) async fn stored(
        &self,
        name: &ExecutorName,
        which: fn(&VersionStore, &ExecutorName) -> Option<Id>,
    ) -> Result<Option<Content>, String> {
        let Some(kept) = self.versions.clone() else { return Ok(None) };
        let name = name.clone();
        blocking(move || which(&kept, &name).map(|id| kept.content(&name, &id)).transpose())
            .await
            .map_err(|error| format!("the version that was kept cannot be read: {error}"))
    }

    /// The version in the folder that is passed over until it changes.
    pub(super) fn skips(&self, name: &ExecutorName, id: &Id) -> bool {
        self.versions.as_ref().and_then(|kept| kept.skipped(name)).as_ref() == Some(id)
    }

    pub(super) fn set_skipped(&self, name: &ExecutorName, id: Option<&Id>) {
        let Some(kept) = &self.versions else { return };
        if let Err(error) = kept.set_skipped(name, id) {
            warn!(%error, executor = name.as_str(), "a restart will not know of the rollback");
        }
    }
}

// === impl Executors ===

impl Executors {
    /// Loads everything, at the start.
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
        // A default that is no longer in the folder, but was when it was last good.
        let default = self.table().default.clone();
        if self.table().entry(&default).is_none_or(|entry| entry.current.is_none()) {
            self.restore(&lock, &default, report).await;
        }
    }

    /// Looks at the folder.
    pub(super) async fn look(&self, report: Report<'_>) {
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
                warn!(%error, "the folder of executors was not looked at");
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

    /// Loads a version of an executor whose component is in the folder, and lets it take over.
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

    /// The configuration of an executor in the folder.
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
            warn!(executor = name.as_str(), %fallback, "the fallback is not there yet");
        }
        Ok(config)
    }

    /// Loads a version, and lets it take over as the head of this file says.
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

    /// Lets a version take over, or wait.
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
            lock.note(entry).await;
            return Taken::WhenReady;
        }
        let what = if before.is_some() { What::Swapped } else { What::Loaded };
        self.put_in_service(lock, loaded, what, who).await;
        Taken::Now
    }

    /// Gives a version the turns of its name.
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
            lock.keep(loaded).await;
        }
        // What ships with the host is no news at its start.
        if loaded.content.is_none() && *who == Who::Start {
            return;
        }
        let mut entry = Entry::new(who.clone(), what, name);
        entry.digest = Some(loaded.digest().to_owned());
        entry.before = before.map(|before| before.digest().to_owned());
        lock.note(entry).await;
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
        lock.note(entry).await;
    }

    async fn restore_if_empty(&self, lock: &ChangeLock, name: &ExecutorName, report: Report<'_>) {
        if self.table().entry(name).is_none_or(|entry| entry.current.is_none()) {
            self.restore(lock, name, report).await;
        }
    }

    /// Puts the version that was kept where nothing takes turns, or where the newer one was rolled back.
    async fn restore(&self, lock: &ChangeLock, name: &ExecutorName, report: Report<'_>) {
        let reason = self.table().entry(name).and_then(|entry| entry.refused.clone());
        let restored = match lock.stored(name, VersionStore::current).await {
            Ok(Some(content)) => self.load_stored(name, content, report).await,
            Ok(None) => return,
            Err(error) => Err(error),
        };
        match restored {
            Ok(loaded) => {
                warn!(
                    executor = name.as_str(),
                    digest = loaded.digest(),
                    "the last good version takes turns"
                );
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

    /// What was in the folder is not any more.
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
        if let Some(Err(error)) = lock.versions.as_ref().map(|kept| kept.delete(name)) {
            warn!(%error, executor = name.as_str(), "its versions are still on disk");
        }
        let mut entry = Entry::new(who.clone(), What::Removed, name);
        entry.before = before.map(|before| before.digest().to_owned());
        lock.note(entry).await;
    }

    /// Versions that waited and are ready now take over; those that became ready are kept.
    pub(super) async fn after_probe(&self) {
        let lock = self.changes.lock().await;
        let table = self.table();
        for (_, entry) in table.entries() {
            match (&entry.current, &entry.waiting) {
                (Some(current), Some(waiting)) if waiting.is_ready() || !current.is_ready() => {
                    self.put_in_service(&lock, waiting, What::Swapped, &Who::Host).await;
                }
                (Some(current), None) if current.is_ready() && entry.refused.is_none() => {
                    lock.keep(current).await;
                }
                _ => {}
            }
        }
    }

    /// An executor went into quarantine: its version before takes over, where the operator wants that.
    pub(super) async fn after_crashes(&self) {
        let mut lock = self.changes.lock().await;
        let table = self.table();
        for (name, loaded) in table.loaded().filter(|(_, loaded)| loaded.is_newly_quarantined()) {
            let mut entry = Entry::new(Who::Host, What::Quarantined, name);
            entry.digest = Some(loaded.digest().to_owned());
            lock.note(entry).await;
            if loaded.config.fail_mode == FailMode::LastGood
                && let Err(error) = self.go_back(&mut lock, name, &Who::Host, &log).await
            {
                warn!(executor = name.as_str(), %error, "there is no version to go back to");
            }
        }
    }

    /// Reads a component that does not come from the folder. What can change is kept.
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
                let tell = |Progress { received, total }| {
                    report(format!("pulling {}: {} of {} KiB", config.name, received >> 10, total >> 10));
                };
                let pulled = talaria_oci::pull(reference, &self.oci, &tell).await;
                pulled.map_err(|error| error.to_string())?.as_ref().into()
            }
        };
        Ok((Arc::clone(&wasm), Some(Content { wasm, policy: None })))
    }

    /// Replaces a entry; one that is not there is made.
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

/// Files are read and written off the threads that serve.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(std::io::Error::other(error)))
}
