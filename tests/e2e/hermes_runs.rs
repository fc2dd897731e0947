//! The executor `hermes-runs` behind the real binary: approvals, cancel, and a restart of either side.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use talaria_fakes::{FakeRuns, Script, soon};
use tokio::sync::Notify;

use crate::bridge::{Bridge, Start, message};
use crate::durable::{in_state, send, task};

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

/// Returns once the run's events are read, which is after its id was kept.
async fn followed(runs: &FakeRuns) {
    soon("the run's events are read", async {
        while runs.requests("GET", "/events").is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

fn answer(task: &Value, text: &str) -> Value {
    let mut params = message(text);
    params["message"]["taskId"] = task.clone();
    params
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_of_the_seeds_and_one_line_are_enough() {
    let runs = FakeRuns::start([Script::new().delta("Hel").delta("lo").completed("Hello")]).await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = start(folder.path(), &runs);
    let states: Vec<_> =
        bridge.banner["executors"].as_array().unwrap().iter().map(|e| &e["readiness"]["state"]).collect();
    assert!(states.iter().all(|state| *state == "ready"), "{}", bridge.banner);
    assert_eq!(bridge.say("hi").await, "Hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_is_a_question_and_its_answer_lets_the_run_go_on() {
    let runs = FakeRuns::start([Script::new().approval(COMMAND).completed("deleted")]).await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = start(folder.path(), &runs);
    let asked = bridge.call("SendMessage", message("clean up")).await["result"]["task"].take();
    assert_eq!(asked["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{asked}");
    assert!(asked["status"]["message"]["parts"][0]["text"].as_str().unwrap().contains(COMMAND), "{asked}");
    assert_eq!(
        asked["status"]["message"]["parts"][1]["data"]["approval"]["choices"],
        json!(["once", "session", "deny"])
    );
    let again = bridge.call("SendMessage", answer(&asked["id"], "always")).await["result"]["task"].take();
    assert_eq!(again["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{again}");
    let done = bridge.call("SendMessage", answer(&asked["id"], "yes")).await;
    assert!(done.to_string().contains("deleted"), "{done}");
    assert_eq!(runs.choices(), ["once"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_stops_the_run() {
    let runs = FakeRuns::start([Script::new().hang()]).await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = start(folder.path(), &runs);
    let id = send(&bridge, "take your time").await;
    followed(&runs).await;
    let cancelled = bridge.call("CancelTask", json!({ "id": id })).await;
    assert_eq!(cancelled["result"]["status"]["state"], "TASK_STATE_CANCELED", "{cancelled}");
    assert_eq!(runs.requests("POST", "/stop").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_bridge_goes_on_with_the_run_and_with_its_question() {
    let released = Arc::new(Notify::new());
    let runs = FakeRuns::start([
        Script::new().delta("one ").wait(&released).completed("the answer"),
        Script::new().approval(COMMAND).completed("deleted"),
    ])
    .await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = start(folder.path(), &runs);
    let working = send(&bridge, "think").await;
    followed(&runs).await;
    let asking = send(&bridge, "clean up").await;
    in_state(&bridge, &asking, "TASK_STATE_INPUT_REQUIRED").await;
    bridge.kill();

    released.notify_one();
    let bridge = start(folder.path(), &runs);
    let done = in_state(&bridge, &working, "TASK_STATE_COMPLETED").await;
    assert_eq!(done["artifacts"][0]["parts"][0]["text"], "the answer");
    assert_eq!(task(&bridge, &asking).await["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    bridge.call("SendMessage", answer(&asking, "yes")).await;
    let done = in_state(&bridge, &asking, "TASK_STATE_COMPLETED").await;
    assert_eq!(done["artifacts"][0]["parts"][0]["text"], "deleted");
    assert_eq!(runs.choices(), ["once"], "the answer is not asked for twice");
    assert_eq!(runs.submitted().len(), 2, "nothing is run twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_gateway_fails_the_task_and_not_the_next_one() {
    let runs = FakeRuns::start([Script::new().hang(), Script::new().completed("back")]).await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = start(folder.path(), &runs);
    let id = send(&bridge, "think").await;
    followed(&runs).await;
    runs.restart();
    let failed = in_state(&bridge, &id, "TASK_STATE_FAILED").await;
    let text = failed["status"]["message"]["parts"][0]["text"].as_str().unwrap();
    assert!(text.contains("gateway restarted"), "{text}");
    assert_eq!(bridge.say("again").await, "back");
}
