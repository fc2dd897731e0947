//! Answers that are tool calls.

use std::sync::Arc;

use serde_json::{Value, json};
use talaria_fakes::{FakeGateway, Reply};
use talaria_redact::Redactor;
use talaria_rig::Ran;
use talaria_turns::{Content, Part, Turn};

use super::{deltas, message, rig, run_against, stream_against};

fn call(id: &str, name: &str, arguments: &str) -> Value {
    json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
}

fn calls(ran: &Ran) -> Value {
    serde_json::from_str(ran.text()).unwrap_or_else(|error| panic!("{error}: {}", ran.text()))
}

#[tokio::test]
async fn calls_without_text_are_the_reply_as_json() {
    let two = json!([call("call_1", "lookup", r#"{"q":"zürich"}"#), call("call_2", "stop", "{}")]);
    let ran = run_against(message(json!({ "content": null, "tool_calls": two }))).await;
    assert_eq!(calls(&ran), two);
    let text = ran.text();
    assert!(
        text.starts_with(r#"[{"id":"call_1","type":"function","function":{"name":"lookup","arguments":"#),
        "{text}"
    );
}

#[tokio::test]
async fn missing_fields_of_a_call_are_filled_in() {
    let ran = run_against(message(
        json!({ "content": "", "tool_calls": [{}, { "function": { "name": "f" } }, 7] }),
    ))
    .await;
    assert_eq!(calls(&ran), json!([call("", "", "{}"), call("", "f", "{}")]));
}

#[tokio::test]
async fn text_is_preferred_to_calls() {
    let reply = json!({ "content": "I will look. ", "tool_calls": [call("call_1", "lookup", "{}")] });
    assert_eq!(run_against(message(reply)).await.text(), "I will look.");
}

#[tokio::test]
async fn white_space_and_thoughts_do_not_count_as_text() {
    for content in ["\n\n", "<think>which tool?</think>\n", "<think>which"] {
        let reply = json!({ "content": content, "tool_calls": [call("call_1", "lookup", "{}")] });
        assert_eq!(
            calls(&run_against(message(reply)).await),
            json!([call("call_1", "lookup", "{}")]),
            "{content}"
        );
    }
}

#[tokio::test]
async fn pieces_of_calls_are_put_together() {
    let piece = |index: usize, piece: Value| {
        let mut piece = piece;
        piece["index"] = json!(index);
        json!({ "tool_calls": [piece] })
    };
    let ran = stream_against(
        deltas([
            piece(0, json!({ "id": "call_1", "type": "function", "function": { "name": "lookup", "arguments": "" } })),
            piece(0, json!({ "function": { "arguments": "{\"q\":" } })),
            piece(1, json!({ "id": "call_2", "function": { "name": "stop" } })),
            piece(0, json!({ "function": { "arguments": "\"zürich\"}" } })),
        ])
        .finish("tool_calls"),
    )
    .await;
    assert_eq!(
        calls(&ran),
        json!([call("call_1", "lookup", r#"{"q":"zürich"}"#), call("call_2", "stop", "{}")])
    );
    assert_eq!(ran.events, [], "half a call is nothing to show");
}

#[tokio::test]
async fn pieces_without_an_index_belong_to_the_call_before_them() {
    let piece = |piece: Value| json!({ "tool_calls": [piece] });
    let ran = stream_against(
        deltas([
            piece(json!({ "id": "call_1", "function": { "name": "a", "arguments": "{" } })),
            piece(json!({ "function": { "arguments": "}" } })),
            piece(json!({ "id": "call_2", "function": { "name": "b" } })),
        ])
        .finish("tool_calls"),
    )
    .await;
    assert_eq!(calls(&ran), json!([call("call_1", "a", "{}"), call("call_2", "b", "{}")]));
}

#[tokio::test]
async fn the_number_of_calls_is_bounded() {
    let many: Vec<Value> = (0..1_000).map(|n| call(&format!("call_{n}"), "f", "{}")).collect();
    let ran = run_against(message(json!({ "tool_calls": many }))).await;
    assert_eq!(calls(&ran).as_array().unwrap().len(), 128);
}

#[tokio::test]
async fn arguments_arrive_as_the_model_wrote_them_but_for_secrets_of_the_host() {
    Redactor::process().learn(["a \"secret\" of the host"]);
    let arguments = r#"{"command":"export FOO_API_KEY=abcdefgh12345678","code":"sort_key = operator.itemgetter(\"name\")","key":"a \"secret\" of the host"}"#;
    let ran = run_against(message(json!({ "tool_calls": [call("call_1", "terminal", arguments)] }))).await;
    let inner: Value =
        serde_json::from_str(calls(&ran)[0]["function"]["arguments"].as_str().unwrap()).unwrap();
    let mut expected: Value = serde_json::from_str(arguments).unwrap();
    expected["key"] = json!("[REDACTED:secret]");
    assert_eq!(inner, expected);
}

#[tokio::test]
async fn a_caller_that_accepts_json_gets_the_calls_as_data_too() {
    let one = json!([call("call_1", "lookup", "{}")]);
    let replies: [(Reply, bool); 2] = [
        (message(json!({ "tool_calls": one })), false),
        (deltas([json!({ "tool_calls": one })]).finish("tool_calls").into(), true),
    ];
    for (reply, streaming) in replies {
        let endpoint = FakeGateway::always(reply).await;
        let rig = rig(&endpoint).await;
        for (modes, data) in [
            (json!(["text/plain", "application/json"]), true),
            (json!(["Application/JSON; charset=utf-8"]), true),
            (json!(["application/*"]), true),
            (json!(["*/*"]), false),
            (json!(["text/plain"]), false),
            (json!("application/json"), false),
        ] {
            let metadata = json!({ "talaria/output-modes": modes }).as_object().cloned().map(Arc::new);
            let turn = Turn { metadata, streaming, ..rig.turn("hello") };
            let parts = rig.execute(turn).await.result.unwrap().parts;
            assert_eq!(parts[0], Part::text(one.to_string()), "{modes}");
            let rest: Vec<Content> = parts[1..].iter().map(|part| part.content.clone()).collect();
            assert_eq!(rest, Vec::from_iter(data.then(|| Content::Data(one.clone()))), "{modes}");
        }
    }
}

#[tokio::test]
async fn text_stays_text_whatever_the_caller_accepts() {
    let endpoint = super::polite().await;
    let rig = rig(&endpoint).await;
    let metadata = json!({ "talaria/output-modes": ["application/json"] }).as_object().cloned().map(Arc::new);
    assert_eq!(rig.execute(Turn { metadata, ..rig.turn("hello") }).await.text(), "hi");
}
