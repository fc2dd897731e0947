//! The events of a run.

use std::sync::Arc;

use serde_json::json;
use talaria_fakes::{FakeRuns, Script, soon};
use talaria_redact::Redactor;
use talaria_turns::{Emitted, ToolState, Turn, TurnSignal};
use tokio::sync::Notify;

use super::{rig, run_against, stream_against};

#[tokio::test]
async fn deltas_and_tools_come_in_order_and_the_output_is_the_reply() {
    let ran = stream_against(
        Script::new()
            .delta("Let me look. ")
            .tool_started("terminal", "echo hi")
            .tool_completed("terminal", false)
            .tool_started("web_search", "hi")
            .tool_completed("web_search", true)
            .delta("\n\nIt says hi.")
            .completed("It says hi."),
    )
    .await;
    assert_eq!(ran.text(), "It says hi.", "the run's output, not the sum of its deltas");
    let tools: Vec<_> = ran
        .events
        .iter()
        .filter_map(|event| match event {
            Emitted::Tool(tool) => {
                Some((tool.id.as_str(), tool.name.as_str(), tool.state, tool.label.as_deref()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(
        tools,
        [
            ("terminal", "terminal", ToolState::Started, Some("echo hi")),
            ("terminal", "terminal", ToolState::Completed, None),
            ("web_search", "web_search", ToolState::Started, Some("hi")),
            ("web_search", "web_search", ToolState::Failed, None),
        ]
    );
    assert_eq!(ran.deltas().concat(), "Let me look. \n\nIt says hi.");
}

#[tokio::test]
async fn line_feeds_after_a_tool_are_removed_from_the_answer() {
    let ran = stream_against(
        Script::new().tool_completed("terminal", false).delta("\n\n").delta("\n\nhi").completed("hi"),
    )
    .await;
    assert_eq!((ran.text(), ran.deltas().concat()), ("hi", "hi".into()));
}

#[tokio::test]
async fn a_delta_is_passed_on_before_the_next_one_arrives() {
    let released = Arc::new(Notify::new());
    let first = "word ".repeat(1_000);
    let script = Script::new().delta(&first).wait(&released).delta("end").completed(&format!("{first}end"));
    let runs = FakeRuns::start([script]).await;
    let rig = rig(&runs).await;
    let (running, mut said) = rig.begin(Turn { streaming: true, ..rig.turn("hello") });
    let (result, ()) = tokio::join!(running, async {
        let mut first = soon("a checkpoint", said.recv()).await;
        if let Some(TurnSignal::Checkpoint { kept, .. }) = first {
            kept.send(Ok(())).unwrap();
            first = soon("a first delta", said.recv()).await;
        }
        assert!(
            matches!(&first, Some(TurnSignal::Emitted(said)) if matches!(**said, Emitted::TextDelta(_))),
            "{first:?}"
        );
        released.notify_one();
        while said.recv().await.is_some() {}
    });
    assert!(result.is_ok());
}

#[tokio::test]
async fn reasoning_events_are_never_shown() {
    let thought = "nobody must read this";
    let script = || {
        Script::new()
            .event(json!({ "event": "reasoning.available", "text": thought }))
            .delta("hi")
            .completed("hi")
    };
    for ran in [run_against(script()).await, stream_against(script()).await] {
        assert_eq!(ran.text(), "hi");
        assert!(!format!("{ran:?}").contains(thought), "{ran:?}");
    }
}

#[tokio::test]
async fn unknown_events_are_skipped() {
    let ran = stream_against(
        Script::new()
            .event(json!({ "event": "subagent.start", "id": 7 }))
            .event(json!({ "event": "run.steered" }))
            .event(json!({ "event": null }))
            .event(json!({ "event": "message.delta" }))
            .event(json!({ "event": "message.delta", "delta": 7 }))
            .event(json!({ "event": "tool.started" }))
            .delta("hi")
            .completed("hi"),
    )
    .await;
    assert_eq!(ran.text(), "hi");
    assert_eq!(ran.deltas(), ["hi"]);
}

#[tokio::test]
async fn events_may_be_named_by_the_event_line() {
    let runs = FakeRuns::start([Script::new().completed("hi")]).await;
    let stream = talaria_fakes::Stream::default()
        .bytes(": keepalive\n\nevent: message.delta\ndata: {\"delta\":\"hi\"}\n\ndata: not json\n\n")
        .bytes("event: run.completed\ndata: {\"output\":\"hi\"}\n\n");
    runs.next("GET", "/events", stream.into());
    let ran = rig(&runs).await.stream("hello").await;
    assert_eq!((ran.text(), ran.deltas().concat()), ("hi", "hi".into()));
}

#[tokio::test]
async fn a_secret_in_a_run_is_redacted() {
    let key = "sk-abcdefghijklmnopqrstuvwx";
    Redactor::process().learn([key]);
    let script = Script::new()
        .delta("the key is sk-abcdef")
        .delta("ghijklmnopqrstuvwx ok")
        .tool_started("terminal", &format!("echo {key}"))
        .completed(&format!("the key is {key} ok"));
    let ran = stream_against(script).await;
    assert!(!format!("{ran:?}").contains("sk-abc"), "{ran:?}");
    let failed = run_against(Script::new().failed(&format!("HTTP 401: {key}"))).await;
    assert!(!failed.failure().message.contains("sk-abc"), "{}", failed.failure());
}
