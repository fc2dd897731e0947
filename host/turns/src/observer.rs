//! Observers of turns: they count turns, and report which ones are running and what they do.
//!
//! An observer is registered once, with [`TurnsBuilder::observer`](crate::TurnsBuilder::observer), and sees every turn of
//! the host. A turn begins when its executor is called; while it waits in the lane of its context it has not begun. Each
//! `began` is followed by exactly one `ended`, even if the executor panics or the host stops.
//!
//! An observer is not a wrapper around each executor, because a wrapper would cost every turn another boxed future.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::executor::{Failure, Outcome, Turn};
use crate::timeline::{Step, Timeline};

/// Sees every turn begin and end. The methods run within the turn, so they must not block.
pub trait TurnObserver: Send + Sync + 'static {
    /// The executor is about to be called. At most one turn of a task is running at a time.
    fn began(&self, executor: &str, turn: &Turn) {
        let _ = (executor, turn);
    }

    /// The executor returned, or its call was dropped.
    fn ended(&self, executor: &str, turn: &Turn, end: TurnEnd<'_>, took: Duration) {
        let _ = (executor, turn, end, took);
    }

    /// The agent of a turn used a tool, as far as its executor reports it.
    fn tool_used(&self) {}

    /// A message was accepted; its turn waits to begin. Followed by exactly one [`TurnObserver::closed`], unless the host is
    /// killed.
    fn accepted(&self, _: &Arc<Timeline>) {}

    /// The task of a turn asks its caller something, or was answered; that is in the store.
    fn moved(&self, _: &Arc<Timeline>) {}

    /// A turn began a step.
    fn step_began(&self, _: &Arc<Timeline>, _: &Step) {}

    /// A step of a turn ended.
    fn step_ended(&self, _: &Arc<Timeline>, _: &Step) {}

    /// The end of a turn is in the store, and its timeline complete.
    fn closed(&self, _: &Arc<Timeline>) {}
}

/// How a turn ended.
#[derive(Debug, Clone, Copy)]
pub enum TurnEnd<'a> {
    /// The executor returned an outcome.
    Outcome(&'a Outcome),
    /// The executor failed.
    Failure(&'a Failure),
    /// The caller cancelled the turn, whatever the executor returned.
    Cancelled,
    /// The host stopped, or the executor panicked.
    Dropped,
}

/// A turn that has begun. Its end is reported once: by [`Observed::end`], or else when this is dropped.
struct Observed<'a> {
    observers: &'a [Arc<dyn TurnObserver>],
    executor: &'a str,
    turn: &'a Turn,
    cancelled: &'a CancellationToken,
    began: Instant,
    is_over: bool,
}

/// Awaits the call of an executor, and reports its begin and its end.
pub(crate) async fn observe(
    observers: &[Arc<dyn TurnObserver>],
    executor: &str,
    turn: &Turn,
    cancelled: &CancellationToken,
    call: impl Future<Output = Result<Outcome, Failure>>,
) -> Result<Outcome, Failure> {
    for observer in observers {
        observer.began(executor, turn);
    }
    let began = Instant::now();
    let mut observed = Observed { observers, executor, turn, cancelled, began, is_over: false };
    let result = call.await;
    observed.end(match &result {
        Ok(outcome) => TurnEnd::Outcome(outcome),
        Err(failure) => TurnEnd::Failure(failure),
    });
    result
}

// === impl Observed ===

impl Observed<'_> {
    fn end(&mut self, end: TurnEnd<'_>) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let end = if self.cancelled.is_cancelled() { TurnEnd::Cancelled } else { end };
        for observer in self.observers {
            observer.ended(self.executor, self.turn, end, self.began.elapsed());
        }
    }
}

impl Drop for Observed<'_> {
    fn drop(&mut self) {
        self.end(TurnEnd::Dropped);
    }
}
