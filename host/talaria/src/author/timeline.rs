//! What a component called, in the order in which it did.
//!
//! Calls are heard of where they end up anyway: the egress tells of `http`, the turn's own channel of `events` and
//! checkpoints, the process's events of `log`, `state`, `config` and `control`, and of a guest that was stopped. Bounded:
//! what comes after the last of [`MOST`] entries is only counted.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::Serialize;
use talaria_egress::Call;
use talaria_observe::Line;

/// Far more than anybody reads.
const MOST: usize = 10_000;
/// How much of a text is shown.
const SHOWN: usize = 60;

/// A call.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Entry {
    /// Milliseconds since the step began.
    pub(crate) at_ms: f64,
    /// The import, as `http.fetch`; or `upstream` and `host`, for what they did.
    pub(crate) import: String,
    /// What it was given, in short.
    pub(crate) args: String,
    /// What came of it.
    pub(crate) result: String,
}

/// Takes down calls.
pub(crate) struct Timeline(Mutex<Taken>);

struct Taken {
    began: Instant,
    entries: Vec<Entry>,
    left_out: usize,
    /// Text deltas in the last entry: they are told as one.
    deltas: (usize, String),
    calls: Vec<Call>,
}

const DELTA: &str = "text-delta";

// === impl Timeline ===

impl Timeline {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Taken {
            began: Instant::now(),
            entries: Vec::new(),
            left_out: 0,
            deltas: (0, String::new()),
            calls: Vec::new(),
        }))
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new step begins.
    pub(crate) fn begin(&self) {
        let mut taken = self.taken();
        taken.began = Instant::now();
        taken.entries.clear();
        taken.left_out = 0;
        taken.deltas = (0, String::new());
    }

    /// The entries of the step, and how long it took in milliseconds.
    pub(crate) fn end(&self) -> (Vec<Entry>, f64) {
        let mut taken = self.taken();
        let took = millis(taken.began, Instant::now());
        let mut entries = std::mem::take(&mut taken.entries);
        entries.sort_by(|one, other| one.at_ms.total_cmp(&other.at_ms));
        if taken.left_out > 0 {
            let args = format!("{} more calls", taken.left_out);
            entries.push(Entry { at_ms: took, import: "host".into(), args, result: "not shown".into() });
        }
        (entries, took)
    }

    /// Every call to an upstream so far; they are taken away.
    pub(crate) fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.taken().calls)
    }

    pub(crate) fn note(&self, import: &str, args: impl Into<String>, result: impl Into<String>) {
        self.taken().add(Instant::now(), import, args.into(), result.into());
    }

    /// A call to an upstream.
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
        let mut taken = self.taken();
        taken.add(call.began, import, args, result);
        if taken.calls.len() < MOST {
            taken.calls.push(call);
        }
    }

    /// The next piece of the answer.
    pub(crate) fn delta(&self, text: &str) {
        let mut guard = self.taken();
        let taken = &mut *guard;
        let (count, said) = &mut taken.deltas;
        *count += 1;
        said.push_str(text);
        let args = match *count {
            1 => format!("{DELTA} {}", short(said)),
            count => format!("{DELTA} ×{count} {}", short(said)),
        };
        if *count > 1
            && let Some(last) = taken.entries.iter_mut().rfind(|entry| entry.args.starts_with(DELTA))
        {
            last.args = args;
            return;
        }
        taken.add(Instant::now(), "events.emit", args, String::new());
    }

    /// The same import several times in a row is one entry.
    fn again(&self, import: &str, args: String) {
        let mut taken = self.taken();
        match taken.entries.last_mut() {
            Some(last) if last.import == import && last.args == args => {
                let times =
                    last.result.strip_prefix('×').and_then(|times| times.parse().ok()).unwrap_or(1_u32);
                last.result = format!("×{}", times + 1);
            }
            _ => taken.add(Instant::now(), import, args, String::new()),
        }
    }

    /// An event of this process.
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

impl Taken {
    fn add(&mut self, at: Instant, import: &str, args: String, result: String) {
        if self.entries.len() >= MOST {
            self.left_out += 1;
            return;
        }
        self.entries.push(Entry { at_ms: millis(self.began, at), import: import.into(), args, result });
    }
}

/// With microseconds, and no more.
fn millis(from: Instant, to: Instant) -> f64 {
    (to.saturating_duration_since(from).as_secs_f64() * 1e6).round() / 1e3
}

/// A text in one line, in quotes, cut where it gets long.
pub(crate) fn short(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}
