//! `chat-completions` at the real API server.

use talaria_fakes::Provider;

use crate::bridge::message;
use crate::cases::{self, Case, answer};
use crate::gateway::{KEY, Options};
use crate::partner::{Partner, readiness};
use crate::stream::Stream;

const EXECUTOR: &str = "chat-completions";

#[tokio::test(flavor = "multi_thread")]
async fn a_text_is_answered() {
    cases::replies(EXECUTOR).await;
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
async fn what_the_agent_remembers_is_shown() {
    cases::shows_what_it_remembers(EXECUTOR).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_goes_on() {
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
async fn a_gateway_that_dies_fails_the_turn_and_not_the_conversation() {
    cases::survives_the_gateway(EXECUTOR).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_key_is_told() {
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
async fn a_model_that_says_nothing_is_told() {
    let case = Case::of(EXECUTOR).await;
    let said = answer(&case.bridge, message(&Provider::turn("nothing").0)).await;
    // The gateway's own words, as an ordinary answer.
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
async fn too_many_at_once_are_told_to_come_back() {
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
