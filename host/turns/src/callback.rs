//! Callbacks: replies that an upstream sends by a request of its own, as turns and stores see them.
//!
//! Such a reply may arrive long after the upstream acknowledged the request. A turn first declares which reply it expects
//! ([`Callbacks::expect`]) and then waits for it ([`Awaited::next`]). How the reply arrives is not known here; [`CallbackStore`]
//! stores expectations and replies.

use std::time::Duration;

use async_trait::async_trait;

use crate::model::Timestamp;
use crate::store::{StoreError, TaskKey};
use crate::trace::TraceContext;

/// A reply that a turn expects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation {
    /// The task whose turn expects it.
    pub task: TaskKey,
    /// The executor that runs the turn.
    pub executor: Box<str>,
    /// The id that the upstream has for the message to be answered.
    pub message: Box<str>,
    /// The upstream's chat that the message belongs to. Only one task at a time expects replies of a chat.
    pub chat: Option<Box<str>>,
    /// How long to wait until the chat is free; `None` waits without a limit.
    pub within: Option<Duration>,
}

/// A reply that arrived for a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The media type.
    pub content_type: String,
    /// The body.
    pub body: Vec<u8>,
    /// The place in a trace that the peer sent with it, if traces are on.
    pub trace: Option<TraceContext>,
}

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
pub enum CallbackError {
    /// The reply is expected already, by this turn or another.
    #[error("a reply to message {0} is expected already")]
    Duplicate(Box<str>),
    /// The chat was not free in time.
    #[error("chat {0} is busy with another message")]
    ChatBusy(Box<str>),
    /// A bound is reached; the text names it.
    #[error("{0}")]
    Full(String),
    /// The host is shutting down. Callers read this text; it never changes.
    #[error("executor shutting down")]
    Closing,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Receives replies for turns.
#[async_trait]
pub trait Callbacks: Send + Sync + 'static {
    /// Declares that a reply is expected; when this returns, the expectation survives the end of the process. After a
    /// restart the same task may expect the same reply again; it gets what arrived meanwhile.
    async fn expect(&self, expected: Expectation) -> Result<Box<dyn Awaited>, CallbackError>;
}

/// A reply that is expected. Dropping it withdraws the expectation.
#[async_trait]
pub trait Awaited: Send + Sync + 'static {
    /// The address that the upstream must send the reply to.
    fn reply_url(&self) -> &str;

    /// Whether the upstream may still be working on an earlier message of the chat, whose turn ended without a reply.
    fn overtakes(&self) -> bool;

    /// Waits for the next reply. Dropping the future loses nothing.
    async fn next(&mut self) -> Result<Delivery, CallbackError>;
}

/// A reply that arrived after its turn had ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Late {
    /// The task.
    pub task: TaskKey,
    /// The chat.
    pub chat: Option<Box<str>>,
    /// The message that it answers.
    pub message: Box<str>,
    /// The index among the replies to that message.
    pub place: usize,
    /// When it arrived.
    pub at: Timestamp,
    /// The text, without secrets.
    pub text: String,
}

/// Adds late replies to the tasks that they belong to.
#[async_trait]
pub trait LateReplySink: Send + Sync + 'static {
    /// Adds a reply; delivering it twice has the effect of once. Returns false if it is too early, because the task has not
    /// ended yet.
    ///
    /// # Errors
    /// Those of the store; the reply must be delivered again.
    async fn deliver(&self, late: &Late) -> Result<bool, StoreError>;
}

/// A reply that a turn expects, as a store keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedReply {
    /// The message that is to be answered; no two expected replies share one.
    pub message: Box<str>,
    /// The chat of the message.
    pub chat: Option<Box<str>>,
    /// The task.
    pub task: TaskKey,
    /// The executor.
    pub executor: Box<str>,
    /// When it was first expected.
    pub at: Timestamp,
    /// When the expectation was withdrawn.
    pub closed: Option<Timestamp>,
}

/// A callback that came for an expected reply, as a store keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredCallback {
    /// Whether it answers the message; otherwise it is a notice.
    pub is_reply: bool,
    /// Whether it came after the expectation was withdrawn.
    pub is_late: bool,
    /// SHA-256 of its text, to recognise a repeated one.
    pub digest: [u8; 32],
    /// When it arrived.
    pub at: Timestamp,
    /// The body for the turn.
    pub body: Vec<u8>,
}

/// A stored callback without its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallbackHeader {
    /// The message that it is for.
    pub message: Box<str>,
    /// See [`StoredCallback`].
    pub is_reply: bool,
    /// See [`StoredCallback`].
    pub is_late: bool,
    /// See [`StoredCallback`].
    pub digest: [u8; 32],
    /// The size of the body, in bytes.
    pub bytes: usize,
}

/// Stores expected replies and their callbacks. Every method does all or nothing; what a method wrote survives the end of the
/// process once it returns, if the store is durable at all.
#[async_trait]
pub trait CallbackStore: Send + Sync + 'static {
    /// Everything in the store, callbacks in the order in which they came. For the start of a host.
    async fn expected(&self) -> Result<(Vec<ExpectedReply>, Vec<CallbackHeader>), StoreError>;

    /// Stores an expected reply. It replaces an older one for the same message, whose callbacks stay and are no longer late.
    async fn expect(&self, expected: &ExpectedReply) -> Result<(), StoreError>;

    /// Marks expectations as withdrawn; unknown messages are ignored.
    async fn withdraw(&self, messages: &[Box<str>], at: Timestamp) -> Result<(), StoreError>;

    /// Deletes expected replies with their callbacks; unknown messages are ignored.
    async fn delete(&self, messages: &[Box<str>]) -> Result<(), StoreError>;

    /// Stores a callback.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if no reply to the message is expected.
    async fn put(&self, message: &str, callback: &StoredCallback) -> Result<(), StoreError>;

    /// The callback at a place among those of a message, 0 for the first.
    async fn callback(&self, message: &str, place: usize) -> Result<Option<StoredCallback>, StoreError>;
}
