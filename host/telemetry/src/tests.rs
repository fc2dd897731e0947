use std::sync::atomic::{AtomicUsize, Ordering};

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceResponse,
};
use prost::Message as _;
use talaria_fakes::{FakeCollector, Reply, soon};

use super::*;

fn started(collector: &FakeCollector, more: &[(&str, &str)]) -> Telemetry {
    let endpoint = collector.endpoint();
    let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_BSP_SCHEDULE_DELAY", "10")];
    let get = |name: &str| {
        let found = more.iter().chain(&variables).find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let config = Config::read(get).unwrap().expect("on");
    let egress = Egress::new(talaria_egress::Config::default());
    Telemetry::start(config, &egress, Handle::current(), "1").unwrap()
}

fn answer(telemetry: &Telemetry, trace: &TraceContext) {
    let (method, operation, version) = ("POST", "send", "1.0");
    let took = Duration::from_millis(1);
    let request = Request { trace, method, operation, version, status: 200, code: None, task: None, took };
    telemetry.answered(&request);
}

async fn counted(telemetry: &Telemetry, exported: u64, dropped: u64) {
    let counts = telemetry.counts();
    soon("all spans are counted", async {
        while (counts.exported(), counts.dropped()) != (exported, dropped) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(counts.waiting(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_beyond_the_queue_are_dropped_and_counted() {
    let collector = FakeCollector::answering(|_| Reply::hang()).await;
    let telemetry = started(&collector, &[("OTEL_BSP_MAX_QUEUE_SIZE", "10")]);
    for _ in 0..1_000 {
        answer(&telemetry, &TraceContext::root(true));
        answer(&telemetry, &TraceContext::root(false));
    }
    let counts = telemetry.counts();
    assert_eq!((counts.waiting(), counts.dropped(), counts.exported()), (10, 990, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_tried_again_while_the_collector_is_busy() {
    let tried = AtomicUsize::new(0);
    let collector = FakeCollector::answering(move |_| match tried.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::status(503, "text/plain", "busy"),
        _ => Reply::status(200, "application/x-protobuf", Vec::new()),
    });
    let collector = collector.await;
    let telemetry = started(&collector, &[]);
    answer(&telemetry, &TraceContext::root(true));
    counted(&telemetry, 1, 0).await;
    let posts = collector.posts();
    assert_eq!(posts.len(), 2);
    assert_eq!(posts[0].body, posts[1].body);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_collector_rejects_counts_as_dropped() {
    let rejects = ExportTracePartialSuccess { rejected_spans: 1, ..Default::default() };
    let rejects = ExportTraceServiceResponse { partial_success: Some(rejects) }.encode_to_vec();
    let asked = AtomicUsize::new(0);
    let collector = FakeCollector::answering(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::status(200, "application/x-protobuf", rejects.clone()),
        _ => Reply::status(400, "text/plain", "no"),
    });
    let collector = collector.await;
    let telemetry = started(&collector, &[("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")]);
    answer(&telemetry, &TraceContext::root(true));
    counted(&telemetry, 0, 1).await;
    answer(&telemetry, &TraceContext::root(true));
    counted(&telemetry, 0, 2).await;
    assert_eq!(collector.posts().len(), 2, "a 400 is final");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_sends_what_waits() {
    let collector = FakeCollector::start().await;
    let telemetry = started(&collector, &[("OTEL_BSP_SCHEDULE_DELAY", "3600000")]);
    answer(&telemetry, &TraceContext::root(true));
    telemetry.shutdown().await;
    assert_eq!(collector.spans().len(), 1);
}
