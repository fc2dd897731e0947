//! When an executor that crashes again and again is taken out of service, and when it is tried again.
//!
//! [`IN_A_ROW`] faults without a turn between them that ended well are a quarantine. Faults in a row and not a rate, so
//! that a caller whose messages crash an executor now and then cannot take it from all the others. After a pause that
//! doubles with every quarantine the probe runs; if it passes, the executor takes turns on trial: one more fault ends the
//! trial, one turn that ends well clears it.

use std::time::Duration;

use tokio::time::Instant;

/// Faults in a row that are a quarantine.
const IN_A_ROW: u32 = 5;

/// The first pause, and the longest.
const PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// How an executor has fared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Faults {
    /// It takes turns; so many in a row were its fault.
    Few(u32),
    /// It takes none until it was probed, which is not before `until`.
    Quarantine { trips: u32, until: Instant },
    /// It takes turns, and may not fail.
    Trial { trips: u32 },
}

// === impl Faults ===

impl Faults {
    pub(crate) const NONE: Self = Self::Few(0);

    /// A call ended by the executor's own fault. Gives the pause, where this was one too many.
    pub(crate) fn fault(&mut self, now: Instant) -> Option<Duration> {
        let trips = match *self {
            Self::Few(faults) if faults + 1 < IN_A_ROW => {
                *self = Self::Few(faults + 1);
                return None;
            }
            // Turns that had begun before; they are counted already.
            Self::Quarantine { .. } => return None,
            Self::Few(_) => 1,
            Self::Trial { trips } => trips + 1,
        };
        Some(self.trip(trips, now))
    }

    /// A turn ended well. Whether that cleared a trial.
    pub(crate) fn no_fault(&mut self) -> bool {
        match *self {
            Self::Few(_) | Self::Trial { .. } => {
                let cleared = matches!(self, Self::Trial { .. });
                *self = Self::NONE;
                cleared
            }
            Self::Quarantine { .. } => false,
        }
    }

    /// Whether the probe decides now: it is not in quarantine, or has been for long enough.
    pub(crate) fn may_be_probed(&self, now: Instant) -> bool {
        match self {
            Self::Quarantine { until, .. } => *until <= now,
            Self::Few(_) | Self::Trial { .. } => true,
        }
    }

    /// The probe spoke. Gives the next pause, where it ends no quarantine.
    pub(crate) fn probed(&mut self, passed: bool, now: Instant) -> Option<Duration> {
        match *self {
            Self::Quarantine { trips, .. } if passed => {
                *self = Self::Trial { trips };
                None
            }
            Self::Quarantine { trips, .. } => Some(self.trip(trips + 1, now)),
            Self::Few(_) | Self::Trial { .. } => None,
        }
    }

    pub(crate) fn is_quarantined(&self) -> bool {
        matches!(self, Self::Quarantine { .. })
    }

    fn trip(&mut self, trips: u32, now: Instant) -> Duration {
        let doubled = 2_u32.saturating_pow(trips.saturating_sub(1));
        let pause = PAUSE.saturating_mul(doubled).min(LONGEST_PAUSE);
        *self = Self::Quarantine { trips, until: now + pause };
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_in_a_row_are_a_quarantine_and_others_are_not() {
        let now = Instant::now();
        let mut faults = Faults::NONE;
        for _ in 0..20 {
            for _ in 1..IN_A_ROW {
                assert_eq!(faults.fault(now), None);
            }
            faults.no_fault();
        }
        for _ in 1..IN_A_ROW {
            assert_eq!(faults.fault(now), None);
        }
        assert_eq!(faults.fault(now), Some(PAUSE));
        assert!(faults.is_quarantined());
        assert_eq!(faults.fault(now), None, "turns that were under way change nothing");
        assert!(!faults.no_fault());
        assert!(faults.is_quarantined());
    }

    #[test]
    fn each_quarantine_is_longer_until_a_turn_ends_well() {
        let mut now = Instant::now();
        let mut faults = Faults::NONE;
        let mut pause = (0..IN_A_ROW).find_map(|_| faults.fault(now)).unwrap();
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
        assert_eq!(faults.probed(false, now), Some(LONGEST_PAUSE), "a probe that fails is a trip too");
        now += LONGEST_PAUSE;
        faults.probed(true, now);
        assert!(faults.no_fault(), "cleared");
        assert_eq!(faults, Faults::NONE);
    }
}
