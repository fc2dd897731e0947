//! The numbers of the last hour: 360 buckets of ten seconds, and the totals of each executor since the start.
//!
//! Durations are counted in a histogram of fixed steps, each the square root of two times the one before; a percentile is
//! interpolated within its step, so it is off by a fifth at most. The executors are those of the configuration, and no more
//! than [`EXECUTORS`] are told apart.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde_json::{Map, Value, json};
use talaria_turns::{Facts, Timestamp, TurnState};

/// The length of a bucket.
pub(crate) const EVERY: Duration = Duration::from_secs(10);

/// An hour of buckets.
const BUCKETS: usize = 360;

/// The executors that are told apart; the turns of further ones count in the sums alone.
const EXECUTORS: usize = 64;

/// The steps of a histogram: from a quarter of a millisecond to 49 minutes.
const STEPS: usize = 48;
const FIRST_MS: f64 = 0.25;

/// The numbers of the last hour.
pub(crate) struct Stats {
    present: Bucket,
    past: VecDeque<Bucket>,
    totals: BTreeMap<Box<str>, Counts>,
}

/// What an executor did since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) turns: u64,
    pub(crate) failed: u64,
    /// Calls that policy denied.
    pub(crate) denied: u64,
    /// Turns that failed by the executor's own fault.
    pub(crate) faults: u64,
}

/// What is measured at the end of a bucket.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sample {
    pub(crate) running: usize,
    pub(crate) memory: usize,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    took: Duration,
    failed: bool,
    fault: bool,
}

struct Bucket {
    at: Timestamp,
    all: Ended,
    executors: BTreeMap<Box<str>, Ended>,
    denied: u64,
    sample: Sample,
}

/// The turns that ended in a bucket.
#[derive(Default)]
struct Ended {
    turns: u64,
    failed: u64,
    took: Histogram,
}

#[derive(Clone)]
struct Histogram([u32; STEPS]);

impl Default for Stats {
    fn default() -> Self {
        Self { present: Bucket::begin(), past: VecDeque::new(), totals: BTreeMap::new() }
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self([0; STEPS])
    }
}

// === impl Stats ===

impl Stats {
    pub(super) fn ended(&mut self, executor: &str, end: End) {
        self.present.all.add(end);
        if let Some(ended) = known(&mut self.present.executors, executor) {
            ended.add(end);
        }
        if let Some(counts) = known(&mut self.totals, executor) {
            counts.turns += 1;
            counts.failed += u64::from(end.failed);
            counts.faults += u64::from(end.fault);
        }
    }

    pub(super) fn denied(&mut self, executor: &str) {
        self.present.denied += 1;
        if let Some(counts) = known(&mut self.totals, executor) {
            counts.denied += 1;
        }
    }

    pub(super) fn tick(&mut self, sample: Sample) {
        let mut ended = std::mem::replace(&mut self.present, Bucket::begin());
        ended.sample = sample;
        self.past.push_back(ended);
        if self.past.len() > BUCKETS {
            self.past.pop_front();
        }
    }

    /// What an executor did since the start.
    pub(crate) fn of(&self, executor: &str) -> Counts {
        self.totals.get(executor).copied().unwrap_or_default()
    }

    /// The buckets that ended, oldest first.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "every_s": EVERY.as_secs(),
            "now": Timestamp::now().to_string(),
            "buckets": self.past.iter().map(Bucket::to_json).collect::<Vec<_>>(),
        })
    }

    /// The bucket that ended last.
    pub(crate) fn last(&self) -> Option<Value> {
        self.past.back().map(Bucket::to_json)
    }
}

/// The entry of an executor, without a copy of its name if it has one.
fn known<'a, T: Default>(of: &'a mut BTreeMap<Box<str>, T>, executor: &str) -> Option<&'a mut T> {
    if !of.contains_key(executor) {
        if of.len() >= EXECUTORS {
            return None;
        }
        of.insert(executor.into(), T::default());
    }
    of.get_mut(executor)
}

// === impl End ===

impl End {
    pub(super) fn of(facts: &Facts) -> Self {
        Self {
            took: facts.ended.unwrap_or_default(),
            failed: facts.state == TurnState::Failed,
            fault: facts.failure == Some("internal"),
        }
    }
}

// === impl Bucket ===

impl Bucket {
    fn begin() -> Self {
        Self {
            at: Timestamp::now(),
            all: Ended::default(),
            executors: BTreeMap::new(),
            denied: 0,
            sample: Sample::default(),
        }
    }

    fn to_json(&self) -> Value {
        let executors: Map<String, Value> = (self.executors.iter())
            .map(|(name, ended)| {
                let Ended { turns, failed, took } = ended;
                let shown = json!({ "turns": turns, "failed": failed, "p50_ms": took.percentile(0.5) });
                (name.to_string(), shown)
            })
            .collect();
        let took = &self.all.took;
        json!({
            "at": self.at.to_string(),
            "turns": self.all.turns,
            "failed": self.all.failed,
            "p50_ms": took.percentile(0.5),
            "p95_ms": took.percentile(0.95),
            "p99_ms": took.percentile(0.99),
            "executors": executors,
            "running": self.sample.running,
            "memory": self.sample.memory,
            "denied": self.denied,
        })
    }
}

// === impl Ended ===

impl Ended {
    fn add(&mut self, end: End) {
        self.turns += 1;
        self.failed += u64::from(end.failed);
        self.took.add(end.took);
    }
}

// === impl Histogram ===

impl Histogram {
    fn add(&mut self, took: Duration) {
        let ratio = took.as_secs_f64() * 1_000.0 / FIRST_MS;
        // The number of steps to get there; the last one has all that took longer.
        let step = if ratio <= 1.0 { 0.0 } else { (2.0 * ratio.log2()).ceil() };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and a few hundred"
        )]
        let step = (step as usize).min(STEPS - 1);
        if let Some(count) = self.0.get_mut(step) {
            *count = count.saturating_add(1);
        }
    }

    /// The time in milliseconds that this part of the turns took at most; `None` without turns.
    fn percentile(&self, part: f64) -> Option<f64> {
        let total: u32 = self.0.iter().fold(0, |sum, count| sum.saturating_add(*count));
        if total == 0 {
            return None;
        }
        let wanted = f64::from(total) * part;
        let mut before = 0.0;
        for (step, count) in self.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            let count = f64::from(*count);
            if before + count >= wanted {
                let within = ((wanted - before) / count).clamp(0.0, 1.0);
                let low = if step == 0 { 0.0 } else { bound(step - 1) };
                let at = low + (bound(step) - low) * within;
                return Some((at * 1_000.0).round() / 1_000.0);
            }
            before += count;
        }
        None
    }
}

/// The upper end of a step, in milliseconds.
fn bound(step: usize) -> f64 {
    let step = u32::try_from(step).unwrap_or(u32::MAX);
    FIRST_MS * (f64::from(step) / 2.0).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(millis: u64) -> End {
        End { took: Duration::from_millis(millis), failed: false, fault: false }
    }

    #[test]
    fn percentiles_are_off_by_a_fifth_at_most() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.percentile(0.5), None);
        for millis in 1..=1_000 {
            histogram.add(Duration::from_millis(millis));
        }
        for (part, exact) in [(0.5, 500.0), (0.95, 950.0), (0.99, 990.0), (0.01, 10.0)] {
            let found = histogram.percentile(part).unwrap();
            assert!((found - exact).abs() <= exact / 5.0, "{part}: {found}, not {exact}");
        }
        histogram.add(Duration::from_secs(1 << 30));
        assert!(histogram.percentile(1.0).unwrap() >= 2_900_000.0, "the last step has what took longer");
    }

    #[test]
    fn an_hour_is_kept_and_each_bucket_has_its_own_turns() {
        let mut stats = Stats::default();
        stats.ended("chat", end(10));
        stats.ended("chat", End { failed: true, fault: true, ..end(20) });
        stats.denied("chat");
        assert!(stats.last().is_none(), "the present bucket has not ended");
        stats.tick(Sample { running: 3, memory: 7 });
        let bucket = stats.last().unwrap();
        assert_eq!(
            (&bucket["turns"], &bucket["failed"], &bucket["denied"]),
            (&json!(2), &json!(1), &json!(1))
        );
        assert_eq!((&bucket["running"], &bucket["memory"]), (&json!(3), &json!(7)));
        assert_eq!(bucket["executors"]["chat"]["turns"], 2);
        let counts = Counts { turns: 2, failed: 1, denied: 1, faults: 1 };
        assert_eq!((stats.of("chat"), stats.of("none")), (counts, Counts::default()));
        for _ in 0..BUCKETS {
            stats.tick(Sample::default());
        }
        let shown = stats.to_json();
        let buckets = shown["buckets"].as_array().unwrap();
        assert_eq!((buckets.len(), &shown["every_s"]), (BUCKETS, &json!(10)));
        assert!(buckets.iter().all(|bucket| bucket["turns"] == 0), "the first is an hour ago");
        assert_eq!(stats.of("chat"), counts);
    }

    #[test]
    fn executors_are_bounded() {
        let mut stats = Stats::default();
        for number in 0..EXECUTORS + 9 {
            stats.ended(&format!("executor-{number}"), end(1));
        }
        stats.tick(Sample::default());
        let bucket = stats.last().unwrap();
        assert_eq!(bucket["executors"].as_object().unwrap().len(), EXECUTORS);
        assert_eq!(bucket["turns"], EXECUTORS + 9);
    }
}
