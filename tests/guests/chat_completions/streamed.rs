//! Streamed turns.

use std::sync::Arc;

use serde_json::json;
use talaria_fakes::{FakeGateway, PROVIDER_KEY, Reply, Stream, soon};
use talaria_redact::Redactor;
use talaria_rig::Ran;
use talaria_turns::{Emitted, FailureKind, FinalState, ToolProgress, ToolState, Turn, TurnSignal, Usage};
use tokio::sync::Notify;

use super::{KEY, rig};

async fn stream_against(reply: impl Into<Reply>) -> Ran {
    let gateway = FakeGateway::always(reply).await;
    rig(&gateway).await.stream("hello").await
}

fn tools(ran: &Ran) -> Vec<&ToolProgress> {
    let tools = ran.events.iter().filter_map(|event| match event {
        Emitted::Tool(tool) => Some(tool),
        _ => None,
    });
    tools.collect()
}

#[tokio::test]
async fn the_request_differs_in_stream_only() {
    let gateway = FakeGateway::always(Reply::stream(["hi"])).await;
    let _ = rig(&gateway).await.secret(KEY, "k-0123456789abcdef").stream("hello").await;
    let request = gateway.request();
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/chat/completions"));
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.header("authorization"), Some("Bearer k-0123456789abcdef"));
    assert_eq!(
        request.json(),
        json!({ "model": "hermes-agent", "messages": [{ "role": "user", "content": "hello" }], "stream": true })
    );
}

#[tokio::test]
async fn deltas_come_in_order_and_add_up_to_the_reply() {
    let pieces = ["Hel", "lo ", "wor", "ld. ", "🦀", " ä", "öü", "\n\n", "The end."];
    let ran = stream_against(Reply::stream(pieces)).await;
    assert_eq!(ran.text(), pieces.concat());
    // A delta may be held back while it could be the beginning of a secret, so pieces may join.
    assert_eq!(ran.deltas().concat(), pieces.concat());
    assert!(ran.deltas().iter().all(|delta| !delta.is_empty()));
    let outcome = ran.result.expect("a reply");
    assert_eq!(outcome.state, FinalState::Completed);
    assert_eq!(outcome.usage, Some(Usage { input_tokens: 11, output_tokens: 7 }));
}

#[tokio::test]
async fn a_delta_is_passed_on_before_the_next_one_arrives() {
    let released = Arc::new(Notify::new());
    let first = "word ".repeat(1_000);
    let gateway =
        FakeGateway::always(Stream::new().delta(&first).wait(&released).delta("end").finish("stop")).await;
    let rig = rig(&gateway).await;
    let (running, mut said) = rig.begin(Turn { streaming: true, ..rig.turn("hello") });
    let (result, ()) = tokio::join!(running, async {
        let delta = soon("a first delta", said.recv()).await;
        let Some(TurnSignal::Emitted(delta)) = delta else { panic!("{delta:?}") };
        assert!(matches!(*delta, Emitted::TextDelta(_)), "{delta:?}");
        released.notify_one();
        while said.recv().await.is_some() {}
    });
    let ran = Ran { result, events: Vec::new(), questions: Vec::new(), checkpoints: Vec::new() };
    assert_eq!(ran.text(), first + "end");
}

#[tokio::test]
async fn tool_progress_is_passed_on_in_its_place() {
    let stream = Stream::new()
        .delta("Let me look. ")
        .tool_running("terminal", "call_1", "echo hi")
        .keepalive()
        .tool_completed("terminal", "call_1")
        .delta("\n\nIt says hi.")
        .finish("stop");
    let ran = stream_against(stream).await;
    assert_eq!(ran.text(), "Let me look. \n\nIt says hi.");
    assert_eq!(ran.deltas().concat(), ran.text());
    let [started, completed] = tools(&ran)[..] else { panic!("two tool events: {:?}", ran.events) };
    assert_eq!((started.id.as_str(), started.name.as_str()), ("call_1", "terminal"));
    assert_eq!((started.state, started.label.as_deref()), (ToolState::Started, Some("echo hi")));
    assert_eq!(
        (completed.id.as_str(), completed.state, &completed.label),
        ("call_1", ToolState::Completed, &None)
    );
}

#[tokio::test]
async fn an_answer_that_begins_after_a_tool_has_no_line_feeds_before_it() {
    let stream = Stream::new()
        .tool_running("terminal", "call_1", "echo hi")
        .tool_completed("terminal", "call_1")
        .delta("\n\n")
        .delta("\n\nIt says hi.\n\n")
        .finish("stop");
    let ran = stream_against(stream).await;
    assert_eq!(ran.text(), "It says hi.\n\n");
    assert_eq!(ran.deltas().concat(), "It says hi.\n\n");
}

#[tokio::test]
async fn keepalives_and_unknown_events_are_skipped() {
    let stream = Stream::new()
        .keepalive()
        .bytes("event: hermes.new\ndata: {\"choices\":null}\n\n")
        .bytes("data: not json\n\n")
        .bytes("data: {\"choices\":[]}\n\ndata: []\n\n")
        .bytes("id: 7\nretry: 10\n\n")
        .delta("hi")
        .keepalive()
        .finish("stop");
    let ran = stream_against(stream).await;
    assert_eq!(ran.text(), "hi");
    assert_eq!(ran.events, [Emitted::TextDelta("hi".into())]);
}

#[tokio::test]
async fn events_may_be_torn_anywhere_and_end_in_any_line_feed() {
    let chunk = |text: &str, end: &str| {
        format!(
            "data: {}{end}{end}",
            json!({ "choices": [{ "delta": { "content": text }, "finish_reason": null }] })
        )
    };
    let last = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    let wire = [chunk("ä🦀", "\n"), chunk("b", "\r\n"), chunk("c", "\r"), last.into()].concat();
    let stream =
        wire.into_bytes().into_iter().fold(Stream::default(), |stream, byte| stream.bytes(vec![byte]));
    assert_eq!(stream_against(stream).await.text(), "ä🦀bc");
}

#[tokio::test]
async fn a_stream_without_text_is_an_empty_reply() {
    let ran = stream_against(Stream::new().finish("stop")).await;
    assert_eq!(ran.text(), "");
    assert_eq!(ran.events, []);
}

#[tokio::test]
async fn a_stream_may_end_without_a_done_line() {
    let end = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    assert_eq!(stream_against(Stream::new().delta("hi").bytes(end)).await.text(), "hi");
}

#[tokio::test]
async fn a_stream_that_is_cut_fails_after_passing_on_what_arrived() {
    let cuts = [
        ("torn connection", Stream::new().delta("Hello there. ").cut()),
        (
            "torn inside an event",
            Stream::new().delta("Hello there. ").bytes("data: {\"choices\":[{\"del").cut(),
        ),
        ("clean end without a last chunk", Stream::new().delta("Hello there. ")),
        ("done without a last chunk", Stream::new().delta("Hello there. ").bytes("data: [DONE]\n\n")),
    ];
    for (what, stream) in cuts {
        let ran = stream_against(stream).await;
        let failure = ran.failure();
        assert!(failure.message.starts_with("[hermes-agent unreachable] "), "{what}: {}", failure.message);
        assert_eq!((failure.kind, failure.retryable), (FailureKind::Upstream, true), "{what}");
        assert_eq!(ran.deltas().concat(), "Hello there. ", "{what}");
    }
}

#[tokio::test]
async fn a_failure_in_the_last_chunk_is_a_failure() {
    let text = format!("HTTP 401: fake provider error {PROVIDER_KEY}");
    for stream in [Stream::new().fail(&text), Stream::new().delta("Hello there. ").fail(&text)] {
        let ran = stream_against(stream).await;
        let failure = ran.failure();
        assert!(
            failure.message.starts_with("[hermes-agent error] HTTP 401: fake provider error "),
            "{failure}"
        );
        assert_eq!(failure.kind, FailureKind::Upstream);
        assert!(!format!("{ran:?}").contains(PROVIDER_KEY), "{ran:?}");
    }
}

#[tokio::test]
async fn a_last_chunk_with_only_an_error_is_a_failure() {
    let ran = stream_against(Stream::new().delta("It broke.").finish("error")).await;
    assert_eq!(ran.failure().message, "[hermes-agent error] It broke.");
}

#[tokio::test]
async fn a_provider_key_in_the_deltas_is_redacted_wherever_it_is_torn() {
    Redactor::process().learn([PROVIDER_KEY]);
    let text = format!("before {PROVIDER_KEY} after");
    for at in 1..text.len() {
        let (one, two) = text.split_at(at);
        let ran = stream_against(Reply::stream([one, two])).await;
        assert!(!ran.text().contains(PROVIDER_KEY), "in the reply: {}", ran.text());
        let said = ran.deltas().concat();
        assert!(!said.contains(PROVIDER_KEY), "in the deltas, torn at {at}: {said}");
        assert!(said.starts_with("before ") && said.ends_with(" after"), "torn at {at}: {said}");
    }
}

#[tokio::test]
async fn an_answer_in_one_piece_to_a_stream_request_is_accepted() {
    let ran = stream_against(Reply::completion("hi")).await;
    assert_eq!(ran.text(), "hi");
    assert_eq!(
        ran.result.as_ref().expect("a reply").usage,
        Some(Usage { input_tokens: 11, output_tokens: 7 })
    );
    let failed = stream_against(Reply::error_in_200("it broke")).await;
    assert_eq!(failed.failure().message, "[hermes-agent error] it broke");
}

#[tokio::test]
async fn an_error_status_is_reported_as_for_a_buffered_turn() {
    let cases = [
        (
            429,
            "application/json",
            r#"{"error":{"message":"Too many concurrent runs (max 10)"}}"#.to_owned(),
            true,
        ),
        (404, "text/plain", "404: Not Found".to_owned(), false),
        (500, "text/event-stream", "data: no\n\n".to_owned(), true),
        (500, "text/plain", "🦀".repeat(600), true),
        (503, "text/plain", String::new(), true),
    ];
    for (status, content_type, body, retryable) in cases {
        let ran = stream_against(Reply::status(status, content_type, body.clone())).await;
        let expected: String = body.chars().take(500).collect();
        let failure = ran.failure();
        assert_eq!(failure.message, format!("[hermes-agent error {status}] {expected}"));
        assert_eq!((failure.kind, failure.retryable), (FailureKind::Upstream, retryable), "{status}");
    }
}
