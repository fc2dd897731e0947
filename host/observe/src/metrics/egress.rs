//! Outbound calls of executors, and what they were denied.
//!
//! The calls are those of turns; a probe's are not counted, nor are calls of tools and waits for callbacks. A call that
//! is denied before it is one (a guest without the grant for `wasi:http`) counts as a denial alone. Denials of probes count.

use std::time::Duration;

use super::by_name::ByName;
use super::closed::closed;
use super::family::{EXECUTOR, Family, Kind, Label};
use super::number::{Counters, Histogram, TURN};
use super::page::Page;
use super::registry::Source;

closed! {
    /// How a call was answered.
    Answer {
        /// Informational.
        Status1 = "1xx",
        /// Success.
        Status2 = "2xx",
        /// A redirect, which is not followed.
        Status3 = "3xx",
        /// The request is wrong, or not allowed.
        Status4 = "4xx",
        /// The upstream failed.
        Status5 = "5xx",
        /// There was no response, or it broke off.
        Error = "error",
        /// Policy denied it.
        Denied = "denied",
    }
}

closed! {
    /// What policy denied.
    Denial {
        /// A call that no granted pattern matches.
        Egress = "egress",
        /// A call or a secret that the component does not declare.
        Undeclared = "undeclared",
        /// A granted name that leads to an address which it may not lead to.
        Address = "address",
        /// A secret that is not granted, or not for this destination.
        Secret = "secret",
        /// A tool that is not granted.
        Tool = "tool",
        /// Replies out of band without a grant.
        Callback = "callback",
        /// `wasi:http` without a grant.
        WasiHttp = "wasi-http",
        /// A limit of the turn: calls, connections, bytes, events, output.
        Limit = "limit",
        /// The memory of a conversation.
        State = "state",
    }
}

closed! {
    /// Which bytes.
    Direction {
        /// Of requests.
        Sent = "sent",
        /// Of responses.
        Received = "received",
    }
}

static CALLS: Family = Family {
    name: "talaria_egress_calls_total",
    kind: Kind::Counter,
    labels: &[EXECUTOR, Label::of::<Answer>("answer")],
    help: "Outbound calls of turns, by the class of the status, or by why there was none",
    question: "Does the agent behind the executor answer, and how?",
};
static DURATION: Family = Family {
    name: "talaria_egress_call_duration_seconds",
    kind: Kind::Histogram,
    labels: &[EXECUTOR],
    help: "How long an outbound call of a turn took, until its body was read or dropped",
    question: "Which upstream got slower?",
};
static BYTES: Family = Family {
    name: "talaria_egress_bytes_total",
    kind: Kind::Counter,
    labels: &[EXECUTOR, Label::of::<Direction>("direction")],
    help: "Bytes of the bodies of outbound calls of turns",
    question: "How much goes to the upstream and comes back?",
};
static DENIALS: Family = Family {
    name: "talaria_denials_total",
    kind: Kind::Counter,
    labels: &[EXECUTOR, Label::of::<Denial>("kind")],
    help: "What policy denied to an executor; the log names the line that would allow it",
    question: "Is a grant missing, or does a component try what it should not?",
};

/// The outbound calls of all executors.
#[derive(Default)]
pub struct Egress(ByName<OfExecutor>);

/// A call that has ended.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// How it was answered.
    pub answer: Answer,
    /// How long it took.
    pub took: Duration,
    /// The bytes of its request's body.
    pub sent: usize,
    /// The bytes of its response's body.
    pub received: usize,
}

struct OfExecutor {
    calls: Counters<Answer>,
    duration: Histogram,
    bytes: Counters<Direction>,
    denials: Counters<Denial>,
}

// === impl Egress ===

impl Egress {
    /// Counts a call that has ended. The executor's name must come from the configuration.
    pub fn called(&self, executor: &str, call: &Call) {
        let Call { answer, took, sent, received } = *call;
        self.0.with(executor, |executor| {
            executor.calls.inc(answer);
            executor.duration.took(took);
            executor.bytes.add(Direction::Sent, sent as u64);
            executor.bytes.add(Direction::Received, received as u64);
        });
    }

    /// Counts a denial.
    pub fn denied(&self, executor: &str, what: Denial) {
        self.0.with(executor, |executor| executor.denials.inc(what));
    }
}

// === impl Answer ===

impl Answer {
    /// The class of a status.
    #[must_use]
    pub fn of_status(status: u16) -> Self {
        match status {
            100..200 => Self::Status1,
            200..300 => Self::Status2,
            300..400 => Self::Status3,
            400..500 => Self::Status4,
            500..600 => Self::Status5,
            _ => Self::Error,
        }
    }
}

impl Default for OfExecutor {
    fn default() -> Self {
        Self {
            calls: Counters::default(),
            duration: Histogram::new(&TURN),
            bytes: Counters::default(),
            denials: Counters::default(),
        }
    }
}

impl Source for Egress {
    fn title(&self) -> &'static str {
        "Outbound calls"
    }

    fn families(&self) -> Vec<&'static Family> {
        vec![&CALLS, &DURATION, &BYTES, &DENIALS]
    }

    fn write(&self, page: &mut Page) {
        let all = self.0.all();
        let mut samples = page.family(&CALLS);
        all.iter().for_each(|(name, executor)| samples.counters(name, &executor.calls));
        let mut samples = page.family(&DURATION);
        all.iter().for_each(|(name, executor)| samples.histogram(&[name], &executor.duration));
        let mut samples = page.family(&BYTES);
        all.iter().for_each(|(name, executor)| samples.counters(name, &executor.bytes));
        let mut samples = page.family(&DENIALS);
        all.iter().for_each(|(name, executor)| samples.counters(name, &executor.denials));
    }
}
