//! Callbacks of the plugin over HTTP: the secret, the texts about delivery, and the answers of the Python bridge.

use std::sync::Arc;

use serde_json::{Value, json};
use talaria_egress::{Access, Config as EgressConfig, Egress, Request};
use talaria_hermes::{CALLBACK_PATH, HermesWire};
use talaria_mailbox::{Config, Limits, Listener, Mailbox};
use talaria_redact::{Redactor, Replies, ReplyRedactor};
use talaria_store::Memory;
use talaria_turns::{Awaited, Callbacks as _, Expectation, Principal, TaskId, TaskKey};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

struct Host {
    mailbox: Mailbox,
    url: String,
    _serving: JoinSet<()>,
}

impl Host {
    async fn start(secret: Option<&str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}{CALLBACK_PATH}", listener.local_addr().unwrap());
        let config = Config {
            reply_url: url.clone(),
            path_token: None,
            wire: Arc::new(HermesWire::new(secret.map(Into::into))),
            limits: Limits::default(),
            replies: ReplyRedactor::new(Redactor::new(secret), Replies::Values),
        };
        let mailbox = Mailbox::open(Arc::new(Memory::new(10)), config).await.unwrap();
        let mut serving = JoinSet::new();
        serving.spawn(Listener::new(mailbox.clone()).serve(listener, CancellationToken::new()));
        Self { mailbox, url, _serving: serving }
    }

    async fn expect(&self, message: &str, chat: Option<&str>) -> Box<dyn Awaited> {
        let task = TaskKey { owner: Principal::anyone(), task: TaskId::fresh() };
        let (executor, message, chat) = ("it".into(), message.into(), chat.map(Into::into));
        self.mailbox.expect(Expectation { task, executor, message, chat, within: None }).await.unwrap()
    }

    async fn post(&self, headers: &[(&str, &str)], body: &str) -> (u16, Value) {
        let patterns = vec![format!("POST {}", self.url).parse().unwrap()];
        let request = Request {
            method: "POST".into(),
            url: self.url.clone(),
            headers: headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            body: body.to_owned().into(),
            ..Request::default()
        };
        let access = Access { patterns, ..Access::default() };
        let response = Egress::new(EgressConfig::default()).fetch(&access, request).await.unwrap();
        (response.status, serde_json::from_slice(&response.body).unwrap_or_default())
    }

    async fn say(&self, chat: &str, reply_to: Option<&str>, content: &str) -> (u16, Value) {
        let body = json!({ "chat_id": chat, "content": content, "reply_to": reply_to, "metadata": {} });
        self.post(&[], &body.to_string()).await
    }
}

async fn next(awaited: &mut Box<dyn Awaited>) -> Value {
    serde_json::from_slice(&awaited.next().await.unwrap().body).unwrap()
}

fn accepted() -> (u16, Value) {
    (200, json!({ "ok": true }))
}

fn stale() -> (u16, Value) {
    (200, json!({ "ok": true, "stale": true }))
}

#[tokio::test]
async fn a_report_about_delivery_is_not_an_answer() {
    let host = Host::start(None).await;
    let mut one = host.expect("m1", Some("c")).await;
    let failed = "⚠️ Message delivery failed after multiple attempts. Please try again";
    assert_eq!(host.say("c", Some("m1"), failed).await, accepted());
    assert_eq!(next(&mut one).await["kind"], "delivery-failed");
    let recovered =
        "♻️ Recovered reply — the gateway restarted during delivery, so this may be a duplicate:\n\nanswer";
    assert_eq!(host.say("c", None, recovered).await, accepted());
    assert_eq!(
        next(&mut one).await,
        json!({ "kind": "reply", "chat_id": "c", "reply_to": "m1", "content": "answer", "recovered": true })
    );
    assert_eq!(host.say("c", None, recovered).await, stale());
    let plain = "(Response formatting failed, plain text:)\n\nanswer";
    assert_eq!(host.say("c", Some("m1"), plain).await, stale(), "the same answer once more");
}

#[tokio::test]
async fn only_a_peer_with_the_secret_is_heard() {
    let host = Host::start(Some("s3cret")).await;
    let mut one = host.expect("m1", None).await;
    let body = json!({ "content": "x", "reply_to": "m1" }).to_string();
    let unauthorized = (401, json!({ "ok": false, "error": "unauthorized" }));
    for headers in [vec![], vec![("x-molecule-a2a-secret", "")], vec![("x-molecule-a2a-secret", "s3crett")]] {
        assert_eq!(host.post(&headers, &body).await, unauthorized, "{headers:?}");
        assert_eq!(host.post(&headers, "not json").await, unauthorized, "before the body is read");
    }
    assert_eq!(host.post(&[("X-Molecule-A2A-Secret", "s3cret")], &body).await, accepted());
    assert_eq!(next(&mut one).await["content"], "x");
}

#[tokio::test]
async fn bad_bodies_are_rejected_in_the_words_of_the_python_bridge() {
    let host = Host::start(None).await;
    let invalid = (400, json!({ "ok": false, "error": "invalid json" }));
    let incomplete = (400, json!({ "ok": false, "error": "reply_to and content required" }));
    for body in ["", "{", "nonsense"] {
        assert_eq!(host.post(&[], body).await, invalid, "{body}");
    }
    for body in ["[]", "null", "{}", r#"{"reply_to":"m1"}"#, r#"{"reply_to":"m1","content":7}"#] {
        assert_eq!(host.post(&[], body).await, incomplete, "{body}");
    }
}
