//! The executors of turns, as the domain sees them: each has a name, takes a turn and returns an outcome.

use std::sync::Arc;

use async_trait::async_trait;

use crate::model::{Artifact, ContextId, Message, Metadata, Part, Principal, TaskId};
use crate::scope::Scope;

/// An incoming message to execute. Cheap to clone: what is large is shared.
#[derive(Debug, Clone)]
pub struct Turn {
    /// The task that the turn belongs to.
    pub task: TaskId,
    /// The context of the task.
    pub context: ContextId,
    /// The message to answer.
    pub message: Arc<Message>,
    /// The earlier messages of the task.
    pub history: Arc<[Arc<Message>]>,
    /// The sender of the message.
    pub principal: Principal,
    /// Whether a client reads the events while the turn runs.
    pub streaming: bool,
    /// Whether a result that arrives after the turn can still reach the caller.
    pub async_delivery: bool,
    /// The request's metadata.
    pub metadata: Option<Arc<Metadata>>,
    /// The executor's checkpoint, if the turn is resumed after a restart or cancelled.
    pub checkpoint: Option<Vec<u8>>,
}

/// How a turn ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinalState {
    /// The message is answered.
    Completed,
    /// The caller must provide more input.
    InputRequired,
    /// The caller must authenticate somewhere.
    AuthRequired,
    /// The executor rejects the message.
    Rejected,
}

/// The tokens that a turn used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// The tokens read.
    pub input_tokens: u32,
    /// The tokens written.
    pub output_tokens: u32,
}

/// The result of a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// How the turn ended.
    pub state: FinalState,
    /// The answer, question or reason.
    pub parts: Vec<Part>,
    /// The tokens that it used.
    pub usage: Option<Usage>,
    /// Additional values for the caller.
    pub metadata: Option<Metadata>,
}

/// The kind of a failure, coarse enough to act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The executor cannot make sense of the turn.
    InvalidTurn,
    /// The executor cannot make sense of its settings.
    InvalidSettings,
    /// The upstream responded with an error, or not at all.
    Upstream,
    /// A policy denies what the turn needs.
    Denied,
    /// The turn took too long.
    TimedOut,
    /// The turn was cancelled.
    Cancelled,
    /// There is no room for the turn now.
    Busy,
    /// A fault of the executor.
    Internal,
}

/// A failed turn. The caller reads `message`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The kind of the failure.
    pub kind: FailureKind,
    /// The text for the caller, reviewed and without secrets.
    pub message: String,
    /// Whether the same turn may succeed later.
    pub retryable: bool,
}

/// The state of a tool call of the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolState {
    /// The call began.
    Started,
    /// The call ended well.
    Completed,
    /// The call failed.
    Failed,
}

/// The progress of a tool call of the upstream.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolProgress {
    /// The id of the call.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The state of the call.
    pub state: ToolState,
    /// A line for people.
    pub label: Option<String>,
    /// Additional values.
    pub metadata: Option<Metadata>,
}

/// What a turn emits while it runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Emitted {
    /// The next piece of the answer's text.
    TextDelta(String),
    /// A result other than the answer.
    Artifact {
        /// The artifact, or a piece of it.
        artifact: Artifact,
        /// Whether the parts are appended to the artifact of that id.
        append: bool,
        /// Whether this is the last piece.
        last: bool,
    },
    /// A line about what the agent is doing.
    Status(String),
    /// The progress of a tool call.
    Tool(ToolProgress),
    /// An event of the executor's own.
    Custom {
        /// The name.
        name: String,
        /// The content.
        value: serde_json::Value,
    },
}

/// Executes turns, each within a deadline of its own. Dropping the future of [`Executor::execute`] stops the turn and
/// releases everything that it held.
#[async_trait]
pub trait Executor: Send + Sync + 'static {
    /// The name that the executor is configured under.
    fn name(&self) -> &str;

    /// Executes a turn.
    async fn execute(&self, turn: Turn, scope: Scope) -> Result<Outcome, Failure>;

    /// Stops the upstream's work for a cancelled turn, which carries its checkpoint.
    async fn cancel(&self, turn: Turn) -> Result<(), Failure>;

    /// Returns the memory that the executor needs for a turn whose messages take this many bytes. It is reserved when the
    /// message is accepted, and the turn gets it with its [`Scope`].
    ///
    /// # Errors
    /// [`TooLarge`] if the executor may not have so much.
    fn memory(&self, bytes: usize) -> Result<usize, TooLarge> {
        let _ = bytes;
        Ok(0)
    }
}

/// A message that cannot fit into the memory that its executor may have. The text is for the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the message, with the earlier ones of its task, takes {bytes} bytes, and the executor {executor} can take {limit}; send \
     less{}",
    fix.as_ref().map(|key| format!(", or have the operator raise `{key}`")).unwrap_or_default()
)]
pub struct TooLarge {
    /// The executor.
    pub executor: String,
    /// The size of the message and of the task's earlier ones.
    pub bytes: usize,
    /// The most that the executor can take.
    pub limit: usize,
    /// The configuration key that raises the limit, if there is one.
    pub fix: Option<String>,
}

/// A message that needs an executor.
#[derive(Debug, Clone, Copy)]
pub struct RouteQuery<'a> {
    /// The sender.
    pub principal: &'a Principal,
    /// The message.
    pub message: &'a Message,
    /// The context that the message belongs to.
    pub context: &'a ContextId,
    /// The request's metadata.
    pub metadata: Option<&'a Metadata>,
    /// The executor of the last turn of the task, if the message continues one.
    pub continues: Option<&'a str>,
}

/// Why a message has no executor. The text is for the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoExecutor {
    /// The message asks for an executor that it cannot have.
    #[error("{0}")]
    Refused(String),
    /// The executor of the message is not loaded.
    #[error("{0}")]
    Unavailable(String),
    /// The executor of the message does not accept one of its media types.
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
    /// Returns the executor for a message.
    ///
    /// # Errors
    /// [`NoExecutor`], with nothing changed.
    fn pick(&self, asked: &RouteQuery<'_>) -> Result<Arc<dyn Executor>, NoExecutor>;

    /// Returns the executor of this name, to resume a turn that it had begun before a restart.
    fn named(&self, name: &str) -> Option<Arc<dyn Executor>>;
}

// === impl FailureKind ===

impl FailureKind {
    /// The name, as in logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidTurn => "invalid-turn",
            Self::InvalidSettings => "invalid-settings",
            Self::Upstream => "upstream",
            Self::Denied => "denied",
            Self::TimedOut => "timed-out",
            Self::Cancelled => "cancelled",
            Self::Busy => "busy",
            Self::Internal => "internal",
        }
    }
}

// === impl Failure ===

impl Failure {
    /// A failure that is not worth a retry.
    #[must_use]
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retryable: false }
    }
}
