//! Counts of the messages that were rejected for lack of room.

use std::sync::atomic::{AtomicU64, Ordering};

use talaria_budget::Full;

use crate::push::PushError;
use crate::service::SendError;
use crate::shares::OverShare;
use crate::store::StoreError;

/// Counts of rejections, by reason.
macro_rules! reasons {
    ($($(#[$doc:meta])* $reason:ident,)*) => {
        /// The messages that were rejected for lack of room since the start.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Refused {
            $($(#[$doc])* pub $reason: u64,)*
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counter {
            $($reason: AtomicU64,)*
        }

        impl Counter {
            pub(crate) fn read(&self) -> Refused {
                Refused { $($reason: self.$reason.load(Ordering::Relaxed),)* }
            }
        }
    };
}

reasons! {
    /// Too many turns were running or waiting.
    busy,
    /// Too many turns of the context were.
    lane_full,
    /// There was no memory for the turn.
    no_memory,
    /// The host was shutting down.
    draining,
    /// Too many turns of the caller were running or waiting.
    caller_turns,
    /// The caller sent too many messages within a minute.
    caller_rate,
    /// The caller had too many tasks in the store.
    caller_tasks,
    /// The caller had too many bytes in the store.
    caller_bytes,
    /// The caller set too many push configurations within a minute.
    caller_webhooks,
    /// The store was full.
    store_full,
}

// === impl Counter ===

impl Counter {
    /// Counts an error if it is a lack of room.
    pub(crate) fn note(&self, error: &SendError) {
        let count = match error {
            SendError::Busy(_) => &self.busy,
            SendError::LaneFull(_) => &self.lane_full,
            SendError::NoMemory(Full::Host) => &self.no_memory,
            SendError::Draining => &self.draining,
            SendError::OverShare(over) | SendError::Push(PushError::OverShare(over)) => {
                return self.note_share(over);
            }
            SendError::Store(StoreError::Full(_)) => &self.store_full,
            _ => return,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a caller that is over its share.
    pub(crate) fn note_share(&self, over: &OverShare) {
        let count = match over {
            OverShare::Turns(_) => &self.caller_turns,
            OverShare::Rate { .. } => &self.caller_rate,
            OverShare::Tasks { .. } => &self.caller_tasks,
            OverShare::Bytes { .. } => &self.caller_bytes,
            OverShare::Webhooks { .. } => &self.caller_webhooks,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}
