//! Hooks of a task: set, shown, removed, and tried again.

use std::sync::Arc;

use super::{Inner, SendError, Turns};
use crate::hook::{Hook, HookError, Hooked, Outbox};
use crate::live::Live;
use crate::model::{HookId, Part, Principal, TaskId};
use crate::store::{StoreError, TaskKey};
use crate::task::{Event, State};

// === impl Turns ===

impl Turns {
    /// Sets a hook on a task of this caller. It is told what happens from now on; one of that id that is there goes on
    /// where it was.
    ///
    /// # Errors
    /// [`HookError`], with nothing changed.
    pub async fn set_hook(&self, owner: &Principal, task: &TaskId, hook: Hook) -> Result<(), HookError> {
        let live = self.0.live(owner, task).await?;
        self.0.admit(&hook).await?;
        let from = live.task().version;
        self.0.set_hook(&live, hook, from).await
    }

    /// The hooks of a task of this caller, in the order of their ids.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] where there is no such task.
    pub async fn hooks(&self, owner: &Principal, task: &TaskId) -> Result<Vec<Hook>, StoreError> {
        let key = TaskKey { owner: owner.clone(), task: task.clone() };
        Ok(self.0.store.hooks(&key).await?.into_iter().map(|hooked| hooked.hook).collect())
    }

    /// Removes a hook of a task of this caller; one that is not there is removed already.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] where there is no such task.
    pub async fn remove_hook(
        &self,
        owner: &Principal,
        task: &TaskId,
        hook: &HookId,
    ) -> Result<(), StoreError> {
        let key = TaskKey { owner: owner.clone(), task: task.clone() };
        self.0.store.remove_hook(&key, hook).await?;
        if let Some(outbox) = &self.0.outbox {
            outbox.leave(&key, hook);
        }
        Ok(())
    }

    /// Hooks that were given up, whoever they belong to, the newest first. For the operator.
    ///
    /// # Errors
    /// The store's.
    pub async fn given_up(&self, limit: usize) -> Result<Vec<Hooked>, StoreError> {
        self.0.store.given_up(limit).await
    }

    /// Tries a hook again that was given up, from where it was. For the operator.
    ///
    /// # Errors
    /// [`HookError`] where there is none.
    pub async fn retry_hook(&self, key: &TaskKey, hook: &HookId) -> Result<(), HookError> {
        let live = self.0.hub.get(key).await?.ok_or(StoreError::NotFound)?;
        let known = self.0.store.hooks(key).await?.into_iter().find(|known| known.hook.id == *hook);
        let known = known.ok_or_else(|| HookError::NoSuchHook(hook.clone()))?;
        self.0.set_hook(&live, known.hook, known.cursor).await
    }
}

// === impl Inner ===

impl Inner {
    /// Whether this hook may be set at all.
    pub(super) async fn admit(&self, hook: &Hook) -> Result<(), HookError> {
        let outbox = self.outbox.as_ref().ok_or(HookError::Unsupported)?;
        outbox.courier().admits(&hook.url).await.map_err(HookError::Refused)
    }

    pub(super) async fn set_hook(&self, live: &Arc<Live>, hook: Hook, from: u64) -> Result<(), HookError> {
        let outbox = self.outbox.as_ref().ok_or(HookError::Unsupported)?;
        // Nobody else sets one meanwhile, so the bound holds.
        let _held = live.hold().await;
        let cursor = self.place_for(outbox, live, &hook).await?.unwrap_or(from);
        self.store.set_hook(&live.key, &hook, cursor).await?;
        outbox.follow(Arc::clone(live), hook, cursor);
        Ok(())
    }

    /// The cursor of a hook of that id, if there is one; refused where there is no room for another.
    pub(super) async fn place_for(
        &self,
        outbox: &Outbox,
        live: &Live,
        hook: &Hook,
    ) -> Result<Option<u64>, HookError> {
        let known = self.store.hooks(&live.key).await?;
        let before = known.iter().find(|known| known.hook.id == hook.id);
        if before.is_none() && known.len() >= outbox.most() {
            return Err(HookError::TooMany(outbox.most()));
        }
        Ok(before.map(|before| before.cursor))
    }

    /// Sets the hook that came with a message. Where that fails, the turn does not run.
    pub(super) async fn hook(
        &self,
        live: &Arc<Live>,
        hook: Option<Hook>,
        from: u64,
    ) -> Result<(), SendError> {
        let Some(hook) = hook else { return Ok(()) };
        let Err(error) = self.set_hook(live, hook, from).await else { return Ok(()) };
        let why = vec![Part::text(format!("the push notification configuration was not stored: {error}"))];
        let failed = Event::ended(State::Failed, why, None);
        live.append(|_| Ok::<_, StoreError>(vec![failed.clone()])).await?;
        Err(SendError::Hook(error))
    }

    /// Whether a hook is told what happens to a task.
    pub(super) async fn is_told(&self, key: &TaskKey) -> Result<bool, StoreError> {
        let hooks = if self.outbox.is_some() { self.store.hooks(key).await? } else { Vec::new() };
        Ok(hooks.iter().any(|hooked| hooked.given_up.is_none()))
    }
}
