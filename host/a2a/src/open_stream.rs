//! What open streams have in common, whatever their binding: each is counted, takes memory, and ends when the server shuts
//! down, after it has sent what is already in the log.
//!
//! No task runs beside the connection: hyper asks for a frame when the socket has room, and the frame is encoded then. A client
//! that does not read costs a cursor and one frame, both charged to the host's memory; a frame that does not fit ends the
//! stream, which can be resumed. If the client disconnects, the body is dropped, and the reader with it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use talaria_budget::{Budget, Charge};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::memory;
use crate::rejection::Rejection;
use crate::update_stream::{Update, UpdateStream};

/// What the streams of a server share.
#[derive(Debug, Clone)]
pub(crate) struct Streaming {
    /// The longest silence.
    pub(crate) keep_alive: Duration,
    /// Cancelled when the server shuts down.
    pub(crate) closing: CancellationToken,
    /// The number of open streams.
    pub(crate) open: Arc<AtomicUsize>,
    /// The memory for requests and responses.
    pub(crate) budget: Budget,
}

/// An open stream.
pub(crate) struct OpenStream {
    updates: UpdateStream,
    // Created once per stream, not per frame: each one takes an entry in a list that all streams share.
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
    budget: Budget,
    _counted: Counted,
    _charge: Charge,
}

/// What comes next in a stream.
#[expect(clippy::large_enum_variant, reason = "nearly all are updates, and each is encoded at once")]
pub(crate) enum Next {
    Update(Update),
    /// Nothing; the stream is over.
    End,
    /// Nothing, because the server shuts down; the stream can be resumed elsewhere.
    Closing,
}

/// Counts a stream while it is open.
struct Counted(Arc<AtomicUsize>);

// === impl OpenStream ===

impl OpenStream {
    pub(crate) fn new(updates: UpdateStream, streaming: &Streaming) -> Self {
        let Streaming { closing, open, budget, .. } = streaming;
        let mut charge = budget.nothing();
        charge.force(memory::STREAM);
        Self {
            updates,
            closing: Box::pin(closing.clone().cancelled_owned()),
            budget: budget.clone(),
            _counted: Counted::new(open),
            _charge: charge,
        }
    }

    /// The memory for requests and responses.
    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Waits for the next update. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Next, Rejection> {
        let update = tokio::select! {
            biased;
            () = self.closing.as_mut() => match self.updates.next_known().await {
                Ok(None) if !self.updates.is_over() => return Ok(Next::Closing),
                known => known,
            },
            update = self.updates.next() => update,
        };
        Ok(update?.map_or(Next::End, Next::Update))
    }
}

// === impl Counted ===

impl Counted {
    fn new(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(open))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
