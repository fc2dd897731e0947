//! Turns: accepted, written down, executed apart from the request that brought them.
//!
//! [`Turns::send`] returns when the message is in the store and its turn is on its way. Whoever hangs up afterwards
//! changes nothing: the turn runs in the tracker, not in the request. What bounds it: the number of turns that are
//! queued or under way ([`Limits::turns`]), those of one conversation ([`Limits::lane`]), the executor's own deadline,
//! and [`Turns::drain`] at the end.
//!
//! Turns of one conversation run one after the other. A message to a task that is working waits for its turn, and the
//! task is not over before it was answered. A message to a task that asks goes to the turn that asked. A message that
//! was sent before (same caller, id and content, to the same context and task) is not executed again: its sender gets the
//! first answer. Callers without a name cannot be told apart, so for them every message is new.

mod accept;
mod error;
mod hooks;
mod late;
mod recovery;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::executor::Route;
use crate::hook::{Courier, Hook, HookLimits, Outbox};
use crate::live::{Hub, Live, Reader};
use crate::model::{ContextId, Message, Metadata, Principal, TaskId};
use crate::observer::TurnObserver;
use crate::order::Order;
use crate::refused::{self, Refused};
use crate::store::{Page, Query, Store, StoreError, TaskKey};
use crate::task::{Event, State, Task};

pub use error::{CancelError, FollowError, SendError};

/// Bounds of the service.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Turns queued or under way at once; one more is refused. The default is what one engine pool holds.
    pub turns: usize,
    /// Turns queued or under way in one conversation; one more is refused.
    pub lane: usize,
    /// Messages that a task's history may hold; the next one is refused.
    pub history: usize,
    /// Whether turns of callers without a name hear what was said in a conversation whose id a caller chose. Such callers
    /// share one owner: where strangers can call, whoever guesses such an id would read along.
    pub trusts_chosen_contexts: bool,
}

/// A message on its way in.
#[derive(Debug, Clone)]
pub struct Incoming {
    /// Who sends it.
    pub principal: Principal,
    /// The message.
    pub message: Message,
    /// The task that it continues.
    pub task: Option<TaskId>,
    /// The conversation that it belongs to; inferred from the task, or made.
    pub context: Option<ContextId>,
    /// Whether somebody will read the events while it runs.
    pub streaming: bool,
    /// Whether a result that comes late can still reach the caller: it does not wait for the answer in its request, or it
    /// is told by a hook. A hook that the task has already counts by itself.
    pub async_delivery: bool,
    /// The request's metadata.
    pub metadata: Option<Metadata>,
    /// Where the caller wants to be told what happens to the task.
    pub hook: Option<Hook>,
}

/// A turn that is on its way.
pub struct Accepted {
    /// The task, as it was when the turn was accepted.
    pub task: Arc<Task>,
    live: Arc<Live>,
}

/// The service. Cheap to clone.
#[derive(Clone)]
pub struct Turns(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    route: Arc<dyn Route>,
    hub: Hub,
    outbox: Option<Arc<Outbox>>,
    order: Order,
    limits: Limits,
    room: Arc<Semaphore>,
    refused: refused::Counter,
    observers: Arc<[Arc<dyn TurnObserver>]>,
    tracker: TaskTracker,
    stop: CancellationToken,
}

/// Puts a service together.
pub struct TurnsBuilder {
    store: Arc<dyn Store>,
    route: Arc<dyn Route>,
    limits: Limits,
    outbox: Option<Arc<Outbox>>,
    observers: Vec<Arc<dyn TurnObserver>>,
}

/// How long a cancel waits for the turn to end: the grace of a run, and some.
const CANCEL: Duration = Duration::from_secs(10);
impl Default for Limits {
    fn default() -> Self {
        Self { turns: 1_000, lane: 100, history: 1_000, trusts_chosen_contexts: true }
    }
}

// === impl TurnsBuilder ===

impl TurnsBuilder {
    /// Sends push notifications through this courier.
    #[must_use]
    pub fn courier(mut self, courier: Arc<dyn Courier>, limits: HookLimits) -> Self {
        self.outbox = Some(Arc::new(Outbox::new(Arc::clone(&self.store), courier, limits)));
        self
    }

    /// Reports the begin and the end of every turn to this observer.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn TurnObserver>) -> Self {
        self.observers.push(observer);
        self
    }

    /// The service.
    #[must_use]
    pub fn build(self) -> Turns {
        let Self { store, route, limits, outbox, observers } = self;
        Turns(Arc::new(Inner {
            hub: Hub::new(Arc::clone(&store)),
            outbox,
            order: Order::new(limits.lane),
            store,
            route,
            limits,
            room: Arc::new(Semaphore::new(limits.turns)),
            refused: refused::Counter::default(),
            observers: observers.into(),
            tracker: TaskTracker::new(),
            stop: CancellationToken::new(),
        }))
    }
}

// === impl Accepted ===

impl Accepted {
    /// Waits until the task is terminal or asks for something, and returns it as it is then.
    pub async fn settled(self) -> Arc<Task> {
        self.live.until(State::is_settled).await
    }

    /// Reads what happens after [`Accepted::task`].
    #[must_use]
    pub fn reader(&self) -> Reader {
        self.live.reader(self.task.version)
    }
}

// === impl Turns ===

impl Turns {
    /// A service on a store and a way to choose executors. It has no hooks.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, route: Arc<dyn Route>, limits: Limits) -> Self {
        Self::builder(store, route, limits).build()
    }

    /// Begins to put a service together, for one with push notifications or observers.
    #[must_use]
    pub fn builder(store: Arc<dyn Store>, route: Arc<dyn Route>, limits: Limits) -> TurnsBuilder {
        TurnsBuilder { store, route, limits, outbox: None, observers: Vec::new() }
    }

    /// Accepts a message: when this returns, it is in the store and its turn is on its way.
    ///
    /// # Errors
    /// [`SendError`], with nothing changed.
    pub async fn send(&self, incoming: Incoming) -> Result<Accepted, SendError> {
        self.accept(incoming).await.inspect_err(|error| self.0.refused.note(error))
    }

    async fn accept(&self, incoming: Incoming) -> Result<Accepted, SendError> {
        let inner = &self.0;
        if inner.stop.is_cancelled() || inner.tracker.is_closed() {
            return Err(SendError::Draining);
        }
        if let Some(hook) = &incoming.hook {
            inner.admit(hook).await.map_err(SendError::Hook)?;
        }
        let room =
            Arc::clone(&inner.room).try_acquire_owned().map_err(|_| SendError::Busy(inner.limits.turns))?;
        // Written down and executed in one tracked task: a caller that goes away between the two leaves no task behind
        // that nobody runs.
        let (accept, accepted) = oneshot::channel();
        let life = Arc::clone(inner).live_and_end(incoming, room, accept);
        inner.tracker.spawn(life);
        accepted.await.unwrap_or(Err(SendError::Draining))
    }

    /// The task that the same message was accepted into before, if it was.
    ///
    /// # Errors
    /// The store's.
    pub async fn sent_before(&self, incoming: &Incoming) -> Result<Option<TaskId>, StoreError> {
        self.0.sent_before(incoming).await
    }

    /// A task of this caller.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] where there is none, or where it belongs to somebody else.
    pub async fn task(&self, owner: &Principal, task: &TaskId) -> Result<Arc<Task>, StoreError> {
        Ok(self.0.live(owner, task).await?.task())
    }

    /// Tasks of this caller.
    ///
    /// # Errors
    /// The store's.
    pub async fn list(&self, owner: &Principal, query: &Query) -> Result<Page, StoreError> {
        self.0.store.list(owner, query).await
    }

    /// Cancels a task: its turn is ended, its upstream told.
    ///
    /// # Errors
    /// [`CancelError::Over`] where it is over already, cancelled or otherwise.
    pub async fn cancel(&self, owner: &Principal, task: &TaskId) -> Result<Arc<Task>, CancelError> {
        let live = self.0.live(owner, task).await?;
        let before = live.task().status.state;
        if before.is_terminal() {
            return Err(CancelError::Over { task: task.clone(), state: before });
        }
        if live.is_under_way() {
            live.cancel.cancel();
            let _ = tokio::time::timeout(CANCEL, live.until(State::is_terminal)).await;
        }
        let ended = live
            .append(|task| {
                let over = task.status.state.is_terminal();
                Ok::<_, StoreError>(if over {
                    vec![]
                } else {
                    vec![Event::ended(State::Canceled, vec![], None)]
                })
            })
            .await?;
        match ended.status.state {
            State::Canceled => Ok(ended),
            state => Err(CancelError::Over { task: task.clone(), state }),
        }
    }

    /// Follows a task: as it is now, and a reader of what comes. `after` is the last event that the caller has; with it,
    /// the reader begins right behind it.
    ///
    /// # Errors
    /// [`FollowError`] where there is nothing to follow.
    pub async fn follow(
        &self,
        owner: &Principal,
        task: &TaskId,
        after: Option<u64>,
    ) -> Result<(Arc<Task>, Reader), FollowError> {
        let live = self.0.live(owner, task).await?;
        let now = live.task();
        let cursor = after.unwrap_or(now.version);
        if cursor > now.version {
            return Err(FollowError::NoSuchEvent { task: task.clone(), after: cursor, version: now.version });
        }
        let state = now.status.state;
        if state.is_terminal() && cursor == now.version {
            return Err(FollowError::Over { task: task.clone(), state });
        }
        Ok((now, live.reader(cursor)))
    }

    /// Turns queued or under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.0.tracker.len()
    }

    /// Messages that there was no room for.
    #[must_use]
    pub fn refused(&self) -> Refused {
        self.0.refused.read()
    }

    /// Takes no more turns and waits for those under way; after `grace` ends them as failed. Returns how many.
    pub async fn drain(&self, grace: Duration) -> usize {
        self.0.tracker.close();
        let mut left = 0;
        if tokio::time::timeout(grace, self.0.tracker.wait()).await.is_err() {
            left = self.0.tracker.len();
            self.0.stop.cancel();
            // What is left is one append a turn.
            let _ = tokio::time::timeout(Duration::from_secs(5), self.0.tracker.wait()).await;
        }
        if let Some(outbox) = &self.0.outbox {
            outbox.drain().await;
        }
        left
    }
}

// === impl Inner ===

impl Inner {
    async fn live(&self, owner: &Principal, task: &TaskId) -> Result<Arc<Live>, StoreError> {
        let key = TaskKey { owner: owner.clone(), task: task.clone() };
        self.hub.get(&key).await?.ok_or(StoreError::NotFound)
    }
}
