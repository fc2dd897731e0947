//! Streamed turns.

use std::sync::Arc;

use serde_json::json;
use talaria_fakes::{FakeGateway, Reply, Stream, soon};
use talaria_rig::Ran;
use talaria_turns::{Emitted, FailureKind, Turn, TurnSignal, Usage};
use tokio::sync::Notify;

use super::{KEY, MODEL, message, rig, stream_against};

#[tokio::test]
async fn the_request_differs_in_stream_only() {
    let endpoint = FakeGateway::always(Reply::stream(["hi"])).await;
    let _ = rig(&endpoint).await.secret(KEY, "sk-or-0123456789abcdef").stream("hello").await;
    let request = endpoint.request();
    assert_eq!(request.header("authorization"), Some("Bearer sk-or-0123456789abcdef"));
    assert_eq!(
        request.json(),
        json!({
            "model": MODEL, "messages": [{ "role": "user", "content": "hello" }],
            "reasoning": { "enabled": true }, "stream": true,
        })
    );
}

#[tokio::test]
async fn deltas_add_up_to_the_trimmed_reply() {
    let pieces = ["\n", " \n Hel", "lo ", "wor", "ld.", " ", "\n\n", "🦀", " ", "\n"];
    let ran = stream_against(Reply::stream(pieces)).await;
    assert_eq!(ran.text(), "Hello world. \n\n🦀");
    assert_eq!(ran.deltas().concat(), ran.text());
    assert_eq!(ran.result.unwrap().usage, Some(Usage { input_tokens: 11, output_tokens: 7 }));
}

#[tokio::test]
async fn a_delta_is_passed_on_before_the_next_one_arrives() {
    let released = Arc::new(Notify::new());
    let first = "word ".repeat(1_000);
    let endpoint =
        FakeGateway::always(Stream::new().delta(&first).wait(&released).delta("end").finish("stop")).await;
    let rig = rig(&endpoint).await;
    let (running, mut said) = rig.begin(Turn { streaming: true, ..rig.turn("hello") });
    let (result, ()) = tokio::join!(running, async {
        let delta = soon("a first delta", said.recv()).await;
        assert!(
            matches!(&delta, Some(TurnSignal::Emitted(said)) if matches!(**said, Emitted::TextDelta(_))),
            "{delta:?}"
        );
        released.notify_one();
        while said.recv().await.is_some() {}
    });
    let ran = Ran { result, events: Vec::new(), questions: Vec::new(), checkpoints: Vec::new() };
    assert_eq!(ran.text(), first + "end");
}

#[tokio::test]
async fn no_event_is_emitted_while_the_model_thinks() {
    let released = Arc::new(Notify::new());
    let stream = Stream::new().delta("<think>").delta(&"hmm ".repeat(1_000)).wait(&released);
    let endpoint = FakeGateway::always(stream.delta("</think>hi").finish("stop")).await;
    let rig = rig(&endpoint).await;
    let (running, mut said) = rig.begin(Turn { streaming: true, ..rig.turn("hello") });
    let (result, ()) = tokio::join!(running, async {
        endpoint.asked(1).await;
        released.notify_one();
        let first = soon("a first delta", said.recv()).await;
        assert!(
            matches!(&first, Some(TurnSignal::Emitted(said)) if **said == Emitted::TextDelta("hi".into())),
            "{first:?}"
        );
        assert!(said.recv().await.is_none());
    });
    assert!(result.is_ok());
}

#[tokio::test]
async fn an_endpoint_that_answers_in_one_piece_is_accepted() {
    let ran = stream_against(message(json!({ "content": "hi" }))).await;
    assert_eq!(ran.text(), "hi");
}

#[tokio::test]
async fn comments_and_unknown_events_are_skipped() {
    let stream = Stream::new()
        .bytes(": OPENROUTER PROCESSING\n\n")
        .bytes("event: new\ndata: {\"choices\":null}\n\n")
        .bytes("data: not json\n\ndata: {\"choices\":[]}\n\ndata: []\n\n")
        .delta("hi")
        .finish("stop");
    let ran = stream_against(stream).await;
    assert_eq!((ran.text(), ran.deltas().concat()), ("hi", "hi".to_owned()));
}

#[tokio::test]
async fn a_stream_must_end_with_a_finish_reason_or_a_done_line() {
    assert_eq!(stream_against(Stream::new().delta("hi").bytes("data: [DONE]\n\n")).await.text(), "hi");
    let end = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    assert_eq!(stream_against(Stream::new().delta("hi").bytes(end)).await.text(), "hi");
    for stream in [Stream::new().delta("Hello there. "), Stream::new().delta("Hello there. ").cut()] {
        let ran = stream_against(stream).await;
        assert_eq!(ran.failure().message, "Agent error: APIConnectionError");
        assert_eq!((ran.failure().kind, ran.failure().retryable), (FailureKind::Upstream, true));
        assert_eq!(ran.deltas().concat(), "Hello there.", "what came was passed on");
    }
}
