//! A busy gateway is waited for: as long as it says, and as long as the turn's time allows.

use talaria_guest::events::Event;
use talaria_guest::{Failure, control, http};
use talaria_upstream::hermes_agent::tell;

/// How long a busy gateway is left alone where it does not say, in seconds, and at most.
const RETRY_AFTER: (u32, u32) = (1, 60);
/// What must be left of the turn's time after waiting for a place.
const MARGIN_MS: u32 = 5_000;

/// A place among the gateway's turns.
pub(crate) struct Place {
    /// Whether the caller knows, or nobody watches.
    told: bool,
}

impl Place {
    pub(crate) fn new(streaming: bool) -> Self {
        Self { told: !streaming }
    }

    /// Waits where this response says that there is none now. False where asking again is no use.
    pub(crate) fn wait(&mut self, status: u16, headers: &[http::Header]) -> Result<bool, Failure> {
        let Some(seconds) = retry_after(status, headers) else { return Ok(false) };
        let ms = seconds.saturating_mul(1_000);
        if ms.saturating_add(MARGIN_MS) > control::remaining_ms() {
            return Ok(false);
        }
        if !core::mem::replace(&mut self.told, true) {
            tell(&Event::Status("The agent is busy; waiting for a place.".into()))?;
        }
        if control::sleep(ms) { Ok(true) } else { Err(crate::cancelled()) }
    }
}

/// How many seconds to wait before asking again; none where asking again is no use.
fn retry_after(status: u16, headers: &[http::Header]) -> Option<u32> {
    let header = headers.iter().find(|(name, _)| name == "retry-after").map(|(_, value)| value.trim());
    let (least, most) = RETRY_AFTER;
    match (status, header) {
        (429, None) => Some(least),
        // A date instead of a number is for patient clients.
        (429 | 503, Some(value)) => Some(value.parse().unwrap_or(least).clamp(least, most)),
        _ => None,
    }
}
