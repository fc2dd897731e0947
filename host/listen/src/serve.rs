//! Sockets and connections: HTTP/1.1 and HTTP/2 without TLS, on one port.
//!
//! The bounds: the number of connections (one more gets a response and is closed, never left waiting), the time to the
//! first request and to each request's headers, the size of the headers, the streams of one HTTP/2 connection and what they
//! may send ahead, the time that a peer may take too little of a response (`stall`). A peer that does nothing costs a socket
//! for [`Limits::header_timeout`]. The handler bounds the bodies that it reads, see [`read_body`](crate::read_body).
//!
//! On shutdown no connection is accepted any more, requests in progress finish within [`Limits::grace`], and connections
//! that are left then are closed.
//!
//! This module does not know what is served, so every server of the product is bounded in the same way. A request reaches the
//! handler only through a [`Door`].

use std::error::Error;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, Version};
use hyper::body::{Body, Incoming};
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tracing::{debug, info, warn};

use crate::door::Door;
use crate::stall::{Io, Paced, Watched};
use crate::workers::Spread;

/// Bounds of the connections to one port.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Concurrent connections; one more is rejected.
    pub connections: usize,
    /// The status of the response to a rejected connection: 429, or 503 where the peer would take a 4xx for its own fault.
    pub busy: StatusCode,
    /// The longest wait for the first request of a connection, and for each request's headers. It also closes idle
    /// HTTP/1.1 connections.
    pub header_timeout: Duration,
    /// The time within which a peer must take 16 KiB, or all there is, while there is something to write; else its connection
    /// is closed.
    pub stall: Duration,
    /// The longest wait for requests in progress on shutdown.
    pub grace: Duration,
}

/// Bytes of a request's head over HTTP/1.1, and the most that is read at a time. Twice what nginx accepts.
const MAX_HEAD: usize = 64 * 1024;
/// Bytes of a request's headers over HTTP/2, hyper's own default.
const MAX_HEADER_LIST: u32 = 16 * 1024;
/// Concurrent requests on one HTTP/2 connection. The least that RFC 9113 recommends.
const MAX_STREAMS: u32 = 100;
/// Bytes that a peer may send on one HTTP/2 stream, and on the whole connection, before the handler takes them. Enough for
/// 10 MB/s over a distance of 50 ms.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 512 * 1024;
/// Bytes of one HTTP/2 stream that wait to be written.
const STREAM_UNSENT: usize = 64 * 1024;
/// Unsent bytes that the kernel buffers for a connection. By default it buffers megabytes for a peer that does not read.
/// Bytes in flight do not count, so a fast peer far away gets no less.
const UNSENT: u32 = 128 * 1024;
/// The interval of HTTP/2 pings, and the wait for their response: a peer that vanished is noticed after twice this.
const PING: Duration = Duration::from_secs(20);
/// A request with a larger body is answered on the shared runtime. To parse this much takes about a tenth of a millisecond.
const SMALL_BODY: u64 = 64 * 1024;
/// The longest wait for connections to close after the grace period.
const CUT_OFF: Duration = Duration::from_secs(1);
/// The pause after a failed accept, which usually means that the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers the requests that `door` lets in with `handle` until `shutdown`, and then until requests in progress are answered
/// or the grace period ends. Connections over the limit are counted in `rejected`. Connections stay on this runtime; a server
/// that is called often spreads them with [`Spread::serve`].
pub async fn serve<H, F, B>(
    listener: TcpListener,
    limits: Limits,
    door: Door<B>,
    rejected: Arc<AtomicU64>,
    shutdown: CancellationToken,
    handle: H,
) where
    H: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
{
    Spread::default().serve(listener, limits, door, rejected, shutdown, handle).await;
}

impl Spread {
    /// Like [`serve`], with each connection on a worker.
    pub async fn serve<H, F, B>(
        &self,
        listener: TcpListener,
        limits: Limits,
        door: Door<B>,
        rejected: Arc<AtomicU64>,
        shutdown: CancellationToken,
        handle: H,
    ) where
        H: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
    {
        let tracker = TaskTracker::new();
        let room = Arc::new(Semaphore::new(limits.connections));
        let connections = Arc::new(Connections {
            handle,
            door,
            spread: self.clone(),
            http: http(&limits, &tracker),
            tracker: tracker.clone(),
            header_timeout: limits.header_timeout,
            stall: limits.stall,
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
                    warn!(limit = limits.connections, "too many connections; rejecting more");
                }
                rejected.fetch_add(1, Ordering::Relaxed);
                reject(stream, limits.busy);
                continue;
            };
            was_full = false;
            let (connections, peer) = (Arc::clone(&connections), Peer(peer));
            let Some(place) = self.place() else {
                tracker.spawn(async move {
                    connections.serve(stream, peer).await;
                    drop(permit);
                });
                continue;
            };
            let moved = stream.into_std();
            let runtime = place.runtime().clone();
            let on_worker = async move {
                match moved.and_then(TcpStream::from_std) {
                    Ok(stream) => connections.serve(stream, peer).await,
                    Err(error) => warn!(%error, "cannot hand a connection to its worker"),
                }
                drop((place, permit));
            };
            tracker.spawn_on(on_worker, &runtime);
        }
        drop(listener);
        tracker.close();
        if tokio::time::timeout(limits.grace, tracker.wait()).await.is_err() {
            info!(left = tracker.len(), "grace period over; closing connections with requests in progress");
            connections.cut.cancel();
            // Only destructors are left to wait for.
            let _ = tokio::time::timeout(CUT_OFF, tracker.wait()).await;
        }
    }
}

/// The address of the peer; every request has it among its extensions.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub SocketAddr);

/// The state that all connections share.
struct Connections<H, B> {
    handle: H,
    door: Door<B>,
    spread: Spread,
    http: auto::Builder<Tracked>,
    tracker: TaskTracker,
    header_timeout: Duration,
    stall: Duration,
    /// Finish the requests in progress.
    shutdown: CancellationToken,
    /// Close the connections.
    cut: CancellationToken,
}

// === impl Connections ===

impl<H, F, B> Connections<H, B>
where
    H: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
{
    /// Begins to answer a request, on the shared runtime if its body may be large.
    fn answer(&self, request: Request<Incoming>) -> Answer<F, B> {
        let is_small = request.body().size_hint().upper().is_some_and(|bytes| bytes <= SMALL_BODY);
        let shared = self.spread.shared().filter(|_| !is_small);
        let response = (self.handle)(request);
        match shared {
            Some(shared) => Answer::Shared(AbortOnDropHandle::new(self.tracker.spawn_on(response, shared))),
            None => Answer::Here(response),
        }
    }

    async fn serve(&self, stream: TcpStream, peer: Peer) {
        // Responses are small and written at once.
        let _ = stream.set_nodelay(true);
        bound_unsent(&stream);
        let has_request = AtomicBool::new(false);
        let watched = Arc::new(Watched::default());
        let service = service_fn(|mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer);
            has_request.store(true, Ordering::Relaxed);
            let watched = (request.version() == Version::HTTP_2).then(|| Arc::clone(&watched));
            let answer = match self.door.refuse(&request) {
                Some(refusal) => Err(refusal),
                None => Ok(self.answer(request)),
            };
            async move {
                let response = match answer {
                    Ok(Answer::Here(response)) => response.await,
                    // If it panics there, the connection ends, as it does if it panics here.
                    Ok(Answer::Shared(response)) => response.await?,
                    Err(refusal) => refusal,
                };
                Ok::<_, JoinError>(
                    response.map(|body| Paced::new(body, watched.map(|watched| watched.begin()))),
                )
            }
        });
        let io = Io::new(TokioIo::new(stream), self.stall);
        let mut connection = pin!(self.http.serve_connection(io, service));
        // hyper has no deadline until it knows the version of HTTP, which a peer can delay for ever with a single byte.
        let mut silence = pin!(tokio::time::sleep(self.header_timeout));
        let mut look = pin!(tokio::time::sleep(self.stall));
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
                () = look.as_mut() => {
                    if watched.is_stalled(self.stall) {
                        debug!("connection closed: the peer takes too little of a response");
                        return;
                    }
                    look.as_mut().reset(Instant::now() + self.stall / 2);
                }
                () = silence.as_mut(), if waiting => {
                    waiting = false;
                    if !has_request.load(Ordering::Relaxed) {
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

/// A response that is on its way.
enum Answer<F, B> {
    /// The handler runs in the connection's task.
    Here(F),
    /// It runs on the shared runtime.
    Shared(AbortOnDropHandle<Response<B>>),
}

/// Spawns hyper's tasks for HTTP/2 streams on the tracker, so that the shutdown waits for them.
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
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(STREAM_UNSENT);
    builder
}

/// Bounds the bytes that the kernel buffers, on systems that can; elsewhere the kernel's own bound applies.
fn bound_unsent(stream: &TcpStream) {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = socket2::SockRef::from(stream).set_tcp_notsent_lowat(UNSENT);
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = (stream, UNSENT);
}

async fn pause_after(error: &io::Error) {
    // The peer left before its connection was accepted: nothing is wrong here.
    if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
        return;
    }
    warn!(%error, "cannot accept a connection");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// Responds that the server is busy, as far as a single write can.
fn reject(stream: TcpStream, status: StatusCode) {
    let busy =
        format!("HTTP/1.1 {status}\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    // A new socket has room for it, but tokio does not know that yet.
    if let Ok(mut stream) = stream.into_std() {
        let _ = stream.write(busy.as_bytes());
    }
}

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
#[allow(clippy::unwrap_used, reason = "in tests a panic is the failure")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn little_is_buffered_for_a_peer_that_does_not_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        bound_unsent(&stream);
        stream.writable().await.unwrap();
        let mut buffered = 0;
        while let Ok(bytes) = stream.try_write(&[0; 4096]) {
            buffered += bytes;
        }
        // This includes the peer's receive window, which is half a megabyte at most.
        assert!(buffered < (1 << 20), "{buffered} bytes");
    }
}
