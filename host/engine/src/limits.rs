//! The limits of a guest, and how memory, CPU time and rates are enforced.
//!
//! Memory and CPU time are limited for each call of a guest: growth beyond the memory limit is denied, and a guest that
//! has used up its CPU budget is interrupted.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use talaria_budget::Charge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime::{ResourceLimiter, Result, UpdateDeadline};

/// The limits of an executor and of each of its turns.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Wall-clock time of a turn, both waiting and computing. 600 s is enough for an agent that calls slow tools.
    pub deadline: Duration,
    /// CPU time in the guest's own code and in the host's work for it. Turns mostly wait for an upstream; one that
    /// computes for a minute is stuck.
    pub cpu: Duration,
    /// Bytes of linear memory. Rust guests need two or three MiB plus the size of their prompts.
    pub memory: usize,
    /// Concurrent turns of the executor. Further turns wait, and the wait counts towards their deadline.
    pub concurrency: usize,
    /// Turns that may wait to start. Further turns fail as busy.
    pub queue: usize,
    /// Bytes that the guest may pass to the host in one call, such as a reply, a request body or an event.
    pub call_bytes: usize,
    /// Events, questions and checkpoints that one turn may add to its task. The default is enough for an answer of
    /// 128,000 tokens that arrives token by token.
    pub events: u32,
    /// Bytes that one turn may give the host to store or log: its events, questions, checkpoints, state, spans, log
    /// lines and answer, each with a fixed part (see `host::budget`).
    pub output_bytes: usize,
    /// Outbound calls that one turn may make. A turn that polls every second until its deadline stays below the
    /// default.
    pub calls: u32,
    /// Outbound calls that one turn may have open at once. A guest waits for one call at a time and rarely keeps more
    /// than a few streams open besides.
    pub connections: usize,
    /// Bytes of request bodies that one turn may send.
    pub sent_bytes: usize,
    /// Bytes of response bodies that one turn may receive.
    pub received_bytes: usize,
    /// Log lines per second that all turns of the executor together may write.
    pub log_lines: u32,
    /// Bytes of log lines per second that all turns of the executor together may write.
    pub log_bytes: u32,
    /// Bytes of state that the executor may store for one context.
    pub state_bytes: usize,
    /// Resources (exchanges, spans) that one call may have open at once.
    pub resources: usize,
}

/// The WASI features that an executor is granted beyond the minimum that programs need to start.
#[derive(Debug, Clone, Default)]
pub struct Wasi {
    /// Cryptographically secure random numbers. Without this grant, random numbers differ between instances and are fit
    /// for hash tables but not for keys.
    pub random: bool,
    /// Clocks with the full precision of the machine. Without this grant they are rounded down to milliseconds.
    pub precise_clock: bool,
    /// A folder that the guest sees read-only at [`FOLDER`].
    pub folder: Option<PathBuf>,
    /// Calls by `wasi:http/outgoing-handler`, which use the same egress as all others. Without this grant every such
    /// call is denied.
    pub http: bool,
}

/// The path at which a guest sees its granted folder.
pub const FOLDER: &str = "/data";

impl Default for Limits {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(600),
            cpu: Duration::from_secs(60),
            memory: 64 << 20,
            concurrency: 1_000,
            queue: 1_000,
            call_bytes: 16 << 20,
            events: 200_000,
            output_bytes: 64 << 20,
            calls: 1_000,
            connections: 16,
            sent_bytes: 64 << 20,
            received_bytes: 256 << 20,
            log_lines: 100,
            log_bytes: 64 << 10,
            state_bytes: 1 << 20,
            resources: 1_000,
        }
    }
}

/// Limits the memory of an instance, and charges it to the host's memory. It records why it denied growth, since the guest
/// then traps with a plain `unreachable`.
///
/// What was reserved for the turn is charged already; growth beyond that is charged as it happens. So the memories of all
/// guests together have a bound, whatever they are sent and whatever their upstreams answer.
pub(crate) struct Memory {
    limit: usize,
    /// The size of all memories.
    used: usize,
    /// What of it is charged.
    charged: usize,
    charge: Charge,
    /// What was reserved before it began.
    reserved: usize,
    denied: Option<Denied>,
}

/// Why growth was denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denied {
    /// The guest is at its own limit.
    Limit,
    /// The host has no memory left.
    Host,
}

/// An initial memory of up to this size is charged as [`INITIAL`]: a Rust guest has one of 1.1 to 1.4 MiB, mostly a stack
/// that it does not use, and data that it shares with all other instances.
const SMALL: usize = 2 << 20;
/// What a small initial memory takes: a waiting turn takes 75 KiB, as `cargo xtask bench memory` measures it.
pub(crate) const INITIAL: usize = 128 << 10;

impl Memory {
    /// A memory of at most `limit` bytes, of which `charge` is reserved already.
    pub(crate) fn new(limit: usize, charge: Charge) -> Self {
        Self { limit, used: 0, charged: 0, reserved: charge.bytes(), charge, denied: None }
    }

    /// Why growth was last denied.
    pub(crate) fn denied(&self) -> Option<Denied> {
        self.denied
    }

    /// What was reserved for the turn.
    pub(crate) fn reserved(&self) -> usize {
        self.reserved
    }

    /// The size of all memories.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    fn deny(&mut self, why: Denied) -> Result<bool> {
        self.denied = Some(why);
        Ok(false)
    }
}

/// The maximum number of elements of a table. Rust guests have hundreds, interpreters tens of thousands.
const TABLE_ELEMENTS: usize = 100_000;

impl ResourceLimiter for Memory {
    /// Applies the limit to all memories of the instance together.
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> Result<bool> {
        let grown = desired.saturating_sub(current);
        let used = self.used.saturating_add(grown);
        if used > self.limit {
            return self.deny(Denied::Limit);
        }
        let cost = if current == 0 && desired <= SMALL { desired.min(INITIAL) } else { grown };
        let charged = self.charged.saturating_add(cost);
        if let Some(more) = charged.checked_sub(self.charge.bytes())
            && self.charge.grow(more).is_err()
        {
            return self.deny(Denied::Host);
        }
        (self.used, self.charged) = (used, charged);
        Ok(true)
    }

    fn table_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> Result<bool> {
        Ok(desired <= TABLE_ELEMENTS)
    }
}

/// Measures the CPU time of a call, and shares the runtime's threads between guests that compute.
///
/// The clock runs while the call's future is polled, so that everything counts that is done on the guest's behalf: its
/// own code, and the host's work to copy, parse, convert and redact what it passes. Nothing counts while it waits.
/// Counting ticks would overcharge a guest that wakes often. Stopping the clock in host calls would make the host's
/// work free, and a guest could have it repeated without end.
///
/// A guest that computes for longer than a tick needs a permit to continue. There is one permit fewer than there are
/// threads, so one thread is always free for other work, however many guests compute. A guest returns its permit at
/// every tick and whenever it waits, and waiting guests get permits in the order in which they asked.
///
/// Nothing else is known of a guest than its polls and its ticks: a hook at each call between guest and host would run 68
/// times in a turn.
pub(crate) struct Cpu {
    budget: Duration,
    meter: Meter,
    permits: Arc<Semaphore>,
}

/// The clock of a call. Shared, because `executor::call` polls the future that borrows the store.
#[derive(Clone, Default)]
pub(crate) struct Meter(Arc<Mutex<Reading>>);

#[derive(Default)]
struct Reading {
    used: Duration,
    polled_since: Option<Instant>,
    /// Whether a tick has stopped the guest, which would compute if it were polled.
    stopped: bool,
    permit: Option<OwnedSemaphorePermit>,
}

/// The time after which a guest that was woken counts as computing. A tick is noticed when the guest next runs, which may
/// be long after it: a guest that waits for an upstream would yield, and need a permit, whenever it is woken.
const AWAKE: Duration = Duration::from_millis(1);

/// A poll that is under way.
struct Polling<'a>(&'a Meter);

impl Cpu {
    pub(crate) fn new(budget: Duration, permits: Arc<Semaphore>) -> Self {
        Self { budget, meter: Meter::default(), permits }
    }

    /// Handles a tick: yields to others, or interrupts a guest whose budget is used up.
    pub(crate) fn tick(&mut self) -> UpdateDeadline {
        if self.exhausted() {
            return UpdateDeadline::Interrupt;
        }
        if !self.meter.stop() {
            return UpdateDeadline::Continue(1);
        }
        let (permits, meter) = (Arc::clone(&self.permits), self.meter.clone());
        UpdateDeadline::YieldCustom(
            1,
            Box::pin(async move {
                // Also yields to tasks that the runtime's timers and sockets have just woken, not only to those already
                // ready.
                tokio::task::yield_now().await;
                let permit = permits.acquire_owned().await;
                let mut reading = meter.lock();
                (reading.permit, reading.stopped) = (permit.ok(), false);
            }),
        )
    }

    pub(crate) fn meter(&self) -> Meter {
        self.meter.clone()
    }

    pub(crate) fn exhausted(&self) -> bool {
        self.meter.used() > self.budget
    }
}

impl Meter {
    /// Polls the future of a call with the clock running.
    pub(crate) fn poll<F: Future>(&self, call: Pin<&mut F>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.lock().polled_since = Some(Instant::now());
        let _polling = Polling(self);
        call.poll(context)
    }

    /// Stops the guest, unless it was woken only now: then it was not computing when the tick came.
    fn stop(&self) -> bool {
        let mut reading = self.lock();
        reading.stopped = reading.polled_since.is_some_and(|since| since.elapsed() >= AWAKE);
        reading.stopped
    }

    /// Returns whether the guest is stopped by a tick. One that waits for the host is not.
    pub(crate) fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    pub(crate) fn used(&self) -> Duration {
        let reading = self.lock();
        reading.used + reading.polled_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, Reading> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        let mut reading = self.0.lock();
        let polled = reading.polled_since.take().map_or(Duration::ZERO, |since| since.elapsed());
        reading.used += polled;
        reading.permit = None;
    }
}

/// A token bucket that refills at a rate per second and holds at most one second's worth.
pub(crate) struct Rate {
    per_second: f64,
    left: f64,
    at: Instant,
}

impl Rate {
    pub(crate) fn new(per_second: u32, now: Instant) -> Self {
        Self { per_second: per_second.into(), left: per_second.into(), at: now }
    }

    /// Returns whether the bucket holds `amount` at `now`.
    pub(crate) fn has(&mut self, amount: f64, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        self.left = (self.left + passed * self.per_second).min(self.per_second);
        self.left >= amount
    }

    pub(crate) fn take(&mut self, amount: f64) {
        self.left -= amount;
    }
}

#[cfg(test)]
mod tests {
    use talaria_budget::Budget;

    use super::*;

    #[test]
    fn all_memories_of_an_instance_share_one_limit() {
        let mut memory = Memory::new(100, Budget::unlimited().nothing());
        assert!(memory.memory_growing(0, 60, None).unwrap());
        assert!(!memory.memory_growing(0, 50, None).unwrap(), "a second memory");
        assert_eq!(memory.denied(), Some(Denied::Limit));
        assert!(memory.memory_growing(60, 100, None).unwrap());
    }

    #[test]
    fn growth_beyond_what_was_reserved_is_charged_to_the_host() {
        const MIB: usize = 1 << 20;
        let budget = Budget::new(8 * MIB);
        let mut memory = Memory::new(100 * MIB, budget.charge(2 * MIB).unwrap());
        assert!(memory.memory_growing(0, MIB, None).unwrap());
        assert!(memory.memory_growing(MIB, 2 * MIB, None).unwrap());
        assert_eq!(budget.used(), 2 * MIB, "within the reserve");
        assert!(memory.memory_growing(2 * MIB, 6 * MIB, None).unwrap());
        assert_eq!(budget.used(), INITIAL + 5 * MIB);
        assert!(!memory.memory_growing(6 * MIB, 10 * MIB, None).unwrap());
        assert_eq!(memory.denied(), Some(Denied::Host));
        let other = budget.charge(2 * MIB).unwrap();
        assert!(!memory.memory_growing(6 * MIB, 8 * MIB, None).unwrap(), "another turn has the rest");
        drop((memory, other));
        assert_eq!(budget.used(), 0, "it is given back with the instance");
    }

    #[test]
    fn a_large_initial_memory_is_charged_in_full() {
        let budget = Budget::unlimited();
        let mut memory = Memory::new(usize::MAX, budget.nothing());
        assert!(memory.memory_growing(0, 24 << 20, None).unwrap());
        assert_eq!(budget.used(), 24 << 20);
    }

    fn cpu(budget: Duration) -> Cpu {
        Cpu::new(budget, Arc::new(Semaphore::new(1)))
    }

    #[tokio::test]
    async fn the_clock_of_a_call_runs_while_it_is_polled_and_stops_while_it_waits() {
        let cpu = cpu(Duration::from_secs(60));
        let meter = cpu.meter();
        let mut call = std::pin::pin!(async {
            std::thread::sleep(Duration::from_millis(20));
            tokio::time::sleep(Duration::from_millis(200)).await;
        });
        std::future::poll_fn(|context| meter.poll(call.as_mut(), context)).await;
        let used = meter.used();
        assert!((Duration::from_millis(20)..Duration::from_millis(200)).contains(&used), "{used:?}");
        assert!(!cpu.exhausted());
        assert!(Cpu { budget: used / 2, ..cpu }.exhausted());
    }

    #[tokio::test]
    async fn a_call_keeps_its_permit_until_it_waits() {
        let cpu = cpu(Duration::from_secs(60));
        let (meter, permits) = (cpu.meter(), Arc::clone(&cpu.permits));
        let mut call = std::pin::pin!(async {
            meter.lock().permit = Arc::clone(&permits).try_acquire_owned().ok();
            assert_eq!(permits.available_permits(), 0, "it computes");
            tokio::task::yield_now().await;
            assert_eq!(permits.available_permits(), 1, "it waited");
        });
        std::future::poll_fn(|context| meter.poll(call.as_mut(), context)).await;
    }

    #[test]
    fn a_tick_stops_a_guest_that_computes_but_not_one_that_was_just_woken() {
        let mut cpu = cpu(Duration::from_secs(60));
        let now = Instant::now();
        cpu.meter.lock().polled_since = now.checked_add(Duration::from_secs(60));
        assert!(matches!(cpu.tick(), UpdateDeadline::Continue(1)));
        assert!(!cpu.meter.is_stopped());
        cpu.meter.lock().polled_since = now.checked_sub(AWAKE);
        assert!(matches!(cpu.tick(), UpdateDeadline::YieldCustom(1, _)));
        assert!(cpu.meter.is_stopped());
        cpu.meter.lock().polled_since = now.checked_sub(Duration::from_secs(61));
        assert!(matches!(cpu.tick(), UpdateDeadline::Interrupt));
    }

    #[test]
    fn a_rate_allows_at_most_one_second_of_burst_after_a_pause() {
        let start = Instant::now();
        let mut rate = Rate::new(10, start);
        let spend = |rate: &mut Rate, now| {
            let mut spent = 0;
            while rate.has(1.0, now) {
                rate.take(1.0);
                spent += 1;
            }
            spent
        };
        assert_eq!(spend(&mut rate, start), 10);
        assert_eq!(spend(&mut rate, start + Duration::from_millis(500)), 5);
        assert_eq!(spend(&mut rate, start + Duration::from_secs(3600)), 10);
    }
}
