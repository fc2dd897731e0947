//! Turns: accepted, written down, executed apart from the request that brought them.
//!
//! [`Turns::send`] returns when the message is in the store and its turn is on its way. Whoever hangs up afterwards
//! changes nothing: the turn runs in the tracker, not in the request. What bounds it: the number of turns that are
//! queued or under way ([`Limits::turns`]), those of one conversation ([`Limits::lane`]), the executor's own deadline,
//! and [`Turns::drain`] at the end.
//!
//! Turns of one conversation run one after the other. A message to a task that is working waits for its turn, and the
//! task is not over before it was answered. A message to a task that asks goes to the turn that asked. A message that
//! was sent before (same caller, same id, same content) is not executed again: its sender gets the first answer. Callers
//! without a name cannot be told apart, so for them every message is new.

mod late;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, info_span, warn};

use crate::executor::{Executor, Route, Turn};
use crate::hook::{Courier, Hook, HookError, HookLimits, Hooked, Outbox};
use crate::live::{Hub, Live, Reader};
use crate::model::{ContextId, HookId, Message, Metadata, Part, Principal, TaskId, Timestamp};
use crate::order::{Order, Place};
use crate::refused::{self, Refused};
use crate::run::Run;
use crate::store::{Page, Query, Store, StoreError, TaskKey};
use crate::task::{Event, State, Task};
use crate::text::message_text;

/// Bounds of the service.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Turns queued or under way at once; one more is refused. The default is what one engine pool holds.
    pub turns: usize,
    /// Turns queued or under way in one conversation; one more is refused.
    pub lane: usize,
    /// Messages that a task's history may hold; the next one is refused.
    pub history: usize,
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

/// Why a message was not accepted. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// There is no such task, or it belongs to somebody else.
    #[error("no task {0}")]
    TaskNotFound(TaskId),
    /// The task is over.
    #[error("task {task} is {state} and takes no further messages")]
    TaskOver {
        /// Which one.
        task: TaskId,
        /// How it ended.
        state: State,
    },
    /// The task belongs to another conversation than the message says.
    #[error("task {task} belongs to another context than {context}")]
    ContextMismatch {
        /// The task.
        task: TaskId,
        /// What the message said.
        context: ContextId,
    },
    /// The task's history is full.
    #[error("task {task} holds {limit} messages, which is the most; start a new task")]
    HistoryFull {
        /// The task.
        task: TaskId,
        /// The bound.
        limit: usize,
    },
    /// The message asks for an executor that it cannot have.
    #[error("{0}")]
    NoExecutor(String),
    /// Too many turns are under way.
    #[error("{0} turns are under way, which is the most; try again later")]
    Busy(usize),
    /// Too many turns wait in the conversation.
    #[error("{0} turns of this conversation are under way, which is the most; try again later")]
    LaneFull(usize),
    /// The host is shutting down.
    #[error("the host is shutting down")]
    Draining,
    /// The hook that came with it cannot be set.
    #[error(transparent)]
    Hook(HookError),
    /// The store did not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a task was not cancelled.
#[derive(Debug, thiserror::Error)]
pub enum CancelError {
    /// It ended some other way.
    #[error("task {task} is {state} already")]
    Over {
        /// Which one.
        task: TaskId,
        /// How it ended.
        state: State,
    },
    /// The store's reason; [`StoreError::NotFound`] where there is no such task.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a task cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// It is over, and there is nothing after the place that was given.
    #[error("task {task} is {state}; there is nothing to follow")]
    Over {
        /// Which one.
        task: TaskId,
        /// How it ended.
        state: State,
    },
    /// The place is not one of this task.
    #[error("event {after} is not one of task {task}, which has {version}")]
    NoSuchEvent {
        /// Which task.
        task: TaskId,
        /// The place.
        after: u64,
        /// The task's last event.
        version: u64,
    },
    /// The store's reason; [`StoreError::NotFound`] where there is no such task.
    #[error(transparent)]
    Store(#[from] StoreError),
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
    tracker: TaskTracker,
    stop: CancellationToken,
}

/// What became of a message.
enum Written {
    /// A turn is to be run.
    Turn(Box<Run>),
    /// Somebody else has it: it was sent before, or it answers a question.
    Done(Arc<Live>),
}

/// How long a cancel waits for the turn to end: the grace of a run, and some.
const CANCEL: Duration = Duration::from_secs(10);
/// What the caller reads of a turn that a restart ended.
const RESTARTED: &str = "interrupted by a restart";

impl Default for Limits {
    fn default() -> Self {
        Self { turns: 1_000, lane: 100, history: 1_000 }
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
        Self::build(store, route, limits, None)
    }

    /// The same, with hooks that this courier serves.
    #[must_use]
    pub fn with_courier(
        store: Arc<dyn Store>,
        route: Arc<dyn Route>,
        limits: Limits,
        courier: Arc<dyn Courier>,
        hooks: HookLimits,
    ) -> Self {
        let outbox = Outbox::new(Arc::clone(&store), courier, hooks);
        Self::build(store, route, limits, Some(Arc::new(outbox)))
    }

    fn build(
        store: Arc<dyn Store>,
        route: Arc<dyn Route>,
        limits: Limits,
        outbox: Option<Arc<Outbox>>,
    ) -> Self {
        Self(Arc::new(Inner {
            hub: Hub::new(Arc::clone(&store)),
            outbox,
            order: Order::new(limits.lane),
            store,
            route,
            limits,
            room: Arc::new(Semaphore::new(limits.turns)),
            refused: refused::Counter::default(),
            tracker: TaskTracker::new(),
            stop: CancellationToken::new(),
        }))
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
        let executor =
            inner.route.pick(&incoming.principal, &incoming.message).map_err(SendError::NoExecutor)?;
        let room =
            Arc::clone(&inner.room).try_acquire_owned().map_err(|_| SendError::Busy(inner.limits.turns))?;
        // Written down and executed in one tracked task: a caller that goes away between the two leaves no task behind
        // that nobody runs.
        let (accept, accepted) = oneshot::channel();
        let life = Arc::clone(inner).live_and_end(incoming, executor, room, accept);
        inner.tracker.spawn(life);
        accepted.await.unwrap_or(Err(SendError::Draining))
    }

    /// The task that the same message was accepted into before, if it was.
    ///
    /// # Errors
    /// The store's.
    pub async fn sent_before(&self, incoming: &Incoming) -> Result<Option<TaskId>, StoreError> {
        Ok(self.0.sent_before(incoming).await?.map(|live| live.key.task.clone()))
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

    /// Cancels a task: its turn is ended, its upstream told. Cancelling twice is the same as once.
    ///
    /// # Errors
    /// [`CancelError::Over`] where it ended some other way.
    pub async fn cancel(&self, owner: &Principal, task: &TaskId) -> Result<Arc<Task>, CancelError> {
        let live = self.0.live(owner, task).await?;
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

    /// Sets a hook on a task of this caller. It is told what happens from now on; one of that id that is there goes on
    /// where it was.
    ///
    /// # Errors
    /// [`HookError`], with nothing changed.
    pub async fn set_hook(&self, owner: &Principal, task: &TaskId, hook: Hook) -> Result<(), HookError> {
        let live = self.0.live(owner, task).await?;
        self.0.admit(&hook).await?;
        let from = live.task().version;
        self.0.set_hook(&live, hook, from).await
    }

    /// The hooks of a task of this caller, in the order of their ids.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] where there is no such task.
    pub async fn hooks(&self, owner: &Principal, task: &TaskId) -> Result<Vec<Hook>, StoreError> {
        let key = TaskKey { owner: owner.clone(), task: task.clone() };
        Ok(self.0.store.hooks(&key).await?.into_iter().map(|hooked| hooked.hook).collect())
    }

    /// Removes a hook of a task of this caller; one that is not there is removed already.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] where there is no such task.
    pub async fn remove_hook(
        &self,
        owner: &Principal,
        task: &TaskId,
        hook: &HookId,
    ) -> Result<(), StoreError> {
        let key = TaskKey { owner: owner.clone(), task: task.clone() };
        self.0.store.remove_hook(&key, hook).await?;
        if let Some(outbox) = &self.0.outbox {
            outbox.leave(&key, hook);
        }
        Ok(())
    }

    /// Hooks that were given up, whoever they belong to, the newest first. For the operator.
    ///
    /// # Errors
    /// The store's.
    pub async fn given_up(&self, limit: usize) -> Result<Vec<Hooked>, StoreError> {
        self.0.store.given_up(limit).await
    }

    /// Tries a hook again that was given up, from where it was. For the operator.
    ///
    /// # Errors
    /// [`HookError`] where there is none.
    pub async fn retry_hook(&self, key: &TaskKey, hook: &HookId) -> Result<(), HookError> {
        let live = self.0.hub.get(key).await?.ok_or(StoreError::NotFound)?;
        let known = self.0.store.hooks(key).await?.into_iter().find(|known| known.hook.id == *hook);
        let known = known.ok_or_else(|| HookError::NoSuchHook(hook.clone()))?;
        self.0.set_hook(&live, known.hook, known.cursor).await
    }

    /// Fails tasks that nothing happened to for as long: a question that nobody answers, a turn that hangs. Returns how
    /// many.
    ///
    /// # Errors
    /// The store's.
    pub async fn fail_stuck(&self, after: Duration) -> Result<usize, StoreError> {
        let before = Timestamp::now().before(after);
        let mut failed = 0;
        for key in self.0.store.stuck(before).await? {
            let Some(live) = self.0.hub.get(&key).await? else { continue };
            let why = format!("nothing happened for {}", humantime::format_duration(after));
            let ended = live.append(|task| {
                let stuck = !task.status.state.is_terminal() && task.status.at < before;
                let events = stuck.then(|| Event::ended(State::Failed, vec![Part::text(why.clone())], None));
                Ok::<_, StoreError>(events.into_iter().collect())
            });
            if ended.await?.status.state == State::Failed {
                failed += 1;
                // A turn that still waits has nothing to wait for.
                live.cancel.cancel();
            }
        }
        Ok(failed)
    }

    /// Takes up what a restart interrupted, before the first message is taken: a turn that had not begun is run; one
    /// with a checkpoint is executed again from it; others end as failed. Returns how many of each. What hooks were not
    /// told yet goes out.
    ///
    /// # Errors
    /// The store's.
    pub async fn recover(&self) -> Result<(usize, usize), StoreError> {
        let (mut resumed, mut failed) = (0, 0);
        // One task that cannot be read must not keep the others down.
        let lost = |key: &TaskKey, error: &StoreError| {
            warn!(task = %key.task, %error, "a turn could not be taken up");
        };
        let mut found = Vec::new();
        for key in self.0.store.unfinished().await? {
            match self.0.hub.get(&key).await.and_then(|live| live.ok_or(StoreError::NotFound)) {
                Ok(live) => found.push(live),
                Err(error) => lost(&key, &error),
            }
        }
        // What had begun goes before what had not, or it would wait in line behind it; then by age, as ids sort.
        found.sort_by_cached_key(|live| {
            let task = live.task();
            (task.status.state == State::Submitted, task.id.to_string())
        });
        for live in found {
            let task = live.task();
            match self.0.resume(&live, &task).await {
                Ok(true) => resumed += 1,
                Ok(false) => failed += 1,
                Err(error) => lost(&live.key, &error),
            }
        }
        let Some(outbox) = &self.0.outbox else { return Ok((resumed, failed)) };
        for Hooked { key, hook, cursor, .. } in self.0.store.open_hooks().await? {
            match self.0.hub.get(&key).await {
                Ok(Some(live)) => outbox.follow(live, hook, cursor),
                Ok(None) => {}
                Err(error) => warn!(task = %key.task, %error, "a hook could not be taken up"),
            }
        }
        Ok((resumed, failed))
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

    /// Whether this hook may be set at all.
    async fn admit(&self, hook: &Hook) -> Result<(), HookError> {
        let outbox = self.outbox.as_ref().ok_or(HookError::Unsupported)?;
        outbox.courier().admits(&hook.url).await.map_err(HookError::Refused)
    }

    async fn set_hook(&self, live: &Arc<Live>, hook: Hook, from: u64) -> Result<(), HookError> {
        let outbox = self.outbox.as_ref().ok_or(HookError::Unsupported)?;
        // Nobody else sets one meanwhile, so the bound holds.
        let _held = live.hold().await;
        let cursor = self.place_for(outbox, live, &hook).await?.unwrap_or(from);
        self.store.set_hook(&live.key, &hook, cursor).await?;
        outbox.follow(Arc::clone(live), hook, cursor);
        Ok(())
    }

    /// The cursor of a hook of that id, if there is one; refused where there is no room for another.
    async fn place_for(&self, outbox: &Outbox, live: &Live, hook: &Hook) -> Result<Option<u64>, HookError> {
        let known = self.store.hooks(&live.key).await?;
        let before = known.iter().find(|known| known.hook.id == hook.id);
        if before.is_none() && known.len() >= outbox.most() {
            return Err(HookError::TooMany(outbox.most()));
        }
        Ok(before.map(|before| before.cursor))
    }

    /// Sets the hook that came with a message. Where that fails, the turn does not run.
    async fn hook(&self, live: &Arc<Live>, hook: Option<Hook>, from: u64) -> Result<(), SendError> {
        let Some(hook) = hook else { return Ok(()) };
        let Err(error) = self.set_hook(live, hook, from).await else { return Ok(()) };
        let why = vec![Part::text(format!("the push notification configuration was not stored: {error}"))];
        let failed = Event::ended(State::Failed, why, None);
        live.append(|_| Ok::<_, StoreError>(vec![failed.clone()])).await?;
        Err(SendError::Hook(error))
    }

    /// The whole life of a turn.
    async fn live_and_end(
        self: Arc<Self>,
        incoming: Incoming,
        executor: Arc<dyn Executor>,
        room: OwnedSemaphorePermit,
        accept: oneshot::Sender<Result<Accepted, SendError>>,
    ) {
        // A sender that hung up hears nothing; the turn goes on.
        match self.write_down(incoming, executor).await {
            Ok(Written::Turn(run)) => {
                let _ = accept.send(Ok(Accepted { task: run.live.task(), live: Arc::clone(&run.live) }));
                let span = span(&run);
                run.finish().instrument(span).await;
                drop(room);
            }
            Ok(Written::Done(live)) => {
                drop(room);
                let _ = accept.send(Ok(Accepted { task: live.task(), live }));
            }
            Err(error) => {
                drop(room);
                let _ = accept.send(Err(error));
            }
        }
    }

    /// Puts the message into its task, new or known.
    async fn write_down(
        &self,
        mut incoming: Incoming,
        executor: Arc<dyn Executor>,
    ) -> Result<Written, SendError> {
        if let Some(live) = self.sent_before(&incoming).await? {
            return Ok(Written::Done(live));
        }
        let hook = incoming.hook.take();
        let Some(id) = incoming.task.clone() else {
            let context = incoming.context.clone().unwrap_or_else(ContextId::fresh);
            let place = self.line_up(&incoming.principal, &context)?;
            let key = TaskKey { owner: incoming.principal.clone(), task: TaskId::fresh() };
            let live = self.hub.create(key, &context, vec![accepted(&incoming, &executor)]).await?;
            self.hook(&live, hook, live.task().version).await?;
            return Ok(self.run(live, executor, incoming, Vec::new(), place));
        };
        let key = TaskKey { owner: incoming.principal.clone(), task: id.clone() };
        let live = self.hub.get(&key).await?.ok_or_else(|| SendError::TaskNotFound(id.clone()))?;
        // Somebody was promised to be told, whoever waits in this request.
        incoming.async_delivery |= self.is_told(&key).await?;
        let context = live.task().context.clone();
        if let Some(other) = incoming.context.as_ref().filter(|other| **other != context) {
            return Err(SendError::ContextMismatch { task: id, context: other.clone() });
        }
        if let (Some(hook), Some(outbox)) = (&hook, &self.outbox) {
            self.place_for(outbox, &live, hook).await.map_err(SendError::Hook)?;
        }
        // Decided where nobody else can write: of two answers the first answers, the second is a turn of its own.
        let (mut place, mut asking, mut history) = (None, None, Vec::new());
        let written = live.append(|task| {
            self.may_take(task)?;
            let interrupted = task.status.state.is_interrupted();
            // Its turn asked and waits, here or since before a restart.
            asking = live.asking();
            if interrupted && !task.pending.is_empty() && (asking.is_some() || !live.is_under_way()) {
                place = None;
                return Ok(vec![Event::moved(State::Working), Event::Answered(incoming.message.clone())]);
            }
            place = Some(self.line_up(&incoming.principal, &context)?);
            history.clone_from(&task.history);
            let mut events = vec![accepted(&incoming, &executor)];
            if interrupted {
                history.extend(task.status.message.clone());
                events.insert(0, Event::moved(State::Working));
            }
            Ok::<_, SendError>(events)
        });
        let task = written.await?;
        self.hook(&live, hook, task.version).await?;
        if let Some(place) = place {
            return Ok(self.run(live, executor, incoming, history, place));
        }
        match asking {
            // A turn that ended meanwhile has said so in its task.
            Some(to) => drop(to.send(incoming.message).await),
            None => drop(self.resume(&live, &task).await?),
        }
        Ok(Written::Done(live))
    }

    /// Whether a hook is told what happens to a task.
    async fn is_told(&self, key: &TaskKey) -> Result<bool, StoreError> {
        let hooks = if self.outbox.is_some() { self.store.hooks(key).await? } else { Vec::new() };
        Ok(hooks.iter().any(|hooked| hooked.given_up.is_none()))
    }

    fn line_up(&self, owner: &Principal, context: &ContextId) -> Result<Place, SendError> {
        self.order.line_up(owner, context).map_err(|_| SendError::LaneFull(self.limits.lane))
    }

    fn may_take(&self, task: &Task) -> Result<(), SendError> {
        let state = task.status.state;
        if state.is_terminal() {
            return Err(SendError::TaskOver { task: task.id.clone(), state });
        }
        if task.history.len() >= self.limits.history {
            return Err(SendError::HistoryFull { task: task.id.clone(), limit: self.limits.history });
        }
        Ok(())
    }

    /// The task that the same message was accepted into before.
    async fn sent_before(&self, incoming: &Incoming) -> Result<Option<Arc<Live>>, StoreError> {
        if incoming.principal.name().is_none() {
            return Ok(None);
        }
        let Some(task) = self.store.accepted(&incoming.principal, &incoming.message.id).await? else {
            return Ok(None);
        };
        let key = TaskKey { owner: incoming.principal.clone(), task };
        let Some(live) = self.hub.get(&key).await? else { return Ok(None) };
        let task = live.task();
        let same_place = incoming.task.as_ref().is_none_or(|id| *id == task.id)
            && incoming.context.as_ref().is_none_or(|context| *context == task.context);
        let same = same_place && task.history.contains(&incoming.message);
        Ok(same.then_some(live))
    }

    fn run(
        &self,
        live: Arc<Live>,
        executor: Arc<dyn Executor>,
        incoming: Incoming,
        history: Vec<Message>,
        place: Place,
    ) -> Written {
        let task = live.task();
        let turn = Turn {
            task: task.id.clone(),
            context: task.context.clone(),
            text: message_text(&incoming.message.parts),
            message: incoming.message,
            history,
            principal: incoming.principal,
            streaming: incoming.streaming,
            async_delivery: incoming.async_delivery,
            metadata: incoming.metadata,
            checkpoint: None,
        };
        Written::Turn(Box::new(self.place(live, executor, turn, place)))
    }

    fn place(&self, live: Arc<Live>, executor: Arc<dyn Executor>, turn: Turn, place: Place) -> Run {
        Run {
            under_way: live.begin(),
            live,
            executor,
            store: Arc::clone(&self.store),
            turn,
            place,
            stop: self.stop.clone(),
        }
    }

    /// Takes up the turns that a restart interrupted, of a task as it was then. False where it had to be failed.
    async fn resume(&self, live: &Arc<Live>, task: &Task) -> Result<bool, StoreError> {
        let Some(first) = task.pending.front() else { return Ok(true) };
        let begun = task.status.state != State::Submitted;
        let executor = self.route.named(&first.executor);
        let resumable = !begun || task.checkpoint.is_some();
        if !resumable || executor.is_none() {
            let failed = Event::ended(State::Failed, vec![Part::text(RESTARTED)], None);
            live.append(|_| Ok::<_, StoreError>(vec![failed.clone()])).await?;
            return Ok(false);
        }
        if task.status.state.is_interrupted() {
            // It asked; the answer takes it up.
            return Ok(true);
        }
        for (nth, pending) in task.pending.iter().enumerate() {
            let (Some(executor), Some(message)) =
                (self.route.named(&pending.executor), task.history.get(pending.message))
            else {
                continue;
            };
            let Ok(place) = self.order.line_up(&live.key.owner, &task.context) else {
                warn!(task = %task.id, "a queued turn did not fit after a restart");
                continue;
            };
            let turn = Turn {
                task: task.id.clone(),
                context: task.context.clone(),
                text: message_text(&message.parts),
                message: message.clone(),
                history: task.history.iter().take(pending.message).cloned().collect(),
                principal: live.key.owner.clone(),
                streaming: true,
                // No request waits for it any more: whoever wants the answer reads the task.
                async_delivery: true,
                metadata: pending.metadata.clone(),
                checkpoint: task.checkpoint.clone().filter(|_| nth == 0).map(|checkpoint| checkpoint.0),
            };
            let run = self.place(Arc::clone(live), executor, turn, place);
            let span = span(&run);
            self.tracker.spawn(run.finish().instrument(span));
        }
        Ok(true)
    }
}

fn accepted(incoming: &Incoming, executor: &Arc<dyn Executor>) -> Event {
    Event::Accepted {
        message: incoming.message.clone(),
        executor: executor.name().into(),
        metadata: incoming.metadata.clone(),
    }
}

fn span(run: &Run) -> tracing::Span {
    let (turn, executor) = (&run.turn, run.executor.name());
    info_span!("turn.run", task = %turn.task, context = %turn.context, executor)
}
