//! The threads that read, beside the writer.
//!
//! Each thread has a read-only connection and takes reads from a bounded queue. A read sees a snapshot of the file with
//! everything that was committed before the read was requested; it neither waits for the writer nor delays it. A read that
//! finds no room in the queue within the busy timeout is rejected.
//!
//! There are two kinds of reads. Every message needs look-ups by key; one thread runs all that wait in one transaction,
//! because most of the cost of a single one is to wake threads and to open a transaction. The other reads may take long;
//! each thread runs one at a time.
//!
//! These are threads of the store, not of tokio's blocking pool: a connection with its prepared statements stays on one
//! thread, and a slow disk cannot use up the threads that other blocking work needs.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use talaria_turns::StoreError;
use tokio::sync::{mpsc, oneshot};

use super::fault::Fault;
use super::queue::{self, Queue};
use super::{Config, OpenError};

/// Sends reads to the threads.
pub(super) struct Readers {
    queue: Queue<Read>,
    file: Arc<Path>,
}

type Read = Box<dyn FnOnce(&Connection) + Send>;

impl Readers {
    /// Starts a thread for each connection. The threads end when the `Readers` are dropped and the queue is empty.
    pub(super) fn start(
        kind: &str,
        connections: Vec<Connection>,
        at_once: usize,
        config: &Config,
        file: &Path,
    ) -> Result<(Self, Vec<JoinHandle<()>>), OpenError> {
        let (queue, reads) = Queue::new(config.queue, config.busy_timeout);
        let reads = Arc::new(Mutex::new(reads));
        let mut threads = Vec::new();
        for (number, connection) in connections.into_iter().enumerate() {
            let reads = Arc::clone(&reads);
            let thread = std::thread::Builder::new()
                .name(format!("store-{kind}-{number}"))
                .spawn(move || run(&connection, &reads, at_once))
                .map_err(OpenError::Thread)?;
            threads.push(thread);
        }
        Ok((Self { queue, file: file.into() }, threads))
    }

    /// Runs a read on one snapshot of the file.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        let file = Arc::clone(&self.file);
        let read: Read = Box::new(move |connection: &Connection| {
            let result = read(connection);
            if let Err(error @ (Fault::Sql(_) | Fault::Unreadable(_))) = &result {
                tracing::warn!(?error, file = %file.display(), "the store cannot read");
            }
            let _ = answer.send(result.map_err(Fault::into_store));
        });
        self.queue.put(read).await?;
        answered.await.unwrap_or_else(|_| Err(queue::stopped()))
    }

    /// Runs a job on one of the threads without waiting for it. Returns false if there is no room in the queue.
    pub(super) fn offer(&self, read: impl FnOnce(&Connection) + Send + 'static) -> bool {
        self.queue.offer(Box::new(read))
    }
}

fn run(connection: &Connection, reads: &Mutex<mpsc::Receiver<Read>>, at_once: usize) {
    let mut group = Vec::with_capacity(at_once);
    while take(reads, &mut group, at_once) > 0 {
        // One snapshot, whatever is written meanwhile. BEGIN takes no lock; if a read cannot get one, the read fails.
        let moment = connection.unchecked_transaction();
        for read in group.drain(..) {
            read(connection);
        }
        drop(moment);
    }
}

fn take(reads: &Mutex<mpsc::Receiver<Read>>, group: &mut Vec<Read>, at_once: usize) -> usize {
    reads.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv_many(group, at_once)
}
