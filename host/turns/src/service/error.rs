//! The errors of sending a message, and of cancelling and following a task.

use talaria_budget::Full;

use crate::executor::{NoExecutor, TooLarge};
use crate::hops::HopsError;
use crate::model::{ContextId, TaskId};
use crate::push::PushError;
use crate::shares::OverShare;
use crate::store::StoreError;
use crate::task::State;

/// Why a message was not accepted. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// There is no such task, or it belongs to another caller.
    #[error("no task {0}")]
    TaskNotFound(TaskId),
    /// The task has ended.
    #[error("task {task} is {state} and takes no further messages")]
    TaskOver {
        /// The task.
        task: TaskId,
        /// The state in which it ended.
        state: State,
    },
    /// The task belongs to another context than the message names.
    #[error("task {task} belongs to another context than {context}")]
    ContextMismatch {
        /// The task.
        task: TaskId,
        /// The context that the message names.
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
    /// The task asks for an approval, which a caller without a name may not give here.
    #[error(
        "task {0} asks for an approval, which only a caller with a token may give; cancel it, or use a token"
    )]
    ApprovalNeedsName(TaskId),
    /// The message has no executor.
    #[error(transparent)]
    NoExecutor(#[from] NoExecutor),
    /// Too many turns wait or run.
    #[error("{0} turns are under way, which is the most; try again later")]
    Busy(usize),
    /// The message does not fit into the memory of its executor.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// The messages of the task take too much memory.
    #[error(
        "the messages of task {task} take {bytes} bytes, of which {limit} are the most; start a new task"
    )]
    TaskTooLarge {
        /// The task.
        task: TaskId,
        /// What they take.
        bytes: usize,
        /// The bound.
        limit: usize,
    },
    /// The host has no memory for the turn now.
    #[error(transparent)]
    NoMemory(#[from] Full),
    /// Too many turns of the context wait or run.
    #[error("{0} turns of this conversation are under way, which is the most; try again later")]
    LaneFull(usize),
    /// The sender has as much as its share.
    #[error(transparent)]
    OverShare(#[from] OverShare),
    /// The message passed through too many hosts.
    #[error(transparent)]
    Hops(#[from] HopsError),
    /// The host is shutting down.
    #[error("the host is shutting down")]
    Draining,
    /// The push configuration that came with the message cannot be set.
    #[error(transparent)]
    Push(PushError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a task was not cancelled.
#[derive(Debug, thiserror::Error)]
pub enum CancelError {
    /// The task has already ended.
    #[error("task {task} is {state} already")]
    Over {
        /// The task.
        task: TaskId,
        /// The state in which it ended.
        state: State,
    },
    /// The store's error; [`StoreError::NotFound`] if there is no such task.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a task cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The task has ended, and there are no events after the given one.
    #[error("task {task} is {state}; there is nothing to follow")]
    Over {
        /// The task.
        task: TaskId,
        /// The state in which it ended.
        state: State,
    },
    /// The task has no event of this number.
    #[error("event {after} is not one of task {task}, which has {version}")]
    NoSuchEvent {
        /// The task.
        task: TaskId,
        /// The number.
        after: u64,
        /// The number of the task's last event.
        version: u64,
    },
    /// The store's error; [`StoreError::NotFound`] if there is no such task.
    #[error(transparent)]
    Store(#[from] StoreError),
}
