//! A fake collector of OpenTelemetry: takes OTLP in protobuf over HTTP, and decodes it with the types of the specification.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::{Span, status::StatusCode};
use prost::Message as _;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::gateway::{FakeGateway, Recorded};
use crate::reply::Reply;
use crate::soon;

/// A collector on loopback. Dropping it closes its port.
pub struct FakeCollector {
    server: FakeGateway,
}

/// A collector that counts bytes and keeps nothing, for measurements.
pub struct ForgetfulCollector {
    address: SocketAddr,
    taken: Arc<AtomicUsize>,
    _accepting: JoinSet<()>,
}

/// A span as it arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct Exported {
    /// The id of its trace, in hexadecimal digits.
    pub trace: String,
    /// Its id, likewise.
    pub id: String,
    /// The id of its parent; empty if it has none.
    pub parent: String,
    /// Its name.
    pub name: String,
    /// Its attributes, as text.
    pub attributes: BTreeMap<String, String>,
    /// The names of its events.
    pub events: Vec<String>,
    /// The traces and spans that it is linked to.
    pub links: Vec<(String, String)>,
    /// What went wrong, if its status is an error.
    pub error: Option<String>,
    /// The `tracestate`.
    pub state: String,
    /// When it began and ended, in nanoseconds since 1970.
    pub time: (u64, u64),
    /// The attributes of its resource.
    pub resource: BTreeMap<String, String>,
}

// === impl FakeCollector ===

impl FakeCollector {
    /// Starts a collector that takes everything.
    pub async fn start() -> Self {
        Self::answering(|_| Reply::status(200, "application/x-protobuf", Vec::new())).await
    }

    /// Starts a collector that answers as a function says.
    pub async fn answering(script: impl Fn(&Recorded) -> Reply + Send + Sync + 'static) -> Self {
        Self { server: FakeGateway::start(script).await }
    }

    /// What `OTEL_EXPORTER_OTLP_ENDPOINT` is.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// The posts so far.
    #[must_use]
    pub fn posts(&self) -> Vec<Recorded> {
        self.server.requests()
    }

    /// The spans so far, in the order in which they arrived.
    ///
    /// # Panics
    /// If a request is not an export of traces.
    #[must_use]
    pub fn spans(&self) -> Vec<Exported> {
        self.posts().iter().flat_map(decode).collect()
    }

    /// Waits until the spans are as the test wants them. Returns them.
    pub async fn until(&self, what: &str, wanted: impl Fn(&[Exported]) -> bool) -> Vec<Exported> {
        soon(&format!("the collector gets {what}"), async {
            loop {
                let spans = self.spans();
                if wanted(&spans) {
                    return spans;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
    }

    /// Waits for a span of this name. Returns all spans.
    pub async fn has(&self, name: &str) -> Vec<Exported> {
        self.until(name, |spans| spans.iter().any(|span| span.name == name)).await
    }
}

// === impl ForgetfulCollector ===

impl ForgetfulCollector {
    /// Starts one.
    pub async fn start() -> Self {
        let listener = crate::port::listen().await;
        let address = listener.local_addr().unwrap();
        let taken = Arc::new(AtomicUsize::new(0));
        let mut accepting = JoinSet::new();
        accepting.spawn(forget(listener, Arc::clone(&taken)));
        Self { address, taken, _accepting: accepting }
    }

    /// What `OTEL_EXPORTER_OTLP_ENDPOINT` is.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The bytes of the posts so far.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

async fn forget(listener: TcpListener, taken: Arc<AtomicUsize>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let taken = Arc::clone(&taken);
        let answer = service_fn(move |request: Request<Incoming>| {
            let taken = Arc::clone(&taken);
            async move {
                let mut body = request.into_body();
                while let Some(frame) = body.frame().await {
                    let bytes = frame?.data_ref().map_or(0, Bytes::len);
                    taken.fetch_add(bytes, Ordering::Relaxed);
                }
                Ok::<_, hyper::Error>(Response::new(Empty::<Bytes>::new()))
            }
        });
        connections.spawn(async move {
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

// === impl Exported ===

impl Exported {
    /// The value of an attribute; empty if the span lacks it.
    #[must_use]
    pub fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }
}

fn decode(post: &Recorded) -> Vec<Exported> {
    assert_eq!((post.method.as_str(), post.path.as_str()), ("POST", "/v1/traces"));
    assert_eq!(post.header("content-type"), Some("application/x-protobuf"));
    let export = ExportTraceServiceRequest::decode(post.body.clone()).expect("an export of traces");
    let mut spans = Vec::new();
    for of_resource in export.resource_spans {
        let resource = texts(&of_resource.resource.expect("a resource").attributes);
        for of_scope in of_resource.scope_spans {
            assert_eq!(of_scope.scope.expect("a scope").name, "talaria");
            assert!(of_scope.schema_url.starts_with("https://opentelemetry.io/schemas/"));
            spans.extend(of_scope.spans.into_iter().map(|span| exported(span, &resource)));
        }
    }
    spans
}

fn exported(span: Span, resource: &BTreeMap<String, String>) -> Exported {
    let status = span.status.unwrap_or_default();
    Exported {
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        attributes: texts(&span.attributes),
        events: span.events.into_iter().map(|event| event.name).collect(),
        links: span.links.iter().map(|link| (hex(&link.trace_id), hex(&link.span_id))).collect(),
        error: (status.code == StatusCode::Error as i32).then_some(status.message),
        state: span.trace_state,
        time: (span.start_time_unix_nano, span.end_time_unix_nano),
        name: span.name,
        resource: resource.clone(),
    }
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |value: &Option<AnyValue>| match value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        Some(Value::BoolValue(yes)) => yes.to_string(),
        other => format!("{other:?}"),
    };
    attributes.iter().map(|attribute| (attribute.key.clone(), text(&attribute.value))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
