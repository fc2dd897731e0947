//! The activity that heartbeats report: running turns, how many failed, and the last error.
//!
//! A delivered heartbeat subtracts what it reported, so that nothing is lost between two of them.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use talaria_redact::Redactor;
use talaria_turns::{TaskId, Turn, TurnEnd, TurnObserver, message_text};
use tokio::sync::{Notify, watch};

/// Characters of a message that describe its task: what fits the banner that shows it.
const BRIEF: usize = 60;

/// Characters of an error that are reported.
const SAMPLE: usize = 500;

/// The description of tasks that wait for work of others.
const WAITING: &str = "waiting for delegated tasks";

/// Counts the turns of the whole host.
#[derive(Debug)]
pub struct Activity {
    began: Instant,
    state: Mutex<State>,
    changed: Notify,
    /// Whether a heartbeat was delivered.
    heard: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    /// Running turns by task: the number of each, and a description.
    running: HashMap<TaskId, (u64, String)>,
    /// Tasks without a turn that wait for work of others.
    held: HashSet<TaskId>,
    started: u64,
    ended: u64,
    failed: u64,
    sample: String,
}

/// The activity at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// Running turns, and tasks that wait for work of others.
    pub active: usize,
    /// A description of the newest turn; without one, of what is waited for; empty if there is neither.
    pub current: String,
    /// Failed turns among those that ended since the last delivered heartbeat, from 0 to 1.
    pub error_rate: f64,
    /// The last error since then; empty if no turn has failed.
    pub sample_error: String,
    /// Seconds since the start.
    pub uptime: u64,
    ended: u64,
    failed: u64,
}

impl Default for Activity {
    fn default() -> Self {
        let heard = watch::Sender::new(false);
        Self { began: Instant::now(), state: Mutex::default(), changed: Notify::new(), heard }
    }
}

// === impl Activity ===

impl Activity {
    /// Records that a turn began.
    pub fn begin(&self, task: &TaskId, text: &str) {
        let brief = brief(text);
        let mut state = self.state();
        state.started += 1;
        let number = state.started;
        state.running.insert(task.clone(), (number, brief));
        drop(state);
        self.changed.notify_one();
    }

    /// Records that the turn of a task ended, and its error if it failed.
    pub fn end(&self, task: &TaskId, failure: Option<&str>) {
        let sample = failure.map(|why| Redactor::process().all(why).chars().take(SAMPLE).collect());
        let mut state = self.state();
        state.running.remove(task);
        state.ended += 1;
        if let Some(sample) = sample {
            state.failed += 1;
            state.sample = sample;
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Records that a task waits for work of others, or no longer does.
    pub(crate) fn hold(&self, task: &TaskId, is_held: bool) {
        let mut state = self.state();
        match is_held {
            true => drop(state.held.insert(task.clone())),
            false => drop(state.held.remove(task)),
        }
        drop(state);
        self.changed.notify_one();
    }

    /// The activity now.
    pub fn read(&self) -> Reading {
        let state = self.state();
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let error_rate = if state.ended == 0 { 0.0 } else { state.failed as f64 / state.ended as f64 };
        Reading {
            active: state.running.len() + state.held.len(),
            current: match state.running.values().max() {
                Some((_, text)) => text.clone(),
                None if state.held.is_empty() => String::new(),
                None => WAITING.into(),
            },
            error_rate,
            sample_error: state.sample.clone(),
            uptime: self.began.elapsed().as_secs(),
            ended: state.ended,
            failed: state.failed,
        }
    }

    /// Subtracts a reading that a heartbeat delivered.
    pub(crate) fn delivered(&self, reading: &Reading) {
        let mut state = self.state();
        state.ended = state.ended.saturating_sub(reading.ended);
        state.failed = state.failed.saturating_sub(reading.failed);
        if state.failed == 0 {
            state.sample.clear();
        }
        drop(state);
        self.heard.send_replace(true);
    }

    /// Resolves once a heartbeat was delivered.
    pub(crate) async fn heard(&self) {
        // The sender lives in `self`, so this does not fail.
        let _ = self.heard.subscribe().wait_for(|heard| *heard).await;
    }

    /// Resolves when turns began or ended since the last call.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TurnObserver for Activity {
    fn began(&self, _: &str, turn: &Turn) {
        self.begin(&turn.task, &message_text(&turn.message.parts));
    }

    fn ended(&self, _: &str, turn: &Turn, end: TurnEnd<'_>, _: Duration) {
        let failure = match end {
            TurnEnd::Failure(failure) => Some(failure.message.as_str()),
            TurnEnd::Outcome(_) | TurnEnd::Cancelled | TurnEnd::Dropped => None,
        };
        self.end(&turn.task, failure);
    }
}

/// The beginning of a message, on one line, without secrets.
fn brief(text: &str) -> String {
    let text = Redactor::process().all(text);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut brief: String = line.chars().take(BRIEF).collect();
    if brief.len() < line.len() {
        brief.push_str("...");
    }
    brief
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivered_reading_is_not_counted_again() {
        let activity = Activity::default();
        let [first, second, between] = [TaskId::fresh(), TaskId::fresh(), TaskId::fresh()];
        activity.begin(&first, "look at\nOPENAI_API_KEY=abcdefgh12345678");
        activity.begin(&second, &"x".repeat(100));
        let now = activity.read();
        assert_eq!((now.active, now.error_rate, now.current.len()), (2, 0.0, 63));
        activity.end(&second, Some("upstream said GITHUB_TOKEN=abcdefgh1"));
        activity.end(&first, None);
        let now = activity.read();
        assert_eq!((now.active, now.error_rate), (0, 0.5));
        assert_eq!(now.sample_error, "upstream said GITHUB_TOKEN=[REDACTED:token]");
        activity.begin(&between, "in between");
        activity.end(&between, None);
        activity.delivered(&now);
        let now = activity.read();
        assert_eq!((now.error_rate, now.sample_error.as_str(), now.ended), (0.0, "", 1));
    }

    #[test]
    fn a_brief_is_one_line_without_secrets() {
        assert_eq!(brief("a\n b\tOPENAI_API_KEY=abcdefgh12345678"), "a b OPENAI_API_KEY=[REDACTED:api_key]");
        assert_eq!(brief(""), "");
    }
}
