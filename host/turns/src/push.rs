//! Push notifications: where callers want them, and how they are sent.
//!
//! There is no second queue. A push configuration has a cursor into the log of its task, stored beside the task: events
//! up to the cursor have been delivered; later ones are still to be sent. So an append costs nothing more if nobody
//! listens, and after a restart the remaining notifications are sent.
//!
//! Each push configuration that may still get notifications has a follower. It reads the log as any reader does, hands one
//! notification after the other to the [`PushSender`], and moves the cursor. Delivery is at least once and in order. Bounds:
//! the push configurations of a task ([`PushLimits::configs`]), the deliveries at once ([`PushLimits::at_once`]), and the
//! tries of one notification ([`PushLimits::tries`]). After the last try the push configuration is given up: it stays,
//! with the reason, and carries on from its cursor when it is set again or retried. A receiver that hangs delays nobody
//! else: a named caller may use a quarter of the deliveries at once.

mod dispatcher;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) use self::dispatcher::PushDispatcher;
pub use self::dispatcher::PushQueue;
use crate::model::{PushConfigId, Timestamp};
use crate::shares::OverShare;
use crate::store::{Entry, StoreError, TaskKey};
use crate::stream_as::StreamAs;
use crate::task::{Event, Task};

/// A push configuration: where a caller wants notifications about a task, and how its receiver authenticates us.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PushConfig {
    /// The id within the task.
    pub id: PushConfigId,
    /// The address of the receiver.
    pub url: String,
    /// The content of the notifications.
    #[serde(rename = "tells")]
    pub content: PushContent,
    /// The form of a streamed answer, if the notifications are events.
    #[serde(default)]
    pub stream: StreamAs,
    /// Sent with each notification; tells the receiver which of its requests the notification belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Credential>,
    /// Sent with each notification; tells the receiver who sends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authentication: Option<Authentication>,
}

/// How the receiver authenticates us.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Authentication {
    /// The scheme, such as `Bearer`.
    pub scheme: String,
    /// The credentials for the scheme.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Credential>,
}

/// The content of push notifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PushContent {
    /// Every event, one by one.
    Events,
    /// The whole task, whenever its status changes or a late reply arrives. Changes in quick succession are sent as one.
    Task,
}

/// A caller's secret for its own receiver. It does not print itself; only stores and push senders look inside.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential(Box<str>);

/// A push configuration as a store has it.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredPushConfig {
    /// The task.
    pub key: TaskKey,
    /// The push configuration.
    pub config: PushConfig,
    /// The last event that was delivered, or that is not sent at all.
    pub cursor: u64,
    /// Why it was given up, if it was.
    pub given_up: Option<GivenUp>,
}

/// Why a push configuration was given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenUp {
    /// When it was given up.
    pub at: Timestamp,
    /// How often the notification was tried.
    pub tries: u32,
    /// The error of the last try.
    pub why: String,
}

/// A push notification.
#[derive(Debug, Clone)]
pub enum PushNotification {
    /// An event and its task, which may be further on.
    Event(Arc<Task>, Entry),
    /// The task.
    Task(Arc<Task>),
}

/// Why a notification was not delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushFailure {
    /// The reason, for the operator; without credentials.
    pub why: String,
    /// When to retry.
    pub retry: Retry,
}

/// When to retry a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// After the next pause.
    Later,
    /// Not before this time has passed.
    After(Duration),
    /// Never.
    Never,
}

/// Sends push notifications to their receivers.
#[async_trait]
pub trait PushSender: Send + Sync + 'static {
    /// Checks whether this host sends anything to such an address; the error is a reason for the caller.
    async fn admits(&self, url: &str) -> Result<(), String>;

    /// Delivers a notification. Returns within a bound of its own.
    async fn deliver(&self, config: &PushConfig, notification: &PushNotification) -> Result<(), PushFailure>;
}

/// The bounds of push configurations and of deliveries.
#[derive(Debug, Clone, Copy)]
pub struct PushLimits {
    /// The push configurations that a task may have.
    pub configs: usize,
    /// The deliveries at once.
    pub at_once: usize,
    /// The tries of one notification.
    pub tries: u32,
    /// The pause after the first try. It doubles after each further try, up to [`PushLimits::longest_pause`].
    pub pause: Duration,
    /// The longest pause.
    pub longest_pause: Duration,
}

/// Why a push configuration was not set, read or deleted. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// This host sends no push notifications.
    #[error("this host sends no push notifications")]
    Unsupported,
    /// This host sends nothing to such an address.
    #[error("{0}")]
    Refused(String),
    /// The task has as many as it may have.
    #[error("a task may have {0} push notification configurations; delete one first")]
    TooMany(usize),
    /// The caller set as many as its share.
    #[error(transparent)]
    OverShare(#[from] OverShare),
    /// The task has none of that id.
    #[error("no push notification configuration {0}")]
    NoSuchConfig(PushConfigId),
    /// The store's error; [`StoreError::NotFound`] if there is no such task.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Default for PushLimits {
    /// Twelve tries take about twenty minutes: long enough for a deployment of the receiver, not for an outage of a day.
    fn default() -> Self {
        Self {
            configs: 10,
            at_once: 64,
            tries: 12,
            pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(300),
        }
    }
}

// === impl Credential ===

impl Credential {
    /// Wraps a secret.
    #[must_use]
    pub fn new(secret: impl Into<Box<str>>) -> Self {
        Self(secret.into())
    }

    /// Returns the secret.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

/// For stores: a push configuration must work after a restart.
impl Serialize for Credential {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Credential {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

// === impl PushConfig ===

impl PushConfig {
    /// Whether an event causes a notification.
    fn is_pushed(&self, event: &Event) -> bool {
        match self.content {
            PushContent::Events => self.stream.tells(event),
            PushContent::Task => matches!(event, Event::Status { .. } | Event::Late(_)),
        }
    }
}
