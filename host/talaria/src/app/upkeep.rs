//! Upkeep of the store: deletes old tasks and fails stuck ones, once a minute.

use std::sync::Arc;
use std::time::Duration;

use talaria_turns::{Store, Timestamp, Turns};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// How often the store is looked at.
const EVERY: Duration = Duration::from_secs(60);

/// Deletes tasks that ended longer than `keep_for` ago, and the oldest beyond `keep`, until `shutdown`.
pub(super) async fn delete_old(
    store: Arc<dyn Store>,
    keep_for: Duration,
    keep: usize,
    shutdown: CancellationToken,
) {
    let mut timer = tokio::time::interval(EVERY);
    while shutdown.run_until_cancelled(timer.tick()).await.is_some() {
        let before = Timestamp::now().before(keep_for);
        match store.forget(before, keep).await {
            Ok(0) => {}
            Ok(tasks) => info!(tasks, "deleted old tasks"),
            Err(error) => warn!(%error, "old tasks not deleted"),
        }
    }
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
