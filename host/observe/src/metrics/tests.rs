use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use super::egress::{Answer, Call, Denial};
use super::executors::{Change, Fault, OneExecutor};
use super::family::{Kind, Values};
use super::mailbox::Mail;
use super::push::Push;
use super::requests::{Operation, Refusal, Status, Version};
use super::store::Operation as Stored;
use super::tools::ToolEnd;
use super::turns::{Failure, InInstance, Spent, TurnEnd};
use super::*;

const MILLI: Duration = Duration::from_millis(1);

/// Metrics in which everything was counted once.
fn counted() -> Metrics {
    let metrics = Metrics::new("1.2.3");
    metrics.turns.started("chat");
    metrics.turns.ended("chat", TurnEnd::Completed, 1_500 * MILLI);
    metrics.turns.started("chat");
    metrics.turns.ended("chat", TurnEnd::Canceled, 1_000_000 * MILLI);
    metrics.turns.closed("chat", &spent());
    metrics.turns.watch(|| turns::Now { under_way: 3, limit: 1_000 });
    let call = Call { answer: Answer::of_status(404), took: 3 * MILLI, sent: 10, received: 20 };
    metrics.egress.called("chat", &call);
    metrics.egress.denied("chat", Denial::Secret);
    metrics.executors.fault("chat", Fault::Cpu);
    metrics.executors.changed("chat", Change::RolledBack);
    let one = |name: &str| OneExecutor {
        name: name.into(),
        is_ready: true,
        in_use: 2,
        limit: 8,
        ..OneExecutor::default()
    };
    metrics.executors.watch(move || executors::Now {
        executors: vec![one("chat"), one("other")],
        routed: vec![("default".into(), 4), ("a \"quoted\\\nroute".into(), 1)],
    });
    metrics.requests.answered(Operation::Send, Version::V1, Status::of(200, false), MILLI / 2);
    metrics.requests.answered(Operation::Send, Version::V1, Status::of(200, true), MILLI);
    metrics.requests.watch(|| requests::Now { streams_open: 2, refused: vec![(Refusal::CallerRate, 5)] });
    metrics.push.tried(Push::Failed);
    metrics.push.watch(|| push::Now { following: 1, delivering: 1, given_up: 1 });
    metrics.mailbox.watch(|| mailbox::Now { turns: vec![(Mail::InLine, 1)], bytes: 9 });
    metrics.tools.called("look", ToolEnd::Refused);
    metrics.tools.server_called("docs", ToolEnd::Failed);
    metrics.tools.watch(|| vec![("docs".into(), true)]);
    metrics.store.took(Stored::Append, MILLI, true);
    metrics.store.watch(|| store::Now { size: 7, limit: 70 });
    metrics.memory.watch(|| memory::Now { used: 5, limit: 50, refused: 1 });
    metrics
}

fn spent() -> Spent {
    let instance = InInstance { waited: MILLI, guest: MILLI / 2, upstream: 900 * MILLI, memory: 3 << 20 };
    Spent {
        lane: Some(Duration::ZERO),
        instance: Some(instance),
        first_text: Some(100 * MILLI),
        tokens: Some((11, 22)),
        failure: Some(Failure::named("upstream")),
    }
}

/// After a change: `TALARIA_BLESS=1 cargo test --workspace --lib metrics`, then read the difference.
#[test]
fn the_page_is_in_docs() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let page = Metrics::new("0").page();
    if std::env::var_os("TALARIA_BLESS").is_some() {
        std::fs::write(&path, &page).expect("docs/ can be written");
    }
    assert!(
        std::fs::read_to_string(path).unwrap_or_default() == page,
        "docs/metrics.md is not what the code says; run `TALARIA_BLESS=1 cargo test --workspace --lib metrics`"
    );
}

#[test]
fn every_family_is_well_described() {
    let metrics = counted();
    let mut names = BTreeSet::new();
    for family in metrics.registry.sources().flat_map(registry::Source::families) {
        assert!(names.insert(family.name), "{} is there twice", family.name);
        assert_eq!(family.kind == Kind::Counter, family.name.ends_with("_total"), "{}", family.name);
        assert!(family.kind != Kind::Histogram || family.unit().is_some(), "{} has no unit", family.name);
        assert!(family.question.ends_with('?') && !family.help.ends_with('.'), "{}", family.name);
        assert!(!family.help.contains(['\\', '\n', '"', '|']), "{} would have to be escaped", family.name);
        for label in family.labels {
            assert!(!matches!(label.name, "le" | "quantile" | "job" | "instance"), "{}", family.name);
            if let Values::Closed(values) = label.values {
                assert!(values.len() < 32, "{} has too many values", family.name);
            }
        }
    }
}

#[test]
fn every_family_is_in_the_text_with_help_type_and_samples() {
    let metrics = counted();
    for format in [Format::Prometheus, Format::OpenMetrics] {
        let text = metrics.text(format);
        for family in metrics.registry.sources().flat_map(registry::Source::families) {
            let described = match (format, family.kind) {
                (Format::OpenMetrics, Kind::Counter) => family.name.trim_end_matches("_total"),
                (Format::OpenMetrics, Kind::Info) => family.name.trim_end_matches("_info"),
                _ => family.name,
            };
            for what in ["HELP", "TYPE"] {
                let line = format!("# {what} {described} ");
                assert_eq!(text.matches(&line).count(), 1, "{line} in\n{text}");
            }
            let is_sample = |line: &str| {
                line.strip_prefix(family.name).is_some_and(|rest| {
                    rest.starts_with([' ', '{'])
                        || family.kind == Kind::Histogram && rest.starts_with("_count")
                })
            };
            assert!(text.lines().any(is_sample), "{} has no sample in\n{text}", family.name);
        }
    }
}

#[test]
fn samples_are_as_counted() {
    let text = counted().text(Format::Prometheus);
    for line in [
        "# TYPE talaria_turns_ended_total counter",
        "talaria_build_info{version=\"1.2.3\"} 1",
        "talaria_turns_started_total{executor=\"chat\"} 2",
        "talaria_turns_ended_total{executor=\"chat\",state=\"canceled\"} 1",
        "talaria_turns_ended_total{executor=\"chat\",state=\"failed\"} 0",
        "talaria_turn_duration_seconds_bucket{executor=\"chat\",le=\"1.0\"} 0",
        "talaria_turn_duration_seconds_bucket{executor=\"chat\",le=\"2.5\"} 1",
        "talaria_turn_duration_seconds_bucket{executor=\"chat\",le=\"600.0\"} 1",
        "talaria_turn_duration_seconds_bucket{executor=\"chat\",le=\"+Inf\"} 2",
        "talaria_turn_duration_seconds_count{executor=\"chat\"} 2",
        "talaria_turn_duration_seconds_sum{executor=\"chat\"} 1001.5",
        "talaria_turn_guest_seconds_bucket{executor=\"chat\",le=\"0.0005\"} 1",
        "talaria_turn_guest_memory_bytes_bucket{executor=\"chat\",le=\"4194304.0\"} 1",
        "talaria_turn_failures_total{executor=\"chat\",kind=\"upstream\"} 1",
        "talaria_tokens_total{executor=\"chat\",direction=\"output\"} 22",
        "talaria_egress_calls_total{executor=\"chat\",answer=\"4xx\"} 1",
        "talaria_denials_total{executor=\"chat\",kind=\"secret\"} 1",
        "talaria_executor_faults_total{executor=\"chat\",kind=\"cpu\"} 1",
        "talaria_executor_faults_total{executor=\"other\",kind=\"cpu\"} 0",
        "talaria_executor_changes_total{executor=\"chat\",result=\"rolled-back\"} 1",
        "talaria_messages_routed_total{route=\"a \\\"quoted\\\\\\nroute\"} 1",
        "talaria_requests_total{operation=\"SendMessage\",version=\"1.0\",status=\"2xx\"} 1",
        "talaria_requests_total{operation=\"SendMessage\",version=\"1.0\",status=\"rpc-error\"} 1",
        "talaria_requests_refused_total{reason=\"caller-rate\"} 5",
        "talaria_mailbox_turns{state=\"in-line\"} 1",
        "talaria_tool_server_calls_total{server=\"docs\",end=\"failed\"} 1",
        "talaria_store_operation_seconds_count{operation=\"append\"} 1",
        "talaria_store_failures_total{operation=\"append\"} 1",
    ] {
        assert!(text.lines().any(|said| said == line), "{line} is not in:\n{text}");
    }
    assert!(!text.contains("# UNIT") && !text.contains("# EOF"), "{text}");
}

#[test]
fn open_metrics_names_families_without_total_and_ends_with_a_mark() {
    let text = counted().text(Format::OpenMetrics);
    for line in [
        "# TYPE talaria_turns_ended counter",
        "# TYPE talaria_build info",
        "# TYPE process_cpu_seconds counter",
        "# UNIT process_cpu_seconds seconds",
        "# UNIT talaria_memory_used_bytes bytes",
        "talaria_turns_ended_total{executor=\"chat\",state=\"completed\"} 1",
    ] {
        assert!(text.lines().any(|said| said == line), "{line} is not in:\n{text}");
    }
    assert!(text.ends_with("\n# EOF\n"), "{text}");
}

#[test]
fn open_metrics_is_for_those_who_name_it() {
    for (accept, format) in [
        (None, Format::Prometheus),
        (Some(""), Format::Prometheus),
        (Some("*/*"), Format::Prometheus),
        (Some("text/plain"), Format::Prometheus),
        (Some("application/openmetrics-text"), Format::OpenMetrics),
        (Some("Application/OpenMetrics-Text; version=1.0.0"), Format::OpenMetrics),
        (Some("application/openmetrics-text;q=0"), Format::Prometheus),
        (Some("application/openmetrics-text;q=nonsense"), Format::Prometheus),
        (Some("application/openmetrics-text;q=0.3,text/plain;q=0.7"), Format::Prometheus),
        (
            Some(
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                 text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            ),
            Format::OpenMetrics,
        ),
    ] {
        assert_eq!(Format::accepted(accept), format, "{accept:?}");
    }
}

/// The operations of the protocol in every spelling that the access log has.
#[test]
fn every_operation_has_a_name_of_its_own() {
    let spelled = [
        (Operation::Send, &["SendMessage", "message/send", "message:send"][..]),
        (Operation::Stream, &["SendStreamingMessage", "message/stream", "message:stream"]),
        (Operation::Get, &["GetTask", "tasks/get", "task"]),
        (Operation::List, &["ListTasks", "tasks/list", "tasks"]),
        (Operation::Cancel, &["CancelTask", "tasks/cancel", "task:cancel"]),
        (Operation::Subscribe, &["SubscribeToTask", "tasks/resubscribe", "task:subscribe"]),
        (Operation::ExtendedCard, &["GetExtendedAgentCard", "extendedAgentCard"]),
        (Operation::Card, &["card"]),
        (Operation::Other, &["rpc", "grpc", "unknown", ""]),
    ];
    for (operation, names) in spelled {
        for name in names {
            assert_eq!(Operation::of(name, "GET"), operation, "{name}");
        }
    }
    assert_eq!(Operation::of("pushNotificationConfigs", "POST"), Operation::CreatePush);
}

/// What a turn with three calls pays for being counted. `--nocapture` shows it; the bound is for a debug build on a busy machine.
#[test]
fn a_turn_costs_microseconds() {
    let metrics = Metrics::new("0");
    let call = Call { answer: Answer::Status2, took: MILLI, sent: 1, received: 1 };
    let names = ["chat", "with-a-longer-name", "third", "fourth"];
    let turns = 20_000;
    let began = Instant::now();
    for turn in 0..turns {
        let name = names[turn % names.len()];
        metrics.requests.answered(Operation::of("SendMessage", "POST"), Version::V1, Status::Status2, MILLI);
        metrics.turns.started(name);
        for _ in 0..3 {
            metrics.egress.called(name, &call);
        }
        metrics.turns.ended(name, TurnEnd::Completed, MILLI);
        metrics.turns.closed(name, &spent());
    }
    let each = began.elapsed() / u32::try_from(turns).unwrap();
    println!("a turn with three calls pays {each:?}");
    assert!(each < 100 * MILLI / 1_000, "{each:?}");
}
