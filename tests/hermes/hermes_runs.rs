//! `hermes-runs` at the real API server.

use serde_json::{Value, json};
use talaria_fakes::Provider;

use crate::bridge::message;
use crate::cases::{
    self, COMPLETED, Case, FAILED, INPUT_REQUIRED, answer, history, in_context, in_state, words,
};
use crate::gateway::{KEY, Options};
use crate::partner::{Partner, readiness};
use crate::relay::behind_relay;
use crate::stream::Stream;

const EXECUTOR: &str = "hermes-runs";

#[tokio::test(flavor = "multi_thread")]
async fn a_text_is_answered() {
    cases::replies(EXECUTOR).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_sees_an_image() {
    cases::shows_images(EXECUTOR).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_streams() {
    cases::streams(EXECUTOR).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_is_reported() {
    cases::reports_tools(EXECUTOR).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_lists_the_tools_that_it_took() {
    let case = Case::of(EXECUTOR).await;
    let text = Provider::turn("run echo from the terminal").0;
    let message = json!({ "messageId": "m1", "role": "user", "parts": [{ "kind": "text", "text": text }] });
    let answer = case.bridge.call_v03("message/send", json!({ "message": message })).await;
    let result = &answer["result"];
    assert!(result["parts"][0]["text"].as_str().unwrap().starts_with("the tool said: "), "{answer}");
    let trace = result["metadata"]["tool_trace"].as_array().unwrap();
    assert_eq!((trace.len(), &trace[0]["tool"]), (1, &json!("terminal")), "{answer}");
    assert!(trace[0]["input"].as_str().unwrap().contains("echo from the terminal"), "{answer}");
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
async fn a_failure_of_the_model_is_a_failure() {
    cases::passes_failures_on(EXECUTOR).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_stops_the_agent() {
    cases::cancels(EXECUTOR).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_stops_a_tool() {
    cases::stops_tools(EXECUTOR).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_caller_decides_about_an_approval() {
    cases::asks_for_approval(EXECUTOR).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_dies_fails_the_turn_and_not_the_context() {
    cases::survives_the_gateway(EXECUTOR).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_key_is_reported_and_shows_in_readiness() {
    let hermes = Partner::shared().await;
    let folder = tempfile::tempdir().unwrap();
    let wrong = "another-long-key-4411";
    let bridge = hermes.bridge(folder.path(), EXECUTOR).env("API_SERVER_KEY", wrong).up();
    assert_eq!(readiness(&bridge, EXECUTOR), "not-ready");
    let said = answer(&bridge, message(&Provider::turn("say hello").0)).await;
    assert!(said.starts_with("[hermes-agent error 401] ") && said.contains("Invalid API key"), "{said}");
    assert!(!said.contains(wrong) && !said.contains(KEY), "{said}");
}

/// The gateway gives the run up at once, although it may keep reading from the model until the model says something.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_before_the_first_word_frees_the_context() {
    let case = Case::of(EXECUTOR).await;
    let (text, turn) = Provider::turn("wait");
    let mut params = message(&text);
    params["message"]["contextId"] = json!("silent");
    let stream = Stream::open(&case.bridge, params).await;
    case.hermes.model.asked(&turn).await;
    cases::cancel(&case.bridge, &stream.task).await;
    assert_eq!(answer(&case.bridge, in_context("silent", "say free")).await, "free");
    case.hermes.model.release(&turn);
}

#[tokio::test(flavor = "multi_thread")]
async fn always_is_rejected_and_the_next_answer_counts() {
    let case = Case::of(EXECUTOR).await;
    let folder = case.hermes.gateway.scratch();
    let mut stream =
        Stream::send(&case.bridge, &Provider::turn(&format!("run rm -rf {}", folder.display())).0).await;
    stream.until("the question", |stream| stream.state == INPUT_REQUIRED).await;
    let again = answer(&case.bridge, to(&stream.task, "always")).await;
    assert!(again.contains("cannot be given from here"), "{again}");
    assert!(folder.exists());
    let said = answer(&case.bridge, to(&stream.task, "no")).await;
    assert!(said.starts_with("the tool said: "), "{said}");
    assert!(folder.exists(), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_that_expires_is_withdrawn_and_the_agent_goes_on() {
    let hermes = Partner::own(Options { approval_seconds: 3, ..Options::default() }).await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = hermes.up(folder.path(), EXECUTOR);
    let doomed = hermes.gateway.scratch();
    let mut params = message(&Provider::turn(&format!("run rm -rf {}", doomed.display())).0);
    params["configuration"] = json!({ "returnImmediately": true });
    let id = bridge.call("SendMessage", params).await["result"]["task"]["id"].clone();
    in_state(&bridge, &id, INPUT_REQUIRED).await;
    // The caller does not answer.
    let done = in_state(&bridge, &id, COMPLETED).await;
    assert!(
        done["artifacts"][0]["parts"][0]["text"].as_str().unwrap().starts_with("the tool said: "),
        "{done}"
    );
    assert!(doomed.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_bridge_follows_the_run() {
    let hermes = Partner::shared().await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = hermes.up(folder.path(), EXECUTOR);
    let (text, turn) = Provider::turn("wait");
    let stream = Stream::send(&bridge, &text).await;
    let id = json!(stream.task);
    hermes.model.asked(&turn).await;
    bridge.kill();
    hermes.model.release(&turn);
    let bridge = hermes.up(folder.path(), EXECUTOR);
    let done = in_state(&bridge, &id, COMPLETED).await;
    assert_eq!(done["artifacts"][0]["parts"][0]["text"], "released");
    assert_eq!(hermes.model.times(&turn), 1, "nothing is run twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_gateway_loses_the_run() {
    let mut hermes = Partner::own(Options::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = hermes.up(folder.path(), EXECUTOR);
    let (text, turn) = Provider::turn("wait");
    let stream = Stream::send(&bridge, &text).await;
    let id = json!(stream.task);
    hermes.model.asked(&turn).await;
    bridge.kill();
    hermes.gateway.restart().await;
    let bridge = hermes.up(folder.path(), EXECUTOR);
    let failed = in_state(&bridge, &id, FAILED).await;
    let text = failed["status"]["message"]["parts"][0]["text"].as_str().unwrap();
    assert!(text.contains("gateway restarted"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_runs_at_once_wait() {
    let hermes = Partner::own(Options { runs: 1, ..Options::default() }).await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = hermes.up(folder.path(), EXECUTOR);
    let (text, turn) = Provider::turn("wait");
    let first = Stream::send(&bridge, &text).await;
    hermes.model.asked(&turn).await;
    let mut second = Stream::send(&bridge, &Provider::turn("say hello").0).await;
    second.until("it waits", |stream| stream.status.contains("waiting for a place")).await;
    hermes.model.release(&turn);
    assert_eq!(first.end().await.text, "released");
    assert_eq!(second.end().await.text, "hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_looks_like_a_command_goes_to_the_model() {
    let case = Case::of(EXECUTOR).await;
    let (text, turn) = Provider::turn("say hello");
    assert_eq!(answer(&case.bridge, message(&format!("/yolo {text}"))).await, "hello");
    assert_eq!(case.hermes.model.times(&turn), 1, "the model got it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_context_survives_a_restart_of_both() {
    let mut hermes = Partner::own(Options::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = hermes.up(folder.path(), EXECUTOR);
    assert_eq!(answer(&bridge, in_context("long", "say before")).await, "before");
    bridge.kill();
    hermes.gateway.restart().await;
    let bridge = hermes.up(folder.path(), EXECUTOR);
    let seen = history(&bridge, "long").await;
    assert_eq!(words(&seen), ["say before", "before"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_without_runs_is_ready_and_answers() {
    let older = behind_relay(EXECUTOR).await;
    let bridge = &older.bridge;
    assert_eq!(answer(bridge, message(&Provider::turn("say hello there").0)).await, "hello there");
    assert_eq!(answer(bridge, in_context("older", "say blue")).await, "blue");
    let streamed = Stream::open(bridge, in_context("older", "say green")).await.end().await;
    assert_eq!((streamed.state.as_str(), streamed.text.as_str()), (COMPLETED, "green"));
    assert_eq!(words(&history(bridge, "older").await), ["say blue", "blue", "say green", "green"]);
}

fn to(task: &str, text: &str) -> Value {
    let mut params = message(text);
    params["message"]["taskId"] = json!(task);
    params
}
