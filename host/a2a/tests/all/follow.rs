//! Subscriptions: any number of readers follow a task until it is over, and all get the same events.

use serde_json::json;

use crate::kit::Host;
use crate::wire::{ALL, Ask, Wire, state};

/// Creates a task that waits for input, and returns its id.
async fn asking(wire: Wire, host: &Host, text: &str) -> String {
    let sent = wire.get(host, &Ask::Send(wire.params(text))).await;
    let task = if wire == Wire::OldRpc { &sent } else { &sent["task"] };
    assert_eq!(state(&task["status"]), "input-required", "{sent}");
    task["id"].as_str().unwrap().to_owned()
}

async fn answer(wire: Wire, host: &Host, task: &str, text: &str) {
    let mut message = wire.message(text);
    message["taskId"] = json!(task);
    wire.get(host, &Ask::Send(json!({ "message": message }))).await;
}

#[tokio::test]
async fn a_subscription_to_a_task_that_waits_for_input_carries_the_next_turn() {
    let host = Host::start().await;
    for wire in ALL {
        for (text, done) in [("ask", "echo: this one"), ("question", "answer: this one")] {
            let id = asking(wire, &host, text).await;
            let mut readers = Vec::new();
            for reader in ALL {
                let mut stream = reader.subscribe(&host, &id, None).await.ok().unwrap();
                let first = stream.next().await.unwrap();
                assert_eq!(reader.brief(&first), "task input-required", "{reader:?}");
                readers.push((reader, stream));
            }
            answer(wire, &host, &id, "this one").await;
            let mut numbers = None;
            for (reader, mut stream) in readers {
                let frames = stream.rest().await;
                let briefs: Vec<_> = frames.iter().map(|frame| reader.brief(frame)).collect();
                let last = if reader.is_old() { "status completed final" } else { "status completed" };
                let reply = format!("artifact reply {done:?} lastChunk");
                assert_eq!(briefs[0], "status working", "{reader:?} {text}: {briefs:?}");
                assert_eq!(briefs[briefs.len() - 2..], [reply.as_str(), last], "{reader:?} {text}");
                let ids: Vec<_> = frames.iter().map(|frame| frame.id).collect();
                assert_eq!(*numbers.get_or_insert(ids.clone()), ids, "the same events for all readers");
            }
        }
    }
}

#[tokio::test]
async fn a_subscription_stays_open_after_a_second_question() {
    let host = Host::start().await;
    for wire in ALL {
        let id = asking(wire, &host, "ask").await;
        let mut stream = wire.subscribe(&host, &id, None).await.ok().unwrap();
        stream.next().await.unwrap();
        answer(wire, &host, &id, "ask again").await;
        let mut seen = String::new();
        while !seen.starts_with("status input-required") {
            seen = wire.brief(&stream.next().await.unwrap());
        }
        answer(wire, &host, &id, "done").await;
        let rest = stream.rest().await;
        assert!(wire.brief(rest.last().unwrap()).starts_with("status completed"), "{wire:?}");
    }
}

#[tokio::test]
async fn a_task_that_is_over_is_rejected_in_1_0_and_shown_once_in_0_3() {
    let host = Host::start().await;
    let sent = host.call("SendMessage", &json!({ "message": crate::kit::message("as-task") })).await;
    let id = sent["result"]["task"]["id"].as_str().unwrap();
    for wire in ALL {
        match wire.subscribe(&host, id, None).await {
            Ok(mut stream) => {
                assert!(wire.is_old(), "{wire:?}");
                let frames = stream.rest().await;
                assert_eq!(
                    frames.iter().map(|frame| wire.brief(frame)).collect::<Vec<_>>(),
                    ["task completed"]
                );
            }
            Err(answer) => {
                assert!(!wire.is_old(), "{wire:?}");
                assert_eq!(wire.reason(&answer), "UNSUPPORTED_OPERATION");
            }
        }
    }
}

#[tokio::test]
async fn http_json_subscribes_by_get_or_post() {
    let host = Host::start().await;
    for (wire, prefix) in [(Wire::Rest, ""), (Wire::OldRest, "/v1")] {
        let id = asking(wire, &host, "ask").await;
        for method in ["GET", "POST"] {
            let path = format!("{prefix}/tasks/{id}:subscribe");
            let version = if wire.is_old() { "0.3" } else { "1.0" };
            let stream = crate::sse::Sse::open(&host, method, &path, &[("A2A-Version", version)], b"").await;
            let first = stream.unwrap_or_else(|answer| panic!("{answer:?}")).next().await.unwrap();
            assert_eq!(wire.brief(&first), "task input-required", "{method} {path}");
        }
    }
}

#[tokio::test]
async fn rejects_event_numbers_that_the_task_does_not_have_before_the_stream_opens() {
    let host = Host::start().await;
    for wire in ALL {
        let id = asking(wire, &host, "ask").await;
        for bad in ["999", "-1", "abc", "1.5", "18446744073709551616", "18446744073709551615", "1 2"] {
            let answer =
                wire.open(&host, &[("Last-Event-ID", bad)], &Ask::Subscribe(&id)).await.err().unwrap();
            let (status, code, reason, field) = wire.error(&answer);
            assert_eq!((&*reason, &*field), ("INVALID_PARAMS", "Last-Event-ID"), "{wire:?} {bad}");
            assert_eq!((status, code), if wire.is_rest() { (400, 400) } else { (200, -32602) }, "{wire:?}");
        }
        let mut last = wire.subscribe(&host, &id, Some(3)).await.ok().unwrap();
        answer(wire, &host, &id, "go").await;
        assert!(wire.brief(&last.next().await.unwrap()).starts_with("status working"), "{wire:?}");
    }
}
