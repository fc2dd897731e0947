//! What one call of a guest may use.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime::{CallHook, ResourceLimiter, Result, UpdateDeadline};

/// Bounds of an executor and of each of its turns.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Wall-clock time of a turn, waiting and computing alike. 600 s: as long as the Python bridge waited.
    pub deadline: Duration,
    /// Time in the guest's own code. A turn waits for its upstream; one that computes for a minute is stuck.
    pub cpu: Duration,
    /// Linear memory. Rust guests need two or three MiB and the size of their prompts.
    pub memory: usize,
    /// Turns of the executor at once; further ones wait, within their deadline.
    pub concurrency: usize,
    /// Turns that wait for their place; further ones are refused.
    pub queue: usize,
    /// Bytes that the guest may hand over in one call: a reply, a request's body, an event.
    pub call_bytes: usize,
    /// Bytes of events that one turn may emit.
    pub emit_bytes: usize,
    /// Outbound calls that one turn may make. One that polls every second does not reach it.
    pub calls: u32,
    /// Outbound calls that are open at once. A guest waits for one thing at a time; a few streams beside it are many.
    pub connections: usize,
    /// Bytes of bodies that one turn may send.
    pub sent_bytes: usize,
    /// Bytes of bodies that one turn may receive.
    pub received_bytes: usize,
    /// Log lines that the executor may write a second, all its turns together.
    pub log_lines: u32,
    /// Bytes of log lines that the executor may write a second.
    pub log_bytes: u32,
    /// Bytes that the executor may remember of one conversation.
    pub state_bytes: usize,
    /// Open resources (exchanges, spans) at once.
    pub resources: usize,
}

/// What of WASI an executor has beyond the least that makes programs start.
#[derive(Debug, Clone, Default)]
pub struct Wasi {
    /// Random numbers that nobody can guess. Without it there are random numbers that differ from instance to instance
    /// and are good for hash tables, not for keys.
    pub random: bool,
    /// Clocks as precise as the machine's. Without it they tell milliseconds.
    pub precise_clock: bool,
    /// A folder that the guest can read, and not change, under [`FOLDER`].
    pub folder: Option<PathBuf>,
    /// `wasi:http/outgoing-handler`, through the same egress as everything else. Without it every call is denied.
    pub http: bool,
}

/// Where a guest finds the folder that it was granted.
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
            emit_bytes: 64 << 20,
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

/// Refuses growth beyond a limit, and remembers that it did: the guest only says `unreachable` afterwards.
pub(crate) struct Memory {
    limit: usize,
    used: usize,
    pub(crate) refused: bool,
}

impl Memory {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, used: 0, refused: false }
    }
}

/// Elements of tables that an instance may have. Rust guests have hundreds, interpreters tens of thousands.
const TABLE_ELEMENTS: usize = 100_000;

impl ResourceLimiter for Memory {
    /// The limit is of the instance: all its memories together.
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> Result<bool> {
        let used = self.used.saturating_add(desired.saturating_sub(current));
        if used > self.limit {
            self.refused = true;
            return Ok(false);
        }
        self.used = used;
        Ok(true)
    }

    fn table_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> Result<bool> {
        Ok(desired <= TABLE_ELEMENTS)
    }
}

/// Counts time in the guest's code, and shares the threads.
///
/// Ticks would over-charge a guest that wakes often, so the clock is read whenever the guest is entered and left. The
/// engine leaves the guest for a tick as for a host call, so one that lets others run is not charged for them.
///
/// A guest that computes for longer than a tick needs a place to go on, and there is one place less than there are
/// threads: however many guests spin, one thread is left for everybody else. It gives its place back at every tick, and
/// those who wait get it in turn.
pub(crate) struct Cpu {
    budget: Duration,
    used: Duration,
    entered: Option<Instant>,
    /// Whether the guest's own code runs, or would if it were let. For who holds the store's future, not the store.
    inside: Arc<AtomicBool>,
    places: Arc<Semaphore>,
    place: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
    has_place: bool,
}

impl Cpu {
    pub(crate) fn new(budget: Duration, places: Arc<Semaphore>) -> Self {
        Self {
            budget,
            used: Duration::ZERO,
            entered: None,
            inside: Arc::default(),
            places,
            place: Arc::default(),
            has_place: false,
        }
    }

    pub(crate) fn hook(&mut self, hook: CallHook) {
        self.inside.store(hook.exiting_host(), Ordering::Relaxed);
        if hook.entering_host() {
            self.used += self.entered.take().map_or(Duration::ZERO, |since| since.elapsed());
            if std::mem::take(&mut self.has_place) {
                *self.place.lock().unwrap_or_else(PoisonError::into_inner) = None;
            }
        } else {
            self.entered = Some(Instant::now());
        }
    }

    /// At every tick: let others run, or end it.
    pub(crate) fn tick(&mut self) -> UpdateDeadline {
        // It would compute if it were let.
        self.inside.store(true, Ordering::Relaxed);
        if self.exhausted() {
            return UpdateDeadline::Interrupt;
        }
        self.has_place = true;
        let (places, place) = (Arc::clone(&self.places), Arc::clone(&self.place));
        UpdateDeadline::YieldCustom(
            1,
            Box::pin(async move {
                // Behind what the runtime's timers and sockets woke, and not only behind what was ready already.
                tokio::task::yield_now().await;
                if let Ok(permit) = places.acquire_owned().await {
                    *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(permit);
                }
            }),
        )
    }

    pub(crate) fn inside(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.inside)
    }

    pub(crate) fn exhausted(&self) -> bool {
        self.used + self.entered.map_or(Duration::ZERO, |since| since.elapsed()) > self.budget
    }
}

/// So much a second, and at most a second's worth at once.
pub(crate) struct Rate {
    each_second: f64,
    left: f64,
    at: Instant,
}

impl Rate {
    pub(crate) fn new(each_second: u32, now: Instant) -> Self {
        Self { each_second: each_second.into(), left: each_second.into(), at: now }
    }

    /// Whether there is room for so much now.
    pub(crate) fn has(&mut self, much: f64, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        self.left = (self.left + passed * self.each_second).min(self.each_second);
        self.left >= much
    }

    pub(crate) fn take(&mut self, much: f64) {
        self.left -= much;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_memories_of_an_instance_share_the_limit() {
        let mut memory = Memory::new(100);
        assert!(memory.memory_growing(0, 60, None).unwrap());
        assert!(!memory.memory_growing(0, 50, None).unwrap(), "a second memory");
        assert!(memory.refused);
        assert!(memory.memory_growing(60, 100, None).unwrap());
    }

    #[test]
    fn a_rate_is_kept_and_a_pause_gives_no_more_than_a_second() {
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
