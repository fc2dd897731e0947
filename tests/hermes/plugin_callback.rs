//! `plugin-callback` at the real gateway, through the plugin.

use serde_json::json;
use talaria_fakes::{Provider, free_port, soon};

use crate::bridge::message;
use crate::cases::{self, COMPLETED, Case, answer, in_context};
use crate::gateway::Options;
use crate::partner::Partner;
use crate::stream::Stream;

const EXECUTOR: &str = "plugin-callback";

#[tokio::test(flavor = "multi_thread")]
async fn a_text_is_answered() {
    cases::replies(EXECUTOR).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streamed_turn_is_answered_in_one_piece() {
    let case = Case::of(EXECUTOR).await;
    let stream = Stream::send(&case.bridge, &Provider::turn("count 8").0).await.end().await;
    assert_eq!((stream.state.as_str(), stream.text.trim_end()), (COMPLETED, "1 2 3 4 5 6 7 8"));
    assert_eq!(stream.pieces, 1, "the wire has no deltas");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_runs_without_progress_events() {
    let case = Case::of(EXECUTOR).await;
    let stream = Stream::send(&case.bridge, &Provider::turn("run echo from the terminal").0).await;
    let stream = stream.end().await;
    assert!(stream.text.contains("from the terminal"), "{} {}", stream.state, stream.text);
    assert_eq!(stream.tools, [], "the wire has no progress");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_transcript_has_what_the_agent_remembers() {
    cases::shows_its_transcript(EXECUTOR).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_context_is_remembered() {
    cases::continues(EXECUTOR).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_is_asked_for() {
    cases::asks_for_approval(EXECUTOR).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_stops_a_tool() {
    cases::stops_tools(EXECUTOR).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_of_the_model_arrives_as_an_answer() {
    let case = Case::of(EXECUTOR).await;
    let said = answer(&case.bridge, message(&Provider::turn("fail 401").0)).await;
    // The gateway's text. Nothing on this wire marks it as a failure.
    assert!(said.starts_with("⚠️ Provider authentication failed."), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_secret_is_reported() {
    let hermes = Partner::shared().await;
    let folder = tempfile::tempdir().unwrap();
    let wrong = "another-secret-4411";
    let start = hermes.bridge(folder.path(), EXECUTOR);
    let bridge = start.env("MOLECULE_A2A_PLATFORM_SHARED_SECRET", wrong).up();
    let said = answer(&bridge, message(&Provider::turn("say hello").0)).await;
    assert!(said.starts_with("[hermes plugin POST error] ") && said.contains("401"), "{said}");
    assert!(!said.contains(wrong), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_cannot_command_the_gateway() {
    let case = Case::of(EXECUTOR).await;
    // `/yolo` would let every command run without approval.
    let (text, turn) = Provider::turn("say no harm done");
    assert_eq!(answer(&case.bridge, message(&format!("/yolo {text}"))).await, "no harm done");
    assert_eq!(case.hermes.model.times(&turn), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_one_context_each_get_their_own_answer() {
    let case = Case::of(EXECUTOR).await;
    let say = |words: &str| answer(&case.bridge, in_context("busy", &format!("say {words}")));
    let answers = tokio::join!(say("one"), say("two"), say("three"));
    assert_eq!(answers, ("one".into(), "two".into(), "three".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_survives_a_crash_of_the_gateway() {
    // After its restart the gateway knows only the configured URL.
    let port = free_port();
    let callback = format!("http://127.0.0.1:{port}/a2a/reply");
    let mut hermes = Partner::own(Options { callback, ..Options::default() }).await;
    let folder = tempfile::tempdir().unwrap();
    let bridge =
        hermes.bridge(folder.path(), EXECUTOR).env("MOLECULE_A2A_CALLBACK_PORT", &port.to_string()).up();
    assert_eq!(answer(&bridge, in_context("long", "say before")).await, "before");
    let (text, turn) = Provider::turn("wait");
    let mut params = message(&text);
    params["message"]["contextId"] = json!("long");
    let stream = Stream::open(&bridge, params).await;
    hermes.model.asked(&turn).await;
    hermes.gateway.restart().await;
    cases::patiently("the agent goes on", || (hermes.model.times(&turn) == 2).then_some(())).await;
    hermes.model.release(&turn);
    let stream = soon("the answer", stream.end()).await;
    assert_eq!((stream.state.as_str(), stream.text.as_str()), (COMPLETED, "released"), "{}", stream.status);
    let seen = cases::history(&bridge, "long").await;
    assert_eq!(cases::words(&seen)[..2], ["say before", "before"], "{seen:?}");
}
