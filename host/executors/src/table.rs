//! Who takes turns, at one moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::{ExecutorName, FailMode};
use crate::loaded::LoadedExecutor;

/// Who takes turns, at one moment.
#[derive(Clone)]
pub struct Table {
    pub(crate) entries: BTreeMap<ExecutorName, Arc<TableEntry>>,
    pub(crate) default: ExecutorName,
}

/// The place of one executor.
#[derive(Clone, Default)]
pub struct TableEntry {
    /// What takes its turns; none where nothing could be loaded.
    pub current: Option<Arc<LoadedExecutor>>,
    /// A newer version, whose upstream is down while the current one is ready. It takes over when it is ready.
    pub waiting: Option<Arc<LoadedExecutor>>,
    /// Why the newest version was refused.
    pub refused: Option<String>,
    /// Who takes its turns while it is not ready, as its configuration says, or said when it could be read last.
    pub fallback: Option<ExecutorName>,
}

// === impl Table ===

impl Table {
    /// The executor that takes the turns of this one now, and its name.
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
            // Where neither is ready, the first one's answer is the honest one.
            (Some(_), Some((_, loaded))) if !loaded.is_ready() => own,
            (_, Some(fallback)) => Some(fallback),
            (own, None) => own,
        }
    }

    /// Every executor.
    pub fn entries(&self) -> impl Iterator<Item = (&ExecutorName, &TableEntry)> {
        self.entries.iter().map(|(name, entry)| (name, &**entry))
    }

    /// One executor.
    pub fn entry(&self, name: &ExecutorName) -> Option<&TableEntry> {
        self.entries.get(name).map(|entry| &**entry)
    }

    /// Those that take turns.
    pub fn loaded(&self) -> impl Iterator<Item = (&ExecutorName, &Arc<LoadedExecutor>)> {
        self.entries.iter().filter_map(|(name, entry)| Some((name, entry.current.as_ref()?)))
    }

    /// Those whose newest version was refused, and why.
    pub fn refused(&self) -> impl Iterator<Item = (&ExecutorName, &str)> {
        self.entries.iter().filter_map(|(name, entry)| Some((name, entry.refused.as_deref()?)))
    }

    /// The one that takes a turn when nothing else is said.
    pub fn default_name(&self) -> &ExecutorName {
        &self.default
    }
}
