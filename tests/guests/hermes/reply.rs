//! The reply that an answer becomes.

use serde_json::{Value, json};
use talaria_fakes::Reply;
use talaria_redact::Redactor;
use talaria_turns::{FinalState, Usage};

use super::{deltas, message, run_against, stream_against};

const NOTHING: &str = "(no response generated)";

#[tokio::test]
async fn text_is_trimmed() {
    for (content, expected) in [("hi", "hi"), ("  hi\n there \n\n", "hi\n there"), ("\u{a0}hi\u{2003}", "hi")]
    {
        let ran = run_against(message(json!({ "content": content }))).await;
        assert_eq!(ran.text(), expected);
        let outcome = ran.result.unwrap();
        assert_eq!(outcome.state, FinalState::Completed);
        assert_eq!(outcome.usage, Some(Usage { input_tokens: 11, output_tokens: 7 }));
    }
}

#[tokio::test]
async fn an_empty_answer_is_replaced_by_a_text_that_says_so() {
    for content in [json!(""), json!(" \n "), Value::Null] {
        assert_eq!(run_against(message(json!({ "content": content }))).await.text(), NOTHING, "{content}");
        let streamed = stream_against(deltas([json!({ "content": content })]).finish("stop")).await;
        assert_eq!(streamed.text(), NOTHING, "{content}");
        assert_eq!(streamed.events, []);
    }
    assert_eq!(run_against(message(json!({ "role": "assistant" }))).await.text(), NOTHING);
    assert_eq!(run_against(message(json!({ "content": null, "tool_calls": [] }))).await.text(), NOTHING);
}

#[tokio::test]
async fn an_answer_that_was_cut_for_length_is_an_answer() {
    let body =
        json!({ "choices": [{ "message": { "content": "the beginning" }, "finish_reason": "length" }] });
    assert_eq!(run_against(Reply::json(&body)).await.text(), "the beginning");
}

#[tokio::test]
async fn a_secret_in_an_answer_is_redacted() {
    Redactor::process().learn(["sk-abcdefghijklmnopqrstuvwx"]);
    let text = "the key is sk-abcdefghijklmnopqrstuvwx ok";
    assert!(!run_against(message(json!({ "content": text }))).await.text().contains("sk-abc"));
    let streamed = stream_against(Reply::stream(["the key is sk-abcdef", "ghijklmnopqrstuvwx ok"])).await;
    assert!(!format!("{streamed:?}").contains("sk-abc"), "{streamed:?}");
}
