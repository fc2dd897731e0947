//! When an executor that keeps crashing is taken out of service, and when it is tried again.
//!
//! [`FAULTS_UNTIL_QUARANTINE`] faults in a row, without a successful turn between them, put a version into quarantine. The
//! rule counts faults in a row and not a rate, so that one caller whose messages crash an executor now and then cannot
//! take it away from all the others. After a pause, which doubles with every quarantine, the version is probed; if the
//! probe passes, the version takes turns on trial: one more fault ends the trial, one successful turn clears it.

use std::time::Duration;

use talaria_backoff::Backoff;
use tokio::time::Instant;

/// The number of faults in a row that put a version into quarantine.
pub(crate) const FAULTS_UNTIL_QUARANTINE: u32 = 5;

/// The first pause, and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// The recent faults of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Faults {
    /// It takes turns; this many calls in a row ended by its fault.
    Few(u32),
    /// It takes no turns until a probe passes, which does not run before `until`.
    Quarantine { count: u32, until: Instant },
    /// It takes turns after a quarantine; the next fault ends the trial.
    Trial { count: u32 },
}

// === impl Faults ===

impl Faults {
    pub(crate) const NONE: Self = Self::Few(0);

    /// Records a call that ended by the executor's own fault. Returns the pause if this fault starts a quarantine.
    pub(crate) fn fault(&mut self, now: Instant) -> Option<Duration> {
        let count = match *self {
            Self::Few(faults) if faults + 1 < FAULTS_UNTIL_QUARANTINE => {
                *self = Self::Few(faults + 1);
                return None;
            }
            // Turns that were running when the quarantine began; they are part of it.
            Self::Quarantine { .. } => return None,
            Self::Few(_) => 1,
            Self::Trial { count } => count + 1,
        };
        Some(self.quarantine(count, now))
    }

    /// Records a successful turn. Returns whether that ended a trial.
    pub(crate) fn success(&mut self) -> bool {
        match *self {
            Self::Few(_) | Self::Trial { .. } => {
                let cleared = matches!(self, Self::Trial { .. });
                *self = Self::NONE;
                cleared
            }
            Self::Quarantine { .. } => false,
        }
    }

    /// Whether the version may be probed: it is not in quarantine, or its pause is over.
    pub(crate) fn may_be_probed(&self, now: Instant) -> bool {
        match self {
            Self::Quarantine { until, .. } => *until <= now,
            Self::Few(_) | Self::Trial { .. } => true,
        }
    }

    /// Records a probe. Returns the next pause if the quarantine goes on.
    pub(crate) fn probed(&mut self, passed: bool, now: Instant) -> Option<Duration> {
        match *self {
            Self::Quarantine { count, .. } if passed => {
                *self = Self::Trial { count };
                None
            }
            Self::Quarantine { count, .. } => Some(self.quarantine(count + 1, now)),
            Self::Few(_) | Self::Trial { .. } => None,
        }
    }

    pub(crate) fn is_quarantined(&self) -> bool {
        matches!(self, Self::Quarantine { .. })
    }

    fn quarantine(&mut self, count: u32, now: Instant) -> Duration {
        let pause = Backoff::from_first(FIRST_PAUSE).up_to(LONGEST_PAUSE).delay(count);
        *self = Self::Quarantine { count, until: now + pause };
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_faults_in_a_row_lead_to_quarantine() {
        let now = Instant::now();
        let mut faults = Faults::NONE;
        for _ in 0..20 {
            for _ in 1..FAULTS_UNTIL_QUARANTINE {
                assert_eq!(faults.fault(now), None);
            }
            faults.success();
        }
        for _ in 1..FAULTS_UNTIL_QUARANTINE {
            assert_eq!(faults.fault(now), None);
        }
        assert_eq!(faults.fault(now), Some(FIRST_PAUSE));
        assert!(faults.is_quarantined());
        assert_eq!(faults.fault(now), None, "turns that were already running change nothing");
        assert!(!faults.success());
        assert!(faults.is_quarantined());
    }

    #[test]
    fn each_quarantine_is_longer_until_a_turn_succeeds() {
        let mut now = Instant::now();
        let mut faults = Faults::NONE;
        let mut pause = (0..FAULTS_UNTIL_QUARANTINE).find_map(|_| faults.fault(now)).unwrap();
        for longer in [20, 40, 80, 160, 320, 600, 600] {
            assert!(!faults.may_be_probed(now + pause - Duration::from_millis(1)));
            now += pause;
            assert!(faults.may_be_probed(now));
            assert_eq!(faults.probed(true, now), None);
            assert!(!faults.is_quarantined(), "on trial");
            pause = faults.fault(now).unwrap();
            assert_eq!(pause, Duration::from_secs(longer));
        }
        now += pause;
        assert_eq!(
            faults.probed(false, now),
            Some(LONGEST_PAUSE),
            "a failed probe counts as a quarantine too"
        );
        now += LONGEST_PAUSE;
        faults.probed(true, now);
        assert!(faults.success(), "cleared");
        assert_eq!(faults, Faults::NONE);
    }
}
