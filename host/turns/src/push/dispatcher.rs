//! Followers: each reads the log of a task for one push configuration and delivers the notifications.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use talaria_backoff::Backoff;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use super::{GivenUp, PushConfig, PushContent, PushFailure, PushLimits, PushNotification, PushSender, Retry};
use crate::live_task::LiveTask;
use crate::model::{PushConfigId, Timestamp};
use crate::shares::Callers;
use crate::store::{Store, TaskKey};

/// How long deliveries may take when the host stops.
const LAST: Duration = Duration::from_secs(5);

/// Starts and stops followers.
pub(crate) struct PushDispatcher {
    store: Arc<dyn Store>,
    sender: Arc<dyn PushSender>,
    limits: PushLimits,
    room: Semaphore,
    callers: Arc<Callers>,
    tracker: TaskTracker,
    /// Where followers run; without it where a task is followed first. A delivery is not for a thread that answers requests.
    runtime: Option<Handle>,
    /// Ends the waits for events and the pauses; deliveries that have begun are finished.
    closing: CancellationToken,
    following: Mutex<HashMap<(TaskKey, PushConfigId), Following>>,
    given_up: AtomicU64,
}

/// What there is to deliver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PushQueue {
    /// Push configurations whose tasks are followed: tasks under way, and notifications still to be delivered.
    pub following: usize,
    /// Notifications that are being delivered.
    pub delivering: usize,
    /// Push configurations that were given up since the start.
    pub given_up: u64,
}

/// A follower that can be stopped. The number distinguishes it from one that replaced it.
struct Following {
    number: u64,
    end: CancellationToken,
}

/// Delivers the notifications of one push configuration.
struct Follower {
    dispatcher: Arc<PushDispatcher>,
    live: Arc<LiveTask>,
    config: PushConfig,
    cursor: u64,
    number: u64,
    end: CancellationToken,
}

/// The result of a delivery.
enum Delivered {
    Yes,
    Never(GivenUp),
    /// The host stops first.
    NotNow,
}

// === impl PushDispatcher ===

impl PushDispatcher {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        sender: Arc<dyn PushSender>,
        limits: PushLimits,
        callers: Arc<Callers>,
        runtime: Option<Handle>,
    ) -> Self {
        Self {
            store,
            sender,
            limits,
            room: Semaphore::new(limits.at_once.max(1)),
            callers,
            tracker: TaskTracker::new(),
            runtime,
            closing: CancellationToken::new(),
            following: Mutex::default(),
            given_up: AtomicU64::new(0),
        }
    }

    pub(crate) fn push_sender(&self) -> &dyn PushSender {
        &*self.sender
    }

    /// The push configurations that a task may have.
    pub(crate) fn most(&self) -> usize {
        self.limits.configs
    }

    /// Follows a task for a push configuration from its cursor on, and stops the follower that did so before.
    pub(crate) fn follow(self: &Arc<Self>, live: Arc<LiveTask>, config: PushConfig, cursor: u64) {
        if self.closing.is_cancelled() {
            return;
        }
        let key = (live.key.clone(), config.id.clone());
        let end = CancellationToken::new();
        let number = {
            let mut following = self.following();
            let number = following.get(&key).map_or(0, |before| before.number + 1);
            if let Some(before) = following.insert(key, Following { number, end: end.clone() }) {
                before.end.cancel();
            }
            number
        };
        let follower = Follower { dispatcher: Arc::clone(self), live, config, cursor, number, end };
        match &self.runtime {
            Some(runtime) => self.tracker.spawn_on(follower.run(), runtime),
            None => self.tracker.spawn(follower.run()),
        };
    }

    /// Stops the follower of a push configuration.
    pub(crate) fn withdraw(&self, key: &TaskKey, config: &PushConfigId) {
        if let Some(following) = self.following().remove(&(key.clone(), config.clone())) {
            following.end.cancel();
        }
    }

    /// What there is to deliver now.
    pub(crate) fn queue(&self) -> PushQueue {
        PushQueue {
            following: self.following().len(),
            delivering: self.limits.at_once.max(1).saturating_sub(self.room.available_permits()),
            given_up: self.given_up.load(Ordering::Relaxed),
        }
    }

    /// Finishes the deliveries that have begun, and stops. The others are made after the next start.
    pub(crate) async fn drain(&self) {
        self.closing.cancel();
        self.tracker.close();
        if tokio::time::timeout(LAST, self.tracker.wait()).await.is_err() {
            for (_, following) in self.following().drain() {
                following.end.cancel();
            }
        }
    }

    fn following(&self) -> MutexGuard<'_, HashMap<(TaskKey, PushConfigId), Following>> {
        self.following.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the pauses between tries. With jitter, so that deliveries that failed together are not retried together.
    fn backoff(&self) -> Backoff {
        Backoff::from_first(self.limits.pause).up_to(self.limits.longest_pause).with_jitter()
    }
}

// === impl Follower ===

impl Follower {
    async fn run(mut self) {
        let end = self.end.clone();
        end.run_until_cancelled(self.deliver_all()).await;
        let mut following = self.dispatcher.following();
        let key = (self.live.key.clone(), self.config.id.clone());
        if following.get(&key).is_some_and(|now| now.number == self.number) {
            following.remove(&key);
        }
    }

    /// Delivers until the task has ended and everything is delivered, the configuration is given up, or the host stops.
    async fn deliver_all(&mut self) {
        let closing = self.dispatcher.closing.clone();
        let mut reader = self.live.reader(self.cursor);
        let mut backoff = self.dispatcher.backoff();
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
                    warn!(%error, task = %self.live.key.task, "could not read events for push notifications");
                    if self.pause(backoff.next_delay()).await.is_break() {
                        return;
                    }
                    reader = self.live.reader(self.cursor);
                    continue;
                }
            };
            backoff.reset();
            // An earlier notification had a task that was further on, and included this event.
            if entry.sequence <= self.cursor || !self.config.is_pushed(&entry.event) {
                continue;
            }
            let task = self.live.task();
            let (cursor, notification) = match self.config.content {
                PushContent::Events => (entry.sequence, PushNotification::Event(task, entry)),
                PushContent::Task => (task.version, PushNotification::Task(task)),
            };
            let given_up = match self.deliver(&notification).await {
                Delivered::Yes => None,
                Delivered::Never(given_up) => Some(given_up),
                Delivered::NotNow => return,
            };
            if given_up.is_none() {
                self.cursor = cursor;
            }
            let id = &self.config.id;
            let kept = self
                .dispatcher
                .store
                .move_push_cursor(&self.live.key, id, self.cursor, given_up.as_ref())
                .await;
            if let Err(error) = kept {
                // The notification may be sent again after a restart, which at-least-once delivery allows.
                debug!(%error, "could not store the cursor of a push configuration");
            }
            if given_up.is_some() {
                return;
            }
        }
    }

    /// Tries until the notification is delivered or given up.
    async fn deliver(&self, notification: &PushNotification) -> Delivered {
        let dispatcher = &self.dispatcher;
        let mut backoff = dispatcher.backoff();
        loop {
            let tried = {
                // The caller's own room first: who waits for it must not hold the room of others.
                let _own = match dispatcher.callers.of(&self.live.key.owner).deliveries() {
                    Some(own) => own.acquire().await.ok(),
                    None => None,
                };
                let _room = dispatcher.room.acquire().await;
                dispatcher.sender.deliver(&self.config, notification).await
            };
            let Err(PushFailure { why, retry }) = tried else { return Delivered::Yes };
            let pause = backoff.next_delay();
            let tries = backoff.attempts();
            let (task, config) = (&self.live.key.task, &self.config.id);
            if retry == Retry::Never || tries >= dispatcher.limits.tries {
                dispatcher.given_up.fetch_add(1, Ordering::Relaxed);
                warn!(%task, %config, tries, why, "gave up push notifications");
                return Delivered::Never(GivenUp { at: Timestamp::now(), tries, why });
            }
            info!(%task, %config, tries, why, "push notification failed; will retry");
            let pause = match retry {
                Retry::After(least) => pause.max(least.min(dispatcher.limits.longest_pause)),
                Retry::Later | Retry::Never => pause,
            };
            if self.pause(pause).await.is_break() {
                return Delivered::NotNow;
            }
        }
    }

    /// Waits; breaks off when the host stops.
    async fn pause(&self, pause: Duration) -> ControlFlow<()> {
        match self.dispatcher.closing.run_until_cancelled(tokio::time::sleep(pause)).await {
            Some(()) => ControlFlow::Continue(()),
            None => ControlFlow::Break(()),
        }
    }
}
