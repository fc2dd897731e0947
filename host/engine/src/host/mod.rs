//! The imports of a guest: one module for each interface of the contract, and one for WASI.
//!
//! [`Ctx`] is the state of one call. Its imports depend on why the guest was called: only a turn has a task, and
//! `describe` has nothing at all.
//!
//! Calls that are not logged elsewhere are traced with the target `import`, without their content. `talaria executor
//! test` shows them.

mod budget;
pub(crate) mod callback;
mod config;
mod control;
pub(crate) mod events;
pub(crate) mod http;
pub(crate) mod log;
mod outbound;
pub(crate) mod pieces;
mod result;
pub(crate) mod span;
mod state;
mod stdio;
mod tools;
mod wasi;

use std::collections::HashSet;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use talaria_budget::Budget;
use talaria_redact::TextStream;
use talaria_turns::{CallingTurn, Emitted, Message, Scope, TaskKey, Timeline, Turn};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::WasiCtx;
use wasmtime_wasi_http::WasiHttpCtx;

use crate::contract::bindings::talaria::executor::types;
use crate::convert;
use crate::executor::Shared;
use crate::limits::{Cpu, Limits, Memory};
use crate::pending_calls::PendingCalls;
use crate::pool::Engine;
use crate::session::{Session, Withheld};

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
    calling: CallingTurn,
    pub(crate) session: Session,
    /// The metadata keys that the executor does not see.
    pub(crate) withheld: Withheld,
}

/// The size of the largest secret that is recognised where a text is cut. A private key of 4096 bits has 3.2 KiB.
const SECRET: usize = 4 << 10;

/// The state of one call.
pub(crate) struct Ctx {
    purpose: Purpose,
    limits: Limits,
    pub(crate) memory: Memory,
    pub(crate) cpu: Cpu,
    pub(crate) calls: PendingCalls,
    table: ResourceTable,
    /// Created when the guest first uses it, which most turns never do.
    wasi: Option<Box<WasiCtx>>,
    wasi_http: Option<Box<WasiHttpCtx>>,
    outbound: outbound::Outbound,
    /// Created with `wasi`.
    stdio: Option<stdio::Stdio>,
    budget: budget::Budget,
    open_spans: usize,
    deltas: Option<TextStream>,
    pieces: pieces::Pieces,
    /// The ids of the artifacts that the turn has made.
    artifacts: HashSet<String>,
}

impl Ctx {
    /// Creates the state of a call. The guest shares `cpu_permits` with all others that compute, and `budget` with
    /// everything that callers make the host hold.
    pub(crate) fn new(
        mut purpose: Purpose,
        limits: &Limits,
        cpu_permits: &Arc<Semaphore>,
        budget: &Budget,
    ) -> Self {
        let (cancelled, reserved) = match &mut purpose {
            Purpose::Execute { scope, .. } => (Some(scope.cancelled().clone()), scope.take_memory()),
            Purpose::Describe | Purpose::Probe(_) | Purpose::Cancel { .. } => (None, None),
        };
        let charge = reserved.unwrap_or_else(|| budget.nothing());
        let timeline = purpose.scope().and_then(Scope::timeline).cloned();
        let outbound = outbound::Outbound::new(purpose.shared().cloned(), cancelled, timeline, limits);
        let mut table = ResourceTable::new();
        table.set_max_capacity(limits.resources);
        Self {
            purpose,
            limits: *limits,
            memory: Memory::new(limits.memory, charge),
            cpu: Cpu::new(limits.cpu, Arc::clone(cpu_permits)),
            calls: PendingCalls::default(),
            table,
            wasi: None,
            wasi_http: None,
            outbound,
            stdio: None,
            budget: budget::Budget::new(limits),
            open_spans: 0,
            deltas: None,
            pieces: pieces::Pieces::default(),
            artifacts: HashSet::new(),
        }
    }

    /// What the calls of a probe say about its executor.
    pub(crate) fn verdict(&self) -> outbound::Verdict {
        self.outbound.verdict.clone()
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns what the guest wrote to its standard error, usually the message of a panic. It is not redacted yet.
    pub(crate) fn stderr_text(&self) -> String {
        self.stdio.as_ref().map(|stdio| stdio.stderr.text().trim().to_owned()).unwrap_or_default()
    }

    /// See [`for_log`].
    pub(crate) fn for_log(&self, text: &str, most: usize) -> String {
        for_log(self.shared(), text, most)
    }

    /// Emits the text that the redactor still holds back.
    pub(crate) async fn flush(&mut self) {
        let mut rest = self.pieces.finish();
        let delta = self.deltas.as_mut().map(TextStream::finish).filter(|delta| !delta.is_empty());
        rest.extend(delta.map(Emitted::TextDelta));
        let Some(scope) = self.scope() else { return };
        for rest in rest {
            let _ = scope.emit(rest).await;
        }
    }

    /// The timeline of the turn that the call is for.
    pub(crate) fn timeline(&self) -> Option<&Arc<Timeline>> {
        self.scope()?.timeline()
    }

    fn shared(&self) -> Option<&Arc<Shared>> {
        self.purpose.shared()
    }

    fn scope(&self) -> Option<&Scope> {
        self.purpose.scope()
    }

    /// Returns the turn that the call is about, if any.
    fn about(&self) -> Option<&About> {
        self.purpose.about()
    }

    /// Converts a message of the turn's caller.
    fn message(&self, message: &Message) -> types::Message {
        convert::message(message, self.about().map(|about| about.withheld).unwrap_or_default())
    }

    fn task(&self) -> Option<TaskKey> {
        let CallingTurn { owner, task, .. } = &self.about()?.calling;
        Some(TaskKey { owner: owner.clone(), task: task.clone() })
    }

    /// Returns whether the turn was cancelled.
    fn is_cancelled(&self) -> bool {
        self.scope().is_some_and(|scope| scope.cancelled().is_cancelled())
    }
}

/// Returns the result of `wait`, or `None` if the turn is cancelled before or meanwhile. Outside of a turn there is no
/// cancellation.
///
/// What need not wait, such as most events, does not enter the list of those who wait for the cancellation.
async fn unless_cancelled<T>(scope: Option<&Scope>, wait: impl Future<Output = T>) -> Option<T> {
    let Some(cancelled) = scope.map(Scope::cancelled) else { return Some(wait.await) };
    if cancelled.is_cancelled() {
        return None;
    }
    let (mut wait, mut cancelled) = (pin!(wait), pin!(cancelled.cancelled()));
    poll_fn(|context| match wait.as_mut().poll(context) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending => cancelled.as_mut().poll(context).map(|()| None),
    })
    .await
}

/// Redacts a text of the guest for the log or the trace, and cuts it where it takes more than `most` bytes there.
///
/// It is redacted before it is cut, so that the cut leaves no half of a secret, which nothing would recognise. Of a long
/// text only the beginning is redacted; the end of that, where a secret may be cut in half, is left out.
fn for_log(shared: Option<&Arc<Shared>>, text: &str, most: usize) -> String {
    let window = cut(text, most + SECRET);
    let mut redacted = match shared {
        Some(shared) => shared.replies.redactor().all(window),
        None => talaria_redact::shapes(window),
    }
    .into_owned();
    let whole = window.len() == text.len();
    let sure = if whole { redacted.len() } else { redacted.len().saturating_sub(SECRET) };
    let mut size = 0;
    let end = redacted.char_indices().find(|(at, char)| {
        size += printed_char(*char);
        size > most || at + char.len_utf8() > sure
    });
    if let Some((at, _)) = end {
        redacted.truncate(at);
    }
    redacted
}

/// Returns the number of bytes of a text in the log, with its escapes.
fn printed(text: &str) -> usize {
    text.chars().map(printed_char).sum()
}

fn printed_char(char: char) -> usize {
    match char.escape_debug().len() {
        1 => char.len_utf8(),
        escaped => escaped,
    }
}

/// Cuts a text to at most this number of bytes.
fn cut(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or(text)
}

// === impl About ===

impl About {
    pub(crate) fn new(turn: &Turn, engine: &Engine) -> Self {
        let calling = CallingTurn::of(turn);
        let withheld = engine.claims().withheld(&turn.principal);
        Self { calling, session: Session::of(turn, engine.session_keys(), withheld), withheld }
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

    fn scope(&self) -> Option<&Scope> {
        match self {
            Self::Execute { scope, .. } => Some(scope),
            Self::Describe | Self::Probe(_) | Self::Cancel { .. } => None,
        }
    }

    fn about(&self) -> Option<&About> {
        match self {
            Self::Execute { of, .. } | Self::Cancel { of, .. } => Some(of),
            Self::Describe | Self::Probe(_) => None,
        }
    }
}

impl types::Host for Ctx {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_after_it_is_redacted() {
        const MOST: usize = 1_000;
        let ctx = Ctx::new(
            Purpose::Describe,
            &Limits::default(),
            &Arc::new(Semaphore::new(1)),
            &Budget::unlimited(),
        );
        assert_eq!(ctx.for_log("short \n", MOST), "short \n");
        assert_eq!(ctx.for_log(&"x".repeat(100_000), MOST).len(), MOST);
        let escaped = ctx.for_log(&"\u{1b}".repeat(100_000), MOST);
        assert_eq!((escaped.len(), printed(&escaped)), (MOST / 6, MOST / 6 * 6), "as it is printed");
        // Wherever the text is cut, no part of the key is left, also if what comes before it becomes shorter.
        let key = format!("sk-{}", "k".repeat(40));
        for before in (900..1_100).chain(MOST + SECRET - 100..MOST + SECRET + 100) {
            for secrets in [0, 20] {
                let text = format!(
                    "{}{} {key}{}",
                    "y ".repeat(before / 2),
                    format!("{key} ").repeat(secrets),
                    "y".repeat(9_000)
                );
                assert!(!ctx.for_log(&text, MOST).contains("kk"), "{before}");
            }
        }
    }
}
