//! Tasks in memory.
//!
//! The store keeps events and folds them into a task when the task is read, as the SQLite store does; a live task is
//! folded by the domain, not here. For each task it keeps the few values that lists and checks need.
//!
//! The number of tasks is bounded: at the bound, the owner that has the most loses the task that ended longest ago, with
//! its events. Tasks that have not ended are never deleted, nor those of an owner within its equal part, so a store that is
//! full of them rejects the next one. The values of executors are bounded in the same way, oldest first.
//!
//! There is one lock, held for one map access at a time. A page of a list is read under it, from the order in which the
//! tasks of its owner ended ([`lists`]).

mod callbacks;
mod contexts;
mod delegations;
mod lists;
mod owners;
mod record;
mod survey;

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use foldhash::quality::RandomState;
use talaria_turns::{
    Begin, ContextId, Delegation, EVENTS_BYTES, Entry, Event, Extent, GivenUp, Kept, Logged, Message, Once,
    Onto, Page, Principal, PushConfig, PushConfigId, Query, Recall, Recollection, Retention, Said, State,
    StateKey, Store, StoreError, StoredPushConfig, Survey, Surveyed, Task, TaskId, TaskKey, TaskRow,
    Timestamp,
};

use self::owners::Owners;
use self::record::{Append, Record};
use crate::{full, number};

/// A store that ends with the process.
pub struct Memory {
    bound: usize,
    max_bytes: Option<u64>,
    // Held for one map access at a time, never across an await.
    inner: Mutex<Inner>,
    replies: Mutex<callbacks::Replies>,
    delegations: Mutex<Vec<Delegation>>,
}

#[derive(Default)]
struct Inner {
    // The host makes the ids of tasks, so nobody else can choose keys whose hashes collide.
    tasks: HashMap<TaskKey, Record, RandomState>,
    owners: Owners,
    /// The number of appends so far, to all tasks.
    appends: u64,
    /// The messages that were accepted once, and their tasks.
    accepted: HashMap<(Principal, Once), TaskId>,
    contexts: contexts::Contexts,
    state: HashMap<StateKey, Arc<[u8]>>,
    /// The keys of `state` by owner, in the order in which they were first set.
    state_order: HashMap<Principal, VecDeque<StateKey>>,
}

impl Memory {
    /// Makes a store for at most `bound` tasks, and as many values of executors.
    #[must_use]
    pub fn new(bound: usize) -> Self {
        Self {
            bound: bound.max(1),
            max_bytes: None,
            inner: Mutex::default(),
            replies: Mutex::default(),
            delegations: Mutex::default(),
        }
    }

    /// Rejects new messages when the events have so many bytes, less an eighth for the turns under way.
    #[must_use]
    pub fn with_max_bytes(self, max_bytes: u64) -> Self {
        Self { max_bytes: Some(max_bytes), ..self }
    }

    /// An error if there is no room for a new message.
    fn room_in(&self, inner: &Inner) -> Result<(), StoreError> {
        let size = inner.owners.bytes();
        match self.max_bytes.filter(|max| size >= max - max / 8) {
            Some(max) => Err(StoreError::Full(full(size, max))),
            None => Ok(()),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // No statement under the lock leaves a change half done, so the data is good even after a panic.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for Memory {
    async fn write(
        &self,
        key: &TaskKey,
        onto: Onto<'_>,
        events: &[Arc<Event>],
        once: Option<&Once>,
    ) -> Result<(), StoreError> {
        let mut inner = self.inner();
        let known = once.map(|once| (key.owner.clone(), once.clone()));
        if let Some(task) = known.as_ref().and_then(|known| inner.accepted.get(known)) {
            return Err(StoreError::Sent(task.clone()));
        }
        match onto {
            Onto::Nothing { context, host_made } => {
                self.room_in(&inner)?;
                inner.create(key, context, host_made, events, self.bound)?;
            }
            Onto::Version(expected) => {
                if events.iter().any(|event| matches!(**event, Event::Accepted { .. })) {
                    self.room_in(&inner)?;
                }
                inner.append(key, expected, events)?;
            }
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
        let inner = self.inner();
        inner.tasks.get(key).map(|record| record.fold(key)).transpose()
    }

    async fn events(&self, key: &TaskKey, after: u64, limit: usize) -> Result<Vec<Entry>, StoreError> {
        let inner = self.inner();
        let record = inner.tasks.get(key).ok_or(StoreError::NotFound)?;
        let skipped = usize::try_from(after).unwrap_or(usize::MAX);
        let entries = record.events.iter().skip(skipped).take(limit).zip(after.saturating_add(1)..);
        let mut size = 0;
        let fits = |(event, _): &(&Arc<Event>, u64)| {
            let fits = size < EVENTS_BYTES;
            size += event.size();
            fits
        };
        let entries = entries.take_while(fits);
        Ok(entries.map(|(event, sequence)| Entry { sequence, event: Arc::clone(event) }).collect())
    }

    async fn times(&self, key: &TaskKey, after: u64) -> Result<Vec<(u64, Timestamp)>, StoreError> {
        let inner = self.inner();
        let record = inner.tasks.get(key).ok_or(StoreError::NotFound)?;
        let first = |append: &Append| append.begin as u64 + 1;
        let from = record.appends.partition_point(|append| first(append) <= after.saturating_add(1));
        let appends = record.appends.get(from.saturating_sub(1)..).unwrap_or_default();
        Ok(appends.iter().map(|append| (first(append), append.at)).collect())
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
        self.inner().list(owner, query)
    }

    async fn survey(&self, survey: &Survey) -> Result<Surveyed, StoreError> {
        Ok(self.inner().survey(survey))
    }

    async fn find(&self, task: &TaskId) -> Result<Option<TaskRow>, StoreError> {
        Ok(self.inner().find(task))
    }

    async fn accepted(&self, owner: &Principal, once: &Once) -> Result<Option<TaskId>, StoreError> {
        Ok(self.inner().accepted.get(&(owner.clone(), once.clone())).cloned())
    }

    async fn recall(&self, recall: &Recall) -> Result<Vec<Arc<Message>>, StoreError> {
        let inner = self.inner();
        let mut found = Recollection::new(recall);
        for task in inner.contexts.tasks(recall) {
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
        let mut unfinished = Vec::new();
        for (key, record) in inner.tasks.iter().filter(|(_, record)| !record.state.is_terminal()) {
            if record.state == State::Working || !record.fold(key)?.pending.is_empty() {
                unfinished.push(key.clone());
            }
        }
        Ok(unfinished)
    }

    async fn stuck(&self, before: Timestamp) -> Result<Vec<TaskKey>, StoreError> {
        let inner = self.inner();
        let is_stuck = |record: &Record| !record.state.is_terminal() && record.status_at < before;
        let stuck = inner.tasks.iter().filter(|(_, record)| is_stuck(record));
        Ok(stuck.map(|(key, _)| key.clone()).collect())
    }

    async fn forget(&self, retention: &Retention) -> Result<usize, StoreError> {
        let mut inner = self.inner();
        let mut left = HashSet::new();
        let mut forgotten = 0;
        let owners = inner.owners.all();
        for ((owner, _), keep) in owners.iter().zip(retention.finished(&owners)) {
            let most = retention.shares.of(owner).bytes.unwrap_or(u64::MAX);
            while let Some((at, key)) = inner.owners.oldest(owner)
                && let kept = inner.owners.kept(owner)
                && (at < retention.since || kept.finished > keep || kept.bytes > most)
            {
                left.extend(inner.remove(&key).map(|context| (key.owner, context)));
                forgotten += 1;
            }
        }
        if !left.is_empty() {
            for (key, record) in &inner.tasks {
                left.remove(&(key.owner.clone(), record.context.clone()));
            }
            let gone = |key: &StateKey| left.contains(&(key.owner.clone(), key.context.clone()));
            inner.state.retain(|key, _| !gone(key));
            inner.state_order.retain(|_, keys| {
                keys.retain(|key| !gone(key));
                !keys.is_empty()
            });
        }
        Ok(forgotten)
    }

    async fn kept(&self, owner: &Principal) -> Result<Kept, StoreError> {
        Ok(self.inner().owners.kept(owner))
    }

    async fn has_room(&self) -> Result<(), StoreError> {
        self.room_in(&self.inner())
    }

    fn size(&self) -> u64 {
        self.inner().owners.bytes()
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
                if let Some(keys) = inner.state_order.get_mut(&key.owner) {
                    keys.retain(|known| known != key);
                }
            }
            Some(value) => {
                if inner.state.insert(key.clone(), value).is_none() {
                    inner.state_order.entry(key.owner.clone()).or_default().push_back(key.clone());
                }
                let most = |inner: &mut Inner| {
                    inner.state_order.values_mut().max_by_key(|keys| keys.len())?.pop_front()
                };
                if inner.state.len() > self.bound
                    && let Some(oldest) = most(&mut inner)
                {
                    inner.state.remove(&oldest);
                }
            }
        }
        Ok(())
    }

    async fn set_push_config(
        &self,
        key: &TaskKey,
        config: &PushConfig,
        cursor: u64,
    ) -> Result<(), StoreError> {
        let mut inner = self.inner();
        let configs = &mut inner.tasks.get_mut(key).ok_or(StoreError::NotFound)?.push;
        match configs.binary_search_by(|known| known.config.id.as_str().cmp(config.id.as_str())) {
            Ok(at) => {
                if let Some(known) = configs.get_mut(at) {
                    known.config = config.clone();
                    known.given_up = None;
                }
            }
            Err(at) => {
                configs.insert(
                    at,
                    StoredPushConfig { key: key.clone(), config: config.clone(), cursor, given_up: None },
                );
            }
        }
        Ok(())
    }

    async fn push_configs(&self, key: &TaskKey) -> Result<Vec<StoredPushConfig>, StoreError> {
        Ok(self.inner().tasks.get(key).ok_or(StoreError::NotFound)?.push.clone())
    }

    async fn delete_push_config(&self, key: &TaskKey, config: &PushConfigId) -> Result<(), StoreError> {
        let mut inner = self.inner();
        let record = inner.tasks.get_mut(key).ok_or(StoreError::NotFound)?;
        record.push.retain(|known| known.config.id != *config);
        Ok(())
    }

    async fn move_push_cursor(
        &self,
        key: &TaskKey,
        config: &PushConfigId,
        cursor: u64,
        given_up: Option<&GivenUp>,
    ) -> Result<(), StoreError> {
        let mut inner = self.inner();
        let configs = inner.tasks.get_mut(key).map(|record| record.push.as_mut_slice()).unwrap_or_default();
        if let Some(known) = configs.iter_mut().find(|known| known.config.id == *config) {
            known.cursor = cursor;
            known.given_up = given_up.cloned();
        }
        Ok(())
    }

    async fn open_push_configs(&self) -> Result<Vec<StoredPushConfig>, StoreError> {
        let inner = self.inner();
        let open = |record: &Record, stored: &StoredPushConfig| {
            stored.given_up.is_none() && (stored.cursor < record.version() || !record.state.is_terminal())
        };
        let open =
            inner.tasks.values().flat_map(|record| record.push.iter().filter(|stored| open(record, stored)));
        Ok(open.cloned().collect())
    }

    async fn given_up(&self, limit: usize) -> Result<Vec<StoredPushConfig>, StoreError> {
        let inner = self.inner();
        let configs = inner.tasks.values().flat_map(|record| &record.push);
        let mut given_up: Vec<_> = configs.filter(|stored| stored.given_up.is_some()).cloned().collect();
        given_up.sort_by_key(|stored| Reverse(stored.given_up.as_ref().map(|given_up| given_up.at)));
        given_up.truncate(limit);
        Ok(given_up)
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
        events: &[Arc<Event>],
        bound: usize,
    ) -> Result<(), StoreError> {
        State::Submitted.check(events)?;
        if self.tasks.contains_key(key) {
            return Err(StoreError::Exists);
        }
        while self.tasks.len() >= bound {
            let Some(oldest) = self.owners.dispensable(&key.owner, bound) else {
                let why = format!("it holds {bound} tasks and may delete none; raise `limits.tasks`");
                return Err(StoreError::Full(why));
            };
            self.remove(&oldest);
        }
        let now = Timestamp::now();
        let record = Record {
            context: context.clone(),
            created_at: now,
            state: State::Submitted,
            status_at: now,
            said: Said::default(),
            accepted: Vec::new(),
            bytes: 0,
            events: Vec::new(),
            appends: Vec::new(),
            push: Vec::new(),
        };
        self.tasks.insert(key.clone(), record);
        self.contexts.add(key, context, host_made);
        self.owners.created(key);
        self.append(key, 0, events)
    }

    /// All or nothing.
    fn append(&mut self, key: &TaskKey, expected: u64, events: &[Arc<Event>]) -> Result<(), StoreError> {
        let record = self.tasks.get_mut(key).ok_or(StoreError::NotFound)?;
        let actual = record.version();
        if actual != expected {
            return Err(StoreError::Conflict { expected, actual });
        }
        let state = record.state.check(events)?;
        let before = std::mem::replace(&mut record.state, state);
        for event in events {
            if let Event::Status { status, .. } = &**event {
                record.status_at = status.at;
            }
        }
        if !events.is_empty() {
            self.appends += 1;
            let (begin, number) = (record.events.len(), self.appends);
            record.appends.push(Append { begin, number, at: Timestamp::now() });
        }
        let said = Said::of(events.iter().map(AsRef::as_ref));
        record.said.executor = said.executor.or(record.said.executor.take());
        record.said.text = said.text.or(record.said.text.take());
        record.events.extend(events.iter().cloned());
        let bytes = owners::bytes(events);
        record.bytes += bytes;
        self.owners.appended(key, (before, state), record.status_at, bytes);
        Ok(())
    }

    /// Deletes a task and the messages that it accepted. Returns its context.
    fn remove(&mut self, key: &TaskKey) -> Option<ContextId> {
        let record = self.tasks.remove(key)?;
        self.owners.deleted(key, record.state, record.status_at, record.bytes);
        for once in record.accepted {
            self.accepted.remove(&(key.owner.clone(), once));
        }
        self.contexts.remove(key, &record.context);
        Some(record.context)
    }
}

#[cfg(test)]
mod tests;
