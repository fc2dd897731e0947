//! The service: it accepts messages, stores them, and runs their turns apart from the requests that brought them.
//!
//! [`Turns::send`] returns when the message is in the store and its turn is scheduled. If the client disconnects after
//! that, the turn carries on: it runs in a tracked task, not in the request. Bounds: the turns that wait or run
//! ([`Limits::turns`]), those of one context ([`Limits::lane`]), the share of each caller ([`Shares`]), the memory that all
//! take ([`TurnsBuilder::budget`]), the executor's own deadline, and [`Turns::drain`] at the end.
//!
//! The turns of one context run one after the other. A message to a task that is working waits for its turn, and the task
//! does not end before that message is answered. A message to a task that asks goes to the turn that asked. A message that
//! was sent before (same caller, id and content, to the same context and task) is not executed again: its sender gets the
//! task of the first. Callers without a name cannot be told apart, so each of their messages is new, unless the host made
//! its id ([`keys::HOST_MESSAGE`](crate::keys::HOST_MESSAGE)).
//!
//! A task whose turn has completed stays open while it is held, see [`Hold`].

mod accept;
mod error;
mod late;
mod moving;
mod push;
mod recovery;
mod run;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use talaria_budget::Budget;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::task::TaskTracker;

use crate::executor::Route;
use crate::hold::Hold;
use crate::hops;
use crate::lanes::Lanes;
use crate::live_task::{LiveTask, LiveTasks, Reader};
use crate::model::{ContextId, Message, Metadata, Principal, TaskId};
use crate::observer::TurnObserver;
use crate::push::{PushConfig, PushDispatcher, PushLimits, PushQueue, PushSender};
use crate::rejections::{self, Refused};
use crate::shares::{Callers, Shares, TurnShare};
use crate::store::{Page, Query, Store, StoreError, TaskKey};
use crate::task::{Event, State, Task};
use crate::trace::{TraceContext, TraceSampler};

pub use error::{CancelError, FollowError, SendError};

/// The bounds of the service.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The turns that may wait or run at once; one more is rejected. The default is what one pool of the engine holds.
    pub turns: usize,
    /// The turns of one context that may wait or run at once; one more is rejected.
    pub lane: usize,
    /// The messages that the history of a task may hold; the next one is rejected.
    pub history: usize,
    /// The bytes that a task may take before its next message, which is rejected if it would take more. A task is read as a
    /// whole. The default holds two of the largest messages.
    pub task_bytes: usize,
    /// Whether turns of callers without a name may read the earlier messages of a context whose id a caller chose. Such
    /// callers share one owner, so on a host that strangers can reach, anybody who guesses such an id could read along.
    pub trusts_chosen_contexts: bool,
    /// Whether strangers can reach the host. Callers without a name share one owner, so anybody who guesses the id of a
    /// task could read it; such callers then get ids that cannot be guessed.
    pub strangers_call: bool,
    /// Whether callers without a name may answer a question that asks for an approval.
    pub anyone_may_approve: bool,
    /// The hosts that a message may have passed through; one that passed through more is rejected.
    pub hops: u32,
}

/// A message to accept.
#[derive(Debug, Clone)]
pub struct Incoming {
    /// The sender.
    pub principal: Principal,
    /// The message.
    pub message: Arc<Message>,
    /// The task that the message continues.
    pub task: Option<TaskId>,
    /// The context that the message belongs to. Without one it is taken from the task, or made.
    pub context: Option<ContextId>,
    /// Whether a client reads the events while the turn runs.
    pub streaming: bool,
    /// Whether a late result can still reach the caller: its request does not wait for the answer, or it brings a push
    /// configuration. Push configurations that the task already has count without this.
    pub async_delivery: bool,
    /// The request's metadata.
    pub metadata: Option<Arc<Metadata>>,
    /// Where the caller wants push notifications about the task.
    pub push: Option<PushConfig>,
    /// The place of its request in a trace, if traces are on.
    pub trace: Option<TraceContext>,
}

/// A message that was accepted.
pub struct Accepted {
    /// The task, as it was when the message was accepted.
    pub task: Arc<Task>,
    live: Arc<LiveTask>,
}

/// The service. Cheap to clone.
#[derive(Clone)]
pub struct Turns(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    route: Arc<dyn Route>,
    tasks: LiveTasks,
    dispatcher: Option<Arc<PushDispatcher>>,
    lanes: Lanes,
    limits: Limits,
    budget: Budget,
    room: Arc<Semaphore>,
    callers: Arc<Callers>,
    rejections: rejections::Counter,
    observers: Arc<[Arc<dyn TurnObserver>]>,
    hold: Option<Arc<dyn Hold>>,
    sampler: Option<Arc<dyn TraceSampler>>,
    tracker: TaskTracker,
    /// Where turns go on that compute for long, if they do not begin there.
    shared_runtime: Option<Handle>,
}

/// The room that a turn takes until it ends.
struct Room {
    _turn: OwnedSemaphorePermit,
    _share: TurnShare,
}

/// Builds a [`Turns`] service.
pub struct TurnsBuilder {
    store: Arc<dyn Store>,
    route: Arc<dyn Route>,
    limits: Limits,
    budget: Budget,
    shares: Shares,
    push: Option<(Arc<dyn PushSender>, PushLimits)>,
    observers: Vec<Arc<dyn TurnObserver>>,
    hold: Option<Arc<dyn Hold>>,
    sampler: Option<Arc<dyn TraceSampler>>,
    shared_runtime: Option<Handle>,
}

/// How long a cancel waits for the turn to end: longer than the grace period of a cancelled turn.
const CANCEL: Duration = Duration::from_secs(10);

impl Default for Limits {
    fn default() -> Self {
        Self {
            turns: 1_000,
            lane: 100,
            history: 1_000,
            task_bytes: 32 << 20,
            trusts_chosen_contexts: true,
            strangers_call: false,
            anyone_may_approve: true,
            hops: 8,
        }
    }
}

// === impl TurnsBuilder ===

impl TurnsBuilder {
    /// Sends push notifications through this sender.
    #[must_use]
    pub fn push_sender(mut self, sender: Arc<dyn PushSender>, limits: PushLimits) -> Self {
        self.push = Some((sender, limits));
        self
    }

    /// Gives callers these shares. Without this, callers have no limits of their own.
    #[must_use]
    pub fn shares(mut self, shares: Shares) -> Self {
        self.shares = shares;
        self
    }

    /// Reports the begin and the end of every turn to this observer.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn TurnObserver>) -> Self {
        self.observers.push(observer);
        self
    }

    /// Lets this decide which tasks stay open after their turn.
    #[must_use]
    pub fn hold(self, hold: Arc<dyn Hold>) -> Self {
        Self { hold: Some(hold), ..self }
    }

    /// Traces turns, as this decides; also those of messages that came without a request. Without it no turn is traced.
    #[must_use]
    pub fn traced(self, sampler: Arc<dyn TraceSampler>) -> Self {
        Self { sampler: Some(sampler), ..self }
    }

    /// Charges what turns and live tasks take to this budget. Without it there is no bound.
    #[must_use]
    pub fn budget(self, budget: Budget) -> Self {
        Self { budget, ..self }
    }

    /// Moves turns that compute for long from threads with a runtime of their own to this one, where push notifications are
    /// sent too. Without it they stay.
    #[must_use]
    pub fn shared_runtime(self, runtime: Handle) -> Self {
        Self { shared_runtime: Some(runtime), ..self }
    }

    /// Builds the service.
    #[must_use]
    pub fn build(self) -> Turns {
        let Self { store, route, limits, budget, shares, push, observers, hold, sampler, shared_runtime } =
            self;
        let deliveries = push.as_ref().map_or(1, |(_, limits)| limits.at_once);
        let callers = Arc::new(Callers::new(&shares, deliveries, &budget));
        let dispatcher = push.map(|(sender, limits)| {
            let runtime = shared_runtime.clone();
            Arc::new(PushDispatcher::new(Arc::clone(&store), sender, limits, Arc::clone(&callers), runtime))
        });
        Turns(Arc::new(Inner {
            tasks: LiveTasks::new(Arc::clone(&store), Arc::clone(&callers)),
            dispatcher,
            callers,
            lanes: Lanes::new(limits.lane),
            store,
            route,
            limits,
            budget,
            room: Arc::new(Semaphore::new(limits.turns)),
            rejections: rejections::Counter::default(),
            observers: observers.into(),
            hold,
            sampler,
            tracker: TaskTracker::new(),
            shared_runtime,
        }))
    }
}

// === impl Accepted ===

impl Accepted {
    /// Waits until the task is terminal or interrupted, and returns it.
    pub async fn settled(self) -> Arc<Task> {
        let Self { task, live } = self;
        // Not held while this waits: an append would have to copy it.
        drop(task);
        live.until(State::is_settled).await
    }

    /// Returns a reader of the events after [`Accepted::task`].
    #[must_use]
    pub fn reader(&self) -> Reader {
        self.live.reader(self.task.version)
    }
}

// === impl Turns ===

impl Turns {
    /// A service without push notifications and observers.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, route: Arc<dyn Route>, limits: Limits) -> Self {
        Self::builder(store, route, limits).build()
    }

    /// Begins to build a service with push notifications or observers.
    #[must_use]
    pub fn builder(store: Arc<dyn Store>, route: Arc<dyn Route>, limits: Limits) -> TurnsBuilder {
        TurnsBuilder {
            store,
            route,
            limits,
            budget: Budget::unlimited(),
            shares: Shares::default(),
            push: None,
            observers: Vec::new(),
            hold: None,
            sampler: None,
            shared_runtime: None,
        }
    }

    /// Accepts a message: when this returns, the message is in the store and its turn is scheduled.
    ///
    /// # Errors
    /// [`SendError`], with nothing changed.
    pub async fn send(&self, incoming: Incoming) -> Result<Accepted, SendError> {
        self.accept(incoming).await.inspect_err(|error| self.0.rejections.note(error))
    }

    async fn accept(&self, incoming: Incoming) -> Result<Accepted, SendError> {
        let inner = &self.0;
        if inner.tracker.is_closed() {
            return Err(SendError::Draining);
        }
        hops::check(&incoming.message, inner.limits.hops)?;
        let share = inner.take_share(&incoming).await?;
        let room = Arc::clone(&inner.room).try_acquire_owned();
        let room = room.map_err(|_| SendError::Busy(inner.limits.turns))?;
        let room = Room { _turn: room, _share: share };
        if let Some(config) = &incoming.push {
            inner.admit(&incoming.principal, config).await.map_err(SendError::Push)?;
        }
        // One tracked task stores and executes the message. If the client disconnects between the two, the turn still
        // runs.
        let (accept, accepted) = oneshot::channel();
        inner.spawn(Arc::clone(inner).accept_and_run(incoming, room, accept));
        accepted.await.unwrap_or(Err(SendError::Draining))
    }

    /// Returns the task that accepted the same message before, if one did.
    ///
    /// # Errors
    /// The store's error.
    pub async fn sent_before(&self, incoming: &Incoming) -> Result<Option<TaskId>, StoreError> {
        self.0.sent_before(incoming).await
    }

    /// Returns a task of this caller.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if there is no such task, or if it belongs to another caller.
    pub async fn task(&self, owner: &Principal, task: &TaskId) -> Result<Arc<Task>, StoreError> {
        Ok(self.0.live(owner, task).await?.task())
    }

    /// Lists tasks of this caller.
    ///
    /// # Errors
    /// The store's error.
    pub async fn list(&self, owner: &Principal, query: &Query) -> Result<Page, StoreError> {
        self.0.store.list(owner, query).await
    }

    /// Cancels a task: stops its turn and the upstream's work.
    ///
    /// # Errors
    /// [`CancelError::Over`] if the task has already ended, by a cancel or otherwise.
    pub async fn cancel(&self, owner: &Principal, task: &TaskId) -> Result<Arc<Task>, CancelError> {
        let live = self.0.live(owner, task).await?;
        let before = live.task().status.state;
        if before.is_terminal() {
            return Err(CancelError::Over { task: task.clone(), state: before });
        }
        if live.has_turns() {
            live.cancel.cancel();
            let _ = tokio::time::timeout(CANCEL, live.until(State::is_terminal)).await;
        }
        let mut waiting = None;
        let ended = live
            .append_if(|task| {
                waiting = (!task.status.state.is_terminal()).then(|| self.0.waiting(&live, task)).flatten();
                Ok::<_, StoreError>(match task.status.state.is_terminal() {
                    true => vec![],
                    false => vec![Event::ended(State::Canceled, vec![], None)],
                })
            })
            .await?;
        if let Some(waiting) = waiting {
            waiting.stop().await;
        }
        self.0.hold_is_over(&live.key);
        match ended.status.state {
            State::Canceled => Ok(ended),
            state => Err(CancelError::Over { task: task.clone(), state }),
        }
    }

    /// Completes a task that nobody holds any more, with the answer that it has. Other tasks stay as they are. Returns whether
    /// the task was completed.
    ///
    /// # Errors
    /// The store's error.
    pub async fn release(&self, key: &TaskKey) -> Result<bool, StoreError> {
        let live = self.0.tasks.get(key).await?.ok_or(StoreError::NotFound)?;
        let mut is_released = false;
        let released = live.append_if(|task| {
            is_released = task.is_held() && !self.0.is_held(key);
            Ok::<_, StoreError>(if is_released { task.released() } else { Vec::new() })
        });
        released.await?;
        Ok(is_released)
    }

    /// Follows a task: returns it as it is now, and a reader of the events to come. With `after`, the last event that the
    /// caller has, the reader begins with the event after that.
    ///
    /// # Errors
    /// [`FollowError`] if there is nothing to follow.
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

    /// Returns the budget that turns and live tasks are charged to.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.0.budget
    }

    /// Returns the budgets of the callers that have limits of their own, by name, and the one of all others together; none if
    /// they may take everything. What they take outside of turns and tasks is to be charged to these too.
    #[must_use]
    pub fn budgets_of_callers(&self) -> (HashMap<Principal, Option<Budget>>, Option<Budget>) {
        self.0.callers.budgets()
    }

    /// Returns what was refused since the start because a caller took all of its memory, requests included.
    #[must_use]
    pub fn callers_memory_refused(&self) -> u64 {
        self.0.callers.memory_refused()
    }

    /// Returns the number of turns that wait or run.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.0.tracker.len()
    }

    /// Returns what push notifications there are to deliver.
    #[must_use]
    pub fn push_queue(&self) -> PushQueue {
        self.0.dispatcher.as_ref().map(|dispatcher| dispatcher.queue()).unwrap_or_default()
    }

    /// Returns the number of messages that were rejected for lack of room.
    #[must_use]
    pub fn refused(&self) -> Refused {
        self.0.rejections.read()
    }

    /// Returns when a caller has more in the store than its share, which [`Store::forget`] can change. One task may wait.
    pub async fn wait_for_excess(&self) {
        self.0.callers.wait_for_excess().await;
    }

    /// Takes no more turns and waits for the running ones; fails those that have not ended after `grace`. Returns how
    /// many it failed.
    pub async fn drain(&self, grace: Duration) -> usize {
        self.0.tracker.close();
        let mut left = 0;
        if tokio::time::timeout(grace, self.0.tracker.wait()).await.is_err() {
            left = self.0.tracker.len();
            self.0.tasks.stop();
            // Each turn that is left makes one more append.
            let _ = tokio::time::timeout(Duration::from_secs(5), self.0.tracker.wait()).await;
        }
        if let Some(dispatcher) = &self.0.dispatcher {
            dispatcher.drain().await;
        }
        left
    }
}

// === impl Inner ===

impl Inner {
    /// Takes a place for a turn of this caller, if its share has room.
    async fn take_share(&self, incoming: &Incoming) -> Result<TurnShare, SendError> {
        let owner = &incoming.principal;
        let caller = self.callers.of(owner);
        let limits = caller.limits();
        let is_asked_for = incoming.task.as_ref().is_some_and(|task| self.tasks.is_asking(owner, task));
        let share = caller.begin_turn(is_asked_for)?;
        // An answer lets a turn end, so it is taken although it adds to what the caller has.
        if !is_asked_for && (limits.tasks.is_some() || limits.bytes.is_some()) {
            self.callers.check_kept(limits, self.store.kept(owner).await?)?;
        }
        Ok(share)
    }

    /// Spawns a turn, which the drain waits for.
    fn spawn(&self, turn: impl Future<Output = ()> + Send + 'static) {
        moving::spawn(turn, &self.tracker, self.shared_runtime.as_ref());
    }

    /// Whether a task stays open although its turn has completed.
    fn is_held(&self, key: &TaskKey) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.is_held(key))
    }

    /// Tells the holder of a task that the task was cancelled or failed.
    fn hold_is_over(&self, key: &TaskKey) {
        if let Some(hold) = &self.hold {
            hold.is_over(key);
        }
    }

    async fn live(&self, owner: &Principal, task: &TaskId) -> Result<Arc<LiveTask>, StoreError> {
        let key = TaskKey { owner: owner.clone(), task: task.clone() };
        self.tasks.get(&key).await?.ok_or(StoreError::NotFound)
    }
}
