//! Replies that come out of band, seen from a turn and from a store.
//!
//! An upstream may answer by a request of its own, long after the one that asked it was acknowledged. A turn says
//! beforehand which reply it expects ([`Callbacks::expect`]) and then waits for it ([`Awaited::next`]). Where the
//! reply comes in is not known here; where expectations and replies are kept is [`CallbackStore`].

use std::time::Duration;

use async_trait::async_trait;

use crate::model::Timestamp;
use crate::store::{StoreError, TaskKey};

/// A reply that a turn expects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation {
    /// The task whose turn expects it.
    pub task: TaskKey,
    /// The executor that runs the turn.
    pub executor: Box<str>,
    /// The message that it answers, by the id that the upstream is given.
    pub message: Box<str>,
    /// The upstream's chat that the message belongs to. Of one chat, one task at a time expects something.
    pub chat: Option<Box<str>>,
    /// How long to wait for the chat; none waits for as long as it takes.
    pub within: Option<Duration>,
}

/// Something that came for a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Its media type.
    pub content_type: String,
    /// Its body.
    pub body: Vec<u8>,
}

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
pub enum CallbackError {
    /// Another turn expects it, or this one already.
    #[error("a reply to message {0} is expected already")]
    Duplicate(Box<str>),
    /// The chat was not free in time.
    #[error("chat {0} is busy with another message")]
    ChatBusy(Box<str>),
    /// A bound is reached; the text says which.
    #[error("{0}")]
    Full(String),
    /// The host is shutting down. The words are those that callers of the Python bridge know.
    #[error("executor shutting down")]
    Closing,
    /// The store did not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Takes replies in for turns.
#[async_trait]
pub trait Callbacks: Send + Sync + 'static {
    /// Announces a reply; when this returns, the announcement survives the end of the process. The same task may
    /// announce the same reply again after a restart: it gets what came meanwhile.
    async fn expect(&self, expected: Expectation) -> Result<Box<dyn Awaited>, CallbackError>;
}

/// A reply that was announced. Dropping it withdraws the announcement.
#[async_trait]
pub trait Awaited: Send + Sync + 'static {
    /// Where the upstream must post it.
    fn reply_url(&self) -> &str;

    /// Whether the upstream may still be at work on an earlier message of the chat, whose turn ended without a reply.
    fn overtakes(&self) -> bool;

    /// The next thing that comes for the turn. Dropping the future loses nothing.
    async fn next(&mut self) -> Result<Delivery, CallbackError>;
}

/// A reply that came after its turn had ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Late {
    /// The task.
    pub task: TaskKey,
    /// The chat.
    pub chat: Option<Box<str>>,
    /// The message that it answers.
    pub message: Box<str>,
    /// Which of the replies to that message it is, 0 for the first.
    pub place: usize,
    /// When it came.
    pub at: Timestamp,
    /// What it says, without secrets.
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
    /// The chat that it belongs to.
    pub chat: Option<Box<str>>,
    /// The task.
    pub task: TaskKey,
    /// The executor.
    pub executor: Box<str>,
    /// When it was first expected.
    pub at: Timestamp,
    /// When it was withdrawn.
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
    /// When it came.
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
    /// Bytes of its body.
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
