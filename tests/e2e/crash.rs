//! SIGKILL at random points under load, 200 times. After every restart no accepted turn is missing, no event is lost,
//! doubled or out of order, no task is stuck, and the webhook has received every event in order.
//!
//! The senders read raw streams, because the test is about event ids and about streams that break off.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use talaria_egress::{Access, Config, Egress, Request};
use talaria_fakes::{guest, soon};

use crate::bridge::{Bridge, Start, message};
use crate::webhook::Webhook;

const KILLS: u64 = 200;
/// Concurrent senders. Two share a context, so that some turns are queued when the kill comes.
const SENDERS: usize = 4;
/// The prompts: an answer at once, one in pieces, a turn that a restart resumes, one that it fails, and one that asks for
/// input.
const PROMPTS: [&str; 5] =
    ["echo done", "emit one two three four five", "checkpoint sleep 40", "sleep 40", "ask-back which?"];

/// What clients received, by task: the event id of the first snapshot, then the events.
type Received = Arc<Mutex<BTreeMap<String, Vec<(String, Value)>>>>;

fn start(folder: &Path) -> Bridge {
    Start::new(folder)
        .config(concat!(
            "[executors]\ndefault = \"probe\"\n[store]\nurl = \"sqlite:tasks.db\"\n",
            "[push]\nallow_private = true\npause = \"10ms\"\n",
        ))
        .up()
}

/// Reads a stream until it ends or breaks off, and records its events.
async fn listen(url: &str, method: &str, params: Value, last: Option<&str>, received: &Received) {
    let access = Access { patterns: vec![format!("POST {url}/*").parse().unwrap()], ..Access::default() };
    let mut headers = vec![
        ("content-type".to_owned(), "application/json".to_owned()),
        ("a2a-version".to_owned(), "1.0".to_owned()),
    ];
    headers.extend(last.map(|id| ("last-event-id".to_owned(), id.to_owned())));
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    let request = Request {
        method: "POST".into(),
        url: format!("{url}/"),
        headers,
        body: body.into(),
        ..Request::default()
    };
    let Ok(mut exchange) = Egress::new(Config::default()).open(&access, request).await else { return };
    let mut task = String::new();
    while let Ok(Some(event)) = exchange.next_event().await {
        let result = serde_json::from_str::<Value>(&event.data).unwrap()["result"].take();
        let id = event.id.expect("every event has an id");
        if let Some(snapshot) = result["task"]["id"].as_str() {
            task = snapshot.to_owned();
            received.lock().unwrap().entry(task.clone()).or_default().push((id, Value::Null));
            continue;
        }
        let update = if result["statusUpdate"].is_object() {
            &result["statusUpdate"]
        } else {
            &result["artifactUpdate"]
        };
        if task.is_empty() {
            task = update["taskId"].as_str().unwrap_or_else(|| panic!("{result}")).to_owned();
        }
        received.lock().unwrap().entry(task.clone()).or_default().push((id, result));
    }
}

/// Sends messages one by one until the bridge is gone.
async fn send(url: String, sender: usize, webhook: String, received: Received) {
    for nth in 0.. {
        let mut params = message(PROMPTS[(sender + nth) % PROMPTS.len()]);
        params["configuration"] = json!({ "taskPushNotificationConfig": { "url": webhook } });
        params["message"]["contextId"] = format!("context-{}-{}", sender / 2, std::process::id()).into();
        listen(&url, "SendStreamingMessage", params, None, &received).await;
    }
}

/// Checks that every task that a client heard of exists, settles, and has every event that a client received, once and in
/// order. Its webhook has received the same events. The last one may arrive twice: an event that was delivered but not
/// recorded as delivered before the kill is sent again.
async fn verify(bridge: &Bridge, webhook: &Webhook, received: &BTreeMap<String, Vec<(String, Value)>>) {
    for (id, seen) in received {
        let task = bridge.settled(id).await;
        if task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED" {
            continue;
        }
        let Some(((place, _), seen)) = seen.split_first() else { panic!("{id}: no event was received") };
        let replay = Received::default();
        listen(bridge.url(), "SubscribeToTask", json!({ "id": id }), Some(place), &replay).await;
        let replay = replay.lock().unwrap().get(id).cloned().unwrap_or_default();
        let numbers: Vec<u64> = replay.iter().map(|(id, _)| id.parse().unwrap()).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "{id}: {numbers:?}");
        let again: Vec<_> = replay.iter().take(seen.len()).cloned().collect();
        assert_eq!(seen, again, "{id}: a client received other events");
        let happened: Vec<_> = replay.into_iter().map(|(_, update)| update).collect();
        let pushed = soon(&format!("the webhook receives the end of {id}"), async {
            loop {
                let pushed = webhook.updates(id);
                if pushed.last() == happened.last() {
                    return pushed;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        assert_eq!(pushed, happened, "{id}: the webhook received other events");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_kills_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let executors = folder.path().join("executors");
    std::fs::create_dir(&executors).unwrap();
    std::fs::write(executors.join("probe.wasm"), guest("probe")).unwrap();
    let mut chance = 0x9e37_79b9_7f4a_7c15_u64;
    let mut before = BTreeMap::new();
    let mut tasks = 0;
    let webhook = Webhook::start(true).await;
    for _ in 0..KILLS {
        let bridge = start(folder.path());
        verify(&bridge, &webhook, &before).await;
        webhook.clear();
        let received = Received::default();
        let mut senders = tokio::task::JoinSet::new();
        for sender in 0..SENDERS {
            senders.spawn(send(bridge.url().to_owned(), sender, webhook.url.clone(), Arc::clone(&received)));
        }
        // Xorshift: the points differ within a run and repeat in the next run.
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        tokio::time::sleep(Duration::from_millis(5 + chance % 90)).await;
        bridge.kill();
        senders.shutdown().await;
        before = std::mem::take(&mut *received.lock().unwrap());
        tasks += before.len();
    }
    verify(&start(folder.path()), &webhook, &before).await;
    assert!(tasks > usize::try_from(KILLS).unwrap(), "only {tasks} turns were accepted; that is not a load");
}
