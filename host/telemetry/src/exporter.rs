//! Sends batches of spans to a collector, as OTLP in protobuf over HTTP.
//!
//! The encoding is the one of `opentelemetry-proto`. The call is one of the host's own ([`OriginClient`]): the collector's origin
//! and no other, with its bounds, the operator's proxy and certificates, and the credentials filled in by the egress. What the
//! SDK's exporter would bring beside that is an HTTP client and reading the environment.
//!
//! Every text is scrubbed here, on the thread that sends, since turns should not wait for it.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use opentelemetry::{KeyValue, Value, trace::Status};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use prost::Message as _;
use talaria_backoff::Backoff;
use talaria_egress::{Bounds, Egress, Error, ErrorKind, Origin, OriginClient, Request};
use talaria_redact::Redactor;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::config::Config;
use crate::names;

/// The niceness of the thread that encodes.
const LOWEST: i32 = 19;
/// The longest answer of a collector.
const ANSWER: usize = 64 << 10;

/// What became of spans. Cheap to clone; all clones share the numbers.
#[derive(Debug, Clone, Default)]
pub struct Counts(Arc<Numbers>);

#[derive(Debug, Default)]
struct Numbers {
    waiting: AtomicUsize,
    exported: AtomicU64,
    dropped: AtomicU64,
    closing: CancellationToken,
}

/// Sends spans to a collector.
pub(crate) struct Otlp {
    post: Post,
    runtime: Handle,
    /// Calls run on the runtime, since the thread that asks for them has none.
    tracker: TaskTracker,
    resource: ResourceAttributesWithSchema,
    counts: Counts,
    is_failing: AtomicBool,
    gives_way: Once,
}

/// How a batch is posted.
#[derive(Clone)]
struct Post {
    client: OriginClient,
    url: String,
    timeout: Duration,
    closing: CancellationToken,
}

// === impl Counts ===

impl Counts {
    /// The spans that a collector took.
    #[must_use]
    pub fn exported(&self) -> u64 {
        self.0.exported.load(Ordering::Relaxed)
    }

    /// The spans that were dropped, because too many waited or no collector took them.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    /// The spans that wait, those that are being sent included.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::Relaxed)
    }

    /// Counts a span that is about to wait, unless `most` do.
    pub(crate) fn admit(&self, most: usize) -> bool {
        if self.0.waiting.fetch_add(1, Ordering::Relaxed) < most {
            return true;
        }
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
        self.0.dropped.fetch_add(1, Ordering::Relaxed);
        false
    }

    /// No batch is tried again from here on.
    pub(crate) fn close(&self) {
        self.0.closing.cancel();
    }

    fn ended(&self, spans: usize, rejected: usize) {
        let rejected = rejected.min(spans);
        self.0.waiting.fetch_sub(spans, Ordering::Relaxed);
        self.0.exported.fetch_add((spans - rejected) as u64, Ordering::Relaxed);
        self.0.dropped.fetch_add(rejected as u64, Ordering::Relaxed);
    }
}

// === impl Otlp ===

impl Otlp {
    pub(crate) fn new(
        config: &Config,
        egress: &Egress,
        runtime: Handle,
        version: &'static str,
        counts: Counts,
    ) -> Result<Self, Error> {
        let origin: Origin = config.url.parse()?;
        let bounds = Bounds { timeout: config.timeout, response_body: ANSWER, ..Bounds::default() };
        let mut client = egress.origin_client("telemetry", &origin).with_bounds(bounds);
        for (name, value) in &config.headers {
            client = client.with_secret_header(name, value.clone())?;
        }
        let attributes = config.resource.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
        let resource = Resource::builder_empty()
            .with_attributes(attributes)
            .with_attribute(KeyValue::new(names::SERVICE_VERSION, version))
            .build();
        let (url, timeout, closing) = (config.url.clone(), config.timeout, counts.0.closing.clone());
        Ok(Self {
            post: Post { client, url, timeout, closing },
            runtime,
            tracker: TaskTracker::new(),
            resource: (&resource).into(),
            counts,
            is_failing: AtomicBool::new(false),
            gives_way: Once::new(),
        })
    }

    fn encode(&self, spans: Vec<SpanData>) -> Vec<u8> {
        let spans = spans.into_iter().map(scrub).collect();
        let resource_spans = group_spans_by_resource_and_scope(spans, &self.resource);
        ExportTraceServiceRequest { resource_spans }.encode_to_vec()
    }

    /// Logs when it begins to fail, and when it works again.
    fn judge(&self, result: &Result<usize, String>) {
        match result {
            Err(why) if !self.is_failing.swap(true, Ordering::Relaxed) => {
                warn!(
                    why,
                    "spans were not exported and are dropped; until that works again, nothing more is logged about it"
                );
            }
            Ok(_) if self.is_failing.swap(false, Ordering::Relaxed) => {
                info!(dropped = self.counts.dropped(), "spans are exported again");
            }
            _ => {}
        }
    }
}

impl SpanExporter for Otlp {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        // The first batch is exported by the same thread as all others.
        self.gives_way.call_once(give_way);
        let (spans, post) = (batch.len(), self.post.clone());
        let body = self.encode(batch);
        let posted = self.tracker.spawn_on(async move { post.send(body).await }, &self.runtime).await;
        let result = posted.unwrap_or_else(|_| Err("the host stops".to_owned()));
        self.counts.ended(spans, *result.as_ref().unwrap_or(&spans));
        self.judge(&result);
        result.map(drop).map_err(OTelSdkError::InternalFailure)
    }
}

impl fmt::Debug for Otlp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Otlp").field("counts", &self.counts).finish_non_exhaustive()
    }
}

// === impl Post ===

impl Post {
    /// Posts a batch until a collector takes it, an answer is final, or the time is over. Returns how many spans of it the
    /// collector rejected.
    async fn send(&self, body: Vec<u8>) -> Result<usize, String> {
        let mut last = "the collector did not answer in time".to_owned();
        let tries = async {
            let mut backoff = Backoff::from_first(Duration::from_millis(500)).with_jitter();
            loop {
                let (why, is_final) = match self.once(body.clone()).await {
                    Ok(rejected) => return Ok(rejected),
                    Err(failed) => failed,
                };
                last = why;
                let pause = tokio::time::sleep(backoff.next_delay());
                if is_final || self.closing.run_until_cancelled(pause).await.is_none() {
                    return Err(());
                }
            }
        };
        let sent = tokio::time::timeout(self.timeout, tries).await;
        match sent {
            Ok(Ok(rejected)) => Ok(rejected),
            Ok(Err(())) | Err(_) => Err(last),
        }
    }

    /// Posts a batch once. An error says whether it is final.
    async fn once(&self, body: Vec<u8>) -> Result<usize, (String, bool)> {
        let request = Request {
            method: "POST".to_owned(),
            url: self.url.clone(),
            headers: vec![("content-type".to_owned(), "application/x-protobuf".to_owned())],
            body: body.into(),
            timeout: None,
            max_bytes: Some(ANSWER),
        };
        let response = self.client.fetch(request).await.map_err(|error| {
            let is_final = matches!(error.kind(), ErrorKind::Denied | ErrorKind::InvalidRequest);
            (error.message().to_owned(), is_final)
        })?;
        match response.status {
            200..=299 => {
                let answer = ExportTraceServiceResponse::decode(response.body).unwrap_or_default();
                let rejected = answer.partial_success.map_or(0, |part| part.rejected_spans);
                Ok(usize::try_from(rejected).unwrap_or_default())
            }
            // As the specification has it.
            status @ (429 | 502 | 503 | 504) => Err((format!("the collector answered {status}"), false)),
            status => Err((format!("the collector answered {status}"), true)),
        }
    }
}

/// Lowers the priority of this thread. Where that is not possible it stays as it is.
fn give_way() {
    // Of a thread, on Linux.
    let _ = rustix::process::setpriority_process(None, LOWEST);
}

/// Removes secrets from every text of a span.
fn scrub(mut span: SpanData) -> SpanData {
    let redactor = Redactor::process();
    let attributes = |all: &mut Vec<KeyValue>| {
        for attribute in all {
            if let Value::String(text) = &attribute.value
                && let Cow::Owned(scrubbed) = redactor.all(text.as_str())
            {
                attribute.value = scrubbed.into();
            }
        }
    };
    attributes(&mut span.attributes);
    if let Cow::Owned(scrubbed) = redactor.all(&span.name) {
        span.name = scrubbed.into();
    }
    for event in &mut span.events.events {
        if let Cow::Owned(scrubbed) = redactor.all(&event.name) {
            event.name = scrubbed.into();
        }
    }
    if let Status::Error { description } = &mut span.status
        && let Cow::Owned(scrubbed) = redactor.all(description)
    {
        *description = scrubbed.into();
    }
    span
}
