//! A turn that waits: for its chat, then for its reply. Dropping gives back what it holds.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use talaria_turns::{Awaited, CallbackError, Delivery, TaskKey, Timestamp};
use tokio::sync::{Notify, oneshot};

use crate::expectations::{Acquired, ChatKey};
use crate::mailbox::Inner;

/// The media type of what a turn is given.
const CONTENT_TYPE: &str = "application/json";

/// One hold of a task on a chat.
pub(crate) struct ChatHold {
    inner: Arc<Inner>,
    chat: ChatKey,
}

/// A place in the queue of a chat.
struct QueuePlace {
    inner: Arc<Inner>,
    chat: ChatKey,
    ticket: u64,
    /// The chat was handed over, and a [`ChatHold`] releases it.
    is_holder: bool,
}

/// A turn that waits for callbacks to its message.
pub(crate) struct Waiting {
    inner: Arc<Inner>,
    message: Box<str>,
    arrived: Arc<Notify>,
    overtakes: bool,
    /// Callbacks that the turn was given.
    read: usize,
    /// Dropped after `drop` has withdrawn the expectation, so that the next task finds the chat as it is.
    _hold: Option<ChatHold>,
}

// === impl ChatHold ===

impl ChatHold {
    /// Acquires a chat for a task; waits for it at most `within`, or for as long as it takes.
    pub(crate) async fn acquire(
        inner: &Arc<Inner>,
        chat: &ChatKey,
        task: &TaskKey,
        within: Option<Duration>,
    ) -> Result<Self, CallbackError> {
        let acquired = inner.expectations().acquire_chat(chat, task)?;
        let hold = || Self { inner: Arc::clone(inner), chat: chat.clone() };
        let Acquired::Queued(ticket, mut going) = acquired else { return Ok(hold()) };
        let mut place = QueuePlace { inner: Arc::clone(inner), chat: chat.clone(), ticket, is_holder: false };
        let waited = match within {
            Some(Duration::ZERO) => going.try_recv().map_err(|_| CallbackError::ChatBusy(chat.name.clone())),
            Some(within) => match tokio::time::timeout(within, going).await {
                Ok(went) => went.map_err(|oneshot::error::RecvError { .. }| CallbackError::Closing),
                Err(_) => Err(CallbackError::ChatBusy(chat.name.clone())),
            },
            None => going.await.map_err(|_| CallbackError::Closing),
        };
        waited?;
        place.is_holder = true;
        Ok(hold())
    }
}

impl Drop for ChatHold {
    fn drop(&mut self) {
        self.inner.expectations().release_chat(&self.chat);
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        if !self.is_holder {
            self.inner.expectations().leave_queue(&self.chat, self.ticket);
        }
    }
}

// === impl Waiting ===

impl Waiting {
    pub(crate) fn new(
        inner: &Arc<Inner>,
        message: Box<str>,
        arrived: Arc<Notify>,
        overtakes: bool,
        hold: Option<ChatHold>,
    ) -> Self {
        Self { inner: Arc::clone(inner), message, arrived, overtakes, read: 0, _hold: hold }
    }
}

#[async_trait]
impl Awaited for Waiting {
    fn reply_url(&self) -> &str {
        &self.inner.reply_url
    }

    fn overtakes(&self) -> bool {
        self.overtakes
    }

    async fn next(&mut self) -> Result<Delivery, CallbackError> {
        loop {
            let arrived = self.arrived.notified();
            let mut arrived = std::pin::pin!(arrived);
            // Subscribed before the count is read, so that no callback is missed between the two.
            arrived.as_mut().enable();
            let (callbacks, is_closing) = {
                let expectations = self.inner.expectations();
                (expectations.callbacks(&self.message), expectations.is_closing())
            };
            if callbacks > self.read
                && let Some(stored) = self.inner.store.callback(&self.message, self.read).await?
            {
                self.read += 1;
                let trace = self.inner.traces().remove(&self.message);
                return Ok(Delivery { content_type: CONTENT_TYPE.into(), body: stored.body, trace });
            }
            if is_closing {
                return Err(CallbackError::Closing);
            }
            arrived.await;
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.inner.traces().remove(&self.message);
        self.inner.expectations().withdraw(&self.message, Timestamp::now());
        self.inner.changed.notify_one();
    }
}
