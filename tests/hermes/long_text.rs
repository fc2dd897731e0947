//! A text that hermes-agent cuts on its chat route, sent by `chat-completions`: it goes out as a run.

use serde_json::{Value, json};
use talaria_fakes::Provider;

use crate::bridge::message;
use crate::cases::{
    self, CANCELED, COMPLETED, Case, INPUT_REQUIRED, answer, history, in_context, in_state, words,
};
use crate::partner::Partner;
use crate::relay::behind_relay;
use crate::stream::Stream;

const EXECUTOR: &str = "chat-completions";
const END: &str = "the end of it";

/// The text, followed by more than the chat route takes.
fn lengthened(text: &str) -> String {
    format!("{text}\n{}\n{END}", "x".repeat(70_000))
}

/// A message of that length in a context, and the name of its turn.
fn long(context: &str, command: &str) -> (Value, String) {
    let (text, turn) = Provider::turn(command);
    let mut params = message(&lengthened(&text));
    params["message"]["contextId"] = json!(context);
    (params, turn)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_gets_it_whole_and_the_context_goes_on() {
    let case = Case::of(EXECUTOR).await;
    let bridge = &case.bridge;
    assert_eq!(answer(bridge, in_context("book", "say blue")).await, "blue");
    assert_eq!(answer(bridge, long("book", "say green").0).await, "green");
    let streamed = Stream::open(bridge, long("book", "say red").0).await.end().await;
    assert_eq!((streamed.state.as_str(), streamed.text.as_str()), (COMPLETED, "red"));
    // The chat route reads the same session.
    let seen = history(bridge, "book").await;
    let heads: Vec<&str> =
        words(&seen).into_iter().map(|text| text.lines().next().unwrap_or_default()).collect();
    assert_eq!(heads, ["say blue", "blue", "say green", "green", "say red", "red"]);
    for text in [&seen[2], &seen[4]] {
        assert!(text.len() > 70_000 && text.ends_with(END), "{} characters", text.len());
    }
    // A run sees what was said on the chat route before it.
    let seen = answer(bridge, long("book", "history").0).await;
    let seen: Vec<String> = serde_json::from_str(&seen).unwrap();
    assert_eq!(words(&seen)[..2], ["say blue", "blue"]);
    assert_eq!(seen.len(), 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_caller_decides_about_an_approval() {
    let case = Case::of(EXECUTOR).await;
    let folder = case.hermes.gateway.scratch();
    let (params, _) = long("danger", &format!("run rm -rf {}", folder.display()));
    let mut stream = Stream::open(&case.bridge, params).await;
    stream.until("the question", |stream| stream.state == INPUT_REQUIRED).await;
    assert!(folder.exists(), "it was run before the answer");
    let mut params = message("yes");
    params["message"]["taskId"] = json!(stream.task);
    let said = answer(&case.bridge, params).await;
    assert!(said.starts_with("the tool said: "), "{said}");
    assert!(!folder.exists(), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_stops_the_agent() {
    let case = Case::of(EXECUTOR).await;
    let (params, turn) = long("talk", "talk");
    let mut stream = Stream::open(&case.bridge, params).await;
    stream.until("its first words", |stream| !stream.text.is_empty()).await;
    cases::cancel(&case.bridge, &stream.task).await;
    case.hermes.model.let_go(&turn).await;
    stream.until("the end", |stream| stream.state == CANCELED).await;
    assert_eq!(answer(&case.bridge, in_context("talk", "say on")).await, "on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_bridge_follows_the_run() {
    let hermes = Partner::shared().await;
    for streaming in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let bridge = hermes.up(folder.path(), EXECUTOR);
        let (mut params, turn) = long("restart", "wait");
        let id = if streaming {
            json!(Stream::open(&bridge, params).await.task)
        } else {
            params["configuration"] = json!({ "returnImmediately": true });
            bridge.call("SendMessage", params).await["result"]["task"]["id"].clone()
        };
        hermes.model.asked(&turn).await;
        bridge.kill();
        hermes.model.release(&turn);
        let bridge = hermes.up(folder.path(), EXECUTOR);
        let done = in_state(&bridge, &id, COMPLETED).await;
        assert_eq!(done["artifacts"][0]["parts"][0]["text"], "released");
        assert_eq!(hermes.model.times(&turn), 1, "nothing is run twice");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_without_runs_gets_nothing_and_the_caller_reads_why() {
    let older = behind_relay(EXECUTOR).await;
    let (params, turn) = long("older", "say hello");
    let said = answer(&older.bridge, params).await;
    assert!(said.contains("hermes-agent cuts it at 65536"), "{said}");
    assert_eq!(Partner::shared().await.model.times(&turn), 0);
}
