//! The wire of the molecule-a2a platform at the real gateway, without a bridge: what an executor can rely on, and what
//! it must expect. The plugin is ours; sessions, commands, approvals and the order of answers are the gateway's.

use serde_json::{Value, json};
use talaria_fakes::{FakeGateway, Provider, Reply};

use crate::cases::{patiently, words};
use crate::gateway::{Options, SECRET};
use crate::partner::{Partner, Shared};

/// A chat of one test, and its callbacks.
struct Chat {
    hermes: Shared,
    callback: FakeGateway,
    id: String,
}

impl Chat {
    async fn new(id: &str) -> Self {
        let callback = FakeGateway::always(Reply::json(&json!({ "ok": true }))).await;
        Self { hermes: Partner::shared().await, callback, id: format!("{id}-{}", std::process::id()) }
    }

    /// Sends a text unchanged and asserts that it is accepted.
    async fn post(&self, message: &str, text: &str) {
        let body = json!({
            "chat_id": self.id, "peer_id": "peer", "peer_name": "Peer", "content": text, "message_id": message,
            "callback_url": self.callback.base_url(),
        });
        let answer = self.hermes.gateway.post_inbound(SECRET, &body.to_string()).await;
        assert_eq!(
            (answer.status, serde_json::from_slice(&answer.body).ok()),
            (200, Some(json!({ "ok": true, "queued": true })))
        );
    }

    /// Sends a command for the model; returns the turn's name.
    async fn say(&self, message: &str, command: &str) -> String {
        let (text, turn) = Provider::turn(command);
        self.post(message, &text).await;
        turn
    }

    /// All callbacks so far.
    fn callbacks(&self) -> Vec<Value> {
        self.callback.requests().iter().map(talaria_fakes::Recorded::json).collect()
    }

    /// Waits for the first callback that matches.
    async fn callback(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        patiently(what, || self.callbacks().into_iter().find(&holds)).await
    }

    /// Waits for the answer to a message; returns its content.
    async fn answer(&self, message: &str) -> String {
        let what = format!("an answer to {message} in {:?}", self.id);
        let callback = self.callback(&what, |callback| callback["reply_to"] == message).await;
        callback["content"].as_str().unwrap_or_default().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_comes_to_the_callback_with_the_secret() {
    let chat = Chat::new("answer").await;
    chat.say("m1", "say hello").await;
    assert_eq!(chat.answer("m1").await, "hello");
    let request = chat.callback.requests().remove(0);
    assert_eq!((request.method.as_str(), request.header("x-molecule-a2a-secret")), ("POST", Some(SECRET)));
    assert_eq!(request.json()["chat_id"], chat.id);
    chat.say("m2", "history").await;
    let seen: Vec<String> = serde_json::from_str(&chat.answer("m2").await).unwrap();
    assert_eq!(words(&seen), ["say hello", "hello"]);
    chat.say("m3", "long 900").await;
    assert_eq!(chat.answer("m3").await.len(), 9_000, "in one piece");
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_and_unauthorised_messages_are_rejected() {
    let hermes = Partner::shared().await;
    let message = json!({ "chat_id": "c", "content": "hello" }).to_string();
    for (secret, body, status, error) in [
        ("wrong", message.as_str(), 401, "unauthorized"),
        ("", &message, 401, "unauthorized"),
        (SECRET, "{", 400, "invalid json"),
        (SECRET, "[]", 400, "expected object"),
        (SECRET, "{\"chat_id\":\"c\"}", 400, "chat_id and content required"),
        (SECRET, "{\"content\":\"hello\"}", 400, "chat_id and content required"),
    ] {
        let answer = hermes.gateway.post_inbound(secret, body).await;
        let said: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!((answer.status, &said), (status, &json!({ "ok": false, "error": error })), "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_is_asked_for_and_answered_in_the_chat() {
    for (command, allowed) in [("/approve", true), ("/deny", false)] {
        let chat = Chat::new(&command[1..]).await;
        let folder = chat.hermes.gateway.scratch();
        chat.say("m1", &format!("run rm -rf {}", folder.display())).await;
        let asks = |callback: &Value| callback["content"].to_string().contains("requires approval");
        let prompt = chat.callback("the question", asks).await;
        assert_eq!((&prompt["reply_to"], &prompt["metadata"]), (&Value::Null, &json!({})), "{prompt}");
        assert!(folder.exists());
        chat.post("m2", command).await;
        let said = chat.answer("m1").await;
        assert!(said.starts_with("the tool said: "), "{said}");
        assert_eq!(!folder.exists(), allowed, "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_ends_the_turn_which_is_never_answered() {
    let chat = Chat::new("stop").await;
    let pid = chat.hermes.gateway.scratch().join("pid");
    let turn = chat.say("m1", &format!("run echo $$ > {}; sleep 3600", pid.display())).await;
    patiently("the tool works", || std::fs::read_to_string(&pid).ok()?.trim().parse::<u32>().ok()).await;
    chat.post("m2", "/stop").await;
    let said = chat.answer("m2").await;
    assert!(said.contains("Stopped"), "{said}");
    chat.say("m3", "say free").await;
    assert_eq!(chat.answer("m3").await, "free");
    assert_eq!(chat.hermes.model.times(&turn), 1);
    assert!(!chat.callbacks().iter().any(|callback| callback["reply_to"] == "m1"), "{:?}", chat.callbacks());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_begins_with_a_slash_is_a_command_and_a_blank_before_it_disarms_it() {
    let chat = Chat::new("slash").await;
    chat.post("m1", "/no-such-command").await;
    let said = chat.answer("m1").await;
    assert!(said.contains("no-such-command"), "{said}");
    let (text, turn) = Provider::turn("say harmless");
    chat.post("m2", &format!(" /status {text}")).await;
    assert_eq!(chat.answer("m2").await, "harmless");
    assert_eq!(chat.hermes.model.times(&turn), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_of_the_model_is_sent_as_text() {
    let chat = Chat::new("failure").await;
    chat.say("m1", "fail 401").await;
    let said = chat.answer("m1").await;
    assert!(said.starts_with("⚠️ Provider authentication failed."), "{said}");
    let copies: Vec<_> = chat.callbacks().iter().map(|callback| callback["reply_to"].clone()).collect();
    assert_eq!(copies, [Value::Null, json!("m1")], "the same text came as a notice before");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_to_a_busy_chat_are_answered_under_the_wrong_id() {
    // This is the reason why a bridge has one message at a time in a chat.
    let chat = Chat::new("busy").await;
    let turn = chat.say("e1", "wait").await;
    chat.hermes.model.asked(&turn).await;
    chat.say("e2", "say two").await;
    chat.hermes.model.release(&turn);
    let first = chat.callback("the first answer", |callback| callback["content"] == "released").await;
    let second = chat.callback("the second answer", |callback| callback["content"] == "two").await;
    assert_eq!((&first["reply_to"], &second["reply_to"]), (&Value::Null, &json!("e1")));
    assert_eq!((&first["metadata"], &second["metadata"]), (&json!({}), &json!({ "notify": true })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_a_crash_interrupted_is_resumed_and_answered_without_an_id() {
    let callback = FakeGateway::always(Reply::json(&json!({ "ok": true }))).await;
    let options = Options { callback: callback.base_url(), ..Options::default() };
    let mut hermes = Partner::own(options).await;
    let (text, turn) = Provider::turn("wait");
    // The message names no callback URL, since the gateway would have forgotten it.
    let body = json!({ "chat_id": "crash", "content": text, "message_id": "m1" }).to_string();
    assert_eq!(hermes.gateway.post_inbound(SECRET, &body).await.status, 200);
    hermes.model.asked(&turn).await;
    hermes.gateway.restart().await;
    patiently("the agent goes on", || (hermes.model.times(&turn) == 2).then_some(())).await;
    hermes.model.release(&turn);
    let answer =
        patiently("the answer", || callback.requests().first().map(talaria_fakes::Recorded::json)).await;
    assert_eq!(
        answer,
        json!({
            "chat_id": "crash", "content": "released", "reply_to": null, "metadata": { "notify": true },
        })
    );
}
