//! Asks the endpoint again, as OpenAI's Python library did for the Python executor.
//!
//! A call is repeated after 408, 409, 429, 5xx, a lost connection or a timeout, at most `max_retries` times, and only
//! while nothing of the answer was passed on: a caller must not read the beginning of one answer and the end of another.
//! The pause is the one that the endpoint names (`retry-after-ms`, `retry-after`), up to a minute; else it grows from
//! 0.5 s to 8 s, shortened by up to a quarter so that many turns do not come back at once. A pause that leaves the turn
//! too little time is not begun. The caller reads of each repetition in a status.

use serde_json::json;
use talaria_guest::events::{self, Event};
use talaria_guest::{Turn, control, http, log};
use talaria_upstream::{mark, timestamp};

use crate::fault::Fault;

/// The repetitions unless the operator says otherwise, and the pauses in milliseconds: those of OpenAI's library.
pub(crate) const DEFAULT_RETRIES: u32 = 2;
const FIRST_MS: u32 = 500;
const LONGEST_MS: u32 = 8_000;
const LONGEST_ASKED_MS: u32 = 60_000;
/// The time that must be left for the call after a pause.
const MARGIN_MS: u32 = 5_000;

/// The endpoint's own word on another attempt.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Advice {
    /// Whether to try again, whatever the status.
    pub(crate) again: Option<bool>,
    /// After how many milliseconds.
    after_ms: Option<u32>,
}

/// The attempts of one turn.
pub(crate) struct Retries {
    made: u32,
    most: u32,
    /// Differs from turn to turn. The guest has no random numbers, and this need not be secret.
    spread: u64,
}

// === impl Advice ===

impl Advice {
    pub(crate) fn of(headers: &[http::Header]) -> Self {
        let header = |name: &str| headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.trim());
        let ms = |factor: f64| {
            // A cast saturates; what is not in the range is not used below.
            move |number: &str| number.parse::<f64>().ok().map(|number| (number * factor).ceil() as u32)
        };
        // A date counts from the endpoint's own clock, because the guest has none.
        let date = |until: &str| {
            let ms = timestamp::http(until)?.checked_sub(timestamp::http(header("date")?)?)?;
            u32::try_from(ms).ok()
        };
        let after_ms = (header("retry-after-ms").and_then(ms(1.0)))
            .or_else(|| header("retry-after").and_then(|value| ms(1_000.0)(value).or_else(|| date(value))));
        Self {
            again: match header("x-should-retry") {
                Some("true") => Some(true),
                Some("false") => Some(false),
                _ => None,
            },
            after_ms: after_ms.filter(|ms| (1..=LONGEST_ASKED_MS).contains(ms)),
        }
    }
}

// === impl Retries ===

impl Retries {
    pub(crate) fn new(turn: &Turn, most: u32) -> Self {
        Self { made: 0, most, spread: mark(turn.task_id.as_bytes()) }
    }

    /// Pauses before another attempt. Returns `false` if another attempt is of no use.
    ///
    /// # Errors
    /// A turn that was cancelled meanwhile.
    pub(crate) fn pause(&mut self, fault: &Fault, model: &str) -> Result<bool, Fault> {
        let ms = self.ms(fault.advice);
        let in_time = ms.saturating_add(MARGIN_MS) <= control::remaining_ms();
        if !fault.is_worth_retrying() || self.made >= self.most || !in_time {
            return Ok(false);
        }
        self.made += 1;
        let (class, next, of) = (fault.class(), self.made + 1, self.most + 1);
        let fields = json!({ "model": model, "class": class, "pause_ms": ms, "attempt": next });
        log::write(log::Level::Warn, "the model's endpoint failed; trying again", Some(&fields.to_string()));
        let seconds = f64::from(ms) / 1_000.0;
        events::emit(&Event::Status(format!(
            "The model's endpoint failed ({class}); trying again in {seconds:.1} s (attempt {next} of {of})."
        )))?;
        if control::sleep(ms) { Ok(true) } else { Err(Fault::cancelled()) }
    }

    /// The milliseconds before the next attempt.
    fn ms(&self, advice: Advice) -> u32 {
        let Some(asked) = advice.after_ms else {
            let full = FIRST_MS.checked_shl(self.made).unwrap_or(LONGEST_MS).min(LONGEST_MS);
            // Thousandths of up to a quarter, other ones for each attempt.
            let less = self.spread.rotate_left(self.made * 10) % 251;
            return full - full / 1_000 * u32::try_from(less).unwrap_or_default();
        };
        asked
    }
}

#[cfg(test)]
mod tests {
    use talaria_guest::testing::turn;

    use super::*;

    fn advice(headers: &[(&str, &str)]) -> Advice {
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Advice::of(&headers)
    }

    #[test]
    fn the_pause_that_the_endpoint_names_counts_within_bounds() {
        let date = ("date", "Wed, 18 Nov 2026 03:29:24 GMT");
        for (headers, expected) in [
            (&[("retry-after-ms", "20")][..], Some(20)),
            (&[("retry-after-ms", "20"), ("retry-after", "7")], Some(20)),
            (&[("retry-after", "7")], Some(7_000)),
            (&[("retry-after", " 0.5 ")], Some(500)),
            (&[("retry-after", "60")], Some(60_000)),
            (&[("retry-after", "Wed, 18 Nov 2026 03:29:34 GMT"), date], Some(10_000)),
            // Out of bounds, or no number: the back-off decides.
            (&[("retry-after", "61")], None),
            (&[("retry-after", "0")], None),
            (&[("retry-after", "-1")], None),
            (&[("retry-after", "NaN")], None),
            (&[("retry-after", "1e30")], None),
            (&[("retry-after", "soon")], None),
            (&[("retry-after", "Wed, 18 Nov 2026 03:29:34 GMT")], None),
            (&[("retry-after", "Wed, 18 Nov 2026 03:29:14 GMT"), date], None),
            (&[], None),
        ] {
            assert_eq!(advice(headers).after_ms, expected, "{headers:?}");
        }
    }

    #[test]
    fn the_pause_grows_to_eight_seconds_less_a_quarter_at_most() {
        let mut retries = Retries::new(&turn("hello"), 9);
        for (made, full) in
            [(0, 500), (1, 1_000), (2, 2_000), (3, 4_000), (4, 8_000), (5, 8_000), (40, 8_000)]
        {
            retries.made = made;
            let ms = retries.ms(Advice::default());
            assert!((full * 3 / 4..=full).contains(&ms), "{made}: {ms}");
        }
    }

    #[test]
    fn the_endpoint_may_ask_for_another_attempt_or_against_one() {
        assert_eq!(advice(&[("x-should-retry", "true")]).again, Some(true));
        assert_eq!(advice(&[("x-should-retry", "false")]).again, Some(false));
        assert_eq!(advice(&[("x-should-retry", "maybe")]).again, None);
    }
}
