//! SIGKILL at random points while turns go through the plugin. After every restart no accepted turn is missing, each has
//! its answer or the reason why it failed, and no message was sent twice.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use talaria_client::{ClientError, Delivery, Message, Protocol, TurnStatus};
use talaria_fakes::{FakePlugin, Inbound, Step, soon};
use tokio::task::JoinSet;

use crate::bridge::{Bridge, Start, client};

const KILLS: u64 = 20;
const SENDERS: usize = 4;
/// A gateway that was restarted knows the configured address only, which needs a secret.
const SECRET: &str = "a-shared-secret";

/// The text of each accepted message, by task.
type Accepted = Arc<Mutex<BTreeMap<String, String>>>;

/// The deadline is short, because a turn whose message was lost while it was sent waits until then.
fn start(folder: &Path, plugin: &FakePlugin, port: u16) -> Bridge {
    Start::new(folder)
        .config(&format!(
            "[executors]\ndefault = \"plugin-callback\"\n[store]\nurl = \"sqlite:tasks.db\"\n\
             [callback]\nlisten = \"127.0.0.1:{port}\"\n[executor.plugin-callback]\ndeadline = \"5s\"\n\
             [executor.plugin-callback.settings]\ninbound_url = \"{}\"\n",
            plugin.inbound_url()
        ))
        .env("MOLECULE_A2A_PLATFORM_SHARED_SECRET", SECRET)
        .up()
}

/// Sends messages one by one until the bridge is gone.
async fn send(url: String, sender: usize, round: u64, accepted: Accepted) {
    let client = client(&url, Protocol::V1_0);
    for nth in 0.. {
        let text = format!("question {round}-{sender}-{nth}");
        match client.send(&Message::new(&text), Delivery::Detached).await {
            Ok(answer) => drop(accepted.lock().unwrap().insert(answer.status.task.expect("a task"), text)),
            Err(ClientError::Rejected { .. }) => {}
            Err(_) => return,
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Checks that every accepted task ends. Returns how many completed with their answers.
async fn verify(bridge: &Bridge, plugin: &FakePlugin, accepted: &BTreeMap<String, String>) -> usize {
    let callback = bridge.banner["callback"].as_str().unwrap();
    let mut answered = 0;
    for (id, text) in accepted {
        let task = soon(&format!("task {id} ends"), async {
            loop {
                // A real gateway repeats undelivered replies when it restarts; the fake one does all the time.
                plugin.recover(callback).await;
                let task = bridge.task(id).await;
                if TurnStatus::of_task(&task).is_terminal() {
                    return task;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        if task["status"]["state"] == "TASK_STATE_COMPLETED" {
            assert_eq!(task["artifacts"][0]["parts"][0]["text"], format!("echo: {text}"), "{id}");
            answered += 1;
        } else {
            let why = task["status"]["message"]["parts"][0]["text"].as_str().unwrap();
            let known = ["interrupted by a restart", "[hermes plugin reply timeout after "];
            assert!(known.iter().any(|known| why.starts_with(known)), "{id}: {why}");
        }
    }
    answered
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_neither_lose_nor_double_turns_through_the_plugin() {
    let folder = tempfile::tempdir().unwrap();
    let port = talaria_fakes::free_port();
    let echo = |message: &Inbound| vec![Step::Answer(format!("echo: {}", message.content()))];
    let plugin = FakePlugin::with_secret(Some(SECRET), echo).await;
    let (mut before, mut accepted, mut answered) = (BTreeMap::new(), 0, 0);
    let mut chance = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..KILLS {
        let bridge = start(folder.path(), &plugin, port);
        answered += verify(&bridge, &plugin, &before).await;
        let told = Accepted::default();
        let mut senders = JoinSet::new();
        for sender in 0..SENDERS {
            senders.spawn(send(bridge.url().to_owned(), sender, round, Arc::clone(&told)));
        }
        // Xorshift: the points differ within a run and repeat in the next run.
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        tokio::time::sleep(Duration::from_millis(5 + chance % 90)).await;
        bridge.kill();
        senders.shutdown().await;
        before = std::mem::take(&mut *told.lock().unwrap());
        accepted += before.len();
    }
    answered += verify(&start(folder.path(), &plugin, port), &plugin, &before).await;
    let messages = plugin.messages();
    let contents: HashSet<&str> = messages.iter().map(Inbound::content).collect();
    assert_eq!(contents.len(), messages.len(), "a message was sent twice");
    assert!(
        accepted > usize::try_from(KILLS).unwrap(),
        "only {accepted} turns were accepted; that is no load"
    );
    // A kill takes what was in its hands, not more.
    let most = usize::try_from(KILLS).unwrap() * SENDERS;
    assert!(accepted - answered <= most, "{answered} of {accepted} turns were answered");
}
