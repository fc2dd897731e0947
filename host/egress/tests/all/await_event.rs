//! Waiting for an event for a limited time.

use std::time::Duration;

use talaria_egress::{ErrorKind, SseEvent};

use crate::server::{Server, body, raw, raw_and_close};
use crate::{PATIENCE, access, egress, fails, get};

const SOON: Duration = Duration::from_millis(5);

fn event(data: &str) -> SseEvent {
    SseEvent { event: "message".into(), data: data.into(), id: None }
}

#[tokio::test]
async fn an_awaited_event_is_kept_until_it_is_read() {
    let server =
        Server::start(|_request| async { http::Response::new(body("data: 1\n\ndata: 2\n\n")) }).await;
    let mut exchange =
        egress().open(&access(&[&server.pattern()]), get(server.url("/"))).await.expect("headers");
    for number in ["1", "2"] {
        for _ in 0..3 {
            assert!(exchange.await_event(PATIENCE).await, "asking again changes nothing");
        }
        assert_eq!(exchange.next_event().await.expect("an event"), Some(event(number)));
    }
    assert!(exchange.await_event(PATIENCE).await, "the end is something to take");
    assert_eq!(exchange.next_event().await.expect("the end"), None);
}

#[tokio::test]
async fn a_wait_without_an_event_returns_false_and_loses_nothing() {
    // The second event has begun; comments are no events.
    let server = raw("HTTP/1.1 200 OK\r\n\r\ndata: one\n\n: keepalive\n\ndata: tw").await;
    let access = access(&[&server.pattern()]);
    let mut exchange = egress().open(&access, get(server.url())).await.expect("headers");
    assert!(exchange.await_event(PATIENCE).await);
    assert_eq!(exchange.next_event().await.expect("an event"), Some(event("one")));
    for _ in 0..3 {
        assert!(!exchange.await_event(SOON).await, "nothing comes");
    }
    drop(exchange);
    server.closed().await;
}

#[tokio::test]
async fn a_failure_ends_the_wait() {
    let server = raw_and_close("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n").await;
    let access = access(&[&server.pattern()]);
    let mut exchange = egress().open(&access, get(server.url())).await.expect("headers");
    assert!(exchange.await_event(PATIENCE).await);
    fails(exchange.next_event().await, ErrorKind::Protocol);
}

#[tokio::test]
async fn the_deadline_of_the_call_applies_while_waiting() {
    let server = raw("HTTP/1.1 200 OK\r\n\r\n").await;
    let mut access = access(&[&server.pattern()]);
    access.bounds.timeout = Duration::from_millis(50);
    let mut exchange = egress().open(&access, get(server.url())).await.expect("headers");
    assert!(exchange.await_event(PATIENCE).await, "longer than the call may take");
    fails(exchange.next_event().await, ErrorKind::TimedOut);
}
