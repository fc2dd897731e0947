//! The mailbox itself: the book, the store behind it, and those who wait.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use talaria_observe::Redactor;
use talaria_turns::{
    Announced, Awaited, CallbackError, Callbacks, Delivery, Expectation, Heir, Late, Letter, Letters,
    StoreError, TaskKey, Timestamp,
};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::Limits;
pub use crate::book::Counts;
use crate::book::{Book, Entered, Opened, Routed};
use crate::letter::{Posted, Role};

/// How a mailbox is set up.
pub struct Config {
    /// Where upstreams are told to post.
    pub reply_url: String,
    /// Bounds.
    pub limits: Limits,
    /// Takes secrets out of late replies, which no guest has read.
    pub redactor: Redactor,
}

/// Where replies wait for turns. Cheap to clone.
#[derive(Clone)]
pub struct Mailbox(Arc<Inner>);

struct Inner {
    store: Arc<dyn Letters>,
    // Held for a look at a time, never across an await.
    book: Mutex<Book>,
    reply_url: String,
    redactor: Redactor,
    boot: Timestamp,
    /// Something was withdrawn or forgotten that the store does not know of.
    changed: Notify,
}

/// What became of a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receipt {
    /// A turn has it, or will.
    Taken,
    /// It came late, or before, or for nobody.
    Stale,
}

/// How often old things are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(15);
/// After the store did not take a change, before the next try.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// What turns are given.
const CONTENT_TYPE: &str = "application/json";

// === impl Mailbox ===

impl Mailbox {
    /// Opens a mailbox on what a store kept.
    ///
    /// # Errors
    /// The store's.
    pub async fn open(store: Arc<dyn Letters>, config: Config) -> Result<Self, StoreError> {
        let Config { reply_url, limits, redactor } = config;
        let (announced, letters) = store.announced().await?;
        let book = Mutex::new(Book::new(limits, announced, letters));
        let (boot, changed) = (Timestamp::now(), Notify::new());
        Ok(Self(Arc::new(Inner { store, book, reply_url, redactor, boot, changed })))
    }

    /// Takes a post in: when this returns, it is in the store, or there is no use for it.
    ///
    /// # Errors
    /// The store's, or [`StoreError::Full`]: the peer should try again.
    pub async fn post(&self, posted: &Posted) -> Result<Receipt, StoreError> {
        let digest = posted.digest();
        let bytes = posted.content.len();
        let (message, role, late) = match self.0.book().route(posted, &digest, bytes) {
            Routed::For { message, role, late } => (message, role, late),
            Routed::Stale(why) => {
                debug!(reply_to = posted.reply_to, chat = posted.chat, why, "a callback has no use");
                return Ok(Receipt::Stale);
            }
            Routed::Full => return Err(StoreError::Full("too many letters wait for their turns".into())),
        };
        let letter = Letter {
            is_reply: role == Role::Reply,
            is_late: late,
            digest,
            at: Timestamp::now(),
            body: posted.body(&message, role),
        };
        // A peer that hangs up now takes its room back with it, and posts again.
        let mut reserved =
            Reserved { inner: &self.0, message: &message, role, digest: &digest, bytes, is_kept: false };
        match self.0.store.keep(&message, &letter).await {
            Ok(()) => reserved.is_kept = true,
            Err(StoreError::NotFound) => return Ok(Receipt::Stale),
            Err(error) => return Err(error),
        }
        self.0.book().kept(&message, role, late);
        if late {
            info!(%message, chat = posted.chat, "a reply came after its turn had ended; it is kept");
            self.0.changed.notify_one();
            return Ok(Receipt::Stale);
        }
        Ok(Receipt::Taken)
    }

    /// How many there are of what.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.0.book().counts()
    }

    /// Replies that came after their turns had ended, newest first, of at most `limit` turns.
    ///
    /// # Errors
    /// The store's.
    pub async fn late(&self, limit: usize) -> Result<Vec<Late>, StoreError> {
        let announced = self.0.book().late(limit);
        let mut late = Vec::new();
        for announced in announced {
            late.extend(self.0.late(&announced).await?);
        }
        Ok(late)
    }

    /// Tells everybody who waits that there will be nothing more. For the end of the grace of a shutdown.
    pub fn close(&self) {
        self.0.book().close();
    }

    /// Keeps the store up to date, gives late replies to `heir` and lets go of what is too old, until `shutdown`.
    pub async fn tend(self, heir: impl Heir, shutdown: CancellationToken) {
        let mut now_and_then = tokio::time::interval(SWEEP_EVERY);
        now_and_then.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let over = tokio::select! {
                biased;
                () = shutdown.cancelled() => true,
                () = self.0.changed.notified() => false,
                _ = now_and_then.tick() => {
                    self.sweep(Timestamp::now());
                    false
                }
            };
            if !over {
                self.bequeath(&heir).await;
            }
            if !self.0.write_changes().await && !over {
                let _ = tokio::time::timeout(RETRY_AFTER, shutdown.cancelled()).await;
                self.0.changed.notify_one();
            }
            if over {
                return;
            }
        }
    }

    /// Gives late replies to their tasks. What is not taken is given again with the next sweep.
    async fn bequeath(&self, heir: &impl Heir) {
        let announced = self.0.book().heirless();
        for announced in announced {
            let taken = async {
                let mut taken = true;
                for late in self.0.late(&announced).await? {
                    taken &= heir.inherit(&late).await?;
                }
                Ok::<_, StoreError>(taken)
            };
            let message = &announced.message;
            match taken.await {
                Ok(true) => {}
                Ok(false) => self.0.book().not_yet(message),
                Err(error) => {
                    warn!(%error, %message, "a late reply has not joined its task yet");
                    self.0.book().not_yet(message);
                }
            }
        }
    }

    /// Lets go of what is too old at `now`.
    pub fn sweep(&self, now: Timestamp) {
        self.0.book().sweep(now, self.0.boot);
        self.0.changed.notify_one();
    }
}

// === impl Inner ===

impl Inner {
    fn book(&self) -> MutexGuard<'_, Book> {
        // A change is complete before the lock is let go, so a panic elsewhere left nothing half done.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn write_changes(&self) -> bool {
        let (withdrawn, discarded) = self.book().take_changes();
        let written = async {
            if !withdrawn.is_empty() {
                self.store.withdraw(&withdrawn, Timestamp::now()).await?;
            }
            if !discarded.is_empty() {
                self.store.discard(&discarded).await?;
            }
            Ok::<_, StoreError>(())
        };
        if let Err(error) = written.await {
            warn!(%error, "the store does not know which replies are no longer expected");
            self.book().put_back(withdrawn, discarded);
            return false;
        }
        true
    }

    /// The late replies to a message, in the order in which they came.
    async fn late(&self, announced: &Announced) -> Result<Vec<Late>, StoreError> {
        let Announced { message, chat, task, .. } = announced;
        let mut late = Vec::new();
        let mut place = 0;
        while let Some(letter) = self.store.letter(message, place).await? {
            place += 1;
            if letter.is_reply && letter.is_late {
                late.push(Late {
                    task: task.clone(),
                    chat: chat.clone(),
                    message: message.clone(),
                    place: late.len(),
                    at: letter.at,
                    text: self.text(&letter.body),
                });
            }
        }
        Ok(late)
    }

    fn text(&self, body: &[u8]) -> String {
        let body: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        let content = body.get("content").and_then(serde_json::Value::as_str).unwrap_or_default();
        self.redactor.redact(content).into_owned()
    }
}

#[async_trait]
impl Callbacks for Mailbox {
    async fn expect(&self, expected: Expectation) -> Result<Box<dyn Awaited>, CallbackError> {
        let Expectation { task, executor, message, chat, within } = expected;
        let lane = match &chat {
            Some(chat) => Some(Lane::enter(&self.0, chat, &task, within).await?),
            None => None,
        };
        let announced = Announced { message, chat, task, executor, at: Timestamp::now(), closed: None };
        let Opened { arrived, overtakes, is_new } = self.0.book().announce(&announced)?;
        // From here on dropping it withdraws it.
        let inner = Arc::clone(&self.0);
        let message = announced.message.clone();
        let awaiting = Awaiting { inner, message, arrived, overtakes, read: 0, _lane: lane };
        if let Err(error) = self.0.store.announce(&announced).await {
            if is_new {
                // Nothing was sent that could be answered.
                self.0.book().discard(&announced.message);
            }
            return Err(error.into());
        }
        Ok(Box::new(awaiting))
    }
}

/// Room that a post takes until it is in the store.
struct Reserved<'a> {
    inner: &'a Inner,
    message: &'a str,
    role: Role,
    digest: &'a [u8; 32],
    bytes: usize,
    is_kept: bool,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.inner.book().unkept(self.message, self.role, self.digest, self.bytes);
        }
    }
}

/// A chat that a task has, once.
struct Lane {
    inner: Arc<Inner>,
    chat: Box<str>,
}

/// A place in line for a chat.
struct InLine {
    inner: Arc<Inner>,
    chat: Box<str>,
    ticket: u64,
    /// The chat is its own now, and somebody else gives it back.
    has_it: bool,
}

/// A turn that waits.
struct Awaiting {
    inner: Arc<Inner>,
    message: Box<str>,
    arrived: Arc<Notify>,
    overtakes: bool,
    /// Letters that the turn was given.
    read: usize,
    /// After `drop`, which withdraws: whoever is next finds the chat as it is.
    _lane: Option<Lane>,
}

// === impl Lane ===

impl Lane {
    async fn enter(
        inner: &Arc<Inner>,
        chat: &str,
        task: &TaskKey,
        within: Option<Duration>,
    ) -> Result<Self, CallbackError> {
        let entered = inner.book().enter(chat, task)?;
        let lane = || Self { inner: Arc::clone(inner), chat: chat.into() };
        let Entered::Later(ticket, mut going) = entered else { return Ok(lane()) };
        let mut place = InLine { inner: Arc::clone(inner), chat: chat.into(), ticket, has_it: false };
        let waited = match within {
            Some(Duration::ZERO) => going.try_recv().map_err(|_| CallbackError::ChatBusy(chat.into())),
            Some(within) => match tokio::time::timeout(within, going).await {
                Ok(went) => went.map_err(|oneshot::error::RecvError { .. }| CallbackError::Closing),
                Err(_) => Err(CallbackError::ChatBusy(chat.into())),
            },
            None => going.await.map_err(|_| CallbackError::Closing),
        };
        waited?;
        place.has_it = true;
        Ok(lane())
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.inner.book().leave(&self.chat);
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        if !self.has_it {
            self.inner.book().give_up(&self.chat, self.ticket);
        }
    }
}

// === impl Awaiting ===

#[async_trait]
impl Awaited for Awaiting {
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
            // Listening before looking, so that nothing comes between the two.
            arrived.as_mut().enable();
            let (letters, closing) = {
                let book = self.inner.book();
                (book.letters(&self.message), book.is_closing())
            };
            if letters > self.read
                && let Some(letter) = self.inner.store.letter(&self.message, self.read).await?
            {
                self.read += 1;
                return Ok(Delivery { content_type: CONTENT_TYPE.into(), body: letter.body });
            }
            if closing {
                return Err(CallbackError::Closing);
            }
            arrived.await;
        }
    }
}

impl Drop for Awaiting {
    fn drop(&mut self) {
        self.inner.book().withdraw(&self.message, Timestamp::now());
        self.inner.changed.notify_one();
    }
}
