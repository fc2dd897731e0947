//! Workers: threads with a runtime of their own, one for each core, to which connections are spread.
//!
//! **Promise.** Everything that a connection begins stays on its worker: its requests, what they spawn, and the outbound
//! connections of that. Nothing of it moves between cores, which is half of the processor time that a short request takes
//! on a runtime with several threads: there each step may run on another core than the step before.
//!
//! A new connection goes to the worker with the fewest. A request with a large or unknown body is answered on the shared
//! runtime instead, because to parse it would hold up everything else on the worker. Whatever computes for long must run
//! there too: a worker has one thread, and no other thread takes work from it.
//!
//! **Failure.** A panic ends the task that panicked, not the worker. [`Workers::stop`] ends the threads and closes what is
//! left on them. To have requests answered, wait for [`Spread::serve`] first. If `Workers` is dropped, the threads
//! end too, but nobody waits for them.
//!
//! `SO_REUSEPORT` would spread connections in the kernel, but by a hash: with few connections one worker gets several and
//! another none.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Handle, Id};
use tokio_util::sync::CancellationToken;

/// The threads. They end when this is dropped.
pub struct Workers {
    threads: Vec<JoinHandle<()>>,
    spread: Spread,
    stop: CancellationToken,
}

/// Spreads connections to workers. Cheap to clone. The default has none: connections stay on the runtime that serves.
#[derive(Clone, Default)]
pub struct Spread(Option<Arc<Targets>>);

struct Targets {
    workers: Box<[Arc<Worker>]>,
    /// Where requests with large bodies are answered.
    shared: Handle,
}

struct Worker {
    runtime: Handle,
    connections: AtomicUsize,
}

/// A connection's place on a worker, until it is dropped.
pub(crate) struct Place {
    worker: Arc<Worker>,
}

// === impl Workers ===

impl Workers {
    /// Starts `count` workers beside this shared runtime.
    ///
    /// # Errors
    /// If a runtime or a thread cannot be made.
    pub fn start(count: usize, shared: Handle) -> io::Result<Self> {
        // Dropped on an error, which ends the threads before.
        let mut started =
            Self { threads: Vec::new(), spread: Spread::default(), stop: CancellationToken::new() };
        let mut workers = Vec::new();
        for nth in 0..count {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let worker = Worker { runtime: runtime.handle().clone(), connections: AtomicUsize::new(0) };
            workers.push(Arc::new(worker));
            let stopped = started.stop.clone().cancelled_owned();
            let thread = std::thread::Builder::new().name(format!("worker-{nth}"));
            started.threads.push(thread.spawn(move || runtime.block_on(stopped))?);
        }
        started.spread = Spread(Some(Arc::new(Targets { workers: workers.into(), shared })));
        Ok(started)
    }

    /// Returns what spreads connections to these workers.
    #[must_use]
    pub fn spread(&self) -> Spread {
        self.spread.clone()
    }

    /// Ends the threads and waits for them. Tasks that are left are dropped.
    pub fn stop(mut self) {
        self.stop.cancel();
        for thread in self.threads.drain(..) {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

// === impl Spread ===

impl Spread {
    /// Returns the ids of the workers' runtimes.
    #[must_use]
    pub fn runtimes(&self) -> Arc<[Id]> {
        let workers = self.0.iter().flat_map(|targets| &targets.workers);
        workers.map(|worker| worker.runtime.id()).collect()
    }

    /// Takes a place on the worker with the fewest connections; `None` if there are no workers.
    pub(crate) fn place(&self) -> Option<Place> {
        let targets = self.0.as_ref()?;
        let worker =
            targets.workers.iter().min_by_key(|worker| worker.connections.load(Ordering::Relaxed))?;
        worker.connections.fetch_add(1, Ordering::Relaxed);
        Some(Place { worker: Arc::clone(worker) })
    }

    /// The runtime for requests with large bodies, if it is another one.
    pub(crate) fn shared(&self) -> Option<&Handle> {
        self.0.as_ref().map(|targets| &targets.shared)
    }
}

// === impl Place ===

impl Place {
    /// The runtime of the worker.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.worker.runtime
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.worker.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
