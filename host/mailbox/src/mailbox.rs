//! The mailbox: expectations in memory, the store behind them, and the turns that wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use secrecy::SecretString;
use talaria_redact::ReplyRedactor;
use talaria_turns::{
    Awaited, CallbackError, CallbackStore, Callbacks, Expectation, ExpectedReply, Late, LateReplySink,
    StoreError, StoredCallback, Timestamp, TraceContext,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::Limits;
use crate::callback::{Callback, DeliveredAs};
pub use crate::expectations::Counts;
use crate::expectations::{ChatKey, Expectations, Opened, Routed};
use crate::waiting::{ChatHold, Waiting};
use crate::wire::CallbackWire;

/// How a mailbox is set up.
pub struct Config {
    /// The address that upstreams post to; it ends in the token of the path, if there is one.
    pub reply_url: String,
    /// The last segment of the path that upstreams post to. Without it the path is the wire's own, and the wire must know
    /// who posts.
    pub path_token: Option<SecretString>,
    /// How they post.
    pub wire: Arc<dyn CallbackWire>,
    /// Bounds.
    pub limits: Limits,
    /// Removes secrets from late replies, which no guest has read.
    pub replies: ReplyRedactor,
}

/// Where replies wait for turns. Cheap to clone.
#[derive(Clone)]
pub struct Mailbox(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) store: Arc<dyn CallbackStore>,
    // Never held across an await.
    expectations: Mutex<Expectations>,
    /// The places in a trace that peers sent with callbacks, by message, until the turn has them. Only in memory: a trace can
    /// do without them.
    traces: Mutex<HashMap<Box<str>, TraceContext>>,
    pub(crate) reply_url: String,
    path_token: Option<SecretString>,
    wire: Arc<dyn CallbackWire>,
    limits: Limits,
    replies: ReplyRedactor,
    boot: Timestamp,
    /// Wakes [`Mailbox::tend`]: the store is behind, or a late reply came.
    pub(crate) changed: Notify,
}

/// What became of a callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receipt {
    /// A turn has it, or will.
    Accepted,
    /// It came late, for the second time, or for nobody.
    Stale,
}

/// The interval at which old entries are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(15);
/// The pause before the next attempt when the store did not take a change.
const RETRY_AFTER: Duration = Duration::from_secs(1);

// === impl Mailbox ===

impl Mailbox {
    /// Opens a mailbox on what a store kept.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn open(store: Arc<dyn CallbackStore>, config: Config) -> Result<Self, StoreError> {
        let Config { reply_url, path_token, wire, limits, replies } = config;
        let (expected, callbacks) = store.expected().await?;
        let expectations = Mutex::new(Expectations::new(limits, expected, callbacks));
        let (boot, changed) = (Timestamp::now(), Notify::new());
        Ok(Self(Arc::new(Inner {
            store,
            expectations,
            traces: Mutex::default(),
            reply_url,
            path_token,
            wire,
            limits,
            replies,
            boot,
            changed,
        })))
    }

    pub(crate) fn reply_url(&self) -> &str {
        &self.0.reply_url
    }

    pub(crate) fn path_token(&self) -> Option<&SecretString> {
        self.0.path_token.as_ref()
    }

    pub(crate) fn wire(&self) -> &dyn CallbackWire {
        &*self.0.wire
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// Takes a callback. When this returns, the callback is in the store, or there is no use for it.
    ///
    /// # Errors
    /// Those of the store, or [`StoreError::Full`]: the peer should try again.
    pub async fn post(&self, callback: &Callback) -> Result<Receipt, StoreError> {
        self.post_traced(callback, None).await
    }

    /// Takes a callback that came with a place in a trace.
    ///
    /// # Errors
    /// Those of [`Mailbox::post`].
    pub async fn post_traced(
        &self,
        callback: &Callback,
        trace: Option<TraceContext>,
    ) -> Result<Receipt, StoreError> {
        let digest = callback.digest();
        let bytes = callback.content.len();
        let (message, delivered_as, late) = match self.0.expectations().route(callback, &digest, bytes) {
            Routed::For { message, delivered_as, late } => (message, delivered_as, late),
            Routed::Stale(why) => {
                debug!(reply_to = callback.reply_to, chat = callback.chat, why, "dropped a callback");
                return Ok(Receipt::Stale);
            }
            Routed::Full => return Err(StoreError::Full("too many callbacks wait for their turns".into())),
        };
        let body = self.0.wire.turn_body(callback, &message, delivered_as);
        let stored = StoredCallback {
            is_reply: delivered_as == DeliveredAs::Reply,
            is_late: late,
            digest,
            at: Timestamp::now(),
            body: body.to_string().into_bytes(),
        };
        // If the peer disconnects now, its room is free again, and it posts again.
        let mut reserved = Reserved {
            inner: &self.0,
            message: &message,
            delivered_as,
            digest: &digest,
            bytes,
            is_stored: false,
        };
        match self.0.store.put(&message, &stored).await {
            Ok(()) => reserved.is_stored = true,
            Err(StoreError::NotFound) => return Ok(Receipt::Stale),
            Err(error) => return Err(error),
        }
        if let Some(trace) = trace.filter(|_| !late) {
            let mut traces = self.0.traces();
            if traces.len() < self.0.limits.open {
                traces.insert(message.clone(), trace);
            }
        }
        self.0.expectations().stored(&message, delivered_as, late);
        if late {
            info!(%message, chat = callback.chat, "stored a reply that came after its turn had ended");
            self.0.changed.notify_one();
            return Ok(Receipt::Stale);
        }
        Ok(Receipt::Accepted)
    }

    /// What the mailbox holds.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.0.expectations().counts()
    }

    /// Replies that came after their turns had ended, newest first, of at most `limit` turns.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn late(&self, limit: usize) -> Result<Vec<Late>, StoreError> {
        let expected = self.0.expectations().late(limit);
        let mut late = Vec::new();
        for expected in expected {
            late.extend(self.0.late(&expected).await?);
        }
        Ok(late)
    }

    /// Ends every wait, with an error that says so. For the end of the grace period of a shutdown.
    pub fn close(&self) {
        self.0.expectations().close();
    }

    /// Keeps the store up to date, gives late replies to `sink` and deletes what is too old, until `shutdown`.
    pub async fn tend(self, sink: impl LateReplySink, shutdown: CancellationToken) {
        let mut sweeps = tokio::time::interval(SWEEP_EVERY);
        sweeps.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let is_over = tokio::select! {
                biased;
                () = shutdown.cancelled() => true,
                () = self.0.changed.notified() => false,
                _ = sweeps.tick() => {
                    self.sweep(Timestamp::now());
                    false
                }
            };
            if !is_over {
                self.deliver_late(&sink).await;
            }
            if !self.0.save_changes().await && !is_over {
                let _ = tokio::time::timeout(RETRY_AFTER, shutdown.cancelled()).await;
                self.0.changed.notify_one();
            }
            if is_over {
                return;
            }
        }
    }

    /// Gives late replies to their tasks. Those that are not taken are offered again with the next sweep.
    async fn deliver_late(&self, sink: &impl LateReplySink) {
        let expected = self.0.expectations().take_late();
        for expected in expected {
            let deliver = async {
                let mut taken = true;
                for late in self.0.late(&expected).await? {
                    taken &= sink.deliver(&late).await?;
                }
                Ok::<_, StoreError>(taken)
            };
            let message = &expected.message;
            match deliver.await {
                Ok(true) => {}
                Ok(false) => self.0.expectations().retry_late(message),
                Err(error) => {
                    warn!(%error, %message, "late reply not added to its task; will retry");
                    self.0.expectations().retry_late(message);
                }
            }
        }
    }

    /// Deletes what is too old at `now`.
    pub fn sweep(&self, now: Timestamp) {
        self.0.expectations().sweep(now, self.0.boot);
        self.0.changed.notify_one();
    }
}

// === impl Inner ===

impl Inner {
    pub(crate) fn traces(&self) -> MutexGuard<'_, HashMap<Box<str>, TraceContext>> {
        self.traces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn expectations(&self) -> MutexGuard<'_, Expectations> {
        // Every change is complete before the lock is released, so a panic elsewhere left nothing half done.
        self.expectations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes withdrawals and deletions to the store. False if the store did not take them.
    async fn save_changes(&self) -> bool {
        let (withdrawn, deleted) = self.expectations().take_unsaved();
        let save = async {
            if !withdrawn.is_empty() {
                self.store.withdraw(&withdrawn, Timestamp::now()).await?;
            }
            if !deleted.is_empty() {
                self.store.delete(&deleted).await?;
            }
            Ok::<_, StoreError>(())
        };
        if let Err(error) = save.await {
            warn!(%error, "withdrawn expectations not persisted; will retry");
            self.expectations().put_back(withdrawn, deleted);
            return false;
        }
        true
    }

    /// The late replies to a message, in the order in which they came.
    async fn late(&self, expected: &ExpectedReply) -> Result<Vec<Late>, StoreError> {
        let ExpectedReply { message, chat, task, .. } = expected;
        let mut late = Vec::new();
        let mut place = 0;
        while let Some(stored) = self.store.callback(message, place).await? {
            place += 1;
            if stored.is_reply && stored.is_late {
                late.push(Late {
                    task: task.clone(),
                    chat: chat.clone(),
                    message: message.clone(),
                    place: late.len(),
                    at: stored.at,
                    text: self.text(&stored.body),
                });
            }
        }
        Ok(late)
    }

    /// The content of a stored body, without secrets.
    fn text(&self, body: &[u8]) -> String {
        let body: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        let content = body.get("content").and_then(serde_json::Value::as_str).unwrap_or_default();
        self.replies.text(content.to_owned())
    }
}

#[async_trait]
impl Callbacks for Mailbox {
    async fn expect(&self, expected: Expectation) -> Result<Box<dyn Awaited>, CallbackError> {
        let Expectation { task, executor, message, chat, within } = expected;
        let hold = match &chat {
            Some(name) => {
                let chat = ChatKey { name: name.clone(), executor: executor.clone() };
                Some(ChatHold::acquire(&self.0, &chat, &task, within).await?)
            }
            None => None,
        };
        let expected = ExpectedReply { message, chat, task, executor, at: Timestamp::now(), closed: None };
        let Opened { arrived, overtakes, is_new } = self.0.expectations().expect(&expected)?;
        // From here on, dropping it withdraws the expectation.
        let waiting = Waiting::new(&self.0, expected.message.clone(), arrived, overtakes, hold);
        if let Err(error) = self.0.store.expect(&expected).await {
            if is_new {
                // The turn has sent nothing yet that could be answered.
                self.0.expectations().delete(&expected.message);
            }
            return Err(error.into());
        }
        Ok(Box::new(waiting))
    }
}

/// Room for a callback until it is in the store.
struct Reserved<'a> {
    inner: &'a Inner,
    message: &'a str,
    delivered_as: DeliveredAs,
    digest: &'a [u8; 32],
    bytes: usize,
    is_stored: bool,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if !self.is_stored {
            let Self { inner, message, delivered_as, digest, bytes, .. } = *self;
            inner.expectations().not_stored(message, delivered_as, digest, bytes);
        }
    }
}
