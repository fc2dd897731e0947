//! Exponential back-off: how long to wait before the next attempt.
//!
//! The first delay is given, each later one is twice as long, up to a cap. The type only computes delays: it never sleeps,
//! so it needs no runtime, and the caller decides what to race the wait against (a deadline, a shutdown). It has no retry
//! loop either, because the callers disagree on what counts as success, which errors are final and when to start over.
//!
//! Use it in one of two ways:
//! - [`Backoff::next_delay`] counts the attempts itself; [`Backoff::reset`] starts over after a success.
//! - [`Backoff::delay`] is stateless, for callers whose count lives elsewhere, such as in a store.
//!
//! Arithmetic saturates: no number of attempts overflows or panics.

#![forbid(unsafe_code)]

use std::time::Duration;

/// A sequence of delays that double.
///
/// ```
/// use std::time::Duration;
/// use talaria_backoff::Backoff;
///
/// let mut backoff = Backoff::from_first(Duration::from_secs(1)).up_to(Duration::from_secs(3));
/// assert_eq!(backoff.next_delay(), Duration::from_secs(1));
/// assert_eq!(backoff.next_delay(), Duration::from_secs(2));
/// assert_eq!(backoff.next_delay(), Duration::from_secs(3));
/// assert_eq!(backoff.attempts(), 3);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    jitter: bool,
    attempts: u32,
}

impl Backoff {
    /// Starts with this delay, without a cap and without jitter.
    pub const fn from_first(first: Duration) -> Self {
        Self { first, longest: Duration::MAX, jitter: false, attempts: 0 }
    }

    /// Caps every delay, the first included.
    #[must_use]
    pub const fn up_to(self, longest: Duration) -> Self {
        Self { longest, ..self }
    }

    /// Shortens every delay by a random amount of up to one half, so that attempts that failed together are not repeated
    /// together.
    #[must_use]
    pub const fn with_jitter(self) -> Self {
        Self { jitter: true, ..self }
    }

    /// Counts a failed attempt and returns how long to wait before the next one.
    #[must_use = "the delay is only computed; the caller sleeps"]
    pub fn next_delay(&mut self) -> Duration {
        self.attempts = self.attempts.saturating_add(1);
        self.delay(self.attempts)
    }

    /// The number of failed attempts since the start or the last [`reset`](Self::reset).
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Starts over after a success: the next delay is the first one again.
    pub const fn reset(&mut self) {
        self.attempts = 0;
    }

    /// Returns how long to wait after this many failed attempts, whatever this value has counted itself. After 0 attempts
    /// the delay is that after 1.
    #[must_use]
    pub fn delay(&self, attempts: u32) -> Duration {
        let factor = 2_u32.saturating_pow(attempts.saturating_sub(1));
        let delay = self.first.saturating_mul(factor).min(self.longest);
        match self.jitter {
            true => shorten(delay, rand::random()),
            false => delay,
        }
    }
}

/// Takes away up to one half; `random` is between 0 and 1.
fn shorten(delay: Duration, random: f64) -> Duration {
    delay.mul_f64(1.0 - random / 2.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn delays_double_up_to_the_cap() {
        let mut backoff = Backoff::from_first(secs(10)).up_to(secs(600));
        let delays: Vec<u64> = (0..9).map(|_| backoff.next_delay().as_secs()).collect();
        assert_eq!(delays, [10, 20, 40, 80, 160, 320, 600, 600, 600]);
        assert_eq!(backoff.attempts(), 9);
        assert_eq!(
            Backoff::from_first(secs(5)).up_to(secs(1)).next_delay(),
            secs(1),
            "the first is capped too"
        );
    }

    #[test]
    fn a_reset_starts_over() {
        let mut backoff = Backoff::from_first(secs(1));
        let _ = (backoff.next_delay(), backoff.next_delay());
        backoff.reset();
        assert_eq!(backoff.attempts(), 0);
        assert_eq!(backoff.next_delay(), secs(1));
    }

    #[test]
    fn the_stateless_delay_ignores_the_count() {
        let mut backoff = Backoff::from_first(secs(1));
        let _ = (backoff.next_delay(), backoff.next_delay());
        assert_eq!([0, 1, 2, 3].map(|attempts| backoff.delay(attempts).as_secs()), [1, 1, 2, 4]);
    }

    #[test]
    fn jitter_takes_away_up_to_one_half() {
        assert_eq!(shorten(secs(8), 0.0), secs(8));
        assert_eq!(shorten(secs(8), 0.5), secs(6));
        assert_eq!(shorten(secs(8), 1.0), secs(4));
        let backoff = Backoff::from_first(secs(1)).up_to(secs(60)).with_jitter();
        for attempts in 1..100 {
            let (delay, full) =
                (backoff.delay(attempts), Backoff { jitter: false, ..backoff }.delay(attempts));
            assert!(full / 2 <= delay && delay <= full, "{delay:?} after {attempts}");
        }
        assert!((0..20).any(|_| backoff.delay(1) != backoff.delay(1)), "the amount is random");
    }

    proptest! {
        #[test]
        fn never_panics_and_never_shrinks(first in any::<u64>(), longest in any::<u64>(), attempts in any::<u32>()) {
            let backoff = Backoff::from_first(secs(first)).up_to(secs(longest));
            let delay = backoff.delay(attempts);
            prop_assert!(delay <= secs(longest));
            prop_assert!(delay <= backoff.delay(attempts.saturating_add(1)));
            prop_assert!(backoff.with_jitter().delay(attempts) <= secs(longest));
        }
    }
}
