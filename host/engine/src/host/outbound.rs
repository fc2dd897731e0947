//! Limits on the outbound calls of one turn, whichever import makes them.
//!
//! A turn may make a limited number of calls, have a limited number open at once, and send and receive a limited number
//! of body bytes. A call that exceeds a limit fails with a message that names the configuration line to raise it. The
//! turn carries on unless the guest gives up.
//!
//! The calls of a probe are judged too ([`Verdict`]): whether the executor is ready is not for the guest alone to say, which
//! may ignore a denied call or a rejected key.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use talaria_egress::{Bounds, DenialKind, Error, ErrorKind};
use talaria_turns::{OpenStep, StepKind, Timeline, UpstreamError};
use tokio_util::sync::CancellationToken;

use crate::executor::Shared;
use crate::limits::Limits;

/// Why turns cannot succeed, by the calls of a probe: the first of them that was denied, or whose credentials the upstream
/// rejected.
#[derive(Debug, Clone, Default)]
pub(crate) struct Verdict(Arc<OnceLock<String>>);

/// The outbound calls of one call of a guest.
pub(crate) struct Outbound {
    pub(super) shared: Option<Arc<Shared>>,
    pub(super) cancelled: Option<CancellationToken>,
    timeline: Option<Arc<Timeline>>,
    limits: Limits,
    calls: u32,
    used: Arc<Used>,
    pub(super) verdict: Verdict,
}

/// What the calls of a turn have used of its limits, all together.
#[derive(Default)]
struct Used {
    sent: AtomicUsize,
    received: AtomicUsize,
    open: AtomicUsize,
}

/// An open outbound call. Dropping it allows another one.
pub(crate) struct OpenCall {
    pub(super) shared: Arc<Shared>,
    used: Arc<Used>,
    limits: Limits,
    /// What the turn's timeline shows of it.
    step: Option<OpenStep>,
}

/// The headers of W3C Trace Context.
const PARENT: &str = "traceparent";
/// See [`PARENT`].
const STATE: &str = "tracestate";

/// The bytes of an upstream's error that the timeline shows.
const ERROR: usize = 300;

impl Outbound {
    pub(super) fn new(
        shared: Option<Arc<Shared>>,
        cancelled: Option<CancellationToken>,
        timeline: Option<Arc<Timeline>>,
        limits: &Limits,
    ) -> Self {
        Self {
            shared,
            cancelled,
            timeline,
            limits: *limits,
            calls: 0,
            used: Arc::default(),
            verdict: Verdict::default(),
        }
    }

    /// Counts another call, or denies it if a limit is reached. The timeline of the turn shows it either way.
    pub(super) fn admit(
        &mut self,
        shared: &Arc<Shared>,
        kind: StepKind,
        name: &str,
    ) -> Result<OpenCall, Error> {
        let step = self.timeline.as_ref().map(|timeline| timeline.step(kind, name));
        let denied = |what: String, add: String| {
            let error = Error::new(ErrorKind::Denied, shared.access.deny(DenialKind::Limit, what, &add));
            if let Some(step) = &step {
                step.failed(error.message(), true);
            }
            Err(error)
        };
        let Limits { calls, connections, .. } = self.limits;
        if self.calls >= calls {
            let add = format!("calls = {}", calls.saturating_mul(2));
            return denied(format!("make more than {calls} calls a turn"), add);
        }
        // Only this function adds to it, and has the turn to itself.
        if self.used.open.load(Ordering::Relaxed) >= connections {
            let add = format!("connections = {}", connections.saturating_mul(2));
            return denied(format!("have more than {connections} calls open at once"), add);
        }
        self.calls += 1;
        self.used.open.fetch_add(1, Ordering::Relaxed);
        Ok(OpenCall { shared: Arc::clone(shared), used: Arc::clone(&self.used), limits: self.limits, step })
    }
}

/// What a timeline shows of a request: its method and its URL without the query.
pub(super) fn call_name(method: &str, url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    format!("{method} {url}")
}

/// Adds the headers of a trace, unless the guest sets one itself, or the headers are as many or as long as they may be.
fn add_trace(headers: &mut Vec<(String, String)>, parent: String, state: Option<&str>, bounds: &Bounds) {
    let is_trace = |name: &str| [PARENT, STATE].iter().any(|ours| name.eq_ignore_ascii_case(ours));
    // A brace could be taken for the place of a secret, and the text is a caller's.
    let state = state.filter(|state| !state.contains('{'));
    let mut more = vec![(PARENT.to_owned(), parent)];
    more.extend(state.map(|state| (STATE.to_owned(), state.to_owned())));
    let bytes =
        |all: &[(String, String)]| all.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
    let fits = headers.len() + more.len() <= bounds.headers
        && bytes(headers).saturating_add(bytes(&more)) <= bounds.header_bytes;
    if fits && !headers.iter().any(|(name, _)| is_trace(name)) {
        headers.extend(more);
    }
}

// === impl Verdict ===

impl Verdict {
    /// Returns why turns cannot succeed, if that is known.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }

    pub(super) fn denied(&self, message: &str) {
        let _ = self.0.set(format!("a call of its probe was denied: {message}"));
    }

    /// Judges the answer of an upstream by its status.
    pub(super) fn answered(&self, url: &str, status: u16) {
        if !matches!(status, 401 | 403) {
            return;
        }
        // Not the whole URL: its path and its query may hold what is not for the log.
        let uri = url.parse::<http::Uri>().unwrap_or_default();
        let at = uri.host().map_or_else(
            || "the upstream".to_owned(),
            |host| match uri.port_u16() {
                Some(port) => format!("the upstream at {host}:{port}"),
                None => format!("the upstream at {host}"),
            },
        );
        let _ = self.0.set(format!(
            "{at} rejected the probe's key, or wants one ({status}); set the executor's secret"
        ));
    }
}

// === impl OpenCall ===

impl OpenCall {
    /// Counts bytes before they are sent.
    pub(super) fn send(&self, bytes: usize) -> Result<(), Error> {
        self.note(|step| step.sent += bytes);
        self.count(&self.used.sent, bytes, self.limits.sent_bytes, "send", "bytes_out")
    }

    /// Counts received bytes.
    pub(super) fn receive(&self, bytes: usize) -> Result<(), Error> {
        self.note(|step| step.received += bytes);
        self.count(&self.used.received, bytes, self.limits.received_bytes, "receive", "bytes_in")
    }

    /// Adds the place of the call in the trace of its turn to the headers.
    pub(super) fn propagate(&self, headers: &mut Vec<(String, String)>) {
        if let Some((parent, state)) = self.step.as_ref().and_then(OpenStep::propagated) {
            add_trace(headers, parent, state.as_deref(), &self.shared.access.bounds);
        }
    }

    /// The place of the call in the trace of its turn, for callers that have no headers.
    pub(super) fn traceparent(&self) -> Option<Box<str>> {
        self.step.as_ref().and_then(OpenStep::propagated).map(|(parent, _)| parent.into())
    }

    /// Notes the status of the response.
    pub(super) fn answered(&self, status: u16) {
        self.note(|step| step.status = Some(status));
        if status >= 400
            && let Some(step) = &self.step
        {
            step.timeline()
                .note(|facts| facts.upstream_error = Some(UpstreamError { status, body: "".into() }));
        }
    }

    /// Notes what the upstream says about an error. Of its pieces, the first counts.
    pub(super) fn explained(&self, status: u16, body: &[u8]) {
        let Some(step) = &self.step else { return };
        if status < 400 || body.is_empty() {
            return;
        }
        let is_known = |error: &UpstreamError| error.status == status && !error.body.is_empty();
        if step.timeline().read(|facts| facts.upstream_error.as_ref().is_some_and(is_known)) {
            return;
        }
        // More than is shown, so that the cut leaves no half of a secret.
        let text = String::from_utf8_lossy(body.get(..body.len().min(8 * ERROR)).unwrap_or(body));
        let text = self.shared.replies.redactor().all(&text);
        let body = text.get(..text.floor_char_boundary(ERROR)).unwrap_or(&text).into();
        step.timeline().note(|facts| facts.upstream_error = Some(UpstreamError { status, body }));
    }

    /// Notes that the call failed.
    pub(super) fn failed(&self, error: &Error) {
        if let Some(step) = &self.step {
            step.failed(error.message(), error.kind() == ErrorKind::Denied);
        }
    }

    fn note(&self, note: impl FnOnce(&mut talaria_turns::Step)) {
        if let Some(step) = &self.step {
            step.note(note);
        }
    }

    /// Returns the number of bytes that the turn may still receive.
    pub(super) fn left(&self) -> usize {
        self.limits.received_bytes.saturating_sub(self.used.received.load(Ordering::Relaxed))
    }

    fn count(
        &self,
        counter: &AtomicUsize,
        bytes: usize,
        most: usize,
        verb: &str,
        key: &str,
    ) -> Result<(), Error> {
        // Adding before the check would let a single rejected call use up the rest of the limit.
        let before = counter.load(Ordering::Relaxed);
        if before.saturating_add(bytes) <= most {
            counter.fetch_add(bytes, Ordering::Relaxed);
            return Ok(());
        }
        let add = format!("{key} = \"{}KiB\"", (most >> 9).max(1));
        let message = self.shared.access.deny(
            DenialKind::Limit,
            format_args!("{verb} more than {most} bytes a turn"),
            &add,
        );
        Err(Error::new(ErrorKind::TooLarge, message))
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.used.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_of_a_trace_are_added_unless_the_guest_sets_them_or_there_is_no_room() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let added = |given: Vec<(String, String)>, state: Option<&str>, bounds: &Bounds| {
            let (mut headers, before) = (given.clone(), given.len());
            add_trace(&mut headers, "00-a".into(), state, bounds);
            assert_eq!(headers[..before], given);
            headers.split_off(before)
        };
        let (bounds, accept) = (Bounds::default(), pair("accept", "*/*"));
        let (parent, state) = (pair("traceparent", "00-a"), pair("tracestate", "a=1"));
        assert_eq!(added(vec![accept.clone()], Some("a=1"), &bounds), [parent.clone(), state]);
        assert_eq!(added(vec![], None, &bounds), std::slice::from_ref(&parent));
        assert_eq!(added(vec![], Some("a={secret:KEY}"), &bounds), [parent], "no place for a secret");
        for own in ["TraceParent", "tracestate"] {
            assert_eq!(added(vec![pair(own, "x")], Some("a=1"), &bounds), [], "{own}");
        }
        let full = Bounds { headers: 1, ..bounds };
        assert_eq!(added(vec![accept.clone()], None, &full), []);
        let long = Bounds { header_bytes: 20, ..bounds };
        assert_eq!(added(vec![accept], None, &long), []);
    }
}
