//! What was denied lately, so that the operator's log says it once.
//!
//! A guest can be denied a thousand times a second, and what it is denied it chooses itself. So a line is told once a
//! minute, with how often it was denied since, and only so many lines are told apart: the rest shares one.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::access::Access;

/// How often one line is told.
const EVERY: Duration = Duration::from_secs(60);
/// Lines that are told apart.
const LINES: usize = 100;
/// What all further lines are counted under.
const OTHERS: &str = "(other lines)";

/// What one executor was denied. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Denials(Arc<Mutex<BTreeMap<String, Told>>>);

#[derive(Debug)]
struct Told {
    at: Instant,
    /// Denied since then, and not told.
    untold: u64,
}

// === impl Denials ===

impl Denials {
    /// How often this was denied since it was last told, this time included, if it is to be told now.
    fn due(&self, line: &str, now: Instant) -> Option<u64> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !lines.contains_key(line) && lines.len() >= LINES {
            lines.retain(|_, told| now.duration_since(told.at) < EVERY);
        }
        let line = if lines.contains_key(line) || lines.len() < LINES { line } else { OTHERS };
        match lines.get_mut(line) {
            Some(told) if now.duration_since(told.at) < EVERY => {
                told.untold += 1;
                None
            }
            Some(told) => {
                let times = told.untold + 1;
                *told = Told { at: now, untold: 0 };
                Some(times)
            }
            None => {
                lines.insert(line.to_owned(), Told { at: now, untold: 0 });
                Some(1)
            }
        }
    }
}

impl Access {
    /// Denies something. The operator's log gets the line to add to the grant, once a minute; the message for the guest
    /// has it every time.
    pub fn deny(&self, what: impl Display, add: &str) -> String {
        self.denied(format_args!("may not {what}; grant it with {add}"), add)
    }

    /// Denies what a component does not say that it needs, whatever is granted.
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
    fn a_line_is_told_once_a_minute_with_a_count() {
        let (denials, start) = (Denials::default(), Instant::now());
        assert_eq!(denials.due("a", start), Some(1));
        for _ in 0..5 {
            assert_eq!(denials.due("a", start + Duration::from_secs(30)), None);
        }
        assert_eq!(denials.due("b", start), Some(1), "another line is told on its own");
        assert_eq!(denials.clone().due("a", start + EVERY), Some(6));
        assert_eq!(denials.due("a", start + EVERY), None);
    }

    #[test]
    fn endless_lines_are_not_told_apart() {
        let (denials, start) = (Denials::default(), Instant::now());
        let told = (0..10_000).filter(|n| denials.due(&format!("line {n}"), start).is_some()).count();
        assert_eq!(told, LINES + 1);
        assert_eq!(denials.0.lock().unwrap().len(), LINES + 1);
        assert_eq!(denials.due("new", start + EVERY), Some(1), "after a minute there is room again");
    }
}
