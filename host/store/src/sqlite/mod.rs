//! Tasks in a SQLite file, which survive the process.
//!
//! **Promise.** When a method that writes returns, its transaction is committed to the write-ahead log: `kill -9` loses
//! nothing. After a power loss or a crash of the system it depends. With [`Synchronous::Normal`] the log is passed to the
//! system at every commit and forced to the disk when it is merged into the file. The last commits, some seconds of them,
//! may be lost, but never the file or anything older: it opens as it was at an earlier commit. [`Synchronous::Full`] forces
//! every commit to the disk, which costs one wait for each group of writes.
//!
//! **Bounds.** The queues of writes and of reads, the busy timeout, the size of the file if [`Config::max_bytes`] is set
//! and the free space on its disk ([`ledger`]), and the tasks that [`Store::forget`] keeps. The pages of deleted tasks stay in the file for the next ones: a file that
//! shrank would only grow again, and a vacuum would block the writer.
//!
//! **Failure.** A full disk and a locked, read-only or damaged file give [`StoreError::Unavailable`] with the reason. The
//! write did not happen, everything before it stays, and the next try succeeds once the cause is gone.
//!
//! **Why this way.** One writer thread that groups commits ([`writer`]), readers beside it ([`reader`]), and rows that make
//! an append cheap: one small row to update and one to insert, with the events as JSON. A task is folded when it is read.
//! A snapshot bounds that for long tasks; it is taken by a reader's thread, so that the writer is not delayed. One process
//! owns the file ([`lock`]); [`checkpoint`] merges the log into it; [`check`] and [`copy`] work beside the owner.

mod callbacks;
mod check;
mod checkpoint;
mod copy;
mod delegations;
mod fault;
#[cfg(fuzzing)]
pub mod fuzz;
mod ledger;
mod lock;
mod observer;
mod queue;
mod read;
mod reader;
mod recall;
mod schema;
mod survey;
mod write;
mod writer;

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use talaria_turns::{
    Begin, Entry, Event, GivenUp, Kept, Logged, Message, Once, Onto, Page, Principal, PushConfig,
    PushConfigId, Query, Recall, Retention, StateKey, Store, StoreError, StoredPushConfig, Survey, Surveyed,
    Task, TaskId, TaskKey, TaskRow, Timestamp,
};

pub use self::check::{Checked, check, try_write};
use self::checkpoint::{Checkpoints, Log};
pub use self::copy::{Copied, CopyError, Progress, Restored, backup, restore};
pub use self::fault::OpenError;
use self::ledger::Ledger;
pub use self::lock::Owner;
use self::lock::StoreLock;
pub use self::observer::{Operation, StoreObserver};
use self::reader::Readers;
use self::write::{Change, Write};
use self::writer::Writer;

/// The size that the write-ahead log is cut back to after it has grown, and beyond which it is begun anew.
const LOG_BYTES: u32 = 64 << 20;
/// The prepared statements that a connection keeps: all fixed ones, and those of the most recent lists.
const STATEMENTS: usize = 64;
/// The page cache of the writer, in KiB.
const WRITER_CACHE: i64 = 16 << 10;

/// The look-ups that share a transaction.
const LOOK_UPS_AT_ONCE: usize = 64;

/// The configuration of a store. The defaults fit one host with a local disk.
#[derive(Debug, Clone)]
pub struct Config {
    /// When commits are forced to the disk.
    pub synchronous: Synchronous,
    /// How long to wait for another process that locks the database, and for room in a queue.
    pub busy_timeout: Duration,
    /// The number of threads that read.
    pub readers: usize,
    /// The reads, and the writes, that may wait.
    pub queue: usize,
    /// The largest size of the file; `None` leaves it to the disk. New messages are rejected when an eighth of it is left,
    /// which is for the turns under way.
    pub max_bytes: Option<u64>,
    /// The free space on the disk below which new messages are rejected; `None` is 256 MiB, on small disks 5 % of them.
    pub min_free: Option<u64>,
    /// The address that the host serves, for another process that finds the file in use.
    pub address: Option<String>,
}

/// When commits are forced to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// Now and then: survives the end of the process, but not a power loss.
    #[default]
    Normal,
    /// Each time: survives both.
    Full,
}

/// A store in a SQLite file.
///
/// Dropping it waits until its queues are written and the file is closed.
pub struct Sqlite {
    observer: Option<Arc<dyn StoreObserver>>,
    /// The tasks of which a snapshot is being taken.
    snapshots: Arc<Mutex<HashSet<TaskKey>>>,
    ledger: Arc<Ledger>,
    // Dropped in this order: first the readers, then the writer, because only a connection that may write can merge the
    // log into the file when it is the last to close.
    readers: Readers,
    look_ups: Readers,
    _reading: Threads,
    writer: Writer,
    log: Checkpoints,
    _writing: Threads,
    // Released last.
    _lock: StoreLock,
}

struct Threads(Vec<JoinHandle<()>>);

impl Default for Config {
    fn default() -> Self {
        Self {
            synchronous: Synchronous::default(),
            busy_timeout: Duration::from_secs(5),
            readers: 2,
            queue: 1024,
            max_bytes: None,
            min_free: None,
            address: None,
        }
    }
}

// === impl Sqlite ===

impl Sqlite {
    /// Opens a file, or creates it with permissions for its owner only, and owns it until the store is dropped. Older schemas
    /// are migrated.
    ///
    /// # Errors
    /// [`OpenError`], with the remedy. A file of another application, of a newer version or of another process is left
    /// unchanged.
    pub fn open(path: &Path, config: &Config) -> Result<Self, OpenError> {
        create_file(path)?;
        let lock = StoreLock::take(path, config.address.as_deref())?;
        let failed = |error| OpenError::sql(path, error);
        let writing = open_writing(path, config)?;
        let readers = (0..config.readers.max(1))
            .map(|_| open_reading(path, config))
            .collect::<rusqlite::Result<Vec<_>>>()
            .map_err(failed)?;
        let (readers, mut reading) = Readers::start("reader", readers, 1, config, path)?;
        let looking_up = vec![open_reading(path, config).map_err(failed)?];
        let (look_ups, more) = Readers::start("look-up", looking_up, LOOK_UPS_AT_ONCE, config, path)?;
        reading.extend(more);
        let ledger = Arc::new(Ledger::read(&writing).map_err(failed)?);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let log = connect(path, flags, config).and_then(|log| Log::new(log, path, LOG_BYTES.into()));
        let (log, merging) = Checkpoints::start(log.map_err(failed)?)?;
        let (writer, writing) = Writer::start(writing, path, config, Arc::clone(&ledger), log.clone())?;
        let (reading, writing) = (Threads(reading), Threads(vec![writing, merging]));
        let snapshots = Arc::default();
        Ok(Self {
            observer: None,
            snapshots,
            ledger,
            readers,
            look_ups,
            _reading: reading,
            writer,
            log,
            _writing: writing,
            _lock: lock,
        })
    }

    /// Reports how long calls take.
    #[must_use]
    pub fn with_observer(self, observer: Arc<dyn StoreObserver>) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// Merges the write-ahead log into the file and empties it, so that the file alone has everything. To be called at the
    /// end: the store still works, but what is written later is in the log again.
    pub async fn flush(&self) {
        self.log.finish().await;
    }

    /// Lets a reader's thread take a snapshot, unless one is being taken or all threads are busy; then a later append asks
    /// again.
    fn snapshot(&self, key: &TaskKey) {
        let under_way = Arc::clone(&self.snapshots);
        if !lock(&under_way).insert(key.clone()) {
            return;
        }
        let (writer, task) = (self.writer.clone(), key.clone());
        let offered = self.readers.offer(move |connection| {
            match read::snapshot(connection, &task) {
                Ok(Some((version, json))) => {
                    writer.offer(Write::Snapshot { key: task.clone(), version, json });
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(?error, "could not take a snapshot of a task"),
            }
            lock(&under_way).remove(&task);
        });
        if !offered {
            lock(&self.snapshots).remove(key);
        }
    }
}

fn lock(keys: &Mutex<HashSet<TaskKey>>) -> std::sync::MutexGuard<'_, HashSet<TaskKey>> {
    keys.lock().unwrap_or_else(PoisonError::into_inner)
}

fn create_file(path: &Path) -> Result<(), OpenError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        return Err(OpenError::NoFolder { file: path.to_owned(), folder: folder.to_owned() });
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    // The file holds whole conversations. SQLite gives its log the same mode.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Ok(_) => Ok(()),
        Err(source) => Err(OpenError::NotWritable { file: path.to_owned(), source }),
    }
}

fn open_writing(path: &Path, config: &Config) -> Result<Connection, OpenError> {
    let failed = |error| OpenError::sql(path, error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = connect(path, flags, config).map_err(failed)?;
    schema::accept(path, &connection)?;
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0)).map_err(failed)?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(OpenError::NoLog { file: path.to_owned(), mode });
    }
    set_up(&connection, config).map_err(failed)?;
    schema::migrate(&mut connection, schema::MIGRATIONS).map_err(failed)?;
    Ok(connection)
}

fn set_up(connection: &Connection, config: &Config) -> rusqlite::Result<()> {
    let synchronous = match config.synchronous {
        Synchronous::Normal => "NORMAL",
        Synchronous::Full => "FULL",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "cache_size", -WRITER_CACHE)?;
    let ignore = |_: &rusqlite::Row<'_>| Ok(());
    connection.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES, ignore)?;
    connection.pragma_update_and_check(None, "wal_autocheckpoint", checkpoint::PAGES, ignore)?;
    if let Some(bytes) = config.max_bytes {
        let page: i64 = connection.query_row("PRAGMA page_size", [], |row| row.get(0))?;
        let present: i64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0))?;
        let pages = write::integer(bytes) / page.max(1);
        // A file that is larger already still has the reserve for turns under way.
        let most = pages.max(present + pages / 8);
        connection.pragma_update_and_check(None, "max_page_count", most.max(1), ignore)?;
    }
    Ok(())
}

fn open_reading(path: &Path, config: &Config) -> rusqlite::Result<Connection> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX, config)
}

fn connect(path: &Path, flags: OpenFlags, config: &Config) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(config.busy_timeout)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Otherwise SQLite plans a prepared statement again for each new value.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(connection)
}

#[async_trait]
impl Store for Sqlite {
    async fn write(
        &self,
        key: &TaskKey,
        onto: Onto<'_>,
        events: &[Arc<Event>],
        once: Option<&Once>,
    ) -> Result<(), StoreError> {
        let (key, change) = (key.clone(), Change::of(events, once)?);
        match onto {
            Onto::Nothing { context, host_made } => {
                let context = context.clone();
                self.timed(
                    Operation::Create,
                    self.writer.write(Write::Create { key, context, host_made, change }),
                )
                .await?;
            }
            Onto::Version(expected) => {
                let write = Write::Append { key: key.clone(), expected, change };
                let beyond = self.timed(Operation::Append, self.writer.write(write)).await?;
                if write::is_worth_a_snapshot(expected + events.len() as u64, beyond) {
                    self.snapshot(&key);
                }
            }
        }
        Ok(())
    }

    async fn task(&self, key: &TaskKey) -> Result<Option<Arc<Task>>, StoreError> {
        let key = key.clone();
        self.timed(Operation::Task, self.readers.read(move |connection| read::task(connection, &key))).await
    }

    async fn events(&self, key: &TaskKey, after: u64, limit: usize) -> Result<Vec<Entry>, StoreError> {
        let key = key.clone();
        self.timed(
            Operation::Events,
            self.readers.read(move |connection| read::events(connection, &key, after, limit)),
        )
        .await
    }

    async fn times(&self, key: &TaskKey, after: u64) -> Result<Vec<(u64, Timestamp)>, StoreError> {
        let key = key.clone();
        self.readers.read(move |connection| read::times(connection, &key, after)).await
    }

    async fn log(&self, begin: Begin, limit: usize) -> Result<Vec<Logged>, StoreError> {
        self.timed(Operation::Log, self.readers.read(move |connection| read::log(connection, begin, limit)))
            .await
    }

    async fn list(&self, owner: &Principal, query: &Query) -> Result<Page, StoreError> {
        let (owner, query, ledger) = (owner.clone(), query.clone(), Arc::clone(&self.ledger));
        self.timed(
            Operation::List,
            self.readers.read(move |connection| read::list(connection, &ledger, &owner, &query)),
        )
        .await
    }

    async fn survey(&self, survey: &Survey) -> Result<Surveyed, StoreError> {
        let (owners, survey) = (survey::owners(&self.ledger), survey.clone());
        self.readers.read(move |connection| survey::survey(connection, &owners, &survey)).await
    }

    async fn find(&self, task: &TaskId) -> Result<Option<TaskRow>, StoreError> {
        let (owners, task) = (survey::owners(&self.ledger), task.clone());
        self.readers.read(move |connection| survey::find(connection, &owners, &task)).await
    }

    async fn accepted(&self, owner: &Principal, once: &Once) -> Result<Option<TaskId>, StoreError> {
        let (owner, once) = (owner.clone(), once.clone());
        self.timed(
            Operation::Accepted,
            self.look_ups.read(move |connection| read::accepted(connection, &owner, &once)),
        )
        .await
    }

    async fn recall(&self, recall: &Recall) -> Result<Vec<Arc<Message>>, StoreError> {
        let recall = recall.clone();
        self.timed(Operation::Recall, self.readers.read(move |connection| recall::read(connection, &recall)))
            .await
    }

    async fn unfinished(&self) -> Result<Vec<TaskKey>, StoreError> {
        self.timed(Operation::Scan, self.readers.read(read::unfinished)).await
    }

    async fn stuck(&self, before: Timestamp) -> Result<Vec<TaskKey>, StoreError> {
        self.timed(Operation::Scan, self.readers.read(move |connection| read::stuck(connection, before)))
            .await
    }

    async fn forget(&self, retention: &Retention) -> Result<usize, StoreError> {
        let owners = self.ledger.owners();
        let mut forgotten = 0;
        for ((owner, kept), keep) in owners.iter().zip(retention.finished(&owners)) {
            let most = retention.shares.of(owner).bytes.unwrap_or(u64::MAX);
            let cut = read::Cut {
                owner: owner.clone(),
                since: retention.since,
                keep: (keep < kept.finished).then_some(keep),
                excess: kept.bytes.saturating_sub(most),
            };
            let find = move |connection: &Connection| read::newest_to_forget(connection, &cut);
            let Some(newest) = self.timed(Operation::Forget, self.readers.read(find)).await? else {
                continue;
            };
            // Several small writes, so that other writes are not delayed.
            loop {
                let (owner, newest) = (owner.clone(), newest.clone());
                let count =
                    self.timed(Operation::Forget, self.writer.write(Write::Forget { owner, newest })).await?;
                forgotten += usize::try_from(count).unwrap_or(usize::MAX);
                if count == 0 {
                    break;
                }
            }
        }
        Ok(forgotten)
    }

    async fn kept(&self, owner: &Principal) -> Result<Kept, StoreError> {
        Ok(self.ledger.kept(owner))
    }

    async fn has_room(&self) -> Result<(), StoreError> {
        self.timed(Operation::Room, self.writer.write(Write::Room)).await?;
        Ok(())
    }

    fn size(&self) -> u64 {
        self.ledger.size()
    }

    async fn state(&self, key: &StateKey) -> Result<Option<Arc<[u8]>>, StoreError> {
        let key = key.clone();
        self.timed(Operation::State, self.look_ups.read(move |connection| read::state(connection, &key)))
            .await
    }

    async fn state_beside(&self, key: &StateKey) -> Result<usize, StoreError> {
        let key = key.clone();
        self.timed(
            Operation::State,
            self.look_ups.read(move |connection| read::state_beside(connection, &key)),
        )
        .await
    }

    async fn set_state(&self, key: &StateKey, value: Option<Arc<[u8]>>) -> Result<(), StoreError> {
        self.timed(Operation::SetState, self.writer.write(Write::State { key: key.clone(), value })).await?;
        Ok(())
    }

    async fn set_push_config(
        &self,
        key: &TaskKey,
        config: &PushConfig,
        cursor: u64,
    ) -> Result<(), StoreError> {
        let (key, id, json) = (key.clone(), config.id.clone(), json(config)?);
        self.timed(Operation::Push, self.writer.write(Write::SetPush { key, id, json, cursor })).await?;
        Ok(())
    }

    async fn push_configs(&self, key: &TaskKey) -> Result<Vec<StoredPushConfig>, StoreError> {
        let key = key.clone();
        self.timed(
            Operation::Push,
            self.look_ups.read(move |connection| read::push_configs(connection, &key)),
        )
        .await
    }

    async fn delete_push_config(&self, key: &TaskKey, config: &PushConfigId) -> Result<(), StoreError> {
        self.timed(
            Operation::Push,
            self.writer.write(Write::DeletePush { key: key.clone(), id: config.clone() }),
        )
        .await?;
        Ok(())
    }

    async fn move_push_cursor(
        &self,
        key: &TaskKey,
        config: &PushConfigId,
        cursor: u64,
        given_up: Option<&GivenUp>,
    ) -> Result<(), StoreError> {
        let given_up = given_up.map(|why| Ok::<_, StoreError>((why.at, json(why)?))).transpose()?;
        let (key, id) = (key.clone(), config.clone());
        self.timed(Operation::Push, self.writer.write(Write::MovePush { key, id, cursor, given_up })).await?;
        Ok(())
    }

    async fn open_push_configs(&self) -> Result<Vec<StoredPushConfig>, StoreError> {
        self.timed(Operation::Scan, self.readers.read(read::open_push_configs)).await
    }

    async fn given_up(&self, limit: usize) -> Result<Vec<StoredPushConfig>, StoreError> {
        self.timed(Operation::Push, self.readers.read(move |connection| read::given_up(connection, limit)))
            .await
    }
}

/// Encodes a value as JSON.
fn json(value: &impl serde::Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value)
        .map_err(|error| StoreError::Unavailable(format!("a value cannot be written: {error}")))
}

// === impl Threads ===

impl Drop for Threads {
    fn drop(&mut self) {
        for thread in self.0.drain(..) {
            // A thread that panicked has already logged it.
            let _ = thread.join();
        }
    }
}
