//! Records what a component called, in order.
//!
//! Each call is recorded where it arrives anyway: `http` in the egress, `events` and checkpoints in the turn's channel, and
//! `log`, `state`, `config`, `control` and stopped guests in the tracing events of the process. Entries beyond [`MOST`] are
//! only counted.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::Serialize;
use talaria_egress::Call;
use talaria_observe::Line;

/// The most entries of a step; far more than anybody reads.
const MOST: usize = 10_000;
/// Characters of a text that an entry quotes.
const SHOWN: usize = 60;

/// A call of the component, or an action of the host or the stub upstream.
#[derive(Debug, Clone, Serialize)]
pub struct Entry {
    /// Milliseconds since the step began.
    pub at_ms: f64,
    /// The import, like `http.fetch`, or else `upstream` or `host`.
    pub import: String,
    /// The arguments, in short.
    pub args: String,
    /// The result, in short.
    pub result: String,
}

/// Records calls.
pub(crate) struct Timeline(Mutex<Recorded>);

struct Recorded {
    began: Instant,
    entries: Vec<Entry>,
    left_out: usize,
    /// The number and text of the text deltas, which share one entry.
    deltas: (usize, String),
    calls: Vec<Call>,
}

const DELTA: &str = "text-delta";

// === impl Timeline ===

impl Timeline {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Recorded {
            began: Instant::now(),
            entries: Vec::new(),
            left_out: 0,
            deltas: (0, String::new()),
            calls: Vec::new(),
        }))
    }

    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a step.
    pub(crate) fn begin(&self) {
        let mut recorded = self.recorded();
        recorded.began = Instant::now();
        recorded.entries.clear();
        recorded.left_out = 0;
        recorded.deltas = (0, String::new());
    }

    /// Ends a step. Returns its entries and its duration in milliseconds.
    pub(crate) fn end(&self) -> (Vec<Entry>, f64) {
        let mut recorded = self.recorded();
        let took = millis(recorded.began, Instant::now());
        let mut entries = std::mem::take(&mut recorded.entries);
        entries.sort_by(|one, other| one.at_ms.total_cmp(&other.at_ms));
        if recorded.left_out > 0 {
            let args = format!("{} more calls", recorded.left_out);
            entries.push(Entry { at_ms: took, import: "host".into(), args, result: "not shown".into() });
        }
        (entries, took)
    }

    /// Takes the calls to upstreams that were recorded so far.
    pub(crate) fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.recorded().calls)
    }

    /// Records an entry.
    pub(crate) fn note(&self, import: &str, args: impl Into<String>, result: impl Into<String>) {
        self.recorded().add(Instant::now(), import, args.into(), result.into());
    }

    /// Records a call to an upstream.
    pub(crate) fn call(&self, call: Call) {
        let import = if call.whole { "http.fetch" } else { "http.open" };
        let mut args = format!("{} {}", call.method, call.url);
        let mut more = Vec::new();
        if call.sent > 0 {
            more.push(format!("{} B", call.sent));
        }
        more.extend(call.secrets.iter().map(|name| format!("{{secret:{name}}}")));
        if !more.is_empty() {
            args.push_str(&format!(" ({})", more.join(", ")));
        }
        let result = match &call.result {
            Some(Ok((status, Some(bytes)))) => format!("{status}, {bytes} B"),
            Some(Ok((status, None))) => status.to_string(),
            Some(Err(error)) => error.message().to_owned(),
            None => "given up".into(),
        };
        let mut recorded = self.recorded();
        recorded.add(call.began, import, args, result);
        if recorded.calls.len() < MOST {
            recorded.calls.push(call);
        }
    }

    /// Records a text delta.
    pub(crate) fn delta(&self, text: &str) {
        let mut guard = self.recorded();
        let recorded = &mut *guard;
        let (count, said) = &mut recorded.deltas;
        *count += 1;
        said.push_str(text);
        let args = match *count {
            1 => format!("{DELTA} {}", short(said)),
            count => format!("{DELTA} ×{count} {}", short(said)),
        };
        if *count > 1
            && let Some(last) = recorded.entries.iter_mut().rfind(|entry| entry.args.starts_with(DELTA))
        {
            last.args = args;
            return;
        }
        recorded.add(Instant::now(), "events.emit", args, String::new());
    }

    /// Records an import; repetitions in a row share one entry.
    fn again(&self, import: &str, args: String) {
        let mut recorded = self.recorded();
        match recorded.entries.last_mut() {
            Some(last) if last.import == import && last.args == args => {
                let times =
                    last.result.strip_prefix('×').and_then(|times| times.parse().ok()).unwrap_or(1_u32);
                last.result = format!("×{}", times + 1);
            }
            _ => recorded.add(Instant::now(), import, args, String::new()),
        }
    }

    /// Records a tracing event of this process.
    pub(crate) fn line(&self, line: Line) {
        match line.target {
            "import" => self.again(&line.message, line.fields),
            "guest" => {
                let level = line.level.to_string().to_lowercase();
                self.note("log.write", format!("{level} {}", short(&line.message)), "");
            }
            _ => self.note("host", line.message, line.fields),
        }
    }
}

impl Recorded {
    fn add(&mut self, at: Instant, import: &str, args: String, result: String) {
        if self.entries.len() >= MOST {
            self.left_out += 1;
            return;
        }
        self.entries.push(Entry { at_ms: millis(self.began, at), import: import.into(), args, result });
    }
}

/// The milliseconds between two instants, rounded to microseconds.
fn millis(from: Instant, to: Instant) -> f64 {
    (to.saturating_duration_since(from).as_secs_f64() * 1e6).round() / 1e3
}

/// Quotes a text in one line and cuts it if it is long.
pub(crate) fn short(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}
