//! The store in memory, which also counts created tasks and signals every change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use talaria_store::Memory;
use talaria_turns::{
    Begin, Entry, Event, GivenUp, Hook, HookId, Hooked, Logged, Message, Once, Onto, Page, Principal, Query,
    Recall, StateKey, Store, StoreError, Task, TaskId, TaskKey, Timestamp,
};
use tokio::sync::watch;

pub(crate) struct Counted {
    inner: Memory,
    pub(crate) made: AtomicUsize,
    pub(crate) changed: watch::Sender<()>,
    /// Whether reads of the log fail.
    pub(crate) broken: AtomicBool,
}

impl Counted {
    pub(crate) fn new() -> Self {
        Self {
            inner: Memory::new(10_000),
            made: AtomicUsize::new(0),
            changed: watch::Sender::new(()),
            broken: AtomicBool::new(false),
        }
    }
}

#[async_trait]
impl Store for Counted {
    async fn write(
        &self,
        key: &TaskKey,
        onto: Onto<'_>,
        events: &[Arc<Event>],
        once: Option<&Once>,
    ) -> Result<(), StoreError> {
        let done = self.inner.write(key, onto, events, once).await;
        match onto {
            Onto::Nothing { .. } if done.is_ok() => drop(self.made.fetch_add(1, Ordering::SeqCst)),
            Onto::Nothing { .. } => {}
            Onto::Version(_) => self.changed.send_replace(()),
        }
        done
    }

    async fn task(&self, key: &TaskKey) -> Result<Option<Arc<Task>>, StoreError> {
        self.inner.task(key).await
    }

    async fn events(&self, key: &TaskKey, after: u64, limit: usize) -> Result<Vec<Entry>, StoreError> {
        if self.broken.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable("/var/lib/secret.db".into()));
        }
        self.inner.events(key, after, limit).await
    }

    async fn log(&self, begin: Begin, limit: usize) -> Result<Vec<Logged>, StoreError> {
        self.inner.log(begin, limit).await
    }

    async fn list(&self, owner: &Principal, query: &Query) -> Result<Page, StoreError> {
        self.inner.list(owner, query).await
    }

    async fn accepted(&self, owner: &Principal, once: &Once) -> Result<Option<TaskId>, StoreError> {
        self.inner.accepted(owner, once).await
    }

    async fn recall(&self, recall: &Recall) -> Result<Vec<Arc<Message>>, StoreError> {
        self.inner.recall(recall).await
    }

    async fn unfinished(&self) -> Result<Vec<TaskKey>, StoreError> {
        self.inner.unfinished().await
    }

    async fn forget(&self, before: Timestamp, keep: usize) -> Result<usize, StoreError> {
        self.inner.forget(before, keep).await
    }

    async fn state(&self, key: &StateKey) -> Result<Option<Arc<[u8]>>, StoreError> {
        self.inner.state(key).await
    }

    async fn state_beside(&self, key: &StateKey) -> Result<usize, StoreError> {
        self.inner.state_beside(key).await
    }

    async fn set_state(&self, key: &StateKey, value: Option<Arc<[u8]>>) -> Result<(), StoreError> {
        self.inner.set_state(key, value).await
    }

    async fn stuck(&self, before: Timestamp) -> Result<Vec<TaskKey>, StoreError> {
        self.inner.stuck(before).await
    }

    async fn set_hook(&self, key: &TaskKey, hook: &Hook, cursor: u64) -> Result<(), StoreError> {
        self.inner.set_hook(key, hook, cursor).await
    }

    async fn hooks(&self, key: &TaskKey) -> Result<Vec<Hooked>, StoreError> {
        self.inner.hooks(key).await
    }

    async fn remove_hook(&self, key: &TaskKey, hook: &HookId) -> Result<(), StoreError> {
        self.inner.remove_hook(key, hook).await
    }

    async fn move_hook(
        &self,
        key: &TaskKey,
        hook: &HookId,
        cursor: u64,
        given_up: Option<&GivenUp>,
    ) -> Result<(), StoreError> {
        self.inner.move_hook(key, hook, cursor, given_up).await
    }

    async fn open_hooks(&self) -> Result<Vec<Hooked>, StoreError> {
        self.inner.open_hooks().await
    }

    async fn given_up(&self, limit: usize) -> Result<Vec<Hooked>, StoreError> {
        self.inner.given_up(limit).await
    }
}
