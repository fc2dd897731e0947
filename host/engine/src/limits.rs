//! What one call of a guest may use.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use wasmtime::{CallHook, ResourceLimiter, Result, UpdateDeadline};

/// Bounds of one turn.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Wall clock, waiting and computing alike. The seeds' bridge waited 600 s.
    pub deadline: Duration,
    /// Time in the guest's own code. A turn waits for its upstream; one that computes for a minute is stuck.
    pub cpu: Duration,
    /// Linear memory. Rust guests need two or three MiB and the size of their prompts.
    pub memory: usize,
    /// Turns of the executor at once; further ones wait, within their deadline.
    pub concurrency: usize,
    /// Bytes that the guest may hand over in one call: a reply, a request's body, an event.
    pub call_bytes: usize,
    /// Bytes of events that one turn may emit.
    pub emit_bytes: usize,
    /// Log lines that one turn may write.
    pub log_lines: u32,
    /// Open resources (exchanges, spans) at once.
    pub resources: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(600),
            cpu: Duration::from_secs(60),
            memory: 64 << 20,
            concurrency: 1_000,
            call_bytes: 16 << 20,
            emit_bytes: 64 << 20,
            log_lines: 1_000,
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

/// Counts time in the guest's code. Ticks would over-charge a guest that wakes often, so the clock is read whenever
/// the guest is entered and left.
pub(crate) struct Cpu {
    budget: Duration,
    used: Duration,
    entered: Option<Instant>,
    /// Whether the guest's own code runs, or would if it were let. For who holds the store's future, not the store.
    inside: Arc<AtomicBool>,
}

impl Cpu {
    pub(crate) fn new(budget: Duration) -> Self {
        Self { budget, used: Duration::ZERO, entered: None, inside: Arc::default() }
    }

    pub(crate) fn hook(&mut self, hook: CallHook) {
        self.inside.store(hook.exiting_host(), Ordering::Relaxed);
        if hook.entering_host() {
            self.used += self.entered.take().map_or(Duration::ZERO, |since| since.elapsed());
        } else {
            self.entered = Some(Instant::now());
        }
    }

    /// At every tick: let others run, or end it.
    pub(crate) fn tick(&mut self) -> UpdateDeadline {
        // The engine leaves the guest for this as for a host call, so that a guest that lets others run is not charged for
        // them; but it would compute if it were let.
        self.inside.store(true, Ordering::Relaxed);
        if self.exhausted() { UpdateDeadline::Interrupt } else { UpdateDeadline::Yield(1) }
    }

    pub(crate) fn inside(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.inside)
    }

    pub(crate) fn exhausted(&self) -> bool {
        self.used + self.entered.map_or(Duration::ZERO, |since| since.elapsed()) > self.budget
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
}
