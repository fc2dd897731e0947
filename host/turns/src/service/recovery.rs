//! Tasks that nobody works on: taken up after a restart, or failed when nothing happens to them any more.

use std::sync::Arc;
use std::time::Duration;

use tracing::{Instrument as _, warn};

use super::accept::span;
use super::{Inner, Turns};
use crate::executor::Turn;
use crate::hook::Hooked;
use crate::live::Live;
use crate::model::{Metadata, Part, Timestamp};
use crate::run::Taker;
use crate::store::{StoreError, TaskKey};
use crate::task::{Event, Pending, State, Task};
use crate::text::message_text;

/// What the caller reads of a turn that a restart ended.
const RESTARTED: &str = "interrupted by a restart";
/// In the metadata of a turn that had begun before a restart: how long ago, for an executor that must not ask again too
/// late. Executors have no clock that outlives them.
const BEGUN: &str = "talaria/begun-ms-ago";

// === impl Turns ===

impl Turns {
    /// Fails tasks that nothing happened to for as long: a question that nobody answers, a turn that hangs. Returns how
    /// many.
    ///
    /// # Errors
    /// The store's.
    pub async fn fail_stuck(&self, after: Duration) -> Result<usize, StoreError> {
        let before = Timestamp::now().before(after);
        let mut failed = 0;
        for key in self.0.store.stuck(before).await? {
            let Some(live) = self.0.hub.get(&key).await? else { continue };
            let why = format!("nothing happened for {}", humantime::format_duration(after));
            let ended = live.append(|task| {
                let stuck = !task.status.state.is_terminal() && task.status.at < before;
                let events = stuck.then(|| Event::ended(State::Failed, vec![Part::text(why.clone())], None));
                Ok::<_, StoreError>(events.into_iter().collect())
            });
            if ended.await?.status.state == State::Failed {
                failed += 1;
                // A turn that still waits has nothing to wait for.
                live.cancel.cancel();
            }
        }
        Ok(failed)
    }

    /// Takes up what a restart interrupted, before the first message is taken: a turn that had not begun is run; one
    /// with a checkpoint is executed again from it; others end as failed. Returns how many of each. What hooks were not
    /// told yet goes out.
    ///
    /// # Errors
    /// The store's.
    pub async fn recover(&self) -> Result<(usize, usize), StoreError> {
        let (mut resumed, mut failed) = (0, 0);
        // One task that cannot be read must not keep the others down.
        let lost = |key: &TaskKey, error: &StoreError| {
            warn!(task = %key.task, %error, "a turn could not be taken up");
        };
        let mut found = Vec::new();
        for key in self.0.store.unfinished().await? {
            match self.0.hub.get(&key).await.and_then(|live| live.ok_or(StoreError::NotFound)) {
                Ok(live) => found.push(live),
                Err(error) => lost(&key, &error),
            }
        }
        // What had begun goes before what had not, or it would wait in line behind it; then by age, as ids sort.
        found.sort_by_cached_key(|live| {
            let task = live.task();
            (task.status.state == State::Submitted, task.id.to_string())
        });
        for live in found {
            let task = live.task();
            match self.0.resume(&live, &task).await {
                Ok(true) => resumed += 1,
                Ok(false) => failed += 1,
                Err(error) => lost(&live.key, &error),
            }
        }
        let Some(outbox) = &self.0.outbox else { return Ok((resumed, failed)) };
        for Hooked { key, hook, cursor, .. } in self.0.store.open_hooks().await? {
            match self.0.hub.get(&key).await {
                Ok(Some(live)) => outbox.follow(live, hook, cursor),
                Ok(None) => {}
                Err(error) => warn!(task = %key.task, %error, "a hook could not be taken up"),
            }
        }
        Ok((resumed, failed))
    }
}

// === impl Inner ===

impl Inner {
    /// Takes up the turns that a restart interrupted, of a task as it was then. False where it had to be failed.
    pub(super) async fn resume(&self, live: &Arc<Live>, task: &Task) -> Result<bool, StoreError> {
        let Some(first) = task.pending.front() else { return Ok(true) };
        let begun = task.status.state != State::Submitted;
        let executor = self.route.named(&first.executor);
        let resumable = !begun || task.checkpoint.is_some();
        if !resumable || executor.is_none() {
            let failed = Event::ended(State::Failed, vec![Part::text(RESTARTED)], None);
            live.append(|_| Ok::<_, StoreError>(vec![failed.clone()])).await?;
            return Ok(false);
        }
        if task.status.state.is_interrupted() {
            // It asked; the answer takes it up.
            return Ok(true);
        }
        for (nth, pending) in task.pending.iter().enumerate() {
            let (Some(executor), Some(message)) =
                (self.route.named(&pending.executor), task.history.get(pending.message))
            else {
                continue;
            };
            let Ok(place) = self.order.line_up(&live.key.owner, &task.context) else {
                warn!(task = %task.id, "a queued turn did not fit after a restart");
                continue;
            };
            let turn = Turn {
                task: task.id.clone(),
                context: task.context.clone(),
                text: message_text(&message.parts),
                message: message.clone(),
                history: task.history.iter().take(pending.message).cloned().collect(),
                principal: live.key.owner.clone(),
                streaming: true,
                // No request waits for it any more: whoever wants the answer reads the task.
                async_delivery: true,
                metadata: began(pending),
                checkpoint: task.checkpoint.clone().filter(|_| nth == 0).map(|checkpoint| checkpoint.0),
            };
            let run = self.place(Arc::clone(live), Taker::Executor(executor), turn, self.past(live), place);
            let span = span(&run);
            self.tracker.spawn(run.finish().instrument(span));
        }
        Ok(true)
    }
}

/// The turn's metadata, with how long ago it began.
fn began(turn: &Pending) -> Option<Metadata> {
    let mut metadata = turn.metadata.clone();
    if let Some(begun) = turn.begun {
        let ago = Timestamp::now().millis().saturating_sub(begun.millis());
        metadata.get_or_insert_default().insert(BEGUN.into(), ago.into());
    }
    metadata
}
