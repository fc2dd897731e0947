//! Why a message was not accepted, a task not cancelled or not followed.

use crate::executor::NoExecutor;
use crate::hook::HookError;
use crate::model::{ContextId, TaskId};
use crate::store::StoreError;
use crate::task::State;

/// Why a message was not accepted. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// There is no such task, or it belongs to somebody else.
    #[error("no task {0}")]
    TaskNotFound(TaskId),
    /// The task is over.
    #[error("task {task} is {state} and takes no further messages")]
    TaskOver {
        /// Which one.
        task: TaskId,
        /// How it ended.
        state: State,
    },
    /// The task belongs to another conversation than the message says.
    #[error("task {task} belongs to another context than {context}")]
    ContextMismatch {
        /// The task.
        task: TaskId,
        /// What the message said.
        context: ContextId,
    },
    /// The task's history is full.
    #[error("task {task} holds {limit} messages, which is the most; start a new task")]
    HistoryFull {
        /// The task.
        task: TaskId,
        /// The bound.
        limit: usize,
    },
    /// There is no executor for it.
    #[error(transparent)]
    NoExecutor(#[from] NoExecutor),
    /// Too many turns are under way.
    #[error("{0} turns are under way, which is the most; try again later")]
    Busy(usize),
    /// Too many turns wait in the conversation.
    #[error("{0} turns of this conversation are under way, which is the most; try again later")]
    LaneFull(usize),
    /// The host is shutting down.
    #[error("the host is shutting down")]
    Draining,
    /// The hook that came with it cannot be set.
    #[error(transparent)]
    Hook(HookError),
    /// The store did not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a task was not cancelled.
#[derive(Debug, thiserror::Error)]
pub enum CancelError {
    /// It ended some other way.
    #[error("task {task} is {state} already")]
    Over {
        /// Which one.
        task: TaskId,
        /// How it ended.
        state: State,
    },
    /// The store's reason; [`StoreError::NotFound`] where there is no such task.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a task cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// It is over, and there is nothing after the place that was given.
    #[error("task {task} is {state}; there is nothing to follow")]
    Over {
        /// Which one.
        task: TaskId,
        /// How it ended.
        state: State,
    },
    /// The place is not one of this task.
    #[error("event {after} is not one of task {task}, which has {version}")]
    NoSuchEvent {
        /// Which task.
        task: TaskId,
        /// The place.
        after: u64,
        /// The task's last event.
        version: u64,
    },
    /// The store's reason; [`StoreError::NotFound`] where there is no such task.
    #[error(transparent)]
    Store(#[from] StoreError),
}
