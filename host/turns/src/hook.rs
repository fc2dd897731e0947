//! Hooks: addresses that a caller wants to be told at what happens to a task.
//!
//! There is no second queue. A hook is a cursor into the task's log, kept beside the task: what lies behind the cursor
//! was delivered, what lies before it is the outbox. So an append costs nothing more where nobody listens, and after
//! a restart what was not delivered goes out.
//!
//! Each hook that has something to wait for has a follower: it reads the log as any reader does, hands one thing after
//! the other to the [`Courier`], and moves the cursor. HookLimits is at least once, in order. What bounds it: hooks a task
//! ([`HookLimits::hooks`]), deliveries at once ([`HookLimits::at_once`]), tries of one thing ([`HookLimits::tries`]). After the
//! last try the hook is given up: it stays, says why, and goes on from its cursor when it is set again or retried. One
//! hook that hangs delays nobody else.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use crate::live::Live;
use crate::model::{HookId, Timestamp};
use crate::store::{Entry, Store, StoreError, TaskKey};
use crate::task::{Event, Task};
use crate::tell::StreamAs;

/// Where a caller wants to be told, and how it knows that it is us.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hook {
    /// Its id within the task.
    pub id: HookId,
    /// Where to.
    pub url: String,
    /// What is told.
    pub tells: Tells,
    /// How the pieces of an answer are told, where every event is.
    #[serde(default)]
    pub stream: StreamAs,
    /// Sent along, so that the receiver knows which of its requests it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Credential>,
    /// Sent along, so that the receiver knows who calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authentication: Option<Authentication>,
}

/// How the receiver wants us to prove who we are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Authentication {
    /// Such as `Bearer`.
    pub scheme: String,
    /// What belongs to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Credential>,
}

/// What a hook is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tells {
    /// Every event, one by one.
    Events,
    /// The whole task, whenever its status changed or a late reply came; changes that came meanwhile are one.
    Task,
}

/// A secret of the caller's, for its own receiver. It does not print itself; only a store and a courier look inside.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential(Box<str>);

/// A hook in its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Hooked {
    /// The task.
    pub key: TaskKey,
    /// The hook.
    pub hook: Hook,
    /// The last event that was delivered, or that needs none.
    pub cursor: u64,
    /// Why nothing more is tried, if so.
    pub given_up: Option<GivenUp>,
}

/// Why a hook is not tried any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenUp {
    /// Since when.
    pub at: Timestamp,
    /// How often the one thing was tried.
    pub tries: u32,
    /// What the last try failed with.
    pub why: String,
}

/// What is to be told.
#[derive(Debug, Clone)]
pub enum News {
    /// One event, and the task that it happened to, which may be further on.
    Event(Arc<Task>, Entry),
    /// The task.
    Task(Arc<Task>),
}

/// Why something was not delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undelivered {
    /// For the operator; without credentials.
    pub why: String,
    /// When it is worth trying again.
    pub again: Again,
}

/// When it is worth trying again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// When the next pause is over.
    Later,
    /// Not before as long.
    After(Duration),
    /// Never.
    Never,
}

/// Takes news to where they are wanted.
#[async_trait]
pub trait Courier: Send + Sync + 'static {
    /// Whether this host calls such an address at all; the reason if not, fit for the caller.
    async fn admits(&self, url: &str) -> Result<(), String>;

    /// Takes it there. Returns within a bound of its own.
    async fn deliver(&self, hook: &Hook, news: &News) -> Result<(), Undelivered>;
}

/// Bounds of hooks and of their delivery.
#[derive(Debug, Clone, Copy)]
pub struct HookLimits {
    /// Hooks that a task may have.
    pub hooks: usize,
    /// Deliveries at once.
    pub at_once: usize,
    /// Tries of one thing.
    pub tries: u32,
    /// The pause after the first try; it doubles with each, up to [`HookLimits::longest_pause`].
    pub pause: Duration,
    /// The longest pause.
    pub longest_pause: Duration,
}

/// Starts and ends followers.
pub(crate) struct Outbox {
    store: Arc<dyn Store>,
    courier: Arc<dyn Courier>,
    limits: HookLimits,
    room: Semaphore,
    tracker: TaskTracker,
    /// No more news are waited for, nor pauses; what is on its way is finished.
    closing: CancellationToken,
    following: Mutex<HashMap<(TaskKey, HookId), Following>>,
}

/// A follower that can be ended. The number tells it from one that took its place.
struct Following {
    number: u64,
    end: CancellationToken,
}

/// Delivers to one hook what happens to its task.
struct Follower {
    outbox: Arc<Outbox>,
    live: Arc<Live>,
    hook: Hook,
    cursor: u64,
    number: u64,
    end: CancellationToken,
}

/// How long what is on its way may take at the end.
const LAST: Duration = Duration::from_secs(5);

impl Default for HookLimits {
    /// Twelve tries take about twenty minutes: a deployment of the receiver, not an outage of a day.
    fn default() -> Self {
        Self {
            hooks: 10,
            at_once: 64,
            tries: 12,
            pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(300),
        }
    }
}

// === impl Credential ===

impl Credential {
    /// Takes a secret in.
    #[must_use]
    pub fn new(secret: impl Into<Box<str>>) -> Self {
        Self(secret.into())
    }

    /// The secret itself.
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

/// For the store: a hook must work after a restart.
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

// === impl Hook ===

impl Hook {
    /// Whether an event is news.
    fn is_news(&self, event: &Event) -> bool {
        match self.tells {
            Tells::Events => self.stream.tells(event),
            Tells::Task => matches!(event, Event::Status { .. } | Event::Late(_)),
        }
    }
}

// === impl Outbox ===

impl Outbox {
    pub(crate) fn new(store: Arc<dyn Store>, courier: Arc<dyn Courier>, limits: HookLimits) -> Self {
        Self {
            store,
            courier,
            limits,
            room: Semaphore::new(limits.at_once.max(1)),
            tracker: TaskTracker::new(),
            closing: CancellationToken::new(),
            following: Mutex::default(),
        }
    }

    pub(crate) fn courier(&self) -> &dyn Courier {
        &*self.courier
    }

    /// Hooks that a task may have.
    pub(crate) fn most(&self) -> usize {
        self.limits.hooks
    }

    /// Follows a task for a hook, from its cursor on, in place of who did so before.
    pub(crate) fn follow(self: &Arc<Self>, live: Arc<Live>, hook: Hook, cursor: u64) {
        if self.closing.is_cancelled() {
            return;
        }
        let key = (live.key.clone(), hook.id.clone());
        let end = CancellationToken::new();
        let number = {
            let mut following = self.following();
            let number = following.get(&key).map_or(0, |before| before.number + 1);
            if let Some(before) = following.insert(key, Following { number, end: end.clone() }) {
                before.end.cancel();
            }
            number
        };
        let follower = Follower { outbox: Arc::clone(self), live, hook, cursor, number, end };
        self.tracker.spawn(follower.run());
    }

    /// Follows no more for this hook.
    pub(crate) fn leave(&self, key: &TaskKey, hook: &HookId) {
        if let Some(following) = self.following().remove(&(key.clone(), hook.clone())) {
            following.end.cancel();
        }
    }

    /// Finishes what is on its way and stops. The rest goes out after the next start.
    pub(crate) async fn drain(&self) {
        self.closing.cancel();
        self.tracker.close();
        if tokio::time::timeout(LAST, self.tracker.wait()).await.is_err() {
            for (_, following) in self.following().drain() {
                following.end.cancel();
            }
        }
    }

    fn following(&self) -> MutexGuard<'_, HashMap<(TaskKey, HookId), Following>> {
        self.following.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pause after as many tries: twice as long each time, and shorter by up to a half, so that hooks that failed
    /// together do not come back together.
    fn pause(&self, tries: u32) -> Duration {
        let doubled = self.limits.pause.saturating_mul(1 << tries.saturating_sub(1).min(16));
        let longest = doubled.min(self.limits.longest_pause);
        let random = u64::from(uuid::Uuid::new_v4().as_fields().0);
        longest.mul_f64(1.0 - random as f64 / f64::from(u32::MAX) / 2.0)
    }
}

// === impl Follower ===

impl Follower {
    async fn run(mut self) {
        let end = self.end.clone();
        end.run_until_cancelled(self.deliver_all()).await;
        let mut following = self.outbox.following();
        let key = (self.live.key.clone(), self.hook.id.clone());
        if following.get(&key).is_some_and(|now| now.number == self.number) {
            following.remove(&key);
        }
    }

    /// Until the task is over and all is delivered, the hook is given up, or the host ends.
    async fn deliver_all(&mut self) {
        let closing = self.outbox.closing.clone();
        let mut reader = self.live.reader(self.cursor);
        let mut trouble = 0;
        loop {
            let next = tokio::select! {
                biased;
                next = reader.next() => next,
                () = closing.cancelled() => return,
            };
            let entry = match next {
                Ok(Some(entry)) => entry,
                Ok(None) => return,
                Err(error) => {
                    trouble += 1;
                    warn!(%error, task = %self.live.key.task, "news for a hook could not be read");
                    if self.pause(self.outbox.pause(trouble)).await.is_break() {
                        return;
                    }
                    reader = self.live.reader(self.cursor);
                    continue;
                }
            };
            trouble = 0;
            // Told already, with a task that was further on.
            if entry.sequence <= self.cursor || !self.hook.is_news(&entry.event) {
                continue;
            }
            let task = self.live.task();
            let (cursor, news) = match self.hook.tells {
                Tells::Events => (entry.sequence, News::Event(task, entry)),
                Tells::Task => (task.version, News::Task(task)),
            };
            let given_up = match self.deliver(&news).await {
                Delivered::Yes => None,
                Delivered::Never(given_up) => Some(given_up),
                Delivered::NotNow => return,
            };
            if given_up.is_none() {
                self.cursor = cursor;
            }
            let id = &self.hook.id;
            let kept = self.outbox.store.move_hook(&self.live.key, id, self.cursor, given_up.as_ref()).await;
            if let Err(error) = kept {
                // It may be told twice after a restart, which at least once allows.
                debug!(%error, "a hook's cursor was not kept");
            }
            if given_up.is_some() {
                return;
            }
        }
    }

    /// Tries until it is delivered or given up.
    async fn deliver(&self, news: &News) -> Delivered {
        let outbox = &self.outbox;
        let mut tries = 0;
        loop {
            let room = outbox.room.acquire().await;
            let tried = outbox.courier.deliver(&self.hook, news).await;
            drop(room);
            let Err(Undelivered { why, again }) = tried else { return Delivered::Yes };
            tries += 1;
            let (task, hook) = (&self.live.key.task, &self.hook.id);
            if again == Again::Never || tries >= outbox.limits.tries {
                warn!(%task, %hook, tries, why, "a hook is given up");
                return Delivered::Never(GivenUp { at: Timestamp::now(), tries, why });
            }
            info!(%task, %hook, tries, why, "news were not delivered; they will be tried again");
            let pause = outbox.pause(tries);
            let pause = match again {
                Again::After(least) => pause.max(least.min(outbox.limits.longest_pause)),
                Again::Later | Again::Never => pause,
            };
            if self.pause(pause).await.is_break() {
                return Delivered::NotNow;
            }
        }
    }

    /// Waits; breaks off when the host ends.
    async fn pause(&self, pause: Duration) -> std::ops::ControlFlow<()> {
        match self.outbox.closing.run_until_cancelled(tokio::time::sleep(pause)).await {
            Some(()) => std::ops::ControlFlow::Continue(()),
            None => std::ops::ControlFlow::Break(()),
        }
    }
}

/// What became of news.
enum Delivered {
    Yes,
    Never(GivenUp),
    /// The host ends first.
    NotNow,
}

/// Why a hook was not set, read or removed. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// This host tells nobody.
    #[error("this host sends no push notifications")]
    Unsupported,
    /// The host does not call such an address.
    #[error("{0}")]
    Refused(String),
    /// The task has as many as it may.
    #[error("a task may have {0} push notification configurations; delete one first")]
    TooMany(usize),
    /// There is none of that id.
    #[error("no push notification configuration {0}")]
    NoSuchHook(HookId),
    /// The store's reason; [`StoreError::NotFound`] where there is no such task.
    #[error(transparent)]
    Store(#[from] StoreError),
}
