//! Counts of the messages that were rejected for lack of room.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::service::SendError;

/// The messages that were rejected for lack of room since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refused {
    /// Too many turns were running or waiting.
    pub busy: u64,
    /// Too many turns of the context were.
    pub lane_full: u64,
    /// There was no memory for the turn.
    pub no_memory: u64,
    /// The host was shutting down.
    pub draining: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counter {
    busy: AtomicU64,
    lane_full: AtomicU64,
    no_memory: AtomicU64,
    draining: AtomicU64,
}

// === impl Counter ===

impl Counter {
    /// Counts an error if it is a lack of room.
    pub(crate) fn note(&self, error: &SendError) {
        let count = match error {
            SendError::Busy(_) => &self.busy,
            SendError::LaneFull(_) => &self.lane_full,
            SendError::NoMemory(_) => &self.no_memory,
            SendError::Draining => &self.draining,
            _ => return,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Refused {
        Refused {
            busy: self.busy.load(Ordering::Relaxed),
            lane_full: self.lane_full.load(Ordering::Relaxed),
            no_memory: self.no_memory.load(Ordering::Relaxed),
            draining: self.draining.load(Ordering::Relaxed),
        }
    }
}
