//! Upkeep of the store: deletes old tasks and fails stuck ones, once a minute.
//!
//! Old tasks are also deleted as soon as a caller has more than its share, but not more often than once a second.

use std::sync::Arc;
use std::time::Duration;

use talaria_turns::{Retention, Shares, Store, Timestamp, Turns};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// How often the store is looked at.
const EVERY: Duration = Duration::from_secs(60);
/// The shortest time between two looks.
const PAUSE: Duration = Duration::from_secs(1);

/// What is kept in the store.
pub(super) struct Keep {
    /// How long tasks are kept after their end.
    pub(super) keep_for: Duration,
    /// How many are kept in all.
    pub(super) tasks: usize,
    /// How much each caller may have.
    pub(super) shares: Arc<Shares>,
}

/// Deletes the tasks that are not kept, until `shutdown`.
pub(super) async fn delete_old(store: Arc<dyn Store>, turns: Turns, keep: Keep, shutdown: CancellationToken) {
    let tend = async {
        loop {
            let Keep { keep_for, tasks, shares } = &keep;
            let since = Timestamp::now().before(*keep_for);
            let retention = Retention { since, tasks: *tasks, shares: Arc::clone(shares) };
            match store.forget(&retention).await {
                Ok(0) => {}
                Ok(tasks) => info!(tasks, "deleted old tasks"),
                Err(error) => warn!(%error, "old tasks not deleted"),
            }
            tokio::time::sleep(PAUSE).await;
            let _ = tokio::time::timeout(EVERY - PAUSE, turns.wait_for_excess()).await;
        }
    };
    shutdown.run_until_cancelled(tend).await;
}

/// Fails tasks to which nothing has happened for `after`, until `shutdown`.
pub(super) async fn fail_stuck(turns: Turns, after: Duration, shutdown: CancellationToken) {
    let mut timer = tokio::time::interval(EVERY.min(after));
    while shutdown.run_until_cancelled(timer.tick()).await.is_some() {
        match turns.fail_stuck(after).await {
            Ok(0) => {}
            Ok(tasks) => warn!(tasks, ?after, "failed tasks that were stuck"),
            Err(error) => warn!(%error, "stuck-task scan failed"),
        }
    }
}
