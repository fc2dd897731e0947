//! SIGKILL at random points while turns go through the plugin, and after every restart: no accepted turn is missing, each
//! has its own answer or a reason why it has none, and no message was sent twice.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use talaria_egress::{Access, Config, Egress, Request};
use talaria_fakes::{FakePlugin, Inbound, soon};
use tokio::task::JoinSet;

use crate::bridge::{Bridge, Start, call, message};

const KILLS: u64 = 20;
const SENDERS: usize = 4;

/// What was accepted, by task: the text of the message.
type Accepted = Arc<Mutex<BTreeMap<String, String>>>;

/// A message that is lost in the moment of sending is noticed at the deadline.
fn start(folder: &Path, plugin: &FakePlugin, port: u16) -> Bridge {
    Start::new(folder)
        .config(&format!(
            "[executors]\ndefault = \"plugin-callback\"\n[store]\nurl = \"sqlite:tasks.db\"\n\
             [callback]\nlisten = \"127.0.0.1:{port}\"\n[executor.plugin-callback]\ndeadline = \"5s\"\n\
             [executor.plugin-callback.settings]\ninbound_url = \"{}\"\n",
            plugin.inbound_url()
        ))
        .up()
}

/// Sends one message after the other until the bridge is gone.
async fn send(url: String, sender: usize, round: u64, accepted: Accepted) {
    let egress = Egress::new(Config::default());
    let access = Access { patterns: vec![format!("POST {url}/*").parse().unwrap()], ..Access::default() };
    for nth in 0.. {
        let text = format!("question {round}-{sender}-{nth}");
        let mut params = message(&text);
        params["configuration"] = json!({ "returnImmediately": true });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params });
        let request = Request {
            method: "POST".into(),
            url: format!("{url}/"),
            headers: [("content-type", "application/json"), ("a2a-version", "1.0")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec(),
            body: body.to_string().into(),
            ..Request::default()
        };
        let Ok(response) = egress.fetch(&access, request).await else { return };
        let answer: Value = serde_json::from_slice(&response.body).unwrap();
        if let Some(task) = answer["result"]["task"]["id"].as_str() {
            accepted.lock().unwrap().insert(task.to_owned(), text);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Every task that a client heard of ends; how many with their answers.
async fn verify(bridge: &Bridge, plugin: &FakePlugin, accepted: &BTreeMap<String, String>) -> usize {
    let callback = bridge.banner["callback"].as_str().unwrap();
    let mut answered = 0;
    for (id, text) in accepted {
        let task = soon(&format!("task {id} ends"), async {
            loop {
                // What the gateway owes it delivers when it is started again; here, all the time.
                plugin.recover(callback).await;
                let mut answer =
                    call(bridge.url(), "GetTask", json!({ "id": id }), &[("a2a-version", "1.0")]).await;
                let state =
                    answer["result"]["status"]["state"].as_str().unwrap_or_else(|| panic!("{id}: {answer}"));
                if ["TASK_STATE_COMPLETED", "TASK_STATE_FAILED"].contains(&state) {
                    return answer["result"].take();
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
async fn no_turn_through_the_plugin_is_lost_or_doubled_by_kills() {
    let folder = tempfile::tempdir().unwrap();
    let port = talaria_fakes::free_port();
    let plugin = FakePlugin::echo().await;
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
        // Xorshift: the points differ within a run and are the same in the next.
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
