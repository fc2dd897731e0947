//! When an executor that keeps crashing is taken out of service, and when it is tried again.
//!
//! [`FAULTS`] faults in a row, without a successful turn between them, put a version into quarantine. After a pause, which
//! doubles with every quarantine, the version is probed; if the probe passes, the version takes turns on trial: one more
//! fault ends the trial, one successful turn clears it.
//!
//! A caller must not be able to take an executor away from the others, so not every fault counts:
//!
//! - The same message of the same caller counts once, whatever its id.
//! - While several named callers were seen in the last hour, at most [`OF_ONE_CALLER`] faults of one of them count, and a
//!   trial ends only by faults of two. So a quarantine needs two callers.
//! - If only one named caller was seen, its faults put the version into quarantine for that caller. Turns of other named
//!   callers are still tried: a success ends the quarantine, a fault extends it to all.
//! - A named caller with [`FAULTS`] faults in a row of its own is held back itself, with the same pauses: its turns fail
//!   at once.
//! - Callers without a name cannot be told apart. For them only the number of different messages decides. Faults of probes
//!   count as they come.
//!
//! What is kept of a message is its digest; of callers, those seen in the last hour, at most a thousand. The rule counts
//! faults in a row and not a rate, so that messages that crash an executor now and then do not add up.

mod callers;

use std::time::Duration;

use talaria_backoff::Backoff;
use talaria_engine::Sent;
use talaria_turns::{Once, Principal};
use tokio::time::Instant;

use callers::Callers;

/// The number of faults in a row that put a version into quarantine, or hold a caller back.
pub(crate) const FAULTS: usize = 5;
/// How many of them may be of one caller, while there are others.
const OF_ONE_CALLER: usize = 3;

/// The first pause, and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// The content of a message, without its id.
type Digest = [u8; 32];

/// The recent faults of a version.
#[derive(Debug)]
pub(crate) struct Faults {
    standing: Standing,
    /// The faults in a row that count. At most [`FAULTS`] of each caller.
    row: Vec<Counted>,
    callers: Callers,
}

#[derive(Debug, PartialEq, Eq)]
enum Standing {
    /// It takes turns.
    Serving,
    /// It takes no turns until a probe passes, which does not run before `until`. If all faults were of one named caller,
    /// the turns of other named callers are tried.
    Quarantine { count: u32, until: Instant, by: Option<Principal> },
    /// It takes turns after a quarantine; the next fault ends the trial.
    Trial { count: u32 },
}

/// A fault that counts. Without a message if it came from a probe.
#[derive(Debug, PartialEq, Eq)]
struct Counted {
    caller: Option<Principal>,
    message: Option<Digest>,
}

/// What follows from a fault.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Consequence {
    Nothing,
    /// Its caller is held back for this long.
    HeldBack(Duration),
    /// The version is in quarantine for this long.
    Quarantine(Duration),
}

/// What a successful turn ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Recovery {
    Nothing,
    Trial,
    Quarantine,
}

/// Whether a version takes the turns of a caller.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Yes,
    /// Not of this caller, for this long.
    HeldBack(Duration),
    Quarantined,
}

// === impl Faults ===

impl Faults {
    pub(crate) fn none() -> Self {
        Self { standing: Standing::Serving, row: Vec::new(), callers: Callers::default() }
    }

    /// Records a call that ended by the executor's own fault; `sent` is its message, unless it was a probe.
    pub(crate) fn fault(&mut self, sent: Option<&Sent>, now: Instant) -> Consequence {
        let message = sent.map(|sent| Once::of(&sent.message, None, None).digest);
        let caller = sent.map(|sent| &sent.by).filter(|by| by.name().is_some());
        let held = caller.zip(message).and_then(|(caller, message)| self.callers.fault(caller, message, now));
        let consequence = held.map_or(Consequence::Nothing, Consequence::HeldBack);
        if let Standing::Quarantine { by, .. } = &mut self.standing {
            // Turns that were running when it began are part of it; those of another caller extend it to all.
            if by.as_ref() != caller {
                *by = None;
            }
            return consequence;
        }
        let counted = Counted { caller: caller.cloned(), message };
        let is_known = message.is_some() && self.row.contains(&counted);
        if !is_known && (caller.is_none() || self.of(caller) < FAULTS) {
            self.row.push(counted);
        }
        if !self.is_enough(now) {
            return consequence;
        }
        let count = if let Standing::Trial { count } = self.standing { count + 1 } else { 1 };
        let by = caller.filter(|_| self.of(caller) == self.row.len()).cloned();
        self.row.clear();
        Consequence::Quarantine(self.quarantine(count, by, now))
    }

    /// Records a successful turn.
    pub(crate) fn success(&mut self, caller: &Principal, now: Instant) -> Recovery {
        self.row.clear();
        if caller.name().is_some() {
            self.callers.success(caller, now);
        }
        let recovery = match &self.standing {
            Standing::Serving => return Recovery::Nothing,
            Standing::Trial { .. } => Recovery::Trial,
            Standing::Quarantine { by: Some(by), .. } if by != caller && caller.name().is_some() => {
                Recovery::Quarantine
            }
            Standing::Quarantine { .. } => return Recovery::Nothing,
        };
        self.standing = Standing::Serving;
        recovery
    }

    /// Whether it takes a turn of this caller.
    pub(crate) fn admits(&self, caller: &Principal, now: Instant) -> Admission {
        let is_named = caller.name().is_some();
        match &self.standing {
            Standing::Quarantine { by: Some(by), .. } if is_named && by != caller => {}
            Standing::Quarantine { .. } => return Admission::Quarantined,
            Standing::Serving | Standing::Trial { .. } => {}
        }
        let held = if is_named { self.callers.held_back(caller, now) } else { None };
        held.map_or(Admission::Yes, Admission::HeldBack)
    }

    /// Whether the version may be probed: it is not in quarantine, or its pause is over.
    pub(crate) fn may_be_probed(&self, now: Instant) -> bool {
        match &self.standing {
            Standing::Quarantine { until, .. } => *until <= now,
            Standing::Serving | Standing::Trial { .. } => true,
        }
    }

    /// Records a probe. Returns the next pause if the quarantine goes on.
    pub(crate) fn probed(&mut self, passed: bool, now: Instant) -> Option<Duration> {
        match self.standing {
            Standing::Quarantine { count, .. } if passed => {
                self.standing = Standing::Trial { count };
                None
            }
            Standing::Quarantine { count, .. } => Some(self.quarantine(count + 1, None, now)),
            Standing::Serving | Standing::Trial { .. } => None,
        }
    }

    pub(crate) fn is_quarantined(&self) -> bool {
        matches!(self.standing, Standing::Quarantine { .. })
    }

    /// The number of callers that are held back.
    pub(crate) fn callers_held_back(&self, now: Instant) -> usize {
        self.callers.count_held_back(now)
    }

    /// Whether the faults in the row put the version into quarantine.
    fn is_enough(&self, now: Instant) -> bool {
        let is_trial = matches!(self.standing, Standing::Trial { .. });
        if !self.callers.are_several(now) {
            return self.row.len() >= if is_trial { 1 } else { FAULTS };
        }
        if is_trial {
            let first = self.row.first().and_then(|fault| fault.caller.as_ref());
            return first.is_none() || self.of(first) < self.row.len();
        }
        let counts = |(at, fault): (usize, &Counted)| {
            let before = self.row.iter().take(at).filter(|earlier| earlier.caller == fault.caller).count();
            fault.caller.is_none() || before < OF_ONE_CALLER
        };
        self.row.iter().enumerate().filter(|fault| counts(*fault)).count() >= FAULTS
    }

    /// The faults of this caller in the row.
    fn of(&self, caller: Option<&Principal>) -> usize {
        self.row.iter().filter(|fault| fault.caller.as_ref() == caller).count()
    }

    fn quarantine(&mut self, count: u32, by: Option<Principal>, now: Instant) -> Duration {
        let pause = pause(count);
        self.standing = Standing::Quarantine { count, until: now + pause, by };
        pause
    }
}

fn pause(count: u32) -> Duration {
    Backoff::from_first(FIRST_PAUSE).up_to(LONGEST_PAUSE).delay(count)
}

#[cfg(test)]
mod tests;
