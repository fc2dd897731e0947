//! A peer that takes nothing of a response is disconnected; one that is sent nothing is not.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use talaria_listen::{Advice, Door, Limits};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::{Sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The longest that any step of a test may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// The time after which a peer that takes nothing is disconnected.
const STALL: Duration = Duration::from_millis(300);
const LARGE: usize = 32 << 20;

/// A response whose memory tells when it is freed.
struct Told(Vec<u8>, Arc<Notify>);

impl AsRef<[u8]> for Told {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.1.notify_one();
    }
}

/// Ten events with pauses between them that are longer than a stall may be.
struct Slow {
    left: usize,
    pause: Pin<Box<Sleep>>,
}

impl Body for Slow {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        std::task::ready!(self.pause.as_mut().poll(context));
        self.left -= 1;
        self.pause = Box::pin(tokio::time::sleep(2 * STALL));
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"tick")))))
    }
}

struct Server {
    address: SocketAddr,
    tasks: TaskTracker,
    /// Told when the memory of a response is freed.
    freed: Arc<Notify>,
}

type Served = http_body_util::Either<Full<Bytes>, Slow>;

impl Server {
    /// `/slow` is a stream with pauses, everything else a large response.
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, tasks, freed) =
            (listener.local_addr().unwrap(), TaskTracker::new(), Arc::new(Notify::new()));
        let limits = Limits {
            connections: 10,
            busy: StatusCode::TOO_MANY_REQUESTS,
            header_timeout: PATIENCE,
            stall: STALL,
            grace: Duration::ZERO,
        };
        let told = Arc::clone(&freed);
        let handle = move |request: Request<Incoming>| {
            let told = Arc::clone(&told);
            async move {
                let body = match request.uri().path() {
                    "/slow" => Served::Right(Slow { left: 3, pause: Box::pin(tokio::time::sleep(STALL)) }),
                    _ => Served::Left(Full::new(Bytes::from_owner(Told(vec![b'x'; LARGE], told)))),
                };
                http::Response::new(body)
            }
        };
        let advice = Advice { host: "", origin: "" };
        let door = Door::local([], advice, |refusal| refusal.response().map(Served::Left));
        tasks.spawn(talaria_listen::serve(
            listener,
            limits,
            door,
            Arc::default(),
            CancellationToken::new(),
            handle,
        ));
        Self { address, tasks, freed }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn freed(&self) {
        timeout(PATIENCE, self.freed.notified()).await.expect("the response is freed");
    }

    fn get(&self, path: &str) -> Request<Full<Bytes>> {
        Request::get(format!("http://{}{path}", self.address)).body(Full::default()).unwrap()
    }
}

#[tokio::test]
async fn a_peer_that_does_not_read_its_response_is_disconnected() {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    server.freed().await;
    let mut rest = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("the connection is closed");
    assert!(rest.len() < LARGE, "it was cut: {} bytes", rest.len());
}

#[tokio::test]
async fn a_peer_that_keeps_the_window_of_a_stream_closed_is_disconnected() {
    let server = Server::start().await;
    // With a window of nothing the response is never begun, with a small one it stops in the middle.
    for window in [0, 1, 100_000] {
        let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(window)
            .handshake(TokioIo::new(server.connect().await))
            .await
            .unwrap();
        let closed = server.tasks.spawn(connection);
        let response = timeout(PATIENCE, sender.send_request(server.get("/"))).await.unwrap();
        server.freed().await;
        let _ = timeout(PATIENCE, closed).await.expect("the connection is closed");
        drop(response);
    }
}

#[tokio::test]
async fn a_peer_that_reads_slowly_gets_everything() {
    let server = Server::start().await;
    let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(1 << 20)
        .handshake(TokioIo::new(server.connect().await))
        .await
        .unwrap();
    server.tasks.spawn(connection);
    let mut body =
        timeout(PATIENCE, sender.send_request(server.get("/"))).await.unwrap().unwrap().into_body();
    let mut read = 0;
    let mut pauses = 0;
    while let Some(frame) = timeout(PATIENCE, body.frame()).await.unwrap() {
        read += frame.unwrap().into_data().map_or(0, |data| data.len());
        if read / (4 << 20) > pauses {
            pauses += 1;
            tokio::time::sleep(STALL / 2).await;
        }
    }
    assert_eq!(read, LARGE);
}

#[tokio::test]
async fn a_stream_with_nothing_to_say_is_not_stalled() {
    let server = Server::start().await;
    let (mut h1, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(server.connect().await)).await.unwrap();
    server.tasks.spawn(async { drop(connection.await) });
    let (mut h2, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(server.connect().await))
            .await
            .unwrap();
    server.tasks.spawn(async { drop(connection.await) });
    let (old, new) = tokio::join!(h1.send_request(server.get("/slow")), h2.send_request(server.get("/slow")));
    let (old, new) = tokio::join!(old.unwrap().into_body().collect(), new.unwrap().into_body().collect());
    assert_eq!(old.unwrap().to_bytes(), "tickticktick");
    assert_eq!(new.unwrap().to_bytes(), "tickticktick");
}
