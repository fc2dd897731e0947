//! The executor `hermes` in the real binary: the environment, one line of configuration and a model are enough.

use serde_json::{Value, json};
use talaria_fakes::{FakeGateway, Reply};

use crate::bridge::{Bridge, Start, message};

const CONFIG: &str =
    "[executors]\ndefault = \"hermes\"\n[executor.hermes.settings]\nmodel = \"nousresearch/hermes-4-70b\"\n";
const KEY: &str = "sk-or-0123456789abcdef";
const THOUGHT: &str = "nobody must ever read this thought";

fn start(folder: &std::path::Path, endpoint: &FakeGateway, config: &str) -> Bridge {
    Start::new(folder)
        .config(config)
        .arg("--log=trace")
        .env("OPENAI_BASE_URL", &endpoint.base_url())
        .env("OPENAI_API_KEY", KEY)
        .up()
}

/// An endpoint that answers every chat with this message.
async fn endpoint(message: Value) -> FakeGateway {
    FakeGateway::start(move |request| match request.path.as_str() {
        "/v1/models" => Reply::json(&json!({ "data": [] })),
        _ => Reply::json(&json!({ "choices": [{ "message": message, "finish_reason": "stop" }] })),
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_and_a_model_are_enough_and_reasoning_stays_inside() {
    let content = format!("<think>{THOUGHT}</think>\nfrom the model");
    let endpoint = endpoint(json!({ "content": content, "reasoning": THOUGHT })).await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = start(folder.path(), &endpoint, CONFIG);
    assert_eq!(bridge.say("hi").await, "from the model", "a bare message, as the Python executor answered");
    let requests = endpoint.requests();
    let [probe, chat] = requests.as_slice() else { panic!("{} requests", requests.len()) };
    assert_eq!(probe.path, "/v1/models");
    assert_eq!(chat.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert_eq!(chat.json()["reasoning"], json!({ "enabled": true }));

    let id = bridge.start_turn("hi").await;
    let task = bridge.settled(&id).await.to_string();
    assert!(!task.contains(THOUGHT), "{task}");
    bridge.terminate();
    let (code, log) = bridge.end();
    assert_eq!(code, Some(0));
    assert!(!log.contains(THOUGHT), "the log holds a thought");
    assert!(!log.contains(KEY), "the log holds the key");
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_calls_are_text_by_default_and_data_for_callers_that_accept_data() {
    let call =
        json!({ "id": "call_1", "type": "function", "function": { "name": "lookup", "arguments": "{}" } });
    let endpoint = endpoint(json!({ "content": null, "tool_calls": [call] })).await;
    let folder = tempfile::tempdir().unwrap();
    let tools = "tools = [{ type = \"function\", function = { name = \"lookup\", parameters = {} } }]\n";
    let bridge = start(folder.path(), &endpoint, &format!("{CONFIG}{tools}"));
    let said: Value = serde_json::from_str(&bridge.say("hi").await).unwrap();
    assert_eq!(said, json!([call]));
    assert_eq!(endpoint.requests()[1].json()["tools"][0]["function"]["name"], "lookup");

    let mut params = message("hi");
    params["configuration"] = json!({ "acceptedOutputModes": ["text/plain", "application/json"] });
    let answer = bridge.call("SendMessage", params).await;
    let parts = &answer["result"]["task"]["artifacts"][0]["parts"];
    assert_eq!(
        serde_json::from_str::<Value>(parts[0]["text"].as_str().unwrap()).unwrap(),
        json!([call]),
        "{answer}"
    );
    assert_eq!(parts[1]["data"], json!([call]), "{answer}");
    assert_eq!(parts[1]["mediaType"], "application/json");

    let mut only = message("hi");
    only["configuration"] = json!({ "acceptedOutputModes": ["application/json"] });
    let answer = bridge.call("SendMessage", only).await;
    assert_eq!(answer["result"]["task"]["artifacts"][0]["parts"][1]["data"], json!([call]), "{answer}");
    let mut pictures = message("hi");
    pictures["configuration"] = json!({ "acceptedOutputModes": ["image/png"] });
    let answer = bridge.call("SendMessage", pictures).await;
    let said = answer["result"]["message"]["parts"][0]["text"].as_str();
    assert!(
        said.is_some_and(|said| said.contains("lookup")),
        "the answer comes in the media types that exist: {answer}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_start_fails_without_a_model_and_says_what_to_set() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("talaria.toml"), "[executors]\ndefault = \"hermes\"\n").unwrap();
    let output =
        crate::bridge::run(crate::bridge::talaria(folder.path()).args(["serve", "--listen", "127.0.0.1:0"]));
    assert_eq!(output.status.code(), Some(1));
    let said = crate::bridge::stderr(&output);
    assert!(said.contains("settings.model"), "{said}");
}
