//! The push configurations of a task: set, list, delete and retry.

use std::sync::Arc;

use super::{Inner, SendError, Turns};
use crate::live_task::LiveTask;
use crate::model::{Part, Principal, PushConfigId, TaskId};
use crate::push::{PushConfig, PushDispatcher, PushError, StoredPushConfig};
use crate::store::{StoreError, TaskKey};
use crate::task::{Event, State};

// === impl Turns ===

impl Turns {
    /// Sets a push configuration on a task of this caller. A new one gets the events from now on; one that replaces
    /// another of the same id carries on from that one's cursor.
    ///
    /// # Errors
    /// [`PushError`], with nothing changed.
    pub async fn set_push_config(
        &self,
        owner: &Principal,
        task: &TaskId,
        config: PushConfig,
    ) -> Result<(), PushError> {
        let live = self.0.live(owner, task).await?;
        self.0.admit(owner, &config).await.inspect_err(|error| {
            if let PushError::OverShare(over) = error {
                self.0.rejections.note_share(over);
            }
        })?;
        let from = live.task().version;
        self.0.set_push_config(&live, config, from).await
    }

    /// Lists the push configurations of a task of this caller, ordered by id.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if there is no such task.
    pub async fn push_configs(
        &self,
        owner: &Principal,
        task: &TaskId,
    ) -> Result<Vec<PushConfig>, StoreError> {
        let key = TaskKey { owner: owner.clone(), task: task.clone() };
        Ok(self.0.store.push_configs(&key).await?.into_iter().map(|stored| stored.config).collect())
    }

    /// Deletes a push configuration of a task of this caller. Does nothing if no configuration has this id.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if there is no such task.
    pub async fn delete_push_config(
        &self,
        owner: &Principal,
        task: &TaskId,
        config: &PushConfigId,
    ) -> Result<(), StoreError> {
        let key = TaskKey { owner: owner.clone(), task: task.clone() };
        self.0.store.delete_push_config(&key, config).await?;
        if let Some(dispatcher) = &self.0.dispatcher {
            dispatcher.withdraw(&key, config);
        }
        Ok(())
    }

    /// Lists the push configurations that were given up, of all callers, newest first. For the operator.
    ///
    /// # Errors
    /// The store's error.
    pub async fn given_up(&self, limit: usize) -> Result<Vec<StoredPushConfig>, StoreError> {
        self.0.store.given_up(limit).await
    }

    /// Retries a push configuration that was given up, from its cursor. For the operator.
    ///
    /// # Errors
    /// [`PushError`] if no configuration has this id.
    pub async fn retry_push_config(&self, key: &TaskKey, config: &PushConfigId) -> Result<(), PushError> {
        let live = self.0.tasks.get(key).await?.ok_or(StoreError::NotFound)?;
        let known =
            self.0.store.push_configs(key).await?.into_iter().find(|known| known.config.id == *config);
        let known = known.ok_or_else(|| PushError::NoSuchConfig(config.clone()))?;
        self.0.set_push_config(&live, known.config, known.cursor).await
    }
}

// === impl Inner ===

impl Inner {
    /// Checks whether this caller may set this push configuration.
    pub(super) async fn admit(&self, owner: &Principal, config: &PushConfig) -> Result<(), PushError> {
        let dispatcher = self.dispatcher.as_ref().ok_or(PushError::Unsupported)?;
        self.callers.of(owner).check_webhook()?;
        dispatcher.push_sender().admits(&config.url).await.map_err(PushError::Refused)
    }

    pub(super) async fn set_push_config(
        &self,
        live: &Arc<LiveTask>,
        config: PushConfig,
        from: u64,
    ) -> Result<(), PushError> {
        let dispatcher = self.dispatcher.as_ref().ok_or(PushError::Unsupported)?;
        // No other one can be set meanwhile, so the bound holds.
        let _held = live.hold().await;
        let cursor = self.cursor_of(dispatcher, live, &config).await?.unwrap_or(from);
        self.store.set_push_config(&live.key, &config, cursor).await?;
        dispatcher.follow(Arc::clone(live), config, cursor);
        Ok(())
    }

    /// Returns the cursor of the push configuration of that id, if there is one; an error if there is no room for
    /// another.
    pub(super) async fn cursor_of(
        &self,
        dispatcher: &PushDispatcher,
        live: &LiveTask,
        config: &PushConfig,
    ) -> Result<Option<u64>, PushError> {
        let known = self.store.push_configs(&live.key).await?;
        let before = known.iter().find(|known| known.config.id == config.id);
        if before.is_none() && known.len() >= dispatcher.most() {
            return Err(PushError::TooMany(dispatcher.most()));
        }
        Ok(before.map(|before| before.cursor))
    }

    /// Sets the push configuration that came with a message. If that fails, the turn does not run.
    pub(super) async fn set_push(
        &self,
        live: &Arc<LiveTask>,
        config: Option<PushConfig>,
        from: u64,
    ) -> Result<(), SendError> {
        let Some(config) = config else { return Ok(()) };
        let Err(error) = self.set_push_config(live, config, from).await else { return Ok(()) };
        let why = vec![Part::text(format!("the push notification configuration was not stored: {error}"))];
        live.append(vec![Event::ended(State::Failed, why, None)]).await?;
        Err(SendError::Push(error))
    }

    /// Whether a task has a push configuration that is not given up.
    pub(super) async fn has_push(&self, key: &TaskKey) -> Result<bool, StoreError> {
        let configs =
            if self.dispatcher.is_some() { self.store.push_configs(key).await? } else { Vec::new() };
        Ok(configs.iter().any(|stored| stored.given_up.is_none()))
    }
}
