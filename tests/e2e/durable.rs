//! `kill -9` and restart: what was finished is there, what was under way is resumed or failed with a reason.

use std::path::Path;

use serde_json::{Value, json};
use talaria_fakes::{guest, soon};

use crate::bridge::{Bridge, Start, call, message};

/// A folder with the probe as default executor, so that messages say what happens.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let executors = folder.path().join("executors");
    std::fs::create_dir(&executors).unwrap();
    std::fs::write(executors.join("probe.wasm"), guest("probe")).unwrap();
    folder
}

fn start(folder: &Path) -> Bridge {
    Start::new(folder).config("[executors]\ndefault = \"probe\"\n[store]\nurl = \"sqlite:tasks.db\"\n").up()
}

pub(crate) async fn task(bridge: &Bridge, id: &Value) -> Value {
    bridge.call("GetTask", json!({ "id": id })).await["result"].take()
}

/// Sends without waiting; the id of the task.
pub(crate) async fn send(bridge: &Bridge, text: &str) -> Value {
    let mut params = message(text);
    params["configuration"] = json!({ "returnImmediately": true });
    let mut answer = bridge.call("SendMessage", params).await;
    answer["result"]["task"]["id"].take()
}

pub(crate) async fn in_state(bridge: &Bridge, id: &Value, state: &str) -> Value {
    soon(&format!("the task is {state}"), async {
        loop {
            let task = task(bridge, id).await;
            if task["status"]["state"] == state {
                return task;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_was_accepted_is_missing_after_a_kill() {
    let folder = folder();
    let bridge = start(folder.path());
    let finished = send(&bridge, "echo done").await;
    let before = in_state(&bridge, &finished, "TASK_STATE_COMPLETED").await;
    let interrupted = send(&bridge, "sleep 600000").await;
    let checkpointed = send(&bridge, "checkpoint sleep 600000").await;
    let asked = send(&bridge, "again ask which?").await;
    in_state(&bridge, &interrupted, "TASK_STATE_WORKING").await;
    in_state(&bridge, &checkpointed, "TASK_STATE_WORKING").await;
    in_state(&bridge, &asked, "TASK_STATE_INPUT_REQUIRED").await;
    // `checkpoint` is written before the guest goes on, and the guest is asleep when it answers nothing; give it that
    // moment by asking for something that runs after it.
    bridge.say("echo later").await;
    bridge.kill();

    let bridge = start(folder.path());
    assert_eq!(task(&bridge, &finished).await, before, "with its history and artifacts");
    let failed = in_state(&bridge, &interrupted, "TASK_STATE_FAILED").await;
    assert_eq!(failed["status"]["message"]["parts"][0]["text"], "interrupted by a restart");
    let resumed = in_state(&bridge, &checkpointed, "TASK_STATE_COMPLETED").await;
    assert_eq!(resumed["artifacts"][0]["parts"][0]["text"], "resumed at one");
    let still_asking = task(&bridge, &asked).await;
    assert_eq!(still_asking["status"]["state"], "TASK_STATE_INPUT_REQUIRED");

    let mut answer = message("this one");
    answer["message"]["taskId"] = asked.clone();
    bridge.call("SendMessage", answer).await;
    let answered = in_state(&bridge, &asked, "TASK_STATE_COMPLETED").await;
    assert_eq!(answered["artifacts"][0]["parts"][0]["text"], "this one");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_message_of_the_same_caller_is_not_run_again_after_a_restart() {
    let folder = folder();
    let start = || {
        Start::new(folder.path())
            .config(concat!(
                "[executors]\ndefault = \"probe\"\n[store]\nurl = \"sqlite:tasks.db\"\n",
                "[a2a.auth]\ntokens = [{ name = \"alice\", token = { env = \"ALICE_TOKEN\" } }]\n",
            ))
            .env("ALICE_TOKEN", "alice-token-0123456789")
            .up()
    };
    let alice = [("a2a-version", "1.0"), ("authorization", "Bearer alice-token-0123456789")];
    let once = message("echo once");
    let bridge = start();
    let first = call(bridge.url(), "SendMessage", once.clone(), &alice).await;
    bridge.kill();
    let bridge = start();
    assert_eq!(call(bridge.url(), "SendMessage", once, &alice).await, first);
}
