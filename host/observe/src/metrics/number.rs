//! Counters and histograms: relaxed atomics, without a lock.
//!
//! A read that happens while something is counted may see the sum of a histogram without its last value, never more.

use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::closed::Closed;

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

/// A counter for each value of a closed set.
#[derive(Debug)]
pub(crate) struct Counters<L>(Box<[Counter]>, PhantomData<L>);

/// How many values fell into which bucket.
#[derive(Debug)]
pub(crate) struct Histogram {
    scale: &'static Scale,
    /// One more than there are bounds: the last is for what is above them.
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// The buckets of a histogram. Values are whole numbers: nanoseconds or bytes.
#[derive(Debug)]
pub(crate) struct Scale {
    /// The upper bounds.
    pub(crate) bounds: &'static [u64],
    /// The whole numbers in the unit of the metric.
    pub(crate) unit: f64,
}

/// A function that is called on every read, once it is set.
pub(crate) struct Watched<T>(OnceLock<Box<dyn Fn() -> T + Send + Sync>>);

const fn micros<const N: usize>(bounds: [u64; N]) -> [u64; N] {
    let mut nanos = bounds;
    let mut at = 0;
    while at < N {
        #[expect(
            clippy::indexing_slicing,
            reason = "`at` is below the length, and constant functions have no iterators"
        )]
        {
            nanos[at] *= 1_000;
        }
        at += 1;
    }
    nanos
}

/// From what a guest computes (0.5 ms) to the response of a model and of an agent, up to the deadline.
pub(crate) static TURN: Scale = Scale {
    bounds: &micros([
        500,
        1_000,
        2_500,
        5_000,
        10_000,
        25_000,
        50_000,
        100_000,
        250_000,
        500_000,
        1_000_000,
        2_500_000,
        5_000_000,
        10_000_000,
        30_000_000,
        60_000_000,
        300_000_000,
        600_000_000,
    ]),
    unit: 1e9,
};
/// From a look-up in the page cache to a disk that hardly answers: a call of the store, or the answer to a request.
pub(crate) static CALL: Scale = Scale {
    bounds: &micros([
        50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
        5_000_000,
    ]),
    unit: 1e9,
};
/// From a small guest to the largest limit.
pub(crate) static GUEST_MEMORY: Scale = Scale {
    bounds: &[1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20, 32 << 20, 64 << 20, 128 << 20, 256 << 20],
    unit: 1.0,
};

// === impl Counter ===

impl Counter {
    pub(crate) fn inc(&self) {
        self.add(1);
    }

    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

// === impl Counters ===

impl<L: Closed> Counters<L> {
    pub(crate) fn inc(&self, value: L) {
        self.add(value, 1);
    }

    pub(crate) fn add(&self, value: L, more: u64) {
        if let Some(counter) = self.0.get(value.index()) {
            counter.add(more);
        }
    }

    /// Every value, with its number.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        L::NAMES.iter().copied().zip(self.0.iter().map(Counter::get))
    }
}

impl<L: Closed> Default for Counters<L> {
    fn default() -> Self {
        Self(L::NAMES.iter().map(|_| Counter::default()).collect(), PhantomData)
    }
}

// === impl Histogram ===

impl Histogram {
    pub(crate) fn new(scale: &'static Scale) -> Self {
        let buckets = (0..=scale.bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { scale, buckets, sum: AtomicU64::new(0) }
    }

    pub(crate) fn observe(&self, value: u64) {
        let bucket = self.scale.bounds.partition_point(|bound| *bound < value);
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.fetch_add(1, Ordering::Relaxed);
            self.sum.fetch_add(value, Ordering::Relaxed);
        }
    }

    pub(crate) fn took(&self, took: Duration) {
        self.observe(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// The number of values up to each bound; the last has none and is for all.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (Option<f64>, u64)> {
        let bounds = self.scale.bounds.iter().map(|bound| Some(*bound as f64 / self.scale.unit));
        let mut so_far = 0;
        bounds.chain([None]).zip(&self.buckets).map(move |(bound, bucket)| {
            so_far += bucket.load(Ordering::Relaxed);
            (bound, so_far)
        })
    }

    pub(crate) fn sum(&self) -> f64 {
        self.sum.load(Ordering::Relaxed) as f64 / self.scale.unit
    }
}

// === impl Watched ===

impl<T> Watched<T> {
    /// Sets the function. Only the first call has an effect.
    pub(crate) fn set(&self, read: impl Fn() -> T + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(read));
    }

    /// What the function returns; `None` if it is not set yet.
    pub(crate) fn read(&self) -> Option<T> {
        self.0.get().map(|read| read())
    }
}

impl<T> Default for Watched<T> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}
