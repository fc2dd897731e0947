//! The gateway does not load a session for a run, so each run is sent with the earlier messages.

use std::sync::Arc;

use serde_json::{Value, json};
use talaria_fakes::{FakeRuns, Reply, Script};
use talaria_turns::{Message, Part, Role, Turn};

use super::rig;

async fn three_turns() -> FakeRuns {
    FakeRuns::start(["one", "two", "three"].map(|text| Script::new().completed(text))).await
}

fn said(role: &str, content: &str) -> Value {
    json!({ "role": role, "content": content })
}

fn history(body: &Value) -> Vec<Value> {
    body["conversation_history"].as_array().cloned().unwrap_or_default()
}

#[tokio::test]
async fn each_turn_of_a_context_knows_those_before_it() {
    let runs = three_turns().await;
    let rig = rig(&runs).await;
    for text in ["first", "second", "third"] {
        let _ = rig.run(text).await;
    }
    let bodies = runs.submitted();
    assert_eq!(history(&bodies[0]), [] as [Value; 0]);
    assert_eq!(bodies[0].get("conversation_history"), None);
    let mut expected = vec![said("user", "first"), said("assistant", "one")];
    assert_eq!(history(&bodies[1]), expected);
    expected.extend([said("user", "second"), said("assistant", "two")]);
    assert_eq!(history(&bodies[2]), expected);
    assert_eq!(bodies[0]["session_id"], bodies[2]["session_id"], "one session for all");
}

#[tokio::test]
async fn another_context_is_another_session() {
    let runs = three_turns().await;
    for _ in 0..2 {
        let _ = rig(&runs).await.run("hello").await;
    }
    let bodies = runs.submitted();
    assert_ne!(bodies[0]["session_id"], bodies[1]["session_id"]);
    assert_eq!(history(&bodies[1]), [] as [Value; 0]);
}

#[tokio::test]
async fn the_tasks_own_history_is_sent_if_the_gateway_has_none() {
    let runs = three_turns().await;
    let rig = rig(&runs).await;
    let before = [
        Message { role: Role::User, ..Message::agent(vec![Part::text("look"), Part::text("here")]) },
        Message::agent(vec![Part::text("where?")]),
        Message::agent(vec![Part::text(" ")]),
    ];
    let before: Arc<[Arc<Message>]> = before.into_iter().map(Arc::new).collect();
    let expected = [said("user", "look here"), said("assistant", "where?")];
    let _ = rig.execute(Turn { history: Arc::clone(&before), ..rig.turn("there") }).await;
    assert_eq!(history(&runs.submitted()[0]), expected);
    for reply in [
        Reply::status(404, "application/json", r#"{"error":{"code":"session_not_found"}}"#),
        Reply::status(503, "application/json", r#"{"error":{"code":"session_db_unavailable"}}"#),
    ] {
        runs.next("GET", "/messages", reply);
        let _ = rig.execute(Turn { history: Arc::clone(&before), ..rig.turn("there") }).await;
        assert_eq!(history(runs.submitted().last().unwrap()), expected);
    }
}

#[tokio::test]
async fn only_texts_of_the_user_and_the_agent_are_sent() {
    let runs = three_turns().await;
    let rig = rig(&runs).await;
    let _ = rig.run("first").await;
    let rows = json!([
        { "role": "system", "content": "secret prompt" },
        { "role": "assistant", "content": "before any user" },
        { "role": "user", "content": [{ "type": "text", "text": "look" }, { "type": "image_url" }, { "type": "text", "text": "here" }] },
        { "role": "assistant", "content": "", "tool_calls": [{}] },
        { "role": "tool", "content": "42" },
        { "role": "assistant", "content": "hm", "reasoning": "a thought" },
        { "role": "assistant", "content": null },
        { "content": "no role" },
        7,
    ]);
    runs.next("GET", "/messages", Reply::json(&json!({ "object": "list", "data": rows })));
    let _ = rig.run("second").await;
    assert_eq!(history(&runs.submitted()[1]), [said("user", "look\nhere"), said("assistant", "hm")]);
}

#[tokio::test]
async fn the_newest_messages_of_a_long_context_are_sent() {
    let runs = three_turns().await;
    let rig = rig(&runs).await;
    let _ = rig.run("first").await;
    let session = runs.submitted()[0]["session_id"].as_str().unwrap().to_owned();
    let long = "x".repeat(100 << 10);
    let rows: Vec<(&str, &str)> =
        (0..20).map(|n| (if n % 2 == 0 { "user" } else { "assistant" }, long.as_str())).collect();
    runs.remember(&session, &rows);
    let _ = rig.run("second").await;
    let kept = history(&runs.submitted()[1]);
    assert_eq!(kept.len(), 4, "512 KiB hold five; the first of them would be the agent's");
    assert_eq!(kept[0]["role"], "user");
}

#[tokio::test]
async fn a_session_that_moved_is_followed() {
    let runs = three_turns().await;
    let rig = rig(&runs).await;
    let _ = rig.run("first").await;
    let session = runs.submitted()[0]["session_id"].as_str().unwrap().to_owned();
    runs.moves(&session, "20261116_after_compression");
    let _ = rig.run("second").await;
    assert_eq!(runs.submitted()[1]["session_id"], "20261116_after_compression");
    let _ = rig.run("third").await;
    assert_eq!(runs.requests("GET", "/20261116_after_compression/messages").len(), 1);
    // An id that could lead elsewhere in a path is not followed.
    runs.next("GET", "/messages", Reply::json(&json!({ "session_id": "../../admin", "data": [] })));
    let _ = rig.run("fourth").await;
    assert_eq!(runs.submitted()[3]["session_id"], "20261116_after_compression");
}

#[tokio::test]
async fn a_grant_without_sessions_costs_only_the_earlier_messages() {
    let runs = three_turns().await;
    let base = runs.base_url();
    let grant = [format!("POST {base}/runs"), format!("GET {base}/runs/*"), format!("POST {base}/runs/*")];
    let rig = rig(&runs).await.grant(grant.iter().map(String::as_str));
    assert_eq!(rig.run("first").await.text(), "one");
    assert_eq!(rig.run("second").await.text(), "two");
    assert_eq!(history(&runs.submitted()[1]), [] as [Value; 0]);
}
