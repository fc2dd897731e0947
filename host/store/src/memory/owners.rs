//! What each owner has in the store, in the order of lists: which of its tasks ended, and which did not.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::ops::Bound;
use std::sync::Arc;

use talaria_turns::{Event, Kept, Principal, State, TaskId, TaskKey, Timestamp};

use crate::counts::Counts;

#[derive(Default)]
pub(super) struct Owners {
    owners: HashMap<Principal, Owned>,
    /// The bytes of all owners.
    bytes: u64,
}

/// What an owner has.
#[derive(Default)]
struct Owned {
    states: Counts,
    bytes: u64,
    /// The tasks that ended, longest ago first. Their status does not change any more, so this is the order of lists too.
    ended: BTreeSet<(Timestamp, TaskId)>,
    /// The others: few, so a list sorts them.
    open: HashSet<TaskId>,
}

/// Counts what is written.
struct Count(u64);

// === impl Owners ===

impl Owners {
    /// A task was created, in the state of a task without events.
    pub(super) fn created(&mut self, key: &TaskKey) {
        let owned = self.owners.entry(key.owner.clone()).or_default();
        owned.states.add(State::Submitted, 1);
        owned.open.insert(key.task.clone());
    }

    /// Events were appended to a task, which took it from one state to another at this time.
    pub(super) fn appended(&mut self, key: &TaskKey, (from, to): (State, State), at: Timestamp, bytes: u64) {
        self.bytes += bytes;
        let Some(owned) = self.owners.get_mut(&key.owner) else { return };
        owned.bytes += bytes;
        owned.states.add(from, -1);
        owned.states.add(to, 1);
        if to.is_terminal() && !from.is_terminal() {
            owned.open.remove(&key.task);
            owned.ended.insert((at, key.task.clone()));
        }
    }

    /// A task was deleted.
    pub(super) fn deleted(&mut self, key: &TaskKey, state: State, at: Timestamp, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        let Some(owned) = self.owners.get_mut(&key.owner) else { return };
        owned.states.add(state, -1);
        owned.bytes = owned.bytes.saturating_sub(bytes);
        owned.ended.remove(&(at, key.task.clone()));
        owned.open.remove(&key.task);
        if owned.tasks() == 0 {
            self.owners.remove(&key.owner);
        }
    }

    /// The tasks of an owner in this state; without one, all of them.
    pub(super) fn count(&self, owner: &Principal, state: Option<State>) -> usize {
        self.owners.get(owner).map_or(0, |owned| owned.states.of(state))
    }

    /// The tasks of an owner that have not ended, in no order.
    pub(super) fn open(&self, owner: &Principal) -> impl Iterator<Item = &TaskId> {
        self.owners.get(owner).into_iter().flat_map(|owned| &owned.open)
    }

    /// The tasks of an owner that ended before this place of a list, from the newest to the oldest.
    pub(super) fn ended(
        &self,
        owner: &Principal,
        before: Option<(Timestamp, TaskId)>,
    ) -> impl Iterator<Item = &(Timestamp, TaskId)> {
        let before = before.map_or(Bound::Unbounded, Bound::Excluded);
        let range = (Bound::Unbounded, before);
        self.owners.get(owner).into_iter().flat_map(move |owned| owned.ended.range(range.clone()).rev())
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
        let tasks = |(owner, owned): (&Principal, &Owned)| owned.tasks() + usize::from(owner == creator);
        let over = self.owners.iter().filter(|of| tasks(*of) > part && !of.1.ended.is_empty());
        let (owner, _) = over.max_by_key(|of| (tasks(*of), of.0.name()))?;
        Some(self.oldest(owner)?.1)
    }
}

// === impl Owned ===

impl Owned {
    fn tasks(&self) -> usize {
        self.states.of(None)
    }

    fn kept(&self) -> Kept {
        Kept { tasks: self.tasks(), finished: self.ended.len(), bytes: self.bytes }
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
