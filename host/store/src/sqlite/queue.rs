//! The bounded queues of the threads, with a bound on the wait for room.

use std::time::Duration;

use talaria_turns::StoreError;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::{SendTimeoutError, TrySendError};

/// The sending side of a queue.
pub(super) struct Queue<T> {
    jobs: mpsc::Sender<T>,
    /// How long a job waits for room.
    patience: Duration,
}

impl<T> Queue<T> {
    /// Makes a queue with room for so many jobs, and its receiver.
    pub(super) fn new(room: usize, patience: Duration) -> (Self, mpsc::Receiver<T>) {
        let (jobs, out) = mpsc::channel(room.max(1));
        (Self { jobs, patience }, out)
    }

    /// Puts a job into the queue; waits for room if it is full.
    pub(super) async fn put(&self, job: T) -> Result<(), StoreError> {
        // There is room most of the time, and then no timer is needed.
        match self.jobs.try_send(job) {
            Ok(()) => Ok(()),
            Err(TrySendError::Closed(_)) => Err(stopped()),
            Err(TrySendError::Full(job)) => match self.jobs.send_timeout(job, self.patience).await {
                Ok(()) => Ok(()),
                Err(SendTimeoutError::Closed(_)) => Err(stopped()),
                Err(SendTimeoutError::Timeout(_)) => {
                    let text = format!("{} others wait in front; try again later", self.jobs.max_capacity());
                    Err(StoreError::Unavailable(text))
                }
            },
        }
    }

    /// Puts a job into the queue if there is room now. Returns whether there was.
    pub(super) fn offer(&self, job: T) -> bool {
        self.jobs.try_send(job).is_ok()
    }
}

// Not derived: that would require `T: Clone`.
impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Self { jobs: self.jobs.clone(), patience: self.patience }
    }
}

/// The error if a thread has ended.
pub(super) fn stopped() -> StoreError {
    StoreError::Unavailable("a thread of the store has stopped; restart the host".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_millis(30);

    #[tokio::test]
    async fn a_full_queue_rejects_after_a_while_and_takes_jobs_again_once_there_is_room() {
        let (queue, mut out) = Queue::new(1, PATIENCE);
        queue.put(1).await.unwrap();
        assert!(!queue.offer(2));
        let refused = queue.put(2).await.unwrap_err();
        assert!(refused.to_string().contains("others wait in front"), "{refused}");
        assert_eq!(out.recv().await, Some(1));
        queue.put(3).await.unwrap();
        assert_eq!(out.recv().await, Some(3), "a rejected job is not run later");
    }

    #[tokio::test]
    async fn the_queue_of_a_thread_that_ended_rejects_at_once() {
        let (queue, out) = Queue::new(1, PATIENCE);
        drop(out);
        let refused = queue.put(1).await.unwrap_err();
        assert!(refused.to_string().contains("restart the host"), "{refused}");
    }
}
