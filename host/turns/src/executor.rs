//! What executes a turn, seen from here: something with a name that takes a turn and gives an outcome.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::model::{Artifact, ContextId, Message, Metadata, Part, Principal, TaskId};
use crate::recall::Recall;
use crate::store::{StateKey, Store, StoreError};

/// One incoming message, to be executed.
#[derive(Debug, Clone)]
pub struct Turn {
    /// The task that it belongs to.
    pub task: TaskId,
    /// The conversation that the task belongs to.
    pub context: ContextId,
    /// The message to answer.
    pub message: Message,
    /// Its text, see [`message_text`](crate::message_text).
    pub text: String,
    /// Earlier messages of the task.
    pub history: Vec<Message>,
    /// Who sent it.
    pub principal: Principal,
    /// Whether somebody reads the events while it runs.
    pub streaming: bool,
    /// Whether a result that comes after the turn can still reach the caller.
    pub async_delivery: bool,
    /// The request's metadata.
    pub metadata: Option<Metadata>,
    /// What the executor kept of the turn before a restart.
    pub checkpoint: Option<Vec<u8>>,
}

/// How a turn ends when it does not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinalState {
    /// Done.
    Completed,
    /// The caller must say more.
    InputRequired,
    /// The caller must authenticate somewhere.
    AuthRequired,
    /// Refused.
    Rejected,
}

/// Tokens that a turn consumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Tokens read.
    pub input_tokens: u32,
    /// Tokens written.
    pub output_tokens: u32,
}

/// The result of a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// How it ended.
    pub state: FinalState,
    /// The answer, question or reason.
    pub parts: Vec<Part>,
    /// What it cost.
    pub usage: Option<Usage>,
    /// For the caller.
    pub metadata: Option<Metadata>,
}

/// What went wrong, coarse enough to act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The turn makes no sense to the executor.
    InvalidTurn,
    /// Its settings do not.
    InvalidSettings,
    /// The upstream answered with an error, or not at all.
    Upstream,
    /// Policy forbids what the turn needs.
    Denied,
    /// It took too long.
    TimedOut,
    /// It was cancelled.
    Cancelled,
    /// No room to run it now.
    Busy,
    /// A fault of the executor.
    Internal,
}

/// A turn that failed. `message` is what the caller reads.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What went wrong.
    pub kind: FailureKind,
    /// For the caller: reviewed, scrubbed.
    pub message: String,
    /// Whether the same turn may succeed later.
    pub retryable: bool,
}

/// Where a tool call of the upstream stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolState {
    /// It began.
    Started,
    /// It ended well.
    Completed,
    /// It ended badly.
    Failed,
}

/// A tool call of the upstream.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolProgress {
    /// The call.
    pub id: String,
    /// The tool.
    pub name: String,
    /// Where it stands.
    pub state: ToolState,
    /// One line for people.
    pub label: Option<String>,
    /// Whatever else.
    pub metadata: Option<Metadata>,
}

/// What a turn says while it runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Emitted {
    /// The next piece of the answer.
    TextDelta(String),
    /// A result other than the answer.
    Artifact {
        /// The piece.
        artifact: Artifact,
        /// Adds to the artifact of that id.
        append: bool,
        /// No further piece follows.
        last: bool,
    },
    /// What the agent is doing.
    Status(String),
    /// A tool call.
    Tool(ToolProgress),
    /// Anything else.
    Custom {
        /// Its name.
        name: String,
        /// What it says.
        value: serde_json::Value,
    },
}

/// Nobody takes the turn's events any more: it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the turn is over")]
pub struct TurnOver;

/// What a turn sends to whoever runs it.
#[derive(Debug)]
pub enum Said {
    /// Something for the readers. Boxed: a channel has room for 32 of these as soon as it is made, and most turns say
    /// nothing while they wait.
    Emitted(Box<Emitted>),
    /// A point to go on from after a restart.
    Checkpoint {
        /// What the executor needs for that.
        data: Vec<u8>,
        /// Hears when it is kept.
        kept: oneshot::Sender<Result<(), StoreError>>,
    },
    /// A question to the caller.
    Ask {
        /// The question.
        parts: Vec<Part>,
        /// Takes the answer.
        answer: oneshot::Sender<Message>,
    },
}

/// A question to the caller. Dropping it before the answer came withdraws it.
#[derive(Debug)]
pub struct Question(oneshot::Receiver<Message>);

/// What a running turn may do to its task: say something, ask something, and remember something.
#[derive(Clone)]
pub struct Scope {
    said: mpsc::Sender<Said>,
    cancelled: CancellationToken,
    store: Arc<dyn Store>,
    owner: Principal,
    context: ContextId,
    executor: Box<str>,
    past: Past,
}

/// What a turn may hear of what was said in its conversation before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Past {
    /// Nothing: the conversation begins with it, or nobody keeps one.
    #[default]
    Nothing,
    /// What was said in it.
    Of {
        /// The turn's task.
        task: TaskId,
        /// Only if the host made the conversation's id.
        host_made_only: bool,
    },
}

/// Executes turns, each within a deadline of its own. Dropping the future of [`Executor::execute`] cancels the turn
/// and releases all that it held.
#[async_trait]
pub trait Executor: Send + Sync + 'static {
    /// The name that it is configured under.
    fn name(&self) -> &str;

    /// Executes one turn.
    async fn execute(&self, turn: Turn, scope: Scope) -> Result<Outcome, Failure>;

    /// Stops the upstream's work for a turn that was cancelled. Its checkpoint is in the turn.
    async fn cancel(&self, turn: Turn) -> Result<(), Failure>;
}

/// A message that needs an executor, and what is known about it.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// Who sends it.
    pub principal: &'a Principal,
    /// The message.
    pub message: &'a Message,
    /// The conversation that it belongs to.
    pub context: &'a ContextId,
    /// The request's metadata.
    pub metadata: Option<&'a Metadata>,
    /// The executor of the last turn of the task that it continues.
    pub continues: Option<&'a str>,
}

/// Why a message has no executor. The text is for the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoExecutor {
    /// It asks for one that it cannot have.
    #[error("{0}")]
    Refused(String),
    /// The one that it goes to is not there.
    #[error("{0}")]
    Unavailable(String),
    /// It holds what the one that it goes to cannot use.
    #[error("{0}")]
    Media(String),
    /// The executor takes no turns for now. The message becomes a task that fails with this failure.
    #[error("{failure}")]
    OutOfService {
        /// The executor's name.
        executor: Box<str>,
        /// What the caller reads.
        failure: Failure,
    },
}

/// Chooses the executor of a turn.
pub trait Route: Send + Sync + 'static {
    /// The executor for this message.
    ///
    /// # Errors
    /// [`NoExecutor`], with nothing changed.
    fn pick(&self, asked: &Asked<'_>) -> Result<Arc<dyn Executor>, NoExecutor>;

    /// The executor of this name, for a turn that it had begun before a restart.
    fn named(&self, name: &str) -> Option<Arc<dyn Executor>>;
}

// === impl Scope ===

impl Scope {
    /// A scope and the receiver of what the turn says. `bound` pieces wait at most; then the turn does.
    #[must_use]
    pub fn new(
        bound: usize,
        cancelled: CancellationToken,
        store: Arc<dyn Store>,
        owner: Principal,
        context: ContextId,
        executor: &str,
    ) -> (Self, mpsc::Receiver<Said>) {
        let (said, receiver) = mpsc::channel(bound);
        let past = Past::default();
        (Self { said, cancelled, store, owner, context, executor: executor.into(), past }, receiver)
    }

    /// A turn that may hear of this.
    #[must_use]
    pub fn with(self, past: Past) -> Self {
        Self { past, ..self }
    }

    /// Says it, in order; waits while the log is behind.
    ///
    /// # Errors
    /// [`TurnOver`] when nobody takes it any more.
    pub async fn emit(&self, event: Emitted) -> Result<(), TurnOver> {
        self.said.send(Said::Emitted(Box::new(event))).await.map_err(|_| TurnOver)
    }

    /// Asks the caller and waits for the answer.
    ///
    /// # Errors
    /// [`TurnOver`] when there will be none.
    pub async fn ask(&self, parts: Vec<Part>) -> Result<Message, TurnOver> {
        self.pose(parts).await?.answer().await
    }

    /// Asks the caller, and lets the turn go on.
    ///
    /// # Errors
    /// [`TurnOver`] when nobody takes the question.
    pub async fn pose(&self, parts: Vec<Part>) -> Result<Question, TurnOver> {
        let (answer, answered) = oneshot::channel();
        self.said.send(Said::Ask { parts, answer }).await.map_err(|_| TurnOver)?;
        Ok(Question(answered))
    }

    /// Keeps a point from which the turn can be executed again.
    ///
    /// # Errors
    /// The store's; a turn that is over counts as unavailable.
    pub async fn checkpoint(&self, data: Vec<u8>) -> Result<(), StoreError> {
        let over = || StoreError::Unavailable(TurnOver.to_string());
        let (kept, is_kept) = oneshot::channel();
        self.said.send(Said::Checkpoint { data, kept }).await.map_err(|_| over())?;
        is_kept.await.map_err(|_| over())?
    }

    /// Fires when the turn is cancelled. The turn is dropped a grace later.
    #[must_use]
    pub fn cancelled(&self) -> &CancellationToken {
        &self.cancelled
    }

    /// What this executor remembered of this conversation.
    ///
    /// # Errors
    /// The store's.
    pub async fn state(&self, key: &str) -> Result<Option<Arc<[u8]>>, StoreError> {
        self.store.state(&self.key(key)).await
    }

    /// How many bytes of keys and values this executor remembers of this conversation under all other keys.
    ///
    /// # Errors
    /// The store's.
    pub async fn state_beside(&self, key: &str) -> Result<usize, StoreError> {
        self.store.state_beside(&self.key(key)).await
    }

    /// Remembers; none forgets.
    ///
    /// # Errors
    /// The store's.
    pub async fn set_state(&self, key: &str, value: Option<Arc<[u8]>>) -> Result<(), StoreError> {
        self.store.set_state(&self.key(key), value).await
    }

    /// What was said in the conversation before this turn, oldest first: at most so many messages, and so many bytes.
    ///
    /// # Errors
    /// The store's.
    pub async fn history(&self, messages: usize, bytes: usize) -> Result<Vec<Message>, StoreError> {
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
    /// Waits for the answer, which comes once. Giving up on the wait loses nothing.
    ///
    /// # Errors
    /// [`TurnOver`] when there will be none.
    pub async fn answer(&mut self) -> Result<Message, TurnOver> {
        (&mut self.0).await.map_err(|_| TurnOver)
    }
}

// === impl Failure ===

impl Failure {
    /// A failure of a kind, not worth a retry.
    #[must_use]
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retryable: false }
    }
}
