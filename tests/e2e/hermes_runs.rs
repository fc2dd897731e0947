//! The executor `hermes-runs` in the real binary: approvals, cancellation, and restarts of either side.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use talaria_client::{Delivery, Message};
use talaria_fakes::{FakeRuns, Script, soon};
use tokio::sync::Notify;

use crate::bridge::{Bridge, Start};

const KEY: &str = "a-key-of-16-chars";
const COMMAND: &str = "rm -rf /srv/data";

fn start(folder: &Path, runs: &FakeRuns) -> Bridge {
    runs.want_key(KEY);
    Start::new(folder)
        .config("[executors]\ndefault = \"hermes-runs\"\n[store]\nurl = \"sqlite:tasks.db\"\n")
        .env("HERMES_API_BASE", &runs.base_url())
        .env("API_SERVER_KEY", KEY)
        .up()
}

/// Waits until the bridge reads the run's events, by which time it has stored the run's id.
async fn followed(runs: &FakeRuns) {
    soon("the run's events are read", async {
        while runs.requests("GET", "/events").is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_of_the_python_bridge_and_one_line_are_enough() {
    let runs = FakeRuns::start([Script::new().delta("Hel").delta("lo").completed("Hello")]).await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = start(folder.path(), &runs);
    let states: Vec<_> =
        bridge.banner["executors"].as_array().unwrap().iter().map(|e| &e["readiness"]["state"]).collect();
    assert!(states.iter().all(|state| *state == "ready"), "{}", bridge.banner);
    assert_eq!(bridge.say("hi").await, "Hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_is_a_question_and_its_answer_resumes_the_run() {
    let runs = FakeRuns::start([Script::new().approval(COMMAND).completed("deleted")]).await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = start(folder.path(), &runs);
    let id = bridge.start_turn("clean up").await;
    let asked = bridge.in_state(&id, "TASK_STATE_INPUT_REQUIRED").await;
    assert!(asked["status"]["message"]["parts"][0]["text"].as_str().unwrap().contains(COMMAND), "{asked}");
    assert_eq!(
        asked["status"]["message"]["parts"][1]["data"]["approval"]["choices"],
        json!(["once", "session", "deny"])
    );
    let again = bridge.send(Message::new("always").to_task(&id), Delivery::Whole).await;
    assert!(again.status.wants_input(), "{}", again.raw());
    let done = bridge.send(Message::new("yes").to_task(&id), Delivery::Whole).await;
    assert!(done.text().contains("deleted"), "{done}");
    assert_eq!(runs.choices(), ["once"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_stops_the_run() {
    let runs = FakeRuns::start([Script::new().hang()]).await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = start(folder.path(), &runs);
    let id = bridge.start_turn("take your time").await;
    followed(&runs).await;
    let cancelled = bridge.client().cancel_task(&id).await.unwrap();
    assert_eq!(cancelled["status"]["state"], "TASK_STATE_CANCELED", "{cancelled}");
    assert_eq!(runs.requests("POST", "/stop").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_bridge_resumes_its_runs_and_questions() {
    let released = Arc::new(Notify::new());
    let runs = FakeRuns::start([
        Script::new().delta("one ").wait(&released).completed("the answer"),
        Script::new().approval(COMMAND).completed("deleted"),
    ])
    .await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = start(folder.path(), &runs);
    let working = bridge.start_turn("think").await;
    followed(&runs).await;
    let asking = bridge.start_turn("clean up").await;
    bridge.in_state(&asking, "TASK_STATE_INPUT_REQUIRED").await;
    bridge.kill();

    released.notify_one();
    let bridge = start(folder.path(), &runs);
    let done = bridge.in_state(&working, "TASK_STATE_COMPLETED").await;
    assert_eq!(done["artifacts"][0]["parts"][0]["text"], "the answer");
    assert_eq!(bridge.task(&asking).await["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    bridge.send(Message::new("yes").to_task(&asking), Delivery::Whole).await;
    let done = bridge.in_state(&asking, "TASK_STATE_COMPLETED").await;
    assert_eq!(done["artifacts"][0]["parts"][0]["text"], "deleted");
    assert_eq!(runs.choices(), ["once"], "the approval is not asked for twice");
    assert_eq!(runs.submitted().len(), 2, "no run is submitted twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_restart_fails_the_running_task_only() {
    let runs = FakeRuns::start([Script::new().hang(), Script::new().completed("back")]).await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = start(folder.path(), &runs);
    let id = bridge.start_turn("think").await;
    followed(&runs).await;
    runs.restart();
    let failed = bridge.in_state(&id, "TASK_STATE_FAILED").await;
    let text = failed["status"]["message"]["parts"][0]["text"].as_str().unwrap();
    assert!(text.contains("gateway restarted"), "{text}");
    assert_eq!(bridge.say("again").await, "back");
}
