//! Tasks that somebody works on or reads, in memory for as long as that lasts.
//!
//! A [`Live`] is the one writer of its task in this process, and the place where readers wait. Its tail holds the last
//! events once for all readers, so a reader costs a cursor; one that is further behind reads from the store, at its own
//! pace, and stalls nobody. Nothing is in the tail that is not in the store.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::model::{ContextId, Message};
use crate::once::Once;
use crate::store::{Entry, Onto, Store, StoreError, TaskKey};
use crate::task::{Event, State, Task};

/// Events that a tail holds. A reader that keeps up never needs more than what one append adds.
const TAIL: usize = 256;
/// Events that a reader which is behind takes from the store at once.
const PAGE: usize = 100;
/// How often a writer tries again when another process wrote first.
const CONFLICTS: usize = 5;

/// A task that somebody works on or reads.
pub(crate) struct Live {
    pub(crate) key: TaskKey,
    store: Arc<dyn Store>,
    /// Held while an append is on its way to the store, so that appends keep their order.
    writing: tokio::sync::Mutex<()>,
    inner: Mutex<Inner>,
    version: watch::Sender<u64>,
    /// Ends the turn under way.
    pub(crate) cancel: CancellationToken,
}

struct Inner {
    task: Arc<Task>,
    tail: VecDeque<Entry>,
    /// Where the turn under way takes answers, while it asks.
    asking: Option<mpsc::Sender<Message>>,
    /// Turns that are queued or under way in this process.
    turns: usize,
}

/// All tasks that are live.
pub(crate) struct Hub {
    store: Arc<dyn Store>,
    live: Mutex<HashMap<TaskKey, Weak<Live>>>,
}

/// Reads a task's events from a place on, each once, in order.
pub struct Reader {
    live: Arc<Live>,
    cursor: u64,
    version: watch::Receiver<u64>,
    page: VecDeque<Entry>,
}

// === impl Hub ===

impl Hub {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, live: Mutex::default() }
    }

    /// Creates a task in the store, with its first events.
    pub(crate) async fn create(
        &self,
        key: TaskKey,
        context: &ContextId,
        host_made: bool,
        events: Vec<Event>,
        once: Option<&Once>,
    ) -> Result<Arc<Live>, StoreError> {
        self.store.write(&key, Onto::Nothing { context, host_made }, &events, once).await?;
        let mut task = Task::new(key.task.clone(), context.clone());
        for event in &events {
            task.apply(event)?;
        }
        Ok(self.insert(key, Arc::new(task)))
    }

    /// A task that may be live already; from the store if it is not.
    pub(crate) async fn get(&self, key: &TaskKey) -> Result<Option<Arc<Live>>, StoreError> {
        if let Some(live) = self.lock().get(key).and_then(Weak::upgrade) {
            return Ok(Some(live));
        }
        let Some(task) = self.store.task(key).await? else { return Ok(None) };
        let is_over = task.status.state.is_terminal();
        let live = self.insert(key.clone(), Arc::clone(&task));
        // Whoever worked on it may have ended between the look and the insert, and nobody would tell of what it wrote.
        if !is_over && live.task().version == task.version {
            live.look_again().await?;
        }
        Ok(Some(live))
    }

    /// Whoever comes first makes it live; all others join.
    fn insert(&self, key: TaskKey, task: Arc<Task>) -> Arc<Live> {
        let mut all = self.lock();
        if let Some(live) = all.get(&key).and_then(Weak::upgrade) {
            return live;
        }
        if all.len() >= 64 && all.len() == all.capacity() {
            all.retain(|_, live| live.strong_count() > 0);
        }
        let live = Arc::new(Live {
            key: key.clone(),
            store: Arc::clone(&self.store),
            writing: tokio::sync::Mutex::default(),
            version: watch::Sender::new(task.version),
            inner: Mutex::new(Inner { task, tail: VecDeque::new(), asking: None, turns: 0 }),
            cancel: CancellationToken::new(),
        });
        all.insert(key, Arc::downgrade(&live));
        live
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TaskKey, Weak<Live>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Live ===

impl Live {
    /// The task as it is now.
    pub(crate) fn task(&self) -> Arc<Task> {
        Arc::clone(&self.lock().task)
    }

    /// Appends what `events` makes of the task as it is, and tells the readers. No events, no change.
    ///
    /// The store decides: where another process wrote first, the task is read again and `events` is asked again.
    pub(crate) async fn append<E>(
        &self,
        events: impl FnMut(&Task) -> Result<Vec<Event>, E>,
    ) -> Result<Arc<Task>, E>
    where
        E: From<StoreError>,
    {
        self.append_once(None, events).await
    }

    /// The same for a message that is taken in once: [`StoreError::Sent`] where it was before.
    pub(crate) async fn append_once<E>(
        &self,
        once: Option<&Once>,
        mut events: impl FnMut(&Task) -> Result<Vec<Event>, E>,
    ) -> Result<Arc<Task>, E>
    where
        E: From<StoreError>,
    {
        let _writing = self.writing.lock().await;
        let mut tries = 0;
        loop {
            let task = self.task();
            let new = events(&task)?;
            if new.is_empty() {
                return Ok(task);
            }
            match self.store.write(&self.key, Onto::Version(task.version), &new, once).await {
                Ok(()) => {
                    drop(task);
                    return self.publish(new).map_err(E::from);
                }
                Err(StoreError::Conflict { .. }) if tries < CONFLICTS => {
                    tries += 1;
                    let task = self.store.task(&self.key).await?.ok_or(StoreError::NotFound)?;
                    self.catch_up(task);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Nothing is appended while the guard is held: what is decided by it stays true.
    pub(crate) async fn hold(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.writing.lock().await
    }

    /// Waits until the task is in a state that `fits`, and returns it as it is then.
    pub(crate) async fn until(&self, fits: impl Fn(State) -> bool) -> Arc<Task> {
        let mut version = self.version.subscribe();
        loop {
            version.mark_unchanged();
            let fits = fits(self.lock().task.status.state);
            // Nobody holds the task while it waits: whoever appends would have to copy it.
            if fits || version.changed().await.is_err() {
                return self.task();
            }
        }
    }

    /// A reader of what comes after `cursor`.
    pub(crate) fn reader(self: &Arc<Self>, cursor: u64) -> Reader {
        Reader { live: Arc::clone(self), cursor, version: self.version.subscribe(), page: VecDeque::new() }
    }

    /// Counts a turn in; it is counted out when the guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> UnderWay {
        self.lock().turns += 1;
        UnderWay(Arc::clone(self))
    }

    /// Whether a turn of the task is queued or under way in this process.
    pub(crate) fn is_under_way(&self) -> bool {
        self.lock().turns > 0
    }

    /// Where answers go while the turn under way asks.
    pub(crate) fn asking(&self) -> Option<mpsc::Sender<Message>> {
        self.lock().asking.clone()
    }

    /// The turn under way asks, or no longer does.
    pub(crate) fn set_asking(&self, to: Option<mpsc::Sender<Message>>) {
        self.lock().asking = to;
    }

    fn publish(&self, events: Vec<Event>) -> Result<Arc<Task>, StoreError> {
        let mut inner = self.lock();
        let mut sequence = inner.task.version;
        let folded = Arc::make_mut(&mut inner.task);
        for event in &events {
            folded.apply(event)?;
        }
        for event in events {
            sequence += 1;
            inner.tail.push_back(Entry { sequence, event: Arc::new(event) });
        }
        while inner.tail.len() > TAIL {
            inner.tail.pop_front();
        }
        let task = Arc::clone(&inner.task);
        drop(inner);
        self.version.send_replace(task.version);
        Ok(task)
    }

    /// Takes over what was written by somebody else since the task was read.
    async fn look_again(&self) -> Result<(), StoreError> {
        let _writing = self.writing.lock().await;
        let version = self.task().version;
        match self.store.task(&self.key).await? {
            Some(task) if task.version > version => self.catch_up(task),
            _ => {}
        }
        Ok(())
    }

    /// Another process wrote: what the tail lacks, readers get from the store.
    fn catch_up(&self, task: Arc<Task>) {
        let mut inner = self.lock();
        inner.tail.clear();
        let version = task.version;
        inner.task = task;
        drop(inner);
        self.version.send_replace(version);
    }

    /// Events after `cursor`, if the tail reaches back that far.
    fn tail(&self, cursor: u64) -> Option<VecDeque<Entry>> {
        let inner = self.lock();
        // Without gaps, so the place is known: this is done once a reader and event, under the lock.
        let skipped = (cursor + 1).checked_sub(inner.tail.front()?.sequence)?;
        Some(inner.tail.iter().skip(usize::try_from(skipped).ok()?).cloned().collect())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A turn that is queued or under way.
pub(crate) struct UnderWay(Arc<Live>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.lock().turns -= 1;
    }
}

// === impl Reader ===

impl Reader {
    /// The next event, when it comes; none when the task is terminal and everything was read.
    ///
    /// # Errors
    /// The store's.
    pub async fn next(&mut self) -> Result<Option<Entry>, StoreError> {
        loop {
            if let Some(entry) = self.page.pop_front() {
                self.cursor = entry.sequence;
                return Ok(Some(entry));
            }
            self.version.mark_unchanged();
            let (version, over) = {
                let inner = self.live.lock();
                (inner.task.version, inner.task.status.state.is_terminal())
            };
            if version <= self.cursor {
                // Nobody holds the task while it waits: whoever appends would have to copy it.
                if over || self.version.changed().await.is_err() {
                    return Ok(None);
                }
                continue;
            }
            self.page = match self.live.tail(self.cursor) {
                Some(tail) => tail,
                None => self.live.store.events(&self.live.key, self.cursor, PAGE).await?.into(),
            };
        }
    }

    /// The task as it is now, which may be ahead of what was read.
    #[must_use]
    pub fn task(&self) -> Arc<Task> {
        self.live.task()
    }
}
