//! Peers that do not take what is written for them.
//!
//! **Promise.** A connection is closed if its peer takes less than a [`PIECE`] within [`Limits::stall`](crate::Limits::stall)
//! while there is more to write, so a response is held for a peer that does not read only so long, and for one that takes a
//! few bytes now and then no longer than its size allows: that peer does not begin the time anew. A stream of events
//! that has nothing to say is not stalled.
//!
//! There are two places where a peer can refuse to read. [`Io`] sees a socket that takes too little. Over HTTP/2 a peer can
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
/// peer does not take is all that a stream can hold back beside its response. The same over a socket: with the usual 30 s it
/// makes half a kilobyte a second, twice the least of other servers (Kestrel and IIS have 240 bytes).
const PIECE: usize = 16 * 1024;

/// A socket that fails if it takes less than a [`PIECE`] for some time while there is more to write.
pub(crate) struct Io<T> {
    inner: T,
    within: Duration,
    /// What was taken since a write had to wait. `None` if all was written since, or enough.
    taken: Option<usize>,
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
        Self { inner, within, taken: None, timer: None }
    }

    fn watch(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = written {
            let bytes = written.as_ref().copied().unwrap_or_default();
            self.taken = self.taken.map(|taken| taken.saturating_add(bytes)).filter(|taken| *taken < PIECE);
            return Poll::Ready(written);
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(self.within)));
        if self.taken.is_none() {
            self.taken = Some(0);
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
        // hyper flushes when it has written everything.
        self.taken = None;
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

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt as _, DuplexStream, duplex};
    use tokio::time::timeout;

    use super::*;

    /// The longest that a test may take.
    const PATIENCE: Duration = Duration::from_secs(120);
    const WITHIN: Duration = Duration::from_millis(300);

    /// Writes so many bytes and flushes them, as hyper does.
    async fn write(io: &mut Io<TokioIo<DuplexStream>>, size: usize) -> io::Result<()> {
        let mut left = vec![0; size];
        while !left.is_empty() {
            let written = poll_fn(|context| Pin::new(&mut *io).poll_write(context, &left)).await?;
            left.truncate(left.len() - written);
        }
        poll_fn(|context| Pin::new(&mut *io).poll_flush(context)).await
    }

    #[tokio::test]
    async fn a_peer_that_takes_a_few_bytes_now_and_then_is_disconnected() {
        let (ours, mut peer) = duplex(1024);
        let mut io = Io::new(TokioIo::new(ours), WITHIN);
        let dripping = async {
            loop {
                sleep(WITHIN / 6).await;
                peer.read_exact(&mut [0; 8]).await.unwrap();
            }
        };
        let cut = timeout(PATIENCE, async {
            tokio::select! {
                written = write(&mut io, 1 << 20) => written.unwrap_err().kind(),
                () = dripping => unreachable!("it drips for ever"),
            }
        });
        assert_eq!(cut.await.expect("it is cut"), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_pause_between_two_events_is_no_stall_although_both_had_to_wait() {
        let (ours, mut peer) = duplex(8);
        let mut io = Io::new(TokioIo::new(ours), WITHIN);
        for _ in 0..2 {
            let mut event = [0; 16];
            let (written, read) = tokio::join!(write(&mut io, 16), peer.read_exact(&mut event));
            assert_eq!((written.unwrap(), read.unwrap()), ((), 16));
            sleep(2 * WITHIN).await;
        }
    }
}
