//! A message's way into its task, and its turn's way to its end.
//!
//! Whether a message was sent before is not asked in advance: of four copies that come at once, all would hear "no". The
//! store decides, with the write that takes the message in. Only where a message is refused for another reason (its task is
//! over, its lane is full) is the store asked whether it is one that was taken in before, and whose sender may have that
//! answer all the same.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tracing::{Instrument as _, info_span};

use super::{Accepted, Incoming, Inner, SendError};
use crate::executor::{Asked, NoExecutor, Past, Turn};
use crate::live::Live;
use crate::model::{ContextId, Message, Principal, TaskId};
use crate::once::Once;
use crate::order::Place;
use crate::run::{Run, Taker};
use crate::store::{StoreError, TaskKey};
use crate::task::{Event, State, Task};
use crate::text::message_text;

/// What became of a message.
enum Written {
    /// A turn is to be run.
    Turn(Box<Run>),
    /// Somebody else has it: it was sent before, or it answers a question.
    Done(Arc<Live>),
}

// === impl Inner ===

impl Inner {
    /// The whole life of a turn.
    pub(super) async fn live_and_end(
        self: Arc<Self>,
        incoming: Incoming,
        room: OwnedSemaphorePermit,
        accept: oneshot::Sender<Result<Accepted, SendError>>,
    ) {
        // A sender that hung up hears nothing; the turn goes on.
        match self.write_down(incoming).await {
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
    async fn write_down(&self, incoming: Incoming) -> Result<Written, SendError> {
        let owner = incoming.principal.clone();
        let once = once(&incoming);
        let refused = match self.take_in(incoming, once.as_ref()).await {
            Err(error) => error,
            written => return written,
        };
        let known = match (&refused, &once) {
            (SendError::Store(StoreError::Sent(task)), _) => Some(task.clone()),
            (
                SendError::TaskOver { .. }
                | SendError::HistoryFull { .. }
                | SendError::LaneFull(_)
                | SendError::NoExecutor(_),
                Some(once),
            ) => self.store.accepted(&owner, once).await?,
            _ => None,
        };
        let Some(task) = known else { return Err(refused) };
        Ok(Written::Done(self.live(&owner, &task).await?))
    }

    async fn take_in(&self, mut incoming: Incoming, once: Option<&Once>) -> Result<Written, SendError> {
        let hook = incoming.hook.take();
        let Some(id) = incoming.task.clone() else {
            let host_made = incoming.context.is_none();
            let context = incoming.context.clone().unwrap_or_else(ContextId::unguessable);
            let taker = self.pick(&incoming, &context, None)?;
            let place = self.line_up(&incoming.principal, &context)?;
            let key = TaskKey { owner: incoming.principal.clone(), task: TaskId::fresh() };
            let first = vec![accepted(&incoming, &taker)];
            let live = self.hub.create(key, &context, host_made, first, once).await?;
            self.hook(&live, hook, live.task().version).await?;
            let past = if host_made { Past::Nothing } else { self.past(&live) };
            return Ok(self.run(live, taker, incoming, Vec::new(), past, place));
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
        let (mut turn, mut asking, mut history) = (None, None, Vec::new());
        let written = live.append_once(once, |task| {
            self.may_take(task)?;
            let interrupted = task.status.state.is_interrupted();
            // Its turn asked and waits, here or since before a restart.
            asking = live.asking();
            if interrupted && !task.pending.is_empty() && (asking.is_some() || !live.is_under_way()) {
                turn = None;
                return Ok(vec![Event::moved(State::Working), Event::Answered(incoming.message.clone())]);
            }
            let taker = self.pick(&incoming, &context, task.executor.as_deref())?;
            let mut events = vec![accepted(&incoming, &taker)];
            turn = Some((taker, self.line_up(&incoming.principal, &context)?));
            history.clone_from(&task.history);
            if interrupted {
                history.extend(task.status.message.clone());
                events.insert(0, Event::moved(State::Working));
            }
            Ok::<_, SendError>(events)
        });
        let task = written.await?;
        self.hook(&live, hook, task.version).await?;
        if let Some((taker, place)) = turn {
            let past = self.past(&live);
            return Ok(self.run(live, taker, incoming, history, past, place));
        }
        match asking {
            // A turn that ended meanwhile has said so in its task.
            Some(to) => drop(to.send(incoming.message).await),
            None => drop(self.resume(&live, &task).await?),
        }
        Ok(Written::Done(live))
    }

    fn pick(
        &self,
        incoming: &Incoming,
        context: &ContextId,
        continues: Option<&str>,
    ) -> Result<Taker, NoExecutor> {
        let picked = self.route.pick(&Asked {
            principal: &incoming.principal,
            message: &incoming.message,
            context,
            metadata: incoming.metadata.as_ref(),
            continues,
        });
        match picked {
            Ok(executor) => Ok(Taker::Executor(executor)),
            Err(NoExecutor::OutOfService { executor, failure }) => {
                Ok(Taker::OutOfService { executor, failure })
            }
            Err(error) => Err(error),
        }
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
    pub(super) async fn sent_before(&self, incoming: &Incoming) -> Result<Option<TaskId>, StoreError> {
        match once(incoming) {
            Some(once) => self.store.accepted(&incoming.principal, &once).await,
            None => Ok(None),
        }
    }

    fn run(
        &self,
        live: Arc<Live>,
        taker: Taker,
        incoming: Incoming,
        history: Vec<Message>,
        past: Past,
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
        Written::Turn(Box::new(self.place(live, taker, turn, past, place)))
    }

    /// What turns of a task may hear of the conversation that it joined.
    pub(super) fn past(&self, live: &Live) -> Past {
        let TaskKey { owner, task } = &live.key;
        let host_made_only = owner.name().is_none() && !self.limits.trusts_chosen_contexts;
        Past::Of { task: task.clone(), host_made_only }
    }

    pub(super) fn place(&self, live: Arc<Live>, taker: Taker, turn: Turn, past: Past, place: Place) -> Run {
        Run {
            under_way: live.begin(),
            live,
            taker,
            store: Arc::clone(&self.store),
            observers: Arc::clone(&self.observers),
            turn,
            past,
            place,
            stop: self.stop.clone(),
        }
    }
}

/// What the message is known by. None for callers without a name: they cannot be told apart.
fn once(incoming: &Incoming) -> Option<Once> {
    let Incoming { principal, message, task, context, .. } = incoming;
    principal.name().map(|_| Once::of(message, task.as_ref(), context.as_ref()))
}

fn accepted(incoming: &Incoming, taker: &Taker) -> Event {
    Event::Accepted {
        message: incoming.message.clone(),
        executor: taker.name().into(),
        metadata: incoming.metadata.clone(),
    }
}

/// The span that a turn runs in.
pub(super) fn span(run: &Run) -> tracing::Span {
    let (turn, executor) = (&run.turn, run.taker.name());
    info_span!("turn.run", task = %turn.task, context = %turn.context, executor)
}
