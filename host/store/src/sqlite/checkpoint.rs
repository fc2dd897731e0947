//! Merges the write-ahead log into the database: now and then, when it has grown, and at the end.
//!
//! A merge forces the log and the database to the disk, and its thread waits for that. SQLite lets the writer merge, when a
//! commit has made the log longer than 4 MiB: with 64 writers at once they waited for the disk half of the time. And SQLite
//! can begin the log anew only at a moment when nobody reads from it. With a read always under way there is no such moment,
//! and the log grows for ever. And a host with little traffic never reaches 4 MiB: all its tasks would be in the log, and the
//! database empty.
//!
//! So a thread with a connection of its own merges whenever the writer has written much, and the writer goes on meanwhile.
//! Only the writer can catch up with itself: at [`PAGES`] it merges what is left, which is little, and begins the log anew.
//!
//! **Promise.** What was written is in the database within [`EVERY`], unless a reader still needs the older state. A log
//! over [`LOG_BYTES`](super::LOG_BYTES) is begun anew as soon as the reads of that moment are over, or else tried again after
//! [`EVERY`]. After [`Checkpoints::finish`] the log is empty.
//!
//! **Bounds.** One merge is asked for at a time. Waiting for readers stops the writer, for at most [`PATIENCE`]; later readers
//! use the database and not the log, so they do not prolong the wait. A process that keeps a transaction open can still hold
//! the log; a warning says so.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::OpenError;

/// How often the log is merged. A power failure loses at most what was written since.
const EVERY: Duration = Duration::from_secs(10);
/// The pages in the log at which the writer merges what is left and begins the log anew: 32 MiB. It looks at the log again at
/// every commit from there on.
pub(super) const PAGES: i64 = 8 << 10;
/// How long a merge that begins the log anew waits for readers, while writes wait for it. Most reads take milliseconds.
const PATIENCE: Duration = Duration::from_millis(250);
/// How much longer than its bound the log is before a warning says so.
const MUCH: u64 = 4;

/// Asks for merges. The thread ends when the last of these is dropped.
#[derive(Clone)]
pub(super) struct Checkpoints {
    asks: SyncSender<Ask>,
    /// Whether a merge was asked for and has not ended.
    is_merging: Arc<AtomicBool>,
}

enum Ask {
    /// Merge what can be merged without waiting.
    Merge,
    /// Merge everything, and say when it is done.
    Finish(oneshot::Sender<()>),
}

/// The thread's own.
pub(super) struct Log {
    connection: Connection,
    file: PathBuf,
    /// The size beyond which the log is begun anew.
    bound: u64,
    /// Whether the log is known to grow, so that a warning is written once.
    is_held: bool,
}

// === impl Checkpoints ===

impl Checkpoints {
    pub(super) fn start(log: Log) -> Result<(Self, JoinHandle<()>), OpenError> {
        let (ask, asked) = mpsc::sync_channel::<Ask>(2);
        let mut log = log;
        let is_merging = Arc::new(AtomicBool::new(false));
        let merging = Arc::clone(&is_merging);
        let run = move || {
            let mut tended = Instant::now();
            loop {
                match asked.recv_timeout(EVERY.saturating_sub(tended.elapsed())) {
                    Ok(Ask::Merge) => {
                        log.merge();
                        merging.store(false, Ordering::Relaxed);
                    }
                    Ok(Ask::Finish(answer)) => {
                        log.begin_anew();
                        let _ = answer.send(());
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                if tended.elapsed() >= EVERY {
                    log.tend();
                    tended = Instant::now();
                }
            }
        };
        let thread = std::thread::Builder::new().name("store-log".into()).spawn(run);
        Ok((Self { asks: ask, is_merging }, thread.map_err(OpenError::Thread)?))
    }

    /// Asks for a merge of what can be merged without waiting, unless one is under way.
    pub(super) fn merge(&self) {
        // So there is always room to ask for the last merge.
        if !self.is_merging.swap(true, Ordering::Relaxed) {
            let _ = self.asks.try_send(Ask::Merge);
        }
    }

    /// Merges everything into the database and empties the log.
    pub(super) async fn finish(&self) {
        let (answer, answered) = oneshot::channel();
        if self.asks.try_send(Ask::Finish(answer)).is_ok() {
            let _ = answered.await;
        }
    }
}

// === impl Log ===

impl Log {
    pub(super) fn new(connection: Connection, file: &Path, bound: u64) -> rusqlite::Result<Self> {
        connection.busy_timeout(PATIENCE)?;
        Ok(Self { connection, file: file.to_owned(), bound, is_held: false })
    }

    /// Merges what can be merged without waiting.
    fn merge(&self) {
        self.checkpoint("PASSIVE");
    }

    /// Merges what can be merged without waiting, and begins a long log anew.
    fn tend(&mut self) {
        if self.checkpoint("PASSIVE") <= self.bound {
            self.is_held = false;
            return;
        }
        let left = self.begin_anew();
        if left > self.bound * MUCH && !std::mem::replace(&mut self.is_held, true) {
            tracing::warn!(
                mib = left >> 20, file = %self.file.display(),
                "the write-ahead log grows, because a process keeps reading an old state of the database; end that process"
            );
        }
    }

    /// Merges all, waiting for readers, and cuts the log to nothing.
    fn begin_anew(&self) -> u64 {
        self.checkpoint("TRUNCATE")
    }

    /// Returns the bytes in the log.
    fn checkpoint(&self, mode: &str) -> u64 {
        // A row of three numbers: whether it could not be completed, the pages in the log, and the merged ones.
        let pages =
            self.connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| row.get(1));
        let size = self.connection.query_row("PRAGMA page_size", [], |row| row.get(0));
        match (pages, size) {
            (Ok(pages), Ok(size)) => {
                let (pages, size): (i64, i64) = (pages, size);
                u64::try_from(pages.saturating_mul(size)).unwrap_or(0)
            }
            (Err(error), _) | (_, Err(error)) => {
                tracing::debug!(%error, file = %self.file.display(), "the write-ahead log was not merged");
                0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A database in the journal mode of a store, with one table.
    fn database(folder: &Path) -> (PathBuf, Connection) {
        let file = folder.join("t.db");
        let connection = Connection::open(&file).unwrap();
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).unwrap();
        connection.execute_batch("CREATE TABLE t (x BLOB)").unwrap();
        (file, connection)
    }

    fn log_of(file: &Path) -> u64 {
        std::fs::metadata(file.with_extension("db-wal")).map_or(0, |file| file.len())
    }

    fn write(connection: &Connection) {
        connection.execute("INSERT INTO t VALUES (zeroblob(100000))", []).unwrap();
    }

    fn begin_to_read(file: &Path) -> Connection {
        let reader = Connection::open(file).unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
        reader
    }

    #[test]
    fn readers_that_always_overlap_do_not_let_the_log_grow_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let (file, connection) = database(folder.path());
        let bound = 1 << 20;
        let mut log = Log::new(Connection::open(&file).unwrap(), &file, bound).unwrap();
        let (stop, stopped) = mpsc::channel::<()>();
        let read = file.clone();
        let readers = std::thread::spawn(move || {
            // Each begins before the other one ends.
            let mut reader = begin_to_read(&read);
            while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                let next = begin_to_read(&read);
                drop(std::mem::replace(&mut reader, next));
            }
        });
        let mut longest = 0;
        for round in 0..200 {
            write(&connection);
            if round % 5 == 0 {
                log.tend();
            }
            longest = longest.max(log_of(&file));
        }
        drop(stop);
        readers.join().unwrap();
        // Twenty million bytes were written.
        assert!(longest < 3 * bound, "the log grew to {longest} bytes");
    }

    #[test]
    fn a_small_log_is_merged_and_the_last_merge_empties_it() {
        let folder = tempfile::tempdir().unwrap();
        let (file, connection) = database(folder.path());
        let mut log = Log::new(Connection::open(&file).unwrap(), &file, 64 << 20).unwrap();
        write(&connection);
        let before = file.metadata().unwrap().len();
        log.tend();
        assert!(file.metadata().unwrap().len() > before, "it is in the database");
        write(&connection);
        assert_eq!(log.begin_anew(), 0);
        assert_eq!(log_of(&file), 0);
    }

    #[test]
    fn a_reader_that_never_ends_delays_the_writer_only_for_a_moment() {
        let folder = tempfile::tempdir().unwrap();
        let (file, connection) = database(folder.path());
        let mut log = Log::new(Connection::open(&file).unwrap(), &file, 1 << 10).unwrap();
        write(&connection);
        let reader = begin_to_read(&file);
        for _ in 0..3 {
            write(&connection);
            log.tend();
        }
        assert!(log.is_held, "it is reported");
        drop(reader);
        log.tend();
        assert_eq!(log_of(&file), 0);
        log.tend();
        assert!(!log.is_held, "the next time is reported again");
    }
}
