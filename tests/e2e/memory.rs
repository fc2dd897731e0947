//! A context remembers its earlier turns whatever the upstream keeps, and a message that is sent several times runs once.

use std::collections::HashMap;

use serde_json::Value;
use talaria_client::{Delivery, Message, Protocol};
use talaria_fakes::{FakeGateway, Recorded, Reply};
use tokio::task::JoinSet;

use crate::bridge::{Bridge, Start, client, client_with_token};

/// A gateway that keeps no sessions, with a model that knows only what is in the request.
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

/// Sends a message over 1.0 or 0.3. Returns the text of the answer and its context.
async fn say(bridge: &Bridge, text: &str, is_new: bool, context: Option<&str>) -> (String, String) {
    let id = Some(format!("m-{text}"));
    let message = Message { id, context: context.map(str::to_owned), ..Message::new(text) };
    let protocol = if is_new { Protocol::V1_0 } else { Protocol::V0_3 };
    let answer = client(bridge.url(), protocol).send(&message, Delivery::Whole).await.unwrap();
    (answer.to_string(), answer.status.context.unwrap())
}

#[tokio::test]
async fn a_context_is_remembered_across_versions_and_a_kill() {
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
async fn forty_messages_sent_four_times_at_once_are_forty_tasks() {
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
            let id = Some(format!("m{number}"));
            let message = Message { id, ..Message::new(format!("hi {number}")) };
            let client = client_with_token(&url, "alice-alice-alice");
            let sent = client.send(&message, Delivery::Whole).await.unwrap();
            (number, sent.status.task.unwrap())
        });
    }
    let mut tasks = HashMap::new();
    while let Some(sent) = senders.join_next().await {
        let (number, task) = sent.unwrap();
        assert_eq!(*tasks.entry(number).or_insert_with(|| task.clone()), task, "message {number}");
    }
    assert_eq!(gateway.requests().len(), MESSAGES, "each is executed once");
}
