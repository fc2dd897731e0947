//! A conversation is remembered, whoever is behind the executor, and a message that comes several times runs once.

use std::collections::HashMap;

use serde_json::{Value, json};
use talaria_fakes::{FakeGateway, Recorded, Reply};
use tokio::task::JoinSet;

use crate::bridge::{Bridge, Start, call};

/// A gateway that keeps nothing, with a model that knows what it is told.
async fn forgetful() -> FakeGateway {
    let gateway = FakeGateway::start(|request: &Recorded| {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let said: Vec<&str> =
            body["messages"].as_array().unwrap().iter().map(|it| it["content"].as_str().unwrap()).collect();
        let name = said.iter().rev().find_map(|text| text.strip_prefix("my name is "));
        Reply::completion(match (said.last(), name) {
            (Some(&"what is my name?"), Some(name)) => name,
            (Some(&"what is my name?"), None) => "nobody told me",
            _ => "noted",
        })
    })
    .await;
    gateway.keep_no_sessions();
    gateway
}

fn start(folder: &std::path::Path, gateway: &FakeGateway, more: &str) -> Bridge {
    let base_url = gateway.base_url();
    Start::new(folder)
        .env("API_SERVER_KEY", "k-0123456789abcdef")
        .env("ALICE", "alice-alice-alice")
        .config(&format!(
            "[store]\nurl = \"sqlite:tasks.db\"\n\
             [executor.chat-completions.settings]\nbase_url = \"{base_url}\"\n{more}"
        ))
        .up()
}

/// Says something, over 1.0 or 0.3; what was answered, and in which context.
async fn say(bridge: &Bridge, text: &str, is_new: bool, context: Option<&str>) -> (String, String) {
    let mut message = match is_new {
        true => json!({ "role": "ROLE_USER", "parts": [{ "text": text }] }),
        false => json!({ "kind": "message", "role": "user", "parts": [{ "kind": "text", "text": text }] }),
    };
    message["messageId"] = json!(format!("m-{text}"));
    if let Some(context) = context {
        message["contextId"] = json!(context);
    }
    let params = json!({ "message": message });
    let mut answered = match is_new {
        true => bridge.call("SendMessage", params).await["result"]["message"].take(),
        false => bridge.call_v03("message/send", params).await["result"].take(),
    };
    let said = answered["parts"][0]["text"].take();
    (said.as_str().unwrap().to_owned(), answered["contextId"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_name_is_remembered_over_sends_versions_and_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = forgetful().await;
    let bridge = start(folder.path(), &gateway, "");
    let (_, context) = say(&bridge, "my name is Ada", true, None).await;
    for is_new in [true, false] {
        assert_eq!(say(&bridge, "what is my name?", is_new, Some(&context)).await.0, "Ada");
    }
    assert_eq!(say(&bridge, "what is my name?", true, None).await.0, "nobody told me");
    bridge.kill();
    let bridge = start(folder.path(), &gateway, "");
    for is_new in [true, false] {
        assert_eq!(say(&bridge, "what is my name?", is_new, Some(&context)).await.0, "Ada");
    }
}

#[tokio::test]
async fn forty_messages_that_come_four_times_at_once_are_forty_tasks() {
    const MESSAGES: usize = 40;
    let folder = tempfile::tempdir().unwrap();
    let gateway = forgetful().await;
    let tokens =
        "[a2a]\nreply = \"task\"\n[a2a.auth]\ntokens = [{ name = \"alice\", token = { env = \"ALICE\" } }]\n";
    let bridge = start(folder.path(), &gateway, tokens);
    let mut senders = JoinSet::new();
    for number in (0..4).flat_map(|_| 0..MESSAGES) {
        let url = bridge.url().to_owned();
        senders.spawn(async move {
            let message = json!({
                "messageId": format!("m{number}"), "role": "ROLE_USER", "parts": [{ "text": format!("hi {number}") }],
            });
            let headers = [("a2a-version", "1.0"), ("authorization", "Bearer alice-alice-alice")];
            let mut sent = call(&url, "SendMessage", json!({ "message": message }), &headers).await;
            (number, sent["result"]["task"]["id"].take().as_str().unwrap().to_owned())
        });
    }
    let mut tasks = HashMap::new();
    while let Some(sent) = senders.join_next().await {
        let (number, task) = sent.unwrap();
        assert_eq!(*tasks.entry(number).or_insert_with(|| task.clone()), task, "message {number}");
    }
    assert_eq!(gateway.requests().len(), MESSAGES, "each is executed once");
}
