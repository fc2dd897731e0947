//! A streamed response flows as it is read, and ends when it is dropped.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use talaria_egress::{ErrorKind, Exchange};
use tokio::sync::Semaphore;

use crate::server::{Server, body, long_body, once, raw, raw_and_close};
use crate::{access, egress, fails, get};

async fn read_all(exchange: &mut Exchange, max: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(bytes) = exchange.read(max).await.expect("bytes") {
        assert!(!bytes.is_empty() && bytes.len() <= max);
        all.extend_from_slice(&bytes);
    }
    all
}

#[tokio::test]
async fn a_body_is_read_in_chunks_of_the_requested_size() {
    let server = Server::start(|_request| async { http::Response::new(body("hello, world")) }).await;
    for max in [1, 5, 12, 1 << 20] {
        let mut exchange =
            egress().open(&access(&[&server.pattern()]), get(server.url("/"))).await.expect("headers");
        assert_eq!(exchange.status(), 200);
        assert!(
            exchange.headers().contains(&("content-length".into(), "12".into())),
            "{:?}",
            exchange.headers()
        );
        assert_eq!(read_all(&mut exchange, max).await, b"hello, world");
        assert_eq!(exchange.read(max).await.expect("still the end"), None);
    }
}

#[tokio::test]
async fn headers_and_pieces_arrive_before_the_end() {
    // Each permit lets one piece go: the test sees a piece before it allows the next.
    let permits = Arc::new(Semaphore::new(0));
    let server = Server::start({
        let permits = permits.clone();
        move |_request| {
            let permits = permits.clone();
            async move {
                let pieces = stream::unfold(0, move |index| {
                    let permits = permits.clone();
                    async move {
                        permits.acquire().await.expect("open").forget();
                        let frame = Frame::data(Bytes::from(format!("piece {index}")));
                        (index < 3).then_some((Ok::<_, Infallible>(frame), index + 1))
                    }
                });
                http::Response::new(BodyExt::boxed_unsync(StreamBody::new(pieces)))
            }
        }
    })
    .await;
    let mut exchange =
        egress().open(&access(&[&server.pattern()]), get(server.url("/"))).await.expect("headers");
    for index in 0..3 {
        permits.add_permits(1);
        assert_eq!(exchange.read(100).await.expect("a piece"), Some(Bytes::from(format!("piece {index}"))));
    }
    permits.add_permits(1);
    assert_eq!(exchange.read(100).await.expect("the end"), None);
}

#[tokio::test]
async fn a_guest_that_does_not_read_stops_the_sender() {
    const PIECES: usize = 1024;
    let (long, made) = long_body(PIECES);
    let server = Server::start(once(long)).await;
    let mut access = access(&[&server.pattern()]);
    access.bounds.stream_bytes = usize::MAX;
    let mut exchange = egress().open(&access, get(server.url("/"))).await.expect("headers");
    let mut read = 0;
    while read < 8 << 20 {
        read += exchange.read(usize::MAX).await.expect("bytes").expect("more").len();
    }
    drop(exchange);
    // Socket buffers hold some MiB; everything would be a GiB.
    let made = made.await.expect("the server's body was dropped");
    assert!(made < PIECES / 4, "{made} MiB were made for 8 MiB read");
}

#[tokio::test]
async fn dropping_an_exchange_closes_the_connection() {
    let server = raw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n").await;
    let access = access(&[&server.pattern()]);
    let egress = egress();
    let mut exchange = egress.open(&access, get(server.url())).await.expect("headers");
    assert_eq!(exchange.read(100).await.expect("bytes"), Some(Bytes::from_static(b"hello")));
    drop(exchange);
    server.closed().await;
}

#[tokio::test]
async fn dropping_a_call_before_its_headers_closes_the_connection() {
    let mut server = raw("").await;
    let access = access(&[&server.pattern()]);
    let egress = egress();
    tokio::select! {
        _ = egress.open(&access, get(server.url())) => panic!("nobody answered"),
        () = server.asked() => {}
    }
    server.closed().await;
}

#[tokio::test]
async fn a_stream_is_bounded_as_a_whole() {
    let mut answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..1000 {
        answer.extend(b"5\r\nhello\r\n");
    }
    let server = raw(answer).await;
    let mut access = access(&[&server.pattern()]);
    access.bounds.stream_bytes = 1000;
    access.bounds.response_body = 0;
    let mut exchange = egress().open(&access, get(server.url())).await.expect("headers");
    let mut read = 0;
    let error = loop {
        match exchange.read(100).await {
            Ok(bytes) => read += bytes.expect("more").len(),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert_eq!(read, 1000);
    assert_eq!(fails(exchange.read(100).await, ErrorKind::TooLarge), error, "the reason stays");
    server.closed().await;
}

#[tokio::test]
async fn one_deadline_covers_all_reads() {
    let server = raw("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello").await;
    let access = access(&[&server.pattern()]);
    let mut request = get(server.url());
    request.timeout = Some(Duration::from_secs(1));
    let mut exchange = egress().open(&access, request).await.expect("headers");
    assert_eq!(exchange.read(100).await.expect("bytes"), Some(Bytes::from_static(b"hello")));
    let error = fails(exchange.read(100).await, ErrorKind::TimedOut);
    assert_eq!(error.message(), format!("timed out after 1s ({})", server.address));
    server.closed().await;
}

#[tokio::test]
async fn an_incomplete_stream_is_an_error() {
    let server = raw_and_close("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n").await;
    let access = access(&[&server.pattern()]);
    let mut exchange = egress().open(&access, get(server.url())).await.expect("headers");
    assert_eq!(exchange.read(100).await.expect("bytes"), Some(Bytes::from_static(b"hello")));
    fails(exchange.read(100).await, ErrorKind::Protocol);
}

#[tokio::test]
async fn a_read_of_zero_bytes_is_rejected() {
    let server = Server::start(|_request| async { http::Response::new(body("x")) }).await;
    let mut exchange =
        egress().open(&access(&[&server.pattern()]), get(server.url("/"))).await.expect("headers");
    fails(exchange.read(0).await, ErrorKind::InvalidRequest);
    assert_eq!(exchange.read(1).await.expect("bytes"), Some(Bytes::from_static(b"x")));
}

#[tokio::test]
async fn idle_connections_are_reused() {
    let server = Server::start(|_request| async { http::Response::new(body("x")) }).await;
    let (egress, access) = (egress(), access(&[&server.pattern()]));
    for _ in 0..10 {
        egress.fetch(&access, get(server.url("/"))).await.expect("an answer");
    }
    // A connection may come back to the pool just after the next call looked, never ten times in a row.
    assert!(server.connections() < 10, "{} connections for 10 calls", server.connections());
}
