//! Late replies in a workspace: replies that arrive after their turns have failed.
//!
//! A late reply joins its task, as it does outside a workspace. If a person sent the message, the reply is also shown to that
//! person, since nobody looks at a failed task again. A peer gets no such notification: it knows of the failure and may
//! have carried on without the reply. Nor does anybody see what was answered to a caller other than the platform.
//!
//! A reply is shown when it joins its task, which happens once, across restarts too. Notifying stops after a few attempts.

use std::sync::Arc;

use async_trait::async_trait;
use talaria_turns::{Late, LateReplySink, Message, Role, Store, StoreError, Task, Turns};
use talaria_workspace::SelfPrompts;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::PLATFORM;

/// Delivers late replies.
pub(crate) struct LateReplies {
    pub(crate) turns: Turns,
    pub(crate) store: Arc<dyn Store>,
    /// Shows late replies; `None` if nobody is notified.
    pub(crate) self_prompts: Option<Arc<SelfPrompts>>,
    pub(crate) tracker: TaskTracker,
    pub(crate) shutdown: CancellationToken,
}

#[async_trait]
impl LateReplySink for LateReplies {
    async fn deliver(&self, late: &Late) -> Result<bool, StoreError> {
        let Some(self_prompts) = &self.self_prompts else { return self.turns.deliver(late).await };
        let before = self.store.task(&late.task).await?;
        let taken = self.turns.deliver(late).await?;
        let after = self.store.task(&late.task).await?;
        let results = |task: &Option<Arc<Task>>| task.as_ref().map_or(0, |task| task.artifacts.len());
        let is_platforms = late.task.owner.name().is_none_or(|name| name == PLATFORM);
        if is_platforms
            && results(&after) > results(&before)
            && after.is_some_and(|task| is_of_a_person(&task))
        {
            let (self_prompts, text) = (Arc::clone(self_prompts), late.text.clone());
            let shutdown = self.shutdown.clone();
            self.tracker.spawn(async move { shutdown.run_until_cancelled(self_prompts.notify(&text)).await });
        }
        Ok(taken)
    }
}

/// Whether a person sent the message. The platform names a peer in the metadata.
fn is_of_a_person(task: &Task) -> bool {
    let peer = |message: &Arc<Message>| {
        let peer = message.metadata.as_ref().and_then(|metadata| metadata.get("peer_id")?.as_str());
        peer.is_some_and(|peer| !peer.is_empty())
    };
    !task.history.iter().filter(|message| message.role == Role::User).any(peer)
}
