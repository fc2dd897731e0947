//! Answers that are not chat completions, and unusual ones that are.

use serde_json::json;
use talaria_fakes::{FakeGateway, Reply};
use talaria_turns::{FailureKind, Turn};

use super::rig;

const NO_CONTENT: &str = "(hermes-agent returned no content)";

#[tokio::test]
async fn an_unexpected_shape_fails_as_no_content() {
    let bodies = [
        ("an array", "[]".into()),
        ("an array of completions", r#"[{"choices":[{"message":{"content":"hi"}}]}]"#.into()),
        ("a text", r#""hi""#.into()),
        ("null", "null".into()),
        ("no choices", json!({ "id": "chatcmpl-1" }).to_string()),
        ("choices that are none", json!({ "choices": null }).to_string()),
        ("choices that are an object", json!({ "choices": { "message": { "content": "hi" } } }).to_string()),
        ("no choice", json!({ "choices": [] }).to_string()),
        ("a choice that is a text", json!({ "choices": ["hi"] }).to_string()),
        ("no message", json!({ "choices": [{}] }).to_string()),
        ("a message that is null", json!({ "choices": [{ "message": null }] }).to_string()),
        ("no content", json!({ "choices": [{ "message": { "role": "assistant" } }] }).to_string()),
        ("a number", json!({ "choices": [{ "message": { "content": 42 } }] }).to_string()),
        ("parts", json!({ "choices": [{ "message": { "content": [{ "type": "hologram" }] } }] }).to_string()),
        ("invalid JSON", r#"{"choices":[{"message":{"content":"hi"}}"#.into()),
        ("two documents", r#"{"choices":[]}{"choices":[]}"#.into()),
        ("a web page", "<!doctype html><p>hi".into()),
        ("nothing", String::new()),
        ("nested too deeply", "[".repeat(100_000)),
    ];
    for (what, body) in bodies {
        let gateway = FakeGateway::always(Reply::status(200, "application/json", body)).await;
        let rig = rig(&gateway).await;
        // An answer in one piece is read the same way, whether a stream was requested or not.
        for streaming in [false, true] {
            let ran = rig.execute(Turn { streaming, ..rig.turn("hello") }).await;
            let failure = ran.failure();
            assert_eq!(failure.message, NO_CONTENT, "{what}, streaming {streaming}");
            assert_eq!(failure.kind, FailureKind::Upstream, "{what}, streaming {streaming}");
            assert_eq!(ran.events, []);
        }
    }
}

#[tokio::test]
async fn invalid_utf8_fails_as_no_content() {
    let body = b"{\"choices\":[{\"message\":{\"content\":\"caf\xe9\"}}]}".as_slice();
    let gateway = FakeGateway::always(Reply::status(200, "application/json", body)).await;
    assert_eq!(rig(&gateway).await.run("hello").await.failure().message, NO_CONTENT);
}

#[tokio::test]
async fn content_null_is_an_empty_reply() {
    let gateway = FakeGateway::always(Reply::content(&json!(null))).await;
    assert_eq!(rig(&gateway).await.run("hello").await.text(), "");
}

#[tokio::test]
async fn empty_content_is_an_empty_reply() {
    let gateway = FakeGateway::always(Reply::completion("")).await;
    assert_eq!(rig(&gateway).await.run("hello").await.text(), "");
}

#[tokio::test]
async fn a_reply_is_passed_on_unchanged() {
    for text in ["  spaces  ", "\n\nlines\n", "⚠️ No reply: the model returned empty content", "\u{0}"] {
        let gateway = FakeGateway::always(Reply::completion(text)).await;
        assert_eq!(rig(&gateway).await.run("hello").await.text(), text);
    }
}

#[tokio::test]
async fn the_first_choice_counts_and_unknown_members_do_not() {
    let body = json!({
        "object": "chat.completion.v9",
        "new": [1, 2],
        "choices": [
            { "index": 0, "message": { "content": "first", "reasoning_content": "…" }, "finish_reason": "whatever" },
            { "index": 1, "message": { "content": "second" } },
        ],
    });
    let gateway = FakeGateway::always(Reply::json(&body)).await;
    assert_eq!(rig(&gateway).await.run("hello").await.text(), "first");
}

#[tokio::test]
async fn any_2xx_status_and_content_type_is_accepted() {
    let body = json!({ "choices": [{ "message": { "content": "hi" } }] }).to_string();
    for (status, content_type) in
        [(200, "text/plain"), (201, "application/json"), (299, "application/octet-stream")]
    {
        let gateway = FakeGateway::always(Reply::status(status, content_type, body.clone())).await;
        assert_eq!(rig(&gateway).await.run("hello").await.text(), "hi", "{status} {content_type}");
    }
}

#[tokio::test]
async fn an_answer_that_was_cut_for_length_is_an_answer() {
    let body = json!({
        "choices": [{ "message": { "content": "the beginning" }, "finish_reason": "length" }],
        "hermes": { "completed": false, "partial": true, "failed": false, "error_code": "output_truncated" },
    });
    let gateway = FakeGateway::always(Reply::json(&body)).await;
    assert_eq!(rig(&gateway).await.run("hello").await.text(), "the beginning");
}
