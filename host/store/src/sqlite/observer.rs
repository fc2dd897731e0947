//! How long calls of the store take, for those who measure.
//!
//! What is measured is what the caller waits for: room in the queue, a thread, the transaction. It is measured in the future
//! of the call itself, which is boxed anyway; a wrapper around the store would box another one for each call. Without an
//! observer no clock is read.

use std::time::{Duration, Instant};

use talaria_turns::StoreError;

use super::Sqlite;

/// What the store was asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Write a new task.
    Create,
    /// Append events to a task.
    Append,
    /// Read a task.
    Task,
    /// Read events of a task.
    Events,
    /// Read the log of all tasks.
    Log,
    /// List tasks.
    List,
    /// Look for a message that was accepted before.
    Accepted,
    /// Read the messages of a conversation.
    Recall,
    /// Read what an executor keeps.
    State,
    /// Write what an executor keeps.
    SetState,
    /// Read or write push configurations.
    Push,
    /// Read or write callbacks.
    Callback,
    /// Read or write delegations.
    Delegation,
    /// Delete old tasks.
    Forget,
    /// Ask whether there is room.
    Room,
    /// Look through all tasks.
    Scan,
}

/// Sees every call of the store.
pub trait StoreObserver: Send + Sync + 'static {
    /// A call took so long; `has_failed` if the store could not read or write. Must not block.
    fn took(&self, operation: Operation, took: Duration, has_failed: bool);
}

impl Sqlite {
    /// Awaits a call, and reports how long it took.
    pub(super) async fn timed<T>(
        &self,
        operation: Operation,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let Some(observer) = &self.observer else { return call.await };
        let began = Instant::now();
        let result = call.await;
        let has_failed = matches!(result, Err(StoreError::Unavailable(_)));
        observer.took(operation, began.elapsed(), has_failed);
        result
    }
}
