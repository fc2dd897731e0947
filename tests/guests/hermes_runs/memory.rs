//! The scope of the agent's long-term memory: the context, within the caller's name.

use serde_json::json;
use talaria_fakes::{FakeRuns, Script};
use talaria_rig::Rig;
use talaria_turns::{Message, Principal, Turn};

use super::{KEY, rig};

const HEADER: &str = "x-hermes-session-key";

async fn gateway() -> FakeRuns {
    FakeRuns::start((0..4).map(|_| Script::new().completed("hi"))).await
}

async fn with_key(runs: &FakeRuns) -> Rig {
    rig(runs).await.secret(KEY, "a-key-of-16-chars")
}

fn scopes(runs: &FakeRuns) -> Vec<Option<String>> {
    let submitted = runs.requests("POST", "/v1/runs");
    submitted.iter().map(|request| request.header(HEADER).map(str::to_owned)).collect()
}

fn choosing(turn: Turn, key: &str) -> Turn {
    let metadata = json!({ "session": { "session_key": key } });
    let message = Message { metadata: metadata.as_object().cloned(), ..(*turn.message).clone() };
    Turn { message: message.into(), ..turn }
}

#[tokio::test]
async fn the_scope_is_the_context_and_stays_when_the_session_moves() {
    let runs = gateway().await;
    let rig = with_key(&runs).await;
    let turn = rig.turn("first");
    let expected = Some(format!("talaria::context:{}", turn.context));
    let _ = rig.execute(turn).await;
    let session = runs.submitted()[0]["session_id"].as_str().unwrap().to_owned();
    runs.moves(&session, "after_compression");
    let _ = rig.run("second").await;
    assert_ne!(runs.submitted()[0]["session_id"], runs.submitted()[1]["session_id"]);
    assert_eq!(scopes(&runs), [expected.clone(), expected]);
}

#[tokio::test]
async fn no_caller_reaches_the_memory_of_another() {
    let runs = gateway().await;
    let rig = with_key(&runs).await;
    for (name, key) in [("alice", "notes"), ("bob", "notes"), ("alice:key:notes", "x"), ("alice", "key:x")] {
        let turn = choosing(rig.turn("hello"), key);
        let _ = rig.execute(Turn { principal: Principal::named(name), ..turn }).await;
    }
    let all: Vec<_> = scopes(&runs).into_iter().flatten().collect();
    let expected = [
        "talaria:alice:key:notes",
        "talaria:bob:key:notes",
        "talaria:alice%3akey%3anotes:key:x",
        "talaria:alice:key:key%3ax",
    ];
    assert_eq!(all, expected);
}

#[tokio::test]
async fn a_scope_that_no_gateway_takes_is_not_sent() {
    let runs = gateway().await;
    let rig = with_key(&runs).await;
    for key in ["x".repeat(300), "ä".repeat(80)] {
        assert_eq!(rig.execute(choosing(rig.turn("hello"), &key)).await.text(), "hi");
    }
    assert_eq!(rig.execute(choosing(rig.turn("hello"), "a b\r\nc")).await.text(), "hi");
    assert_eq!(scopes(&runs), [None, None, Some("talaria::key:a%20b%0d%0ac".into())]);
}

#[tokio::test]
async fn without_the_gateways_key_no_scope_is_sent() {
    let runs = gateway().await;
    let _ = rig(&runs).await.run("hello").await;
    assert_eq!(scopes(&runs), [None], "the gateway refuses it with 403");
}
