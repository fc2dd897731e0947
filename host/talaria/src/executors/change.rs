//! Every change of who takes turns, one at a time, each in the audit log.
//!
//! A version comes from the main file, from the folder, from an operator's upload, or back from disk; it always goes
//! through [`Executors::take`]:
//!
//! - refused at any step: what takes turns goes on, and the seat says why;
//! - loaded, its upstream down, while the version before is ready: it waits, and takes over when a probe passes;
//! - else it takes over: new turns are its own, turns under way end on the version that they began with.
//!
//! A version that took over and is ready is kept on disk. At the start, a version that is refused makes room for the one
//! that was kept.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use talaria_oci::Progress;
use tracing::{info, warn};

use super::audit::{Audit, Entry, What, Who};
use super::kept::{Content, Id, Kept};
use super::loaded::Loaded;
use super::watch::{self, Change, Watch};
use super::{Executors, Seat, Table};
use crate::config::{ComponentRef, Config, Executor, ExecutorName, FailMode};

/// The built-in components, by the name after `builtin:`.
const BUILTIN: [(&str, &[u8]); 5] = [
    ("chat-completions", include_bytes!("../../../../guests/dist/chat-completions.wasm")),
    ("conformance", include_bytes!("../../../../guests/dist/conformance.wasm")),
    ("hermes", include_bytes!("../../../../guests/dist/hermes.wasm")),
    ("hermes-runs", include_bytes!("../../../../guests/dist/hermes-runs.wasm")),
    ("plugin-callback", include_bytes!("../../../../guests/dist/plugin-callback.wasm")),
];

/// What a change needs besides the table.
#[derive(Default)]
pub(super) struct Keeper {
    pub(super) watch: Watch,
    /// None where nothing is kept.
    pub(super) kept: Option<Kept>,
    pub(super) audit: Option<Audit>,
}

/// What came of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It takes turns.
    Now,
    /// It takes turns as soon as its upstream answers; until then the version before does.
    WhenReady,
}

/// Hears of what takes a while.
pub(super) type Report<'a> = &'a (dyn Fn(String) + Sync);

// === impl Keeper ===

impl Keeper {
    /// With what is kept below a folder. Where that cannot be used the host goes on without, and says so.
    pub(super) fn open(config: &Config) -> Self {
        let kept = config.state.as_ref().and_then(|folder| {
            Kept::open(folder)
                .inspect_err(|error| {
                    warn!(%error, folder = %folder.display(), "versions of executors are not kept: no rollback");
                })
                .ok()
        });
        let audit = kept.as_ref().and_then(|kept| {
            Audit::open(kept.folder())
                .inspect_err(|error| warn!(%error, "changes of executors are only in the log"))
                .ok()
        });
        Self { watch: Watch::default(), kept, audit }
    }

    pub(super) async fn note(&self, entry: Entry) {
        let Entry { who, what, executor, digest, reason, .. } = &entry;
        info!(?who, ?what, executor, digest, reason, "executor changed");
        if let Some(audit) = &self.audit {
            audit.append(&entry).await;
        }
    }

    /// Keeps a version that takes turns and is ready.
    pub(super) async fn keep(&self, loaded: &Loaded) {
        if loaded.is_kept.swap(true, Ordering::Relaxed) {
            return;
        }
        let (Some(kept), Some(content)) = (self.kept.clone(), loaded.content.clone()) else { return };
        let name = loaded.config.name.clone();
        let result = blocking(move || kept.keep(&name, &content)).await;
        if let Err(error) = result {
            warn!(%error, executor = loaded.config.name.as_str(), "a good version was not kept");
        }
    }

    /// What is kept of an executor, by `which` of its versions.
    pub(super) async fn kept(
        &self,
        name: &ExecutorName,
        which: fn(&Kept, &ExecutorName) -> Option<Id>,
    ) -> Result<Option<Content>, String> {
        let Some(kept) = self.kept.clone() else { return Ok(None) };
        let name = name.clone();
        blocking(move || which(&kept, &name).map(|id| kept.content(&name, &id)).transpose())
            .await
            .map_err(|error| format!("the version that was kept cannot be read: {error}"))
    }

    /// The version in the folder that is passed over until it changes.
    pub(super) fn passes_over(&self, name: &ExecutorName, id: &Id) -> bool {
        self.kept.as_ref().and_then(|kept| kept.passed_over(name)).as_ref() == Some(id)
    }

    pub(super) fn pass_over(&self, name: &ExecutorName, id: Option<&Id>) {
        let Some(kept) = &self.kept else { return };
        if let Err(error) = kept.pass_over(name, id) {
            warn!(%error, executor = name.as_str(), "a restart will not know of the rollback");
        }
    }
}

// === impl Executors ===

impl Executors {
    /// Loads everything, at the start.
    pub(super) async fn load_all(&self, report: Report<'_>) {
        let mut keeper = self.keeper.lock().await;
        for (name, config) in &self.fixed {
            let taken = match read_component(config, &self.oci, report).await {
                Ok((_, Some(content))) if keeper.passes_over(name, &content.id()) => Err(()),
                Ok((wasm, content)) => {
                    let taken = self.take(&keeper, config.clone(), wasm, content, &Who::Start, report);
                    taken.await.map(drop).map_err(drop)
                }
                Err(reason) => {
                    self.refuse(&keeper, name, Some(config), &reason, &Who::Start).await;
                    Err(())
                }
            };
            if taken.is_err() {
                self.restore(&keeper, name, report).await;
            }
        }
        self.follow(&mut keeper, &Who::Start, report).await;
        // A default that is no longer in the folder, but was when it was last good.
        let default = self.table().default.clone();
        if self.table().seat(&default).is_none_or(|seat| seat.current.is_none()) {
            self.restore(&keeper, &default, report).await;
        }
    }

    /// Looks at the folder.
    pub(super) async fn look(&self, report: Report<'_>) {
        let mut keeper = self.keeper.lock().await;
        self.follow(&mut keeper, &Who::Folder, report).await;
    }

    async fn follow(&self, keeper: &mut Keeper, who: &Who, report: Report<'_>) {
        let is_first = *who == Who::Start;
        let (folder, mut watch) = (self.folder.clone(), std::mem::take(&mut keeper.watch));
        let looked = tokio::task::spawn_blocking(move || {
            let changes = watch.look(&folder, is_first);
            (watch, changes)
        });
        let changes = match looked.await {
            Ok((watch, changes)) => {
                keeper.watch = watch;
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
                    if keeper.passes_over(&name, &content.id()) {
                        if is_first {
                            self.restore(keeper, &name, report).await;
                        }
                        continue;
                    }
                    keeper.pass_over(&name, None);
                    if self.take_content(keeper, &name, content, who, report).await.is_err() {
                        self.restore_if_empty(keeper, &name, report).await;
                    }
                }
                Change::Unreadable(name, reason) => {
                    self.refuse(keeper, &name, None, &reason, who).await;
                    self.restore_if_empty(keeper, &name, report).await;
                }
                Change::Gone(name) => self.gone(keeper, &name, who, report).await,
            }
        }
    }

    /// Loads a version of an executor whose component is in the folder, and lets it take over.
    pub(super) async fn take_content(
        &self,
        keeper: &Keeper,
        name: &ExecutorName,
        content: Content,
        who: &Who,
        report: Report<'_>,
    ) -> Result<Taken, String> {
        let config = match self.configure(name, content.policy.as_deref()) {
            Ok(config) => config,
            Err(reason) => {
                self.refuse(keeper, name, None, &reason, who).await;
                return Err(reason);
            }
        };
        self.take(keeper, config, Arc::clone(&content.wasm), Some(content), who, report).await
    }

    /// The configuration of an executor in the folder.
    pub(super) fn configure(&self, name: &ExecutorName, policy: Option<&str>) -> Result<Executor, String> {
        let mut warnings = Vec::new();
        let config = self.folder.executor(name, policy, &|name| self.variable(name), &mut warnings);
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
            && self.table().seat(fallback).is_none()
        {
            warn!(executor = name.as_str(), %fallback, "the fallback is not there yet");
        }
        Ok(config)
    }

    /// Loads a version, and lets it take over as the head of this file says.
    pub(super) async fn take(
        &self,
        keeper: &Keeper,
        config: Executor,
        wasm: Arc<[u8]>,
        content: Option<Content>,
        who: &Who,
        report: Report<'_>,
    ) -> Result<Taken, String> {
        let name = config.name.clone();
        let loaded = match self.loader.load(config.clone(), wasm, content, report).await {
            Ok(loaded) => Arc::new(loaded),
            Err(reason) => {
                self.refuse(keeper, &name, Some(&config), &reason, who).await;
                return Err(reason);
            }
        };
        Ok(self.settle(keeper, &loaded, who).await)
    }

    /// Lets a version take over, or wait.
    pub(super) async fn settle(&self, keeper: &Keeper, loaded: &Arc<Loaded>, who: &Who) -> Taken {
        let name = &loaded.config.name;
        let before = self.table().seat(name).and_then(|seat| seat.current.clone());
        let is_worse = !loaded.is_ready() && before.as_ref().is_some_and(|before| before.is_ready());
        if is_worse {
            let reason = loaded.readiness().to_string();
            self.change(name, |seat| {
                seat.refused = None;
                seat.waiting = Some(Arc::clone(loaded));
            });
            let mut entry = Entry::new(who.clone(), What::Waiting, name);
            entry.digest = Some(loaded.digest().to_owned());
            entry.before = before.map(|before| before.digest().to_owned());
            entry.reason = Some(reason);
            keeper.note(entry).await;
            return Taken::WhenReady;
        }
        let what = if before.is_some() { What::Swapped } else { What::Loaded };
        self.seat(keeper, loaded, what, who).await;
        Taken::Now
    }

    /// Gives a version the turns of its name.
    pub(super) async fn seat(&self, keeper: &Keeper, loaded: &Arc<Loaded>, what: What, who: &Who) {
        let name = &loaded.config.name;
        let before = self.table().seat(name).and_then(|seat| seat.current.clone());
        self.change(name, |seat| {
            *seat = Seat {
                current: Some(Arc::clone(loaded)),
                waiting: None,
                refused: None,
                fallback: loaded.config.fallback.clone(),
            };
        });
        loaded.readiness().log(name);
        if loaded.is_ready() {
            keeper.keep(loaded).await;
        }
        // What ships with the host is no news at its start.
        if loaded.content.is_none() && *who == Who::Start {
            return;
        }
        let mut entry = Entry::new(who.clone(), what, name);
        entry.digest = Some(loaded.digest().to_owned());
        entry.before = before.map(|before| before.digest().to_owned());
        keeper.note(entry).await;
    }

    async fn refuse(
        &self,
        keeper: &Keeper,
        name: &ExecutorName,
        config: Option<&Executor>,
        reason: &str,
        who: &Who,
    ) {
        warn!(executor = name.as_str(), reason, "executor refused");
        self.change(name, |seat| {
            seat.waiting = None;
            seat.refused = Some(reason.to_owned());
            if let (None, Some(config)) = (&seat.current, config) {
                seat.fallback.clone_from(&config.fallback);
            }
        });
        let mut entry = Entry::new(who.clone(), What::Refused, name);
        entry.reason = Some(reason.to_owned());
        keeper.note(entry).await;
    }

    async fn restore_if_empty(&self, keeper: &Keeper, name: &ExecutorName, report: Report<'_>) {
        if self.table().seat(name).is_none_or(|seat| seat.current.is_none()) {
            self.restore(keeper, name, report).await;
        }
    }

    /// Puts the version that was kept where nothing takes turns, or where the newer one was rolled back.
    async fn restore(&self, keeper: &Keeper, name: &ExecutorName, report: Report<'_>) {
        let reason = self.table().seat(name).and_then(|seat| seat.refused.clone());
        let restored = match keeper.kept(name, Kept::current).await {
            Ok(Some(content)) => self.load_kept(name, content, report).await,
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
                self.seat(keeper, &loaded, What::Loaded, &Who::Start).await;
                self.change(name, |seat| seat.refused = reason);
            }
            Err(error) => {
                warn!(executor = name.as_str(), error, "the last good version does not load either")
            }
        }
    }

    pub(super) async fn load_kept(
        &self,
        name: &ExecutorName,
        content: Content,
        report: Report<'_>,
    ) -> Result<Arc<Loaded>, String> {
        let config = match self.fixed.get(name).filter(|config| !is_builtin(config)) {
            Some(config) => config.clone(),
            None => self.configure(name, content.policy.as_deref())?,
        };
        let wasm = Arc::clone(&content.wasm);
        self.loader.load(config, wasm, Some(content), report).await.map(Arc::new)
    }

    /// What was in the folder is not any more.
    pub(super) async fn gone(&self, keeper: &Keeper, name: &ExecutorName, who: &Who, report: Report<'_>) {
        if let Some(config) = self.fixed.get(name) {
            if let Ok((wasm, content)) = read_component(config, &self.oci, report).await {
                let _ = self.take(keeper, config.clone(), wasm, content, who, report).await;
            }
            return;
        }
        if *name == self.table().default {
            let reason =
                "its file is gone, but it is the default: it takes turns until the host is told otherwise";
            warn!(executor = name.as_str(), "{reason}");
            self.change(name, |seat| seat.refused = Some(reason.into()));
            return;
        }
        let before = self.table().seat(name).and_then(|seat| seat.current.clone());
        self.table.rcu(|table| {
            let mut table = Table::clone(table);
            table.seats.remove(name);
            table
        });
        self.changed.notify_one();
        if let Some(Err(error)) = keeper.kept.as_ref().map(|kept| kept.forget(name)) {
            warn!(%error, executor = name.as_str(), "its versions are still on disk");
        }
        let mut entry = Entry::new(who.clone(), What::Removed, name);
        entry.before = before.map(|before| before.digest().to_owned());
        keeper.note(entry).await;
    }

    /// Versions that waited and are ready now take over; those that became ready are kept.
    pub(super) async fn after_probe(&self) {
        let keeper = self.keeper.lock().await;
        let table = self.table();
        for (_, seat) in table.seats() {
            match (&seat.current, &seat.waiting) {
                (Some(current), Some(waiting)) if waiting.is_ready() || !current.is_ready() => {
                    self.seat(&keeper, waiting, What::Swapped, &Who::Host).await;
                }
                (Some(current), None) if current.is_ready() && seat.refused.is_none() => {
                    keeper.keep(current).await;
                }
                _ => {}
            }
        }
    }

    /// An executor went into quarantine: its version before takes over, where the operator wants that.
    pub(super) async fn after_crashes(&self) {
        let mut keeper = self.keeper.lock().await;
        let table = self.table();
        for (name, loaded) in table.loaded().filter(|(_, loaded)| loaded.is_newly_quarantined()) {
            let mut entry = Entry::new(Who::Host, What::Quarantined, name);
            entry.digest = Some(loaded.digest().to_owned());
            keeper.note(entry).await;
            if loaded.config.fail_mode == FailMode::LastGood
                && let Err(error) = self.go_back(&mut keeper, name, &Who::Host, &super::log).await
            {
                warn!(executor = name.as_str(), %error, "there is no version to go back to");
            }
        }
    }

    /// Replaces a seat; one that is not there is made.
    fn change(&self, name: &ExecutorName, change: impl FnOnce(&mut Seat)) {
        let mut table = Table::clone(&self.table());
        let mut seat = table.seats.get(name).map(|seat| Seat::clone(seat)).unwrap_or_default();
        change(&mut seat);
        table.seats.insert(name.clone(), Arc::new(seat));
        self.table.store(Arc::new(table));
        self.changed.notify_one();
    }
}

pub(super) fn is_builtin(config: &Executor) -> bool {
    matches!(config.component, ComponentRef::Builtin(_))
}

/// A component that does not come from the folder. What can change is kept.
pub(super) async fn read_component(
    config: &Executor,
    oci: &talaria_oci::Options,
    report: Report<'_>,
) -> Result<(Arc<[u8]>, Option<Content>), String> {
    let wasm: Arc<[u8]> = match &config.component {
        component @ ComponentRef::Builtin(name) => {
            let found = BUILTIN.iter().find(|(known, _)| known == name);
            let found = found.ok_or_else(|| format!("{component}: there is no such component"));
            return found.map(|(_, bytes)| (Arc::from(*bytes), None));
        }
        ComponentRef::File(path) => watch::read_component(path).map_err(|error| error.to_string())?.into(),
        ComponentRef::Oci(reference) => {
            let tell = |Progress { received, total }| {
                report(format!("pulling {}: {} of {} KiB", config.name, received >> 10, total >> 10));
            };
            let pulled = talaria_oci::pull(reference, oci, &tell).await;
            pulled.map_err(|error| error.to_string())?.as_ref().into()
        }
    };
    Ok((Arc::clone(&wasm), Some(Content { wasm, policy: None })))
}

/// Files are read and written off the threads that serve.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(std::io::Error::other(error)))
}
