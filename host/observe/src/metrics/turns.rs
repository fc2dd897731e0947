//! Turns: how many, how they ended, and where their time went.
//!
//! A turn that waits in the lane of its context has not begun, and counts in `talaria_turns_under_way` alone. What is known
//! only at its end (its times, its tokens, its memory) is counted when the end is in the store.

use std::time::Duration;

use super::by_name::ByName;
use super::closed::closed;
use super::family::{EXECUTOR, Family, Kind, Label};
use super::number::{Counter, Counters, GUEST_MEMORY, Histogram, TURN, Watched};
use super::page::Page;
use super::registry::Source;

closed! {
    /// How a turn ended.
    TurnEnd {
        /// It completed.
        Completed = "completed",
        /// It asks for more input.
        InputRequired = "input-required",
        /// It asks the caller to authenticate somewhere.
        AuthRequired = "auth-required",
        /// The agent rejected it.
        Rejected = "rejected",
        /// It failed, or did not survive the host.
        Failed = "failed",
        /// The caller cancelled it.
        Canceled = "canceled",
    }
}

closed! {
    /// Why a turn failed.
    Failure {
        /// The component does not take this turn.
        InvalidTurn = "invalid-turn",
        /// The settings are wrong.
        InvalidSettings = "invalid-settings",
        /// The agent behind the executor failed.
        Upstream = "upstream",
        /// Policy denied a call that it needs.
        Denied = "denied",
        /// It took too long.
        TimedOut = "timed-out",
        /// It was cancelled.
        Cancelled = "cancelled",
        /// There was no room, or the executor is out of service.
        Busy = "busy",
        /// The executor crashed, or the host has a defect.
        Internal = "internal",
        /// The host did not say.
        Other = "other",
    }
}

closed! {
    /// Which tokens.
    Direction {
        /// What the model read.
        Input = "input",
        /// What it wrote.
        Output = "output",
    }
}

static STARTED: Family = Family {
    name: "talaria_turns_started_total",
    kind: Kind::Counter,
    labels: &[EXECUTOR],
    help: "Turns that began to execute",
    question: "How much work is there?",
};
static ENDED: Family = Family {
    name: "talaria_turns_ended_total",
    kind: Kind::Counter,
    labels: &[EXECUTOR, Label::of::<TurnEnd>("state")],
    help: "Turns that ended, and how",
    question: "Do turns succeed?",
};
static FAILURES: Family = Family {
    name: "talaria_turn_failures_total",
    kind: Kind::Counter,
    labels: &[EXECUTOR, Label::of::<Failure>("kind")],
    help: "Turns that failed, begun or not, by the kind of the failure",
    question: "Why do turns fail: the upstream, policy, time, room, or a defect?",
};
static DURATION: Family = Family {
    name: "talaria_turn_duration_seconds",
    kind: Kind::Histogram,
    labels: &[EXECUTOR],
    help: "From a turn's begin to its end, waiting for the upstream included",
    question: "How long do turns take?",
};
static FIRST_TEXT: Family = Family {
    name: "talaria_turn_first_text_seconds",
    kind: Kind::Histogram,
    labels: &[EXECUTOR],
    help: "From the acceptance of a message to the first text of its answer",
    question: "How long do people wait before they see something?",
};
static LANE_WAIT: Family = Family {
    name: "talaria_turn_lane_wait_seconds",
    kind: Kind::Histogram,
    labels: &[EXECUTOR],
    help: "How long a turn waited for the earlier turns of its context",
    question: "Do messages of one conversation pile up?",
};
static INSTANCE_WAIT: Family = Family {
    name: "talaria_turn_instance_wait_seconds",
    kind: Kind::Histogram,
    labels: &[EXECUTOR],
    help: "How long a turn waited for an instance of its executor",
    question: "Is `concurrency` of the executor too small?",
};
static GUEST: Family = Family {
    name: "talaria_turn_guest_seconds",
    kind: Kind::Histogram,
    labels: &[EXECUTOR],
    help: "How long the guest of a turn computed, the host's work for it included",
    question: "Is the component slow?",
};
static UPSTREAM: Family = Family {
    name: "talaria_turn_upstream_seconds",
    kind: Kind::Histogram,
    labels: &[EXECUTOR],
    help: "How long a turn waited while at least one call or callback was under way",
    question: "Is the agent behind the executor slow?",
};
static MEMORY: Family = Family {
    name: "talaria_turn_guest_memory_bytes",
    kind: Kind::Histogram,
    labels: &[EXECUTOR],
    help: "The memory of the guest of a turn at the most",
    question: "How close do guests come to `grant.memory`?",
};
static TOKENS: Family = Family {
    name: "talaria_tokens_total",
    kind: Kind::Counter,
    labels: &[EXECUTOR, Label::of::<Direction>("direction")],
    help: "Tokens that turns used, as far as their executors report them",
    question: "What does it cost?",
};
static UNDER_WAY: Family = Family {
    name: "talaria_turns_under_way",
    kind: Kind::Gauge,
    labels: &[],
    help: "Turns queued or executing",
    question: "How busy is it now?",
};
static UNDER_WAY_LIMIT: Family = Family {
    name: "talaria_turns_limit",
    kind: Kind::Gauge,
    labels: &[],
    help: "The most turns queued or executing: `limits.turns`",
    question: "How close is it to refusing messages?",
};

/// The turns of all executors.
#[derive(Default)]
pub struct Turns {
    executors: ByName<OfExecutor>,
    now: Watched<Now>,
}

/// The turns at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Now {
    /// Queued or executing.
    pub under_way: usize,
    /// The most.
    pub limit: usize,
}

/// What is known of a turn at its end.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spent {
    /// How long it waited for the earlier turns of its context, if it began.
    pub lane: Option<Duration>,
    /// What its executor took, if an instance was there.
    pub instance: Option<InInstance>,
    /// When the first text of its answer was there, counted from the acceptance of its message.
    pub first_text: Option<Duration>,
    /// The tokens that it read and wrote.
    pub tokens: Option<(u64, u64)>,
    /// Why it failed.
    pub failure: Option<Failure>,
}

/// What a turn took in an instance.
#[derive(Debug, Clone, Copy, Default)]
pub struct InInstance {
    /// How long it waited for the instance.
    pub waited: Duration,
    /// How long the guest computed.
    pub guest: Duration,
    /// How long it waited for the upstream.
    pub upstream: Duration,
    /// The memory of the guest at the most.
    pub memory: usize,
}

struct OfExecutor {
    started: Counter,
    ended: Counters<TurnEnd>,
    failures: Counters<Failure>,
    duration: Histogram,
    first_text: Histogram,
    lane: Histogram,
    instance: Histogram,
    guest: Histogram,
    upstream: Histogram,
    memory: Histogram,
    tokens: Counters<Direction>,
}

// === impl Turns ===

impl Turns {
    /// Counts a turn that starts to execute. The executor's name must come from the configuration.
    pub fn started(&self, executor: &str) {
        self.executors.with(executor, |executor| executor.started.inc());
    }

    /// Counts a turn whose executor returned, or was dropped.
    pub fn ended(&self, executor: &str, end: TurnEnd, took: Duration) {
        self.executors.with(executor, |executor| {
            executor.ended.inc(end);
            executor.duration.took(took);
        });
    }

    /// Counts what a turn took, once its end is in the store.
    pub fn closed(&self, executor: &str, spent: &Spent) {
        self.executors.with(executor, |executor| executor.count(spent));
    }

    /// Sets the function that reads the turns under way; it must not block. Only the first call has an effect.
    pub fn watch(&self, read: impl Fn() -> Now + Send + Sync + 'static) {
        self.now.set(read);
    }
}

// === impl OfExecutor ===

impl OfExecutor {
    fn count(&self, spent: &Spent) {
        let Spent { lane, instance, first_text, tokens, failure } = *spent;
        if let Some(lane) = lane {
            self.lane.took(lane);
        }
        if let Some(InInstance { waited, guest, upstream, memory }) = instance {
            self.instance.took(waited);
            self.guest.took(guest);
            self.upstream.took(upstream);
            self.memory.observe(memory as u64);
        }
        if let Some(first_text) = first_text {
            self.first_text.took(first_text);
        }
        if let Some((input, output)) = tokens {
            self.tokens.add(Direction::Input, input);
            self.tokens.add(Direction::Output, output);
        }
        if let Some(failure) = failure {
            self.failures.inc(failure);
        }
    }
}

impl Default for OfExecutor {
    fn default() -> Self {
        Self {
            started: Counter::default(),
            ended: Counters::default(),
            failures: Counters::default(),
            duration: Histogram::new(&TURN),
            first_text: Histogram::new(&TURN),
            lane: Histogram::new(&TURN),
            instance: Histogram::new(&TURN),
            guest: Histogram::new(&TURN),
            upstream: Histogram::new(&TURN),
            memory: Histogram::new(&GUEST_MEMORY),
            tokens: Counters::default(),
        }
    }
}

// === impl Failure ===

impl Failure {
    /// The failure of this name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        match name {
            "invalid-turn" => Self::InvalidTurn,
            "invalid-settings" => Self::InvalidSettings,
            "upstream" => Self::Upstream,
            "denied" => Self::Denied,
            "timed-out" => Self::TimedOut,
            "cancelled" => Self::Cancelled,
            "busy" => Self::Busy,
            "internal" => Self::Internal,
            _ => Self::Other,
        }
    }
}

impl Source for Turns {
    fn title(&self) -> &'static str {
        "Turns"
    }

    fn families(&self) -> Vec<&'static Family> {
        vec![
            &STARTED,
            &ENDED,
            &FAILURES,
            &DURATION,
            &FIRST_TEXT,
            &LANE_WAIT,
            &INSTANCE_WAIT,
            &GUEST,
            &UPSTREAM,
            &MEMORY,
            &TOKENS,
            &UNDER_WAY,
            &UNDER_WAY_LIMIT,
        ]
    }

    fn write(&self, page: &mut Page) {
        let all = self.executors.all();
        let mut samples = page.family(&STARTED);
        all.iter().for_each(|(name, executor)| samples.value(&[name], executor.started.get()));
        let mut samples = page.family(&ENDED);
        all.iter().for_each(|(name, executor)| samples.counters(name, &executor.ended));
        let mut samples = page.family(&FAILURES);
        all.iter().for_each(|(name, executor)| samples.counters(name, &executor.failures));
        type Of = fn(&OfExecutor) -> &Histogram;
        let histograms: [(_, Of); 7] = [
            (&DURATION, |executor| &executor.duration),
            (&FIRST_TEXT, |executor| &executor.first_text),
            (&LANE_WAIT, |executor| &executor.lane),
            (&INSTANCE_WAIT, |executor| &executor.instance),
            (&GUEST, |executor| &executor.guest),
            (&UPSTREAM, |executor| &executor.upstream),
            (&MEMORY, |executor| &executor.memory),
        ];
        for (family, of) in histograms {
            let mut samples = page.family(family);
            all.iter().for_each(|(name, executor)| samples.histogram(&[name], of(executor)));
        }
        let mut samples = page.family(&TOKENS);
        all.iter().for_each(|(name, executor)| samples.counters(name, &executor.tokens));
        let now = self.now.read();
        for (family, read) in
            [(&UNDER_WAY, now.map(|now| now.under_way)), (&UNDER_WAY_LIMIT, now.map(|now| now.limit))]
        {
            let mut samples = page.family(family);
            read.iter().for_each(|value| samples.value(&[], value));
        }
    }
}
