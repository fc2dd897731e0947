//! The store of tasks, as the domain sees it.
//!
//! The trait follows four rules, which memory, SQLite and a shared database can all keep:
//! - **append only**: a task changes by events, each with the next sequence number of that task;
//! - **compare and set**: an append names the version that it builds on, and fails if another came first;
//! - **exactly once**: the write that accepts a message decides whether the same message was accepted before;
//! - **an owner in every key**: a task is always read together with its owner; a task of another owner is absent. The few
//!   methods that the host needs for all owners, at its start and for the operator, say so.
//!
//! When a method returns, what it wrote survives the end of the process, if the store is durable at all.

use std::sync::Arc;

use async_trait::async_trait;
use talaria_budget::Full;

use crate::model::{ContextId, Message, Principal, PushConfigId, TaskId, Timestamp};
use crate::once::Once;
use crate::push::{GivenUp, PushConfig, StoredPushConfig};
use crate::recall::Recall;
use crate::retention::{Kept, Retention};
use crate::survey::{Survey, Surveyed, TaskRow};
use crate::task::{Event, IllegalMove, State, Task};

/// The bytes of events, as [`Event::size`] counts them, after which a page of events ends. A reader that is behind holds one
/// page; larger ones would not make it faster.
pub const EVENTS_BYTES: usize = 1 << 20;

/// The key of a task.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TaskKey {
    /// The owner of the task.
    pub owner: Principal,
    /// The task.
    pub task: TaskId,
}

/// What a write builds on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Onto<'a> {
    /// Nothing: the task is new.
    Nothing {
        /// The context of the task.
        context: &'a ContextId,
        /// Whether the host made the context's id for this task. The context keeps that mark, even if a caller names it
        /// later.
        host_made: bool,
    },
    /// The task at this version.
    Version(u64),
}

/// The key of a value that an executor stores.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StateKey {
    /// The owner of the context.
    pub owner: Principal,
    /// The context.
    pub context: ContextId,
    /// The executor.
    pub executor: Box<str>,
    /// The executor's own key.
    pub key: Box<str>,
}

/// An event in the log of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The sequence number: 1 for the first event of a task, then without gaps.
    pub sequence: u64,
    /// The event.
    pub event: Arc<Event>,
}

/// An event in the log of all tasks, which has the order of the appends.
#[derive(Debug, Clone, PartialEq)]
pub struct Logged {
    /// The number of the event: greater than all before it, with gaps.
    pub number: u64,
    /// When it was appended.
    pub at: Timestamp,
    /// The task.
    pub key: TaskKey,
    /// The context of the task.
    pub context: ContextId,
    /// The event in the log of its task.
    pub entry: Entry,
}

/// Where to begin reading the log of all tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// At the first event that has this number or a greater one.
    At(u64),
    /// At the first event of the last so many appends.
    Last(usize),
}

/// Which tasks to list.
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    /// Only those of this context.
    pub context: Option<ContextId>,
    /// Only those in this state.
    pub state: Option<State>,
    /// Only those whose status is not older than this.
    pub since: Option<Timestamp>,
    /// Only those after this position in the list.
    pub after: Option<Place>,
    /// At most so many.
    pub limit: usize,
    /// At most so many bytes, as [`Task::size`] counts them.
    pub bytes: usize,
}

/// A position in a list of tasks, which is ordered by the time of the status, newest first, and then by id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The time of the status of the last task before it.
    pub at: Timestamp,
    /// That task.
    pub task: TaskId,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The tasks.
    pub tasks: Vec<Arc<Task>>,
    /// The position after this page; `None` on the last one.
    pub next: Option<Place>,
    /// The number of tasks on all pages.
    pub total: usize,
}

/// Why a store failed. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no such task, or it belongs to another owner.
    #[error("no such task")]
    NotFound,
    /// There is a task of this key already.
    #[error("the task exists already")]
    Exists,
    /// The same message was accepted before, by this task.
    #[error("task {0} took the same message in before")]
    Sent(TaskId),
    /// Another writer appended first.
    #[error("the task is at version {actual}, not at {expected}")]
    Conflict {
        /// The version that the write builds on.
        expected: u64,
        /// The version of the task.
        actual: u64,
    },
    /// The state of the task does not allow the event.
    #[error(transparent)]
    Illegal(#[from] IllegalMove),
    /// The host has no memory for the task now.
    #[error(transparent)]
    NoMemory(#[from] Full),
    /// The store is full and takes no new messages; turns under way can still end.
    #[error("the store is full: {0}")]
    Full(String),
    /// The store does not work.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
}

/// Stores tasks, their events, and the values of executors.
///
/// Every method does all or nothing. Implementations pass the tests in `suite` of `talaria-store`.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Writes events: the first ones of a new task, or the next ones of a task at the version that they build on. Each
    /// event gets the next version.
    ///
    /// With `once`, the write succeeds only if no task of this owner accepted the same message before; otherwise
    /// [`StoreError::Sent`] names that task. Of several concurrent writes with the same message, one succeeds.
    ///
    /// A full store rejects a new task and a message to a task with [`StoreError::Full`], and takes other events.
    async fn write(
        &self,
        key: &TaskKey,
        onto: Onto<'_>,
        events: &[Arc<Event>],
        once: Option<&Once>,
    ) -> Result<(), StoreError>;

    /// Creates a task in a context whose id the caller chose.
    async fn create(&self, key: &TaskKey, context: &ContextId, events: &[Event]) -> Result<(), StoreError> {
        self.write(key, Onto::Nothing { context, host_made: false }, &shared(events), None).await
    }

    /// Appends to a task at version `expected`.
    async fn append(&self, key: &TaskKey, expected: u64, events: &[Event]) -> Result<(), StoreError> {
        self.write(key, Onto::Version(expected), &shared(events), None).await
    }

    /// Returns a task as it is now.
    async fn task(&self, key: &TaskKey) -> Result<Option<Arc<Task>>, StoreError>;

    /// Returns the events of a task after sequence number `after`, in order: at most `limit`, and no more once they take
    /// [`EVENTS_BYTES`]. If there are any, it returns at least one.
    async fn events(&self, key: &TaskKey, after: u64, limit: usize) -> Result<Vec<Entry>, StoreError>;

    /// Returns when the appends of a task were made that have events after sequence number `after`: the number of the first
    /// event of each, and the time.
    async fn times(&self, key: &TaskKey, after: u64) -> Result<Vec<(u64, Timestamp)>, StoreError>;

    /// Returns the events of all tasks of all owners, oldest first, at most `limit`. Those of deleted tasks are absent.
    async fn log(&self, begin: Begin, limit: usize) -> Result<Vec<Logged>, StoreError>;

    /// Lists tasks of an owner: newest status first, then by id, descending. A page ends before the task that would make it
    /// larger than [`Query::bytes`], but has at least one.
    async fn list(&self, owner: &Principal, query: &Query) -> Result<Page, StoreError>;

    /// Lists tasks of all owners: newest status first, then by id, descending; each as a row. For the operator: no
    /// caller may be shown it.
    async fn survey(&self, survey: &Survey) -> Result<Surveyed, StoreError>;

    /// Finds a task by its id alone, and so its owner. For the operator, as [`Store::survey`]. If two owners have tasks of the
    /// same id, which the host never makes, it returns one of them.
    async fn find(&self, task: &TaskId) -> Result<Option<TaskRow>, StoreError>;

    /// Returns the task that accepted a message of this owner, if it was written with [`Once`].
    async fn accepted(&self, owner: &Principal, once: &Once) -> Result<Option<TaskId>, StoreError>;

    /// Returns the messages of a context before the present turn, oldest first, within the bounds of `recall`. It is empty
    /// if there is no such context, or if its messages may not be read.
    async fn recall(&self, recall: &Recall) -> Result<Vec<Arc<Message>>, StoreError>;

    /// Lists the tasks of all owners that have a turn which has not ended, or that are working without one. For the start of
    /// a host.
    async fn unfinished(&self) -> Result<Vec<TaskKey>, StoreError>;

    /// Lists the tasks of all owners that have not ended and whose status is older than `before`.
    async fn stuck(&self, before: Timestamp) -> Result<Vec<TaskKey>, StoreError>;

    /// Deletes the finished tasks that are not kept, with their push configurations. The values of executors are deleted
    /// with the last task of a context. Returns how many tasks were deleted.
    async fn forget(&self, retention: &Retention) -> Result<usize, StoreError>;

    /// Returns what the store holds for an owner. Called for every message of a caller that has a share of the store, so
    /// it must be cheap; a store that several hosts share may return a number that is some seconds old.
    async fn kept(&self, owner: &Principal) -> Result<Kept, StoreError>;

    /// Whether a new message would be taken: [`StoreError::Full`] if not. For the readiness of a host.
    async fn has_room(&self) -> Result<(), StoreError>;

    /// Returns the size of the store in bytes, as last measured. For metrics; does not block.
    fn size(&self) -> u64;

    /// Returns a value of an executor.
    async fn state(&self, key: &StateKey) -> Result<Option<Arc<[u8]>>, StoreError>;

    /// Returns the size, in bytes, of the other keys and values of that executor in that context.
    async fn state_beside(&self, key: &StateKey) -> Result<usize, StoreError>;

    /// Sets a value of an executor; `None` deletes it.
    async fn set_state(&self, key: &StateKey, value: Option<Arc<[u8]>>) -> Result<(), StoreError>;

    /// Sets a push configuration that begins after `cursor`. One of the same id is replaced, but keeps its cursor; it is
    /// no longer given up.
    async fn set_push_config(
        &self,
        key: &TaskKey,
        config: &PushConfig,
        cursor: u64,
    ) -> Result<(), StoreError>;

    /// Lists the push configurations of a task, ordered by id.
    async fn push_configs(&self, key: &TaskKey) -> Result<Vec<StoredPushConfig>, StoreError>;

    /// Deletes a push configuration. Does nothing if no configuration has this id.
    async fn delete_push_config(&self, key: &TaskKey, config: &PushConfigId) -> Result<(), StoreError>;

    /// Moves the cursor of a push configuration, and sets whether it is given up. Does nothing if no configuration has this id.
    async fn move_push_cursor(
        &self,
        key: &TaskKey,
        config: &PushConfigId,
        cursor: u64,
        given_up: Option<&GivenUp>,
    ) -> Result<(), StoreError>;

    /// Lists the push configurations of all owners that may still get notifications: not given up, and behind their task
    /// or on one that has not ended. For the start of a host.
    async fn open_push_configs(&self) -> Result<Vec<StoredPushConfig>, StoreError>;

    /// Lists the push configurations of all owners that were given up, newest first, at most `limit`. For the operator.
    async fn given_up(&self, limit: usize) -> Result<Vec<StoredPushConfig>, StoreError>;
}

fn shared(events: &[Event]) -> Vec<Arc<Event>> {
    events.iter().cloned().map(Arc::new).collect()
}
