//! Numbers for Prometheus.
//!
//! | name | labels | is |
//! |---|---|---|
//! | `talaria_build_info` | `version` | always 1 |
//! | `talaria_turns_started_total` | `executor` | turns that began to execute |
//! | `talaria_turns_ended_total` | `executor`, `state` | turns that ended, and how |
//! | `talaria_turn_duration_seconds` | `executor` | histogram: from begin to end, waiting for the upstream included |
//! | `talaria_turns_under_way` | | turns queued or executing now |
//! | `talaria_requests_refused_total` | `reason` | requests answered with 429 |
//! | `talaria_streams_open` | | streams that are read now |
//! | `talaria_push_deliveries_total` | `result` | tries to deliver a push |
//! | `talaria_executor_ready` | `executor` | 1 where the last probe reached what it needs, else 0 |
//! | `talaria_executor_quarantined` | `executor` | 1 while it takes no turns because it crashed again and again, else 0 |
//! | `talaria_executor_stood_in_for` | `executor` | 1 while its fallback takes its turns, else 0 |
//!
//! Labels are closed sets: enumerations, and the names of configured executors. Nothing that a caller says becomes one.
//!
//! What others count already (turns under way, open streams) is not counted twice: [`Metrics::watch`] takes a function
//! that is asked when somebody reads. So the domain and the wire know nothing of metrics.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeLabelValue, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

/// The media type of [`Metrics::text`].
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper edges of the duration's buckets, in seconds: a demo's answer, a model's, an agent's, and the deadline.
const BUCKETS: [f64; 12] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0];

/// The numbers of one host. Cheap to clone; all clones count the same.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    started: Family<OfExecutor, Counter>,
    ended: Family<Ended, Counter>,
    duration: Family<OfExecutor, Histogram, fn() -> Histogram>,
    pushes: Family<OfPush, Counter>,
    live: Live,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TurnEnd {
    /// Done.
    Completed,
    /// It asks for more.
    InputRequired,
    /// It asks the caller to authenticate somewhere.
    AuthRequired,
    /// The agent refused.
    Rejected,
    /// It failed, or did not survive the host.
    Failed,
    /// The caller cancelled it.
    Canceled,
}

/// How a try to deliver a push ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Push {
    /// The webhook took it.
    Delivered,
    /// It did not; it is tried again, unless this was the last try.
    Failed,
    /// It will not be tried again: the address may not be called, or the receiver wants no more.
    Refused,
}

/// Why a request was answered with 429.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Too many connections.
    Connections,
    /// Too many turns.
    Turns,
    /// Too many turns of the conversation.
    Conversation,
    /// The host is shutting down.
    Draining,
}

/// What others count, at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Readings {
    /// Turns queued or executing.
    pub turns_under_way: usize,
    /// Streams that are read.
    pub streams_open: usize,
    /// Requests refused since the start, by reason.
    pub refused: Vec<(Refusal, u64)>,
    /// The executors.
    pub executors: Vec<OneExecutor>,
}

/// How an executor fares.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OneExecutor {
    /// Its name.
    pub name: String,
    /// The last probe reached what it needs.
    pub is_ready: bool,
    /// It crashed again and again, and takes no turns.
    pub is_quarantined: bool,
    /// Its fallback takes its turns.
    pub is_stood_in_for: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfExecutor {
    executor: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    executor: String,
    state: Label<TurnEnd>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPush {
    result: Label<Push>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Label<T>(T);

/// What is asked for when somebody reads, once it is there.
#[derive(Clone, Default)]
struct Live(Arc<OnceLock<Box<Read>>>);

type Read = dyn Fn() -> Readings + Send + Sync;

// === impl Metrics ===

impl Metrics {
    /// Nothing counted yet, for this version of the product.
    #[must_use]
    pub fn new(version: &str) -> Self {
        let mut registry = Registry::with_prefix("talaria");
        registry.register("build", "What runs", Info::new(vec![("version", version.to_owned())]));
        let started = Family::default();
        registry.register("turns_started", "Turns that began to execute", started.clone());
        let ended = Family::default();
        registry.register("turns_ended", "Turns that ended, and how", ended.clone());
        let histogram: fn() -> Histogram = || Histogram::new(BUCKETS);
        let duration = Family::new_with_constructor(histogram);
        registry.register_with_unit(
            "turn_duration",
            "From a turn's begin to its end, waiting included",
            Unit::Seconds,
            duration.clone(),
        );
        let pushes = Family::default();
        registry.register("push_deliveries", "Tries to deliver a push, and how they ended", pushes.clone());
        let live = Live::default();
        registry.register_collector(Box::new(live.clone()));
        Self { registry: Arc::new(registry), started, ended, duration, pushes, live }
    }

    /// A turn began to execute. The executor's name is one of the configuration.
    pub fn turn_started(&self, executor: &str) {
        self.started.get_or_create(&OfExecutor { executor: executor.to_owned() }).inc();
    }

    /// A turn that began has ended.
    pub fn turn_ended(&self, executor: &str, end: TurnEnd, took: Duration) {
        let executor = executor.to_owned();
        self.ended.get_or_create(&Ended { executor: executor.clone(), state: Label(end) }).inc();
        self.duration.get_or_create(&OfExecutor { executor }).observe(took.as_secs_f64());
    }

    /// A push was tried.
    pub fn push(&self, result: Push) {
        self.pushes.get_or_create(&OfPush { result: Label(result) }).inc();
    }

    /// Takes a function that reads what others count; it must not block. The first one stays.
    pub fn watch(&self, read: impl Fn() -> Readings + Send + Sync + 'static) {
        let _ = self.live.0.set(Box::new(read));
    }

    /// All of it, in the text format of [`MEDIA_TYPE`].
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing into a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

// === impl Live ===

impl Collector for Live {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(read) = self.0.get() else { return Ok(()) };
        let now = read();
        let mut gauge = |name, help, value: usize| {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(metric)
        };
        gauge("turns_under_way", "Turns queued or executing", now.turns_under_way)?;
        gauge("streams_open", "Streams that are read", now.streams_open)?;
        let help = "Requests answered with 429, by reason";
        let mut metric = encoder.encode_descriptor("requests_refused", help, None, MetricType::Counter)?;
        for (reason, count) in &now.refused {
            let labels = [("reason", Label(*reason))];
            ConstCounter::new(*count).encode(metric.encode_family(&labels)?)?;
        }
        type Is = fn(&OneExecutor) -> bool;
        let gauges: [(_, _, Is); 3] = [
            ("executor_ready", "Whether the last probe reached what the executor needs", |one| one.is_ready),
            ("executor_quarantined", "Whether it takes no turns because it crashed", |one| {
                one.is_quarantined
            }),
            ("executor_stood_in_for", "Whether its fallback takes its turns", |one| one.is_stood_in_for),
        ];
        for (name, help, is) in gauges {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for executor in &now.executors {
                let labels = [("executor", executor.name.as_str())];
                ConstGauge::new(i64::from(is(executor))).encode(metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Live")
    }
}

// === impl Label ===

impl<T: Copy + Into<&'static str> + fmt::Debug> EncodeLabelValue for Label<T> {
    fn encode(
        &self,
        encoder: &mut prometheus_client::encoding::LabelValueEncoder<'_>,
    ) -> Result<(), fmt::Error> {
        EncodeLabelValue::encode(&self.0.into(), encoder)
    }
}

impl From<TurnEnd> for &'static str {
    fn from(end: TurnEnd) -> Self {
        match end {
            TurnEnd::Completed => "completed",
            TurnEnd::InputRequired => "input-required",
            TurnEnd::AuthRequired => "auth-required",
            TurnEnd::Rejected => "rejected",
            TurnEnd::Failed => "failed",
            TurnEnd::Canceled => "canceled",
        }
    }
}

impl From<Push> for &'static str {
    fn from(push: Push) -> Self {
        match push {
            Push::Delivered => "delivered",
            Push::Failed => "failed",
            Push::Refused => "refused",
        }
    }
}

impl From<Refusal> for &'static str {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Connections => "connections",
            Refusal::Turns => "turns",
            Refusal::Conversation => "conversation",
            Refusal::Draining => "draining",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without the order of series, which is nobody's promise.
    fn sorted(text: &str) -> String {
        let mut lines: Vec<_> = text.lines().collect();
        lines.sort_unstable();
        lines.join("\n")
    }

    #[test]
    fn names_labels_and_help_are_as_promised() {
        let metrics = Metrics::new("1.2.3");
        metrics.turn_started("chat");
        metrics.turn_ended("chat", TurnEnd::Completed, Duration::from_millis(1500));
        metrics.turn_started("chat");
        metrics.turn_ended("chat", TurnEnd::Canceled, Duration::from_secs(1000));
        for result in [Push::Delivered, Push::Failed, Push::Refused] {
            metrics.push(result);
        }
        metrics.watch(|| Readings {
            turns_under_way: 3,
            streams_open: 2,
            refused: vec![
                (Refusal::Connections, 0),
                (Refusal::Turns, 5),
                (Refusal::Conversation, 1),
                (Refusal::Draining, 0),
            ],
            executors: vec![
                OneExecutor { name: "chat".into(), is_ready: true, ..OneExecutor::default() },
                OneExecutor {
                    name: "quote\"\n".into(),
                    is_quarantined: true,
                    is_stood_in_for: true,
                    ..OneExecutor::default()
                },
            ],
        });
        insta::assert_snapshot!(sorted(&metrics.text()));
    }

    #[test]
    fn what_is_watched_is_read_when_asked_for() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let metrics = Metrics::new("0");
        assert!(!metrics.text().contains("under_way"), "nobody said what to read");
        let under_way = Arc::new(AtomicUsize::new(7));
        let read = Arc::clone(&under_way);
        metrics
            .watch(move || Readings { turns_under_way: read.load(Ordering::Relaxed), ..Readings::default() });
        assert!(metrics.text().contains("\ntalaria_turns_under_way 7\n"), "{}", metrics.text());
        under_way.store(0, Ordering::Relaxed);
        assert!(metrics.text().contains("\ntalaria_turns_under_way 0\n"), "{}", metrics.text());
        assert!(metrics.text().ends_with("# EOF\n"));
    }
}
