//! `chat-completions` at the real API server.

use std::time::Duration;

use serde_json::{Value, json};
use talaria_fakes::{Provider, soon};

use crate::bridge::{Bridge, message};
use crate::cases::{self, COMPLETED, Case, FAILED, answer};
use crate::gateway::{KEY, Options};
use crate::partner::{Partner, readiness};
use crate::stream::Stream;

const EXECUTOR: &str = "chat-completions";

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
async fn a_gateway_that_dies_fails_the_turn_and_not_the_context() {
    cases::survives_the_gateway(EXECUTOR).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_key_is_reported() {
    let hermes = Partner::shared().await;
    let folder = tempfile::tempdir().unwrap();
    let wrong = "another-long-key-4411";
    let bridge = hermes.bridge(folder.path(), EXECUTOR).env("API_SERVER_KEY", wrong).up();
    assert_eq!(readiness(&bridge, EXECUTOR), "not-ready", "{}", bridge.banner);
    let said = answer(&bridge, message(&Provider::turn("say hello").0)).await;
    assert!(said.starts_with("[hermes-agent error 401] ") && said.contains("Invalid API key"), "{said}");
    assert!(!said.contains(wrong) && !said.contains(KEY), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_says_nothing_is_reported() {
    let case = Case::of(EXECUTOR).await;
    let said = answer(&case.bridge, message(&Provider::turn("nothing").0)).await;
    // The gateway's own text, sent as an ordinary answer.
    assert!(said.contains("No reply"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dangerous_command_is_not_run() {
    let case = Case::of(EXECUTOR).await;
    let folder = case.hermes.gateway.scratch();
    let command = format!("run rm -rf {}", folder.display());
    let said = answer(&case.bridge, message(&Provider::turn(&command).0)).await;
    assert!(folder.exists(), "{said}");
    assert!(said.contains("approval"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_runs_at_once_are_answered_with_429() {
    let hermes = Partner::own(Options { runs: 1, ..Options::default() }).await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = hermes.up(folder.path(), EXECUTOR);
    let (text, turn) = Provider::turn("wait");
    let first = Stream::send(&bridge, &text).await;
    hermes.model.asked(&turn).await;
    let said = answer(&bridge, message(&Provider::turn("say hello").0)).await;
    assert!(said.starts_with("[hermes-agent error 429] ") && said.contains("concurrent"), "{said}");
    hermes.model.release(&turn);
    assert_eq!(first.end().await.text, "released");
    assert_eq!(answer(&bridge, message(&Provider::turn("say hello").0)).await, "hello");
}

/// Sends a turn that waits, and kills the bridge while the model has it; returns the turn's name and the task's id.
async fn interrupt(hermes: &Partner, bridge: Bridge) -> (String, Value) {
    let (text, turn) = Provider::turn("wait");
    let mut params = message(&text);
    params["configuration"] = json!({ "returnImmediately": true });
    let sent = bridge.call("SendMessage", params).await;
    hermes.model.asked(&turn).await;
    bridge.kill();
    (turn, sent["result"]["task"]["id"].clone())
}

/// Waits until the task is over.
async fn settled(bridge: &Bridge, id: &Value) -> Value {
    soon("the task is over", async {
        loop {
            let task = bridge.call("GetTask", json!({ "id": id })).await["result"].clone();
            if [COMPLETED, FAILED].map(Value::from).contains(&task["status"]["state"]) {
                return task;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_survives_a_restart_of_the_bridge_whether_it_comes_before_or_after() {
    let hermes = Partner::shared().await;
    for answered_meanwhile in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (turn, id) = interrupt(&hermes, hermes.up(folder.path(), EXECUTOR)).await;
        if answered_meanwhile {
            hermes.model.release(&turn);
            hermes.model.let_go(&turn).await;
        }
        let bridge = hermes.up(folder.path(), EXECUTOR);
        if !answered_meanwhile {
            hermes.model.release(&turn);
        }
        let task = settled(&bridge, &id).await;
        assert_eq!(task["status"]["state"], COMPLETED, "answered meanwhile: {answered_meanwhile}, {task}");
        assert_eq!(task["artifacts"][0]["parts"][0]["text"], "released");
        assert_eq!(hermes.model.times(&turn), 1, "the model was asked once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_both_fails_the_turn() {
    let mut hermes = Partner::own(Options::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let (turn, id) = interrupt(&hermes, hermes.up(folder.path(), EXECUTOR)).await;
    hermes.gateway.restart().await;
    let task = settled(&hermes.up(folder.path(), EXECUTOR), &id).await;
    assert_eq!(task["status"]["state"], FAILED, "{task}");
    let why = task["status"]["message"]["parts"][0]["text"].as_str().unwrap();
    assert_eq!(why, "interrupted by a restart, and not asked again: the gateway was restarted too");
    assert_eq!(hermes.model.times(&turn), 1, "the model was asked once");
}
