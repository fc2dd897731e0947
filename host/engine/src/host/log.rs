//! The import `log`: lines in the operator's log, scrubbed of secrets and limited in rate.
//!
//! All turns of an executor share one rate, because many turns that log a little flood a log as much as one turn that
//! logs a lot. A line counts as it is printed: with its escapes, its fixed part and the span that it repeats. It is also
//! charged to the budget of its turn. Lines over the rate or the budget are dropped and counted; the next line within
//! them is preceded by a warning with the count.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tracing::{Level, debug, enabled, error, info, trace, warn};
use wasmtime::Result;

use super::{Ctx, printed};
use crate::contract::bindings::talaria::executor::log as wit;
use crate::limits::{Limits, Rate};
use crate::size::{ITEM, Size};

/// The length at which a message, and its fields, are cut.
pub(crate) const MAX_LINE: usize = 4 << 10;
/// The size of the largest line.
const LARGEST: usize = 2 * MAX_LINE + ITEM;

/// The rate limit of an executor's log.
pub(crate) struct Log(Mutex<Room>);

struct Room {
    lines: Rate,
    bytes: Rate,
    dropped: u64,
}

impl Log {
    pub(crate) fn new(limits: &Limits) -> Self {
        let now = Instant::now();
        let room = Room {
            lines: Rate::new(limits.log_lines, now),
            // One second's worth always fits a line with its fields.
            bytes: Rate::new(limits.log_bytes.max(LARGEST as u32), now),
            dropped: 0,
        };
        Self(Mutex::new(room))
    }

    /// Counts a line as dropped if the rate has no room for even an empty one. This is much cheaper than to redact the
    /// line first, and a flood mostly ends here.
    pub(super) fn is_full(&self, now: Instant) -> bool {
        let mut room = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = !room.lines.has(1.0, now) || !room.bytes.has(ITEM as f64, now);
        room.dropped += u64::from(is_full);
        is_full
    }

    pub(super) fn count_dropped(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).dropped += 1;
    }

    /// Counts a line of so many bytes. If it is within the rate, returns the number of lines dropped since the last one
    /// that was.
    pub(super) fn admit(&self, bytes: usize, now: Instant) -> Option<u64> {
        let mut room = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = bytes as f64;
        if room.lines.has(1.0, now) && room.bytes.has(bytes, now) {
            room.lines.take(1.0);
            room.bytes.take(bytes);
            return Some(std::mem::take(&mut room.dropped));
        }
        room.dropped += 1;
        None
    }
}

impl Ctx {
    /// Redacts and cuts texts for a line, and passes them to `write` with the name of the executor, unless the line is
    /// dropped. `beside` is the size of the span that the line repeats.
    pub(super) fn line<const N: usize>(
        &mut self,
        beside: usize,
        texts: [(&str, usize); N],
        write: impl FnOnce(&str, [String; N]),
    ) {
        let Some(shared) = self.shared().cloned() else { return };
        if shared.log.is_full(Instant::now()) {
            return;
        }
        let texts = texts.map(|(text, most)| self.for_log(text, most));
        let bytes = ITEM + beside + texts.iter().map(|text| printed(text)).sum::<usize>();
        if !self.affords(Size::of(bytes)) {
            return shared.log.count_dropped();
        }
        let executor = shared.name.as_str();
        let Some(dropped) = shared.log.admit(bytes, Instant::now()) else { return };
        if dropped > 0 {
            warn!(executor, dropped, "dropped log lines of the guest: too many");
        }
        write(executor, texts);
    }
}

impl wit::Host for Ctx {
    fn write(&mut self, level: wit::Level, message: String, fields: Option<String>) -> Result<()> {
        let is_shown = match level {
            wit::Level::Trace => enabled!(target: "guest", Level::TRACE),
            wit::Level::Debug => enabled!(target: "guest", Level::DEBUG),
            wit::Level::Info => enabled!(target: "guest", Level::INFO),
            wit::Level::Warn => enabled!(target: "guest", Level::WARN),
            wit::Level::Error => enabled!(target: "guest", Level::ERROR),
        };
        // A line that the operator does not want to see costs nothing.
        if !is_shown {
            return Ok(());
        }
        let texts = [(message.as_str(), MAX_LINE), (fields.as_deref().unwrap_or_default(), MAX_LINE)];
        self.line(0, texts, |executor, [message, text]| {
            let fields = fields.is_some().then_some(text.as_str());
            match level {
                wit::Level::Trace => trace!(target: "guest", executor, fields, "{message}"),
                wit::Level::Debug => debug!(target: "guest", executor, fields, "{message}"),
                wit::Level::Info => info!(target: "guest", executor, fields, "{message}"),
                wit::Level::Warn => warn!(target: "guest", executor, fields, "{message}"),
                wit::Level::Error => error!(target: "guest", executor, fields, "{message}"),
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn drops_and_counts_lines_and_bytes_over_the_rate() {
        let limits = Limits { log_lines: 10, log_bytes: 16 << 10, ..Limits::default() };
        let (log, start) = (Log::new(&limits), Instant::now());
        let written = (0..1_000).filter(|_| log.admit(10, start).is_some()).count();
        assert_eq!(written, 10);
        let later = start + Duration::from_secs(1);
        assert_eq!(log.admit(10, later), Some(990));
        let written = (0..9).filter(|_| log.admit(MAX_LINE, later).is_some()).count();
        assert_eq!(written, 3, "after the first line, 16 KiB fit three more, not four");
        while log.admit(1_000, later).is_some() {}
        assert!(log.is_full(later), "86 bytes are left, too few for an empty line");
        assert_eq!(log.admit(10, later + Duration::from_secs(1)), Some(2));
    }
}
