//! What one call of a guest sends out: counted, bounded, and through the egress, whichever import it came by.
//!
//! A turn may make so many calls, have so many open at once, and send and receive so many bytes of bodies. What is over a
//! bound fails with the line that would raise it; the turn goes on, unless the guest gives up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use talaria_egress::{Error, ErrorKind};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::executor::Shared;
use crate::limits::Limits;

/// The outbound side of one call.
pub(crate) struct Outbound {
    pub(super) shared: Option<Arc<Shared>>,
    pub(super) cancelled: Option<CancellationToken>,
    limits: Limits,
    calls: u32,
    sent: Arc<AtomicUsize>,
    received: Arc<AtomicUsize>,
    open: Arc<Semaphore>,
}

/// A call that is open. Dropping it makes room for another.
pub(crate) struct Place {
    pub(super) shared: Arc<Shared>,
    sent: Arc<AtomicUsize>,
    received: Arc<AtomicUsize>,
    limits: Limits,
    _open: OwnedSemaphorePermit,
}

impl Outbound {
    pub(super) fn new(
        shared: Option<Arc<Shared>>,
        cancelled: Option<CancellationToken>,
        limits: &Limits,
    ) -> Self {
        Self {
            shared,
            cancelled,
            limits: *limits,
            calls: 0,
            sent: Arc::default(),
            received: Arc::default(),
            open: Arc::new(Semaphore::new(limits.connections)),
        }
    }

    /// Room for another call.
    pub(super) fn admit(&mut self, shared: &Arc<Shared>) -> Result<Place, Error> {
        let denied =
            |what: String, add: String| Err(Error::new(ErrorKind::Denied, shared.access.deny(what, &add)));
        let Limits { calls, connections, .. } = self.limits;
        if self.calls >= calls {
            let add = format!("calls = {}", calls.saturating_mul(2));
            return denied(format!("make more than {calls} calls a turn"), add);
        }
        let Ok(open) = Arc::clone(&self.open).try_acquire_owned() else {
            let add = format!("connections = {}", connections.saturating_mul(2));
            return denied(format!("have more than {connections} calls open at once"), add);
        };
        self.calls += 1;
        Ok(Place {
            shared: Arc::clone(shared),
            sent: Arc::clone(&self.sent),
            received: Arc::clone(&self.received),
            limits: self.limits,
            _open: open,
        })
    }
}

impl Place {
    /// Counts bytes to be sent.
    pub(super) fn send(&self, bytes: usize) -> Result<(), Error> {
        self.count(&self.sent, bytes, self.limits.sent_bytes, "send", "bytes_out")
    }

    /// Counts bytes that came.
    pub(super) fn receive(&self, bytes: usize) -> Result<(), Error> {
        self.count(&self.received, bytes, self.limits.received_bytes, "receive", "bytes_in")
    }

    /// What may still come.
    pub(super) fn left(&self) -> usize {
        self.limits.received_bytes.saturating_sub(self.received.load(Ordering::Relaxed))
    }

    fn count(
        &self,
        counter: &AtomicUsize,
        bytes: usize,
        most: usize,
        verb: &str,
        key: &str,
    ) -> Result<(), Error> {
        // Adding before the check would let one call that is refused use up what is left.
        let before = counter.load(Ordering::Relaxed);
        if before.saturating_add(bytes) <= most {
            counter.fetch_add(bytes, Ordering::Relaxed);
            return Ok(());
        }
        let add = format!("{key} = \"{}KiB\"", (most >> 9).max(1));
        let message = self.shared.access.deny(format_args!("{verb} more than {most} bytes a turn"), &add);
        Err(Error::new(ErrorKind::TooLarge, message))
    }
}
