//! The store in a file.
//!
//! The latency is what the caller of the store waits: for room in the queue, for a thread, for the transaction. It is measured
//! inside the store's own methods, because a wrapper around the store would cost every call another boxed future. The store in
//! memory is not measured: it is a lookup under a lock.

use std::time::Duration;

use super::closed::{Closed, closed};
use super::family::{Family, Kind, Label};
use super::number::{CALL, Counters, Histogram, Watched};
use super::page::Page;
use super::registry::Source;

closed! {
    /// What the store was asked to do.
    Operation {
        /// Write a new task.
        Create = "create",
        /// Append events to a task.
        Append = "append",
        /// Read a task.
        Task = "task",
        /// Read events of a task.
        Events = "events",
        /// Read the log of all tasks.
        Log = "log",
        /// List tasks.
        List = "list",
        /// Look for a message that was accepted before.
        Accepted = "accepted",
        /// Read the messages of a conversation.
        Recall = "recall",
        /// Read what an executor keeps.
        State = "state",
        /// Write what an executor keeps.
        SetState = "set-state",
        /// Read or write push configurations.
        Push = "push",
        /// Read or write callbacks.
        Callback = "callback",
        /// Read or write delegations.
        Delegation = "delegation",
        /// Delete old tasks.
        Forget = "forget",
        /// Ask whether there is room.
        Room = "room",
        /// Look through all tasks: at the start, and for stuck ones.
        Scan = "scan",
    }
}

static DURATION: Family = Family {
    name: "talaria_store_operation_seconds",
    kind: Kind::Histogram,
    labels: &[Label::of::<Operation>("operation")],
    help: "How long calls of the store in a file took, the wait for a thread included",
    question: "Is the disk slow, or the store overloaded?",
};
static FAILURES: Family = Family {
    name: "talaria_store_failures_total",
    kind: Kind::Counter,
    labels: &[Label::of::<Operation>("operation")],
    help: "Calls of the store in a file that failed because it could not read or write",
    question: "Is the disk full, locked or damaged?",
};
static SIZE: Family = Family {
    name: "talaria_store_size_bytes",
    kind: Kind::Gauge,
    labels: &[],
    help: "Size of the store without free pages; new messages are rejected at seven eighths of the limit",
    question: "How full is the store?",
};
static LIMIT: Family = Family {
    name: "talaria_store_limit_bytes",
    kind: Kind::Gauge,
    labels: &[],
    help: "The largest size of the store: `store.max_size`",
    question: "How full may the store be?",
};

/// The store.
pub struct Store {
    took: Box<[Histogram]>,
    failures: Counters<Operation>,
    now: Watched<Now>,
}

/// The store at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Now {
    /// Its size, in bytes.
    pub size: u64,
    /// The most.
    pub limit: u64,
}

// === impl Store ===

impl Store {
    /// Counts a call of the store.
    pub fn took(&self, operation: Operation, took: Duration, has_failed: bool) {
        if let Some(histogram) = self.took.get(operation.index()) {
            histogram.took(took);
        }
        if has_failed {
            self.failures.inc(operation);
        }
    }

    /// Sets the function that reads the size; it must not block. Only the first call has an effect.
    pub fn watch(&self, read: impl Fn() -> Now + Send + Sync + 'static) {
        self.now.set(read);
    }
}

impl Default for Store {
    fn default() -> Self {
        let took = Operation::NAMES.iter().map(|_| Histogram::new(&CALL)).collect();
        Self { took, failures: Counters::default(), now: Watched::default() }
    }
}

impl Source for Store {
    fn title(&self) -> &'static str {
        "Store"
    }

    fn families(&self) -> Vec<&'static Family> {
        vec![&DURATION, &FAILURES, &SIZE, &LIMIT]
    }

    fn write(&self, page: &mut Page) {
        let mut samples = page.family(&DURATION);
        for (operation, histogram) in Operation::NAMES.iter().zip(&self.took) {
            if histogram.buckets().last().is_some_and(|(_, count)| count > 0) {
                samples.histogram(&[operation], histogram);
            }
        }
        let mut samples = page.family(&FAILURES);
        for (operation, count) in self.failures.all() {
            samples.value(&[operation], count);
        }
        let now = self.now.read();
        let mut samples = page.family(&SIZE);
        now.iter().for_each(|now| samples.value(&[], now.size));
        let mut samples = page.family(&LIMIT);
        now.iter().for_each(|now| samples.value(&[], now.limit));
    }
}
