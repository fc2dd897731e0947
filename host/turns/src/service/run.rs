//! A turn, from its place in the lane to its end.
//!
//! However a turn ends (with an outcome, a failure, a panic, a cancel or a shutdown), exactly one event ends it in the
//! log. Dropping the execution releases everything that the executor held.

mod progress;

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use talaria_budget::Charge;
use tokio::sync::{mpsc, oneshot};
use tracing::{Instrument as _, debug, info_span, warn};

use self::progress::{Progress, unless_pending};
use super::Inner;
use crate::executor::{Emitted, Executor, Failure, FailureKind, FinalState, Outcome, TooLarge, Turn};
use crate::lanes::LaneTicket;
use crate::live_task::{Events, LiveTask, TurnCount};
use crate::model::{Content, Message, Part};
use crate::observer::{TurnObserver, observe};
use crate::scope::{Past, Scope, TurnSignal};
use crate::store::StoreError;
use crate::task::{Event, State, Task};
use crate::timeline::{Timeline, TurnState};
use crate::trace::TraceContext;

/// The signals that may wait between an executor and the log before the executor has to wait.
const SIGNALS: usize = 16;
/// How long a cancelled turn may take to end, and its upstream to be stopped.
const GRACE: Duration = Duration::from_secs(5);
/// The failure of a turn that ends with the host.
const STOPPED: &str = "interrupted by a shutdown";

/// An accepted turn.
pub(super) struct Run {
    live: Arc<LiveTask>,
    taker: Taker,
    turn: Turn,
    past: Past,
    ticket: LaneTicket,
    memory: TurnMemory,
    counted: TurnCount,
    timeline: Arc<Timeline>,
}

/// The memory that is reserved for a turn, from its acceptance to its end.
pub(super) struct TurnMemory {
    /// What the host takes for it.
    pub(super) host: Charge,
    /// What its executor takes.
    pub(super) executor: Charge,
}

/// Who takes a turn.
pub(super) enum Taker {
    /// An executor.
    Executor(Arc<dyn Executor>),
    /// Nobody: the executor of this name is out of service, and the turn fails.
    OutOfService { executor: Box<str>, failure: Failure },
}

/// How a turn ended.
enum End {
    Result(Result<Outcome, Failure>),
    Cancelled,
}

/// An open question: where its answer comes from, and where it goes.
type Question = (mpsc::Receiver<Arc<Message>>, oneshot::Sender<Arc<Message>>);

// === impl Taker ===

impl Taker {
    /// The memory that it needs for a turn with messages of this many bytes.
    pub(super) fn memory(&self, bytes: usize) -> Result<usize, TooLarge> {
        match self {
            Self::Executor(executor) => executor.memory(bytes),
            Self::OutOfService { .. } => Ok(0),
        }
    }

    /// The name of the executor that the turn belongs to.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Executor(executor) => executor.name(),
            Self::OutOfService { executor, .. } => executor,
        }
    }
}

// === impl Run ===

impl Run {
    pub(super) fn new(
        live: &Arc<LiveTask>,
        taker: Taker,
        turn: Turn,
        past: Past,
        ticket: LaneTicket,
        (memory, observers): (TurnMemory, &Arc<[Arc<dyn TurnObserver>]>),
        trace: Option<TraceContext>,
    ) -> Self {
        let of = (turn.task.clone(), turn.context.clone(), turn.principal.clone());
        let timeline = Timeline::begin(of, taker.name(), Arc::clone(observers), trace);
        timeline.open();
        let counted = live.count_turn();
        Self { live: Arc::clone(live), taker, turn, past, ticket, memory, counted, timeline }
    }

    /// Runs the turn. Returns once its last event is in the store.
    pub(super) async fn finish(self, service: &Inner) {
        // Lines about an executor name it themselves.
        let trace_id = self.timeline.trace.as_ref().map(|trace| tracing::field::display(trace.trace));
        let span = info_span!("turn.run", task = %self.turn.task, context = %self.turn.context, trace_id);
        let timeline = Arc::clone(&self.timeline);
        let state = self.run(service).instrument(span).await;
        timeline.close(state);
    }

    async fn run(self, service: &Inner) -> TurnState {
        let Self { live, taker, turn, past, ticket, memory, counted, timeline } = self;
        let TurnMemory { host, executor: memory } = memory;
        let mut progress = Progress::default();
        let ended = async {
            tokio::select! {
                biased;
                () = live.cancel.cancelled() => (End::Cancelled, None),
                place = ticket.turn() => {
                    let of = (past, memory, &timeline);
                    let execution = execute(service, &live, &taker, &turn, of, &mut progress);
                    let end = AssertUnwindSafe(execution).catch_unwind().await.unwrap_or_else(|_| {
                        let text = "the executor panicked; the log has the details";
                        End::Result(Err(Failure::new(FailureKind::Internal, text)))
                    });
                    (end, Some(place))
                }
            }
        };
        // The lane is kept until the end is in the log, or the next turn of the context could begin before it there.
        let (end, place) = tokio::select! {
            biased;
            () = live.stop.cancelled() => {
                (End::Result(Err(Failure::new(FailureKind::Cancelled, STOPPED))), None)
            }
            ended = ended => ended,
        };
        live.set_asking(None);
        let returned = timeline.elapsed();
        timeline.note(|facts| facts.returned = Some(returned));
        let state = end.note(&timeline);
        // Decided with the append, so that a task that is released meanwhile does not stay open.
        let held = match &end {
            End::Result(Ok(outcome)) if service.is_held(&live.key) => progress.held(outcome),
            _ => None,
        };
        let last = match end {
            End::Cancelled => progress.cancelled(),
            End::Result(Err(failure)) => progress.failed(failure),
            End::Result(Ok(outcome)) => progress.ended(outcome),
        };
        let shared = |events: Vec<Event>| -> Events { events.into_iter().map(Arc::new).collect() };
        let (held, last) = (held.map(shared), shared(last));
        let written = live.append_shared(|task| {
            let held = held.as_ref().filter(|_| service.is_held(&live.key));
            unless_pending(held.unwrap_or(&last), task)
        });
        match written.await {
            Ok(()) => {}
            // The task ended in another way first, and that is final.
            Err(StoreError::Illegal(illegal)) => {
                debug!(%illegal, "dropped the end of a turn that came too late")
            }
            Err(error) => {
                warn!(%error, "could not store the end of a turn");
                let why = vec![Part::text(format!("the answer was not stored: {error}"))];
                let _ = live.append(vec![Event::ended(State::Failed, why, None)]).await;
            }
        }
        drop((place, counted, host));
        state
    }
}

// === impl End ===

impl End {
    /// Notes what the timeline shows of the end, and returns the state that it leaves the turn in.
    fn note(&self, timeline: &Timeline) -> TurnState {
        match self {
            Self::Cancelled => TurnState::Canceled,
            Self::Result(Err(failure)) => {
                timeline.note(|facts| {
                    facts.reason = Some(failure.message.as_str().into());
                    facts.failure = Some(failure.kind.as_str());
                });
                TurnState::Failed
            }
            Self::Result(Ok(outcome)) => {
                let streamed = timeline.read(|facts| facts.reply_bytes);
                let text = outcome.parts.iter().map(|part| match &part.content {
                    Content::Text(text) => text.len(),
                    _ => 0,
                });
                // The outcome repeats what was streamed.
                timeline.replied(text.sum::<usize>().saturating_sub(streamed));
                timeline.note(|facts| facts.usage = outcome.usage);
                match outcome.state {
                    FinalState::Completed => TurnState::Completed,
                    FinalState::InputRequired => TurnState::InputRequired,
                    FinalState::AuthRequired => TurnState::AuthRequired,
                    FinalState::Rejected => TurnState::Rejected,
                }
            }
        }
    }
}

async fn execute(
    service: &Inner,
    live: &Arc<LiveTask>,
    taker: &Taker,
    turn: &Turn,
    (past, memory, timeline): (Past, Charge, &Arc<Timeline>),
    progress: &mut Progress,
) -> End {
    if let Err(error) = live.append(vec![Event::moved(State::Working)]).await {
        return End::Result(Err(unstored(&error)));
    }
    timeline.begun();
    let observers = &service.observers;
    let executor = match taker {
        Taker::Executor(executor) => executor,
        Taker::OutOfService { executor, failure } => {
            let failed = std::future::ready(Err(failure.clone()));
            return End::Result(observe(observers, executor, turn, &live.cancel, failed).await);
        }
    };
    let (scope, mut said) = Scope::new(
        SIGNALS,
        live.cancel.clone(),
        Arc::clone(&service.store),
        turn.principal.clone(),
        turn.context.clone(),
        executor.name(),
    );
    let scope = scope.with(past).with_memory(memory).with_timeline(Arc::clone(timeline));
    let call = executor.execute(turn.clone(), scope);
    let mut execution = pin!(observe(observers, executor.name(), turn, &live.cancel, call));
    let on_emitted = |emitted: &Emitted| match emitted {
        Emitted::Tool(_) => observers.iter().for_each(|observer| observer.tool_used()),
        Emitted::TextDelta(text) => timeline.replied(text.len()),
        _ => {}
    };
    let mut question: Option<Question> = None;
    loop {
        let answer = answer_to(question.as_mut());
        tokio::select! {
            biased;
            () = live.cancel.cancelled() => {
                drop((question, said));
                // The executor's pending call fails by itself; the upstream is stopped meanwhile.
                let _ = tokio::join!(tokio::time::timeout(GRACE, execution), stop(live, executor, turn));
                return End::Cancelled;
            }
            Some(signal) = said.recv() => {
                match take(live, signal, &mut said, progress, &on_emitted).await {
                    Ok(asked) => {
                        if asked.is_some() {
                            timeline.moved();
                        }
                        question = asked.or(question);
                    }
                    Err(failure) => return End::Result(Err(failure)),
                }
            }
            message = answer => {
                live.set_asking(None);
                match (message, question.take()) {
                    (Some(message), Some((_, answer))) => drop(answer.send(message)),
                    _ => if let Err(error) = work_on(live).await {
                        return End::Result(Err(unstored(&error)));
                    },
                }
                // An answer that came too late still answers that question, not the next one.
                progress.asked = live.task().answers.len();
                timeline.moved();
            }
            result = &mut execution => {
                if result.is_err() && live.cancel.is_cancelled() {
                    // The executor noticed the cancel before this loop did.
                    stop(live, executor, turn).await;
                    return End::Cancelled;
                }
                while let Ok(signal) = said.try_recv() {
                    if let Err(failure) = take(live, signal, &mut said, progress, &on_emitted).await {
                        return End::Result(Err(failure));
                    }
                }
                return End::Result(result);
            }
        }
    }
}

/// Stops the upstream's work for a cancelled turn.
async fn stop(live: &LiveTask, executor: &Arc<dyn Executor>, turn: &Turn) {
    let checkpoint = live.task().checkpoint.clone().map(|checkpoint| checkpoint.0);
    stop_upstream(executor, Turn { checkpoint, ..turn.clone() }).await;
}

async fn stop_upstream(executor: &Arc<dyn Executor>, turn: Turn) {
    let stopped = tokio::time::timeout(GRACE, executor.cancel(turn)).await;
    if !matches!(stopped, Ok(Ok(()))) {
        warn!(?stopped, "could not stop the upstream of a cancelled turn");
    }
}

/// The upstream's work for a task that waits for its caller, without a turn.
pub(super) struct Waiting {
    executor: Arc<dyn Executor>,
    turn: Turn,
}

impl Waiting {
    /// Stops it.
    pub(super) async fn stop(self) {
        stop_upstream(&self.executor, self.turn).await;
    }
}

impl Inner {
    /// Returns what must be stopped upstream when a task is cancelled that waits for its caller: its last turn left a
    /// checkpoint, so that its executor finds the work.
    pub(super) fn waiting(&self, live: &LiveTask, task: &Task) -> Option<Waiting> {
        if !task.status.state.is_interrupted() || !task.pending.is_empty() {
            return None;
        }
        let checkpoint = task.checkpoint.clone()?.0;
        let executor = self.route.named(task.executor.as_deref()?)?;
        let (message, earlier) = task.history.split_last()?;
        let turn = Turn {
            task: task.id.clone(),
            context: task.context.clone(),
            message: Arc::clone(message),
            history: earlier.into(),
            principal: live.key.owner.clone(),
            streaming: false,
            async_delivery: true,
            metadata: None,
            checkpoint: Some(checkpoint),
        };
        Some(Waiting { executor, turn })
    }
}

/// Waits for the answer to the open question; `None` if the question is withdrawn. Without a question it waits forever.
async fn answer_to(question: Option<&mut Question>) -> Option<Arc<Message>> {
    let Some((answers, asking)) = question else { return std::future::pending().await };
    tokio::select! {
        biased;
        Some(message) = answers.recv() => Some(message),
        () = asking.closed() => None,
    }
}

/// Sets the task to working again after its question was withdrawn, unless an answer already did.
async fn work_on(live: &LiveTask) -> Result<(), StoreError> {
    let working = |task: &Task| match task.status.state.is_interrupted() {
        true => vec![Event::moved(State::Working)],
        false => Vec::new(),
    };
    live.append_if(|task| Ok(working(task))).await.map(drop)
}

/// Takes a signal of the turn, and all others that wait: one append, so one write.
async fn take(
    live: &LiveTask,
    first: TurnSignal,
    more: &mut mpsc::Receiver<TurnSignal>,
    progress: &mut Progress,
    on_emitted: &(dyn Fn(&Emitted) + Sync),
) -> Result<Option<Question>, Failure> {
    let mut events = Vec::new();
    let mut next = Some(first);
    while let Some(said) = next {
        match said {
            TurnSignal::Emitted(emitted) => {
                on_emitted(&emitted);
                events.push(progress.event(*emitted));
            }
            TurnSignal::Checkpoint { data, kept } => {
                events.push(Event::Checkpoint(data));
                let written = live.append(std::mem::take(&mut events)).await.map(drop);
                let failed = written.is_err();
                let _ = kept.send(written);
                if failed {
                    return Ok(None);
                }
                progress.asked = 0;
            }
            TurnSignal::Ask { parts, answer } => {
                let asked = progress.asked;
                progress.asked += 1;
                let task = live.task();
                let known = task.answers.get(asked).and_then(|at| task.history.get(*at));
                if let Some(known) = known {
                    // The turn was resumed after a restart, and its caller answered before that.
                    let _ = answer.send(Arc::clone(known));
                } else {
                    let (to, answers) = mpsc::channel(1);
                    live.set_asking(Some(to));
                    events.push(Event::said(State::InputRequired, parts));
                    live.append(events).await.map_err(|error| unstored(&error))?;
                    return Ok(Some((answers, answer)));
                }
            }
        }
        next = more.try_recv().ok();
    }
    live.append(events).await.map_err(|error| unstored(&error))?;
    Ok(None)
}

fn unstored(error: &StoreError) -> Failure {
    Failure {
        kind: FailureKind::Internal,
        message: format!("the turn was not stored: {error}"),
        retryable: true,
    }
}
