//! What a running turn may do to its task: emit events, ask its caller, set checkpoints, and read and write state.
//!
//! A turn sends [`TurnSignal`]s over a bounded channel to the service, which writes them to the log in order. If the log falls
//! behind, the turn waits. State and history are read from the store directly.

use std::sync::Arc;

use talaria_budget::Charge;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::executor::Emitted;
use crate::model::{ContextId, Message, Part, Principal, TaskId};
use crate::recall::Recall;
use crate::store::{StateKey, Store, StoreError};
use crate::timeline::Timeline;

/// The turn has ended, so nothing that it sends is taken any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the turn is over")]
pub struct TurnOver;

/// What a turn sends to the service that runs it.
#[derive(Debug)]
pub enum TurnSignal {
    /// An event for the readers. Boxed, because a channel allocates room for 32 signals when it is made, and most turns
    /// emit nothing.
    Emitted(Box<Emitted>),
    /// A point from which the turn can be resumed after a restart.
    Checkpoint {
        /// What the executor needs in order to resume.
        data: Vec<u8>,
        /// Is sent the result once the checkpoint is stored.
        kept: oneshot::Sender<Result<(), StoreError>>,
    },
    /// A question to the caller.
    Ask {
        /// The question.
        parts: Vec<Part>,
        /// Is sent the answer.
        answer: oneshot::Sender<Arc<Message>>,
    },
}

/// A question to the caller. Dropping it before the answer arrived withdraws it.
#[derive(Debug)]
pub struct Question(oneshot::Receiver<Arc<Message>>);

/// What a running turn may do to its task.
pub struct Scope {
    said: mpsc::Sender<TurnSignal>,
    cancelled: CancellationToken,
    store: Arc<dyn Store>,
    owner: Principal,
    context: ContextId,
    executor: Box<str>,
    past: Past,
    memory: Option<Charge>,
    timeline: Option<Arc<Timeline>>,
}

/// Which earlier messages of its context a turn may read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Past {
    /// None: the turn is the first of its context, or nothing is stored.
    #[default]
    Nothing,
    /// Those of the context.
    Of {
        /// The turn's task.
        task: TaskId,
        /// Whether the messages may be read only if the host made the context's id.
        host_made_only: bool,
    },
}

// === impl Scope ===

impl Clone for Scope {
    /// A clone may do the same, but has no memory of its own.
    fn clone(&self) -> Self {
        Self {
            said: self.said.clone(),
            cancelled: self.cancelled.clone(),
            store: Arc::clone(&self.store),
            owner: self.owner.clone(),
            context: self.context.clone(),
            executor: self.executor.clone(),
            past: self.past.clone(),
            memory: None,
            timeline: self.timeline.clone(),
        }
    }
}

impl Scope {
    /// Makes a scope and the receiver of what the turn sends. If `bound` signals wait, the turn waits too.
    #[must_use]
    pub fn new(
        bound: usize,
        cancelled: CancellationToken,
        store: Arc<dyn Store>,
        owner: Principal,
        context: ContextId,
        executor: &str,
    ) -> (Self, mpsc::Receiver<TurnSignal>) {
        let (said, receiver) = mpsc::channel(bound);
        let past = Past::default();
        let executor = executor.into();
        (
            Self { said, cancelled, store, owner, context, executor, past, memory: None, timeline: None },
            receiver,
        )
    }

    /// Has the turn write its timeline here.
    #[must_use]
    pub fn with_timeline(self, timeline: Arc<Timeline>) -> Self {
        Self { timeline: Some(timeline), ..self }
    }

    /// The timeline of the turn, if it has one.
    #[must_use]
    pub fn timeline(&self) -> Option<&Arc<Timeline>> {
        self.timeline.as_ref()
    }

    /// Lets the turn read these earlier messages.
    #[must_use]
    pub fn with(self, past: Past) -> Self {
        Self { past, ..self }
    }

    /// Gives the turn the memory that was reserved for it.
    #[must_use]
    pub fn with_memory(self, memory: Charge) -> Self {
        Self { memory: Some(memory), ..self }
    }

    /// Takes the memory that was reserved for the turn, if it was; the executor holds it for as long as the turn runs.
    pub fn take_memory(&mut self) -> Option<Charge> {
        self.memory.take()
    }

    /// Emits an event. Events keep their order; waits while the log is behind.
    ///
    /// # Errors
    /// [`TurnOver`] if the turn has ended.
    pub async fn emit(&self, event: Emitted) -> Result<(), TurnOver> {
        self.said.send(TurnSignal::Emitted(Box::new(event))).await.map_err(|_| TurnOver)
    }

    /// Asks the caller and waits for the answer.
    ///
    /// # Errors
    /// [`TurnOver`] if there will be no answer.
    pub async fn ask(&self, parts: Vec<Part>) -> Result<Arc<Message>, TurnOver> {
        self.pose(parts).await?.answer().await
    }

    /// Asks the caller without waiting for the answer.
    ///
    /// # Errors
    /// [`TurnOver`] if the turn has ended.
    pub async fn pose(&self, parts: Vec<Part>) -> Result<Question, TurnOver> {
        let (answer, answered) = oneshot::channel();
        self.said.send(TurnSignal::Ask { parts, answer }).await.map_err(|_| TurnOver)?;
        Ok(Question(answered))
    }

    /// Stores a point from which the turn can be resumed.
    ///
    /// # Errors
    /// The store's error; [`StoreError::Unavailable`] if the turn has ended.
    pub async fn checkpoint(&self, data: Vec<u8>) -> Result<(), StoreError> {
        let over = || StoreError::Unavailable(TurnOver.to_string());
        let (kept, is_kept) = oneshot::channel();
        self.said.send(TurnSignal::Checkpoint { data, kept }).await.map_err(|_| over())?;
        is_kept.await.map_err(|_| over())?
    }

    /// Fires when the turn is cancelled. The turn is dropped after a grace period.
    #[must_use]
    pub fn cancelled(&self) -> &CancellationToken {
        &self.cancelled
    }

    /// Reads a value that this executor stored for this context.
    ///
    /// # Errors
    /// The store's error.
    pub async fn state(&self, key: &str) -> Result<Option<Arc<[u8]>>, StoreError> {
        self.store.state(&self.key(key)).await
    }

    /// Returns the size, in bytes, of the keys and values that this executor stored for this context, without this key.
    ///
    /// # Errors
    /// The store's error.
    pub async fn state_beside(&self, key: &str) -> Result<usize, StoreError> {
        self.store.state_beside(&self.key(key)).await
    }

    /// Stores a value of this executor for this context; `None` deletes it.
    ///
    /// # Errors
    /// The store's error.
    pub async fn set_state(&self, key: &str, value: Option<Arc<[u8]>>) -> Result<(), StoreError> {
        self.store.set_state(&self.key(key), value).await
    }

    /// Reads the messages of the context before this turn, oldest first: at most so many messages, and so many bytes.
    ///
    /// # Errors
    /// The store's error.
    pub async fn history(&self, messages: usize, bytes: usize) -> Result<Vec<Arc<Message>>, StoreError> {
        let Past::Of { task, host_made_only } = &self.past else { return Ok(Vec::new()) };
        let recall = Recall {
            owner: self.owner.clone(),
            context: self.context.clone(),
            present: task.clone(),
            host_made_only: *host_made_only,
            messages,
            bytes,
        };
        self.store.recall(&recall).await
    }

    fn key(&self, key: &str) -> StateKey {
        StateKey {
            owner: self.owner.clone(),
            context: self.context.clone(),
            executor: self.executor.clone(),
            key: key.into(),
        }
    }
}

// === impl Question ===

impl Question {
    /// Waits for the answer, which arrives once. Dropping this future loses nothing.
    ///
    /// # Errors
    /// [`TurnOver`] if there will be no answer.
    pub async fn answer(&mut self) -> Result<Arc<Message>, TurnOver> {
        (&mut self.0).await.map_err(|_| TurnOver)
    }
}
