//! How jobs get to the threads: through bounded queues, with a bound on the wait for room.

use std::time::Duration;

use talaria_turns::StoreError;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::{SendTimeoutError, TrySendError};

/// Where jobs are put.
pub(super) struct Queue<T> {
    jobs: mpsc::Sender<T>,
    /// How long a job waits for room.
    patience: Duration,
}

impl<T> Queue<T> {
    /// A queue with room for so many, and where they come out.
    pub(super) fn new(room: usize, patience: Duration) -> (Self, mpsc::Receiver<T>) {
        let (jobs, out) = mpsc::channel(room.max(1));
        (Self { jobs, patience }, out)
    }

    /// Puts a job in, if need be when there is room.
    pub(super) async fn put(&self, job: T) -> Result<(), StoreError> {
        // Mostly there is, and then no clock is asked.
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

    /// Puts a job in if there is room now; nobody waits for it.
    pub(super) fn offer(&self, job: T) -> bool {
        self.jobs.try_send(job).is_ok()
    }
}

// Not derived, which would ask it of the jobs.
impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Self { jobs: self.jobs.clone(), patience: self.patience }
    }
}

/// What callers get when a thread is gone.
pub(super) fn stopped() -> StoreError {
    StoreError::Unavailable("a thread of the store has stopped; restart the host".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_millis(30);

    #[tokio::test]
    async fn a_full_queue_refuses_after_a_while_and_takes_jobs_again_when_there_is_room() {
        let (queue, mut out) = Queue::new(1, PATIENCE);
        queue.put(1).await.unwrap();
        assert!(!queue.offer(2));
        let refused = queue.put(2).await.unwrap_err();
        assert!(refused.to_string().contains("others wait in front"), "{refused}");
        assert_eq!(out.recv().await, Some(1));
        queue.put(3).await.unwrap();
        assert_eq!(out.recv().await, Some(3), "what was refused is not done later");
    }

    #[tokio::test]
    async fn a_thread_that_is_gone_refuses_at_once() {
        let (queue, out) = Queue::new(1, PATIENCE);
        drop(out);
        let refused = queue.put(1).await.unwrap_err();
        assert!(refused.to_string().contains("restart the host"), "{refused}");
    }
}
