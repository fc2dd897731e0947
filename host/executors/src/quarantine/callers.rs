//! The named callers of a version: when they were last seen, and whether one is held back.

use std::collections::HashMap;
use std::time::Duration;

use talaria_turns::Principal;
use tokio::time::Instant;

use super::{Digest, FAULTS, pause};

/// How long a caller counts as one of several: longer than the longest pause, and than most breaks between two messages.
const SEEN: Duration = Duration::from_secs(3_600);
/// The callers that are remembered; beyond that, the one that was not seen for longest is dropped.
const CALLERS: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct Callers(HashMap<Principal, Record>);

#[derive(Debug)]
struct Record {
    seen: Instant,
    /// The messages whose turns ended by a fault, since the last success. At most [`FAULTS`].
    crashed: Vec<Digest>,
    /// How often it was held back in a row, and until when.
    held: Option<(u32, Instant)>,
}

// === impl Callers ===

impl Callers {
    /// Records a fault of a caller's turn. Returns the pause if the caller is held back from now on.
    pub(super) fn fault(&mut self, caller: &Principal, message: Digest, now: Instant) -> Option<Duration> {
        let record = self.see(caller, now);
        let count = match record.held {
            // A turn that was running when it began.
            Some((_, until)) if until > now => return None,
            // After the pause one more fault is enough.
            Some((count, _)) => count + 1,
            None => {
                if !record.crashed.contains(&message) {
                    record.crashed.push(message);
                }
                if record.crashed.len() < FAULTS {
                    return None;
                }
                1
            }
        };
        let pause = pause(count);
        record.crashed.clear();
        record.held = Some((count, now + pause));
        Some(pause)
    }

    /// Records a successful turn of a caller.
    pub(super) fn success(&mut self, caller: &Principal, now: Instant) {
        let record = self.see(caller, now);
        record.crashed.clear();
        record.held = None;
    }

    /// How long a caller is still held back.
    pub(super) fn held_back(&self, caller: &Principal, now: Instant) -> Option<Duration> {
        self.0.get(caller)?.held_for(now)
    }

    pub(super) fn count_held_back(&self, now: Instant) -> usize {
        self.0.values().filter(|record| record.held_for(now).is_some()).count()
    }

    /// Whether more than one was seen recently.
    pub(super) fn are_several(&self, now: Instant) -> bool {
        self.0.values().filter(|record| record.is_recent(now)).nth(1).is_some()
    }

    fn see(&mut self, caller: &Principal, now: Instant) -> &mut Record {
        if !self.0.contains_key(caller) {
            self.0.retain(|_, record| record.is_recent(now));
            if self.0.len() >= CALLERS {
                let oldest = self.0.iter().min_by_key(|(_, record)| record.seen);
                if let Some(oldest) = oldest.map(|(caller, _)| caller.clone()) {
                    self.0.remove(&oldest);
                }
            }
        }
        let new = || Record { seen: now, crashed: Vec::new(), held: None };
        let record = self.0.entry(caller.clone()).or_insert_with(new);
        record.seen = now;
        record
    }
}

// === impl Record ===

impl Record {
    fn is_recent(&self, now: Instant) -> bool {
        now.duration_since(self.seen) < SEEN
    }

    fn held_for(&self, now: Instant) -> Option<Duration> {
        let (_, until) = self.held?;
        (until > now).then(|| until - now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_callers_are_dropped_and_the_rest_is_bounded() {
        let start = Instant::now();
        let mut callers = Callers::default();
        let name = |number: usize| Principal::named(&format!("caller-{number}"));
        for number in 0..CALLERS + 100 {
            callers.success(&name(number), start + Duration::from_millis(number as u64));
        }
        assert_eq!(callers.0.len(), CALLERS);
        assert!(!callers.0.contains_key(&name(99)) && callers.0.contains_key(&name(100)), "the oldest");
        callers.success(&name(0), start + SEEN * 2);
        assert_eq!(callers.0.len(), 1);
    }
}
