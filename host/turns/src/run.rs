//! One turn, from its place in the line to its last word.
//!
//! Whatever happens (an outcome, a failure, a panic, a cancel, a shutdown), the turn ends with exactly one event that
//! says so. Dropping the execution releases all that the executor held.
//!
//! An answer that came in pieces is written down once more as a whole before that event ([`Event::Whole`]), so that a
//! reader who begins in the middle, or who is not told of pieces at all, needs nothing but the log from there on. The
//! pieces are what was said: an outcome that differs from them in blanks only is taken to be them, and its text is not
//! told a second time. An artifact of the executor's own that was left open is closed.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::executor::{
    Emitted, Executor, Failure, FailureKind, FinalState, Outcome, Past, Said, Scope, ToolProgress, ToolState,
    Turn,
};
use crate::live::{Live, UnderWay};
use crate::model::{Artifact, Content, Message, Part};
use crate::observer::{TurnObserver, observe};
use crate::order::Place;
use crate::store::{Store, StoreError};
use crate::task::{Event, REPLY, State, Task};

/// Pieces that may wait between an executor and the log before the executor does.
const PIECES: usize = 16;
/// How long a cancelled turn may take to notice, and its upstream to be told.
const GRACE: Duration = Duration::from_secs(5);
/// Tool calls that an answer's metadata names, and characters of each one's line: what the platform shows.
const TRACED: usize = 40;
const TRACED_LINE: usize = 200;
/// Artifacts that a turn may leave open and still have closed for it. More than any executor has pieces of at once.
const OPEN: usize = 64;
/// What the caller reads when a turn dies with the host.
const STOPPED: &str = "interrupted by a shutdown";

/// A turn that has its place.
pub(crate) struct Run {
    pub(crate) live: Arc<Live>,
    pub(crate) taker: Taker,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) observers: Arc<[Arc<dyn TurnObserver>]>,
    pub(crate) turn: Turn,
    pub(crate) past: Past,
    pub(crate) place: Place,
    pub(crate) under_way: UnderWay,
    /// Ends every turn of the host.
    pub(crate) stop: CancellationToken,
}

/// Who takes a turn.
pub(crate) enum Taker {
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

/// What was said so far.
#[derive(Default)]
struct Progress {
    /// The answer's text, where it came in deltas.
    reply: Option<String>,
    /// Questions that were asked since the checkpoint.
    asked: usize,
    /// The tool calls that began, as `[{tool, input}]`.
    trace: Vec<Value>,
    /// Artifacts of the executor's own that have pieces and no last one.
    open: Vec<String>,
}

// === impl Taker ===

impl Taker {
    /// The name of the executor that the turn belongs to.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Executor(executor) => executor.name(),
            Self::OutOfService { executor, .. } => executor,
        }
    }
}

// === impl Run ===

impl Run {
    /// Runs the turn. Returns when its last word is in the store.
    pub(crate) async fn finish(self) {
        let Self { live, taker, store, observers, turn, past, place, under_way, stop } = self;
        let mut progress = Progress::default();
        let end = tokio::select! {
            biased;
            () = stop.cancelled() => End::Result(Err(Failure::new(FailureKind::Cancelled, STOPPED))),
            () = live.cancel.cancelled() => End::Cancelled,
            _turn = place.turn() => {
                let execution = execute(&live, &taker, &store, &observers, &turn, past, &mut progress);
                let execution = AssertUnwindSafe(execution).catch_unwind();
                tokio::select! {
                    biased;
                    () = stop.cancelled() => End::Result(Err(Failure::new(FailureKind::Cancelled, STOPPED))),
                    end = execution => end.unwrap_or_else(|_| End::Result(Err(Failure::new(
                        FailureKind::Internal,
                        "the executor panicked; the log has the details",
                    )))),
                }
            }
        };
        live.set_asking(None);
        if let End::Result(Err(failure)) = &end {
            warn!(kind = ?failure.kind, retryable = failure.retryable, "turn failed");
        }
        let written = live.append(|task| Ok::<_, StoreError>(last_words(&end, task, &progress))).await;
        match written {
            Ok(_) => {}
            // It ended some other way first, and that is final.
            Err(StoreError::Illegal(illegal)) => debug!(%illegal, "the end of a turn came too late"),
            Err(error) => {
                warn!(%error, "the end of a turn was not written down");
                let why = vec![Part::text(format!("the answer was not stored: {error}"))];
                let failed = Event::ended(State::Failed, why, None);
                let _ = live.append(|_| Ok::<_, StoreError>(vec![failed.clone()])).await;
            }
        }
        drop(under_way);
    }
}

async fn execute(
    live: &Arc<Live>,
    taker: &Taker,
    store: &Arc<dyn Store>,
    observers: &[Arc<dyn TurnObserver>],
    turn: &Turn,
    past: Past,
    progress: &mut Progress,
) -> End {
    if let Err(error) = live.append(|_| Ok::<_, StoreError>(vec![Event::moved(State::Working)])).await {
        return End::Result(Err(unstored(&error)));
    }
    let executor = match taker {
        Taker::Executor(executor) => executor,
        Taker::OutOfService { executor, failure } => {
            let failed = std::future::ready(Err(failure.clone()));
            return End::Result(observe(observers, executor, turn, &live.cancel, failed).await);
        }
    };
    let (scope, mut said) = Scope::new(
        PIECES,
        live.cancel.clone(),
        Arc::clone(store),
        turn.principal.clone(),
        turn.context.clone(),
        executor.name(),
    );
    let call = executor.execute(turn.clone(), scope.with(past));
    let mut execution = pin!(observe(observers, executor.name(), turn, &live.cancel, call));
    let mut question: Option<Question> = None;
    loop {
        let heard = hear(question.as_mut());
        tokio::select! {
            biased;
            () = live.cancel.cancelled() => {
                drop((question, said));
                // The executor's pending call fails by itself; the upstream is told meanwhile.
                let _ = tokio::join!(tokio::time::timeout(GRACE, execution), stop(live, executor, turn));
                return End::Cancelled;
            }
            Some(piece) = said.recv() => {
                match take(live, piece, &mut said, progress).await {
                    Ok(asked) => question = asked.or(question),
                    Err(failure) => return End::Result(Err(failure)),
                }
            }
            message = heard => {
                live.set_asking(None);
                match (message, question.take()) {
                    (Some(message), Some((_, answer))) => drop(answer.send(message)),
                    _ => if let Err(error) = work_on(live).await {
                        return End::Result(Err(unstored(&error)));
                    },
                }
                // An answer that came too late is an answer to that question still, not to the next one.
                progress.asked = live.task().answers.len();
            }
            result = &mut execution => {
                if result.is_err() && live.cancel.is_cancelled() {
                    // It heard of the cancel before we did.
                    stop(live, executor, turn).await;
                    return End::Cancelled;
                }
                while let Ok(piece) = said.try_recv() {
                    if let Err(failure) = take(live, piece, &mut said, progress).await {
                        return End::Result(Err(failure));
                    }
                }
                return End::Result(result);
            }
        }
    }
}

/// Tells the upstream of a cancelled turn.
async fn stop(live: &Live, executor: &Arc<dyn Executor>, turn: &Turn) {
    let checkpoint = live.task().checkpoint.clone().map(|checkpoint| checkpoint.0);
    let stopped = tokio::time::timeout(GRACE, executor.cancel(Turn { checkpoint, ..turn.clone() })).await;
    if !matches!(stopped, Ok(Ok(()))) {
        warn!(?stopped, "the upstream may still be at work on a cancelled turn");
    }
}

/// Where a question's answer comes from, and who waits for it.
type Question = (mpsc::Receiver<Message>, oneshot::Sender<Message>);

/// The answer to the question that is open, or none when it is withdrawn. Waits for ever where there is no question.
async fn hear(question: Option<&mut Question>) -> Option<Message> {
    let Some((answers, asking)) = question else { return std::future::pending().await };
    tokio::select! {
        biased;
        Some(message) = answers.recv() => Some(message),
        () = asking.closed() => None,
    }
}

/// The question was withdrawn: the task is no longer interrupted, unless an answer has seen to that.
async fn work_on(live: &Live) -> Result<(), StoreError> {
    let working = |task: &Task| match task.status.state.is_interrupted() {
        true => vec![Event::moved(State::Working)],
        false => Vec::new(),
    };
    live.append(|task| Ok(working(task))).await.map(drop)
}

/// Takes what the turn said, with whatever else it has said meanwhile: one append, so one write.
async fn take(
    live: &Live,
    first: Said,
    more: &mut mpsc::Receiver<Said>,
    progress: &mut Progress,
) -> Result<Option<Question>, Failure> {
    let mut events = Vec::new();
    let mut next = Some(first);
    while let Some(said) = next {
        match said {
            Said::Emitted(emitted) => events.push(progress.event(*emitted)),
            Said::Checkpoint { data, kept } => {
                events.push(Event::Checkpoint(data));
                let written = append(live, std::mem::take(&mut events)).await;
                let failed = written.is_err();
                let _ = kept.send(written);
                if failed {
                    return Ok(None);
                }
                progress.asked = 0;
            }
            Said::Ask { parts, answer } => {
                let asked = progress.asked;
                progress.asked += 1;
                let task = live.task();
                let known = task.answers.get(asked).and_then(|at| task.history.get(*at));
                if let Some(known) = known {
                    // Executed again after a restart: the answer came already.
                    let _ = answer.send(known.clone());
                } else {
                    let (to, answers) = mpsc::channel(1);
                    live.set_asking(Some(to));
                    events.push(Event::said(State::InputRequired, parts));
                    append(live, events).await.map_err(|error| unstored(&error))?;
                    return Ok(Some((answers, answer)));
                }
            }
        }
        next = more.try_recv().ok();
    }
    append(live, events).await.map_err(|error| unstored(&error))?;
    Ok(None)
}

async fn append(live: &Live, events: Vec<Event>) -> Result<(), StoreError> {
    live.append(|_| Ok(events.clone())).await.map(drop)
}

/// The last events of a turn.
fn last_words(end: &End, task: &Task, progress: &Progress) -> Vec<Event> {
    match end {
        End::Cancelled => progress.closed_by(Event::ended(State::Canceled, Vec::new(), None)),
        End::Result(Err(failure)) => {
            let why = vec![Part::text(failure.message.clone())];
            progress.closed_by(Event::ended(State::Failed, why, None))
        }
        End::Result(Ok(outcome)) => outcome_events(outcome, task, progress),
    }
}

fn outcome_events(outcome: &Outcome, task: &Task, progress: &Progress) -> Vec<Event> {
    let mut metadata = outcome.metadata.clone().unwrap_or_default();
    let status_text = metadata.remove("talaria/status").and_then(|text| text.as_str().map(str::to_owned));
    if let Some(usage) = outcome.usage {
        metadata.insert(
            "usage".into(),
            json!({ "input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens }),
        );
    }
    if !progress.trace.is_empty() {
        metadata.entry("tool_trace").or_insert_with(|| progress.trace.clone().into());
    }
    let metadata = (!metadata.is_empty()).then_some(metadata);
    let (state, parts) = match outcome.state {
        FinalState::Completed => {
            // Messages that came meanwhile are answered before the task is over.
            let state = if task.pending.len() > 1 { State::Working } else { State::Completed };
            let ended = Event::ended(state, status_text.into_iter().map(Part::text).collect(), metadata);
            if outcome.parts.is_empty() {
                return progress.closed_by(ended);
            }
            let answer = match progress.whole(&outcome.parts) {
                Some(whole) => Event::Whole(whole),
                None => Event::Artifact { artifact: reply(outcome.parts.clone()), append: false, last: true },
            };
            return progress.closings().chain([answer, ended]).collect();
        }
        FinalState::InputRequired => (State::InputRequired, outcome.parts.clone()),
        FinalState::AuthRequired => (State::AuthRequired, outcome.parts.clone()),
        FinalState::Rejected => (State::Rejected, outcome.parts.clone()),
    };
    progress.closed_by(Event::ended(state, parts, metadata))
}

// === impl Progress ===

impl Progress {
    /// The answer in the words of the deltas, where these parts say the same in words: blanks are no difference. What is
    /// not text follows.
    fn whole(&self, parts: &[Part]) -> Option<Artifact> {
        let said = self.reply.as_ref()?;
        let (texts, others): (Vec<_>, Vec<_>) = parts.iter().partition(|part| part.is_text());
        let [Part { content: Content::Text(text), filename: None, .. }] = texts.as_slice() else {
            return None;
        };
        let is_said = words(text).eq(words(said));
        let first =
            texts.into_iter().map(|part| Part { content: Content::Text(said.clone()), ..part.clone() });
        is_said.then(|| reply(first.chain(others.into_iter().cloned()).collect()))
    }

    /// The end of a turn that adds nothing to its answer: what came in pieces is closed before it.
    fn closed_by(&self, end: Event) -> Vec<Event> {
        let said = self.reply.iter().map(|said| Event::Whole(reply(vec![Part::text(said.clone())])));
        self.closings().chain(said).chain([end]).collect()
    }

    /// Closes the artifacts that were left open.
    fn closings(&self) -> impl Iterator<Item = Event> {
        self.open.iter().map(|id| Event::Artifact {
            artifact: Artifact::new(id.clone(), Vec::new()),
            append: true,
            last: true,
        })
    }

    fn event(&mut self, emitted: Emitted) -> Event {
        match emitted {
            Emitted::TextDelta(text) => {
                let append = self.reply.is_some();
                self.reply.get_or_insert_default().push_str(&text);
                Event::Artifact { artifact: reply(vec![Part::text(text)]), append, last: false }
            }
            Emitted::Artifact { artifact, append, last } => {
                self.open.retain(|id| *id != artifact.id);
                if !last && self.open.len() < OPEN {
                    self.open.push(artifact.id.clone());
                }
                Event::Artifact { artifact, append, last }
            }
            Emitted::Status(text) => Event::said(State::Working, vec![Part::text(text)]),
            Emitted::Tool(tool) => {
                self.trace(&tool);
                Event::Note {
                    name: "tool-progress".into(),
                    value: json!({
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
                }
            }
            Emitted::Custom { name, value } => Event::Note { name, value },
        }
    }

    fn trace(&mut self, tool: &ToolProgress) {
        if tool.state == ToolState::Started && self.trace.len() < TRACED {
            let line: String = tool.label.iter().flat_map(|label| label.chars()).take(TRACED_LINE).collect();
            self.trace.push(json!({ "tool": tool.name, "input": line }));
        }
    }
}

/// A text without its blanks.
fn words(text: &str) -> impl Iterator<Item = char> {
    text.chars().filter(|char| !char.is_whitespace())
}

fn reply(parts: Vec<Part>) -> Artifact {
    Artifact::new(REPLY, parts)
}

fn unstored(error: &StoreError) -> Failure {
    Failure {
        kind: FailureKind::Internal,
        message: format!("the turn was not stored: {error}"),
        retryable: true,
    }
}
