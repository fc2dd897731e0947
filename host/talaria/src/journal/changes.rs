//! Which tasks changed, for those who watch.
//!
//! One task publishes for all who watch, so a change is read from the store once, however many look at it. Changes of a task
//! between two rounds are one; a round begins at most every [`PAUSE`], and at once after a pause. Nothing is noted while nobody
//! watches. A reader that is behind by more than [`BEHIND`] frames is told to read again.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use talaria_turns::TaskId;
use tokio::sync::{Notify, broadcast};

/// The shortest time between two rounds.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// The frames that a reader may be behind.
const BEHIND: usize = 256;

/// The tasks that are noted for a round; more of them are found by their new status.
const MOST: usize = 4_096;

/// The readers at once: several pages of several operators.
const READERS: usize = 32;

/// Who watches, and what changed.
pub(crate) struct Changes {
    readers: Arc<AtomicUsize>,
    touched: Mutex<HashSet<TaskId>>,
    wake: Notify,
    frames: broadcast::Sender<Bytes>,
}

/// A reader. Dropping it ends the watch.
pub(crate) struct Watching {
    pub(crate) frames: broadcast::Receiver<Bytes>,
    readers: Arc<AtomicUsize>,
}

impl Default for Changes {
    fn default() -> Self {
        let (frames, _) = broadcast::channel(BEHIND);
        Self { readers: Arc::default(), touched: Mutex::default(), wake: Notify::new(), frames }
    }
}

// === impl Changes ===

impl Changes {
    /// A task changed.
    pub(crate) fn touch(&self, task: &TaskId) {
        if !self.is_watched() {
            return;
        }
        let mut touched = self.touched.lock().unwrap_or_else(PoisonError::into_inner);
        if touched.len() < MOST && touched.insert(task.clone()) {
            drop(touched);
            self.wake.notify_one();
        }
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.readers.load(Ordering::Relaxed) > 0
    }

    /// Begins to watch; `None` if too many do.
    pub(crate) fn watch(&self) -> Option<Watching> {
        let more = |readers| (readers < READERS).then_some(readers + 1);
        self.readers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        let watching = Watching { frames: self.frames.subscribe(), readers: Arc::clone(&self.readers) };
        // The publisher may sleep since nobody watched.
        self.wake.notify_one();
        Some(watching)
    }

    /// Waits until something changed. One task may wait.
    pub(crate) async fn changed(&self) {
        self.wake.notified().await;
    }

    /// Takes the tasks that changed.
    pub(crate) fn take(&self) -> HashSet<TaskId> {
        std::mem::take(&mut *self.touched.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sends a frame to all who watch.
    pub(crate) fn publish(&self, frame: Bytes) {
        // An error means that nobody watches.
        let _ = self.frames.send(frame);
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.readers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_change_is_noted_once_and_only_while_somebody_watches() {
        let (changes, task) = (Changes::default(), TaskId::fresh());
        changes.touch(&task);
        assert!(changes.take().is_empty());
        let mut watching = changes.watch().unwrap();
        changes.touch(&task);
        changes.touch(&task);
        changes.changed().await;
        assert_eq!(changes.take(), HashSet::from([task.clone()]));
        changes.publish("frame".into());
        assert_eq!(watching.frames.recv().await.unwrap(), "frame");
        drop(watching);
        changes.touch(&task);
        assert!(changes.take().is_empty() && !changes.is_watched());
    }

    #[test]
    fn readers_and_tasks_are_bounded() {
        let changes = Changes::default();
        let watching: Vec<_> = (0..READERS).map(|_| changes.watch().unwrap()).collect();
        assert!(changes.watch().is_none());
        for _ in 0..MOST + 1 {
            changes.touch(&TaskId::fresh());
        }
        assert_eq!(changes.take().len(), MOST);
        drop(watching);
        assert!(changes.watch().is_some());
    }
}
