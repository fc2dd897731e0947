//! What each owner has in the store, and which of its tasks ended.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::Arc;

use talaria_turns::{Event, Kept, Principal, TaskId, TaskKey, Timestamp};

#[derive(Default)]
pub(super) struct Owners {
    owners: HashMap<Principal, Owned>,
    /// The bytes of all owners.
    bytes: u64,
}

/// What an owner has.
#[derive(Default)]
struct Owned {
    tasks: usize,
    bytes: u64,
    /// The tasks that ended, longest ago first.
    ended: BTreeSet<(Timestamp, TaskId)>,
}

/// Counts what is written.
struct Count(u64);

// === impl Owners ===

impl Owners {
    pub(super) fn created(&mut self, owner: &Principal) {
        self.owners.entry(owner.clone()).or_default().tasks += 1;
    }

    pub(super) fn grew(&mut self, owner: &Principal, bytes: u64) {
        self.owners.entry(owner.clone()).or_default().bytes += bytes;
        self.bytes += bytes;
    }

    pub(super) fn ended(&mut self, key: &TaskKey, at: Timestamp) {
        self.owners.entry(key.owner.clone()).or_default().ended.insert((at, key.task.clone()));
    }

    /// A task that ended was deleted.
    pub(super) fn deleted(&mut self, key: &TaskKey, at: Timestamp, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        let Some(owned) = self.owners.get_mut(&key.owner) else { return };
        owned.tasks = owned.tasks.saturating_sub(1);
        owned.bytes = owned.bytes.saturating_sub(bytes);
        owned.ended.remove(&(at, key.task.clone()));
        if owned.tasks == 0 {
            self.owners.remove(&key.owner);
        }
    }

    pub(super) fn kept(&self, owner: &Principal) -> Kept {
        self.owners.get(owner).map(Owned::kept).unwrap_or_default()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What every owner has, ordered by owner.
    pub(super) fn all(&self) -> Vec<(Principal, Kept)> {
        let mut all: Vec<_> =
            self.owners.iter().map(|(owner, owned)| (owner.clone(), owned.kept())).collect();
        all.sort_unstable_by(|(a, _), (b, _)| a.name().cmp(&b.name()));
        all
    }

    /// The task of an owner that ended longest ago, and when.
    pub(super) fn oldest(&self, owner: &Principal) -> Option<(Timestamp, TaskKey)> {
        let (at, task) = self.owners.get(owner)?.ended.first()?;
        Some((*at, TaskKey { owner: owner.clone(), task: task.clone() }))
    }

    /// The task to delete so that `creator` can have another of `bound` in all: the oldest that ended, of the owner that
    /// has the most. `None` if those that have more than an equal part have only unfinished tasks.
    pub(super) fn dispensable(&self, creator: &Principal, bound: usize) -> Option<TaskKey> {
        let count = self.owners.len() + usize::from(!self.owners.contains_key(creator));
        let part = bound / count.max(1);
        let tasks = |(owner, owned): (&Principal, &Owned)| owned.tasks + usize::from(owner == creator);
        let over = self.owners.iter().filter(|of| tasks(*of) > part && !of.1.ended.is_empty());
        let (owner, _) = over.max_by_key(|of| (tasks(*of), of.0.name()))?;
        Some(self.oldest(owner)?.1)
    }
}

// === impl Owned ===

impl Owned {
    fn kept(&self) -> Kept {
        Kept { tasks: self.tasks, finished: self.ended.len(), bytes: self.bytes }
    }
}

/// The bytes of these events as JSON, as the SQLite store has them.
pub(super) fn bytes(events: &[Arc<Event>]) -> u64 {
    if events.is_empty() {
        return 0;
    }
    let mut count = Count(0);
    let plain: Vec<&Event> = events.iter().map(AsRef::as_ref).collect();
    // Counting does not fail; an event that cannot be encoded is not counted to its end.
    let _ = serde_json::to_writer(&mut count, &plain);
    count.0
}

impl io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
