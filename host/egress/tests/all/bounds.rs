//! Sizes and times are bounded, and a call that exceeds one fails instead of hanging.

use std::time::Duration;

use talaria_egress::{Bounds, ErrorKind};

use crate::server::{Server, body, echo, raw, raw_and_close};
use crate::{access, egress, fails, get, post};

#[tokio::test]
async fn a_large_response_is_rejected_whether_announced_or_not() {
    let announced = Server::start(|_request| async { http::Response::new(body("x".repeat(1001))) }).await;
    let mut access_one = access(&[&announced.pattern()]);
    access_one.bounds.response_body = 1000;
    let error = fails(egress().fetch(&access_one, get(announced.url("/"))).await, ErrorKind::TooLarge);
    assert_eq!(error.message(), format!("the response is longer than 1000 bytes ({})", announced.address));
    access_one.bounds.response_body = 1001;
    assert_eq!(egress().fetch(&access_one, get(announced.url("/"))).await.expect("it fits").body.len(), 1001);

    // Chunked and endless: nothing but the bound ends it.
    let mut answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..1000 {
        answer.extend(b"5\r\nhello\r\n");
    }
    let server = raw(answer).await;
    let mut access_two = access(&[&server.pattern()]);
    access_two.bounds.response_body = 1000;
    fails(egress().fetch(&access_two, get(server.url())).await, ErrorKind::TooLarge);
    server.closed().await;
}

#[tokio::test]
async fn a_request_may_ask_for_less_and_not_for_more() {
    let server = Server::start(|_request| async { http::Response::new(body("x".repeat(100))) }).await;
    let mut access = access(&[&server.pattern()]);
    access.bounds.response_body = 50;
    let mut request = get(server.url("/"));
    request.max_bytes = Some(1000);
    fails(egress().fetch(&access, request.clone()).await, ErrorKind::TooLarge);
    access.bounds.response_body = 1000;
    request.max_bytes = Some(99);
    fails(egress().fetch(&access, request.clone()).await, ErrorKind::TooLarge);
    request.max_bytes = Some(100);
    assert_eq!(egress().fetch(&access, request).await.expect("it fits").body.len(), 100);
}

#[tokio::test]
async fn the_length_of_a_head_response_is_not_a_body() {
    let server = Server::start(|_request| async {
        let answer = http::Response::builder().header("content-length", "5000");
        answer.body(body("x".repeat(5000))).expect("an answer")
    })
    .await;
    let mut access = access(&[&server.pattern()]);
    access.bounds.response_body = 10;
    let mut request = get(server.url("/"));
    request.method = "HEAD".into();
    let response = egress().fetch(&access, request).await.expect("an answer");
    assert!(response.body.is_empty());
    assert!(response.headers.contains(&("content-length".into(), "5000".into())), "{:?}", response.headers);
}

#[tokio::test]
async fn a_large_request_is_not_sent() {
    let server = Server::start(echo).await;
    let mut access = access(&[&server.pattern()]);
    access.bounds.request_body = 4;
    let error =
        fails(egress().fetch(&access, post(server.url("/"), "hello")).await, ErrorKind::InvalidRequest);
    assert_eq!(error.message(), "the body is 5 bytes; at most 4 may be sent");
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_silent_server_is_timed_out_by_the_request_or_the_bound() {
    let server = raw("").await;
    let mut access = access(&[&server.pattern()]);
    access.bounds = Bounds { timeout: Duration::from_millis(50), ..Bounds::default() };
    let mut request = get(server.url());
    request.timeout = Some(Duration::from_secs(3600));
    let error = fails(egress().fetch(&access, request).await, ErrorKind::TimedOut);
    assert_eq!(error.message(), format!("timed out after 50ms ({})", server.address));
}

#[tokio::test]
async fn a_body_that_stops_is_timed_out() {
    let server = raw("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello").await;
    let access = access(&[&server.pattern()]);
    let mut request = get(server.url());
    request.timeout = Some(Duration::from_millis(50));
    fails(egress().fetch(&access, request).await, ErrorKind::TimedOut);
}

#[tokio::test]
async fn a_cut_or_garbled_response_is_a_protocol_error() {
    for (answer, expected) in [
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello",
            "connection closed before the end of the response",
        ),
        ("", "connection closed before the end of the response"),
        ("SSH-2.0-OpenSSH_9.2\r\n\r\n", "the response is not valid HTTP"),
        (
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
            "the server switched protocols unasked",
        ),
    ] {
        let server = raw_and_close(answer).await;
        let access = access(&[&server.pattern()]);
        let error = fails(egress().fetch(&access, get(server.url())).await, ErrorKind::Protocol);
        assert_eq!(error.message(), format!("{expected} ({})", server.address));
    }
}
