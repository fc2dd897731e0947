//! The table of executors: for each name, the version in service and what is known of a newer one.
//!
//! A table never changes; a change replaces the whole table, so readers need no lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::{ExecutorName, FailMode};
use crate::loaded::LoadedExecutor;

/// The executors at one moment.
#[derive(Clone)]
pub struct Table {
    pub(crate) entries: BTreeMap<ExecutorName, Arc<TableEntry>>,
    pub(crate) default: ExecutorName,
}

/// One executor.
#[derive(Clone, Default)]
pub struct TableEntry {
    /// The version in service; `None` if no version could be loaded.
    pub current: Option<Arc<LoadedExecutor>>,
    /// A newer version that is not ready while the current one is. It goes into service when it is ready.
    pub waiting: Option<Arc<LoadedExecutor>>,
    /// Why the newest version was refused.
    pub refused: Option<String>,
    /// The executor that takes its turns while it is not ready, by the last configuration that could be read.
    pub fallback: Option<ExecutorName>,
}

// === impl Table ===

impl Table {
    /// The executor that takes the turns of `name` now: itself, or its fallback.
    pub fn stand_in<'a>(
        &'a self,
        name: &'a ExecutorName,
    ) -> Option<(&'a ExecutorName, &'a Arc<LoadedExecutor>)> {
        let entry = self.entries.get(name)?;
        let own = entry.current.as_ref().map(|loaded| (name, loaded));
        let is_closed = |loaded: &LoadedExecutor| {
            loaded.is_quarantined() && loaded.config.fail_mode != FailMode::Fallback
        };
        if own.is_some_and(|(_, loaded)| loaded.is_ready() || is_closed(loaded)) {
            return own;
        }
        let fallback = entry.fallback.as_ref().and_then(|name| {
            let entry = self.entries.get(name)?;
            Some((name, entry.current.as_ref()?))
        });
        match (own, fallback) {
            // If neither is ready, the failure of the one that was asked for is the honest answer.
            (Some(_), Some((_, loaded))) if !loaded.is_ready() => own,
            (_, Some(fallback)) => Some(fallback),
            (own, None) => own,
        }
    }

    /// Every executor.
    pub fn entries(&self) -> impl Iterator<Item = (&ExecutorName, &TableEntry)> {
        self.entries.iter().map(|(name, entry)| (name, &**entry))
    }

    /// The executor of that name.
    pub fn entry(&self, name: &ExecutorName) -> Option<&TableEntry> {
        self.entries.get(name).map(|entry| &**entry)
    }

    /// Executors with a version in service.
    pub fn loaded(&self) -> impl Iterator<Item = (&ExecutorName, &Arc<LoadedExecutor>)> {
        self.entries.iter().filter_map(|(name, entry)| Some((name, entry.current.as_ref()?)))
    }

    /// Executors whose newest version was refused, and why.
    pub fn refused(&self) -> impl Iterator<Item = (&ExecutorName, &str)> {
        self.entries.iter().filter_map(|(name, entry)| Some((name, entry.refused.as_deref()?)))
    }

    /// The executor that takes a turn if no rule applies.
    pub fn default_name(&self) -> &ExecutorName {
        &self.default
    }
}
