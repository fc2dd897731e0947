//! The writer: a thread with the only connection that writes.
//!
//! The thread takes all writes that wait, runs them in one transaction, and answers them when the transaction is
//! committed: under load many writes share a commit, and a single write waits for no other. If SQLite fails on one write,
//! the whole group is rolled back and each write is run again in a transaction of its own; only those that fail alone get
//! the error. (A savepoint for each write would save the second run, but cost a copy of every page that a group touches.)
//!
//! The thread does not wait for the disk while another can ([`checkpoint`](super::checkpoint)): after every [`MERGE`] writes
//! it asks for a merge of the log.
//!
//! Bounds: the queue; a write that finds no room within the busy timeout is rejected. If the database is locked, a whole
//! group is rejected after the same time. A write succeeds only once it is committed; a rejected write leaves nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use rusqlite::{Connection, TransactionBehavior};
use talaria_turns::StoreError;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use super::checkpoint::Checkpoints;
use super::fault::Fault;
use super::ledger::{Books, Ledger};
use super::queue::{self, Queue};
use super::write::Write;
use super::{Config, OpenError};

/// The writes that share a transaction: ten times as many as 64 connections keep waiting. Bounds how long a write takes.
const AT_ONCE: usize = 512;

/// The writes after which the log is merged beside the writer: some thousand pages.
const MERGE: usize = 1_000;

/// Sends writes to the thread.
#[derive(Clone)]
pub(super) struct Writer(Queue<Job>);

struct Job {
    write: Write,
    answer: Answer,
    /// The runtime of the task that waits for the answer, if there is one.
    waits_on: Option<Handle>,
}

type Answer = oneshot::Sender<Result<u64, StoreError>>;

/// The answers for the tasks of one runtime.
struct Answers {
    runtime: Handle,
    answers: Vec<(Answer, Result<u64, StoreError>)>,
}

struct Thread {
    connection: Connection,
    file: PathBuf,
    ledger: Arc<Ledger>,
    books: Books,
    /// Merges the log. Tests of the thread alone have none.
    log: Option<Checkpoints>,
    /// The writes since the log was asked to merge.
    unmerged: usize,
    /// Whether the last group failed, so that the reason is already logged.
    failing: bool,
}

struct Failure {
    fault: Fault,
    /// Whether a transaction had begun; then it was rolled back.
    began: bool,
}

// === impl Writer ===

impl Writer {
    /// Starts the thread. It ends when the last `Writer` is dropped and the queue is empty.
    pub(super) fn start(
        connection: Connection,
        file: &Path,
        config: &Config,
        ledger: Arc<Ledger>,
        log: Checkpoints,
    ) -> Result<(Self, JoinHandle<()>), OpenError> {
        let (queue, jobs) = Queue::new(config.queue, config.busy_timeout);
        let books = Books::new(file, config);
        let file = file.to_owned();
        let thread = Thread { connection, file, ledger, books, log: Some(log), unmerged: 0, failing: false };
        let handle = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || thread.run(jobs))
            .map_err(OpenError::Thread)?;
        Ok((Self(queue), handle))
    }

    /// Writes; returns once it is committed.
    pub(super) async fn write(&self, write: Write) -> Result<u64, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.0.put(Job { write, answer, waits_on: Handle::try_current().ok() }).await?;
        answered.await.unwrap_or_else(|_| Err(queue::stopped()))
    }

    /// Writes if there is room in the queue, without waiting for the result.
    pub(super) fn offer(&self, write: Write) {
        self.0.offer(Job { write, answer: oneshot::channel().0, waits_on: None });
    }
}

// === impl Thread ===

impl Thread {
    fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        let mut group = Vec::with_capacity(AT_ONCE);
        while jobs.blocking_recv_many(&mut group, AT_ONCE) > 0 {
            let results = self.write(&group);
            answer(group.drain(..).zip(results));
        }
    }

    fn write(&mut self, group: &[Job]) -> Vec<Result<u64, StoreError>> {
        match self.transact(group) {
            Ok(results) => {
                if std::mem::take(&mut self.failing) {
                    tracing::info!(file = %self.file.display(), "store writes succeed again");
                }
                results
            }
            Err(failure) if failure.began && group.len() > 1 => self.write_each(group),
            Err(failure) => {
                let text = self.failed(&failure);
                group.iter().map(|_| Err(StoreError::Unavailable(text.clone()))).collect()
            }
        }
    }

    /// Runs each write in a transaction of its own, until one cannot begin: the next would also wait in vain.
    fn write_each(&mut self, group: &[Job]) -> Vec<Result<u64, StoreError>> {
        let mut results = Vec::with_capacity(group.len());
        let mut hopeless = None;
        for job in group {
            if let Some(text) = &hopeless {
                results.push(Err(StoreError::Unavailable(String::clone(text))));
                continue;
            }
            match self.transact(std::slice::from_ref(job)) {
                Ok(result) => results.extend(result),
                Err(failure) => {
                    let text = self.failed(&failure);
                    hopeless = (!failure.began).then(|| text.clone());
                    results.push(Err(StoreError::Unavailable(text)));
                }
            }
        }
        results
    }

    /// Returns the text for callers. Logs the details, once until a group succeeds.
    fn failed(&mut self, failure: &Failure) -> String {
        if !std::mem::replace(&mut self.failing, true) {
            tracing::error!(error = ?failure.fault, file = %self.file.display(), "could not write to the store");
        }
        failure.fault.text()
    }

    /// Runs all writes in one transaction. Fails as a whole if SQLite fails.
    fn transact(&mut self, group: &[Job]) -> Result<Vec<Result<u64, StoreError>>, Failure> {
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(|error| Failure { fault: error.into(), began: false })?;
        let failed = |fault: Fault| Failure { fault, began: true };
        let mut results = Vec::with_capacity(group.len());
        self.books.roll_back();
        for job in group {
            results.push(match job.write.run(&transaction, &mut self.books) {
                Ok(answer) => Ok(answer),
                Err(Fault::Refused(error)) => Err(error),
                Err(fault) => return Err(failed(fault)),
            });
        }
        let _moment = self.ledger.moment();
        transaction.commit().map_err(|error| failed(error.into()))?;
        self.ledger.commit(&mut self.books);
        self.unmerged += group.len();
        if self.unmerged >= MERGE {
            self.unmerged = 0;
            self.log.iter().for_each(Checkpoints::merge);
        }
        Ok(results)
    }
}

/// Answers writes. Those who wait on one runtime are woken there, by one task: to wake each from here would be a system
/// call for each. That task waits for nothing, so nobody tracks it.
///
/// A caller may have stopped waiting; its write is committed all the same.
fn answer(group: impl Iterator<Item = (Job, Result<u64, StoreError>)>) {
    let mut all: Vec<Answers> = Vec::new();
    for (Job { answer, waits_on, .. }, result) in group {
        let Some(runtime) = waits_on else {
            let _ = answer.send(result);
            continue;
        };
        match all.iter_mut().find(|answers| answers.runtime.id() == runtime.id()) {
            Some(answers) => answers.answers.push((answer, result)),
            None => all.push(Answers { runtime, answers: vec![(answer, result)] }),
        }
    }
    for Answers { runtime, answers } in all {
        runtime.spawn(async move {
            for (answer, result) in answers {
                let _ = answer.send(result);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use talaria_turns::{ContextId, TaskKey};

    use super::*;
    use crate::sqlite::schema;
    use crate::sqlite::write::Change;
    use crate::suite::{key, note};

    fn thread() -> Thread {
        let mut connection = Connection::open_in_memory().unwrap();
        schema::migrate(&mut connection, schema::MIGRATIONS).unwrap();
        let books = Books::new(Path::new("memory"), &Config::default());
        let ledger = Arc::default();
        Thread { connection, file: "memory".into(), ledger, books, log: None, unmerged: 0, failing: false }
    }

    fn create(key: &TaskKey, size: usize) -> Job {
        let context = ContextId::fresh();
        let change = Change::of(&[Arc::new(note(&"x".repeat(size)))], None).unwrap();
        Job {
            write: Write::Create { key: key.clone(), context, host_made: false, change },
            answer: oneshot::channel().0,
            waits_on: None,
        }
    }

    fn tasks(thread: &Thread) -> i64 {
        thread.connection.query_row("SELECT count(*) FROM tasks", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn a_rejected_write_leaves_the_others_of_its_group_alone() {
        let mut thread = thread();
        let keys = [key("a"), key("a")];
        let group = [create(&keys[0], 1), create(&keys[0], 1), create(&keys[1], 1)];
        let results = thread.write(&group);
        assert!(matches!(&results[..], [Ok(_), Err(StoreError::Exists), Ok(_)]), "{results:?}");
        assert_eq!((tasks(&thread), thread.failing), (2, false));
    }

    #[test]
    fn a_write_that_fails_fails_alone() {
        let mut thread = thread();
        thread.connection.pragma_update_and_check(None, "max_page_count", 40, |_| Ok(())).unwrap();
        let group: Vec<Job> = (0..9).map(|at| create(&key("a"), if at == 4 { 1 << 20 } else { 9 })).collect();
        let results = thread.write(&group);
        for (at, result) in results.iter().enumerate() {
            match result {
                Err(StoreError::Unavailable(text)) if at == 4 => {
                    assert!(text.contains("disk is full"), "{text}")
                }
                Ok(_) if at != 4 => {}
                other => panic!("{at}: {other:?}"),
            }
        }
        assert_eq!((results.len(), tasks(&thread), thread.failing), (9, 8, true));
        assert!(thread.write(&[create(&key("a"), 9)])[0].is_ok());
        assert!(!thread.failing, "the next failure is logged again");
    }

    #[test]
    fn a_group_that_cannot_begin_fails_as_one() {
        let mut thread = thread();
        // A transaction of its own blocks it as well as one of another process.
        thread.connection.execute_batch("BEGIN").unwrap();
        let results = thread.write(&[create(&key("a"), 1), create(&key("a"), 1)]);
        assert!(
            results.iter().all(|result| matches!(result, Err(StoreError::Unavailable(_)))),
            "{results:?}"
        );
        assert_eq!(results.len(), 2);
    }
}
