//! Server-sent events arrive parsed, one by one, each within its bound.

use talaria_egress::{ErrorKind, SseEvent};

use crate::server::{Server, body, raw};
use crate::{access, egress, fails, get};

fn event(event: &str, data: &str, id: Option<&str>) -> SseEvent {
    SseEvent { event: event.into(), data: data.into(), id: id.map(Into::into) }
}

#[tokio::test]
async fn events_are_named_joined_and_comments_skipped() {
    let server = Server::start(|_request| async {
        http::Response::new(body(
            ": hello\n\ndata: one\n\nevent: tool\nid: 7\ndata: two\ndata: lines\n\nid: 8\n\nretry: 10\n\n\
             event:\r\ndata:three\r\n\r\n: keep-alive\n\ndata: [DONE]\n\ndata: cut off",
        ))
    })
    .await;
    let mut exchange =
        egress().open(&access(&[&server.pattern()]), get(server.url("/"))).await.expect("headers");
    let mut events = Vec::new();
    while let Some(event) = exchange.next_event().await.expect("an event") {
        events.push(event);
    }
    assert_eq!(
        events,
        [
            event("message", "one", None),
            event("tool", "two\nlines", Some("7")),
            event("message", "three", None),
            event("message", "[DONE]", None),
        ]
    );
    assert_eq!(exchange.next_event().await.expect("still the end"), None);
}

#[tokio::test]
async fn an_event_arrives_while_the_stream_is_open() {
    let server = raw("HTTP/1.1 200 OK\r\n\r\ndata: one\n\ndata: tw").await;
    let access = access(&[&server.pattern()]);
    let mut exchange = egress().open(&access, get(server.url())).await.expect("headers");
    assert_eq!(exchange.next_event().await.expect("an event"), Some(event("message", "one", None)));
    drop(exchange);
    server.closed().await;
}

#[tokio::test]
async fn an_endless_event_hits_its_bound() {
    let mut answer = b"HTTP/1.1 200 OK\r\n\r\ndata: good\n\ndata: ".to_vec();
    answer.resize(1 << 20, b'x');
    let server = raw(answer).await;
    let mut access = access(&[&server.pattern()]);
    access.bounds.sse_event = 1000;
    let mut exchange = egress().open(&access, get(server.url())).await.expect("headers");
    assert_eq!(exchange.next_event().await.expect("an event"), Some(event("message", "good", None)));
    let error = fails(exchange.next_event().await, ErrorKind::TooLarge);
    assert_eq!(error.message(), "an event is longer than 1000 bytes");
    fails(exchange.next_event().await, ErrorKind::TooLarge);
    server.closed().await;
}

#[tokio::test]
async fn endless_events_hit_the_bound_of_the_stream() {
    let server =
        Server::start(|_request| async { http::Response::new(body("data: x\n\n".repeat(1000))) }).await;
    let mut access = access(&[&server.pattern()]);
    access.bounds.stream_bytes = 100;
    fails(egress().open(&access, get(server.url("/"))).await, ErrorKind::TooLarge);
}

#[tokio::test]
async fn events_that_are_not_text_are_a_protocol_error() {
    let server = Server::start(|_request| async { http::Response::new(body(&b"data: \xff\n\n"[..])) }).await;
    let mut exchange =
        egress().open(&access(&[&server.pattern()]), get(server.url("/"))).await.expect("headers");
    let error = fails(exchange.next_event().await, ErrorKind::Protocol);
    assert_eq!(error.message(), "the event stream is not valid UTF-8");
}

#[tokio::test]
async fn a_body_is_read_as_bytes_or_as_events() {
    let server = Server::start(|_request| async { http::Response::new(body("data: x\n\n")) }).await;
    let access = access(&[&server.pattern()]);
    let mut exchange = egress().open(&access, get(server.url("/"))).await.expect("headers");
    assert_eq!(exchange.read(4).await.expect("bytes").expect("some"), "data");
    fails(exchange.next_event().await, ErrorKind::Protocol);
    assert_eq!(exchange.read(100).await.expect("bytes still flow").expect("some"), ": x\n\n");

    let mut exchange = egress().open(&access, get(server.url("/"))).await.expect("headers");
    assert_eq!(exchange.next_event().await.expect("an event"), Some(event("message", "x", None)));
    fails(exchange.read(100).await, ErrorKind::Protocol);
}
