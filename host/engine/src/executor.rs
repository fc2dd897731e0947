//! An executor: a component with settings, a grant and limits. Every call gets an instance of its own.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use secrecy::ExposeSecret;
use serde_json::{Map, Value};
use talaria_egress::Access;
use talaria_observe::Redactor;
use talaria_turns::{Callbacks, Failure, FailureKind, Outcome, Scope, Turn, Workspaces};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tracing::{debug, warn};
use wasmtime::component::TypedFunc;
use wasmtime::{PoolConcurrencyLimitError, Store, Trap};

use crate::component::Component;
use crate::contract::bindings::talaria::executor::types as wit;
use crate::convert;
use crate::host::log::Log;
use crate::host::{About, Ctx, Purpose};
use crate::limits::{Limits, Wasi};

/// What makes a component an executor.
pub struct Spec {
    /// The name that it is configured under.
    pub name: String,
    /// The component.
    pub component: Arc<Component>,
    /// Its settings, defaults filled in.
    pub settings: Map<String, Value>,
    /// What it may reach.
    pub access: Arc<Access>,
    /// What it may use.
    pub limits: Limits,
    /// What of WASI it has.
    pub wasi: Wasi,
    /// Where replies come in that it expects; none where it may not expect any.
    pub callbacks: Option<Arc<dyn Callbacks>>,
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
}

/// The export that a turn calls. The bindings would have found and checked all four.
type Execute<'a> = TypedFunc<(&'a wit::Turn,), (Result<wit::Outcome, wit::Failure>,)>;

type OnFault = dyn Fn(Fault) + Send + Sync;
type OnSuccess = dyn Fn() + Send + Sync;

/// A call that ended by the guest's own fault, which counts against its component. A slow upstream, a turn that finds no room
/// and a failure that the guest reports itself do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// It trapped: a panic, an endless recursion, more bytes in a call than it may hand over.
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

/// What all calls of an executor share.
pub(crate) struct Shared {
    pub(crate) name: String,
    pub(crate) settings: Map<String, Value>,
    pub(crate) settings_text: String,
    pub(crate) access: Arc<Access>,
    pub(crate) egress: talaria_egress::Egress,
    pub(crate) redactor: Redactor,
    pub(crate) limits: Limits,
    pub(crate) wasi: Wasi,
    pub(crate) log: Log,
    pub(crate) callbacks: Option<Arc<dyn Callbacks>>,
}

/// How a call ended when the guest did not return.
#[derive(Debug, thiserror::Error)]
pub(crate) enum End {
    #[error("it took longer than {after:?}{}", if *.computing { ", computing at the end" } else { "" })]
    Deadline { after: Duration, computing: bool },
    #[error("it computed for longer than {0:?}")]
    Cpu(Duration),
    #[error("it wanted more memory than the {0} bytes that it may have")]
    Memory(usize),
    #[error("no slot is free for another instance")]
    Busy,
    #[error("{0} turns wait for their place already")]
    Full(usize),
    #[error("it trapped: {0}")]
    Trap(String),
}

/// The deadline of a probe, waiting for the upstream included.
const SETUP: Duration = Duration::from_secs(15);

/// The deadline of a cancellation, for which the caller waits.
const CANCEL: Duration = Duration::from_secs(5);

// === impl Executor ===

impl Executor {
    /// Makes an executor of a component.
    #[must_use]
    pub fn new(spec: Spec) -> Self {
        let Spec { name, component, settings, access, limits, wasi, callbacks } = spec;
        let redactor = Redactor::new(access.secrets.values().map(ExposeSecret::expose_secret));
        let shared = Arc::new(Shared {
            settings_text: Value::Object(settings.clone()).to_string(),
            name,
            settings,
            access,
            egress: component.engine.egress().clone(),
            redactor,
            log: Log::new(&limits),
            limits,
            wasi,
            callbacks,
        });
        Self {
            shared,
            component,
            room: Semaphore::new(limits.concurrency),
            waiting: AtomicUsize::new(0),
            on_fault: None,
            on_success: None,
            workspaces: None,
        }
    }

    /// Tells this function of every call that ends by the guest's own fault, whatever the call was for. It must not
    /// block.
    #[must_use]
    pub fn on_fault(self, tell: impl Fn(Fault) + Send + Sync + 'static) -> Self {
        Self { on_fault: Some(Box::new(tell)), ..self }
    }

    /// Calls this function after every turn that ended with an outcome. It must not block.
    #[must_use]
    pub fn on_success(self, tell: impl Fn() + Send + Sync + 'static) -> Self {
        Self { on_success: Some(Box::new(tell)), ..self }
    }

    /// The same executor in a workspace, which its turns get when they begin.
    #[must_use]
    pub fn in_workspace(self, workspaces: Arc<dyn Workspaces>) -> Self {
        Self { workspaces: Some(workspaces), ..self }
    }

    async fn workspace(&self) -> Option<wit::Workspace> {
        let workspace = Arc::clone(self.workspaces.as_ref()?).workspace().await?;
        Some(convert::workspace(&workspace))
    }

    /// The component.
    #[must_use]
    pub fn component(&self) -> &Component {
        &self.component
    }

    /// Its settings, defaults filled in.
    #[must_use]
    pub fn settings(&self) -> &Map<String, Value> {
        &self.shared.settings
    }

    /// The probe: whether the executor can reach what it needs.
    ///
    /// # Errors
    /// [`FailureKind::Upstream`]: loaded, not ready. [`FailureKind::InvalidSettings`] and
    /// [`FailureKind::Internal`]: not fit for traffic.
    pub async fn setup(&self) -> Result<(), Failure> {
        self.probe(wit::SetupReason::Load).await
    }

    /// The same probe again, on the readiness timer.
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
            workspace: self.workspace().await,
            budget_ms: convert::millis(SETUP),
            metadata: None,
        };
        let ctx = Ctx::new(Purpose::Aside(Arc::clone(&self.shared)), &limits, self.places());
        let result = call(self.component.pre.engine(), ctx, SETUP, async |store| {
            let instance = self.component.pre.instantiate_async(&mut *store).await?;
            instance.talaria_executor_strategy().call_setup(store, &context).await
        })
        .await;
        match result {
            Ok(Ok(())) => Ok(()),
            Ok(Err(failure)) => Err(self.review(failure)),
            Err(end) => Err(self.ended(&end)),
        }
    }

    async fn run(&self, turn: Turn, scope: Scope, deadline: Instant) -> Result<Outcome, Failure> {
        let of = About::new(&turn, self.component.engine.session_keys());
        let session = of.session.record(&turn);
        let ctx = Ctx::new(
            Purpose::Execute { shared: Arc::clone(&self.shared), of, scope, deadline },
            &self.shared.limits,
            self.places(),
        );
        let turn = convert::turn(turn, session, self.workspace().await, &self.shared.settings_text, deadline);
        let left = deadline.saturating_duration_since(Instant::now());
        let result = call(self.component.pre.engine(), ctx, left, async |store| {
            let Component { pre, execute, .. } = &*self.component;
            let instance = pre.instance_pre().instantiate_async(&mut *store).await?;
            let execute: Execute<'_> = instance.get_typed_func(&mut *store, execute)?;
            let (result,) = execute.call_async(&mut *store, (&turn,)).await?;
            // Text that was held back, in case a secret was being spelled out.
            store.data_mut().flush().await;
            Ok(result)
        })
        .await;
        match result {
            Ok(Ok(outcome)) => convert::outcome(outcome, &self.shared.redactor).map_err(|why| {
                self.blame(Fault::Answer);
                Failure::new(FailureKind::Internal, format!("the executor's answer is malformed: {why}"))
            }),
            Ok(Err(failure)) => Err(self.review(failure)),
            Err(End::Deadline { computing, .. }) => {
                Err(self.ended(&End::Deadline { after: self.shared.limits.deadline, computing }))
            }
            Err(end) => Err(self.ended(&end)),
        }
    }

    pub(crate) fn places(&self) -> &Arc<Semaphore> {
        self.component.engine.computing()
    }

    pub(crate) fn blame(&self, fault: Fault) {
        if let Some(tell) = &self.on_fault {
            tell(fault);
        }
    }

    /// A guest's failure, fit for a caller. Its details are for the log.
    pub(crate) fn review(&self, failure: wit::Failure) -> Failure {
        if let Some(details) = &failure.details {
            let details = self.shared.redactor.redact(details);
            debug!(executor = self.shared.name, %details, "the guest gave details of a failure");
        }
        Failure {
            kind: convert::failure_kind(failure.kind),
            message: convert::redacted(failure.message, &self.shared.redactor),
            retryable: failure.retryable,
        }
    }

    /// What a caller reads of a guest that was stopped. The trap itself is for the log.
    pub(crate) fn ended(&self, end: &End) -> Failure {
        warn!(executor = self.shared.name, %end, "a guest was stopped");
        if let Some(fault) = end.fault() {
            self.blame(fault);
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
            End::Memory(limit) => {
                (FailureKind::Internal, format!("the executor ran out of its {} MiB of memory", limit >> 20))
            }
            End::Busy | End::Full(_) => {
                (FailureKind::Busy, "no room for another turn now; try again later".into())
            }
            End::Trap(_) => {
                (FailureKind::Internal, "the executor crashed; the operator's log has the details".into())
            }
        };
        Failure { retryable: matches!(end, End::Busy | End::Full(_)), ..Failure::new(kind, message) }
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
        let _place = match self.room.try_acquire() {
            Ok(place) => place,
            Err(_) => {
                let Some(_waiting) = Waiting::begin(&self.waiting, self.shared.limits.queue) else {
                    return Err(self.ended(&End::Full(self.shared.limits.queue)));
                };
                // Waiting for a turn's place counts like everything else.
                let Ok(Ok(place)) = timeout_at(deadline, self.room.acquire()).await else {
                    return Err(self.ended(&End::Deadline { after: limit, computing: false }));
                };
                place
            }
        };
        // The guest's state machine is large; the callers' futures stay small.
        let result = Box::pin(self.run(turn, scope, deadline)).await;
        if let (Ok(_), Some(tell)) = (&result, &self.on_success) {
            tell();
        }
        result
    }

    async fn cancel(&self, turn: Turn) -> Result<(), Failure> {
        let limits = Limits { deadline: CANCEL, ..self.shared.limits };
        let of = About::new(&turn, self.component.engine.session_keys());
        let session = of.session.record(&turn);
        let ctx = Ctx::new(Purpose::Cancel { shared: Arc::clone(&self.shared), of }, &limits, self.places());
        let (workspace, settings) = (self.workspace().await, &self.shared.settings_text);
        let turn = convert::turn(turn, session, workspace, settings, Instant::now() + CANCEL);
        let result = Box::pin(call(self.component.pre.engine(), ctx, CANCEL, async |store| {
            let instance = self.component.pre.instantiate_async(&mut *store).await?;
            let strategy = instance.talaria_executor_strategy();
            strategy.call_cancel(store, &turn, turn.checkpoint.as_deref()).await
        }))
        .await;
        match result {
            Ok(Ok(())) => Ok(()),
            Ok(Err(failure)) => Err(self.review(failure)),
            Err(end) => Err(self.ended(&end)),
        }
    }
}

/// A turn that waits for its place.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicUsize, most: usize) -> Option<Self> {
        // Counted first, so that two cannot take the last place; dropping it takes it back.
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
            Self::Memory(_) => Some(Fault::Memory),
            Self::Cpu(_) => Some(Fault::Cpu),
            Self::Deadline { computing: true, .. } => Some(Fault::Deadline),
            Self::Deadline { computing: false, .. } | Self::Busy | Self::Full(_) => None,
        }
    }
}

/// Makes a store, calls the guest in it, and sorts out how it ended. Dropping the future ends the guest.
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
    store.call_hook(|mut cx, hook| {
        cx.data_mut().cpu.hook(hook);
        Ok(())
    });
    store.epoch_deadline_callback(|mut cx| Ok(cx.data_mut().cpu.tick()));

    let inside = store.data().cpu.inside();
    let (ended, computing) = {
        let mut called = pin!(tokio::time::timeout(within, guest(&mut store)));
        let ended = called.as_mut().await;
        // Dropping the call unwinds the guest, after which it is nowhere.
        (ended, inside.load(Ordering::Relaxed))
    };
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
    if ctx.memory.refused {
        return End::Memory(limits.memory);
    }
    if matches!(error.downcast_ref(), Some(Trap::Interrupt)) && ctx.cpu.exhausted() {
        return End::Cpu(limits.cpu);
    }
    let said = ctx.last_words();
    End::Trap(if said.is_empty() {
        format!("{error:#}")
    } else {
        format!("{said} ({:#})", error.root_cause())
    })
}
