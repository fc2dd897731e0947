//! A load of messages for a bridge that is restarted again and again, and an account of every message.
//!
//! A message is accepted if its sender received a task, rejected if it received an error, and unanswered if the bridge was
//! killed before it could answer. An accepted message must be stored exactly once and reach an end, a rejected one must not be
//! stored, and an unanswered one must not be stored twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use talaria_fakes::soon;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::bridge::try_request;

/// The pause of a sender between two messages.
const REST: Duration = Duration::from_millis(300);

/// Senders of every kind, which stop when this is dropped.
pub(crate) struct Traffic {
    /// The address to send to; `None` while the senders pause.
    to: watch::Sender<Option<String>>,
    /// The number of messages that wait for an answer.
    under_way: watch::Sender<usize>,
    account: Arc<Mutex<Account>>,
    _senders: JoinSet<()>,
}

/// How a message is sent.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// With 1.0, waiting for the answer.
    Waits,
    /// With 1.0, waiting only for the task.
    ReturnsImmediately,
    /// With 0.3, as the platform's proxy sends it, all in one context.
    Proxied,
}

/// The results of messages, by their ids.
#[derive(Debug, Default)]
struct Account {
    /// The task of each accepted message.
    accepted: BTreeMap<String, String>,
    refused: BTreeMap<String, Value>,
    unheard: BTreeSet<String>,
}

/// The number of messages by result.
#[derive(Debug)]
#[expect(dead_code, reason = "printed")]
pub(crate) struct Totals {
    accepted: usize,
    refused: usize,
    unheard: usize,
    completed: usize,
}

// === impl Traffic ===

impl Traffic {
    /// Creates senders that pause.
    pub(crate) fn new() -> Self {
        let (to, under_way) = (watch::Sender::new(None), watch::Sender::new(0));
        let (account, mut senders) = (Arc::<Mutex<Account>>::default(), JoinSet::new());
        for way in [Way::Waits, Way::ReturnsImmediately, Way::Proxied] {
            senders.spawn(keep_sending(way, to.subscribe(), under_way.clone(), Arc::clone(&account)));
        }
        Self { to, under_way, account, _senders: senders }
    }

    /// Starts sending to a bridge.
    pub(crate) fn go(&self, url: &str) {
        self.to.send_replace(Some(url.to_owned()));
    }

    /// Waits until some messages wait for their answers.
    pub(crate) async fn is_under_way(&self) {
        let mut under_way = self.under_way.subscribe();
        soon("messages are sent", under_way.wait_for(|count| *count > 0)).await.unwrap();
    }

    /// Stops sending, and waits until no message waits for its answer.
    pub(crate) async fn rest(&self) {
        self.to.send_replace(None);
        let mut under_way = self.under_way.subscribe();
        soon("all messages are answered", under_way.wait_for(|count| *count == 0)).await.unwrap();
    }

    /// Compares the messages with the stored tasks, of which `others` have another origin.
    pub(crate) fn settle(&self, tasks: &[Value], others: usize) -> Totals {
        let account = self.account.lock().unwrap();
        let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for task in tasks {
            let (id, message) = (task["id"].as_str().unwrap(), task["history"][0]["messageId"].as_str());
            found.entry(message.unwrap_or_else(|| panic!("no message in {task}"))).or_default().push(id);
        }
        for (message, task) in &account.accepted {
            let there = found.remove(message.as_str()).unwrap_or_default();
            assert_eq!(there, [task], "{message} was accepted: it is there, once");
        }
        for message in &account.unheard {
            let there = found.remove(message.as_str()).unwrap_or_default();
            assert!(there.len() < 2, "{message} is there at most once, not as {there:?}");
        }
        for (message, why) in &account.refused {
            assert!(!found.contains_key(message.as_str()), "{message} was refused, and is there: {why}");
        }
        assert_eq!(found.len(), others, "these were not sent: {found:?}");
        let completed = tasks.iter().filter(|task| task["status"]["state"] == "TASK_STATE_COMPLETED").count();
        let Account { accepted, refused, unheard } = &*account;
        Totals { accepted: accepted.len(), refused: refused.len(), unheard: unheard.len(), completed }
    }
}

// === impl Account ===

impl Account {
    fn enter(&mut self, message: String, answer: Option<Value>) {
        let task = answer.as_ref().and_then(task_of);
        match (task, answer) {
            (Some(task), _) => drop(self.accepted.insert(message, task)),
            (None, Some(answer)) => drop(self.refused.insert(message, answer)),
            (None, None) => drop(self.unheard.insert(message)),
        }
    }
}

async fn keep_sending(
    way: Way,
    mut to: watch::Receiver<Option<String>>,
    under_way: watch::Sender<usize>,
    account: Arc<Mutex<Account>>,
) {
    for number in 0.. {
        let Ok(url) = to.wait_for(Option::is_some).await.map(|url| url.clone().unwrap_or_default()) else {
            return;
        };
        let message = format!("{way:?}-{number}");
        under_way.send_modify(|count| *count += 1);
        let answer = send(way, &url, &message).await;
        account.lock().unwrap().enter(message, answer);
        under_way.send_modify(|count| *count -= 1);
        tokio::time::sleep(REST).await;
    }
}

/// Sends one message; `None` if there was no complete answer.
async fn send(way: Way, url: &str, message: &str) -> Option<Value> {
    let text = format!("the message {message}");
    let (version, method, params) = match way {
        Way::Proxied => {
            let parts = json!([{ "kind": "text", "text": text }]);
            let message = json!({ "kind": "message", "messageId": message, "role": "user", "parts": parts, "contextId": "canvas-ws-1" });
            ("0.3", "message/send", json!({ "message": message }))
        }
        Way::Waits | Way::ReturnsImmediately => {
            let at_once = matches!(way, Way::ReturnsImmediately);
            let message = json!({ "messageId": message, "role": "ROLE_USER", "parts": [{ "text": text }] });
            let configuration = json!({ "returnImmediately": at_once });
            ("1.0", "SendMessage", json!({ "message": message, "configuration": configuration }))
        }
    };
    let headers = [("content-type", "application/json"), ("a2a-version", version)];
    // The proxy sends no version.
    let headers = if matches!(way, Way::Proxied) { &headers[..1] } else { &headers };
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    let response = try_request(url, "POST", "/", headers, &body).await.ok()?;
    serde_json::from_slice(&response.body).ok()
}

/// Returns the task of an answer, which is a message or a task in 1.0 or in 0.3.
fn task_of(answer: &Value) -> Option<String> {
    let named = ["/result/task/id", "/result/id"].iter().find_map(|place| answer.pointer(place)?.as_str());
    // A message does not name its task, but its id is derived from that of the task.
    let places = ["/result/message/messageId", "/result/messageId"];
    let derived = || places.iter().find_map(|place| answer.pointer(place)?.as_str()?.strip_prefix("reply-"));
    named.or_else(derived).map(str::to_owned)
}
