//! `talaria executor test`: loads an executor as `serve` does and runs turns against a stub upstream.
//!
//! The steps follow the life of an executor: load and probe, execute the cassette's turns (once buffered, once streamed),
//! and cancel one turn while it runs. If the executor is refused, the trial ends there. A turn is bounded by the executor's
//! deadline and by [`TURN`], a cancelled turn by [`GRACE`].

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use secrecy::SecretString;
use talaria_config::ConfigError;
use talaria_egress::{Config as EgressConfig, Egress, StubUpstream};
use talaria_engine::{CONTRACT, Engine, EngineConfig};
use talaria_executors::config::standalone;
use talaria_executors::{Executor, ExecutorName, LoadedExecutor, Loader, Readiness};
use talaria_store::Memory;
use talaria_turns::{
    Artifact, Callbacks, ContextId, Emitted, Event, Executor as _, Failure, FinalState, Message, MessageId,
    Outcome, Part, Past, Principal, REPLY, Role, Scope, State, Store, TaskId, TaskKey, Turn, TurnSignal,
    message_text,
};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::callbacks::CassetteCallbacks;
use crate::cassette::{Cassette, CassetteTurn, ExpectedEnd};
use crate::cassette_server::CassetteServer;
use crate::options::{TrialError, TrialOptions};
use crate::report::{Identity, Report, Step};
use crate::timeline::{Timeline, short};

/// The longest turn: the stub answers at once, and nobody waits ten minutes for a test.
const TURN: Duration = Duration::from_secs(60);
/// How long a turn may run on after it was cancelled; then it is dropped, as in `serve`.
const GRACE: Duration = Duration::from_secs(5);
/// Capacity of the event channel, as in `serve`.
const EVENTS: usize = 32;
/// The message if neither the caller nor the cassette has one.
const TEXT: &str = "hello";

/// An executor and everything around it. The stub upstream ends with the trial.
pub struct Trial {
    pub(crate) executor: Executor,
    pub(crate) cassette: Option<Cassette>,
    pub(crate) timeline: Arc<Timeline>,
    pub(crate) secret: SecretString,
    note: fn(String),
    loader: Loader,
    wasm: Arc<[u8]>,
    upstream: Arc<CassetteServer>,
    callbacks: Arc<CassetteCallbacks>,
    lines: Vec<CassetteTurn>,
    store: Arc<dyn Store>,
    ids: Mutex<BTreeSet<String>>,
    _until: DropGuard,
}

/// A turn that has ended.
struct Ran {
    result: Result<Outcome, Failure>,
    /// The emitted text deltas.
    said: String,
    checkpoint: Option<Vec<u8>>,
}

// === impl Trial ===

impl Trial {
    /// Reads the files and starts the stub upstream. Takes over the tracing events of the process.
    ///
    /// # Errors
    /// If a file cannot be used, or the stub or the engine cannot start.
    pub async fn set_up(options: TrialOptions) -> Result<Self, TrialError> {
        let TrialOptions {
            component,
            config,
            cassette,
            text,
            cache_dir,
            compiler,
            session_keys,
            responder,
            note,
        } = options;
        let component = &component;
        let wasm =
            std::fs::read(component).map_err(|error| ConfigError::file(component, error.to_string()))?;
        // Cargo writes `my_agent.wasm` for the package `my-agent`.
        let stem = component.file_stem().unwrap_or_default().to_string_lossy().replace('_', "-");
        let name: ExecutorName = stem.parse().map_err(|error: String| ConfigError::file(component, error))?;
        let secret = format!("rehearsal-{}", uuid::Uuid::new_v4().simple());
        let mut executor = standalone(name, component.clone(), config.as_deref(), &secret)?;
        executor.deadline = executor.deadline.min(TURN);
        let cassette = cassette.as_deref().map(Cassette::read).transpose()?;

        let timeline = Arc::new(Timeline::new());
        let secret = SecretString::from(secret);
        let until = CancellationToken::new();
        let tracker = TaskTracker::new();
        let server =
            CassetteServer::start(cassette.as_ref(), responder, &secret, &timeline, &tracker, until.clone());
        let (upstream, address) = server.await?;
        let lines_heard = Arc::clone(&timeline);
        talaria_observe::tap("error,talaria_engine=warn,guest=trace,import=trace", move |line| {
            lines_heard.line(line)
        })?;
        let calls_heard = Arc::clone(&timeline);
        let stub = StubUpstream { address, on_call: Arc::new(move |call| calls_heard.call(call)) };
        let egress = Egress::new(EgressConfig { stub_upstream: Some(stub), ..EgressConfig::default() });
        let engine =
            EngineConfig { slots: 4, scripted_slots: 2, cache_dir, compiler, ..EngineConfig::default() };
        let engine = Engine::new(&engine, egress)?.with_session_keys(session_keys);
        let replies = cassette.as_ref().map(|cassette| cassette.callbacks.clone()).unwrap_or_default();
        let callbacks = Arc::new(CassetteCallbacks::new(replies, Arc::clone(&timeline)));
        let lines = match (text, &cassette) {
            (Some(text), _) => vec![CassetteTurn { text, ..CassetteTurn::default() }],
            (None, Some(cassette)) if !cassette.turns.is_empty() => cassette.turns.clone(),
            (None, _) => vec![CassetteTurn { text: TEXT.into(), ..CassetteTurn::default() }],
        };
        Ok(Self {
            executor,
            cassette,
            note,
            loader: Loader::standalone(engine, Arc::clone(&callbacks) as Arc<dyn Callbacks>),
            wasm: wasm.into(),
            upstream,
            callbacks,
            lines,
            store: Arc::new(Memory::new(100)),
            ids: Mutex::default(),
            timeline,
            secret,
            _until: until.drop_guard(),
        })
    }

    /// The ids of the trial's turns.
    pub(crate) fn ids(&self) -> BTreeSet<String> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs all steps.
    pub async fn run(&self) -> Report {
        let name = self.executor.name.as_str();
        let (load, loaded) = self.load().await;
        let Some(loaded) = loaded else { return Report::new(name, None, vec![load]) };
        let component = loaded.executor.component();
        let identity = Identity {
            name: component.description().name.clone(),
            version: component.description().version.clone(),
            contract: CONTRACT,
            digest: component.digest().to_owned(),
        };
        let mut steps = vec![load];
        for streaming in [false, true] {
            let context = ContextId::fresh();
            self.rewind();
            for line in &self.lines {
                steps.push(Box::pin(self.execute(&loaded.executor, line, &context, streaming)).await);
            }
        }
        if let Some(line) = self.lines.first() {
            self.rewind();
            steps.push(Box::pin(self.cancel(&loaded.executor, line)).await);
        }
        Report::new(name, Some((identity, component.description().needs.clone())), steps)
    }

    fn rewind(&self) {
        self.upstream.rewind();
        self.callbacks.rewind();
    }

    /// Loads and probes the executor, with the function that `serve` uses.
    async fn load(&self) -> (Step, Option<LoadedExecutor>) {
        self.rewind();
        self.timeline.begin();
        let (executor, wasm) = (self.executor.clone(), Arc::clone(&self.wasm));
        let loaded = Box::pin(self.loader.load(executor, wasm, &self.note)).await;
        let mut problems = Vec::new();
        let outcome = match &loaded {
            Ok(loaded) => {
                let readiness = loaded.readiness();
                if readiness != Readiness::Ready {
                    problems.push(readiness.to_string());
                }
                readiness.to_string()
            }
            Err(reason) => {
                problems.push(reason.clone());
                "refused".into()
            }
        };
        (self.step("load", None, outcome, problems), loaded.ok())
    }

    async fn execute(
        &self,
        executor: &talaria_engine::Executor,
        line: &CassetteTurn,
        context: &ContextId,
        streaming: bool,
    ) -> Step {
        self.timeline.begin();
        let turn = self.turn(&line.text, context, streaming);
        let key = TaskKey { owner: turn.principal.clone(), task: turn.task.clone() };
        let accepted = Event::Accepted {
            message: turn.message.clone(),
            executor: executor.name().into(),
            metadata: None,
            trace: None,
        };
        let is_kept = self.store.create(&key, context, &[accepted]).await.is_ok();
        let Ran { result, said, .. } = self.ran(executor, turn, line, CancellationToken::new()).await;
        let mut problems = Vec::new();
        let (end, text) = match &result {
            Ok(outcome) if outcome.parts.is_empty() => (end(outcome.state), said),
            Ok(outcome) => (end(outcome.state), message_text(&outcome.parts)),
            Err(failure) => (ExpectedEnd::Failed, failure.message.clone()),
        };
        if is_kept && end == ExpectedEnd::Completed {
            // Later turns of this context read it through `state.history`.
            let artifact = Arc::new(Artifact::new(REPLY, vec![Part::text(text.clone())]));
            let reply = Event::Artifact { artifact, append: false, last: true };
            let _ = self.store.append(&key, 1, &[reply, Event::ended(State::Completed, vec![], None)]).await;
        }
        let wanted = line.state.unwrap_or(ExpectedEnd::Completed);
        if end != wanted {
            problems.push(format!("it ended as {}, not as {}", end.name(), wanted.name()));
        }
        for piece in line.expect.iter().filter(|piece| !text.contains(piece.as_str())) {
            problems.push(format!("the reply lacks {piece:?}"));
        }
        let step = if streaming { "execute (streamed)" } else { "execute" };
        self.step(step, Some(&line.text), format!("{}: {}", end.name(), short(&text)), problems)
    }

    /// Cancels a turn while it waits for its upstream, then calls the executor's `cancel`.
    async fn cancel(&self, executor: &talaria_engine::Executor, line: &CassetteTurn) -> Step {
        self.timeline.begin();
        let turn = self.turn(&line.text, &ContextId::fresh(), true);
        let cancelled = CancellationToken::new();
        self.upstream.hold(Some(cancelled.clone()));
        let running = self.ran(executor, turn.clone(), line, cancelled.clone());
        let ran = tokio::select! {
            ran = running => Some(ran),
            () = async { cancelled.cancelled().await; tokio::time::sleep(GRACE).await } => None,
        };
        self.upstream.hold(None);
        let mut problems = Vec::new();
        let mut outcome = match (&ran, cancelled.is_cancelled()) {
            (Some(_), false) => "the turn ended before it could be cancelled".to_owned(),
            (Some(Ran { result: Ok(outcome), .. }), true) => {
                format!("the turn ended as {}", end(outcome.state).name())
            }
            (Some(Ran { result: Err(failure), .. }), true) => {
                format!("the turn ended: {}", short(&failure.message))
            }
            (None, _) => {
                problems
                    .push(format!("it went on for {GRACE:?} after the cancel; look at control.cancelled"));
                "the turn was dropped".to_owned()
            }
        };
        let checkpoint = ran.and_then(|ran| ran.checkpoint);
        self.timeline.note("host", "calls cancel in a fresh instance", "");
        match executor.cancel(Turn { checkpoint, ..turn }).await {
            Ok(()) => outcome.push_str("; cancel ended well"),
            Err(failure) => problems.push(format!("cancel failed: {}", failure.message)),
        }
        self.step("cancel", Some(&line.text), outcome, problems)
    }

    fn step(&self, step: &str, text: Option<&str>, outcome: String, mut problems: Vec<String>) -> Step {
        let (calls, took_ms) = self.timeline.end();
        let unanswered = self.upstream.unanswered();
        problems.extend(unanswered.iter().map(|call| format!("the cassette has no answer for {call}")));
        Step { step: step.into(), text: text.map(str::to_owned), took_ms, outcome, problems, calls }
    }

    /// Runs a turn and records what it emits.
    async fn ran(
        &self,
        executor: &talaria_engine::Executor,
        turn: Turn,
        line: &CassetteTurn,
        cancelled: CancellationToken,
    ) -> Ran {
        let (principal, context) = (turn.principal.clone(), turn.context.clone());
        let store = Arc::clone(&self.store);
        let (scope, heard) = Scope::new(EVENTS, cancelled, store, principal, context, executor.name());
        let scope = scope.with(Past::Of { task: turn.task.clone(), host_made_only: false });
        // The scope's sender is dropped at the end of the turn, which ends the listener.
        let (result, (said, checkpoint)) =
            tokio::join!(executor.execute(turn, scope), self.listen(heard, line));
        Ran { result, said, checkpoint }
    }

    async fn listen(
        &self,
        mut heard: mpsc::Receiver<TurnSignal>,
        line: &CassetteTurn,
    ) -> (String, Option<Vec<u8>>) {
        let (mut said, mut last) = (String::new(), None);
        let mut answers = line.answers.iter();
        while let Some(piece) = heard.recv().await {
            match piece {
                TurnSignal::Emitted(event) => match *event {
                    Emitted::TextDelta(text) => {
                        self.timeline.delta(&text);
                        said.push_str(&text);
                    }
                    Emitted::Artifact { artifact, .. } => {
                        self.timeline.note("events.emit", format!("artifact {}", short(&artifact.id)), "");
                    }
                    Emitted::Status(text) => {
                        self.timeline.note("events.emit", format!("status {}", short(&text)), "");
                    }
                    Emitted::Tool(tool) => {
                        let args = format!("tool-progress {} {:?}", tool.name, tool.state);
                        self.timeline.note("events.emit", args, "");
                    }
                    Emitted::Custom { name, .. } => {
                        self.timeline.note("events.emit", format!("custom {name}"), "");
                    }
                },
                TurnSignal::Checkpoint { data, kept } => {
                    self.timeline.note("state.checkpoint", format!("{} B", data.len()), "kept");
                    last = Some(data);
                    let _ = kept.send(Ok(()));
                }
                TurnSignal::Ask { parts, answer } => {
                    let reply = answers.next().map_or("yes", String::as_str);
                    self.timeline.note("events.ask", short(&message_text(&parts)), short(reply));
                    let _ = answer.send(message(vec![Part::text(reply)]).into());
                }
            }
        }
        (said, last)
    }

    fn turn(&self, text: &str, context: &ContextId, streaming: bool) -> Turn {
        let message = message(vec![Part::text(text)]);
        let turn = Turn {
            task: TaskId::fresh(),
            context: context.clone(),
            message: Arc::new(message),
            history: Arc::default(),
            principal: Principal::anyone(),
            streaming,
            async_delivery: false,
            metadata: None,
            checkpoint: None,
        };
        let ids = [turn.task.to_string(), turn.context.to_string(), turn.message.id.to_string()];
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).extend(ids);
        turn
    }
}

fn message(parts: Vec<Part>) -> Message {
    Message {
        id: MessageId::fresh(),
        role: Role::User,
        parts,
        metadata: None,
        extensions: Vec::new(),
        reference_task_ids: Vec::new(),
    }
}

fn end(state: FinalState) -> ExpectedEnd {
    match state {
        FinalState::Completed => ExpectedEnd::Completed,
        FinalState::InputRequired => ExpectedEnd::InputRequired,
        FinalState::AuthRequired => ExpectedEnd::AuthRequired,
        FinalState::Rejected => ExpectedEnd::Rejected,
    }
}
