//! Where tasks live.
//!
//! Four rules shape the trait, so that memory, SQLite and a shared database can all keep it:
//! - **append only**: a task changes by events, each with the next sequence number of that task;
//! - **compare and set**: an append names the version that it builds on, and loses if another came first;
//! - **once means once**: whether a message was taken in before is decided by the write that takes it in;
//! - **an owner on every key**: a store cannot be asked for a task without saying whose. Another's task is absent. What the
//!   host itself asks for all of them (at its start, and for the operator) says so.
//!
//! When a method returns, what it wrote survives the end of the process, where the store is durable at all.

use std::sync::Arc;

use async_trait::async_trait;

use crate::hook::{GivenUp, Hook, Hooked};
use crate::model::{ContextId, HookId, Message, Principal, TaskId, Timestamp};
use crate::once::Once;
use crate::recall::Recall;
use crate::task::{Event, IllegalMove, State, Task};

/// A task's key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TaskKey {
    /// Who it belongs to.
    pub owner: Principal,
    /// Which one.
    pub task: TaskId,
}

/// What a write builds on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Onto<'a> {
    /// Nothing: the task is new.
    Nothing {
        /// The conversation that it belongs to.
        context: &'a ContextId,
        /// Whether the host made the conversation's id for this task. Once made, it stays made, whoever names it later.
        host_made: bool,
    },
    /// The task at this version.
    Version(u64),
}

/// The key of something that an executor remembers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StateKey {
    /// Whose conversation it is.
    pub owner: Principal,
    /// Which conversation.
    pub context: ContextId,
    /// Which executor.
    pub executor: Box<str>,
    /// The executor's own key.
    pub key: Box<str>,
}

/// An event in its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// 1 for the first event of a task, then without gaps.
    pub sequence: u64,
    /// What happened.
    pub event: Arc<Event>,
}

/// An event of any task, in the order in which all were appended.
#[derive(Debug, Clone, PartialEq)]
pub struct Logged {
    /// Greater than those of all events before it; there are gaps.
    pub number: u64,
    /// When it was appended.
    pub at: Timestamp,
    /// Whose task, and which.
    pub key: TaskKey,
    /// The conversation that the task belongs to.
    pub context: ContextId,
    /// The event, in its place in the task.
    pub entry: Entry,
}

/// Where to begin to read what happened to all tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// With the first event that has this number or a greater one.
    At(u64),
    /// With the first event of the last so many appends.
    Last(usize),
}

/// Which tasks to list.
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    /// Only those of this conversation.
    pub context: Option<ContextId>,
    /// Only those in this state.
    pub state: Option<State>,
    /// Only those whose status is not older than this.
    pub since: Option<Timestamp>,
    /// Only those after this place in the list.
    pub after: Option<Place>,
    /// At most as many.
    pub limit: usize,
}

/// A place in a list of tasks: newest status first, then by id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The status's time of the task that was listed last.
    pub at: Timestamp,
    /// That task.
    pub task: TaskId,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The tasks.
    pub tasks: Vec<Arc<Task>>,
    /// Where the next page begins; none at the end.
    pub next: Option<Place>,
    /// How many tasks there are on all pages.
    pub total: usize,
}

/// Why a store did nothing.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no such task, or it belongs to somebody else.
    #[error("no such task")]
    NotFound,
    /// The key is taken.
    #[error("the task exists already")]
    Exists,
    /// The caller's message was taken in before.
    #[error("task {0} took the same message in before")]
    Sent(TaskId),
    /// Somebody else appended first.
    #[error("the task is at version {actual}, not at {expected}")]
    Conflict {
        /// What the writer built on.
        expected: u64,
        /// What it is.
        actual: u64,
    },
    /// The task's state does not allow the event.
    #[error(transparent)]
    Illegal(#[from] IllegalMove),
    /// The store has no room, and nothing that it may forget.
    #[error("the store is full: {0}")]
    Full(String),
    /// The store is out of order.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
}

/// Where tasks, their events and what executors remember live.
///
/// Every method does all or nothing. Implementations pass `talaria-store`'s `suite`.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Writes events: the first ones of a new task, at the version that their number gives, or the next ones, of which the
    /// first gets the version behind the one that they build on.
    ///
    /// With `once`, only if no task of this owner took the same message in before; else [`StoreError::Sent`] names that
    /// task. Of several writes at once with the same message, one succeeds.
    async fn write(
        &self,
        key: &TaskKey,
        onto: Onto<'_>,
        events: &[Event],
        once: Option<&Once>,
    ) -> Result<(), StoreError>;

    /// Creates a task in a conversation whose id the caller chose.
    async fn create(&self, key: &TaskKey, context: &ContextId, events: &[Event]) -> Result<(), StoreError> {
        self.write(key, Onto::Nothing { context, host_made: false }, events, None).await
    }

    /// Appends to a task that is at version `expected`.
    async fn append(&self, key: &TaskKey, expected: u64, events: &[Event]) -> Result<(), StoreError> {
        self.write(key, Onto::Version(expected), events, None).await
    }

    /// A task as it is now.
    async fn task(&self, key: &TaskKey) -> Result<Option<Arc<Task>>, StoreError>;

    /// Events of a task after sequence number `after`, at most `limit`, in order.
    async fn events(&self, key: &TaskKey, after: u64, limit: usize) -> Result<Vec<Entry>, StoreError>;

    /// What happened to all tasks, whoever owns them, oldest first, at most `limit`. Those that were forgotten are absent.
    async fn log(&self, begin: Begin, limit: usize) -> Result<Vec<Logged>, StoreError>;

    /// Tasks of an owner: newest status first, then by id, descending.
    async fn list(&self, owner: &Principal, query: &Query) -> Result<Page, StoreError>;

    /// The task that took in a message of this owner, if it was written with [`Once`].
    async fn accepted(&self, owner: &Principal, once: &Once) -> Result<Option<TaskId>, StoreError>;

    /// What was said in a conversation before the present turn, oldest first, within the bounds that are asked for. A
    /// conversation of which nothing may be told, or that is not there, gives nothing.
    async fn recall(&self, recall: &Recall) -> Result<Vec<Message>, StoreError>;

    /// Every task that has a turn which is not over, whoever owns it. For the start of a host.
    async fn unfinished(&self) -> Result<Vec<TaskKey>, StoreError>;

    /// Every task that has not ended and whose status is older than `before`, whoever owns it.
    async fn stuck(&self, before: Timestamp) -> Result<Vec<TaskKey>, StoreError>;

    /// Forgets tasks that ended before `before`, and all but the newest `keep` that ended; with the last task of a
    /// conversation also what executors remembered of it. Hooks go with their tasks. Returns how many tasks.
    async fn forget(&self, before: Timestamp, keep: usize) -> Result<usize, StoreError>;

    /// What an executor remembered.
    async fn state(&self, key: &StateKey) -> Result<Option<Arc<[u8]>>, StoreError>;

    /// How many bytes of keys and values the executor remembers of that conversation under all other keys.
    async fn state_beside(&self, key: &StateKey) -> Result<usize, StoreError>;

    /// Remembers; none forgets.
    async fn set_state(&self, key: &StateKey, value: Option<Arc<[u8]>>) -> Result<(), StoreError>;

    /// Sets a hook that begins after `cursor`. One that is there keeps its cursor, and is no longer given up.
    async fn set_hook(&self, key: &TaskKey, hook: &Hook, cursor: u64) -> Result<(), StoreError>;

    /// The hooks of a task, in the order of their ids.
    async fn hooks(&self, key: &TaskKey) -> Result<Vec<Hooked>, StoreError>;

    /// Removes a hook; one that is not there is removed already.
    async fn remove_hook(&self, key: &TaskKey, hook: &HookId) -> Result<(), StoreError>;

    /// Moves a hook's cursor, and says whether it is given up. Does nothing where there is none.
    async fn move_hook(
        &self,
        key: &TaskKey,
        hook: &HookId,
        cursor: u64,
        given_up: Option<&GivenUp>,
    ) -> Result<(), StoreError>;

    /// Every hook that may still have something to tell, whoever owns its task: not given up, and behind its task or on
    /// one that has not ended. For the start of a host.
    async fn open_hooks(&self) -> Result<Vec<Hooked>, StoreError>;

    /// Hooks that were given up, the newest first, at most `limit`. For the operator.
    async fn given_up(&self, limit: usize) -> Result<Vec<Hooked>, StoreError>;
}
