//! An executor: a component with settings, a grant and limits. Every call gets its own instance.

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use secrecy::ExposeSecret;
use serde_json::{Map, Value};
use talaria_egress::Access;
use talaria_redact::ReplyRedactor;
use talaria_turns::{
    Callbacks, CallingTurn, ComponentVersion, Failure, FailureKind, Message, Outcome, Principal, Scope,
    TooLarge, Toolboxes, Turn, Workspaces,
};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tracing::warn;
use wasmtime::component::TypedFunc;
use wasmtime::{PoolConcurrencyLimitError, Store, Trap};

use crate::component::Component;
use crate::contract::bindings::talaria::executor::types as wit;
use crate::convert;
use crate::host::log::{Log, MAX_LINE};
use crate::host::{About, Ctx, Purpose};
use crate::limits::{Denied, INITIAL, Limits, Wasi};

/// The parts of an executor.
pub struct Spec {
    /// The name that it is configured under.
    pub name: String,
    /// The component.
    pub component: Arc<Component>,
    /// Its settings, defaults filled in.
    pub settings: Map<String, Value>,
    /// The egress and the secrets that it may use.
    pub access: Arc<Access>,
    /// The limits of the executor and of its turns.
    pub limits: Limits,
    /// The WASI features that it is granted.
    pub wasi: Wasi,
    /// Where it expects replies out of band; `None` if it may not.
    pub callbacks: Option<Arc<dyn Callbacks>>,
    /// The tools of the host that it may call.
    pub tools: GrantedTools,
}

/// Tools of the host, and which of them an executor may call.
#[derive(Clone, Default)]
pub struct GrantedTools {
    /// The names of those that it may call.
    pub names: Vec<String>,
    /// All tools of the host.
    pub toolboxes: Toolboxes,
}

/// A named, configured component.
pub struct Executor {
    pub(crate) shared: Arc<Shared>,
    pub(crate) component: Arc<Component>,
    room: Semaphore,
    waiting: AtomicUsize,
    on_fault: Option<Box<OnFault>>,
    on_success: Option<Box<OnSuccess>>,
    workspaces: Option<Arc<dyn Workspaces>>,
    version: Arc<ComponentVersion>,
    /// The model in its settings.
    model: Option<Arc<str>>,
}

/// The export that a turn calls. The generated bindings would look up and check all four exports for every turn.
type Execute<'a> = TypedFunc<(&'a wit::Turn,), (Result<wit::Outcome, wit::Failure>,)>;

type OnFault = dyn Fn(Fault, Option<&Sent>) + Send + Sync;
type OnSuccess = dyn Fn(&Sent) + Send + Sync;

/// The message of a turn, and who sent it.
#[derive(Debug, Clone)]
pub struct Sent {
    /// The sender.
    pub by: Principal,
    /// The message.
    pub message: Arc<Message>,
}

/// A call that ended by the guest's own fault, which counts against its component. A slow upstream, a busy executor and
/// a failure that the guest reports itself do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// It trapped: it panicked, recursed without end, or passed more bytes in one call than it may.
    Trap,
    /// It asked for more memory than its limit.
    Memory,
    /// It used more CPU time than its limit.
    Cpu,
    /// It was computing when its deadline passed.
    Deadline,
    /// It returned something invalid.
    Answer,
}

/// The instances of an executor at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Turns that have one.
    pub in_use: usize,
    /// The most.
    pub limit: usize,
    /// Turns that wait for one.
    pub waiting: usize,
    /// The most.
    pub queue_limit: usize,
}

/// The data that all calls of an executor share.
pub(crate) struct Shared {
    pub(crate) name: String,
    pub(crate) settings: Map<String, Value>,
    pub(crate) settings_text: String,
    pub(crate) access: Arc<Access>,
    pub(crate) egress: talaria_egress::Egress,
    pub(crate) replies: ReplyRedactor,
    pub(crate) limits: Limits,
    pub(crate) wasi: Wasi,
    pub(crate) log: Log,
    pub(crate) callbacks: Option<Arc<dyn Callbacks>>,
    pub(crate) tools: GrantedTools,
}

/// How a call ended when the guest did not return.
#[derive(Debug, thiserror::Error)]
pub(crate) enum End {
    #[error("it took longer than {after:?}{}", if *.computing { ", computing at the end" } else { "" })]
    Deadline { after: Duration, computing: bool },
    #[error("it computed for longer than {0:?}")]
    Cpu(Duration),
    #[error("it wanted more memory than the {limit} bytes that it may have, for messages of {messages}")]
    Memory { limit: usize, messages: usize },
    #[error("the host had no memory for it")]
    HostMemory,
    #[error("no slot is free for another instance")]
    Busy,
    #[error("{0} turns wait for their place already")]
    Full(usize),
    #[error("it trapped: {0}")]
    Trap(String),
}

/// The memory that a guest needs for each byte of its messages, beside what it has when it starts. Measured on the built-in
/// executors by halving the limit for messages of a MiB: 6 to 7 in `execute` of those that keep a conversation, less in the
/// others. A message is in the guest as parts, as text, and in the request that it makes, whose buffer doubles. A test
/// sends each of them the largest message that this admits.
const PER_BYTE: usize = 7;

/// If so many copies of its messages would fill the memory that a guest has beside what it starts with, its messages are
/// the reason that it ran out. Interpreters need several times what the built-in executors need: they have a text in UTF-8, in
/// their own form with up to four bytes a character, and as objects.
const COPIES: usize = 64;

/// What else a guest may pass in the call that holds its messages, such as a prompt, settings and tools.
const CALL_REST: usize = 1 << 20;

/// The deadline of a probe, which includes the wait for the upstream.
const SETUP: Duration = Duration::from_secs(15);

/// The deadline of a cancellation, for which the caller waits.
const CANCEL: Duration = Duration::from_secs(5);

// === impl Executor ===

impl Executor {
    /// Creates an executor from its parts.
    #[must_use]
    pub fn new(spec: Spec) -> Self {
        let Spec { name, component, settings, access, limits, wasi, callbacks, tools } = spec;
        let replies = component.engine.replies().clone();
        replies.redactor().learn(access.secrets.values().map(ExposeSecret::expose_secret));
        let shared = Arc::new(Shared {
            settings_text: Value::Object(settings.clone()).to_string(),
            name,
            settings,
            access,
            egress: component.engine.egress().clone(),
            replies,
            log: Log::new(&limits),
            limits,
            wasi,
            callbacks,
            tools,
        });
        let version = Arc::new(ComponentVersion {
            version: component.description().version.as_str().into(),
            digest: component.digest().into(),
        });
        let model = shared.settings.get("model").and_then(Value::as_str).filter(|model| !model.is_empty());
        let model = model.map(Into::into);
        Self {
            shared,
            version,
            model,
            component,
            room: Semaphore::new(limits.concurrency),
            waiting: AtomicUsize::new(0),
            on_fault: None,
            on_success: None,
            workspaces: None,
        }
    }

    /// Calls `report` after every call that ended by the guest's own fault, with the message if the call was for one. It
    /// must not block.
    #[must_use]
    pub fn on_fault(self, report: impl Fn(Fault, Option<&Sent>) + Send + Sync + 'static) -> Self {
        Self { on_fault: Some(Box::new(report)), ..self }
    }

    /// Calls `report` after every turn that ended with an outcome. It must not block.
    #[must_use]
    pub fn on_success(self, report: impl Fn(&Sent) + Send + Sync + 'static) -> Self {
        Self { on_success: Some(Box::new(report)), ..self }
    }

    /// Returns this executor with a workspace, which each turn reads when it begins.
    #[must_use]
    pub fn in_workspace(self, workspaces: Arc<dyn Workspaces>) -> Self {
        Self { workspaces: Some(workspaces), ..self }
    }

    async fn workspace(&self, turn: Option<&Turn>) -> Option<wit::Workspace> {
        let workspaces = Arc::clone(self.workspaces.as_ref()?);
        let workspace = workspaces.workspace(turn.map(CallingTurn::of)).await?;
        Some(convert::workspace(&workspace))
    }

    /// Returns the component.
    #[must_use]
    pub fn component(&self) -> &Component {
        &self.component
    }

    /// Returns the settings, defaults filled in.
    #[must_use]
    pub fn settings(&self) -> &Map<String, Value> {
        &self.shared.settings
    }

    /// Returns the instances that its turns have and wait for now.
    #[must_use]
    pub fn load(&self) -> Load {
        let Limits { concurrency: limit, queue: queue_limit, .. } = self.shared.limits;
        let in_use = limit.saturating_sub(self.room.available_permits());
        Load { in_use, limit, waiting: self.waiting.load(Ordering::Relaxed), queue_limit }
    }

    /// Probes whether the executor can reach what it needs.
    ///
    /// # Errors
    /// Returns [`FailureKind::Upstream`] if the executor is loaded but not ready, also if the guest says that it is but a call
    /// of its probe was denied or answered with 401 or 403, and [`FailureKind::InvalidSettings`]
    /// or [`FailureKind::Internal`] if it must not serve turns.
    pub async fn setup(&self) -> Result<(), Failure> {
        self.probe(wit::SetupReason::Load).await
    }

    /// Repeats the probe, on the readiness timer.
    ///
    /// # Errors
    /// Those of [`Executor::setup`].
    pub async fn recheck(&self) -> Result<(), Failure> {
        self.probe(wit::SetupReason::Readiness).await
    }

    async fn probe(&self, reason: wit::SetupReason) -> Result<(), Failure> {
        let limits = Limits { deadline: SETUP, ..self.shared.limits };
        let context = wit::SetupContext {
            reason,
            settings: self.shared.settings_text.clone(),
            workspace: self.workspace(None).await,
            budget_ms: convert::millis(SETUP),
            metadata: None,
        };
        let ctx = self.ctx(Purpose::Probe(Arc::clone(&self.shared)), &limits);
        let verdict = ctx.verdict();
        let result = call(self.component.pre.engine(), ctx, SETUP, async |store| {
            let instance = self.component.pre.instantiate_async(&mut *store).await?;
            let result = instance.talaria_executor_strategy().call_setup(&mut *store, &context).await?;
            Ok(result.map_err(|failure| store.data_mut().failure(failure)))
        })
        .await;
        result.unwrap_or_else(|end| Err(self.ended(&end, None)))?;
        match verdict.reason() {
            Some(reason) => Err(Failure::new(FailureKind::Upstream, reason)),
            None => Ok(()),
        }
    }

    async fn run(
        &self,
        turn: Turn,
        sent: &Sent,
        scope: Scope,
        deadline: Instant,
    ) -> Result<Outcome, Failure> {
        let of = About::new(&turn, &self.component.engine);
        let (session, withheld) = (of.session.record(&turn), of.withheld);
        let purpose = Purpose::Execute { shared: Arc::clone(&self.shared), of, scope, deadline };
        let ctx = self.ctx(purpose, &self.shared.limits);
        let (workspace, settings) = (self.workspace(Some(&turn)).await, &self.shared.settings_text);
        let turn = convert::turn(turn, session, withheld, workspace, settings, deadline);
        let left = deadline.saturating_duration_since(Instant::now());
        let result = call(self.component.pre.engine(), ctx, left, async |store| {
            let Component { pre, execute, .. } = &*self.component;
            let instance = pre.instance_pre().instantiate_async(&mut *store).await?;
            let execute: Execute<'_> = instance.get_typed_func(&mut *store, execute)?;
            let (result,) = execute.call_async(&mut *store, (&turn,)).await?;
            let ctx = store.data_mut();
            // The redactor holds back text that could be the beginning of a secret.
            ctx.flush().await;
            Ok(result.map(|outcome| ctx.outcome(outcome)).map_err(|failure| ctx.failure(failure)))
        })
        .await;
        match result {
            Ok(Ok(outcome)) => outcome.map_err(|why| {
                self.blame(Fault::Answer, Some(sent));
                Failure::new(FailureKind::Internal, why)
            }),
            Ok(Err(failure)) => Err(failure),
            Err(End::Deadline { computing, .. }) => {
                let end = End::Deadline { after: self.shared.limits.deadline, computing };
                Err(self.ended(&end, Some(sent)))
            }
            Err(end) => Err(self.ended(&end, Some(sent))),
        }
    }

    /// Creates the state of a call.
    pub(crate) fn ctx(&self, purpose: Purpose, limits: &Limits) -> Ctx {
        let engine = &self.component.engine;
        Ctx::new(purpose, limits, engine.computing(), engine.budget())
    }

    /// Whether the guest ran out of memory by the size of its messages, which is no fault of its component.
    fn is_outgrown(&self, end: &End) -> bool {
        let End::Memory { limit, messages } = end else { return false };
        messages.saturating_mul(COPIES) >= limit.saturating_sub(self.component.memory)
    }

    pub(crate) fn blame(&self, fault: Fault, sent: Option<&Sent>) {
        if let Some(report) = &self.on_fault {
            report(fault, sent);
        }
    }

    /// Converts the end of a stopped guest into a failure for the caller. The trap itself goes to the log only.
    pub(crate) fn ended(&self, end: &End, sent: Option<&Sent>) -> Failure {
        warn!(executor = self.shared.name, %end, "stopped a guest");
        if let Some(fault) = end.fault()
            && !self.is_outgrown(end)
        {
            self.blame(fault, sent);
        }
        let (kind, message) = match end {
            End::Deadline { after, .. } => (
                FailureKind::TimedOut,
                format!("the turn took longer than {} and was stopped", convert::seconds(*after)),
            ),
            End::Cpu(after) => (
                FailureKind::TimedOut,
                format!("the executor computed for longer than {} and was stopped", convert::seconds(*after)),
            ),
            End::Memory { limit, messages } if self.is_outgrown(end) => {
                let (name, limit) = (&self.shared.name, limit >> 20);
                let message = format!(
                    "the executor ran out of its {limit} MiB of memory with messages of {messages} bytes; send less, or \
                     have the operator raise `executor.{name}.grant.memory`"
                );
                (FailureKind::Internal, message)
            }
            End::Memory { limit, .. } => {
                (FailureKind::Internal, format!("the executor ran out of its {} MiB of memory", limit >> 20))
            }
            End::HostMemory | End::Busy | End::Full(_) => {
                (FailureKind::Busy, "no room for another turn now; try again later".into())
            }
            End::Trap(_) => {
                (FailureKind::Internal, "the executor crashed; the operator's log has the details".into())
            }
        };
        Failure {
            retryable: matches!(end, End::HostMemory | End::Busy | End::Full(_)),
            ..Failure::new(kind, message)
        }
    }
}

#[async_trait]
impl talaria_turns::Executor for Executor {
    fn name(&self) -> &str {
        &self.shared.name
    }

    async fn execute(&self, turn: Turn, scope: Scope) -> Result<Outcome, Failure> {
        let limit = self.shared.limits.deadline;
        let deadline = Instant::now() + limit;
        let _permit = match self.room.try_acquire() {
            Ok(permit) => permit,
            Err(_) => {
                let Some(_waiting) = Waiting::begin(&self.waiting, self.shared.limits.queue) else {
                    return Err(self.ended(&End::Full(self.shared.limits.queue), None));
                };
                // The wait counts towards the deadline.
                let Ok(Ok(permit)) = timeout_at(deadline, self.room.acquire()).await else {
                    return Err(self.ended(&End::Deadline { after: limit, computing: false }, None));
                };
                permit
            }
        };
        if let Some(timeline) = scope.timeline() {
            timeline.note(|facts| {
                facts.waited = limit.saturating_sub(deadline.saturating_duration_since(Instant::now()));
                facts.component = Some(Arc::clone(&self.version));
                facts.model.clone_from(&self.model);
            });
        }
        // The future is large; boxing it keeps the callers' futures small.
        let sent = Sent::of(&turn);
        let result = Box::pin(self.run(turn, &sent, scope, deadline)).await;
        if let (Ok(_), Some(report)) = (&result, &self.on_success) {
            report(&sent);
        }
        result
    }

    async fn cancel(&self, turn: Turn) -> Result<(), Failure> {
        let sent = Sent::of(&turn);
        let limits = Limits { deadline: CANCEL, ..self.shared.limits };
        let of = About::new(&turn, &self.component.engine);
        let (session, withheld) = (of.session.record(&turn), of.withheld);
        let ctx = self.ctx(Purpose::Cancel { shared: Arc::clone(&self.shared), of }, &limits);
        let (workspace, settings) = (self.workspace(Some(&turn)).await, &self.shared.settings_text);
        let turn = convert::turn(turn, session, withheld, workspace, settings, Instant::now() + CANCEL);
        let result = Box::pin(call(self.component.pre.engine(), ctx, CANCEL, async |store| {
            let instance = self.component.pre.instantiate_async(&mut *store).await?;
            let strategy = instance.talaria_executor_strategy();
            let result = strategy.call_cancel(&mut *store, &turn, turn.checkpoint.as_deref()).await?;
            Ok(result.map_err(|failure| store.data_mut().failure(failure)))
        }))
        .await;
        result.unwrap_or_else(|end| Err(self.ended(&end, Some(&sent))))
    }

    fn memory(&self, bytes: usize) -> Result<usize, TooLarge> {
        let Limits { memory, call_bytes, .. } = self.shared.limits;
        let by_memory = memory.saturating_sub(self.component.memory) / PER_BYTE;
        let by_call = call_bytes.saturating_sub(CALL_REST);
        let executor = || self.shared.name.clone();
        if bytes > by_memory {
            let fix = Some(format!("executor.{}.grant.memory", executor()));
            return Err(TooLarge { executor: executor(), bytes, limit: by_memory, fix });
        }
        if bytes > by_call {
            return Err(TooLarge { executor: executor(), bytes, limit: by_call, fix: None });
        }
        let grown = bytes.saturating_mul(PER_BYTE);
        Ok(INITIAL.saturating_add(grown))
    }
}

// === impl Sent ===

impl Sent {
    fn of(turn: &Turn) -> Self {
        Self { by: turn.principal.clone(), message: Arc::clone(&turn.message) }
    }
}

/// A turn that waits to start.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicUsize, most: usize) -> Option<Self> {
        // Count before the check, so that two turns cannot both take the last place in the queue. If the queue is full,
        // dropping `waiting` reverts the count.
        let before = count.fetch_add(1, Ordering::Relaxed);
        let waiting = Self(count);
        (before < most).then_some(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor")
            .field("name", &self.shared.name)
            .field("component", &self.component)
            .finish()
    }
}

impl End {
    fn fault(&self) -> Option<Fault> {
        match self {
            Self::Trap(_) => Some(Fault::Trap),
            Self::Memory { .. } => Some(Fault::Memory),
            Self::Cpu(_) => Some(Fault::Cpu),
            Self::Deadline { computing: true, .. } => Some(Fault::Deadline),
            Self::Deadline { computing: false, .. } | Self::HostMemory | Self::Busy | Self::Full(_) => None,
        }
    }
}

/// Creates a store, calls the guest in it, and classifies how the call ended. Dropping the future ends the guest.
pub(crate) async fn call<T>(
    engine: &wasmtime::Engine,
    ctx: Ctx,
    within: Duration,
    guest: impl AsyncFnOnce(&mut Store<Ctx>) -> wasmtime::Result<T>,
) -> Result<T, End> {
    let mut store = Store::new(engine, ctx);
    let limits = *store.data().limits();
    store.limiter(|ctx| &mut ctx.memory);
    store.set_hostcall_fuel(limits.call_bytes);
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|mut cx| Ok(cx.data_mut().cpu.tick()));

    let (meter, calls) = (store.data().cpu.meter(), store.data().calls.clone());
    let (ended, computing) = {
        let called = pin!(guest(&mut store));
        let mut called = calls.alongside(called);
        let called = poll_fn(|context| meter.poll(Pin::new(&mut called), context));
        let ended = tokio::time::timeout(within, called).await;
        (ended, meter.is_stopped())
    };
    if let Some(timeline) = store.data().timeline() {
        let memory = store.data().memory.used();
        timeline.note(|facts| {
            facts.guest += meter.used();
            facts.memory = facts.memory.max(memory);
        });
    }
    match ended {
        Ok(Ok(value)) => Ok(value),
        Err(_) => Err(End::Deadline { after: within, computing }),
        Ok(Err(error)) => Err(end(&error, store.data(), &limits)),
    }
}

fn end(error: &wasmtime::Error, ctx: &Ctx, limits: &Limits) -> End {
    if error.is::<PoolConcurrencyLimitError>() {
        return End::Busy;
    }
    match ctx.memory.denied() {
        Some(Denied::Limit) => {
            let messages = ctx.memory.reserved().saturating_sub(INITIAL) / PER_BYTE;
            return End::Memory { limit: limits.memory, messages };
        }
        Some(Denied::Host) => return End::HostMemory,
        None => {}
    }
    if matches!(error.downcast_ref(), Some(Trap::Interrupt)) && ctx.cpu.exhausted() {
        return End::Cpu(limits.cpu);
    }
    let stderr = ctx.stderr_text();
    // A backtrace has the names of functions, which a component chooses.
    let trap =
        if stderr.is_empty() { format!("{error:#}") } else { format!("{stderr} ({:#})", error.root_cause()) };
    End::Trap(ctx.for_log(&trap, MAX_LINE))
}
