//! The imports of a guest: one module for each interface of the contract, and one for WASI.
//!
//! [`Ctx`] is the state of one call. Its imports depend on why the guest was called: only a turn has a task, and
//! `describe` has nothing at all.
//!
//! Calls that are not logged elsewhere are traced with the target `import`, without their content. `talaria executor
//! test` shows them.

pub(crate) mod callback;
mod config;
mod control;
pub(crate) mod events;
pub(crate) mod http;
pub(crate) mod log;
mod outbound;
pub(crate) mod span;
mod state;
mod stderr;
mod wasi;

use std::sync::Arc;

use talaria_redact::TextStream;
use talaria_turns::{Emitted, Scope, TaskKey, Turn};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::WasiCtx;
use wasmtime_wasi_http::WasiHttpCtx;

use crate::contract::bindings::talaria::executor::types;
use crate::executor::Shared;
use crate::limits::{Cpu, Limits, Memory};
use crate::session::{Session, SessionKeys};

/// Why the guest was called.
pub(crate) enum Purpose {
    Describe,
    /// A probe or a read of the transcript, outside of a turn.
    Probe(Arc<Shared>),
    Cancel {
        shared: Arc<Shared>,
        of: About,
    },
    Execute {
        shared: Arc<Shared>,
        of: About,
        scope: Scope,
        deadline: Instant,
    },
}

/// The turn that a call is about.
pub(crate) struct About {
    task: TaskKey,
    pub(crate) session: Session,
}

/// The state of one call.
pub(crate) struct Ctx {
    purpose: Purpose,
    limits: Limits,
    pub(crate) memory: Memory,
    pub(crate) cpu: Cpu,
    table: ResourceTable,
    /// Created when the guest first uses it, which most turns never do.
    wasi: Option<Box<WasiCtx>>,
    wasi_http: Option<Box<WasiHttpCtx>>,
    outbound: outbound::Outbound,
    stderr: stderr::CapturedStderr,
    emitted: usize,
    deltas: Option<TextStream>,
}

impl Ctx {
    /// Creates the state of a call. The guest shares `cpu_permits` with all others that compute.
    pub(crate) fn new(purpose: Purpose, limits: &Limits, cpu_permits: &Arc<Semaphore>) -> Self {
        let cancelled = match &purpose {
            Purpose::Execute { scope, .. } => Some(scope.cancelled().clone()),
            Purpose::Describe | Purpose::Probe(_) | Purpose::Cancel { .. } => None,
        };
        let outbound = outbound::Outbound::new(purpose.shared().cloned(), cancelled, limits);
        let mut table = ResourceTable::new();
        table.set_max_capacity(limits.resources);
        Self {
            purpose,
            limits: *limits,
            memory: Memory::new(limits.memory),
            cpu: Cpu::new(limits.cpu, Arc::clone(cpu_permits)),
            table,
            wasi: None,
            wasi_http: None,
            outbound,
            stderr: stderr::CapturedStderr::default(),
            emitted: 0,
            deltas: None,
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns what the guest wrote to its standard error, usually the message of a panic.
    pub(crate) fn stderr_text(&self) -> String {
        let text = self.stderr.text();
        self.shared()
            .map_or_else(String::new, |shared| shared.replies.redactor().all(text.trim()).into_owned())
    }

    /// Emits the text that the redactor of deltas still holds back.
    pub(crate) async fn flush(&mut self) {
        let rest = self.deltas.as_mut().map(TextStream::finish).unwrap_or_default();
        if let (Some(scope), false) = (self.scope(), rest.is_empty()) {
            let _ = scope.emit(Emitted::TextDelta(rest)).await;
        }
    }

    fn shared(&self) -> Option<&Arc<Shared>> {
        self.purpose.shared()
    }

    fn scope(&self) -> Option<&Scope> {
        match &self.purpose {
            Purpose::Execute { scope, .. } => Some(scope),
            Purpose::Describe | Purpose::Probe(_) | Purpose::Cancel { .. } => None,
        }
    }

    /// Returns the turn that the call is about, if any.
    fn about(&self) -> Option<&About> {
        match &self.purpose {
            Purpose::Execute { of, .. } | Purpose::Cancel { of, .. } => Some(of),
            Purpose::Describe | Purpose::Probe(_) => None,
        }
    }

    fn task(&self) -> Option<&TaskKey> {
        self.about().map(|about| &about.task)
    }

    /// Returns whether the turn was cancelled.
    fn is_cancelled(&self) -> bool {
        self.scope().is_some_and(|scope| scope.cancelled().is_cancelled())
    }
}

/// Returns the result of `wait`, or `None` if the turn is cancelled meanwhile. Outside of a turn there is no
/// cancellation.
async fn unless_cancelled<T>(scope: Option<&Scope>, wait: impl Future<Output = T>) -> Option<T> {
    match scope {
        Some(scope) => scope.cancelled().run_until_cancelled(wait).await,
        None => Some(wait.await),
    }
}

// === impl About ===

impl About {
    pub(crate) fn new(turn: &Turn, keys: SessionKeys) -> Self {
        let task = TaskKey { owner: turn.principal.clone(), task: turn.task.clone() };
        Self { task, session: Session::of(turn, keys) }
    }
}

// === impl Purpose ===

impl Purpose {
    fn shared(&self) -> Option<&Arc<Shared>> {
        match self {
            Self::Describe => None,
            Self::Probe(shared) | Self::Cancel { shared, .. } | Self::Execute { shared, .. } => Some(shared),
        }
    }
}

impl types::Host for Ctx {}
