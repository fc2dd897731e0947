//! The store in memory, which also counts created tasks and signals every change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use talaria_store::Memory;
use talaria_turns::{
    Begin, Entry, Event, GivenUp, Kept, Logged, Message, Once, Onto, Page, Principal, PushConfig,
    PushConfigId, Query, Recall, Retention, StateKey, Store, StoreError, StoredPushConfig, Survey, Surveyed,
    Task, TaskId, TaskKey, TaskRow, Timestamp,
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

    async fn survey(&self, survey: &Survey) -> Result<Surveyed, StoreError> {
        self.inner.survey(survey).await
    }

    async fn find(&self, task: &TaskId) -> Result<Option<TaskRow>, StoreError> {
        self.inner.find(task).await
    }

    async fn times(&self, key: &TaskKey, after: u64) -> Result<Vec<(u64, Timestamp)>, StoreError> {
        self.inner.times(key, after).await
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

    async fn forget(&self, retention: &Retention) -> Result<usize, StoreError> {
        self.inner.forget(retention).await
    }

    async fn kept(&self, owner: &Principal) -> Result<Kept, StoreError> {
        self.inner.kept(owner).await
    }

    async fn has_room(&self) -> Result<(), StoreError> {
        self.inner.has_room().await
    }

    fn size(&self) -> u64 {
        self.inner.size()
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

    async fn set_push_config(&self, key: &TaskKey, hook: &PushConfig, cursor: u64) -> Result<(), StoreError> {
        self.inner.set_push_config(key, hook, cursor).await
    }

    async fn push_configs(&self, key: &TaskKey) -> Result<Vec<StoredPushConfig>, StoreError> {
        self.inner.push_configs(key).await
    }

    async fn delete_push_config(&self, key: &TaskKey, hook: &PushConfigId) -> Result<(), StoreError> {
        self.inner.delete_push_config(key, hook).await
    }

    async fn move_push_cursor(
        &self,
        key: &TaskKey,
        hook: &PushConfigId,
        cursor: u64,
        given_up: Option<&GivenUp>,
    ) -> Result<(), StoreError> {
        self.inner.move_push_cursor(key, hook, cursor, given_up).await
    }

    async fn open_push_configs(&self) -> Result<Vec<StoredPushConfig>, StoreError> {
        self.inner.open_push_configs().await
    }

    async fn given_up(&self, limit: usize) -> Result<Vec<StoredPushConfig>, StoreError> {
        self.inner.given_up(limit).await
    }
}
