//! Recent denials of an executor, so that the operator's log repeats none.
//!
//! A guest can be denied a thousand times a second, and it chooses itself what for. So each distinct denial is logged once a
//! minute, with the number of times since, and only so many are told apart; the rest share one entry.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::access::Access;

/// How often one denial is logged.
const EVERY: Duration = Duration::from_secs(60);
/// Denials that are told apart.
const LINES: usize = 100;
/// The entry under which all others are counted.
const OTHERS: &str = "(other lines)";

/// The recent denials of one executor. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Denials(Arc<Mutex<BTreeMap<String, Logged>>>);

#[derive(Debug)]
struct Logged {
    at: Instant,
    /// Denials since then.
    since: u64,
}

// === impl Denials ===

impl Denials {
    /// Counts a denial. Returns the number of times since it was last logged, this one included, if it is due to be logged
    /// now.
    fn due(&self, line: &str, now: Instant) -> Option<u64> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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

impl Access {
    /// Denies something and returns the message for the guest, which names the line to add to the grant. The operator's log
    /// gets it too, once a minute.
    pub fn deny(&self, what: impl Display, add: &str) -> String {
        self.denied(format_args!("may not {what}; grant it with {add}"), add)
    }

    /// Denies something that a component does not declare as a need, whatever is granted.
    pub(crate) fn deny_undeclared(&self, what: impl Display, need: &str) -> String {
        self.denied(format_args!("may not {what}: its component does not declare the need `{need}`"), need)
    }

    fn denied(&self, why: impl Display, line: &str) -> String {
        let executor = self.executor.as_str();
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
    fn endless_different_denials_share_an_entry() {
        let (denials, start) = (Denials::default(), Instant::now());
        let logged = (0..10_000).filter(|n| denials.due(&format!("line {n}"), start).is_some()).count();
        assert_eq!(logged, LINES + 1);
        assert_eq!(denials.0.lock().unwrap().len(), LINES + 1);
        assert_eq!(denials.due("new", start + EVERY), Some(1), "after a minute there is room again");
    }
}
