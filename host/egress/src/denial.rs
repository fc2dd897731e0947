//! Recent denials of an executor, so that the operator's log repeats none.
//!
//! A guest can be denied a thousand times a second, and it chooses itself what for. So each distinct denial is logged once a
//! minute, with the number of times since, and only so many are told apart; the rest share one entry.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::access::Access;

/// How often one denial is logged.
const EVERY: Duration = Duration::from_secs(60);
/// Denials that are told apart.
const LINES: usize = 100;
/// The entry under which all others are counted.
const OTHERS: &str = "(other lines)";

/// What is denied, for those who count denials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DenialKind {
    /// A call that no granted pattern matches.
    Egress,
    /// A call or a secret that the component does not declare.
    Undeclared,
    /// A granted name that leads to an address which it may not lead to.
    Address,
    /// A secret that is not granted, or not for this destination.
    Secret,
    /// A tool that is not granted.
    Tool,
    /// Replies out of band without a grant.
    Callback,
    /// `wasi:http` without a grant.
    WasiHttp,
    /// A limit of a turn.
    Limit,
    /// The memory of a conversation.
    State,
}

/// The recent denials of one executor. Clones share them.
#[derive(Clone, Default)]
pub struct Denials {
    recent: Arc<Mutex<BTreeMap<String, Logged>>>,
    report: Option<Arc<Report>>,
}

type Report = dyn Fn(DenialKind) + Send + Sync;

#[derive(Debug)]
struct Logged {
    at: Instant,
    /// Denials since then.
    since: u64,
}

// === impl Denials ===

impl Denials {
    /// Calls `report` at every denial, logged or not. It must not block.
    #[must_use]
    pub fn reported_to(report: Arc<dyn Fn(DenialKind) + Send + Sync>) -> Self {
        Self { recent: Arc::default(), report: Some(report) }
    }

    /// Counts a denial. Returns the number of times since it was last logged, this one included, if it is due to be logged
    /// now.
    fn due(&self, line: &str, now: Instant) -> Option<u64> {
        let mut lines = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if !lines.contains_key(line) && lines.len() >= LINES {
            lines.retain(|_, logged| now.duration_since(logged.at) < EVERY);
        }
        let line = if lines.contains_key(line) || lines.len() < LINES { line } else { OTHERS };
        match lines.get_mut(line) {
            Some(logged) if now.duration_since(logged.at) < EVERY => {
                logged.since += 1;
                None
            }
            Some(logged) => {
                let times = logged.since + 1;
                *logged = Logged { at: now, since: 0 };
                Some(times)
            }
            None => {
                lines.insert(line.to_owned(), Logged { at: now, since: 0 });
                Some(1)
            }
        }
    }
}

impl fmt::Debug for Denials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Denials").field("recent", &self.recent).finish_non_exhaustive()
    }
}

impl Access {
    /// Denies something and returns the message for the guest, which names the line to add to the grant. The operator's log
    /// gets it too, once a minute.
    pub fn deny(&self, kind: DenialKind, what: impl Display, add: &str) -> String {
        self.denied(kind, format_args!("may not {what}; grant it with {add}"), add)
    }

    /// Denies something that a component does not declare as a need, whatever is granted.
    pub(crate) fn deny_undeclared(&self, what: impl Display, need: &str) -> String {
        let why = format_args!("may not {what}: its component does not declare the need `{need}`");
        self.denied(DenialKind::Undeclared, why, need)
    }

    fn denied(&self, kind: DenialKind, why: impl Display, line: &str) -> String {
        let executor = self.executor.as_str();
        if let Some(report) = &self.denials.report {
            report(kind);
        }
        if let Some(times) = self.denials.due(line, Instant::now()) {
            tracing::warn!(executor, times, "denied: executor {executor} {why}");
        }
        format!("executor {executor} {why}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_is_logged_once_a_minute_with_a_count() {
        let (denials, start) = (Denials::default(), Instant::now());
        assert_eq!(denials.due("a", start), Some(1));
        for _ in 0..5 {
            assert_eq!(denials.due("a", start + Duration::from_secs(30)), None);
        }
        assert_eq!(denials.due("b", start), Some(1), "another denial is logged on its own");
        assert_eq!(denials.clone().due("a", start + EVERY), Some(6));
        assert_eq!(denials.due("a", start + EVERY), None);
    }

    #[test]
    fn every_denial_is_reported_whether_it_is_logged_or_not() {
        let reported = Arc::new(Mutex::new(Vec::new()));
        let report = Arc::clone(&reported);
        let denials = Denials::reported_to(Arc::new(move |kind| report.lock().unwrap().push(kind)));
        let access = Access { denials, ..Access::default() };
        for _ in 0..2 {
            access.deny(DenialKind::Tool, "call it", "tools = [\"it\"]");
        }
        access.deny_undeclared("call it", "egress: GET https://example.com/*");
        let expected = [DenialKind::Tool, DenialKind::Tool, DenialKind::Undeclared];
        assert_eq!(*reported.lock().unwrap(), expected);
    }

    #[test]
    fn endless_different_denials_share_an_entry() {
        let (denials, start) = (Denials::default(), Instant::now());
        let logged = (0..10_000).filter(|n| denials.due(&format!("line {n}"), start).is_some()).count();
        assert_eq!(logged, LINES + 1);
        assert_eq!(denials.recent.lock().unwrap().len(), LINES + 1);
        assert_eq!(denials.due("new", start + EVERY), Some(1), "after a minute there is room again");
    }
}
