//! Streams: ordered, numbered, resumable, paced by their readers, and independent of the turn.

use std::sync::atomic::Ordering;
use std::time::Duration;

use secrecy::SecretString;
use serde_json::json;
use talaria_a2a::Token;
use talaria_turns::Limits;

use crate::kit::Host;
use crate::sse::Frame;
use crate::wire::{ALL, Ask, Wire};

/// The updates of a turn that emits one of everything.
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

pub(crate) fn briefs(wire: Wire, frames: &[Frame]) -> Vec<String> {
    frames.iter().map(|frame| wire.brief(frame)).collect()
}

pub(crate) fn task_of(wire: Wire, frame: &Frame) -> String {
    let data = wire.inner(frame);
    let task = if wire == Wire::OldRpc { &data } else { &data["task"] };
    task["id"].as_str().unwrap_or_else(|| panic!("no task: {data}")).to_owned()
}

#[tokio::test]
async fn every_update_arrives_in_order_with_its_number() {
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
        // Event 7 is the checkpoint, which is not sent.
        assert_eq!(ids, [1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12], "{wire:?}");
    }
}

#[tokio::test]
async fn a_frame_is_an_id_and_one_line_of_data() {
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
        assert_eq!(serde_json::to_value(read).unwrap(), ours, "the Rust SDK reads it and encodes the same");
    }
}

#[tokio::test]
async fn a_stream_resumes_exactly_after_every_event() {
    let host = Host::start().await;
    for wire in ALL {
        let live = wire.stream(&host, "say").await.rest().await;
        let id = task_of(wire, &live[0]);
        let all = wire.subscribe(&host, &id, Some(0)).await.ok().unwrap().rest().await;
        assert_eq!(all, live[1..], "{wire:?}: a replay from the beginning equals the live stream");
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
async fn a_stream_resumes_while_the_turn_is_running() {
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
    assert_eq!(host.made(), 4, "a disconnect cancels nothing, and a subscription starts nothing");
}

#[tokio::test]
async fn a_repeated_send_resumes_its_stream() {
    // Without names, the same id from two callers means two messages.
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
        assert_eq!(open(&ask, Some("12")).await.unwrap(), [], "{wire:?}: nothing is left");
        assert_eq!(briefs(wire, &open(&ask, None).await.unwrap()), ["task completed"], "{wire:?}");
        assert_eq!(host.made(), before + 1);

        let new = Ask::Stream(wire.params("say"));
        for (ask, after) in [(&new, "1"), (&ask, "13"), (&ask, "x")] {
            let answer = open(ask, Some(after)).await.unwrap_err();
            let (_, _, reason, field) = wire.error(&answer);
            assert_eq!((&*reason, &*field), ("INVALID_PARAMS", "Last-Event-ID"), "{wire:?} {after}");
        }
        assert_eq!(host.made(), before + 1, "nothing changed");
    }
}

#[tokio::test]
async fn an_answer_that_is_a_single_message_is_a_single_event() {
    let host = Host::start().await;
    for wire in ALL {
        let frames = wire.stream(&host, "as-message").await.rest().await;
        assert_eq!(briefs(wire, &frames), ["message \"echo: as-message\""], "{wire:?}");
        assert!(
            !format!("{frames:?}").contains("talaria/reply"),
            "the executor's wish is not sent to the caller"
        );
        let frames = wire.stream(&host, "hello").await.rest().await;
        let last = if wire.is_old() { "status completed final" } else { "status completed" };
        let expected = ["task submitted", "status working", "artifact reply \"echo: hello\" lastChunk", last];
        assert_eq!(briefs(wire, &frames), expected, "{wire:?}");
    }
}

#[tokio::test]
async fn the_first_event_is_held_back_no_longer_than_the_hold() {
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
        ("fail", "status failed \"[agent unreachable] connection refused\""),
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
async fn a_slow_reader_delays_nobody_and_misses_nothing() {
    let host = Host::start().await;
    let pieces = 12_000;
    // About 14 MB, which is more than the sockets buffer.
    let mut slow = Wire::Rest.stream(&host, &format!("flood {pieces}")).await;
    let first = slow.next().await.unwrap();
    let id = task_of(Wire::Rest, &first);
    let mut quick = Wire::Rpc.subscribe(&host, &id, None).await.ok().unwrap();
    let mut last = 0;
    while let Some(frame) = quick.next().await {
        assert!(frame.id > Some(last));
        last = frame.id.unwrap();
    }
    assert_eq!(host.script.emitted.load(Ordering::SeqCst), pieces, "the turn ran to completion");
    let numbers: Vec<_> = slow.rest().await.iter().map(|frame| frame.id.unwrap()).collect();
    assert_eq!(numbers, (2..=last).collect::<Vec<_>>(), "each once, in order");
}

#[tokio::test]
async fn a_second_message_to_a_working_task_streams_its_own_turn() {
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
async fn rejects_streams_that_the_card_does_not_offer() {
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
async fn a_failing_log_ends_the_stream_with_an_error_that_reveals_nothing() {
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
