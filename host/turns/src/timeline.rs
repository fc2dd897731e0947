//! The timeline of a turn: what it did and when, for its log line, its metrics, its trace and the operator's page.
//!
//! It is written by those who take part in the turn (the service, the engine, the egress behind it) and read by
//! [`TurnObserver`]s, while the turn runs and when it is closed. It holds no content of messages, no query of a URL and no
//! header.
//!
//! It is in memory only: the log of the task is the durable truth, and a write for each step would cost every turn. It is
//! bounded by [`STEPS`] and [`TEXT`]; what is beyond is counted in [`Facts::omitted`]. After a restart a resumed turn begins
//! a new one.
//!
//! If the turn is traced, each step has a place in the trace from its beginning, since the call that it stands for carries it.
//! Steps that follow while a span of the guest is open are children of that span.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use crate::executor::Usage;
use crate::model::{ContextId, Principal, TaskId, Timestamp};
use crate::observer::TurnObserver;
use crate::trace::{SpanId, TraceContext};

/// The steps of a turn that are recorded.
pub const STEPS: usize = 256;
/// The bytes of each text in a step.
pub(crate) const TEXT: usize = 512;

/// The timeline of one turn. Shared by those who take part in the turn.
pub struct Timeline {
    /// The task.
    pub task: TaskId,
    /// The context of the task.
    pub context: ContextId,
    /// Who sent the message.
    pub caller: Principal,
    /// The executor.
    pub executor: Box<str>,
    /// When the message was accepted, or the turn resumed after a restart.
    pub accepted: Timestamp,
    /// The turn's place in a trace, if traces are on.
    pub trace: Option<TraceContext>,
    start: Instant,
    clock: SystemTime,
    observers: Arc<[Arc<dyn TurnObserver>]>,
    facts: Mutex<Facts>,
    /// The open spans of the guest, if the turn is traced, the innermost last.
    open: Mutex<Vec<SpanId>>,
}

/// What is known of a turn. Times count from the acceptance of its message.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    /// Where the turn is.
    pub state: TurnState,
    /// How long it waited for the earlier turns of its context.
    pub queued: Option<Duration>,
    /// How long it waited for an instance of its executor.
    pub waited: Duration,
    /// When the first text of its answer was there.
    pub first_text: Option<Duration>,
    /// When its executor returned, or its call was dropped.
    pub returned: Option<Duration>,
    /// When it ended.
    pub ended: Option<Duration>,
    /// How long its guest computed, imports included.
    pub guest: Duration,
    /// The memory of its guest at the most, in bytes.
    pub memory: usize,
    /// The version of the component, and the beginning of its digest.
    pub component: Option<Arc<ComponentVersion>>,
    /// The model that its executor is set to ask.
    pub model: Option<Arc<str>>,
    /// The tokens that it used.
    pub usage: Option<Usage>,
    /// The bytes of its answer's text.
    pub reply_bytes: usize,
    /// The reason that the caller got, if it failed.
    pub reason: Option<Box<str>>,
    /// The kind of the failure.
    pub failure: Option<&'static str>,
    /// The status and the beginning of the body (scrubbed) of the last response of the upstream that reported an error.
    pub upstream_error: Option<UpstreamError>,
    /// What it did, in the order of the beginnings.
    pub steps: Vec<Step>,
    /// The steps that are not in [`Facts::steps`].
    pub omitted: usize,
}

/// A version of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComponentVersion {
    /// The version that the component declares.
    pub version: Box<str>,
    /// The digest of its bytes.
    pub digest: Box<str>,
}

/// A response of the upstream that reported an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamError {
    /// The status.
    pub status: u16,
    /// The beginning of the body, scrubbed.
    pub body: Box<str>,
}

/// Where a turn is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum TurnState {
    /// It waits for earlier turns of its context.
    #[default]
    Queued,
    /// Its executor was called.
    Running,
    /// Answered.
    Completed,
    /// It asks for more input.
    InputRequired,
    /// It asks the caller to authenticate somewhere.
    AuthRequired,
    /// The executor rejected the message.
    Rejected,
    /// It failed.
    Failed,
    /// The caller cancelled it.
    Canceled,
}

/// Something that a turn did and waited for.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The number of the step in its turn.
    pub number: usize,
    /// The kind.
    pub kind: StepKind,
    /// What was called, at most 512 bytes: `POST http://host/path`, the name of a tool, of a chat, or of a span.
    pub name: Box<str>,
    /// When it began.
    pub began: Duration,
    /// How long it took, once it has ended.
    pub took: Option<Duration>,
    /// The status of the response.
    pub status: Option<u16>,
    /// The bytes of the bodies that were sent and received.
    pub sent: usize,
    /// See [`Step::sent`].
    pub received: usize,
    /// Whether policy denied it.
    pub denied: bool,
    /// Why it failed, at most 512 bytes. If it was denied, this names the line that would allow it.
    pub error: Option<Box<str>>,
    /// Its place in the trace, if the turn is traced.
    pub trace: Option<Box<StepTrace>>,
}

/// What a trace shows of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct StepTrace {
    /// Its span.
    pub span: SpanId,
    /// The span that it is a child of.
    pub parent: SpanId,
    /// What the guest attached to its span: keys and values, scrubbed and bounded before they are added.
    pub attributes: Vec<(Box<str>, Box<str>)>,
    /// What happened in the guest's span, likewise.
    pub events: Vec<(Duration, Box<str>)>,
    /// The span of the other side that belongs to it: the one that posted the callback.
    pub link: Option<TraceContext>,
}

/// The kind of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StepKind {
    /// An outbound HTTP call.
    Call,
    /// A wait for a callback.
    Callback,
    /// A call of a tool of the host.
    Tool,
    /// A span of the guest's own.
    Span,
}

/// A step that has begun. Dropping it ends it.
pub struct OpenStep {
    timeline: Arc<Timeline>,
    step: Mutex<Step>,
}

// === impl Timeline ===

impl Timeline {
    /// The timeline of a turn whose message is accepted now.
    pub(crate) fn begin(
        (task, context, caller): (TaskId, ContextId, Principal),
        executor: &str,
        observers: Arc<[Arc<dyn TurnObserver>]>,
        trace: Option<TraceContext>,
    ) -> Arc<Self> {
        Arc::new(Self {
            task,
            context,
            caller,
            executor: executor.into(),
            accepted: Timestamp::now(),
            trace,
            start: Instant::now(),
            clock: SystemTime::now(),
            observers,
            facts: Mutex::default(),
            open: Mutex::default(),
        })
    }

    /// The time since the message was accepted.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// When something happened, as a point in time for others.
    #[must_use]
    pub fn at(&self, after: Duration) -> Timestamp {
        let millis = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        Timestamp::from_millis(self.accepted.millis().saturating_add(millis))
    }

    /// The same, as exactly as the clock is.
    #[must_use]
    pub fn time(&self, after: Duration) -> SystemTime {
        self.clock.checked_add(after).unwrap_or(self.clock)
    }

    /// What is known now.
    #[must_use]
    pub fn facts(&self) -> Facts {
        self.lock().clone()
    }

    /// The timeline for the operator, with times in milliseconds. What it says about requests is not scrubbed yet.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let facts = self.facts();
        let millis = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
        let steps = facts.steps.iter().map(|step| {
            json!({
                "number": step.number,
                "kind": step.kind.as_str(),
                "name": step.name,
                "began_ms": millis(step.began),
                "took_ms": step.took.map(millis),
                "status": step.status,
                "sent": step.sent,
                "received": step.received,
                "denied": step.denied,
                "error": step.error,
            })
        });
        json!({
            "task": self.task.as_str(),
            "context": self.context.as_str(),
            "caller": self.caller.name(),
            "executor": self.executor,
            "trace_id": self.trace.as_ref().map(|trace| trace.trace.to_string()),
            "model": facts.model.as_deref(),
            "version": facts.component.as_ref().map(|component| &*component.version),
            "digest": facts.component.as_ref().map(|component| &*component.digest),
            "accepted": self.accepted.to_string(),
            "state": facts.state.as_str(),
            "queued_ms": facts.queued.map(millis),
            "waited_ms": millis(facts.waited),
            "first_text_ms": facts.first_text.map(millis),
            "guest_ms": millis(facts.guest),
            "upstream_ms": millis(facts.upstream()),
            "total_ms": millis(facts.ended.unwrap_or_else(|| self.elapsed())),
            "memory_bytes": facts.memory,
            "reply_bytes": facts.reply_bytes,
            "tokens": facts.usage.map(|usage| json!({ "input": usage.input_tokens, "output": usage.output_tokens })),
            "failure": facts.failure,
            "reason": facts.reason,
            "upstream_error": facts.upstream_error.as_ref().map(|error| json!({ "status": error.status, "body": error.body })),
            "steps": steps.collect::<Vec<_>>(),
            "omitted": facts.omitted,
        })
    }

    /// Reads something of what is known now.
    pub fn read<T>(&self, read: impl FnOnce(&Facts) -> T) -> T {
        read(&self.lock())
    }

    /// Notes something. `note` must not block.
    pub fn note(&self, note: impl FnOnce(&mut Facts)) {
        note(&mut self.lock());
    }

    /// Begins a step.
    #[must_use]
    pub fn step(self: &Arc<Self>, kind: StepKind, name: &str) -> OpenStep {
        let trace = self.trace_step(kind);
        let mut facts = self.lock();
        let step = Step {
            number: facts.steps.len() + facts.omitted,
            kind,
            name: cut(name).into(),
            began: self.elapsed(),
            took: None,
            status: None,
            sent: 0,
            received: 0,
            denied: false,
            error: None,
            trace,
        };
        if facts.steps.len() < STEPS {
            facts.steps.push(step.clone());
        } else {
            facts.omitted += 1;
        }
        drop(facts);
        for observer in &*self.observers {
            observer.step_began(self, &step);
        }
        OpenStep { timeline: Arc::clone(self), step: Mutex::new(step) }
    }

    /// Gives a step its place in the trace.
    fn trace_step(&self, kind: StepKind) -> Option<Box<StepTrace>> {
        let trace = self.trace.as_ref()?;
        let mut open = self.open_spans();
        let parent = open.last().copied().unwrap_or_else(|| trace.span.of_guest());
        let span = SpanId::fresh();
        if kind == StepKind::Span {
            open.push(span);
        }
        Some(Box::new(StepTrace { span, parent, attributes: Vec::new(), events: Vec::new(), link: None }))
    }

    fn open_spans(&self) -> MutexGuard<'_, Vec<SpanId>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The executor is called now.
    pub(crate) fn begun(&self) {
        let now = self.elapsed();
        self.note(|facts| {
            facts.state = TurnState::Running;
            facts.queued = Some(now);
        });
    }

    /// Counts text of the answer.
    pub(crate) fn replied(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let now = self.elapsed();
        self.note(|facts| {
            facts.first_text.get_or_insert(now);
            facts.reply_bytes += bytes;
        });
    }

    /// Tells the observers that the message was accepted.
    pub(crate) fn open(self: &Arc<Self>) {
        for observer in &*self.observers {
            observer.accepted(self);
        }
    }

    /// Tells the observers that the task asks, or was answered.
    pub(crate) fn moved(self: &Arc<Self>) {
        for observer in &*self.observers {
            observer.moved(self);
        }
    }

    /// Tells the observers that the end of the turn is in the store.
    pub(crate) fn close(self: &Arc<Self>, state: TurnState) {
        let now = self.elapsed();
        self.note(|facts| {
            facts.state = state;
            facts.ended = Some(now);
        });
        for observer in &*self.observers {
            observer.closed(self);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Timeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Timeline").field("task", &self.task).finish_non_exhaustive()
    }
}

// === impl Facts ===

impl Facts {
    /// How long the turn waited for its upstream: while at least one call or callback was under way.
    #[must_use]
    pub fn upstream(&self) -> Duration {
        let waits = self.steps.iter().filter(|step| matches!(step.kind, StepKind::Call | StepKind::Callback));
        let (mut total, mut until) = (Duration::ZERO, Duration::ZERO);
        // The steps are in the order of their beginnings.
        for step in waits {
            let end = step.began + step.took.unwrap_or_default();
            total += end.saturating_sub(step.began.max(until));
            until = until.max(end);
        }
        total
    }
}

// === impl TurnState ===

impl TurnState {
    /// The name, as in logs, metrics and the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::InputRequired => "input-required",
            Self::AuthRequired => "auth-required",
            Self::Rejected => "rejected",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
        }
    }
}

// === impl StepKind ===

impl StepKind {
    /// The name, as in metrics and the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Callback => "callback",
            Self::Tool => "tool",
            Self::Span => "span",
        }
    }
}

// === impl OpenStep ===

impl OpenStep {
    /// Changes what is known of the step.
    pub fn note(&self, note: impl FnOnce(&mut Step)) {
        note(&mut self.lock());
    }

    /// The step failed; a denial names the line that would allow it.
    pub fn failed(&self, why: &str, denied: bool) {
        self.note(|step| {
            step.error = Some(cut(why).into());
            step.denied = denied;
        });
    }

    /// The headers `traceparent` and `tracestate` of the call that the step stands for, if the turn is traced.
    #[must_use]
    pub fn propagated(&self) -> Option<(String, Option<Arc<str>>)> {
        let context = self.timeline.trace.as_ref()?;
        let span = self.lock().trace.as_ref()?.span;
        Some((context.traceparent(span), context.state.clone()))
    }

    /// Changes what a trace shows of the step, if the turn is recorded in one. `note` gets the time since its acceptance.
    pub fn trace(&self, note: impl FnOnce(&mut StepTrace, Duration)) {
        if self.is_recorded()
            && let Some(trace) = &mut self.lock().trace
        {
            note(trace, self.timeline.elapsed());
        }
    }

    /// Whether the turn is recorded in a trace.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.timeline.trace.as_ref().is_some_and(|trace| trace.sampled)
    }

    /// The number of the step in its turn.
    #[must_use]
    pub fn number(&self) -> usize {
        self.lock().number
    }

    /// The timeline that the step belongs to.
    #[must_use]
    pub fn timeline(&self) -> &Arc<Timeline> {
        &self.timeline
    }

    fn lock(&self) -> MutexGuard<'_, Step> {
        self.step.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenStep {
    fn drop(&mut self) {
        let now = self.timeline.elapsed();
        let step = self.step.get_mut().unwrap_or_else(PoisonError::into_inner);
        step.took = Some(now.saturating_sub(step.began));
        let step = &*step;
        if let (StepKind::Span, Some(trace)) = (step.kind, &step.trace) {
            self.timeline.open_spans().retain(|open| *open != trace.span);
        }
        self.timeline.note(|facts| {
            if let Some(known) = facts.steps.get_mut(step.number) {
                known.clone_from(step);
            }
        });
        for observer in &*self.timeline.observers {
            observer.step_ended(&self.timeline, step);
        }
    }
}

fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(TEXT)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_and_their_texts_are_bounded() {
        let of = (TaskId::fresh(), ContextId::fresh(), Principal::anyone());
        let timeline = Timeline::begin(of, "chat", Arc::default(), None);
        for _ in 0..STEPS + 3 {
            let step = timeline.step(StepKind::Call, &"ä".repeat(TEXT));
            step.failed(&"x".repeat(TEXT + 1), true);
        }
        let facts = timeline.facts();
        assert_eq!((facts.steps.len(), facts.omitted), (STEPS, 3));
        for step in &facts.steps {
            assert_eq!((step.name.len(), step.error.as_ref().map(|text| text.len())), (TEXT, Some(TEXT)));
            assert!(step.denied && step.took.is_some());
        }
    }

    #[test]
    fn waits_that_overlap_count_once() {
        let step = |kind, began, took| Step {
            number: 0,
            kind,
            name: "".into(),
            began: Duration::from_millis(began),
            took: Some(Duration::from_millis(took)),
            status: None,
            sent: 0,
            received: 0,
            denied: false,
            error: None,
            trace: None,
        };
        let steps = vec![
            step(StepKind::Call, 10, 20),
            step(StepKind::Callback, 20, 30),
            step(StepKind::Call, 25, 5),
            step(StepKind::Span, 0, 1000),
            step(StepKind::Call, 100, 1),
        ];
        assert_eq!(Facts { steps, ..Facts::default() }.upstream(), Duration::from_millis(41));
    }

    #[test]
    fn only_the_steps_of_a_traced_turn_have_places_in_the_trace() {
        let begin = |trace| {
            let of = (TaskId::fresh(), ContextId::fresh(), Principal::anyone());
            Timeline::begin(of, "chat", Arc::default(), trace)
        };
        let untraced = begin(None);
        let step = untraced.step(StepKind::Call, "GET http://a/");
        assert_eq!(step.propagated(), None);
        drop(step);
        assert!(untraced.facts().steps.iter().all(|step| step.trace.is_none()));
        assert!(untraced.to_json()["trace_id"].is_null());

        let turn = TraceContext::root(true);
        let timeline = begin(Some(turn.clone()));
        let first = timeline.step(StepKind::Call, "first");
        let outer = timeline.step(StepKind::Span, "outer");
        let inner = timeline.step(StepKind::Span, "inner");
        drop(timeline.step(StepKind::Call, "second"));
        drop(outer);
        drop(timeline.step(StepKind::Call, "third"));
        drop((inner, first));
        drop(timeline.step(StepKind::Call, "last"));
        let traces: Vec<StepTrace> =
            timeline.facts().steps.into_iter().filter_map(|step| step.trace).map(|trace| *trace).collect();
        let [first, outer, inner, second, third, last] = traces.as_slice() else { panic!("{traces:?}") };
        let guest = turn.span.of_guest();
        assert_eq!((first.parent, outer.parent, inner.parent), (guest, guest, outer.span));
        assert_eq!((second.parent, third.parent, last.parent), (inner.span, inner.span, guest));
        assert_eq!(timeline.to_json()["trace_id"], turn.trace.to_string());
    }
}
