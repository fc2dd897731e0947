//! `kill -9` and restart: finished tasks are kept, running turns resume or fail with a reason.

use std::path::Path;

use talaria_client::{Delivery, Message};
use talaria_fakes::guest;

use crate::bridge::{Bridge, Start, call, message};

/// A folder with the probe as its default executor, which does what the message says.
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

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_loses_no_accepted_turn() {
    let folder = folder();
    let bridge = start(folder.path());
    let finished = bridge.start_turn("echo done").await;
    let before = bridge.in_state(&finished, "TASK_STATE_COMPLETED").await;
    let interrupted = bridge.start_turn("sleep 600000").await;
    let checkpointed = bridge.start_turn("checkpoint sleep 600000").await;
    let asked = bridge.start_turn("again ask which?").await;
    bridge.in_state(&interrupted, "TASK_STATE_WORKING").await;
    bridge.in_state(&checkpointed, "TASK_STATE_WORKING").await;
    bridge.in_state(&asked, "TASK_STATE_INPUT_REQUIRED").await;
    // The guest writes its checkpoint before it sleeps. A later turn that completes proves that it got there.
    bridge.say("echo later").await;
    bridge.kill();

    let bridge = start(folder.path());
    assert_eq!(bridge.task(&finished).await, before, "with its history and artifacts");
    let failed = bridge.in_state(&interrupted, "TASK_STATE_FAILED").await;
    assert_eq!(failed["status"]["message"]["parts"][0]["text"], "interrupted by a restart");
    let resumed = bridge.in_state(&checkpointed, "TASK_STATE_COMPLETED").await;
    assert_eq!(resumed["artifacts"][0]["parts"][0]["text"], "resumed at one");
    let still_asking = bridge.task(&asked).await;
    assert_eq!(still_asking["status"]["state"], "TASK_STATE_INPUT_REQUIRED");

    bridge.send(Message::new("this one").to_task(&asked), Delivery::Whole).await;
    let answered = bridge.in_state(&asked, "TASK_STATE_COMPLETED").await;
    assert_eq!(answered["artifacts"][0]["parts"][0]["text"], "this one");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_message_is_not_run_again_after_a_restart() {
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
