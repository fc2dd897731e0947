//! Streams: in order, numbered, resumed exactly, paced by their readers, and never in the way of the turn.

use std::sync::atomic::Ordering;
use std::time::Duration;

use secrecy::SecretString;
use serde_json::json;
use talaria_a2a::Token;
use talaria_turns::Limits;

use crate::kit::{Host, PATIENCE, patiently};
use crate::sse::Frame;
use crate::wire::{ALL, Ask, Wire};

/// Whatever is said before the end of a turn that says everything.
const SAID: [&str; 11] = [
    "task submitted",
    "status working",
    "note talaria/status",
    "note talaria/tool-progress",
    "note talaria/mood",
    "chunk \"Hel\"",
    "artifact doc \"one \"",
    "artifact doc \"two\" append lastChunk",
    "chunk \"lo\"",
    "artifact reply \"Hello\" lastChunk",
    "status completed",
];

fn said(wire: Wire) -> Vec<String> {
    let mut said: Vec<_> = SAID.iter().map(|&brief| brief.to_owned()).collect();
    if wire.is_old() {
        said[10] += " final";
    }
    said
}

fn briefs(wire: Wire, frames: &[Frame]) -> Vec<String> {
    frames.iter().map(|frame| wire.brief(frame)).collect()
}

fn task_of(wire: Wire, frame: &Frame) -> String {
    let data = wire.inner(frame);
    let task = if wire == Wire::OldRpc { &data } else { &data["task"] };
    task["id"].as_str().unwrap_or_else(|| panic!("no task: {data}")).to_owned()
}

#[tokio::test]
async fn everything_comes_in_order_with_its_number_on_every_wire() {
    let host = Host::start().await;
    for wire in ALL {
        let mut stream = wire.stream(&host, "say").await;
        for (name, value) in [
            ("content-type", "text/event-stream"),
            ("cache-control", "no-store"),
            ("x-accel-buffering", "no"),
            ("a2a-version", if wire.is_old() { "0.3" } else { "1.0" }),
            ("vary", "A2A-Version, A2A-Extensions, Accept"),
        ] {
            assert_eq!(stream.head.header(name), Some(value), "{wire:?} {name}");
        }
        let frames = stream.rest().await;
        assert_eq!(briefs(wire, &frames), said(wire), "{wire:?}");
        let ids: Vec<_> = frames.iter().map(|frame| frame.id.unwrap()).collect();
        // Event 7 is the checkpoint, which is not for the wire.
        assert_eq!(ids, [1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12], "{wire:?}");
    }
}

#[tokio::test]
async fn the_bytes_of_a_frame() {
    let host = Host::start().await;
    let mut stream = Wire::Rest.stream(&host, "say").await;
    let mut frames = Vec::new();
    while let Some(frame) = stream.next_raw().await {
        frames.push(frame);
    }
    let note = frames[3].clone();
    let (head, data) = note.split_once("\ndata: ").unwrap();
    assert_eq!(head, "id: 4");
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    let update = &data["statusUpdate"];
    assert_eq!(update["status"], json!({ "state": "TASK_STATE_WORKING" }));
    let progress = &update["metadata"]["talaria/tool-progress"];
    assert_eq!((&progress["name"], &progress["state"]), (&json!("ls"), &json!("started")));
    assert!(frames.iter().all(|frame| frame.lines().count() == 2), "{frames:?}");
    for frame in &frames {
        let data = frame.split_once("data: ").unwrap().1;
        let read: a2a::StreamResponse = serde_json::from_str(data).unwrap();
        let ours: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), ours, "the Rust SDK reads it and writes the same");
    }
}

#[tokio::test]
async fn a_stream_resumes_exactly_at_every_cut() {
    let host = Host::start().await;
    for wire in ALL {
        let live = wire.stream(&host, "say").await.rest().await;
        let id = task_of(wire, &live[0]);
        let all = wire.subscribe(&host, &id, Some(0)).await.ok().unwrap().rest().await;
        assert_eq!(all, live[1..], "{wire:?}: a replay from the beginning is what was seen live");
        let last = live.last().unwrap().id.unwrap();
        for after in 1..last {
            let missed: Vec<_> = live.iter().filter(|frame| frame.id.unwrap() > after).cloned().collect();
            let resumed = wire.subscribe(&host, &id, Some(after)).await.ok().unwrap().rest().await;
            assert_eq!(resumed, missed, "{wire:?} after {after}");
        }
        let ended = wire.subscribe(&host, &id, Some(last)).await;
        match ended {
            Ok(mut stream) if wire.is_old() => {
                assert_eq!(briefs(wire, &stream.rest().await), ["task completed"], "0.3 shows the task once");
            }
            Err(answer) if !wire.is_old() => assert_eq!(wire.reason(&answer), "UNSUPPORTED_OPERATION"),
            _ => panic!("{wire:?}"),
        }
    }
}

#[tokio::test]
async fn a_stream_that_was_cut_while_the_turn_runs_goes_on() {
    let host = Host::start().await;
    for wire in ALL {
        let mut first = wire.stream(&host, "say wait").await;
        let mut seen = Vec::new();
        while seen.len() < 5 {
            seen.push(first.next().await.unwrap());
        }
        drop(first);
        let id = host.next_waiting().await;
        let mut second = wire.subscribe(&host, id.as_str(), seen.last().unwrap().id).await.ok().unwrap();
        while seen.len() < 9 {
            seen.push(second.next().await.unwrap());
        }
        host.script.go.add_permits(1);
        seen.extend(second.rest().await);
        assert_eq!(briefs(wire, &seen), said(wire), "{wire:?}");
    }
    assert_eq!(host.made(), 4, "a client that hangs up ends nothing, and a subscription begins nothing");
}

#[tokio::test]
async fn a_send_that_is_sent_again_goes_on_where_it_was_cut() {
    // Where nobody has a name, the same id from two callers is two messages.
    let token = Token::new("caller", SecretString::from("s3cret")).unwrap();
    let host = Host::with(|config| config.tokens = vec![token], Limits::default()).await;
    let caller = ("authorization", "Bearer s3cret");
    for wire in ALL {
        let before = host.made();
        let ask = Ask::Stream(wire.params("say"));
        let open = async |ask: &Ask<'_>, after: Option<&str>| {
            let after = after.map(|after| ("Last-Event-ID", after));
            let headers: Vec<_> = [caller].into_iter().chain(after).collect();
            match wire.open(&host, &headers, ask).await {
                Ok(mut stream) => Ok(stream.rest().await),
                Err(answer) => Err(answer),
            }
        };
        let live = open(&ask, None).await.unwrap();
        assert_eq!(open(&ask, Some("5")).await.unwrap(), live[5..], "{wire:?}");
        assert_eq!(open(&ask, Some("12")).await.unwrap(), [], "{wire:?}: everything was seen");
        assert_eq!(briefs(wire, &open(&ask, None).await.unwrap()), ["task completed"], "{wire:?}");
        assert_eq!(host.made(), before + 1);

        let new = Ask::Stream(wire.params("say"));
        for (ask, after) in [(&new, "1"), (&ask, "13"), (&ask, "x")] {
            let answer = open(ask, Some(after)).await.unwrap_err();
            let (_, _, reason, field) = wire.error(&answer);
            assert_eq!((&*reason, &*field), ("INVALID_PARAMS", "Last-Event-ID"), "{wire:?} {after}");
        }
        assert_eq!(host.made(), before + 1, "nothing was changed");
    }
}

#[tokio::test]
async fn an_answer_that_is_one_message_is_one_event() {
    let host = Host::start().await;
    for wire in ALL {
        let frames = wire.stream(&host, "as-message").await.rest().await;
        assert_eq!(briefs(wire, &frames), ["message \"echo: as-message\""], "{wire:?}");
        assert!(!format!("{frames:?}").contains("talaria/reply"), "that is between the executor and us");
        let frames = wire.stream(&host, "hello").await.rest().await;
        let last = if wire.is_old() { "status completed final" } else { "status completed" };
        let expected = ["task submitted", "status working", "artifact reply \"echo: hello\" lastChunk", last];
        assert_eq!(briefs(wire, &frames), expected, "{wire:?}");
    }
}

#[tokio::test]
async fn the_first_event_waits_no_longer_than_the_hold() {
    let quick = Duration::from_millis(50);
    let host = Host::with(|config| config.limits.hold = quick, Limits::default()).await;
    for wire in ALL {
        let mut stream = wire.stream(&host, "wait").await;
        host.next_waiting().await;
        let held = [stream.next().await.unwrap(), stream.next().await.unwrap()];
        assert_eq!(briefs(wire, &held), ["task submitted", "status working"], "{wire:?}");
        host.script.go.add_permits(1);
        assert_eq!(stream.rest().await.len(), 2);
    }
}

#[tokio::test]
async fn interrupted_and_failed_turns_end_the_stream_of_a_send() {
    let host = Host::start().await;
    for (text, end) in [
        ("ask", "status input-required \"echo: ask\""),
        ("question", "status input-required \"which?\""),
        ("fail", "status failed \"[hermes-agent unreachable] refused\""),
        ("reject", "status rejected \"echo: reject\""),
    ] {
        for wire in ALL {
            let frames = wire.stream(&host, text).await.rest().await;
            let end = if wire.is_old() { format!("{end} final") } else { end.to_owned() };
            assert_eq!(briefs(wire, &frames), ["task submitted", "status working", &end], "{wire:?}");
        }
    }
}

#[tokio::test]
async fn a_slow_reader_stalls_nobody_and_misses_nothing() {
    let host = Host::start().await;
    let pieces = 12_000;
    // Some 14 MB: more than the sockets between us hold.
    let mut slow = Wire::Rest.stream(&host, &format!("flood {pieces}")).await;
    let first = slow.next().await.unwrap();
    let id = task_of(Wire::Rest, &first);
    let mut quick = Wire::Rpc.subscribe(&host, &id, None).await.ok().unwrap();
    let mut last = 0;
    while let Some(frame) = quick.next().await {
        assert!(frame.id > Some(last));
        last = frame.id.unwrap();
    }
    assert_eq!(host.script.emitted.load(Ordering::SeqCst), pieces, "the turn ran to its end");
    let numbers: Vec<_> = slow.rest().await.iter().map(|frame| frame.id.unwrap()).collect();
    assert_eq!(numbers, (2..=last).collect::<Vec<_>>(), "each once, in order");
}

#[tokio::test]
async fn silence_is_broken_by_comments() {
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
        assert!(closing.retry.is_some(), "and when: {wire:?}");
        assert_eq!(briefs(wire, &frames)[0], "task submitted", "what was held back goes out: {wire:?}");
        assert!(frames.iter().all(|frame| frame.id.is_some()), "with a number to resume from");
        assert_eq!(idle.rest().await.len(), 1);
        host.tasks.close();
        patiently(host.tasks.wait()).await;
    }
}

#[tokio::test]
async fn a_shutdown_loses_nothing_that_has_happened() {
    // A reader has as long as it needs: how much it gets within the grace depends on the machine.
    let host = Host::with(|config| config.limits.grace = PATIENCE, Limits::default()).await;
    let mut slow = Wire::Rest.stream(&host, "flood 12000").await;
    let id = task_of(Wire::Rest, &slow.next().await.unwrap());
    let mut quick = Wire::Rpc.subscribe(&host, &id, None).await.ok().unwrap();
    let last = quick.rest().await.last().unwrap().id;
    // The turn is over, and most of what it said still waits for the reader.
    host.shutdown.cancel();
    let rest = slow.rest().await;
    assert_eq!(Wire::Rest.brief(rest.last().unwrap()), "status completed", "not cut short, so not closed");
    assert_eq!(rest.last().unwrap().id, last);
    assert!(rest.windows(2).all(|pair| pair[0].id < pair[1].id));
}

#[tokio::test]
async fn neither_a_silence_nor_a_close_looks_like_an_event_to_a_client_that_takes_every_empty_line_for_one() {
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
async fn a_second_message_to_a_working_task_has_a_stream_of_its_own_turn() {
    let host = Host::start().await;
    for wire in ALL {
        let mut first = wire.stream(&host, "wait").await;
        let id = host.next_waiting().await;
        let mut second = wire.message("hello");
        second["taskId"] = json!(id.as_str());
        let mut second =
            wire.open(&host, &[], &Ask::Stream(json!({ "message": second }))).await.ok().unwrap();
        host.script.go.add_permits(1);
        let (first, second) = (first.rest().await, second.rest().await);
        let mark = if wire.is_old() { " final" } else { "" };
        assert_eq!(briefs(wire, &first).last().unwrap(), &format!("status working{mark}"), "{wire:?}");
        assert_eq!(
            briefs(wire, &second),
            [
                "task working",
                "artifact reply \"echo: wait\" lastChunk",
                "status working",
                "status working",
                "artifact reply \"echo: hello\" lastChunk",
                &format!("status completed{mark}"),
            ],
            "{wire:?}"
        );
    }
}

#[tokio::test]
async fn without_the_capability_there_are_no_streams() {
    let host = Host::with(|config| config.card.streaming = false, Limits::default()).await;
    for wire in ALL {
        for ask in [Ask::Stream(wire.params("hi")), Ask::Subscribe("t")] {
            let answer = wire.open(&host, &[], &ask).await.err().unwrap();
            assert_eq!(wire.reason(&answer), "UNSUPPORTED_OPERATION", "{wire:?} {ask:?}");
        }
    }
    assert_eq!(host.made(), 0);
}

#[tokio::test]
async fn a_client_that_hangs_up_is_noticed_though_nothing_is_said() {
    let host = Host::with(
        |config| (config.limits.connections, config.limits.hold) = (1, Duration::ZERO),
        Limits::default(),
    )
    .await;
    let mut stream = Wire::Rest.stream(&host, "wait").await;
    host.next_waiting().await;
    stream.next().await.unwrap();
    let card = async || host.request("GET", "/.well-known/agent-card.json", &[], b"").await.status;
    assert_eq!((host.counts.streams_open(), host.counts.connections_refused()), (1, 0));
    assert_eq!(card().await, 429, "the stream has the only connection");
    assert_eq!(host.counts.connections_refused(), 1);
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

#[tokio::test]
async fn a_log_that_cannot_be_read_is_said_so_and_no_more() {
    let host = Host::start().await;
    for wire in ALL {
        host.store.broken.store(false, Ordering::SeqCst);
        let live = wire.stream(&host, "say").await.rest().await;
        let id = task_of(wire, &live[0]);
        host.store.broken.store(true, Ordering::SeqCst);
        let frames = wire.subscribe(&host, &id, Some(3)).await.ok().unwrap().rest().await;
        assert_eq!((frames.len(), frames[0].id), (1, None), "{wire:?}");
        let data = frames[0].data.clone().unwrap();
        let code = if wire.is_rest() { 500 } else { -32603 };
        assert_eq!(data["error"]["code"], code, "{wire:?}: {data}");
        assert!(!data.to_string().contains("secret"), "{data}");
    }
}
