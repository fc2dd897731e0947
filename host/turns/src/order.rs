//! Turns of one conversation, one after the other.
//!
//! An agent keeps one session a conversation, and two turns at once in it interleave (hermes-agent's do). A lane is a
//! fair lock: turns take it in the order in which they were accepted. It is bounded; a lane that is full refuses.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{Mutex as FairMutex, OwnedMutexGuard};

use crate::model::{ContextId, Principal};

/// The lanes of all conversations that have turns.
pub(crate) struct Order {
    bound: usize,
    lanes: Mutex<HashMap<(Principal, ContextId), Weak<Lane>>>,
}

struct Lane {
    turn: Arc<FairMutex<()>>,
    waiting: AtomicUsize,
}

/// A place in a lane, held from accept to end.
pub(crate) struct Place {
    lane: Arc<Lane>,
}

/// The lane is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LaneFull;

impl Order {
    /// Lanes for at most `bound` turns each.
    pub(crate) fn new(bound: usize) -> Self {
        Self { bound, lanes: Mutex::default() }
    }

    /// A place at the end of a conversation's lane.
    pub(crate) fn line_up(&self, owner: &Principal, context: &ContextId) -> Result<Place, LaneFull> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if lanes.len() >= 64 && lanes.len() == lanes.capacity() {
            lanes.retain(|_, lane| lane.strong_count() > 0);
        }
        let slot = lanes.entry((owner.clone(), context.clone())).or_default();
        let lane = slot.upgrade().unwrap_or_else(|| {
            let lane = Arc::new(Lane { turn: Arc::default(), waiting: AtomicUsize::new(0) });
            *slot = Arc::downgrade(&lane);
            lane
        });
        if lane.waiting.load(Ordering::Relaxed) >= self.bound {
            return Err(LaneFull);
        }
        // Counted under the lock of `lanes`, so the bound holds.
        lane.waiting.fetch_add(1, Ordering::Relaxed);
        Ok(Place { lane })
    }
}

impl Place {
    /// Waits for its turn; the lane is taken until the guard is dropped.
    pub(crate) async fn turn(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.lane.turn).lock_owned().await
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.lane.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
