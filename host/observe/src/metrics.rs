//! Metrics for Prometheus.
//!
//! | name | labels | is |
//! |---|---|---|
//! | `talaria_build_info` | `version` | always 1 |
//! | `talaria_turns_started_total` | `executor` | turns that started to execute |
//! | `talaria_turns_ended_total` | `executor`, `state` | turns that ended, and how |
//! | `talaria_turn_duration_seconds` | `executor` | histogram: from start to end, including the wait for the upstream |
//! | `talaria_turns_under_way` | | turns queued or executing now |
//! | `talaria_requests_refused_total` | `reason` | requests answered with 429, or with 403 if foreign |
//! | `talaria_streams_open` | | streams that are open now |
//! | `talaria_push_deliveries_total` | `result` | attempts to deliver a push notification |
//! | `talaria_tool_calls_total` | `tool`, `end` | calls of the agent's tools, and how they ended |
//! | `talaria_tool_server_calls_total` | `server`, `end` | calls of the tools of servers that the operator names |
//! | `talaria_tool_server_up` | `server` | 1 if the server listed its tools when it was last asked, else 0 |
//! | `talaria_messages_routed_total` | `route` | messages by what chose their executor: a rule, `chosen`, `continued` or `default` |
//! | `talaria_executor_ready` | `executor` | 1 if the last probe succeeded, else 0 |
//! | `talaria_executor_quarantined` | `executor` | 1 while it takes no turns because of repeated crashes, else 0 |
//! | `talaria_executor_callers_held_back` | `executor` | callers whose turns it does not take because their messages crashed it |
//! | `talaria_executor_stood_in_for` | `executor` | 1 while its fallback takes its turns, else 0 |
//! | `talaria_mailbox_turns` | `state` | turns that wait for a callback, wait for their chat, ended without one, or got one late |
//! | `talaria_mailbox_letters_bytes` | | bytes of the stored callbacks |
//! | `talaria_store_size_bytes` | | size of the store without free pages, at most `store.max_size` |
//! | `talaria_memory_used_bytes` | | memory that callers make the host hold now |
//! | `talaria_memory_limit_bytes` | | the most that they can |
//! | `talaria_memory_refused_total` | | requests, responses, turns and growths of guests that did not fit |
//!
//! Labels are closed sets: enumerations, and the names of configured executors, servers and rules. No text of a caller becomes a label.
//!
//! Numbers that other crates count already (turns in progress, open streams) are not counted again: [`Metrics::watch`] takes
//! a function that is called on every read. So neither the domain nor the wire knows of metrics.

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

/// The upper bounds of the duration's buckets, in seconds: from the response of a demo to that of a model and of an agent, up
/// to the deadline.
const BUCKETS: [f64; 12] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0];

/// The metrics of one host. Cheap to clone; all clones share the counters.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    started: Family<OfExecutor, Counter>,
    ended: Family<Ended, Counter>,
    duration: Family<OfExecutor, Histogram, fn() -> Histogram>,
    pushes: Family<OfPush, Counter>,
    tools: Family<OfTool, Counter>,
    tool_servers: Family<OfToolServer, Counter>,
    live: Live,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TurnEnd {
    /// It completed.
    Completed,
    /// It asks for more input.
    InputRequired,
    /// It asks the caller to authenticate somewhere.
    AuthRequired,
    /// The agent rejected it.
    Rejected,
    /// It failed, or did not survive the host.
    Failed,
    /// The caller cancelled it.
    Canceled,
}

/// The result of an attempt to deliver a push notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Push {
    /// The webhook accepted it.
    Delivered,
    /// It failed, and is retried unless this was the last attempt.
    Failed,
    /// It is not retried: the address may not be called, or the receiver wants no more.
    Refused,
}

/// How a call of a tool ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ToolEnd {
    /// The tool did what it was asked.
    Done,
    /// The call was wrong or not allowed.
    Refused,
    /// What the tool needs failed.
    Failed,
    /// The agent disconnected before the end.
    Abandoned,
}

/// Why a request was refused: with 403 if it is foreign, with 429 otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Too many connections.
    Connections,
    /// Too many turns.
    Turns,
    /// Too many turns of one context.
    Conversation,
    /// No memory.
    Memory,
    /// The host is shutting down.
    Draining,
    /// Too many turns of one caller.
    CallerTurns,
    /// Too many messages of one caller within a minute.
    CallerRate,
    /// Too many tasks of one caller are stored.
    CallerTasks,
    /// Too many bytes of one caller are stored.
    CallerBytes,
    /// Too many webhooks of one caller within a minute.
    CallerWebhooks,
    /// One caller takes too much memory.
    CallerMemory,
    /// The store is full.
    StoreFull,
    /// A page of another site sent it, or it uses a name that is not this server's.
    Foreign,
}

/// The state of a turn in the mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mail {
    /// It waits for its reply.
    Waiting,
    /// It waits for its turn in the chat.
    InLine,
    /// It ended without a reply, and one may still come.
    Unanswered,
    /// Its reply came after it had ended.
    Late,
}

/// The numbers that other crates count, at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Readings {
    /// Turns queued or executing.
    pub turns_under_way: usize,
    /// Open streams.
    pub streams_open: usize,
    /// Requests refused since the start, by reason.
    pub refused: Vec<(Refusal, u64)>,
    /// The executors.
    pub executors: Vec<OneExecutor>,
    /// The servers of tools, and whether each listed its tools when it was last asked.
    pub tool_servers: Vec<(String, bool)>,
    /// Messages since the start, by what chose their executor.
    pub routed: Vec<(String, u64)>,
    /// Turns that the mailbox knows, by state.
    pub mailbox: Vec<(Mail, usize)>,
    /// Bytes of the callbacks that it stores.
    pub mailbox_bytes: usize,
    /// The size of the store, in bytes.
    pub store_bytes: u64,
    /// The memory that callers make the host hold.
    pub memory: Memory,
}

/// The memory that callers make the host hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// Bytes now.
    pub used: usize,
    /// The most.
    pub limit: usize,
    /// What did not fit since the start.
    pub refused: u64,
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

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfTool {
    tool: &'static str,
    end: Label<ToolEnd>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfToolServer {
    server: String,
    end: Label<ToolEnd>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Label<T>(T);

/// The function that is called on every read, once it is set.
#[derive(Clone, Default)]
struct Live(Arc<OnceLock<Box<Read>>>);

type Read = dyn Fn() -> Readings + Send + Sync;

// === impl Metrics ===

impl Metrics {
    /// Creates the metrics of this version of the product, with nothing counted yet.
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
        let tools = Family::default();
        registry.register("tool_calls", "Calls of the agent's tools, and how they ended", tools.clone());
        let tool_servers = Family::default();
        let help = "Calls of the tools of servers that the operator names, and how they ended";
        registry.register("tool_server_calls", help, tool_servers.clone());
        let live = Live::default();
        registry.register_collector(Box::new(live.clone()));
        Self { registry: Arc::new(registry), started, ended, duration, pushes, tools, tool_servers, live }
    }

    /// Counts a turn that starts to execute. The executor's name must come from the configuration.
    pub fn turn_started(&self, executor: &str) {
        self.started.get_or_create(&OfExecutor { executor: executor.to_owned() }).inc();
    }

    /// Counts a turn that has ended.
    pub fn turn_ended(&self, executor: &str, end: TurnEnd, took: Duration) {
        let executor = executor.to_owned();
        self.ended.get_or_create(&Ended { executor: executor.clone(), state: Label(end) }).inc();
        self.duration.get_or_create(&OfExecutor { executor }).observe(took.as_secs_f64());
    }

    /// Counts an attempt to deliver a push notification.
    pub fn push(&self, result: Push) {
        self.pushes.get_or_create(&OfPush { result: Label(result) }).inc();
    }

    /// Counts a call of a tool.
    pub fn tool_called(&self, tool: &'static str, end: ToolEnd) {
        self.tools.get_or_create(&OfTool { tool, end: Label(end) }).inc();
    }

    /// Counts a call of a tool of a server. The server's name must come from the configuration.
    pub fn tool_server_called(&self, server: &str, end: ToolEnd) {
        self.tool_servers.get_or_create(&OfToolServer { server: server.to_owned(), end: Label(end) }).inc();
    }

    /// Sets the function that reads the numbers of other crates; it must not block. Only the first call has an effect.
    pub fn watch(&self, read: impl Fn() -> Readings + Send + Sync + 'static) {
        let _ = self.live.0.set(Box::new(read));
    }

    /// Returns all metrics in the text format of [`MEDIA_TYPE`].
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
        let help = "Requests answered with 429, or with 403 if foreign, by reason";
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
        let help = "Callers whose turns it does not take because their messages crashed it";
        let mut metric =
            encoder.encode_descriptor("executor_callers_held_back", help, None, MetricType::Gauge)?;
        for executor in &now.executors {
            let labels = [("executor", executor.name.as_str())];
            let count = i64::try_from(executor.callers_held_back).unwrap_or(i64::MAX);
            ConstGauge::new(count).encode(metric.encode_family(&labels)?)?;
        }
        let help = "Whether the server listed its tools when it was last asked";
        let mut metric = encoder.encode_descriptor("tool_server_up", help, None, MetricType::Gauge)?;
        for (server, is_up) in &now.tool_servers {
            let labels = [("server", server.as_str())];
            ConstGauge::new(i64::from(*is_up)).encode(metric.encode_family(&labels)?)?;
        }
        let help = "Messages, by what chose their executor";
        let mut metric = encoder.encode_descriptor("messages_routed", help, None, MetricType::Counter)?;
        for (route, count) in &now.routed {
            let labels = [("route", route.as_str())];
            ConstCounter::new(*count).encode(metric.encode_family(&labels)?)?;
        }
        let help = "Turns that the mailbox knows, by what they are to it";
        let mut metric = encoder.encode_descriptor("mailbox_turns", help, None, MetricType::Gauge)?;
        for (state, count) in &now.mailbox {
            let labels = [("state", Label(*state))];
            let count = i64::try_from(*count).unwrap_or(i64::MAX);
            ConstGauge::new(count).encode(metric.encode_family(&labels)?)?;
        }
        let help = "Bytes of the callbacks that are kept";
        let metric =
            encoder.encode_descriptor("mailbox_letters", help, Some(&Unit::Bytes), MetricType::Gauge)?;
        ConstGauge::new(i64::try_from(now.mailbox_bytes).unwrap_or(i64::MAX)).encode(metric)?;
        let help = "Size of the store without free pages";
        let metric = encoder.encode_descriptor("store_size", help, Some(&Unit::Bytes), MetricType::Gauge)?;
        ConstGauge::new(i64::try_from(now.store_bytes).unwrap_or(i64::MAX)).encode(metric)?;
        let Memory { used, limit, refused } = now.memory;
        for (name, help, bytes) in [
            ("memory_used", "Memory that callers make the host hold", used),
            ("memory_limit", "The most memory that callers can make the host hold", limit),
        ] {
            let metric = encoder.encode_descriptor(name, help, Some(&Unit::Bytes), MetricType::Gauge)?;
            ConstGauge::new(i64::try_from(bytes).unwrap_or(i64::MAX)).encode(metric)?;
        }
        let help = "Requests, responses, turns and growths of guests that did not fit into memory";
        let metric = encoder.encode_descriptor("memory_refused", help, None, MetricType::Counter)?;
        ConstCounter::new(refused).encode(metric)?;
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

impl From<ToolEnd> for &'static str {
    fn from(end: ToolEnd) -> Self {
        match end {
            ToolEnd::Done => "done",
            ToolEnd::Refused => "refused",
            ToolEnd::Failed => "failed",
            ToolEnd::Abandoned => "abandoned",
        }
    }
}

impl From<Mail> for &'static str {
    fn from(mail: Mail) -> Self {
        match mail {
            Mail::Waiting => "waiting",
            Mail::InLine => "in-line",
            Mail::Unanswered => "unanswered",
            Mail::Late => "late",
        }
    }
}

impl From<Refusal> for &'static str {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Connections => "connections",
            Refusal::Turns => "turns",
            Refusal::Conversation => "conversation",
            Refusal::Memory => "memory",
            Refusal::Draining => "draining",
            Refusal::CallerTurns => "caller-turns",
            Refusal::CallerRate => "caller-rate",
            Refusal::CallerTasks => "caller-tasks",
            Refusal::CallerBytes => "caller-bytes",
            Refusal::CallerWebhooks => "caller-webhooks",
            Refusal::CallerMemory => "caller-memory",
            Refusal::StoreFull => "store-full",
            Refusal::Foreign => "foreign",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sorts the lines, because the order of series is not promised.
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
        metrics.tool_called("look", ToolEnd::Refused);
        metrics.tool_server_called("docs", ToolEnd::Failed);
        metrics.watch(|| Readings {
            turns_under_way: 3,
            streams_open: 2,
            refused: vec![
                (Refusal::Connections, 0),
                (Refusal::Turns, 5),
                (Refusal::Conversation, 1),
                (Refusal::Memory, 2),
                (Refusal::Draining, 0),
                (Refusal::CallerTurns, 2),
                (Refusal::CallerRate, 0),
                (Refusal::CallerTasks, 0),
                (Refusal::CallerBytes, 0),
                (Refusal::CallerWebhooks, 0),
                (Refusal::CallerMemory, 3),
                (Refusal::StoreFull, 1),
                (Refusal::Foreign, 2),
            ],
            executors: vec![
                OneExecutor { name: "chat".into(), is_ready: true, ..OneExecutor::default() },
                OneExecutor {
                    name: "quote\"\n".into(),
                    is_quarantined: true,
                    is_stood_in_for: true,
                    callers_held_back: 2,
                    ..OneExecutor::default()
                },
            ],
            tool_servers: vec![("docs".into(), true), ("down".into(), false)],
            routed: vec![("papers".into(), 4), ("default".into(), 1)],
            mailbox: vec![(Mail::Waiting, 4), (Mail::InLine, 0), (Mail::Unanswered, 2), (Mail::Late, 1)],
            mailbox_bytes: 70,
            store_bytes: 4096,
            memory: Memory { used: 5, limit: 1 << 30, refused: 2 },
        });
        insta::assert_snapshot!(sorted(&metrics.text()));
    }

    #[test]
    fn watched_numbers_are_read_on_every_request() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let metrics = Metrics::new("0");
        assert!(!metrics.text().contains("under_way"), "no function is set");
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
