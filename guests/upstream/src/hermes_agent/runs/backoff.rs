//! Waits while the gateway is busy: for as long as it asks, and only while the turn's time allows.

use talaria_guest::events::Event;
use talaria_guest::{Failure, control, http};

use super::cancelled;
use crate::hermes_agent::emit;

/// The pause before another attempt, in seconds: where the gateway does not name one, and at most.
const RETRY_AFTER: (u32, u32) = (1, 60);
/// The time that must be left for the turn after a pause.
const MARGIN_MS: u32 = 5_000;

/// The pauses between the attempts of one turn.
pub struct Backoff {
    /// Whether the caller knows that the turn waits, or is not listening.
    reported: bool,
}

impl Backoff {
    /// Before the first attempt; a caller who is streaming hears of the first pause.
    #[must_use]
    pub fn new(streaming: bool) -> Self {
        Self { reported: !streaming }
    }

    /// Sleeps if this response says that the gateway is busy. Returns `false` if another attempt is of no use.
    ///
    /// # Errors
    /// A cancelled turn.
    pub fn wait(&mut self, status: u16, headers: &[http::Header]) -> Result<bool, Failure> {
        let Some(seconds) = retry_after(status, headers) else { return Ok(false) };
        let ms = seconds.saturating_mul(1_000);
        if ms.saturating_add(MARGIN_MS) > control::remaining_ms() {
            return Ok(false);
        }
        if !core::mem::replace(&mut self.reported, true) {
            emit(&Event::Status("The agent is busy; waiting for a place.".into()))?;
        }
        if control::sleep(ms) { Ok(true) } else { Err(cancelled()) }
    }
}

/// The seconds until the next attempt; `None` if another attempt is of no use.
fn retry_after(status: u16, headers: &[http::Header]) -> Option<u32> {
    let header = headers.iter().find(|(name, _)| name == "retry-after").map(|(_, value)| value.trim());
    let (least, most) = RETRY_AFTER;
    match (status, header) {
        (429, None) => Some(least),
        // A date instead of a number counts as the least.
        (429 | 503, Some(value)) => Some(value.parse().unwrap_or(least).clamp(least, most)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_only_while_the_gateway_is_busy_and_within_bounds() {
        for (status, header, seconds) in [
            (429, None, Some(1)),
            (429, Some("7"), Some(7)),
            (429, Some(" 0 "), Some(1)),
            (429, Some("3600"), Some(60)),
            (429, Some("Wed, 18 Nov 2026 12:09:24 GMT"), Some(1)),
            (503, Some("2"), Some(2)),
            (503, None, None),
            (500, Some("2"), None),
            (200, Some("2"), None),
        ] {
            let headers: Vec<_> =
                header.map(|value: &str| ("retry-after".to_owned(), value.to_owned())).into_iter().collect();
            assert_eq!(retry_after(status, &headers), seconds, "{status} {header:?}");
        }
    }
}
