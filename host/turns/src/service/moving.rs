//! Turns that compute leave the thread that they began on.
//!
//! A turn stays on the thread of the request that brought it, if that thread has a runtime of its own, so that nothing of a
//! short turn moves between cores. **Promise.** A turn that computes holds up the others of its thread for one tick of the
//! engine: if its polls computed longer than [`LONG`] within [`WINDOW`], it goes on on the shared runtime, where the engine leaves
//! a thread free however many guests compute. It does not come back.
//!
//! The time is taken around the whole poll, so whatever a turn does there counts: the guest's code, and the host's work to
//! copy, redact and store what it passes. A flag of the engine would see the first of them only. It is the thread's CPU time:
//! on a busy machine the kernel suspends a thread for milliseconds within polls that are short, and turns with many polls,
//! such as long streams, would all move.
//!
//! What the turn has registered with its first runtime (sockets, timers) works on, because workers outlive all turns. It is
//! polled again at once where it went, so no wake-up is lost.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio_util::task::TaskTracker;

/// How long a turn may compute on its thread within a window. A short turn takes a twentieth of it in all.
const LONG: Duration = Duration::from_millis(1);
/// One tick of the engine.
const WINDOW: Duration = Duration::from_millis(10);
/// The length of a poll up to which it counts as it is, so that the clock of the CPU, a system call, is read once for it.
const SHORT: Duration = Duration::from_micros(100);

/// A turn on a thread that it may leave. Ends when the turn ends or has left.
struct Movable<F> {
    /// `None` once it ended or left.
    turn: Option<Pin<Box<F>>>,
    to: Handle,
    window: Instant,
    /// What the turn took since `window`.
    took: Duration,
}

/// Spawns a turn here, on the tracker; it moves to the runtime `to` if it computes for long. On a runtime with several threads it
/// stays, since others can take the work that waits behind it.
pub(super) fn spawn<F>(turn: F, tracker: &TaskTracker, to: Option<&Handle>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let here = Handle::current();
    match to.filter(|_| here.runtime_flavor() == RuntimeFlavor::CurrentThread) {
        // The turn is tracked wherever it is, and once.
        Some(to) => drop(here.spawn(Movable::new(tracker.track_future(turn), to.clone()))),
        None => drop(tracker.spawn(turn)),
    }
}

// === impl Movable ===

impl<F> Movable<F> {
    fn new(turn: F, to: Handle) -> Self {
        Self { turn: Some(Box::pin(turn)), to, window: Instant::now(), took: Duration::ZERO }
    }

    /// Notes a poll. Returns whether the turn computes for long.
    fn is_long(&mut self, began: Instant, computed: Duration) -> bool {
        if began.saturating_duration_since(self.window) > WINDOW {
            (self.window, self.took) = (began, Duration::ZERO);
        }
        self.took += computed;
        self.took > LONG
    }
}

impl<F: Future<Output = ()> + Send + 'static> Future for Movable<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(turn) = &mut self.turn else { return Poll::Ready(()) };
        let (began, used) = (Instant::now(), thread_time());
        if turn.as_mut().poll(context).is_ready() {
            self.turn = None;
            return Poll::Ready(());
        }
        let passed = began.elapsed();
        let computed = if passed < SHORT { passed } else { thread_time().saturating_sub(used) };
        if !self.is_long(began, computed) {
            return Poll::Pending;
        }
        if let Some(turn) = self.turn.take() {
            drop(self.to.spawn(turn));
        }
        Poll::Ready(())
    }
}

/// The CPU time that this thread has used.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_polls_count_together_within_a_window_and_not_beyond() {
        let start = Instant::now();
        let at = |micros| start + Duration::from_micros(micros);
        let (runtime, new) = (tokio::runtime::Builder::new_current_thread().build().unwrap(), async {});
        let mut turn = Movable { window: start, ..Movable::new(new, runtime.handle().clone()) };
        let computed = Duration::from_micros(600);
        assert!(!turn.is_long(at(0), computed));
        assert!(!turn.is_long(at(10_100), computed), "another window");
        assert!(turn.is_long(at(11_000), computed), "0.6 ms for the second time in a window");
    }
}
