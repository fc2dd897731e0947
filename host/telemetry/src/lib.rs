//! Traces for OpenTelemetry.
//!
//! **Promise.** A turn that is recorded becomes spans of one trace: `turn`, `guest.execute` within it, and within that every
//! call, callback, tool and span of the guest, as its [`Timeline`] has them. A step is handed over when it ends, the turn
//! when it is closed, so what ended before a crash is not lost with the turn. The ids are those that the calls carried.
//!
//! **Bounds.** At most `OTEL_BSP_MAX_QUEUE_SIZE` spans wait, with the batch that is being sent; one more is dropped and counted
//! ([`Counts`]). Attributes are as short as the timeline and the guest's limits make them. Nothing waits for the collector: a
//! thread of its own encodes, at the lowest priority, since turns come first where there are not enough cores; each batch is
//! sent within `OTEL_EXPORTER_OTLP_TIMEOUT`, through the host's own HTTP client.
//!
//! **On failure** spans are dropped, one line is logged when it begins and one when it is over.
//!
//! **Why so.** `tracing-opentelemetry` would make every span of the process a span of the trace: each costs a turn a lock, a
//! log filter would cut the trace, and nothing would know the ids of a turn after a restart (docs/decisions/075). Nothing here
//! reads the environment itself: the SDK's own configuration would, unchecked.
#![forbid(unsafe_code)]

mod config;
mod content;
mod exporter;
mod names;
mod sampler;
mod spans;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry::InstrumentationScope;
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanProcessor as _};
use talaria_egress::{Egress, Error};
use talaria_turns::{
    STEPS, SpanId, Step, TaskId, Timeline, TraceContext, TraceSampler, Turn, TurnEnd, TurnObserver,
};
use tokio::runtime::Handle;
use tracing::warn;

pub use self::config::{Config, Invalid};
use self::content::Contents;
pub use self::exporter::Counts;
use self::exporter::Otlp;
use self::sampler::Sampler;
use self::spans::Spans;

/// How long the last spans may take to be sent when the host stops.
const LAST: Duration = Duration::from_secs(3);

/// The traces of a host. Cheap to clone.
#[derive(Clone)]
pub struct Telemetry(Arc<Inner>);

struct Inner {
    processor: BatchSpanProcessor,
    sampler: Sampler,
    spans: Spans,
    counts: Counts,
    queue: usize,
    /// The content of the turns under way, if it is recorded.
    contents: Option<Contents>,
}

/// An answered request.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Its place in the trace.
    pub trace: &'a TraceContext,
    /// The HTTP method.
    pub method: &'a str,
    /// The operation.
    pub operation: &'static str,
    /// The version of A2A; empty if it is not known.
    pub version: &'static str,
    /// The status that HTTP has or would have.
    pub status: u16,
    /// The code of the error, in JSON-RPC's numbers.
    pub code: Option<i32>,
    /// The task that it names or made.
    pub task: Option<&'a TaskId>,
    /// How long it took.
    pub took: Duration,
}

/// An attempt to deliver a push notification.
#[derive(Debug, Clone, Copy)]
pub struct Push<'a> {
    /// The task.
    pub task: &'a TaskId,
    /// The address of the receiver.
    pub url: &'a str,
    /// Why it failed.
    pub error: Option<&'a str>,
    /// When it began.
    pub began: SystemTime,
}

// === impl Telemetry ===

impl Telemetry {
    /// Starts the thread that sends spans. The calls run on `runtime`.
    ///
    /// # Errors
    /// An endpoint or a header that cannot be used.
    pub fn start(
        config: Config,
        egress: &Egress,
        runtime: Handle,
        version: &'static str,
    ) -> Result<Self, Error> {
        let Config { sampler, batch, content, .. } = config.clone();
        let counts = Counts::default();
        let exporter = Otlp::new(&config, egress, runtime, version, counts.clone())?;
        let queue = batch.queue;
        let batch = BatchConfigBuilder::default()
            .with_max_queue_size(queue)
            .with_max_export_batch_size(batch.size)
            .with_scheduled_delay(batch.delay)
            .build();
        let processor = BatchSpanProcessor::builder(exporter).with_batch_config(batch).build();
        let scope = InstrumentationScope::builder("talaria")
            .with_version(version)
            .with_schema_url(names::SCHEMA_URL)
            .build();
        let (spans, contents) = (Spans::new(scope), content.then(Contents::default));
        Ok(Self(Arc::new(Inner { processor, sampler, spans, counts, queue, contents })))
    }

    /// What became of the spans so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.0.counts.clone()
    }

    /// Records a request, if its trace is recorded.
    pub fn answered(&self, request: &Request<'_>) {
        if request.trace.sampled {
            self.hand_over(|| self.0.spans.request(request));
        }
    }

    /// Records a delivery in `span` of the trace that `of` belongs to, if it is recorded.
    pub fn delivered(&self, of: &TraceContext, span: SpanId, push: &Push<'_>) {
        if of.sampled {
            self.hand_over(|| self.0.spans.push(of, span, push));
        }
    }

    /// Sends what there is, for a few seconds at most.
    pub async fn shutdown(&self) {
        let telemetry = self.clone();
        telemetry.0.counts.close();
        let last = tokio::task::spawn_blocking(move || telemetry.0.processor.shutdown_with_timeout(LAST));
        if !matches!(tokio::time::timeout(LAST, last).await, Ok(Ok(Ok(())))) {
            warn!("the last spans were not sent");
        }
    }

    /// Makes a span and hands it over, if there is room for it. Never waits.
    fn hand_over(&self, span: impl FnOnce() -> SpanData) {
        if self.0.counts.admit(self.0.queue) {
            self.0.processor.on_end(span());
        }
    }
}

impl TraceSampler for Telemetry {
    fn sample(&self, caller: Option<&TraceContext>) -> TraceContext {
        self.0.sampler.sample(caller)
    }
}

impl TurnObserver for Telemetry {
    fn began(&self, _: &str, _: &Turn) {}

    fn ended(&self, _: &str, turn: &Turn, end: TurnEnd<'_>, _: Duration) {
        let Some(contents) = &self.0.contents else { return };
        contents.note(
            turn,
            match end {
                TurnEnd::Outcome(outcome) => Some(outcome),
                TurnEnd::Failure(_) | TurnEnd::Cancelled | TurnEnd::Dropped => None,
            },
        );
    }

    fn step_ended(&self, timeline: &Arc<Timeline>, step: &Step) {
        // Further steps are counted only.
        if let (Some(of), Some(trace)) = (recorded(timeline), &step.trace)
            && step.number < STEPS
        {
            self.hand_over(|| self.0.spans.step((timeline, of), (step, trace)));
        }
    }

    fn closed(&self, timeline: &Arc<Timeline>) {
        let content = self.0.contents.as_ref().and_then(|contents| contents.take(&timeline.task));
        let Some(of) = recorded(timeline) else { return };
        timeline.read(|facts| {
            if let Some(queued) = facts.queued {
                self.hand_over(|| self.0.spans.guest((timeline, of), facts, queued));
            }
            self.hand_over(|| self.0.spans.turn((timeline, of), facts, content));
        });
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").field("sampler", &self.0.sampler).finish_non_exhaustive()
    }
}

/// The place of a turn in its trace, if that is recorded.
fn recorded(timeline: &Timeline) -> Option<&TraceContext> {
    timeline.trace.as_ref().filter(|trace| trace.sampled)
}

#[cfg(test)]
mod tests;
