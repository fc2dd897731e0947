//! Turns: accepted, written down, executed apart from the request that brought them.
//!
//! [`Turns::send`] returns when the task is in the store and its turn is on its way. Whoever hangs up afterwards
//! changes nothing: the turn runs in the tracker, not in the request. What bounds it: the number of turns under way
//! ([`Limits::turns`]), the executor's own deadline, and [`Turns::drain`] at the end. A turn that panics, or whose
//! store fails, still ends: as FAILED, with a reason.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, info_span, warn};

use crate::executor::{
    Emitted, Executor, Failure, FailureKind, FinalState, Outcome, Route, Scope, ToolState, Turn,
};
use crate::model::{Artifact, ContextId, Message, Metadata, Part, Principal, TaskId};
use crate::store::{Store, StoreError, TaskKey};
use crate::task::{Event, REPLY, State, Task};
use crate::text::message_text;

/// Bounds of the service.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Turns under way at once; one more is refused. The default is what one engine pool holds.
    pub turns: usize,
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
    /// The request's metadata.
    pub metadata: Option<Metadata>,
}

/// A turn that is on its way.
#[derive(Debug)]
pub struct Accepted {
    /// The task, as it was when the turn was accepted.
    pub task: Arc<Task>,
    key: TaskKey,
    settled: watch::Receiver<bool>,
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
    /// A turn of the task is under way.
    #[error("task {0} is working; send again when it asks or has ended")]
    TaskBusy(TaskId),
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
    /// The host is shutting down.
    #[error("the host is shutting down")]
    Draining,
    /// The store did not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The service. Cheap to clone.
#[derive(Clone)]
pub struct Turns(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    route: Arc<dyn Route>,
    limits: Limits,
    room: Arc<Semaphore>,
    tracker: TaskTracker,
    stop: CancellationToken,
}

/// Events that may wait between an executor and the log before the executor does.
const EVENTS_IN_FLIGHT: usize = 16;

/// What the operator reads when a turn dies with the host.
const STOPPED: &str = "interrupted by a shutdown";

impl Default for Limits {
    fn default() -> Self {
        Self { turns: 1_000, history: 1_000 }
    }
}

// === impl Accepted ===

impl Accepted {
    /// Waits until the task is terminal or asks for something, and returns it as it is then.
    ///
    /// # Errors
    /// The store's.
    pub async fn settled(mut self, turns: &Turns) -> Result<Arc<Task>, StoreError> {
        // An error means that the turn is gone, and its last word is in the store.
        let _ = self.settled.wait_for(|settled| *settled).await;
        turns.0.store.task(&self.key).await?.ok_or(StoreError::NotFound)
    }
}

// === impl Turns ===

impl Turns {
    /// A service on a store and a way to choose executors.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, route: Arc<dyn Route>, limits: Limits) -> Self {
        Self(Arc::new(Inner {
            store,
            route,
            limits,
            room: Arc::new(Semaphore::new(limits.turns)),
            tracker: TaskTracker::new(),
            stop: CancellationToken::new(),
        }))
    }

    /// Accepts a message: when this returns, its task is in the store and its turn is on its way.
    ///
    /// # Errors
    /// [`SendError`], with nothing changed.
    pub async fn send(&self, incoming: Incoming) -> Result<Accepted, SendError> {
        let inner = &self.0;
        if inner.stop.is_cancelled() || inner.tracker.is_closed() {
            return Err(SendError::Draining);
        }
        let executor =
            inner.route.pick(&incoming.principal, &incoming.message).map_err(SendError::NoExecutor)?;
        let room =
            Arc::clone(&inner.room).try_acquire_owned().map_err(|_| SendError::Busy(inner.limits.turns))?;
        // Written down and executed in one tracked task: a caller that goes away between the two leaves no task behind
        // that nobody runs.
        let (accept, accepted) = oneshot::channel();
        let turn = accept_and_run(Arc::clone(inner), incoming, executor, room, accept);
        inner.tracker.spawn(turn);
        accepted.await.unwrap_or(Err(SendError::Draining))
    }

    /// A task of this caller.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] where there is none, or where it belongs to somebody else.
    pub async fn task(&self, owner: &Principal, task: &TaskId) -> Result<Arc<Task>, StoreError> {
        let key = TaskKey { owner: owner.clone(), task: task.clone() };
        self.0.store.task(&key).await?.ok_or(StoreError::NotFound)
    }

    /// Turns under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.0.tracker.len()
    }

    /// Takes no more turns and waits for those under way; after `grace` ends them as failed. Returns how many.
    pub async fn drain(&self, grace: Duration) -> usize {
        self.0.tracker.close();
        if tokio::time::timeout(grace, self.0.tracker.wait()).await.is_ok() {
            return 0;
        }
        let left = self.0.tracker.len();
        self.0.stop.cancel();
        // What is left is one append a turn.
        let _ = tokio::time::timeout(Duration::from_secs(5), self.0.tracker.wait()).await;
        left
    }
}

// === impl Inner ===

impl Inner {
    /// Puts the message into its task, new or known. Returns the messages before it, too.
    async fn write_down(&self, incoming: &Incoming) -> Result<(TaskKey, Arc<Task>, Vec<Message>), SendError> {
        let owner = incoming.principal.clone();
        let message = Event::Message(incoming.message.clone());
        let Some(id) = incoming.task.clone() else {
            let key = TaskKey { owner, task: TaskId::fresh() };
            let context = incoming.context.clone().unwrap_or_else(ContextId::fresh);
            let task = self.store.create(&key, &context, vec![message]).await?;
            return Ok((key, task, Vec::new()));
        };
        let key = TaskKey { owner, task: id.clone() };
        let Some(task) = self.store.task(&key).await? else {
            return Err(SendError::TaskNotFound(id));
        };
        if let Some(context) = incoming.context.as_ref().filter(|context| **context != task.context) {
            return Err(SendError::ContextMismatch { task: id, context: context.clone() });
        }
        let state = task.status.state;
        if state.is_terminal() {
            return Err(SendError::TaskOver { task: id, state });
        }
        if !state.is_interrupted() {
            return Err(SendError::TaskBusy(id));
        }
        if task.history.len() >= self.limits.history {
            return Err(SendError::HistoryFull { task: id, limit: self.limits.history });
        }
        let mut history = task.history.clone();
        history.extend(task.status.message.clone());
        // Leaving the interrupted state in the same append is what keeps a second sender out.
        let events = vec![Event::moved(State::Working), message];
        match self.store.append(&key, task.version, events).await {
            Ok(task) => Ok((key, task, history)),
            Err(StoreError::Conflict { .. }) => Err(SendError::TaskBusy(id)),
            Err(error) => Err(error.into()),
        }
    }
}

/// The whole life of a turn.
async fn accept_and_run(
    inner: Arc<Inner>,
    incoming: Incoming,
    executor: Arc<dyn Executor>,
    room: OwnedSemaphorePermit,
    accept: oneshot::Sender<Result<Accepted, SendError>>,
) {
    let (key, task, history) = match inner.write_down(&incoming).await {
        Ok(written) => written,
        Err(error) => {
            drop(room);
            // Nobody waits for the answer any more, or everybody who does has it.
            let _ = accept.send(Err(error));
            return;
        }
    };
    let (settle, settled) = watch::channel(false);
    let turn = Turn {
        task: task.id.clone(),
        context: task.context.clone(),
        text: message_text(&incoming.message.parts),
        message: incoming.message,
        history,
        principal: incoming.principal,
        streaming: incoming.streaming,
        async_delivery: false,
        metadata: incoming.metadata,
    };
    let span = info_span!("turn.run", task = %task.id, context = %task.context, executor = executor.name());
    let run = Run { inner, key: key.clone(), version: task.version, reply: Reply::None };
    let _ = accept.send(Ok(Accepted { task, key, settled }));
    run.finish(executor, turn, settle, room).instrument(span).await;
}

/// One turn under way: the only writer of its task.
struct Run {
    inner: Arc<Inner>,
    key: TaskKey,
    version: u64,
    reply: Reply,
}

/// What of the answer was said in deltas.
enum Reply {
    None,
    Said(String),
}

// === impl Run ===

impl Run {
    async fn finish(
        mut self,
        executor: Arc<dyn Executor>,
        turn: Turn,
        settle: watch::Sender<bool>,
        room: OwnedSemaphorePermit,
    ) {
        let stop = self.inner.stop.clone();
        let result = tokio::select! {
            biased;
            () = stop.cancelled() => Err(Failure::new(FailureKind::Cancelled, STOPPED)),
            result = AssertUnwindSafe(self.execute(executor, turn)).catch_unwind() => result.unwrap_or_else(|_| {
                Err(Failure::new(FailureKind::Internal, "the executor panicked; the log has the details"))
            }),
        };
        if let Err(failure) = &result {
            warn!(kind = ?failure.kind, retryable = failure.retryable, "turn failed");
        }
        let last_words = match result {
            Ok(outcome) => self.outcome(outcome),
            Err(failure) => vec![Event::said(State::Failed, vec![Part::text(failure.message)])],
        };
        if let Err(error) = self.append(last_words).await {
            warn!(%error, "the end of a turn was not written down");
            let why =
                Event::said(State::Failed, vec![Part::text(format!("the answer was not stored: {error}"))]);
            let _ = self.append(vec![why]).await;
        }
        // Room first: who hears of the end may send the next message at once.
        drop(room);
        settle.send_replace(true);
    }

    async fn execute(&mut self, executor: Arc<dyn Executor>, turn: Turn) -> Result<Outcome, Failure> {
        self.append(vec![Event::moved(State::Working)]).await.map_err(unstored)?;
        let (scope, mut said) = Scope::new(
            EVENTS_IN_FLIGHT,
            Arc::clone(&self.inner.store),
            turn.principal.clone(),
            turn.context.clone(),
            executor.name(),
        );
        let mut execution = std::pin::pin!(executor.execute(turn, scope));
        loop {
            tokio::select! {
                biased;
                Some(emitted) = said.recv() => self.say(emitted, &mut said).await?,
                result = &mut execution => {
                    while let Ok(emitted) = said.try_recv() {
                        self.say(emitted, &mut said).await?;
                    }
                    return result;
                }
            }
        }
    }

    /// Writes down what the turn says, with whatever else it has said meanwhile.
    async fn say(&mut self, first: Emitted, more: &mut mpsc::Receiver<Emitted>) -> Result<(), Failure> {
        let mut events = vec![self.event(first)];
        while let Ok(emitted) = more.try_recv() {
            events.push(self.event(emitted));
        }
        self.append(events).await.map_err(unstored)
    }

    fn event(&mut self, emitted: Emitted) -> Event {
        match emitted {
            Emitted::TextDelta(text) => {
                let append = matches!(self.reply, Reply::Said(_));
                match &mut self.reply {
                    Reply::Said(said) => said.push_str(&text),
                    Reply::None => self.reply = Reply::Said(text.clone()),
                }
                Event::Artifact { artifact: reply(vec![Part::text(text)]), append, last: false }
            }
            Emitted::Artifact { artifact, append, last } => Event::Artifact { artifact, append, last },
            Emitted::Status(text) => Event::said(State::Working, vec![Part::text(text)]),
            Emitted::Tool(tool) => Event::Note {
                name: "tool-progress".into(),
                value: serde_json::json!({
                    "id": tool.id,
                    "name": tool.name,
                    "state": match tool.state {
                        ToolState::Started => "started",
                        ToolState::Completed => "completed",
                        ToolState::Failed => "failed",
                    },
                    "label": tool.label,
                    "metadata": tool.metadata,
                }),
            },
            Emitted::Custom { name, value } => Event::Note { name, value },
        }
    }

    /// The last events of a turn that did not fail.
    fn outcome(&self, outcome: Outcome) -> Vec<Event> {
        let mut metadata = outcome.metadata.unwrap_or_default();
        let status_text = metadata.remove("talaria/status").and_then(|text| text.as_str().map(str::to_owned));
        if let Some(usage) = outcome.usage {
            metadata.insert(
                "usage".into(),
                serde_json::json!({ "input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens }),
            );
        }
        let mut events = Vec::new();
        let mut status_parts: Vec<Part> = status_text.into_iter().map(Part::text).collect();
        let state = match outcome.state {
            FinalState::Completed => {
                let as_said =
                    matches!(&self.reply, Reply::Said(said) if *said == message_text(&outcome.parts));
                if !outcome.parts.is_empty() && !as_said {
                    events.push(Event::Artifact {
                        artifact: reply(outcome.parts),
                        append: false,
                        last: true,
                    });
                }
                State::Completed
            }
            FinalState::InputRequired => {
                status_parts = outcome.parts;
                State::InputRequired
            }
            FinalState::AuthRequired => {
                status_parts = outcome.parts;
                State::AuthRequired
            }
            FinalState::Rejected => {
                status_parts = outcome.parts;
                State::Rejected
            }
        };
        let Event::Status { status, .. } = Event::said(state, status_parts) else { return events };
        events.push(Event::Status { status, metadata: (!metadata.is_empty()).then_some(metadata) });
        events
    }

    async fn append(&mut self, events: Vec<Event>) -> Result<(), StoreError> {
        let task = self.inner.store.append(&self.key, self.version, events).await?;
        self.version = task.version;
        Ok(())
    }
}

fn reply(parts: Vec<Part>) -> Artifact {
    Artifact {
        id: REPLY.into(),
        name: None,
        description: None,
        parts,
        metadata: None,
        extensions: Vec::new(),
    }
}

fn unstored(error: StoreError) -> Failure {
    Failure {
        kind: FailureKind::Internal,
        message: format!("the turn was not stored: {error}"),
        retryable: true,
    }
}
