//! `log`: lines in the operator's log, scrubbed, and only so many a second.
//!
//! The rate is the executor's, all its turns together: what floods a log is many turns that say a little as much as one that
//! says a lot. What is over it is dropped and counted, and the next line that fits says how many were.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tracing::{debug, error, info, trace, warn};
use wasmtime::Result;

use super::Ctx;
use crate::contract::bindings::talaria::executor::log as wit;
use crate::limits::{Limits, Rate};

/// The longest line; the rest of a longer one is dropped.
const MAX_LINE: usize = 4 << 10;

/// What an executor may still write.
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
            // A second's worth always has room for a line.
            bytes: Rate::new(limits.log_bytes.max(2 * MAX_LINE as u32), now),
            dropped: 0,
        };
        Self(Mutex::new(room))
    }

    /// Whether a line of so many bytes fits, and if so, how many were dropped since the last that did.
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
    /// Whether a line of so many bytes may be written now.
    pub(super) fn may_log(&self, bytes: usize) -> bool {
        let Some(shared) = self.shared() else { return false };
        let admitted = shared.log.admit(bytes, Instant::now());
        if let Some(dropped @ 1..) = admitted {
            let executor = shared.name.as_str();
            warn!(executor, dropped, "log lines of the guest were dropped: too many a second");
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
        let message = shared.redactor.redact(message);
        let fields = fields.map(|fields| shared.redactor.redact(fields));
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
    fn lines_and_bytes_over_the_rate_are_dropped_and_counted() {
        let limits = Limits { log_lines: 10, log_bytes: 16 << 10, ..Limits::default() };
        let (log, start) = (Log::new(&limits), Instant::now());
        let written = (0..1_000).filter(|_| log.admit(10, start).is_some()).count();
        assert_eq!(written, 10);
        let later = start + Duration::from_secs(1);
        assert_eq!(log.admit(10, later), Some(990));
        let written = (0..9).filter(|_| log.admit(MAX_LINE, later).is_some()).count();
        assert_eq!(written, 3, "16 KiB have no room for a fourth beside the first line");
    }
}
