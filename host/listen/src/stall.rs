//! Peers that do not take what is written for them.
//!
//! **Promise.** A connection is closed if its peer takes nothing for [`Limits::stall`](crate::Limits::stall) while there is
//! something to write, so a response is held for a peer that does not read only so long. A stream of events that has
//! nothing to say is not stalled.
//!
//! There are two places where a peer can refuse to read. [`Io`] sees a socket that takes no byte. Over HTTP/2 a peer can
//! also keep the socket open and the window of a stream closed; then hyper neither writes nor asks for the next frame. So
//! [`Paced`] hands over a response in small pieces and notes when hyper asks for one and when it has sent one, and the
//! connection looks at these notes now and then ([`Watched`]).
//!
//! `TCP_USER_TIMEOUT` would do the first part, but on Linux only, and before 5.11 not if the peer's window is closed.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::time::{Instant, Sleep, sleep};

/// The pieces that a response over HTTP/2 is handed over in: the default size of a frame. A piece that hyper has and the
/// peer does not take is all that a stream can hold back beside its response.
const PIECE: usize = 16 * 1024;

/// A socket that fails if it takes no byte for some time while there is something to write.
pub(crate) struct Io<T> {
    inner: T,
    within: Duration,
    /// Set while a write waits.
    waiting: bool,
    /// Made by the first write that waits, which most sockets never have.
    timer: Option<Pin<Box<Sleep>>>,
}

/// A response that notes how it gets on.
pub(crate) struct Paced<B> {
    body: B,
    /// What the body gave and was not handed over yet.
    rest: Bytes,
    /// `None` over HTTP/1.1, where the socket tells everything.
    watch: Option<Arc<Watch>>,
}

/// The responses of a connection that are being sent over HTTP/2.
#[derive(Default)]
pub(crate) struct Watched(Mutex<Vec<Weak<Watch>>>);

/// How a response gets on.
pub(crate) struct Watch(Mutex<State>);

struct State {
    /// Whether the response may have more to give, but was not asked for it.
    unasked: bool,
    /// The pieces that were handed over and not sent yet.
    unsent: usize,
    /// When something was last asked for or sent.
    moved: Instant,
}

/// A piece of a response.
struct Piece {
    bytes: Bytes,
    watch: Arc<Watch>,
}

// === impl Io ===

impl<T> Io<T> {
    pub(crate) fn new(inner: T, within: Duration) -> Self {
        Self { inner, within, waiting: false, timer: None }
    }

    fn watch(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.waiting = false;
            return written;
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(self.within)));
        if !self.waiting {
            self.waiting = true;
            timer.as_mut().reset(Instant::now() + self.within);
        }
        match timer.as_mut().poll(context) {
            Poll::Ready(()) => {
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read")))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<T: Read + Unpin> Read for Io<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<T: Write + Unpin> Write for Io<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.watch(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(context, buffers);
        self.watch(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

// === impl Watched ===

impl Watched {
    /// Watches one more response.
    pub(crate) fn begin(&self) -> Arc<Watch> {
        let watch = Arc::new(Watch(Mutex::new(State { unasked: true, unsent: 0, moved: Instant::now() })));
        let mut all = lock(&self.0);
        // The responses that are over are forgotten here, so that there are never many more than streams.
        if all.len() == all.capacity() {
            all.retain(|watch| watch.strong_count() > 0);
        }
        all.push(Arc::downgrade(&watch));
        watch
    }

    /// Whether a response got nowhere for this long.
    pub(crate) fn is_stalled(&self, within: Duration) -> bool {
        let is_stalled = |watch: Arc<Watch>| {
            let State { unasked, unsent, moved } = *lock(&watch.0);
            (unasked || unsent > 0) && moved.elapsed() >= within
        };
        lock(&self.0).iter().filter_map(Weak::upgrade).any(is_stalled)
    }
}

// === impl Watch ===

impl Watch {
    fn note(&self, change: impl FnOnce(&mut State)) {
        let mut state = lock(&self.0);
        change(&mut state);
        state.moved = Instant::now();
    }
}

// === impl Paced ===

impl<B> Paced<B> {
    pub(crate) fn new(body: B, watch: Option<Arc<Watch>>) -> Self {
        Self { body, rest: Bytes::new(), watch }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Paced<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Self { body, rest, watch } = self.get_mut();
        let Some(watch) = watch else { return Pin::new(&mut *body).poll_frame(context) };
        if rest.is_empty() {
            match Pin::new(&mut *body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => *rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                other => {
                    watch.note(|state| state.unasked = false);
                    return other;
                }
            }
        }
        let bytes = rest.split_to(rest.len().min(PIECE));
        watch.note(|state| {
            state.unasked = true;
            state.unsent += 1;
        });
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(Piece { bytes, watch: Arc::clone(watch) })))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(hint.lower().saturating_add(rest));
        hint
    }
}

impl<B> Drop for Paced<B> {
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            watch.note(|state| state.unasked = false);
        }
    }
}

// === impl Piece ===

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.watch.note(|state| state.unsent = state.unsent.saturating_sub(1));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
