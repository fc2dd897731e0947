//! An executor without a server.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value};
use talaria_egress::{Access, Bounds, Config, Egress, Pattern, SecretString, Secrets};
use talaria_engine::{
    Component, Engine, EngineConfig, Executor, GrantedTools, Limits, SessionKeys, Spec, Wasi,
};
use talaria_hermes::SESSION_KEYS;
use talaria_store::Memory;
use talaria_turns::{
    Artifact, Callbacks, ContextId, Emitted, Event, Executor as _, Failure, FailureKind, Message, MessageId,
    Outcome, Part, Past, Principal, REPLY, Role, Scope, State, Store, TaskId, TaskKey, Toolbox, Toolboxes,
    Turn, TurnSignal, message_text,
};
use tokio::sync::{OnceCell, mpsc};
use tokio_util::sync::CancellationToken;

use talaria_fakes::guest;

/// A component with settings, a grant and a store. The defaults are those of a built-in executor: the defaults of its
/// schema, and a grant for its declared needs.
pub struct Rig {
    component: Arc<Component>,
    settings: Map<String, Value>,
    grant: Option<Vec<String>>,
    secrets: Vec<(String, String)>,
    bounds: Bounds,
    limits: Limits,
    store: Arc<dyn Store>,
    context: ContextId,
    callbacks: Option<Arc<dyn Callbacks>>,
    tools: GrantedTools,
    wasi: Wasi,
    access: Option<Access>,
}

/// A turn that has ended.
#[derive(Debug)]
pub struct Ran {
    /// The result.
    pub result: Result<Outcome, Failure>,
    /// The events that it emitted.
    pub events: Vec<Emitted>,
    /// The questions that it asked.
    pub questions: Vec<String>,
    /// The checkpoints that it stored.
    pub checkpoints: Vec<Vec<u8>>,
}

/// Capacity of the event channel; small, so that tests see back-pressure.
const EVENTS: usize = 8;

// === impl Rig ===

impl Rig {
    /// A rig for a component of `guests/dist`.
    pub async fn new(name: &str) -> Self {
        Self::of(guest(name)).await
    }

    /// A rig for these bytes.
    pub async fn of(wasm: Vec<u8>) -> Self {
        let component =
            Component::load(Self::engine().await, wasm, |_| ()).await.expect("a component that loads");
        Self {
            component: Arc::new(component),
            settings: Map::new(),
            grant: None,
            secrets: Vec::new(),
            bounds: Bounds::default(),
            limits: Limits::default(),
            store: Arc::new(Memory::new(100)),
            context: ContextId::fresh(),
            callbacks: None,
            tools: GrantedTools::default(),
            wasi: Wasi { random: true, ..Wasi::default() },
            access: None,
        }
    }

    /// The engine of this process. There is only one, because an engine reserves address space for all its slots.
    /// Compiled components are cached beside the test's binary, because each test may be a process of its own.
    pub async fn engine() -> &'static Engine {
        static ENGINE: OnceCell<Engine> = OnceCell::const_new();
        ENGINE
            .get_or_init(|| async {
                let config = EngineConfig {
                    slots: 600,
                    scripted_slots: 10,
                    cache_dir: cache_dir(),
                    ..EngineConfig::default()
                };
                let engine = Engine::new(&config, Egress::new(Config::default())).expect("an engine");
                engine.with_session_keys(SessionKeys(SESSION_KEYS))
            })
            .await
    }

    /// Sets a setting.
    #[must_use]
    pub fn setting(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.settings.insert(name.into(), value.into());
        self
    }

    /// Grants exactly these calls.
    #[must_use]
    pub fn grant<'a>(mut self, patterns: impl IntoIterator<Item = &'a str>) -> Self {
        self.grant = Some(patterns.into_iter().map(str::to_owned).collect());
        self
    }

    /// Grants a secret for every granted call.
    #[must_use]
    pub fn secret(mut self, name: &str, value: &str) -> Self {
        self.secrets.push((name.into(), value.into()));
        self
    }

    /// Sets the bounds of its calls.
    #[must_use]
    pub fn bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// Sets the limits of its turns.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the access, in place of all other grants.
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.access = Some(access);
        self
    }

    /// Sets the WASI capabilities.
    #[must_use]
    pub fn wasi(mut self, wasi: Wasi) -> Self {
        self.wasi = wasi;
        self
    }

    /// Lets it expect callbacks.
    #[must_use]
    pub fn callbacks(mut self, callbacks: Arc<dyn Callbacks>) -> Self {
        self.callbacks = Some(callbacks);
        self
    }

    /// Gives the host these tools, and grants it those of these names.
    #[must_use]
    pub fn tools(mut self, toolbox: Arc<dyn Toolbox>, granted: &[&str]) -> Self {
        let names = granted.iter().map(|name| (*name).to_owned()).collect();
        self.tools = GrantedTools { names, toolboxes: Toolboxes::new(vec![toolbox]) };
        self
    }

    /// Returns the executor.
    #[must_use]
    pub fn executor(&self) -> Executor {
        let description = self.component.description();
        let settings = self.component.settings(&self.settings).expect("settings that fit");
        let implied = || {
            let needs = description.needs.egress.iter();
            needs.map(|need| talaria_engine::fill_in(need, &settings).expect("a setting")).collect()
        };
        let grant: Vec<String> = self.grant.clone().unwrap_or_else(implied);
        let patterns: Vec<Pattern> =
            grant.iter().map(|pattern| pattern.parse().expect("a pattern")).collect();
        let mut secrets = Secrets::new();
        for (name, value) in &self.secrets {
            let value = SecretString::from(value.clone());
            secrets.insert(name.as_str(), value, patterns.clone()).expect("a secret");
        }
        let access = Access {
            executor: description.name.clone(),
            patterns,
            secrets,
            bounds: self.bounds,
            ..Access::default()
        };
        Executor::new(Spec {
            name: description.name.clone(),
            component: Arc::clone(&self.component),
            settings,
            access: Arc::new(self.access.clone().unwrap_or(access)),
            limits: self.limits,
            wasi: self.wasi.clone(),
            callbacks: self.callbacks.clone(),
            tools: self.tools.clone(),
        })
    }

    /// Checks the settings and probes the executor, as a host does before the executor takes turns.
    ///
    /// # Errors
    /// If the settings do not fit the schema or the probe fails.
    pub async fn setup(&self) -> Result<(), Failure> {
        let unfit = |error: talaria_engine::InvalidSettings| {
            Failure::new(FailureKind::InvalidSettings, error.to_string())
        };
        self.component.settings(&self.settings).map_err(unfit)?;
        self.executor().setup().await
    }

    /// Returns a buffered turn with one text, in the rig's context.
    #[must_use]
    pub fn turn(&self, text: &str) -> Turn {
        self.turn_of(vec![Part::text(text)])
    }

    /// Returns a turn with these parts.
    #[must_use]
    pub fn turn_of(&self, parts: Vec<Part>) -> Turn {
        Turn {
            task: TaskId::fresh(),
            context: self.context.clone(),
            message: Arc::new(Message {
                id: MessageId::fresh(),
                role: Role::User,
                parts,
                metadata: None,
                extensions: Vec::new(),
                reference_task_ids: Vec::new(),
            }),
            history: Arc::default(),
            principal: Principal::anyone(),
            streaming: false,
            async_delivery: false,
            metadata: None,
            checkpoint: None,
        }
    }

    /// Stores an earlier turn of the rig's context: a message and its answer.
    pub async fn said(&self, message: &str, answer: &str) {
        let turn = self.turn_of_record(message).await;
        let artifact = Arc::new(Artifact::new(REPLY, vec![Part::text(answer)]));
        let reply = Event::Artifact { artifact, append: false, last: true };
        let key = TaskKey { owner: turn.principal, task: turn.task };
        let events = [reply, Event::ended(State::Completed, Vec::new(), None)];
        self.store.append(&key, 1, &events).await.expect("a task that goes on");
    }

    /// Returns a turn whose task is in the store, so that it can read the history.
    pub async fn turn_of_record(&self, text: &str) -> Turn {
        let turn = self.turn(text);
        let key = TaskKey { owner: turn.principal.clone(), task: turn.task.clone() };
        let (message, executor) = (turn.message.clone(), "rig".into());
        let accepted = Event::Accepted { message, executor, metadata: None, trace: None };
        self.store.create(&key, &turn.context, &[accepted]).await.expect("room in the store");
        turn
    }

    /// Runs a buffered turn with one text.
    pub async fn run(&self, text: &str) -> Ran {
        self.execute(self.turn(text)).await
    }

    /// Runs a streamed turn with one text.
    pub async fn stream(&self, text: &str) -> Ran {
        self.execute(Turn { streaming: true, ..self.turn(text) }).await
    }

    /// Runs a turn. Dropping the future cancels it. Questions are answered with `answer 1`, `answer 2`, and so on.
    pub async fn execute(&self, turn: Turn) -> Ran {
        self.execute_until(turn, CancellationToken::new()).await
    }

    /// Runs a turn that can be cancelled.
    pub async fn execute_until(&self, turn: Turn, cancelled: CancellationToken) -> Ran {
        let mut asked = 0;
        let answer = |_: &str| {
            asked += 1;
            vec![Part::text(format!("answer {asked}"))]
        };
        self.converse(turn, cancelled, answer).await
    }

    /// Runs a turn whose questions a function answers.
    pub async fn converse(
        &self,
        turn: Turn,
        cancelled: CancellationToken,
        mut reply: impl FnMut(&str) -> Vec<Part>,
    ) -> Ran {
        let (running, mut said) = self.begin_until(turn, cancelled);
        let (mut events, mut questions, mut checkpoints) = (Vec::new(), Vec::new(), Vec::new());
        let (result, ()) = tokio::join!(running, async {
            while let Some(piece) = said.recv().await {
                match piece {
                    TurnSignal::Emitted(event) => events.push(*event),
                    TurnSignal::Checkpoint { data, kept } => {
                        checkpoints.push(data);
                        let _ = kept.send(Ok(()));
                    }
                    TurnSignal::Ask { parts, answer } => {
                        let question = message_text(&parts);
                        let reply = Message::agent(reply(&question));
                        questions.push(question);
                        let _ = answer.send(Arc::new(Message { role: Role::User, ..reply }));
                    }
                }
            }
        });
        Ran { result, events, questions, checkpoints }
    }

    /// Starts a turn. Returns its future and its signals. It runs while the future is polled and waits while nobody
    /// receives.
    pub fn begin(
        &self,
        turn: Turn,
    ) -> (impl Future<Output = Result<Outcome, Failure>> + Send + 'static, mpsc::Receiver<TurnSignal>) {
        self.begin_until(turn, CancellationToken::new())
    }

    /// Starts a turn that can be cancelled.
    pub fn begin_until(
        &self,
        turn: Turn,
        cancelled: CancellationToken,
    ) -> (impl Future<Output = Result<Outcome, Failure>> + Send + 'static, mpsc::Receiver<TurnSignal>) {
        let executor = self.executor();
        let (scope, said) = Scope::new(
            EVENTS,
            cancelled,
            Arc::clone(&self.store),
            turn.principal.clone(),
            turn.context.clone(),
            executor.name(),
        );
        let scope = scope.with(Past::Of { task: turn.task.clone(), host_made_only: false });
        (async move { executor.execute(turn, scope).await }, said)
    }
}

// === impl Ran ===

impl Ran {
    /// The reply's text.
    ///
    /// # Panics
    /// If the turn failed or its reply is not a single text.
    #[must_use]
    pub fn text(&self) -> &str {
        let outcome = self.result.as_ref().unwrap_or_else(|failure| panic!("the turn failed: {failure:?}"));
        let [Part { content: talaria_turns::Content::Text(text), .. }] = outcome.parts.as_slice() else {
            panic!("not one text: {:?}", outcome.parts)
        };
        text
    }

    /// The failure.
    ///
    /// # Panics
    /// If the turn did not fail.
    #[must_use]
    pub fn failure(&self) -> &Failure {
        match &self.result {
            Ok(outcome) => panic!("the turn did not fail: {outcome:?}"),
            Err(failure) => failure,
        }
    }

    /// The text deltas, each as it was emitted.
    #[must_use]
    pub fn deltas(&self) -> Vec<&str> {
        let deltas = self.events.iter().filter_map(|event| match event {
            Emitted::TextDelta(text) => Some(text.as_str()),
            _ => None,
        });
        deltas.collect()
    }
}

fn cache_dir() -> Option<PathBuf> {
    // `target/PROFILE/deps/TEST`, and a folder of our own in it.
    let binary = std::env::current_exe().ok()?;
    Some(binary.parent()?.join("rig-components"))
}
