//! Spans of OpenTelemetry from what is known of requests, turns, steps and deliveries. No content of messages, no query of a
//! URL and no header is in them, unless content is recorded.

use std::borrow::Cow;
use std::str::FromStr as _;
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{
    Event, Link, SpanContext, SpanId as OtelSpanId, SpanKind, Status, TraceFlags, TraceId as OtelTraceId,
    TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use talaria_turns::{Facts, SpanId, Step, StepKind, StepTrace, Timeline, TraceContext, TurnState};

use crate::content::Content;
use crate::{Push, Request, names};

/// The length from which on the name of a step may have been cut.
const CUT: usize = 508;

/// Makes spans.
pub(crate) struct Spans {
    scope: InstrumentationScope,
}

/// The attributes of a span.
#[derive(Default)]
struct Attributes(Vec<KeyValue>);

/// Where a span is in its trace, and when it was.
struct Place<'a> {
    of: &'a TraceContext,
    span: SpanId,
    parent: Option<SpanId>,
    is_parent_remote: bool,
    from: SystemTime,
    to: SystemTime,
}

// === impl Attributes ===

impl Attributes {
    fn add(&mut self, key: &'static str, value: impl Into<Value>) {
        self.0.push(KeyValue::new(key, value.into()));
    }

    fn text(&mut self, key: &'static str, value: &str) {
        self.add(key, value.to_owned());
    }

    fn count(&mut self, key: &'static str, value: usize) {
        self.add(key, i64::try_from(value).unwrap_or(i64::MAX));
    }

    fn millis(&mut self, key: &'static str, value: Duration) {
        self.add(key, (value.as_secs_f64() * 1e6).round() / 1e3);
    }

    /// What is called, from `METHOD URL` or a URL. A name and a password in it are left out, and a path that was cut.
    fn url(&mut self, url: &str) {
        let url = url.split(['?', '#']).next().unwrap_or_default();
        let Some((scheme, rest)) = url.split_once("://") else { return };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let authority = authority.rsplit('@').next().unwrap_or_default();
        let path = if url.len() >= CUT { "/…" } else { path };
        self.add(names::URL, format!("{scheme}://{authority}{path}"));
        self.server(scheme, authority);
    }

    fn server(&mut self, scheme: &str, authority: &str) {
        let port =
            authority.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
        let default = if scheme == "https" { 443 } else { 80 };
        let (host, port) = port.unwrap_or((authority, default));
        self.text(names::ADDRESS, host.trim_matches(['[', ']']));
        self.add(names::PORT, i64::from(port));
    }
}

// === impl Spans ===

impl Spans {
    pub(crate) fn new(scope: InstrumentationScope) -> Self {
        Self { scope }
    }

    /// The span of a closed turn.
    pub(crate) fn turn(
        &self,
        (timeline, of): (&Timeline, &TraceContext),
        facts: &Facts,
        content: Option<Content>,
    ) -> SpanData {
        let place = Place {
            of,
            span: of.span,
            parent: of.parent,
            is_parent_remote: of.is_parent_remote,
            from: timeline.time(Duration::ZERO),
            to: timeline.time(facts.ended.unwrap_or_else(|| timeline.elapsed())),
        };
        let span = self.span(&place, names::TURN, SpanKind::Internal, turn(timeline, facts, content));
        SpanData { status: status(facts), ..span }
    }

    /// The span of the call of its executor.
    pub(crate) fn guest(
        &self,
        (timeline, of): (&Timeline, &TraceContext),
        facts: &Facts,
        queued: Duration,
    ) -> SpanData {
        let returned = facts.returned.or(facts.ended).unwrap_or_else(|| timeline.elapsed());
        let place = Place {
            of,
            span: of.span.of_guest(),
            parent: Some(of.span),
            is_parent_remote: false,
            from: timeline.time((queued + facts.waited).min(returned)),
            to: timeline.time(returned),
        };
        let span = self.span(&place, names::GUEST, SpanKind::Internal, guest(timeline, facts));
        SpanData { status: status(facts), ..span }
    }

    /// The span of a step that ended.
    pub(crate) fn step(
        &self,
        (timeline, of): (&Timeline, &TraceContext),
        (step, trace): (&Step, &StepTrace),
    ) -> SpanData {
        let place = Place {
            of,
            span: trace.span,
            parent: Some(trace.parent),
            is_parent_remote: false,
            from: timeline.time(step.began),
            to: timeline.time(step.began + step.took.unwrap_or_default()),
        };
        let mut attributes = Attributes::default();
        let (name, kind): (Cow<'static, str>, _) = match step.kind {
            StepKind::Call => {
                let (method, url) = step.name.split_once(' ').unwrap_or(("", &step.name));
                attributes.text(names::METHOD, method);
                attributes.url(url);
                if let Some(status) = step.status {
                    attributes.add(names::STATUS, i64::from(status));
                }
                attributes.count(names::SENT, step.sent);
                attributes.count(names::RECEIVED, step.received);
                (names::EGRESS.into(), SpanKind::Client)
            }
            StepKind::Callback => {
                attributes.count(names::RECEIVED, step.received);
                (names::CALLBACK.into(), SpanKind::Consumer)
            }
            StepKind::Tool => {
                attributes.add(names::OPERATION, names::EXECUTE_TOOL);
                attributes.text(names::TOOL, &step.name);
                (format!("{} {}", names::EXECUTE_TOOL, step.name).into(), SpanKind::Internal)
            }
            StepKind::Span => (step.name.to_string().into(), SpanKind::Internal),
        };
        if step.denied {
            attributes.add(names::DENIED, true);
        }
        let status = step_status(step, &mut attributes);
        let given = trace.attributes.iter();
        attributes.0.extend(given.map(|(key, value)| KeyValue::new(key.to_string(), value.to_string())));
        let span = self.span(&place, name, kind, attributes);
        SpanData { status, events: events(timeline, trace), links: links(trace), ..span }
    }

    /// The span of an answered request.
    pub(crate) fn request(&self, request: &Request<'_>) -> SpanData {
        let now = SystemTime::now();
        let of = request.trace;
        let place = Place {
            of,
            span: of.span,
            parent: of.parent,
            is_parent_remote: of.is_parent_remote,
            from: now.checked_sub(request.took).unwrap_or(now),
            to: now,
        };
        let mut attributes = Attributes::default();
        attributes.text(names::METHOD, request.method);
        attributes.add(names::RPC_METHOD, request.operation);
        attributes.add(names::STATUS, i64::from(request.status));
        if !request.version.is_empty() {
            attributes.add(names::A2A_VERSION, request.version);
        }
        if let Some(task) = request.task {
            attributes.text(names::TASK, task.as_str());
        }
        let mut status = Status::Unset;
        if let Some(code) = request.code {
            attributes.add(names::CODE, i64::from(code));
            attributes.text(names::ERROR, &code.to_string());
            status = Status::error("rejected");
        } else if request.status >= 400 {
            attributes.text(names::ERROR, &request.status.to_string());
            status = Status::error("rejected");
        }
        SpanData { status, ..self.span(&place, names::REQUEST, SpanKind::Server, attributes) }
    }

    /// The span of an attempt to deliver a push notification. Of the address only the host is shown: the caller chose it, and
    /// may have put a secret of its own into the path.
    pub(crate) fn push(&self, of: &TraceContext, span: SpanId, push: &Push<'_>) -> SpanData {
        let parent = Some(of.span);
        let place =
            Place { of, span, parent, is_parent_remote: false, from: push.began, to: SystemTime::now() };
        let mut attributes = Attributes::default();
        attributes.add(names::METHOD, "POST");
        attributes.text(names::TASK, push.task.as_str());
        if let Some((scheme, rest)) = push.url.split_once("://") {
            let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
            attributes.server(scheme, authority.rsplit('@').next().unwrap_or_default());
        }
        let status = match push.error {
            Some(why) => {
                attributes.add(names::ERROR, "not_delivered");
                Status::error(why.to_owned())
            }
            None => Status::Unset,
        };
        SpanData { status, ..self.span(&place, names::PUSH, SpanKind::Client, attributes) }
    }

    fn span(
        &self,
        place: &Place<'_>,
        name: impl Into<Cow<'static, str>>,
        span_kind: SpanKind,
        attributes: Attributes,
    ) -> SpanData {
        SpanData {
            span_context: context(place.of, place.span, false),
            parent_span_id: place.parent.map_or(OtelSpanId::INVALID, span_id),
            parent_span_is_remote: place.is_parent_remote,
            span_kind,
            name: name.into(),
            start_time: place.from,
            end_time: place.to.max(place.from),
            attributes: attributes.0,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        }
    }
}

fn turn(timeline: &Timeline, facts: &Facts, content: Option<Content>) -> Attributes {
    let mut attributes = Attributes::default();
    attributes.add(names::OPERATION, names::INVOKE_AGENT);
    attributes.text(names::AGENT_NAME, &timeline.executor);
    attributes.text(names::CONVERSATION, timeline.context.as_str());
    attributes.text(names::TASK, timeline.task.as_str());
    attributes.add(names::STATE, facts.state.as_str());
    if let Some(caller) = timeline.caller.name() {
        attributes.text(names::CALLER, caller);
    }
    if let Some(component) = &facts.component {
        attributes.text(names::AGENT_ID, &component.digest);
    }
    if let Some(model) = &facts.model {
        attributes.text(names::MODEL, model);
    }
    if let Some(usage) = facts.usage {
        attributes.add(names::INPUT_TOKENS, i64::from(usage.input_tokens));
        attributes.add(names::OUTPUT_TOKENS, i64::from(usage.output_tokens));
    }
    if let Some(queued) = facts.queued {
        attributes.millis(names::QUEUED, queued);
    }
    if let Some(first) = facts.first_text {
        attributes.millis(names::FIRST_TEXT, first);
    }
    if facts.omitted > 0 {
        attributes.count(names::OMITTED, facts.omitted);
    }
    if let Some(failure) = facts.failure {
        attributes.add(names::ERROR, failure);
    }
    if let Some(Content { input, output }) = content {
        attributes.add(names::INPUT, input);
        if let Some(output) = output {
            attributes.add(names::OUTPUT, output);
        }
    }
    attributes
}

fn guest(timeline: &Timeline, facts: &Facts) -> Attributes {
    let mut attributes = Attributes::default();
    attributes.text(names::AGENT_NAME, &timeline.executor);
    if let Some(component) = &facts.component {
        attributes.text(names::VERSION, &component.version);
    }
    attributes.millis(names::WAITED, facts.waited);
    attributes.millis(names::COMPUTED, facts.guest);
    attributes.count(names::MEMORY, facts.memory);
    if let Some(failure) = facts.failure {
        attributes.add(names::ERROR, failure);
    }
    attributes
}

/// A turn that asks, or that its caller cancelled, did not fail.
fn status(facts: &Facts) -> Status {
    match facts.state {
        TurnState::Failed => Status::error(facts.reason.as_deref().unwrap_or("failed").to_owned()),
        _ => Status::Unset,
    }
}

fn step_status(step: &Step, attributes: &mut Attributes) -> Status {
    match (&step.error, step.status) {
        (Some(why), _) => {
            attributes.add(names::ERROR, if step.denied { "denied" } else { "failed" });
            Status::error(why.to_string())
        }
        (None, Some(status @ 400..)) => {
            attributes.text(names::ERROR, &status.to_string());
            Status::error("")
        }
        (None, _) => Status::Unset,
    }
}

fn events(timeline: &Timeline, trace: &StepTrace) -> SpanEvents {
    let event =
        |(at, name): &(Duration, Box<str>)| Event::new(name.to_string(), timeline.time(*at), Vec::new(), 0);
    let mut events = SpanEvents::default();
    events.events = trace.events.iter().map(event).collect();
    events
}

fn links(trace: &StepTrace) -> SpanLinks {
    let mut links = SpanLinks::default();
    let link = trace.link.as_ref();
    links.links = link.map(|of| Link::with_context(context(of, of.span, true))).into_iter().collect();
    links
}

fn context(of: &TraceContext, span: SpanId, is_remote: bool) -> SpanContext {
    let state = of.state.as_deref().and_then(|state| TraceState::from_str(state).ok()).unwrap_or_default();
    let flags = if of.sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    SpanContext::new(OtelTraceId::from_bytes(of.trace.to_bytes()), span_id(span), flags, is_remote, state)
}

fn span_id(span: SpanId) -> OtelSpanId {
    OtelSpanId::from_bytes(span.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Vec<(String, String)> {
        let mut attributes = Attributes::default();
        attributes.url(text);
        let pair = |attribute: KeyValue| (attribute.key.to_string(), attribute.value.to_string());
        attributes.0.into_iter().map(pair).collect()
    }

    #[test]
    fn a_url_has_no_query_no_password_and_no_cut_path() {
        let said = |text: &str| url(text).into_iter().map(|(_, value)| value).collect::<Vec<_>>();
        assert_eq!(said("http://a/b?key=s3cret#x"), ["http://a/b", "a", "80"]);
        assert_eq!(said("https://me:s3cret@[::1]:8443/b"), ["https://[::1]:8443/b", "::1", "8443"]);
        assert_eq!(said("https://a"), ["https://a", "a", "443"]);
        assert_eq!(said(&format!("https://a/{}", "x".repeat(CUT)))[0], "https://a/…");
        assert!(said("nonsense").is_empty());
    }
}
