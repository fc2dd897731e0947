//! Executors: their state, their instances, their faults and their changes.

use super::by_name::ByName;
use super::closed::closed;
use super::family::{EXECUTOR, Family, Kind, Label};
use super::number::{Counters, Watched};
use super::page::Page;
use super::registry::Source;

closed! {
    /// How a call ended by the guest's own fault.
    Fault {
        /// It trapped.
        Trap = "trap",
        /// It asked for more memory than its limit.
        Memory = "memory",
        /// It used more CPU time than its limit.
        Cpu = "cpu",
        /// It was computing when its deadline passed.
        Deadline = "deadline",
        /// It returned something invalid.
        Answer = "answer",
    }
}

closed! {
    /// What became of a version.
    Change {
        /// It went into service; no version of that name was before.
        Loaded = "loaded",
        /// It replaced the version in service.
        Swapped = "swapped",
        /// It waits until its upstream answers.
        Waiting = "waiting",
        /// It does not go into service.
        Refused = "refused",
        /// The version before it is in service again.
        RolledBack = "rolled-back",
        /// It was taken out of service after crashes.
        Quarantined = "quarantined",
        /// It was taken out of service for good.
        Removed = "removed",
    }
}

static READY: Family = Family {
    name: "talaria_executor_ready",
    kind: Kind::Gauge,
    labels: &[EXECUTOR],
    help: "Whether the last probe reached what the executor needs",
    question: "Can turns of this executor succeed?",
};
static QUARANTINED: Family = Family {
    name: "talaria_executor_quarantined",
    kind: Kind::Gauge,
    labels: &[EXECUTOR],
    help: "Whether it takes no turns because it crashed",
    question: "Did a version crash again and again?",
};
static STOOD_IN_FOR: Family = Family {
    name: "talaria_executor_stood_in_for",
    kind: Kind::Gauge,
    labels: &[EXECUTOR],
    help: "Whether its fallback takes its turns",
    question: "Does it run on the fallback?",
};
static HELD_BACK: Family = Family {
    name: "talaria_executor_callers_held_back",
    kind: Kind::Gauge,
    labels: &[EXECUTOR],
    help: "Callers whose turns it does not take because their messages crashed it",
    question: "Do the messages of one caller crash it?",
};
static IN_USE: Family = Family {
    name: "talaria_executor_instances_in_use",
    kind: Kind::Gauge,
    labels: &[EXECUTOR],
    help: "Turns that have an instance of the version in service",
    question: "How busy is this executor now?",
};
static WAITING: Family = Family {
    name: "talaria_executor_instances_waiting",
    kind: Kind::Gauge,
    labels: &[EXECUTOR],
    help: "Turns that wait for an instance of the version in service",
    question: "Do turns wait for room?",
};
static LIMIT: Family = Family {
    name: "talaria_executor_instances_limit",
    kind: Kind::Gauge,
    labels: &[EXECUTOR],
    help: "The most instances of the version in service: `concurrency`",
    question: "How much room is left?",
};
static QUEUE_LIMIT: Family = Family {
    name: "talaria_executor_queue_limit",
    kind: Kind::Gauge,
    labels: &[EXECUTOR],
    help: "The most turns that wait for an instance: `queue`",
    question: "How close is it to failing turns as busy?",
};
static FAULTS: Family = Family {
    name: "talaria_executor_faults_total",
    kind: Kind::Counter,
    labels: &[EXECUTOR, Label::of::<Fault>("kind")],
    help: "Calls of a guest, probes included, that ended by its own fault",
    question: "Does a component crash, and how?",
};
static CHANGES: Family = Family {
    name: "talaria_executor_changes_total",
    kind: Kind::Counter,
    labels: &[EXECUTOR, Label::of::<Change>("result")],
    help: "Versions that were loaded, swapped in, refused or taken out of service",
    question: "When did a new version go into service, and was one refused?",
};
static ROUTED: Family = Family {
    name: "talaria_messages_routed_total",
    kind: Kind::Counter,
    labels: &[Label::named("route", "configured routes, and `chosen`, `continued` and `default`")],
    help: "Messages, by what chose their executor",
    question: "Do the routes do what they should?",
};

/// All executors.
#[derive(Default)]
pub struct Executors {
    counted: ByName<OfExecutor>,
    now: Watched<Now>,
}

/// The executors at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Now {
    /// Those that have a version in service.
    pub executors: Vec<OneExecutor>,
    /// Messages since the start, by what chose their executor.
    pub routed: Vec<(String, u64)>,
}

/// The state of an executor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OneExecutor {
    /// Its name.
    pub name: String,
    /// Whether the last probe succeeded.
    pub is_ready: bool,
    /// Whether it takes no turns because of repeated crashes.
    pub is_quarantined: bool,
    /// Whether its fallback takes its turns.
    pub is_stood_in_for: bool,
    /// The callers whose turns it does not take because their messages crashed it.
    pub callers_held_back: usize,
    /// The instances in use.
    pub in_use: usize,
    /// The most.
    pub limit: usize,
    /// The turns that wait for one.
    pub waiting: usize,
    /// The most.
    pub queue_limit: usize,
}

#[derive(Default)]
struct OfExecutor {
    faults: Counters<Fault>,
    changes: Counters<Change>,
}

// === impl Executors ===

impl Executors {
    /// Counts a fault. The executor's name must come from the configuration.
    pub fn fault(&self, executor: &str, fault: Fault) {
        self.counted.with(executor, |executor| executor.faults.inc(fault));
    }

    /// Counts a change.
    pub fn changed(&self, executor: &str, change: Change) {
        self.counted.with(executor, |executor| executor.changes.inc(change));
    }

    /// Sets the function that reads the state of the executors; it must not block. Only the first call has an effect.
    pub fn watch(&self, read: impl Fn() -> Now + Send + Sync + 'static) {
        self.now.set(read);
    }
}

impl Source for Executors {
    fn title(&self) -> &'static str {
        "Executors"
    }

    fn families(&self) -> Vec<&'static Family> {
        vec![
            &READY,
            &QUARANTINED,
            &STOOD_IN_FOR,
            &HELD_BACK,
            &IN_USE,
            &WAITING,
            &LIMIT,
            &QUEUE_LIMIT,
            &FAULTS,
            &CHANGES,
            &ROUTED,
        ]
    }

    fn write(&self, page: &mut Page) {
        let Now { executors, routed } = self.now.read().unwrap_or_default();
        type Of = fn(&OneExecutor) -> usize;
        let gauges: [(_, Of); 8] = [
            (&READY, |one| one.is_ready.into()),
            (&QUARANTINED, |one| one.is_quarantined.into()),
            (&STOOD_IN_FOR, |one| one.is_stood_in_for.into()),
            (&HELD_BACK, |one| one.callers_held_back),
            (&IN_USE, |one| one.in_use),
            (&WAITING, |one| one.waiting),
            (&LIMIT, |one| one.limit),
            (&QUEUE_LIMIT, |one| one.queue_limit),
        ];
        for (family, of) in gauges {
            let mut samples = page.family(family);
            executors.iter().for_each(|one| samples.value(&[&one.name], of(one)));
        }
        // A counter that appears with its first fault would hide it from `rate`.
        for one in &executors {
            self.counted.with(&one.name, |_| ());
        }
        let counted = self.counted.all();
        let mut samples = page.family(&FAULTS);
        counted.iter().for_each(|(name, executor)| samples.counters(name, &executor.faults));
        let mut samples = page.family(&CHANGES);
        counted.iter().for_each(|(name, executor)| samples.counters(name, &executor.changes));
        let mut samples = page.family(&ROUTED);
        routed.iter().for_each(|(route, count)| samples.value(&[route], count));
    }
}
