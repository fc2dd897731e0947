//! Lanes: the turns of one context run one after the other.
//!
//! Agents keep one session for each context, and two turns at once would interleave in it. A lane is a fair lock: turns
//! take it in the order in which they were accepted. Each lane is bounded; a turn that does not fit is rejected.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use foldhash::quality::RandomState;
use tokio::sync::{Mutex as FairMutex, OwnedMutexGuard};

use crate::model::{ContextId, Principal};

/// The lanes of all contexts that have turns.
pub(crate) struct Lanes {
    bound: usize,
    // Callers choose ids of contexts, but the seed of the hashes is random, and the map has few more lanes than turns wait.
    lanes: Mutex<HashMap<(Principal, ContextId), Weak<Lane>, RandomState>>,
}

struct Lane {
    turn: Arc<FairMutex<()>>,
    /// The turns that wait or run.
    tickets: AtomicUsize,
}

/// A turn's place in a lane, held until the turn ends.
pub(crate) struct LaneTicket {
    lane: Arc<Lane>,
}

/// The lane has no room for another turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LaneFull;

// === impl Lanes ===

impl Lanes {
    /// Makes lanes with room for `bound` turns each.
    pub(crate) fn new(bound: usize) -> Self {
        Self { bound, lanes: Mutex::default() }
    }

    /// Takes a place at the end of a context's lane.
    pub(crate) fn enter(&self, owner: &Principal, context: &ContextId) -> Result<LaneTicket, LaneFull> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if lanes.len() >= 64 && lanes.len() == lanes.capacity() {
            lanes.retain(|_, lane| lane.strong_count() > 0);
        }
        let known = lanes.entry((owner.clone(), context.clone())).or_default();
        let lane = known.upgrade().unwrap_or_else(|| {
            let lane = Arc::new(Lane { turn: Arc::default(), tickets: AtomicUsize::new(0) });
            *known = Arc::downgrade(&lane);
            lane
        });
        if lane.tickets.load(Ordering::Relaxed) >= self.bound {
            return Err(LaneFull);
        }
        // Counted under the lock of `lanes`, so the bound holds.
        lane.tickets.fetch_add(1, Ordering::Relaxed);
        Ok(LaneTicket { lane })
    }
}

// === impl LaneTicket ===

impl LaneTicket {
    /// Waits until the turns before it have ended. The lane is taken until the guard is dropped.
    pub(crate) async fn turn(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.lane.turn).lock_owned().await
    }
}

impl Drop for LaneTicket {
    fn drop(&mut self) {
        self.lane.tickets.fetch_sub(1, Ordering::Relaxed);
    }
}
