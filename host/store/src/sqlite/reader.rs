//! Readers beside the writer.
//!
//! Threads, each with a read-only connection, take reads from a bounded queue. A read sees one moment of the file, with
//! everything that was committed before it was asked for; it waits for no writer and holds up none. A read that finds
//! no room in the queue for the busy timeout is refused.
//!
//! There are two kinds: look-ups by key that every message needs, which one thread takes as many at once as wait (most
//! of what one costs alone is waking threads and opening a transaction), and the rest, which may take long, and of
//! which every thread takes one.
//!
//! Threads of our own, not tokio's blocking pool: a connection with its prepared statements stays on one thread, and a
//! slow disk cannot use up what everybody else's blocking work needs.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use talaria_turns::StoreError;
use tokio::sync::{mpsc, oneshot};

use super::fault::Fault;
use super::queue::{self, Queue};
use super::{Config, OpenError};

/// Hands reads to the threads.
pub(super) struct Readers {
    queue: Queue<Read>,
    file: Arc<Path>,
}

type Read = Box<dyn FnOnce(&Connection) + Send>;

impl Readers {
    /// Starts a thread for each connection. They end when the `Readers` are gone and the queue is empty.
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

    /// Reads at one moment of the file.
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

    /// Runs something on a reader's thread, if there is room in the queue; nobody waits for it.
    pub(super) fn offer(&self, read: impl FnOnce(&Connection) + Send + 'static) -> bool {
        self.queue.offer(Box::new(read))
    }
}

fn run(connection: &Connection, reads: &Mutex<mpsc::Receiver<Read>>, at_once: usize) {
    let mut group = Vec::with_capacity(at_once);
    while take(reads, &mut group, at_once) > 0 {
        // Whatever is written meanwhile. Beginning takes no lock yet; a read that gets none says so itself.
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
