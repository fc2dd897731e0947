//! Tasks in memory.
//!
//! Bounded by the number of tasks: at the bound the task that ended longest ago is forgotten, with its events. Tasks
//! that have not ended are never forgotten, so a store full of them refuses the next. What executors remember is
//! bounded in the same way, oldest first.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use talaria_turns::{ContextId, Entry, Event, StateKey, Store, StoreError, Task, TaskKey};

/// A store that is gone with the process.
pub struct Memory {
    bound: usize,
    // Held for a map access at a time, never across an await.
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    tasks: HashMap<TaskKey, Record>,
    /// Tasks that ended, in that order.
    ended: VecDeque<TaskKey>,
    state: HashMap<StateKey, Arc<[u8]>>,
    /// Keys of `state`, in the order in which they were first set.
    state_order: VecDeque<StateKey>,
}

struct Record {
    task: Arc<Task>,
    events: Vec<Arc<Event>>,
}

impl Memory {
    /// A store for at most `bound` tasks, and as many values of executors.
    #[must_use]
    pub fn new(bound: usize) -> Self {
        Self { bound: bound.max(1), inner: Mutex::default() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Each change is complete before the next statement, so a panic elsewhere left nothing half done.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for Memory {
    async fn create(
        &self,
        key: &TaskKey,
        context: &ContextId,
        events: Vec<Event>,
    ) -> Result<Arc<Task>, StoreError> {
        let mut inner = self.inner();
        if inner.tasks.contains_key(key) {
            return Err(StoreError::Exists);
        }
        let mut record =
            Record { task: Arc::new(Task::new(key.task.clone(), context.clone())), events: Vec::new() };
        record.append(events)?;
        while inner.tasks.len() >= self.bound {
            let Some(oldest) = inner.ended.pop_front() else {
                return Err(StoreError::Full(format!(
                    "{} tasks are under way, which is the most",
                    self.bound
                )));
            };
            inner.tasks.remove(&oldest);
        }
        Ok(inner.insert(key, record))
    }

    async fn append(
        &self,
        key: &TaskKey,
        expected: u64,
        events: Vec<Event>,
    ) -> Result<Arc<Task>, StoreError> {
        let mut inner = self.inner();
        let record = inner.tasks.get_mut(key).ok_or(StoreError::NotFound)?;
        let actual = record.task.version;
        if actual != expected {
            return Err(StoreError::Conflict { expected, actual });
        }
        record.append(events)?;
        let task = Arc::clone(&record.task);
        if task.status.state.is_terminal() {
            inner.ended.push_back(key.clone());
        }
        Ok(task)
    }

    async fn task(&self, key: &TaskKey) -> Result<Option<Arc<Task>>, StoreError> {
        Ok(self.inner().tasks.get(key).map(|record| Arc::clone(&record.task)))
    }

    async fn events(&self, key: &TaskKey, after: u64, limit: usize) -> Result<Vec<Entry>, StoreError> {
        let inner = self.inner();
        let record = inner.tasks.get(key).ok_or(StoreError::NotFound)?;
        let skipped = usize::try_from(after).unwrap_or(usize::MAX);
        let entries = record.events.iter().skip(skipped).take(limit).zip(after + 1..);
        Ok(entries.map(|(event, sequence)| Entry { sequence, event: Arc::clone(event) }).collect())
    }

    async fn state(&self, key: &StateKey) -> Result<Option<Arc<[u8]>>, StoreError> {
        Ok(self.inner().state.get(key).cloned())
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
}

impl Inner {
    fn insert(&mut self, key: &TaskKey, record: Record) -> Arc<Task> {
        let task = Arc::clone(&record.task);
        if task.status.state.is_terminal() {
            self.ended.push_back(key.clone());
        }
        self.tasks.insert(key.clone(), record);
        task
    }
}

impl Record {
    /// All or nothing.
    fn append(&mut self, events: Vec<Event>) -> Result<(), StoreError> {
        self.task.check(&events)?;
        // A copy only if somebody still reads the version before.
        let task = Arc::make_mut(&mut self.task);
        for event in &events {
            task.apply(event)?;
        }
        self.events.extend(events.into_iter().map(Arc::new));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use talaria_turns::{Principal, State, TaskId};

    use super::*;

    #[tokio::test]
    async fn keeps_the_promises_of_a_store() {
        crate::suite::run(|| Arc::new(Memory::new(100))).await;
    }

    fn key() -> TaskKey {
        TaskKey { owner: Principal::anyone(), task: TaskId::fresh() }
    }

    #[tokio::test]
    async fn forgets_what_ended_longest_ago_and_never_what_is_under_way() {
        let store = Memory::new(2);
        let context = ContextId::fresh();
        let (under_way, ended, next) = (key(), key(), key());
        store.create(&under_way, &context, vec![]).await.unwrap();
        store.create(&ended, &context, vec![Event::moved(State::Completed)]).await.unwrap();
        store.create(&next, &context, vec![]).await.unwrap();
        assert!(store.task(&ended).await.unwrap().is_none());
        assert!(store.task(&under_way).await.unwrap().is_some());
        let refused = store.create(&key(), &context, vec![]).await.unwrap_err();
        assert!(matches!(refused, StoreError::Full(_)), "{refused}");
    }
}
