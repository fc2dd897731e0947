//! `hermes`, which needs no gateway, directly at the model.

use std::path::Path;

use serde_json::{Value, json};
use talaria_fakes::{PROVIDER_KEY, Provider};

use crate::bridge::{Bridge, Start, message};
use crate::cases::{CANCELED, COMPLETED, FAILED, answer, cancel};
use crate::partner::readiness;
use crate::stream::Stream;

fn up(folder: &Path, model: &Provider, key: &str) -> Bridge {
    let config = format!(
        "[executors]\ndefault = \"hermes\"\n[executor.hermes.settings]\nbase_url = \"{}\"\nmodel = \"fake-model\"\n",
        model.base_url()
    );
    Start::new(folder).config(&config).env("OPENAI_API_KEY", key).up()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_is_answered() {
    let (model, folder) = (Provider::start().await, tempfile::tempdir().unwrap());
    let bridge = up(folder.path(), &model, PROVIDER_KEY);
    assert_eq!(readiness(&bridge, "hermes"), "ready");
    assert_eq!(answer(&bridge, message(&Provider::turn("say hello there").0)).await, "hello there");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_streams() {
    let (model, folder) = (Provider::start().await, tempfile::tempdir().unwrap());
    let bridge = up(folder.path(), &model, PROVIDER_KEY);
    let stream = Stream::send(&bridge, &Provider::turn("count 8").0).await.end().await;
    assert_eq!((stream.state.as_str(), stream.text.trim_end()), (COMPLETED, "1 2 3 4 5 6 7 8"));
    assert!(stream.pieces > 1, "it came in one piece");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_call_is_passed_on_and_not_run() {
    let (model, folder) = (Provider::start().await, tempfile::tempdir().unwrap());
    let bridge = up(folder.path(), &model, PROVIDER_KEY);
    for streamed in [false, true] {
        let (text, turn) = Provider::turn("run echo hello");
        let said = if streamed {
            Stream::send(&bridge, &text).await.end().await.text
        } else {
            answer(&bridge, message(&text)).await
        };
        let calls: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("no calls: {said}"));
        assert_eq!(calls[0]["function"]["name"], "terminal");
        let arguments =
            calls[0]["function"]["arguments"].as_str().and_then(|text| serde_json::from_str(text).ok());
        assert_eq!(arguments, Some(json!({ "command": "echo hello" })));
        assert_eq!(model.times(&turn), 1, "one call a turn");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_reported_by_its_class() {
    let (model, folder) = (Provider::start().await, tempfile::tempdir().unwrap());
    let bridge = up(folder.path(), &model, PROVIDER_KEY);
    for (status, class) in
        [(401, "AuthenticationError"), (429, "RateLimitError"), (500, "InternalServerError")]
    {
        let said = answer(&bridge, message(&Provider::turn(&format!("fail {status}")).0)).await;
        assert_eq!(said, format!("Agent error: {class}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_key_is_reported_and_shows_in_readiness() {
    let (model, folder) = (Provider::start().await, tempfile::tempdir().unwrap());
    let bridge = up(folder.path(), &model, "sk-another-key-0123456789");
    assert_eq!(readiness(&bridge, "hermes"), "not-ready");
    let said = answer(&bridge, message(&Provider::turn("say hello").0)).await;
    assert_eq!(said, "Agent error: AuthenticationError");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_closes_the_connection_to_the_model() {
    let (model, folder) = (Provider::start().await, tempfile::tempdir().unwrap());
    let bridge = up(folder.path(), &model, PROVIDER_KEY);
    let (text, turn) = Provider::turn("talk");
    let mut stream = Stream::send(&bridge, &text).await;
    model.asked(&turn).await;
    cancel(&bridge, &stream.task).await;
    model.let_go(&turn).await;
    stream.until("the end", |stream| stream.state == CANCELED).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_goes_away_fails_the_turn() {
    let (model, folder) = (Provider::start().await, tempfile::tempdir().unwrap());
    let bridge = up(folder.path(), &model, PROVIDER_KEY);
    let (text, turn) = Provider::turn("talk");
    let mut stream = Stream::send(&bridge, &text).await;
    model.asked(&turn).await;
    drop(model);
    stream.until("the end", |stream| stream.state == FAILED).await;
    assert_eq!(stream.status, "Agent error: APIConnectionError");
}
