//! The push configurations of a task: set, list, delete and retry.

use std::sync::Arc;

use super::{Inner, SendError, Turns};
use crate::live_task::LiveTask;
use crate::model::{HookId, Part, Principal, TaskId};
use crate::push::{Hook, HookError, Hooked, Outbox};
use crate::store::{StoreError, TaskKey};
use crate::task::{Event, State};

// === impl Turns ===

impl Turns {
    /// Sets a push configuration on a task of this caller. A new one gets the events from now on; one that replaces
    /// another of the same id carries on from that one's cursor.
    ///
    /// # Errors
    /// [`HookError`], with nothing changed.
    pub async fn set_hook(&self, owner: &Principal, task: &TaskId, hook: Hook) -> Result<(), HookError> {
        let live = self.0.live(owner, task).await?;
        self.0.admit(&hook).await?;
        let from = live.task().version;
        self.0.set_hook(&live, hook, from).await
    }

    /// Lists the push configurations of a task of this caller, ordered by id.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if there is no such task.
    pub async fn hooks(&self, owner: &Principal, task: &TaskId) -> Result<Vec<Hook>, StoreError> {
        let key = TaskKey { owner: owner.clone(), task: task.clone() };
        Ok(self.0.store.hooks(&key).await?.into_iter().map(|hooked| hooked.hook).collect())
    }

    /// Deletes a push configuration of a task of this caller. Does nothing if there is none of this id.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if there is no such task.
    pub async fn remove_hook(
        &self,
        owner: &Principal,
        task: &TaskId,
        hook: &HookId,
    ) -> Result<(), StoreError> {
        let key = TaskKey { owner: owner.clone(), task: task.clone() };
        self.0.store.remove_hook(&key, hook).await?;
        if let Some(outbox) = &self.0.outbox {
            outbox.withdraw(&key, hook);
        }
        Ok(())
    }

    /// Lists the push configurations that were given up, of all callers, newest first. For the operator.
    ///
    /// # Errors
    /// The store's error.
    pub async fn given_up(&self, limit: usize) -> Result<Vec<Hooked>, StoreError> {
        self.0.store.given_up(limit).await
    }

    /// Retries a push configuration that was given up, from its cursor. For the operator.
    ///
    /// # Errors
    /// [`HookError`] if there is none of this id.
    pub async fn retry_hook(&self, key: &TaskKey, hook: &HookId) -> Result<(), HookError> {
        let live = self.0.tasks.get(key).await?.ok_or(StoreError::NotFound)?;
        let known = self.0.store.hooks(key).await?.into_iter().find(|known| known.hook.id == *hook);
        let known = known.ok_or_else(|| HookError::NoSuchHook(hook.clone()))?;
        self.0.set_hook(&live, known.hook, known.cursor).await
    }
}

// === impl Inner ===

impl Inner {
    /// Checks whether this push configuration may be set.
    pub(super) async fn admit(&self, hook: &Hook) -> Result<(), HookError> {
        let outbox = self.outbox.as_ref().ok_or(HookError::Unsupported)?;
        outbox.courier().admits(&hook.url).await.map_err(HookError::Refused)
    }

    pub(super) async fn set_hook(
        &self,
        live: &Arc<LiveTask>,
        hook: Hook,
        from: u64,
    ) -> Result<(), HookError> {
        let outbox = self.outbox.as_ref().ok_or(HookError::Unsupported)?;
        // No other one can be set meanwhile, so the bound holds.
        let _held = live.hold().await;
        let cursor = self.place_for(outbox, live, &hook).await?.unwrap_or(from);
        self.store.set_hook(&live.key, &hook, cursor).await?;
        outbox.follow(Arc::clone(live), hook, cursor);
        Ok(())
    }

    /// Returns the cursor of the push configuration of that id, if there is one; an error if there is no room for
    /// another.
    pub(super) async fn place_for(
        &self,
        outbox: &Outbox,
        live: &LiveTask,
        hook: &Hook,
    ) -> Result<Option<u64>, HookError> {
        let known = self.store.hooks(&live.key).await?;
        let before = known.iter().find(|known| known.hook.id == hook.id);
        if before.is_none() && known.len() >= outbox.most() {
            return Err(HookError::TooMany(outbox.most()));
        }
        Ok(before.map(|before| before.cursor))
    }

    /// Sets the push configuration that came with a message. If that fails, the turn does not run.
    pub(super) async fn hook(
        &self,
        live: &Arc<LiveTask>,
        hook: Option<Hook>,
        from: u64,
    ) -> Result<(), SendError> {
        let Some(hook) = hook else { return Ok(()) };
        let Err(error) = self.set_hook(live, hook, from).await else { return Ok(()) };
        let why = vec![Part::text(format!("the push notification configuration was not stored: {error}"))];
        live.append(vec![Event::ended(State::Failed, why, None)]).await?;
        Err(SendError::Hook(error))
    }

    /// Whether a task has a push configuration that is not given up.
    pub(super) async fn is_told(&self, key: &TaskKey) -> Result<bool, StoreError> {
        let hooks = if self.outbox.is_some() { self.store.hooks(key).await? } else { Vec::new() };
        Ok(hooks.iter().any(|hooked| hooked.given_up.is_none()))
    }
}
