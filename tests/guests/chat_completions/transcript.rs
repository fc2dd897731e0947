//! The transcript, read from the gateway's sessions.

use serde_json::{Value, json};
use talaria_engine::{Line, Page};
use talaria_fakes::{FakeGateway, Recorded, Reply};
use talaria_rig::Rig;
use talaria_turns::FailureKind;

use super::{KEY, rig};

const SECRET: &str = "k-0123456789abcdef";

/// A gateway with sessions, the one with the newest message first.
async fn gateway(sessions: Value, messages: Vec<(&'static str, Value)>) -> FakeGateway {
    FakeGateway::start(move |request: &Recorded| {
        if request.header("authorization") != Some(&format!("Bearer {SECRET}")) {
            return Reply::status(401, "application/json", r#"{"error":{"message":"Invalid API key"}}"#);
        }
        let path = request.path.split('?').next().unwrap_or_default();
        if path == "/api/sessions" {
            return Reply::json(&json!({ "object": "list", "data": sessions }));
        }
        let session = path.strip_prefix("/api/sessions/").and_then(|rest| rest.strip_suffix("/messages"));
        match session.and_then(|session| messages.iter().find(|(known, _)| *known == session)) {
            Some((_, rows)) => Reply::json(&json!({ "object": "list", "data": rows })),
            None => Reply::status(404, "application/json", r#"{"error":{"code":"session_not_found"}}"#),
        }
    })
    .await
}

async fn with_key(gateway: &FakeGateway) -> Rig {
    rig(gateway).await.secret(KEY, SECRET)
}

fn said(page: &Page) -> Vec<(u32, &str, &str)> {
    page.lines.iter().map(|line| (line.number, line.kind.as_str(), line.text.as_str())).collect()
}

fn row(id: u32, role: &str, text: &str) -> Value {
    json!({ "id": id, "role": role, "content": text, "timestamp": 1_790_000_000.5, "reasoning": "let me think" })
}

async fn two_sessions() -> FakeGateway {
    let sessions = json!([
        { "id": "compressed-2", "_lineage_root_id": "talaria-b", "source": "api_server" },
        { "id": "20260101_of_the_terminal", "source": "cli" },
        { "id": "../../v1/models", "source": "molecule-a2a" },
        { "id": "chat_7", "source": "molecule-a2a" },
        { "id": "talaria-a", "source": "api_server" },
        { "id": "talaria-gone", "source": "api_server" },
    ]);
    let messages = vec![
        (
            "compressed-2",
            json!([row(2, "user", "second"), row(9, "assistant", "OPENAI_API_KEY=abcdefgh12345678")]),
        ),
        ("talaria-a", json!([row(1, "user", "first"), row(3, "assistant", &format!("the key is {SECRET}"))])),
        (
            "chat_7",
            json!([
                { "id": 4, "role": "assistant", "content": null, "tool_calls":
                    [{ "function": { "name": "terminal", "arguments": "{\"command\":\"ls\"}" } }] },
                { "id": 5, "role": "tool", "content": "a b", "tool_name": "terminal", "tool_call_id": "call-1" },
                { "id": 6, "role": "assistant", "content": "" },
                { "id": "7", "role": "user", "content": "no number" },
                { "id": 4_294_967_296_u64, "role": "user", "content": "beyond all numbers" },
            ]),
        ),
        ("20260101_of_the_terminal", json!([row(8, "user", "none of the bridge's business")])),
    ];
    gateway(sessions, messages).await
}

#[tokio::test]
async fn the_bridges_sessions_are_read_in_the_order_of_their_messages() {
    let gateway = two_sessions().await;
    let executor = with_key(&gateway).await.executor();
    let page = executor.transcript(0, 100).await.unwrap();
    let expected = [
        (1, "user", "first"),
        (2, "user", "second"),
        (3, "assistant", "the key is ******************"),
        (4, "assistant", ""),
        (5, "tool", "a b"),
        (9, "assistant", "OPENAI_API_KEY=[REDACTED:api_key]"),
    ];
    assert_eq!((said(&page), page.more), (expected.to_vec(), false));
    let Line { at, session, metadata, .. } = &page.lines[0];
    assert_eq!(at.unwrap().to_string(), "2026-09-21T14:13:20.500Z");
    assert_eq!((session.as_str(), metadata), ("talaria-a", &None), "what it thought is nobody's business");
    let calls = page.lines[3].metadata.as_ref().unwrap();
    assert_eq!(calls["tool_calls"], json!([{ "name": "terminal", "arguments": "{\"command\":\"ls\"}" }]));
    assert_eq!(page.lines[4].metadata.as_ref().unwrap()["tool_name"], "terminal");

    let (mut since, mut seen) = (0, Vec::new());
    loop {
        let part = executor.transcript(since, 2).await.unwrap();
        since = part.lines.last().map_or(since, |last| last.number + 1);
        seen.extend(part.lines);
        if !part.more {
            break;
        }
    }
    assert_eq!(seen, page.lines, "page by page");
    let before = gateway.requests().len();
    assert_eq!(executor.transcript(since, 100).await.unwrap().lines, []);
    assert_eq!(gateway.requests().len() - before, 2, "nothing new takes the list and one session");
}

#[tokio::test]
async fn a_transcript_that_cannot_be_read_fails_with_the_reason() {
    let gateway = two_sessions().await;
    let without = rig(&gateway).await.executor().transcript(0, 10).await.unwrap_err();
    assert!(without.message.contains("set API_SERVER_KEY"), "{without:?}");
    let wrong = rig(&gateway).await.secret(KEY, "another-0123456789").executor();
    let wrong = wrong.transcript(0, 10).await.unwrap_err();
    assert!(wrong.message.starts_with("[hermes-agent error 401] "), "{wrong:?}");
    let closed = with_key(&gateway).await.grant([]).executor().transcript(0, 10).await.unwrap_err();
    assert_eq!(closed.kind, FailureKind::Denied, "{closed:?}");
    for nonsense in ["<html>", "{\"data\":7}", "[]", ""] {
        let gateway = FakeGateway::always(Reply::status(200, "text/html", nonsense)).await;
        let failure = with_key(&gateway).await.executor().transcript(0, 10).await.unwrap_err();
        assert!(failure.message.ends_with("the gateway's answer is no list"), "{nonsense}: {failure:?}");
    }
    let huge = FakeGateway::always(Reply::status(200, "application/json", "x".repeat(9 << 20))).await;
    assert!(with_key(&huge).await.executor().transcript(0, 10).await.is_err());
    let none = Rig::new("plugin-callback").await.executor().transcript(0, 10).await.unwrap_err();
    assert_eq!(none.message, "the component has no transcript");
}
