//! Sockets and connections: HTTP/1.1 and HTTP/2 without TLS, on one port.
//!
//! What bounds it: the number of connections (one more is told so and closed, never left waiting), the time to the
//! first request and to each request's headers, the size of headers, the streams of one HTTP/2 connection. What a peer
//! that does nothing costs is a socket for [`Limits::header_timeout`]. Bodies are the business of who reads them.
//!
//! Shutting down: no new connection, requests under way finish within [`Limits::grace`], what is left is cut.
//!
//! It knows nothing of what is served, so that every server of the product is bounded in the same way.
#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::error::Error;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use hyper::body::{Body, Incoming};
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

/// Bounds of the connections to one port.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at once; one more is turned away.
    pub connections: usize,
    /// What it is told: 429, or 503 where the peer would take a 4xx for its own fault.
    pub busy: StatusCode,
    /// Longest wait for the first request of a connection, and for each request's headers. It also ends idle
    /// HTTP/1.1 connections.
    pub header_timeout: Duration,
    /// Longest wait for requests under way when shutting down.
    pub grace: Duration,
}

/// Bytes of a request's head over HTTP/1.1; also the most that is read at once. Twice what nginx takes.
const MAX_HEAD: usize = 64 * 1024;
/// Bytes of a request's headers over HTTP/2, hyper's own default.
const MAX_HEADER_LIST: u32 = 16 * 1024;
/// Requests at once on one HTTP/2 connection. The least that RFC 9113 recommends.
const MAX_STREAMS: u32 = 100;
/// Bytes that the kernel takes before it can send them. On its own it takes megabytes for a reader that does not read. What
/// is on its way does not count, so a fast peer far away gets no less.
const UNSENT: u32 = 128 * 1024;
/// An HTTP/2 peer that is gone without a word is noticed after twice this.
const PING: Duration = Duration::from_secs(20);
/// Longest wait for connections to fall after they were cut.
const CUT_OFF: Duration = Duration::from_secs(1);
/// Wait after a failed accept, which usually means that the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers requests with `handle` until `shutdown`, and then until requests under way are answered or the grace is over.
/// Connections that are turned away are counted in `turned_away`.
pub async fn serve<H, F, B>(
    listener: TcpListener,
    limits: Limits,
    turned_away: Arc<AtomicU64>,
    shutdown: CancellationToken,
    handle: H,
) where
    H: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let tracker = TaskTracker::new();
    let room = Arc::new(Semaphore::new(limits.connections));
    let connections = Arc::new(Connections {
        handle,
        http: http(&limits, &tracker),
        header_timeout: limits.header_timeout,
        shutdown: shutdown.clone(),
        cut: CancellationToken::new(),
    });
    let mut was_full = false;
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                pause_after(&error).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
            if !std::mem::replace(&mut was_full, true) {
                warn!(limit = limits.connections, "connections are refused: there are too many");
            }
            turned_away.fetch_add(1, Ordering::Relaxed);
            turn_away(stream, limits.busy);
            continue;
        };
        was_full = false;
        let connections = Arc::clone(&connections);
        tracker.spawn(async move {
            connections.serve(stream, Peer(peer)).await;
            drop(permit);
        });
    }
    drop(listener);
    tracker.close();
    if tokio::time::timeout(limits.grace, tracker.wait()).await.is_err() {
        info!(left = tracker.len(), "requests are cut off: the grace is over");
        connections.cut.cancel();
        // Nothing is awaited any more but the drop of what was held.
        let _ = tokio::time::timeout(CUT_OFF, tracker.wait()).await;
    }
}

/// Who is at the other end of a request's connection; every request has it among its extensions.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub SocketAddr);

/// What all connections share.
struct Connections<H> {
    handle: H,
    http: auto::Builder<Tracked>,
    header_timeout: Duration,
    /// Finish what is under way.
    shutdown: CancellationToken,
    /// Stop.
    cut: CancellationToken,
}

// === impl Connections ===

impl<H, F, B> Connections<H>
where
    H: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    async fn serve(&self, stream: TcpStream, peer: Peer) {
        // Answers are small and written whole.
        let _ = stream.set_nodelay(true);
        bound_unsent(&stream);
        let heard = AtomicBool::new(false);
        let service = service_fn(|mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer);
            heard.store(true, Ordering::Relaxed);
            let answer = (self.handle)(request);
            async move { Ok::<_, Infallible>(answer.await) }
        });
        let mut connection = pin!(self.http.serve_connection(TokioIo::new(stream), service));
        // hyper has no deadline before it knows the version of HTTP, which a single byte can put off for ever.
        let mut silence = pin!(tokio::time::sleep(self.header_timeout));
        let mut waiting = true;
        let mut closing = false;
        let result = loop {
            tokio::select! {
                result = connection.as_mut() => break result,
                () = self.cut.cancelled() => return,
                () = self.shutdown.cancelled(), if !closing => {
                    closing = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = silence.as_mut(), if waiting => {
                    waiting = false;
                    if !heard.load(Ordering::Relaxed) {
                        return;
                    }
                }
            }
        };
        if let Err(error) = result {
            debug!(error, "connection ended");
        }
    }
}

/// Runs what hyper spawns for HTTP/2 streams where the drain can wait for it.
#[derive(Clone)]
struct Tracked(TaskTracker);

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Tracked {
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}

fn http(limits: &Limits, tracker: &TaskTracker) -> auto::Builder<Tracked> {
    let mut builder = auto::Builder::new(Tracked(tracker.clone()));
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_buf_size(MAX_HEAD)
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .max_header_list_size(MAX_HEADER_LIST)
        .max_concurrent_streams(MAX_STREAMS);
    builder
}

/// Where the system cannot do it, the kernel's own bound holds.
fn bound_unsent(stream: &TcpStream) {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = socket2::SockRef::from(stream).set_tcp_notsent_lowat(UNSENT);
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = (stream, UNSENT);
}

async fn pause_after(error: &io::Error) {
    // A peer that left before we looked is no trouble of ours.
    if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
        return;
    }
    warn!(%error, "a connection could not be accepted");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// Says that there is no room, as far as one write can.
fn turn_away(stream: TcpStream, status: StatusCode) {
    let busy =
        format!("HTTP/1.1 {status}\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    // A socket this young can take it, but tokio does not know that yet.
    if let Ok(mut stream) = stream.into_std() {
        let _ = stream.write(busy.as_bytes());
    }
}

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
#[allow(clippy::unwrap_used, reason = "in tests a panic is the failure")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn little_is_taken_for_a_peer_that_does_not_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        bound_unsent(&stream);
        stream.writable().await.unwrap();
        let mut taken = 0;
        while let Ok(bytes) = stream.try_write(&[0; 4096]) {
            taken += bytes;
        }
        // And what fits into the peer's own window, which is half a megabyte at most.
        assert!(taken < (1 << 20), "{taken} bytes");
    }
}
