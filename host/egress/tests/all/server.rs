//! Servers on loopback: a proper one made of a function, and a raw one that sends exactly the bytes of a test.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;
pub(crate) type Answer = http::Response<Body>;

/// A server that is up, and how often it was asked.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    requests: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
}

impl Server {
    /// Answers every request with what the function makes of it.
    pub(crate) async fn start<F>(
        answer: impl Fn(http::Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        Self::start_with(|stream| async { Some(stream) }, answer).await
    }

    /// The same, behind something done to each connection first, such as TLS.
    pub(crate) async fn start_with<F, W, S>(
        wrap: impl Fn(TcpStream) -> W + Clone + Send + Sync + 'static,
        answer: impl Fn(http::Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Answer> + Send + 'static,
        W: Future<Output = Option<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let requests = Arc::new(AtomicUsize::new(0));
        let connections = Arc::new(AtomicUsize::new(0));
        let server = Self { address, requests: requests.clone(), connections: connections.clone() };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                let (wrap, answer, requests) = (wrap.clone(), answer.clone(), requests.clone());
                tokio::spawn(async move {
                    let Some(stream) = wrap(stream).await else { return };
                    let service = service_fn(move |request| {
                        requests.fetch_add(1, Ordering::SeqCst);
                        let answer = answer(request);
                        async move { Ok::<_, Infallible>(answer.await) }
                    });
                    let _ = auto::Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        server
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// A pattern that allows everything here.
    pub(crate) fn pattern(&self) -> String {
        format!("* http://{}/*", self.address)
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

pub(crate) fn body(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).boxed_unsync()
}

/// A body that sends this text and never ends.
pub(crate) fn open_body(text: impl Into<Bytes>) -> Body {
    let first = stream::iter([Ok(Frame::data(text.into()))]);
    StreamBody::new(futures_util::StreamExt::chain(first, stream::pending())).boxed_unsync()
}

/// Answers with method, path, HTTP version, headers in order, and body of the request.
pub(crate) async fn echo(request: http::Request<Incoming>) -> Answer {
    let (head, incoming) = request.into_parts();
    let mut text = format!("{} {} {:?}\n", head.method, head.uri, head.version);
    for (name, value) in &head.headers {
        text.push_str(&format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())));
    }
    let sent = incoming.collect().await.expect("the request's body").to_bytes();
    text.push_str(&format!("\n{}", String::from_utf8_lossy(&sent)));
    http::Response::new(body(text))
}

/// A connection that a test scripted.
pub(crate) struct Raw {
    pub(crate) address: SocketAddr,
    asked: oneshot::Receiver<()>,
    serving: JoinHandle<()>,
}

impl Raw {
    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// A pattern that allows everything here.
    pub(crate) fn pattern(&self) -> String {
        format!("* http://{}/*", self.address)
    }

    /// Returns when the request's head was read.
    pub(crate) async fn asked(&mut self) {
        (&mut self.asked).await.expect("a request");
    }

    /// Returns when the client has closed the connection.
    pub(crate) async fn closed(self) {
        let serving = tokio::time::timeout(crate::PATIENCE, self.serving).await;
        serving.expect("the client left the connection open").expect("a server without a panic");
    }
}

/// Reads one request's head from one connection, writes these bytes, then waits until the client closes.
pub(crate) async fn raw(answer: impl Into<Vec<u8>>) -> Raw {
    serve_raw(answer.into(), true).await
}

/// The same, but the server closes right after the answer.
pub(crate) async fn raw_and_close(answer: impl Into<Vec<u8>>) -> Raw {
    serve_raw(answer.into(), false).await
}

async fn serve_raw(answer: Vec<u8>, wait: bool) -> Raw {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let (asking, asked) = oneshot::channel();
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut seen = Vec::new();
        while !seen.windows(4).any(|window| window == b"\r\n\r\n") {
            if stream.read_buf(&mut seen).await.expect("a request") == 0 {
                return;
            }
        }
        let _ = asking.send(());
        // The client may refuse the answer before it has taken all of it.
        let _ = stream.write_all(&answer).await;
        while wait && stream.read_buf(&mut seen).await.is_ok_and(|read| read > 0) {}
    });
    Raw { address, asked, serving }
}

/// A body of `pieces` times 1 MiB, and a promise of how many were made when the body is dropped.
pub(crate) fn long_body(pieces: usize) -> (Body, oneshot::Receiver<usize>) {
    struct Guard(usize, Option<oneshot::Sender<usize>>);
    impl Drop for Guard {
        fn drop(&mut self) {
            let _ = self.1.take().map(|ended| ended.send(self.0));
        }
    }
    let (ended, made) = oneshot::channel();
    let piece = Bytes::from(vec![b'x'; 1 << 20]);
    let frames = stream::unfold((Guard(0, Some(ended)), piece), move |(mut guard, piece)| async move {
        let frame = Ok::<_, Infallible>(Frame::data(piece.clone()));
        let more = guard.0 < pieces;
        guard.0 += 1;
        more.then_some((frame, (guard, piece)))
    });
    (BodyExt::boxed_unsync(StreamBody::new(frames)), made)
}

/// A server that answers the first request with a body like this, the others with nothing.
pub(crate) fn once(long: Body) -> impl Fn(http::Request<Incoming>) -> std::future::Ready<Answer> + Clone {
    let long = Arc::new(Mutex::new(Some(long)));
    move |_request| {
        let long = long.lock().expect("unpoisoned").take();
        std::future::ready(http::Response::new(long.unwrap_or_else(|| body(""))))
    }
}
