//! The journal: what the turns of this process did lately, for the operator.
//!
//! It keeps the timelines of the turns that wait or run and of the last that ended, the numbers of the last hour
//! ([`stats`]), and wakes those who watch ([`changes`]). It ends with the process: the store has what must last.
//!
//! **Bounds.** [`ENDED`] timelines of turns that ended, and the bytes that it was given; the oldest go first. Turns under way
//! are bounded by `limits.turns`.
//!
//! **Cost.** A turn takes the lock twice, for the time of a map access each; a step takes none while nobody watches.

mod changes;
mod stats;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use talaria_turns::{Facts, Step, TaskId, Timeline, Turn, TurnEnd, TurnObserver};

pub(crate) use changes::{Changes, PAUSE, Watching};
pub(crate) use stats::{Counts, EVERY, Sample, Stats};

/// The turns that ended and are still known. A page of the console lists a tenth of them.
const ENDED: usize = 2_000;

/// The bytes of their timelines, unless the machine is small.
const BYTES: u64 = 32 << 20;

/// The part of the memory of the process that they may take.
const PART: u64 = 32;

/// What a timeline and a step take beside their texts.
const FIXED: usize = 512;
const STEP: usize = 160;

/// What the turns of this process did lately.
pub(crate) struct Journal {
    timelines: Mutex<Timelines>,
    stats: Mutex<Stats>,
    changes: Changes,
    /// The turns that were accepted and have not ended.
    open: AtomicUsize,
    /// Those of them whose executor was called.
    running: AtomicUsize,
}

struct Timelines {
    tasks: HashMap<TaskId, Vec<Arc<Timeline>>>,
    /// The turns that ended, oldest first, with their bytes.
    ended: VecDeque<(Arc<Timeline>, usize)>,
    bytes: usize,
    most: usize,
}

/// The turns under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnderWay {
    /// They wait for earlier turns of their context.
    pub(crate) queued: usize,
    /// Their executor was called.
    pub(crate) running: usize,
}

// === impl Journal ===

impl Journal {
    /// A journal in a process that may use so many bytes of memory.
    pub(crate) fn new(memory: u64) -> Self {
        let most = usize::try_from(BYTES.min(memory / PART)).unwrap_or(usize::MAX);
        let timelines = Timelines { tasks: HashMap::new(), ended: VecDeque::new(), bytes: 0, most };
        Self {
            timelines: Mutex::new(timelines),
            stats: Mutex::default(),
            changes: Changes::default(),
            open: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
        }
    }

    /// The timelines of a task that are known, oldest first.
    pub(crate) fn timelines(&self, task: &TaskId) -> Vec<Arc<Timeline>> {
        self.lock().tasks.get(task).cloned().unwrap_or_default()
    }

    /// The last timeline of a task.
    pub(crate) fn last(&self, task: &TaskId) -> Option<Arc<Timeline>> {
        self.lock().tasks.get(task)?.last().cloned()
    }

    pub(crate) fn under_way(&self) -> UnderWay {
        let running = self.running.load(Ordering::Relaxed);
        UnderWay { queued: self.open.load(Ordering::Relaxed).saturating_sub(running), running }
    }

    /// Who watches, and what changed.
    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Reads the numbers of the last hour.
    pub(crate) fn stats<T>(&self, read: impl FnOnce(&Stats) -> T) -> T {
        read(&self.stats.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends the present bucket of the numbers. To be called every [`EVERY`].
    pub(crate) fn tick(&self, memory: usize) {
        let sample = Sample { running: self.under_way().running, memory };
        self.count(|stats| stats.tick(sample));
    }

    fn count(&self, count: impl FnOnce(&mut Stats)) {
        count(&mut self.stats.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn lock(&self) -> MutexGuard<'_, Timelines> {
        self.timelines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TurnObserver for Journal {
    fn began(&self, _: &str, turn: &Turn) {
        self.running.fetch_add(1, Ordering::Relaxed);
        self.changes.touch(&turn.task);
    }

    fn ended(&self, _: &str, _: &Turn, _: TurnEnd<'_>, _: Duration) {
        self.running.fetch_sub(1, Ordering::Relaxed);
    }

    fn accepted(&self, timeline: &Arc<Timeline>) {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.lock().tasks.entry(timeline.task.clone()).or_default().push(Arc::clone(timeline));
        self.changes.touch(&timeline.task);
    }

    fn moved(&self, timeline: &Arc<Timeline>) {
        self.changes.touch(&timeline.task);
    }

    fn step_began(&self, timeline: &Arc<Timeline>, _: &Step) {
        self.changes.touch(&timeline.task);
    }

    fn step_ended(&self, timeline: &Arc<Timeline>, step: &Step) {
        if step.denied {
            self.count(|stats| stats.denied(&timeline.executor));
        }
        self.changes.touch(&timeline.task);
    }

    fn closed(&self, timeline: &Arc<Timeline>) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        let (bytes, end) = timeline.read(|facts| (bytes(facts), stats::End::of(facts)));
        self.count(|stats| stats.ended(&timeline.executor, end));
        let dropped = self.lock().close(timeline, bytes);
        self.changes.touch(&timeline.task);
        // Not under the lock.
        drop(dropped);
    }
}

fn bytes(facts: &Facts) -> usize {
    let text = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
    let steps = facts.steps.iter().map(|step| STEP + step.name.len() + text(&step.error));
    let body = facts.upstream_error.as_ref().map_or(0, |error| error.body.len());
    FIXED + steps.sum::<usize>() + text(&facts.reason) + body
}

// === impl Timelines ===

impl Timelines {
    /// Notes that a turn ended. Returns those that are not known any more.
    fn close(&mut self, timeline: &Arc<Timeline>, bytes: usize) -> Vec<Arc<Timeline>> {
        self.ended.push_back((Arc::clone(timeline), bytes));
        self.bytes += bytes;
        let mut dropped = Vec::new();
        while self.ended.len() > ENDED || self.bytes > self.most {
            let Some((oldest, bytes)) = self.ended.pop_front() else { break };
            self.bytes -= bytes;
            if let Some(turns) = self.tasks.get_mut(&oldest.task) {
                turns.retain(|known| !Arc::ptr_eq(known, &oldest));
                if turns.is_empty() {
                    self.tasks.remove(&oldest.task);
                }
            }
            dropped.push(oldest);
        }
        dropped
    }
}

#[cfg(test)]
mod tests;
