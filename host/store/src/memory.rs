//! Tasks in memory.
//!
//! Bounded by the number of tasks: at the bound the task that ended longest ago is forgotten, with its events. Tasks
//! that have not ended are never forgotten, so a store full of them refuses the next. What executors remember is
//! bounded in the same way, oldest first.
//!
//! One lock, held for a map access at a time. A list looks at every task under it, which the bound on tasks bounds
//! too: an order that is kept up to date would cost every append what only a list needs.

mod callbacks;
mod conversations;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use talaria_turns::{
    Begin, ContextId, Entry, Event, Extent, GivenUp, Hook, HookId, Hooked, Logged, Message, Once, Onto, Page,
    Place, Principal, Query, Recall, Recollection, State, StateKey, Store, StoreError, Task, TaskId, TaskKey,
    Timestamp,
};

use crate::{append_of, number};

/// A store that is gone with the process.
pub struct Memory {
    bound: usize,
    // Held for a map access at a time, never across an await.
    inner: Mutex<Inner>,
    letters: Mutex<callbacks::Kept>,
}

#[derive(Default)]
struct Inner {
    tasks: HashMap<TaskKey, Record>,
    /// Tasks that ended, longest ago first.
    ended: BTreeMap<Ended, TaskKey>,
    /// Appends so far, to all tasks.
    appends: u64,
    /// What was taken in once, and by which task.
    accepted: HashMap<(Principal, Once), TaskId>,
    conversations: conversations::Conversations,
    state: HashMap<StateKey, Arc<[u8]>>,
    /// Keys of `state`, in the order in which they were first set.
    state_order: VecDeque<StateKey>,
}

struct Record {
    task: Arc<Task>,
    /// What it took in once.
    accepted: Vec<Once>,
    events: Vec<Arc<Event>>,
    /// Where in `events` each append begins, its number among all, and when it was.
    appends: Vec<(usize, u64, Timestamp)>,
    /// In the order of their ids.
    hooks: Vec<Hooked>,
}

/// When a task ended, then its id and its owner, so that no two are equal.
type Ended = (Timestamp, Box<str>, Principal);

impl Memory {
    /// A store for at most `bound` tasks, and as many values of executors.
    #[must_use]
    pub fn new(bound: usize) -> Self {
        Self { bound: bound.max(1), inner: Mutex::default(), letters: Mutex::default() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Each change is complete before the next statement, so a panic elsewhere left nothing half done.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for Memory {
    async fn write(
        &self,
        key: &TaskKey,
        onto: Onto<'_>,
        events: &[Event],
        once: Option<&Once>,
    ) -> Result<(), StoreError> {
        let mut inner = self.inner();
        let known = once.map(|once| (key.owner.clone(), once.clone()));
        if let Some(task) = known.as_ref().and_then(|known| inner.accepted.get(known)) {
            return Err(StoreError::Sent(task.clone()));
        }
        match onto {
            Onto::Nothing { context, host_made } => {
                inner.create(key, context, host_made, events, self.bound)?;
            }
            Onto::Version(expected) => inner.append(key, expected, events)?,
        }
        if let Some(known) = known {
            if let Some(record) = inner.tasks.get_mut(key) {
                record.accepted.push(known.1.clone());
            }
            inner.accepted.insert(known, key.task.clone());
        }
        Ok(())
    }

    async fn task(&self, key: &TaskKey) -> Result<Option<Arc<Task>>, StoreError> {
        Ok(self.inner().tasks.get(key).map(|record| Arc::clone(&record.task)))
    }

    async fn events(&self, key: &TaskKey, after: u64, limit: usize) -> Result<Vec<Entry>, StoreError> {
        let inner = self.inner();
        let record = inner.tasks.get(key).ok_or(StoreError::NotFound)?;
        let skipped = usize::try_from(after).unwrap_or(usize::MAX);
        let entries = record.events.iter().skip(skipped).take(limit).zip(after.saturating_add(1)..);
        Ok(entries.map(|(event, sequence)| Entry { sequence, event: Arc::clone(event) }).collect())
    }

    async fn log(&self, begin: Begin, limit: usize) -> Result<Vec<Logged>, StoreError> {
        let inner = self.inner();
        let first = match begin {
            Begin::At(number) => number,
            Begin::Last(appends) => number((inner.appends + 1).saturating_sub(appends as u64), 0),
        };
        let mut found: Vec<_> =
            inner.tasks.iter().flat_map(|(key, record)| record.since(key, first)).collect();
        found.sort_unstable_by_key(|logged| logged.number);
        found.truncate(limit);
        Ok(found)
    }

    async fn list(&self, owner: &Principal, query: &Query) -> Result<Page, StoreError> {
        let inner = self.inner();
        let mine = inner.tasks.iter().filter(|(key, _)| key.owner == *owner).map(|(_, record)| &record.task);
        let fits: Vec<&Arc<Task>> = mine.filter(|task| fits(task, query)).collect();
        let total = fits.len();
        let mut rest: Vec<&Arc<Task>> = match &query.after {
            None => fits,
            Some(after) => fits.into_iter().filter(|task| order(task) > place_order(after)).collect(),
        };
        rest.sort_unstable_by(|a, b| order(a).cmp(&order(b)));
        let more = rest.len() > query.limit;
        rest.truncate(query.limit);
        let tasks: Vec<Arc<Task>> = rest.into_iter().cloned().collect();
        let last = tasks.last().filter(|_| more);
        let next = last.map(|task| Place { at: task.status.at, task: task.id.clone() });
        Ok(Page { tasks, next, total })
    }

    async fn accepted(&self, owner: &Principal, once: &Once) -> Result<Option<TaskId>, StoreError> {
        Ok(self.inner().accepted.get(&(owner.clone(), once.clone())).cloned())
    }

    async fn recall(&self, recall: &Recall) -> Result<Vec<Message>, StoreError> {
        let inner = self.inner();
        let mut found = Recollection::new(recall);
        for task in inner.conversations.tasks(recall) {
            let key = TaskKey { owner: recall.owner.clone(), task: task.clone() };
            if let Some(record) = inner.tasks.get(&key) {
                found.add(task, record.events.iter().map(AsRef::as_ref), Extent::Whole);
            }
            if !found.has_room() {
                break;
            }
        }
        Ok(found.messages())
    }

    async fn unfinished(&self) -> Result<Vec<TaskKey>, StoreError> {
        let inner = self.inner();
        let unfinished = inner
            .tasks
            .iter()
            .filter(|(_, record)| !record.task.pending.is_empty() && !record.task.status.state.is_terminal());
        Ok(unfinished.map(|(key, _)| key.clone()).collect())
    }

    async fn stuck(&self, before: Timestamp) -> Result<Vec<TaskKey>, StoreError> {
        let inner = self.inner();
        let stuck = inner.tasks.iter().filter(|(_, record)| {
            let status = &record.task.status;
            !status.state.is_terminal() && status.at < before
        });
        Ok(stuck.map(|(key, _)| key.clone()).collect())
    }

    async fn forget(&self, before: Timestamp, keep: usize) -> Result<usize, StoreError> {
        let mut inner = self.inner();
        let mut left = HashSet::new();
        let mut forgotten = 0;
        while let Some(((at, ..), _)) = inner.ended.first_key_value()
            && (*at < before || inner.ended.len() > keep)
            && let Some((_, key)) = inner.ended.pop_first()
        {
            left.extend(inner.remove(&key).map(|context| (key.owner, context)));
            forgotten += 1;
        }
        if !left.is_empty() {
            for (key, record) in &inner.tasks {
                left.remove(&(key.owner.clone(), record.task.context.clone()));
            }
            let gone = |key: &StateKey| left.contains(&(key.owner.clone(), key.context.clone()));
            inner.state.retain(|key, _| !gone(key));
            inner.state_order.retain(|key| !gone(key));
        }
        Ok(forgotten)
    }

    async fn state(&self, key: &StateKey) -> Result<Option<Arc<[u8]>>, StoreError> {
        Ok(self.inner().state.get(key).cloned())
    }

    async fn state_beside(&self, key: &StateKey) -> Result<usize, StoreError> {
        let inner = self.inner();
        let beside = inner.state.iter().filter(|(other, _)| {
            *other != key
                && (&other.owner, &other.context, &other.executor)
                    == (&key.owner, &key.context, &key.executor)
        });
        Ok(beside.map(|(other, value)| other.key.len() + value.len()).sum())
    }

    async fn set_state(&self, key: &StateKey, value: Option<Arc<[u8]>>) -> Result<(), StoreError> {
        let mut inner = self.inner();
        match value {
            None => {
                inner.state.remove(key);
                inner.state_order.retain(|known| known != key);
            }
            Some(value) => {
                if inner.state.insert(key.clone(), value).is_none() {
                    inner.state_order.push_back(key.clone());
                }
                if inner.state.len() > self.bound
                    && let Some(oldest) = inner.state_order.pop_front()
                {
                    inner.state.remove(&oldest);
                }
            }
        }
        Ok(())
    }

    async fn set_hook(&self, key: &TaskKey, hook: &Hook, cursor: u64) -> Result<(), StoreError> {
        let mut inner = self.inner();
        let hooks = &mut inner.tasks.get_mut(key).ok_or(StoreError::NotFound)?.hooks;
        match hooks.binary_search_by(|known| known.hook.id.as_str().cmp(hook.id.as_str())) {
            Ok(at) => {
                if let Some(known) = hooks.get_mut(at) {
                    known.hook = hook.clone();
                    known.given_up = None;
                }
            }
            Err(at) => {
                hooks.insert(at, Hooked { key: key.clone(), hook: hook.clone(), cursor, given_up: None });
            }
        }
        Ok(())
    }

    async fn hooks(&self, key: &TaskKey) -> Result<Vec<Hooked>, StoreError> {
        Ok(self.inner().tasks.get(key).ok_or(StoreError::NotFound)?.hooks.clone())
    }

    async fn remove_hook(&self, key: &TaskKey, hook: &HookId) -> Result<(), StoreError> {
        let mut inner = self.inner();
        let record = inner.tasks.get_mut(key).ok_or(StoreError::NotFound)?;
        record.hooks.retain(|known| known.hook.id != *hook);
        Ok(())
    }

    async fn move_hook(
        &self,
        key: &TaskKey,
        hook: &HookId,
        cursor: u64,
        given_up: Option<&GivenUp>,
    ) -> Result<(), StoreError> {
        let mut inner = self.inner();
        let hooks = inner.tasks.get_mut(key).map(|record| record.hooks.as_mut_slice()).unwrap_or_default();
        if let Some(known) = hooks.iter_mut().find(|known| known.hook.id == *hook) {
            known.cursor = cursor;
            known.given_up = given_up.cloned();
        }
        Ok(())
    }

    async fn open_hooks(&self) -> Result<Vec<Hooked>, StoreError> {
        let inner = self.inner();
        let open = |record: &Record, hooked: &Hooked| {
            let Task { version, status, .. } = &*record.task;
            hooked.given_up.is_none() && (hooked.cursor < *version || !status.state.is_terminal())
        };
        let open =
            inner.tasks.values().flat_map(|record| record.hooks.iter().filter(|hooked| open(record, hooked)));
        Ok(open.cloned().collect())
    }

    async fn given_up(&self, limit: usize) -> Result<Vec<Hooked>, StoreError> {
        let inner = self.inner();
        let hooks = inner.tasks.values().flat_map(|record| &record.hooks);
        let mut given_up: Vec<_> = hooks.filter(|hooked| hooked.given_up.is_some()).cloned().collect();
        given_up.sort_by_key(|hooked| Reverse(hooked.given_up.as_ref().map(|given_up| given_up.at)));
        given_up.truncate(limit);
        Ok(given_up)
    }
}

// === impl Record ===

impl Record {
    /// Events with this number or a greater one.
    fn since<'a>(&'a self, key: &'a TaskKey, first: u64) -> impl Iterator<Item = Logged> + 'a {
        let from = self.appends.partition_point(|(_, append, _)| *append < append_of(first));
        let appends = self.appends.get(from..).unwrap_or_default().iter().enumerate();
        let each = move |(nth, (begin, append, at)): (usize, &(usize, u64, Timestamp))| {
            let end = self.appends.get(from + nth + 1).map_or(self.events.len(), |(next, ..)| *next);
            let (begin, append, at) = (*begin, *append, *at);
            let events = self.events.get(begin..end).unwrap_or_default().iter().enumerate();
            events.map(move |(place, event)| Logged {
                number: number(append, place),
                at,
                key: key.clone(),
                context: self.task.context.clone(),
                entry: Entry { sequence: (begin + place + 1) as u64, event: Arc::clone(event) },
            })
        };
        appends.flat_map(each).filter(move |logged| logged.number >= first)
    }
}

// === impl Inner ===

impl Inner {
    /// All or nothing.
    fn create(
        &mut self,
        key: &TaskKey,
        context: &ContextId,
        host_made: bool,
        events: &[Event],
        bound: usize,
    ) -> Result<(), StoreError> {
        State::Submitted.check(events)?;
        if self.tasks.contains_key(key) {
            return Err(StoreError::Exists);
        }
        while self.tasks.len() >= bound {
            let Some((_, oldest)) = self.ended.pop_first() else {
                return Err(StoreError::Full(format!("{bound} tasks are under way, which is the most")));
            };
            self.remove(&oldest);
        }
        let record = Record {
            task: Arc::new(Task::new(key.task.clone(), context.clone())),
            accepted: Vec::new(),
            events: Vec::new(),
            appends: Vec::new(),
            hooks: Vec::new(),
        };
        self.tasks.insert(key.clone(), record);
        self.conversations.join(key, context, host_made);
        self.append(key, 0, events)
    }

    /// All or nothing.
    fn append(&mut self, key: &TaskKey, expected: u64, events: &[Event]) -> Result<(), StoreError> {
        let record = self.tasks.get_mut(key).ok_or(StoreError::NotFound)?;
        let actual = record.task.version;
        if actual != expected {
            return Err(StoreError::Conflict { expected, actual });
        }
        record.task.status.state.check(events)?;
        let was_terminal = record.task.status.state.is_terminal();
        // A copy only if somebody still reads the version before.
        let task = Arc::make_mut(&mut record.task);
        for event in events {
            task.apply(event)?;
        }
        if !events.is_empty() {
            self.appends += 1;
            record.appends.push((record.events.len(), self.appends, Timestamp::now()));
        }
        record.events.extend(events.iter().cloned().map(Arc::new));
        if record.task.status.state.is_terminal() && !was_terminal {
            let ended = (record.task.status.at, key.task.as_str().into(), key.owner.clone());
            self.ended.insert(ended, key.clone());
        }
        Ok(())
    }

    /// Forgets a task and what it took in; gives the conversation that it belonged to.
    fn remove(&mut self, key: &TaskKey) -> Option<ContextId> {
        let record = self.tasks.remove(key)?;
        for once in record.accepted {
            self.accepted.remove(&(key.owner.clone(), once));
        }
        self.conversations.leave(key, &record.task.context);
        Some(record.task.context.clone())
    }
}

fn fits(task: &Task, query: &Query) -> bool {
    query.context.as_ref().is_none_or(|context| *context == task.context)
        && query.state.is_none_or(|state| state == task.status.state)
        && query.since.is_none_or(|since| task.status.at >= since)
}

/// What a list is sorted by.
fn order(task: &Task) -> (Reverse<Timestamp>, Reverse<&str>) {
    (Reverse(task.status.at), Reverse(task.id.as_str()))
}

fn place_order(place: &Place) -> (Reverse<Timestamp>, Reverse<&str>) {
    (Reverse(place.at), Reverse(place.task.as_str()))
}

#[cfg(test)]
mod tests;
