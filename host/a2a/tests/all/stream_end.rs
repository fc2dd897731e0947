//! How streams stay open and how they end: keep-alive comments, shutdown, and a client that disconnects.

use std::time::Duration;

use talaria_turns::Limits;

use crate::kit::{Host, PATIENCE, patiently};
use crate::streaming::{briefs, task_of};
use crate::wire::{ALL, Wire};

#[tokio::test]
async fn a_silent_stream_sends_keep_alive_comments() {
    let quick = Duration::from_millis(30);
    let host = Host::with(
        |config| {
            (config.limits.keep_alive, config.limits.hold) = (quick, Duration::ZERO);
            config.limits.header_timeout = quick;
        },
        Limits::default(),
    )
    .await;
    for wire in ALL {
        let mut stream = wire.stream(&host, "wait").await;
        host.next_waiting().await;
        let mut comments = 0;
        while comments < 2 {
            let frame = stream.next().await.unwrap();
            if let Some(comment) = frame.comment {
                assert_eq!((comment.as_str(), frame.id, frame.data), ("keep-alive", None, None), "{wire:?}");
                comments += 1;
            }
        }
        host.script.go.add_permits(1);
        stream.rest().await;
    }
}

#[tokio::test]
async fn a_shutdown_ends_streams_at_once() {
    for wire in ALL {
        let host = Host::start().await;
        let mut stream = wire.stream(&host, "wait").await;
        let id = host.next_waiting().await;
        let mut idle = wire.subscribe(&host, id.as_str(), None).await.ok().unwrap();
        assert_eq!(wire.brief(&idle.next().await.unwrap()), "task working");
        host.shutdown.cancel();
        let mut frames = stream.rest().await;
        let closing = frames.pop().unwrap();
        assert_eq!((closing.comment.as_deref(), closing.data), (Some("closing"), None));
        assert_eq!(closing.id, frames.last().unwrap().id, "the number to resume from: {wire:?}");
        assert!(closing.retry.is_some(), "the time to wait: {wire:?}");
        assert_eq!(briefs(wire, &frames)[0], "task submitted", "held-back updates are sent: {wire:?}");
        assert!(frames.iter().all(|frame| frame.id.is_some()), "with a number to resume from");
        assert_eq!(idle.rest().await.len(), 1);
        host.tasks.close();
        patiently(host.tasks.wait()).await;
    }
}

#[tokio::test]
async fn a_shutdown_loses_no_event() {
    // The reader has as long as it needs; how much it gets within the default grace period depends on the machine.
    let host = Host::with(|config| config.limits.grace = PATIENCE, Limits::default()).await;
    let mut slow = Wire::Rest.stream(&host, "flood 12000").await;
    let id = task_of(Wire::Rest, &slow.next().await.unwrap());
    let mut quick = Wire::Rpc.subscribe(&host, &id, None).await.ok().unwrap();
    let last = quick.rest().await.last().unwrap().id;
    // The turn is over, and most of its events still wait for the reader.
    host.shutdown.cancel();
    let rest = slow.rest().await;
    assert_eq!(
        Wire::Rest.brief(rest.last().unwrap()),
        "status completed",
        "a complete stream is not closed early"
    );
    assert_eq!(rest.last().unwrap().id, last);
    assert!(rest.windows(2).all(|pair| pair[0].id < pair[1].id));
}

#[tokio::test]
async fn keep_alive_and_close_are_not_events_for_a_client_that_takes_every_empty_line_for_one() {
    let quick = Duration::from_millis(30);
    let host = Host::with(
        |config| (config.limits.keep_alive, config.limits.hold) = (quick, Duration::ZERO),
        Limits::default(),
    )
    .await;
    let mut stream = Wire::Rpc.stream(&host, "wait").await;
    host.next_waiting().await;
    let mut text = String::new();
    while !text.contains(": keep-alive\n: keep-alive\n") {
        text.push_str(&stream.next_bytes().await.unwrap());
    }
    host.shutdown.cancel();
    while let Some(more) = stream.next_bytes().await {
        text.push_str(&more);
    }
    assert!(text.contains(": closing\nid: "), "{text}");
    let blocks: Vec<_> = text.split("\n\n").collect();
    let (rest, events) = blocks.split_last().unwrap();
    assert!(events.iter().all(|block| block.contains("\ndata: ")), "{text}");
    assert!(!rest.is_empty(), "the close is not an event either: {text}");
}

#[tokio::test]
async fn a_disconnect_is_noticed_while_the_stream_is_silent() {
    let host = Host::with(
        |config| (config.limits.connections, config.limits.hold) = (1, Duration::ZERO),
        Limits::default(),
    )
    .await;
    let mut stream = Wire::Rest.stream(&host, "wait").await;
    host.next_waiting().await;
    stream.next().await.unwrap();
    let card = async || host.request("GET", "/.well-known/agent-card.json", &[], b"").await.status;
    assert_eq!((host.counts.streams_open(), host.counts.connections_rejected()), (1, 0));
    assert_eq!(card().await, 429, "the stream uses the only connection");
    assert_eq!(host.counts.connections_rejected(), 1);
    drop(stream);
    patiently(async {
        while card().await != 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(host.counts.streams_open(), 0);
    host.script.go.add_permits(1);
}
