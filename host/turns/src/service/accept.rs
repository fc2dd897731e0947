//! The way of a message into its task, and of its turn to its end.
//!
//! Whether a message was sent before is not checked in advance: four copies that arrive at once would all pass. The store
//! decides, with the write that accepts the message. Only if a message is rejected for another reason (its task has
//! ended, its lane is full) is the store asked whether it accepted the same message before; then its sender gets that
//! task all the same.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::run::{Run, Taker, TurnMemory};
use super::{Accepted, Incoming, Inner, Room, SendError};
use crate::executor::{NoExecutor, RouteQuery, TooLarge, Turn};
use crate::keys::{APPROVAL, HOST_MESSAGE};
use crate::lanes::LaneTicket;
use crate::live_task::LiveTask;
use crate::model::{Content, ContextId, Message, Principal, TaskId};
use crate::once::Once;
use crate::scope::Past;
use crate::store::{StoreError, TaskKey};
use crate::task::{Event, State, Task};
use crate::trace::TraceContext;

/// The task that a message went into, and the turn to run. There is no turn if the message was sent before or answers a
/// question.
type Written = (Arc<LiveTask>, Option<Run>);

/// The earlier messages of a task.
type History = Arc<[Arc<Message>]>;

/// A turn that is about to be written: who takes it, its place in the lane, its memory, and the messages before it.
type Next = (Taker, LaneTicket, TurnMemory, History);

/// What the host takes for a turn beside its messages: a future, two connections and their buffers, the instance's stack.
/// A waiting turn takes 120 KiB, as `cargo xtask bench memory` measures it.
const TURN: usize = 128 << 10;
/// How often the host has the messages of a turn in memory beside its task, at most: as JSON for the store, in the form of
/// the contract, as text, and as the body of the request upstream.
const COPIES: usize = 4;

// === impl Inner ===

impl Inner {
    /// Accepts a message and runs its turn.
    pub(super) async fn accept_and_run(
        self: Arc<Self>,
        incoming: Incoming,
        room: Room,
        accept: oneshot::Sender<Result<Accepted, SendError>>,
    ) {
        // If the sender has disconnected, the turn carries on.
        // Boxed, so that what accepting takes is not part of the future that lives as long as the turn.
        match Box::pin(self.write_down(incoming)).await {
            Ok((live, Some(run))) => {
                let _ = accept.send(Ok(Accepted { task: live.task(), live }));
                run.finish(&self).await;
                drop(room);
            }
            Ok((live, None)) => {
                drop(room);
                let _ = accept.send(Ok(Accepted { task: live.task(), live }));
            }
            Err(error) => {
                drop(room);
                let _ = accept.send(Err(error));
            }
        }
    }

    /// Writes a message into its task. One that was accepted before gives the task that it went into.
    async fn write_down(self: &Arc<Self>, incoming: Incoming) -> Result<Written, SendError> {
        let owner = incoming.principal.clone();
        let once = once(&incoming);
        let rejected = match self.take_in(incoming, once.as_ref()).await {
            Err(error) => error,
            written => return written,
        };
        let known = match (&rejected, &once) {
            (SendError::Store(StoreError::Sent(task)), _) => Some(task.clone()),
            (
                SendError::TaskOver { .. }
                | SendError::HistoryFull { .. }
                | SendError::TaskTooLarge { .. }
                | SendError::NoMemory(_)
                | SendError::LaneFull(_)
                | SendError::NoExecutor(_),
                Some(once),
            ) => self.store.accepted(&owner, once).await?,
            _ => None,
        };
        let Some(task) = known else { return Err(rejected) };
        Ok((self.live(&owner, &task).await?, None))
    }

    async fn take_in(
        self: &Arc<Self>,
        incoming: Incoming,
        once: Option<&Once>,
    ) -> Result<Written, SendError> {
        match incoming.task.clone() {
            None => self.start_task(incoming, once).await,
            Some(task) => self.continue_task(task, incoming, once).await,
        }
    }

    async fn start_task(&self, mut incoming: Incoming, once: Option<&Once>) -> Result<Written, SendError> {
        let config = incoming.push.take();
        let host_made = incoming.context.is_none();
        let context = incoming.context.clone().unwrap_or_else(ContextId::unguessable);
        let taker = self.pick(&incoming, &context, None)?;
        let memory = self.reserve(&incoming.principal, &taker, incoming.message.size())?;
        let ticket = self.enter_lane(&incoming.principal, &context)?;
        let is_stranger = self.limits.strangers_call && incoming.principal.name().is_none();
        let task = if is_stranger { TaskId::unguessable() } else { TaskId::fresh() };
        let key = TaskKey { owner: incoming.principal.clone(), task };
        let trace = self.trace_of(&incoming);
        let first = accepted(&incoming, &taker, trace.clone());
        let live = self.tasks.create(key, &context, host_made, first, once).await?;
        self.set_push(&live, config, live.task().version).await?;
        let past = if host_made { Past::Nothing } else { self.past(&live) };
        let turn = turn(&live, context, incoming, Arc::default());
        let run = Run::new(&live, taker, turn, past, ticket, (memory, &self.observers), trace);
        Ok((live, Some(run)))
    }

    async fn continue_task(
        self: &Arc<Self>,
        id: TaskId,
        mut incoming: Incoming,
        once: Option<&Once>,
    ) -> Result<Written, SendError> {
        let config = incoming.push.take();
        let key = TaskKey { owner: incoming.principal.clone(), task: id.clone() };
        let live = self.tasks.get(&key).await?.ok_or_else(|| SendError::TaskNotFound(id.clone()))?;
        // The task may have a receiver of push notifications, even if this request waits for the answer.
        incoming.async_delivery |= self.has_push(&key).await?;
        let context = live.task().context.clone();
        if let Some(other) = incoming.context.as_ref().filter(|other| **other != context) {
            return Err(SendError::ContextMismatch { task: id, context: other.clone() });
        }
        if let (Some(config), Some(dispatcher)) = (&config, &self.dispatcher) {
            self.cursor_of(dispatcher, &live, config).await.map_err(SendError::Push)?;
        }
        // Decided while nobody else can write: the first of two answers is the answer, the second is a turn of its own.
        let trace = self.trace_of(&incoming);
        let mut next: Option<Next> = None;
        let mut asking = None;
        let written = live.append_once(once, |task| {
            self.may_take(task, &incoming.message)?;
            next = None;
            let interrupted = task.status.state.is_interrupted();
            if interrupted {
                self.may_answer(&incoming.principal, task)?;
            }
            // Its turn asked and waits, here or since before a restart.
            asking = live.asking();
            if interrupted && !task.pending.is_empty() && (asking.is_some() || !live.has_turns()) {
                self.admit_answer(task, &incoming.message)?;
                let answer = Event::Answered(Arc::clone(&incoming.message));
                return Ok(vec![Event::moved(State::Working), answer]);
            }
            let taker = self.pick(&incoming, &context, task.executor.as_deref())?;
            let mut events = vec![accepted(&incoming, &taker, trace.clone())];
            let question = task.status.message.iter().filter(|_| interrupted);
            let history: History = task.history.iter().chain(question).cloned().collect();
            let bytes = bytes_of(&history, &incoming.message);
            let memory = self.reserve(&incoming.principal, &taker, bytes)?;
            next = Some((taker, self.enter_lane(&incoming.principal, &context)?, memory, history));
            if interrupted {
                events.insert(0, Event::moved(State::Working));
            }
            Ok::<_, SendError>(events)
        });
        let task = written.await?;
        self.set_push(&live, config, task.version).await?;
        if let Some((taker, ticket, memory, history)) = next {
            let past = self.past(&live);
            let turn = turn(&live, context, incoming, history);
            let run = Run::new(&live, taker, turn, past, ticket, (memory, &self.observers), trace);
            return Ok((live, Some(run)));
        }
        match asking {
            // If the turn ended meanwhile, its task shows that.
            Some(to) => drop(to.send(incoming.message).await),
            None => drop(self.resume(&live, &task).await?),
        }
        Ok((live, None))
    }

    /// The place of the message's turn in a trace, if traces are on.
    fn trace_of(&self, incoming: &Incoming) -> Option<TraceContext> {
        let sampler = self.sampler.as_ref()?;
        Some(incoming.trace.as_ref().map_or_else(|| sampler.sample(None), TraceContext::child))
    }

    fn pick(
        &self,
        incoming: &Incoming,
        context: &ContextId,
        continues: Option<&str>,
    ) -> Result<Taker, NoExecutor> {
        let Incoming { principal, message, metadata, .. } = incoming;
        let metadata = metadata.as_deref();
        match self.route.pick(&RouteQuery { principal, message, context, metadata, continues }) {
            Ok(executor) => Ok(Taker::Executor(executor)),
            Err(NoExecutor::OutOfService { executor, failure }) => {
                Ok(Taker::OutOfService { executor, failure })
            }
            Err(error) => Err(error),
        }
    }

    fn enter_lane(&self, owner: &Principal, context: &ContextId) -> Result<LaneTicket, SendError> {
        self.lanes.enter(owner, context).map_err(|_| SendError::LaneFull(self.limits.lane))
    }

    /// Reserves the memory of a turn of this caller whose messages take this many bytes.
    fn reserve(&self, caller: &Principal, taker: &Taker, bytes: usize) -> Result<TurnMemory, SendError> {
        let budget = self.callers.of(caller).budget();
        let (host, executor) = (TURN.saturating_add(bytes.saturating_mul(COPIES)), taker.memory(bytes)?);
        let (needs, whole) = (host.saturating_add(executor), budget.limit());
        if needs > whole {
            // In proportion, since what an executor needs grows with the messages.
            let limit = whole / (needs / bytes.max(1)).max(1);
            let is_own = whole < self.budget.limit();
            let fix = if is_own { "limits.caller.memory" } else { "limits.memory" };
            let (executor, fix) = (taker.name().to_owned(), Some(fix.to_owned()));
            return Err(TooLarge { executor, bytes, limit, fix }.into());
        }
        Ok(TurnMemory { host: budget.charge(host)?, executor: budget.charge(executor)? })
    }

    /// Reserves the memory of a turn that was accepted before a restart. It is run in any case: it fitted when it was
    /// accepted.
    pub(super) fn reserve_again(&self, caller: &Principal, taker: &Taker, bytes: usize) -> TurnMemory {
        let budget = self.callers.of(caller).budget();
        let (mut host, mut executor) = (budget.nothing(), budget.nothing());
        host.force(TURN.saturating_add(bytes.saturating_mul(COPIES)));
        executor.force(taker.memory(bytes).unwrap_or_default());
        TurnMemory { host, executor }
    }

    /// Checks that the executor that asked has memory for the answer.
    fn admit_answer(&self, task: &Task, answer: &Message) -> Result<(), SendError> {
        let executor = task.pending.front().and_then(|turn| self.route.named(&turn.executor));
        executor.map_or(Ok(0), |executor| executor.memory(answer.size()))?;
        Ok(())
    }

    fn may_take(&self, task: &Task, message: &Message) -> Result<(), SendError> {
        let state = task.status.state;
        if state.is_terminal() {
            return Err(SendError::TaskOver { task: task.id.clone(), state });
        }
        if task.history.len() >= self.limits.history {
            return Err(SendError::HistoryFull { task: task.id.clone(), limit: self.limits.history });
        }
        let (bytes, limit) = (task.size().saturating_add(message.size()), self.limits.task_bytes);
        if bytes > limit {
            return Err(SendError::TaskTooLarge { task: task.id.clone(), bytes, limit });
        }
        Ok(())
    }

    /// Checks that this caller may answer the question of a task.
    fn may_answer(&self, caller: &Principal, task: &Task) -> Result<(), SendError> {
        let is_approval = task.status.message.as_deref().is_some_and(asks_for_approval);
        if is_approval && caller.name().is_none() && !self.limits.anyone_may_approve {
            return Err(SendError::ApprovalNeedsName(task.id.clone()));
        }
        Ok(())
    }

    /// Returns the task that accepted the same message before.
    pub(super) async fn sent_before(&self, incoming: &Incoming) -> Result<Option<TaskId>, StoreError> {
        match once(incoming) {
            Some(once) => self.store.accepted(&incoming.principal, &once).await,
            None => Ok(None),
        }
    }

    /// Returns which messages of its context the turns of a task may read.
    pub(super) fn past(&self, live: &LiveTask) -> Past {
        let TaskKey { owner, task } = &live.key;
        let host_made_only = owner.name().is_none() && !self.limits.trusts_chosen_contexts;
        Past::Of { task: task.clone(), host_made_only }
    }
}

fn turn(live: &LiveTask, context: ContextId, incoming: Incoming, history: Arc<[Arc<Message>]>) -> Turn {
    Turn {
        task: live.key.task.clone(),
        context,
        message: incoming.message,
        history,
        principal: incoming.principal,
        streaming: incoming.streaming,
        async_delivery: incoming.async_delivery,
        metadata: incoming.metadata,
        checkpoint: None,
    }
}

/// Whether a question asks for an approval: it has a data part with the member `approval`.
fn asks_for_approval(question: &Message) -> bool {
    let is_approval = |data: &serde_json::Value| data.get(APPROVAL).is_some();
    question.parts.iter().any(|part| matches!(&part.content, Content::Data(data) if is_approval(data)))
}

/// Returns the bytes of the messages of a turn.
pub(super) fn bytes_of(history: &[Arc<Message>], message: &Message) -> usize {
    history.iter().map(|earlier| earlier.size()).sum::<usize>().saturating_add(message.size())
}

/// What identifies a message that is sent again. `None` for callers without a name, who cannot be told apart, unless the host
/// made the id: such an id cannot be guessed, so a sender that repeats it passes on the host's own message.
fn once(incoming: &Incoming) -> Option<Once> {
    let Incoming { principal, message, task, context, .. } = incoming;
    let is_known = principal.name().is_some() || message.id.as_str().starts_with(HOST_MESSAGE);
    is_known.then(|| Once::of(message, task.as_ref(), context.as_ref()))
}

fn accepted(incoming: &Incoming, taker: &Taker, trace: Option<TraceContext>) -> Event {
    Event::Accepted {
        message: Arc::clone(&incoming.message),
        executor: taker.name().into(),
        metadata: incoming.metadata.clone(),
        trace,
    }
}
