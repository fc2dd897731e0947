//! The import `log`: lines in the operator's log, scrubbed of secrets and limited in rate.
//!
//! All turns of an executor share one rate, because many turns that log a little flood a log as much as one turn that
//! logs a lot. Lines over the rate are dropped and counted; the next line within it is preceded by a warning with the
//! count.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tracing::{debug, error, info, trace, warn};
use wasmtime::Result;

use super::Ctx;
use crate::contract::bindings::talaria::executor::log as wit;
use crate::limits::{Limits, Rate};

/// The length at which a line is cut.
const MAX_LINE: usize = 4 << 10;

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
            bytes: Rate::new(limits.log_bytes.max(2 * MAX_LINE as u32), now),
            dropped: 0,
        };
        Self(Mutex::new(room))
    }

    /// Counts a line of so many bytes. If it is within the rate, returns the number of lines dropped since the last one
    /// that was.
    fn admit(&self, bytes: usize, now: Instant) -> Option<u64> {
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
    /// Returns whether a line of so many bytes may be written now, and logs how many were dropped before it.
    pub(super) fn may_log(&self, bytes: usize) -> bool {
        let Some(shared) = self.shared() else { return false };
        let admitted = shared.log.admit(bytes, Instant::now());
        if let Some(dropped @ 1..) = admitted {
            let executor = shared.name.as_str();
            warn!(executor, dropped, "dropped log lines of the guest: too many per second");
        }
        admitted.is_some()
    }
}

impl wit::Host for Ctx {
    fn write(&mut self, level: wit::Level, message: String, fields: Option<String>) -> Result<()> {
        let (message, fields) = (cut(&message), fields.as_deref().map(cut));
        if !self.may_log(message.len() + fields.map_or(0, str::len)) {
            return Ok(());
        }
        let Some(shared) = self.shared() else { return Ok(()) };
        let executor = shared.name.as_str();
        let message = shared.replies.redactor().all(message);
        let fields = fields.map(|fields| shared.replies.redactor().all(fields));
        let fields = fields.as_deref();
        match level {
            wit::Level::Trace => trace!(target: "guest", executor, fields, "{message}"),
            wit::Level::Debug => debug!(target: "guest", executor, fields, "{message}"),
            wit::Level::Info => info!(target: "guest", executor, fields, "{message}"),
            wit::Level::Warn => warn!(target: "guest", executor, fields, "{message}"),
            wit::Level::Error => error!(target: "guest", executor, fields, "{message}"),
        }
        Ok(())
    }
}

fn cut(text: &str) -> &str {
    let end = text.floor_char_boundary(MAX_LINE);
    text.get(..end).unwrap_or(text)
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
    }
}
