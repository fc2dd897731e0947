//! The gateway reports a provider's failure as HTTP 200; the executor makes it a failure.

use serde_json::{Value, json};
use talaria_fakes::{FakeGateway, PROVIDER_KEY, Reply};
use talaria_redact::Redactor;
use talaria_rig::Ran;
use talaria_turns::FailureKind;

use super::rig;

fn text() -> String {
    format!("HTTP 401: fake provider error {PROVIDER_KEY}")
}

async fn run_against(reply: Reply) -> Ran {
    let gateway = FakeGateway::always(reply).await;
    rig(&gateway).await.run("hello").await
}

fn assert_failed(ran: &Ran, expected: &str) {
    let failure = ran.failure();
    assert!(failure.message.starts_with(expected), "{}", failure.message);
    assert!(!failure.message.contains(PROVIDER_KEY), "the provider's key is in {:?}", failure.message);
    assert_eq!(failure.kind, FailureKind::Upstream);
    assert_eq!(ran.events, []);
}

#[tokio::test]
async fn a_failure_as_the_real_gateway_reports_it() {
    let ran = run_against(Reply::error_in_200(&text())).await;
    assert_failed(&ran, "[hermes-agent error] HTTP 401: fake provider error ");
}

#[tokio::test]
async fn a_failure_that_only_the_finish_reason_reports() {
    let body = json!({ "choices": [{ "message": { "content": text() }, "finish_reason": "error" }] });
    let ran = run_against(Reply::json(&body)).await;
    assert_failed(&ran, "[hermes-agent error] HTTP 401: fake provider error ");
}

#[tokio::test]
async fn a_failure_that_only_the_gateways_own_field_reports() {
    let body = json!({
        "choices": [{ "message": { "content": text() }, "finish_reason": "stop" }],
        "hermes": { "completed": false, "failed": true },
    });
    let ran = run_against(Reply::json(&body)).await;
    assert_failed(&ran, "[hermes-agent error] HTTP 401: fake provider error ");
}

#[tokio::test]
async fn a_failure_without_any_text() {
    for content in [Value::Null, json!("")] {
        let body = json!({ "choices": [{ "message": { "content": content }, "finish_reason": "error" }] });
        let ran = run_against(Reply::json(&body)).await;
        assert_failed(&ran, "[hermes-agent error]");
    }
}

#[tokio::test]
async fn a_long_failure_is_cut_after_500_characters() {
    let ran = run_against(Reply::error_in_200(&"ä".repeat(600))).await;
    assert_eq!(ran.failure().message, format!("[hermes-agent error] {}", "ä".repeat(500)));
}

#[tokio::test]
async fn a_provider_key_that_the_host_holds_is_redacted_in_an_answer_too() {
    Redactor::process().learn([PROVIDER_KEY]);
    let ran = run_against(Reply::completion(&format!("your key is {PROVIDER_KEY}, keep it"))).await;
    let text = ran.text();
    assert!(!text.contains(PROVIDER_KEY), "{text}");
    assert!(text.starts_with("your key is ") && text.ends_with(", keep it"), "{text}");
}

#[tokio::test]
async fn a_flag_that_is_false_or_not_a_flag_is_not_a_failure() {
    for flag in [json!(false), json!(null), json!("true"), json!(1)] {
        let body = json!({ "choices": [{ "message": { "content": "hi" } }], "hermes": { "failed": flag } });
        assert_eq!(run_against(Reply::json(&body)).await.text(), "hi", "{flag}");
    }
}
