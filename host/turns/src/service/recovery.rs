//! Tasks without a running turn: resumed after a restart, or failed if nothing happens to them for too long.

use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use super::accept::bytes_of;
use super::run::{Run, Taker};
use super::{Inner, Turns};
use crate::executor::Turn;
use crate::keys;
use crate::live_task::LiveTask;
use crate::model::{Metadata, Part, Timestamp};
use crate::push::StoredPushConfig;
use crate::store::{StoreError, TaskKey};
use crate::task::{Event, Pending, State, Task};

/// The failure of a turn that a restart interrupted.
const RESTARTED: &str = "interrupted by a restart";

// === impl Turns ===

impl Turns {
    /// Fails the tasks whose status has not changed for this long: a question that is not answered, a turn that hangs.
    /// Returns how many it failed.
    ///
    /// # Errors
    /// The store's error.
    pub async fn fail_stuck(&self, after: Duration) -> Result<usize, StoreError> {
        let before = Timestamp::now().before(after);
        let mut failed = 0;
        for key in self.0.store.stuck(before).await? {
            let Some(live) = self.0.tasks.get(&key).await? else { continue };
            let why = format!("nothing happened for {}", humantime::format_duration(after));
            let ended = live.append_if(|task| {
                let stuck = !task.status.state.is_terminal() && task.status.at < before;
                let events = stuck.then(|| Event::ended(State::Failed, vec![Part::text(why.clone())], None));
                Ok::<_, StoreError>(events.into_iter().collect())
            });
            if ended.await?.status.state == State::Failed {
                failed += 1;
                self.0.hold_is_over(&key);
                // A turn that still runs has nothing left to do.
                live.cancel.cancel();
            }
        }
        Ok(failed)
    }

    /// Resumes what a restart interrupted; called before the first message is accepted. A turn that had not begun is run,
    /// one with a checkpoint is resumed from it, and others are failed. A task that nobody holds any more is completed. Push
    /// notifications that are still to be sent are sent. Returns how many turns were resumed and failed.
    ///
    /// # Errors
    /// The store's error.
    pub async fn recover(&self) -> Result<(usize, usize), StoreError> {
        let (mut resumed, mut failed) = (0, 0);
        // A task that cannot be read must not prevent the others from being resumed.
        let lost = |key: &TaskKey, error: &StoreError| {
            warn!(task = %key.task, %error, "could not resume a turn");
        };
        let mut found = Vec::new();
        for key in self.0.store.unfinished().await? {
            match self.0.tasks.get(&key).await.and_then(|live| live.ok_or(StoreError::NotFound)) {
                Ok(live) => found.push(live),
                Err(error) => lost(&key, &error),
            }
        }
        // Turns that had begun come first, or they would wait in their lanes behind those that had not; then by age, as
        // the ids sort.
        found.sort_by_cached_key(|live| {
            let task = live.task();
            (task.status.state == State::Submitted, task.id.to_string())
        });
        for live in found {
            let task = live.task();
            if task.is_held() {
                if !self.0.is_held(&live.key)
                    && let Err(error) = self.release(&live.key).await
                {
                    lost(&live.key, &error);
                }
                continue;
            }
            match self.0.resume(&live, &task).await {
                Ok(true) => resumed += 1,
                Ok(false) => failed += 1,
                Err(error) => lost(&live.key, &error),
            }
        }
        let Some(dispatcher) = &self.0.dispatcher else { return Ok((resumed, failed)) };
        for StoredPushConfig { key, config, cursor, .. } in self.0.store.open_push_configs().await? {
            match self.0.tasks.get(&key).await {
                Ok(Some(live)) => dispatcher.follow(live, config, cursor),
                Ok(None) => {}
                Err(error) => warn!(task = %key.task, %error, "could not resume push notifications"),
            }
        }
        Ok((resumed, failed))
    }
}

// === impl Inner ===

impl Inner {
    /// Resumes the turns of a task that a restart interrupted. Returns false if the task had to be failed.
    pub(super) async fn resume(
        self: &Arc<Self>,
        live: &Arc<LiveTask>,
        task: &Task,
    ) -> Result<bool, StoreError> {
        let Some(first) = task.pending.front() else { return Ok(true) };
        let begun = task.status.state != State::Submitted;
        let executor = self.route.named(&first.executor);
        let resumable = !begun || task.checkpoint.is_some();
        if !resumable || executor.is_none() {
            live.append(vec![Event::ended(State::Failed, vec![Part::text(RESTARTED)], None)]).await?;
            return Ok(false);
        }
        if task.status.state.is_interrupted() {
            // Its turn asked; the answer will resume it.
            return Ok(true);
        }
        for (nth, pending) in task.pending.iter().enumerate() {
            let (Some(executor), Some(message)) =
                (self.route.named(&pending.executor), task.history.get(pending.message))
            else {
                continue;
            };
            let Ok(ticket) = self.lanes.enter(&live.key.owner, &task.context) else {
                warn!(task = %task.id, "no room in the lane for a turn of before the restart");
                continue;
            };
            let turn = Turn {
                task: task.id.clone(),
                context: task.context.clone(),
                message: Arc::clone(message),
                history: task.history.iter().take(pending.message).cloned().collect(),
                principal: live.key.owner.clone(),
                streaming: true,
                // No request waits for the answer any more; callers read the task.
                async_delivery: true,
                metadata: metadata(pending),
                checkpoint: task.checkpoint.clone().filter(|_| nth == 0).map(|checkpoint| checkpoint.0),
            };
            let taker = Taker::Executor(executor);
            let memory = self.reserve_again(&turn.principal, &taker, bytes_of(&turn.history, &turn.message));
            let (past, trace) = (self.past(live), pending.trace.clone().filter(|_| self.sampler.is_some()));
            let run = Run::new(live, taker, turn, past, ticket, (memory, &self.observers), trace);
            let service = Arc::clone(self);
            self.spawn(async move { run.finish(&service).await });
        }
        Ok(true)
    }
}

/// Returns the turn's metadata, with how long ago it began.
fn metadata(turn: &Pending) -> Option<Arc<Metadata>> {
    let mut metadata = turn.metadata.clone();
    if let Some(begun) = turn.begun {
        let ago = Timestamp::now().millis().saturating_sub(begun.millis());
        Arc::make_mut(metadata.get_or_insert_default()).insert(keys::BEGUN_MS_AGO.into(), ago.into());
    }
    metadata
}
