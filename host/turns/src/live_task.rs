//! Live tasks: the tasks that have a running turn or a reader, in memory for as long as that lasts.
//!
//! A [`LiveTask`] is the only writer of its task in this process, and readers wait on it. It holds the only fold of the
//! task's events in this process: an append is written to the store and then applied here. The last events are in memory
//! once for all readers, so a reader costs a cursor; a reader that is further behind reads from the store at its own pace
//! and delays nobody. An event is in memory only if it is in the store.
//!
//! What a live task takes is charged to its owner's and the host's memory for as long as it lives. A task that does not fit is not loaded; an
//! event that is in the store already is charged in any case.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use foldhash::quality::RandomState;
use talaria_budget::Charge;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::model::{ContextId, Message, Principal, TaskId};
use crate::once::Once;
use crate::shares::Callers;
use crate::store::{Entry, Onto, Store, StoreError, TaskKey};
use crate::task::{Event, State, Task};

/// The events that are held in memory. A reader that keeps up needs no more than one append adds.
const TAIL: usize = 256;
/// The events that a reader which is behind reads from the store at once.
const PAGE: usize = 100;
/// The entries that a reader has room for while it waits.
const IDLE_PAGE: usize = 16;
/// The tasks that are being loaded at once: their size is known only when they are in memory.
const LOADS: usize = 4;
/// How often an append is retried after another process wrote first.
const CONFLICTS: usize = 5;

/// Events on their way into a task. Shared by the store, the tail and, after a conflict, the next try.
pub(crate) type Events = Arc<[Arc<Event>]>;

/// All tasks by key. The host makes their ids, so nobody else can choose keys whose hashes collide.
type Tasks = HashMap<TaskKey, Weak<LiveTask>, RandomState>;

/// A task that has a running turn or a reader.
pub(crate) struct LiveTask {
    pub(crate) key: TaskKey,
    store: Arc<dyn Store>,
    /// Held while an append is on its way to the store, so that appends keep their order.
    writing: tokio::sync::Mutex<()>,
    inner: Mutex<Inner>,
    version: watch::Sender<u64>,
    /// Cancels the running turn.
    pub(crate) cancel: CancellationToken,
    /// Ends the running turn at once: the host stops.
    pub(crate) stop: CancellationToken,
}

struct Inner {
    task: Arc<Task>,
    tail: VecDeque<Entry>,
    /// Takes the answer while the running turn asks.
    asking: Option<mpsc::Sender<Arc<Message>>>,
    /// The turns that wait or run in this process.
    turns: usize,
    memory: Charge,
}

/// All live tasks.
pub(crate) struct LiveTasks {
    store: Arc<dyn Store>,
    callers: Arc<Callers>,
    loads: Semaphore,
    tasks: Mutex<Tasks>,
    /// Whether the host stops. Changed while `tasks` is locked.
    stopping: AtomicBool,
}

/// Reads the events of a task from a version on: each once, in order.
pub struct Reader {
    task: Arc<LiveTask>,
    cursor: u64,
    version: watch::Receiver<u64>,
    page: VecDeque<Entry>,
}

/// What the tail has for a reader.
enum Tail {
    /// The events after its cursor.
    Events,
    /// Nothing yet.
    Nothing,
    /// Nothing, and nothing will come.
    Over,
    /// Not all: its next event is only in the store.
    TooShort,
}

/// A turn that waits or runs. Its task counts it until this is dropped.
pub(crate) struct TurnCount(Arc<LiveTask>);

// === impl LiveTasks ===

impl LiveTasks {
    pub(crate) fn new(store: Arc<dyn Store>, callers: Arc<Callers>) -> Self {
        Self {
            store,
            callers,
            loads: Semaphore::new(LOADS),
            tasks: Mutex::default(),
            stopping: AtomicBool::new(false),
        }
    }

    /// Creates a task in the store, with its first events.
    pub(crate) async fn create(
        &self,
        key: TaskKey,
        context: &ContextId,
        host_made: bool,
        first: Event,
        once: Option<&Once>,
    ) -> Result<Arc<LiveTask>, StoreError> {
        let first = Arc::new(first);
        let onto = Onto::Nothing { context, host_made };
        self.store.write(&key, onto, std::slice::from_ref(&first), once).await?;
        let mut task = Task::new(key.task.clone(), context.clone());
        task.apply(&first)?;
        let mut memory = self.callers.of(&key.owner).budget().nothing();
        memory.force(first.size());
        Ok(self.insert(key, Arc::new(task), memory))
    }

    /// Whether a running turn of the task waits for an answer.
    pub(crate) fn is_asking(&self, owner: &Principal, task: &TaskId) -> bool {
        let key = TaskKey { owner: owner.clone(), task: task.clone() };
        let live = self.lock().get(&key).and_then(Weak::upgrade);
        live.is_some_and(|live| live.asking().is_some())
    }

    /// Returns a task; reads it from the store unless it is live.
    pub(crate) async fn get(&self, key: &TaskKey) -> Result<Option<Arc<LiveTask>>, StoreError> {
        if let Some(live) = self.lock().get(key).and_then(Weak::upgrade) {
            return Ok(Some(live));
        }
        let load = self.loads.acquire().await;
        let Some(task) = self.store.task(key).await? else { return Ok(None) };
        let is_over = task.status.state.is_terminal();
        let memory = self.callers.of(&key.owner).budget().charge(task.size())?;
        let live = self.insert(key.clone(), Arc::clone(&task), memory);
        drop(load);
        // A writer may have ended between the read and the insert; nobody would report what it wrote.
        if !is_over && live.task().version == task.version {
            live.refresh().await?;
        }
        Ok(Some(live))
    }

    /// Makes a task live, unless another caller already did; then this one joins.
    fn insert(&self, key: TaskKey, task: Arc<Task>, memory: Charge) -> Arc<LiveTask> {
        let mut all = self.lock();
        if let Some(live) = all.get(&key).and_then(Weak::upgrade) {
            return live;
        }
        if all.len() >= 64 && all.len() == all.capacity() {
            all.retain(|_, live| live.strong_count() > 0);
        }
        let live = Arc::new(LiveTask {
            key: key.clone(),
            store: Arc::clone(&self.store),
            writing: tokio::sync::Mutex::default(),
            version: watch::Sender::new(task.version),
            inner: Mutex::new(Inner { task, tail: VecDeque::new(), asking: None, turns: 0, memory }),
            cancel: CancellationToken::new(),
            stop: CancellationToken::new(),
        });
        all.insert(key, Arc::downgrade(&live));
        if self.stopping.load(Ordering::Relaxed) {
            live.stop.cancel();
        }
        live
    }

    /// Ends every turn at once, those that begin later too.
    ///
    /// Each task has a token of its own, because a turn looks at it whenever it is polled: one token for all would be a lock
    /// that all threads take all the time.
    pub(crate) fn stop(&self) {
        let live: Vec<_> = {
            let all = self.lock();
            self.stopping.store(true, Ordering::Relaxed);
            all.values().filter_map(Weak::upgrade).collect()
        };
        live.iter().for_each(|live| live.stop.cancel());
    }

    fn lock(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl LiveTask ===

impl LiveTask {
    /// Returns the task as it is now.
    pub(crate) fn task(&self) -> Arc<Task> {
        Arc::clone(&self.lock().task)
    }

    /// Appends events, whatever the task's version, and wakes the readers.
    pub(crate) async fn append(&self, events: Vec<Event>) -> Result<Arc<Task>, StoreError> {
        let events: Events = events.into_iter().map(Arc::new).collect();
        self.write(None, |_| Ok(Arc::clone(&events))).await
    }

    /// Appends the events that `decide` makes of the task, and wakes the readers. Without events nothing changes.
    ///
    /// If another process wrote first, the task is read again and `decide` is called again.
    pub(crate) async fn append_if<E>(
        &self,
        mut decide: impl FnMut(&Task) -> Result<Vec<Event>, E>,
    ) -> Result<Arc<Task>, E>
    where
        E: From<StoreError>,
    {
        self.write(None, |task| Ok(decide(task)?.into_iter().map(Arc::new).collect())).await
    }

    /// Like [`LiveTask::append_if`], for events that are shared already.
    pub(crate) async fn append_shared(&self, decide: impl FnMut(&Task) -> Events) -> Result<(), StoreError> {
        let mut decide = decide;
        self.write(None, |task| Ok::<_, StoreError>(decide(task))).await.map(drop)
    }

    /// Like [`LiveTask::append_if`], for a message that is accepted once: [`StoreError::Sent`] if it was before.
    pub(crate) async fn append_once<E>(
        &self,
        once: Option<&Once>,
        mut decide: impl FnMut(&Task) -> Result<Vec<Event>, E>,
    ) -> Result<Arc<Task>, E>
    where
        E: From<StoreError>,
    {
        self.write(once, |task| Ok(decide(task)?.into_iter().map(Arc::new).collect())).await
    }

    async fn write<E>(
        &self,
        once: Option<&Once>,
        mut decide: impl FnMut(&Task) -> Result<Events, E>,
    ) -> Result<Arc<Task>, E>
    where
        E: From<StoreError>,
    {
        let _writing = self.writing.lock().await;
        let mut tries = 0;
        loop {
            let task = self.task();
            let events = decide(&task)?;
            if events.is_empty() {
                return Ok(task);
            }
            let onto = Onto::Version(task.version);
            // Dropped before the fold, which would have to copy the task otherwise.
            drop(task);
            match self.store.write(&self.key, onto, &events, once).await {
                Ok(()) => return self.publish(&events).map_err(E::from),
                Err(StoreError::Conflict { .. }) if tries < CONFLICTS => {
                    tries += 1;
                    let task = self.store.task(&self.key).await?.ok_or(StoreError::NotFound)?;
                    self.catch_up(task);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Keeps appends out while the guard is held, so that a decision made meanwhile stays true.
    pub(crate) async fn hold(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.writing.lock().await
    }

    /// Waits until the task is in a state that `fits`, and returns it.
    pub(crate) async fn until(&self, fits: impl Fn(State) -> bool) -> Arc<Task> {
        let mut version = self.version.subscribe();
        loop {
            version.mark_unchanged();
            let fits = fits(self.lock().task.status.state);
            // The task is not held while this waits: an append would have to copy it.
            if fits || version.changed().await.is_err() {
                return self.task();
            }
        }
    }

    /// Returns a reader of the events after `cursor`.
    pub(crate) fn reader(self: &Arc<Self>, cursor: u64) -> Reader {
        Reader { task: Arc::clone(self), cursor, version: self.version.subscribe(), page: VecDeque::new() }
    }

    /// Counts a turn that waits or runs, until the guard is dropped.
    pub(crate) fn count_turn(self: &Arc<Self>) -> TurnCount {
        self.lock().turns += 1;
        TurnCount(Arc::clone(self))
    }

    /// Whether a turn of the task waits or runs in this process.
    pub(crate) fn has_turns(&self) -> bool {
        self.lock().turns > 0
    }

    /// Returns the sender that takes the answer, while the running turn asks.
    pub(crate) fn asking(&self) -> Option<mpsc::Sender<Arc<Message>>> {
        self.lock().asking.clone()
    }

    /// Sets the sender that takes the answer; `None` if the running turn no longer asks.
    pub(crate) fn set_asking(&self, to: Option<mpsc::Sender<Arc<Message>>>) {
        self.lock().asking = to;
    }

    /// Applies events that are in the store.
    fn publish(&self, events: &[Arc<Event>]) -> Result<Arc<Task>, StoreError> {
        let mut inner = self.lock();
        let mut sequence = inner.task.version;
        inner.memory.force(events.iter().map(|event| event.size()).sum());
        let task = Arc::make_mut(&mut inner.task);
        for event in events {
            task.apply(event)?;
        }
        for event in events {
            sequence += 1;
            inner.tail.push_back(Entry { sequence, event: Arc::clone(event) });
        }
        while inner.tail.len() > TAIL {
            inner.tail.pop_front();
        }
        let task = Arc::clone(&inner.task);
        drop(inner);
        self.version.send_replace(task.version);
        Ok(task)
    }

    /// Takes over what other processes have written since the task was read.
    async fn refresh(&self) -> Result<(), StoreError> {
        let _writing = self.writing.lock().await;
        let version = self.task().version;
        match self.store.task(&self.key).await? {
            Some(task) if task.version > version => self.catch_up(task),
            _ => {}
        }
        Ok(())
    }

    /// Replaces the task after another process wrote. Readers get the events in between from the store.
    fn catch_up(&self, task: Arc<Task>) {
        let mut inner = self.lock();
        inner.tail.clear();
        inner.memory.shrink_to(0);
        inner.memory.force(task.size());
        let version = task.version;
        inner.task = task;
        drop(inner);
        self.version.send_replace(version);
    }

    /// Puts the events after `cursor` into `page`, if they are in memory.
    fn tail(&self, cursor: u64, page: &mut VecDeque<Entry>) -> Tail {
        let inner = self.lock();
        if inner.task.version <= cursor {
            return if inner.task.status.state.is_terminal() { Tail::Over } else { Tail::Nothing };
        }
        // The tail has no gaps, so the index is known. This runs under the lock for each reader and event.
        let skipped = inner.tail.front().and_then(|first| (cursor + 1).checked_sub(first.sequence));
        match skipped.map(usize::try_from) {
            Some(Ok(skipped)) => {
                page.extend(inner.tail.iter().skip(skipped).cloned());
                Tail::Events
            }
            _ => Tail::TooShort,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl TurnCount ===

impl Drop for TurnCount {
    fn drop(&mut self) {
        self.0.lock().turns -= 1;
    }
}

// === impl Reader ===

impl Reader {
    /// Waits for the next event; `None` once the task is terminal and everything was read.
    ///
    /// # Errors
    /// The store's error.
    pub async fn next(&mut self) -> Result<Option<Entry>, StoreError> {
        loop {
            if let Some(entry) = self.page.pop_front() {
                self.cursor = entry.sequence;
                return Ok(Some(entry));
            }
            self.version.mark_unchanged();
            match self.task.tail(self.cursor, &mut self.page) {
                Tail::Events => {}
                Tail::Over => return Ok(None),
                Tail::TooShort => {
                    self.page = self.task.store.events(&self.task.key, self.cursor, PAGE).await?.into();
                }
                // The task is not held while this waits: an append would have to copy it.
                Tail::Nothing => {
                    if self.page.capacity() > IDLE_PAGE {
                        self.page = VecDeque::new();
                    }
                    if self.version.changed().await.is_err() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Returns the task as it is now, which may be ahead of what was read.
    #[must_use]
    pub fn task(&self) -> Arc<Task> {
        self.task.task()
    }
}
