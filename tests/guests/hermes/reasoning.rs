//! A model's thoughts go into the trace and nowhere else.

use serde_json::{Value, json};
use talaria_fakes::{FakeGateway, Reply};
use talaria_rig::{Ran, Trace};

use super::{MODEL, deltas, message, rig};

const THOUGHT: &str = "The caller is probably a test; better be polite.";

/// Runs a turn and returns its trace and its context.
async fn traced(reply: impl Into<Reply>, streaming: bool) -> (Ran, Trace, String) {
    let endpoint = FakeGateway::always(reply).await;
    let rig = rig(&endpoint).await;
    let turn = talaria_turns::Turn { streaming, ..rig.turn("hello") };
    let context = turn.context.to_string();
    let trace = Trace::start();
    let ran = rig.execute(turn).await;
    (ran, trace, context)
}

/// Returns the one span, and asserts that nothing else contains the thought.
fn the_span(ran: &Ran, trace: &Trace, thought: &str) -> String {
    assert!(!format!("{ran:?}").contains(thought), "in the reply or an event: {ran:?}");
    for event in trace.events() {
        assert!(!event.contains(thought), "in the log: {event}");
    }
    let spans = trace.guest_spans("hermes.reasoning");
    assert_eq!(spans.len(), 1, "{spans:?}");
    spans.into_iter().next().unwrap()
}

#[tokio::test]
async fn the_span_has_all_that_an_operator_looks_for() {
    let (ran, trace, context) = traced(
        message(json!({ "content": "hi", "reasoning": THOUGHT, "reasoning_details": [{ "text": THOUGHT }] })),
        false,
    )
    .await;
    assert_eq!(ran.text(), "hi");
    let expected: Vec<(String, String)> = [
        ("workspace.id", "unknown".to_owned()),
        ("a2a.task_id", context),
        ("hermes.model", MODEL.into()),
        ("hermes.reasoning_length", THOUGHT.len().to_string()),
        ("hermes.reasoning_preview", THOUGHT.into()),
        ("hermes.has_reasoning_details", "true".into()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into();
    assert_eq!(the_span(&ran, &trace, THOUGHT), format!("{expected:?}"));
}

#[tokio::test]
async fn thoughts_are_removed_wherever_they_are() {
    let halves = THOUGHT.split_at(20);
    let tagged = format!("<think>{THOUGHT}</think>\n\nhi");
    let cases: Vec<(&str, Reply, bool)> = vec![
        ("a field", message(json!({ "content": "hi", "reasoning": THOUGHT })), false),
        (
            "a field of self-hosted servers",
            message(json!({ "content": "hi", "reasoning_content": THOUGHT })),
            false,
        ),
        ("the content", message(json!({ "content": tagged })), false),
        (
            "the deltas' field",
            deltas([
                json!({ "reasoning": halves.0 }),
                json!({ "reasoning": halves.1, "content": "" }),
                json!({ "content": "hi" }),
            ])
            .finish("stop")
            .into(),
            true,
        ),
        ("the deltas", Reply::stream(["<think>", halves.0, halves.1, "</think>\n\n", "hi"]), true),
        ("one piece for a stream", message(json!({ "content": tagged })), true),
    ];
    for (place, reply, streaming) in cases {
        let (ran, trace, _) = traced(reply, streaming).await;
        assert_eq!(ran.text(), "hi", "{place}");
        let span = the_span(&ran, &trace, THOUGHT);
        assert!(span.contains(&format!("(\"hermes.reasoning_preview\", {THOUGHT:?})")), "{place}: {span}");
        assert!(!span.contains("has_reasoning_details"), "{place}: {span}");
    }
}

#[tokio::test]
async fn only_the_beginning_of_a_long_thought_is_shown() {
    let thought = "ä".repeat(100_000);
    let (ran, trace, _) = traced(message(json!({ "content": "hi", "reasoning": thought })), false).await;
    let span = the_span(&ran, &trace, &"ä".repeat(513));
    assert!(span.contains("(\"hermes.reasoning_length\", \"100000\")"), "in characters");
    assert!(span.contains(&format!("(\"hermes.reasoning_preview\", \"{}\")", "ä".repeat(512))), "{span}");
}

#[tokio::test]
async fn reasoning_details_alone_make_a_span() {
    for (details, spans) in
        [(json!([{ "type": "reasoning.encrypted" }]), 1), (json!({}), 1), (json!([]), 0), (Value::Null, 0)]
    {
        let (_, trace, _) =
            traced(message(json!({ "content": "hi", "reasoning_details": details })), false).await;
        let found = trace.guest_spans("hermes.reasoning");
        assert_eq!(found.len(), spans, "{details}: {found:?}");
        assert!(found.iter().all(|span| !span.contains("preview")), "{found:?}");
    }
}

#[tokio::test]
async fn a_model_that_does_not_think_leaves_no_span() {
    let (_, trace, _) = traced(message(json!({ "content": "hi", "reasoning": null })), false).await;
    assert!(trace.guest_spans("hermes.reasoning").is_empty());
}

#[tokio::test]
async fn a_secret_in_a_thought_is_not_in_the_trace() {
    let key = "sk-abcdefghijklmnopqrstuvwx";
    // Once whole, and once where the preview cuts it.
    for thought in [format!("the key is {key} ok"), format!("{}{key}", "x ".repeat(250))] {
        let (_, trace, _) = traced(message(json!({ "content": "hi", "reasoning": thought })), false).await;
        assert_eq!(trace.guest_spans("hermes.reasoning").len(), 1);
        assert!(!trace.everything().contains("sk-abcdef"), "{}", trace.everything());
    }
}

#[tokio::test]
async fn the_thoughts_of_a_failed_turn_are_recorded_too() {
    let stream = deltas([json!({ "reasoning": THOUGHT })]).cut();
    let (ran, trace, _) = traced(stream, true).await;
    assert_eq!(ran.failure().message, "Agent error: APIConnectionError");
    the_span(&ran, &trace, THOUGHT);
}
