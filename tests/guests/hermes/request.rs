//! The requests to the endpoint.

use serde_json::{Value, json};
use talaria_fakes::{FakeGateway, Reply};
use talaria_rig::Rig;
use talaria_turns::{Content, FailureKind, Part, Turn};

use super::{KEY, MODEL, message, polite, rig};

fn tool(name: &str) -> Value {
    json!({
        "type": "function",
        "function": {
            "name": name,
            "description": "Looks something up",
            "parameters": {
                "type": "object",
                "properties": { "zebra": { "type": "string" }, "apple": { "type": "integer" } },
                "required": ["zebra"],
            },
        },
    })
}

#[tokio::test]
async fn the_request_is_that_of_the_python_bridge_to_the_letter() {
    let endpoint = polite().await;
    let ran = rig(&endpoint).await.run("hello there").await;
    assert_eq!(ran.text(), "hi");
    assert_eq!(ran.events, [], "a buffered turn says nothing meanwhile");
    let request = endpoint.request();
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/chat/completions"));
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.header("authorization"), None, "no key is set");
    assert_eq!(
        request.json(),
        json!({
            "model": MODEL,
            "messages": [{ "role": "user", "content": "hello there" }],
            "reasoning": { "enabled": true },
        })
    );
}

#[tokio::test]
async fn only_hermes_4_is_told_to_think() {
    let thinks =
        ["nousresearch/hermes-4-0", "nous-hermes-4", "Hermes-4-405B", "NousResearch/Hermes4", "HERMES4"];
    let others = ["nousresearch/hermes-3-llama-3.1-70b", "gpt-4o", "hermes"];
    for (models, expected) in [(&thinks[..], json!({ "enabled": true })), (&others[..], Value::Null)] {
        for model in models {
            let endpoint = polite().await;
            let _ = rig(&endpoint).await.setting("model", *model).run("hello").await;
            assert_eq!(endpoint.request().json()["reasoning"], expected, "{model}");
        }
    }
}

#[tokio::test]
async fn the_system_prompt_comes_first() {
    let endpoint = polite().await;
    let _ = rig(&endpoint).await.setting("system_prompt", "Be brief.").run("hello").await;
    assert_eq!(
        endpoint.request().json()["messages"],
        json!([{ "role": "system", "content": "Be brief." }, { "role": "user", "content": "hello" }])
    );
}

#[tokio::test]
async fn tools_are_sent_as_written() {
    let endpoint = polite().await;
    let tools = json!([tool("one"), tool("two")]);
    let _ = rig(&endpoint).await.setting("tools", tools.clone()).run("hello").await;
    let request = endpoint.request();
    assert_eq!(request.json()["tools"], tools);
    let body = String::from_utf8(request.body.to_vec()).unwrap();
    assert!(body.contains(&tools.to_string()), "the order of keys is kept too: {body}");
}

#[tokio::test]
async fn without_tools_the_key_is_absent() {
    let endpoint = polite().await;
    for rig in [rig(&endpoint).await, rig(&endpoint).await.setting("tools", json!([]))] {
        for ran in [rig.run("hello").await, rig.stream("hello").await] {
            assert_eq!(ran.text(), "hi");
        }
    }
    for request in endpoint.requests() {
        assert_eq!(request.json().get("tools"), None, "never an empty list");
    }
    assert_eq!(endpoint.requests().len(), 4);
}

#[tokio::test]
async fn invalid_tools_are_rejected_with_the_setting_named() {
    let endpoint = polite().await;
    for tools in [json!("one"), json!([1]), json!(["one"])] {
        let rig = rig(&endpoint).await.setting("tools", tools);
        let failure = rig.setup().await.expect_err("no tools");
        assert_eq!(failure.kind, FailureKind::InvalidSettings);
        assert!(failure.message.contains("tool"), "{failure}");
    }
    assert!(endpoint.requests().is_empty());
}

#[tokio::test]
async fn without_a_model_no_call_is_made() {
    let endpoint = polite().await;
    let rig = Rig::new("hermes").await.setting("base_url", endpoint.base_url());
    for failure in [
        rig.executor().setup().await.expect_err("no model"),
        rig.run("hello").await.result.expect_err("no model"),
    ] {
        assert_eq!(failure.kind, FailureKind::InvalidSettings);
        assert!(failure.message.contains("settings.model"), "it says what to set: {failure}");
    }
    assert!(endpoint.requests().is_empty());
}

#[tokio::test]
async fn the_key_is_sent_when_it_is_set_and_not_empty() {
    for (value, expected) in
        [(Some("sk-or-0123456789abcdef"), Some("Bearer sk-or-0123456789abcdef")), (Some(""), None)]
    {
        let endpoint = polite().await;
        let mut rig = rig(&endpoint).await;
        if let Some(value) = value {
            rig = rig.secret(KEY, value);
        }
        assert_eq!(rig.run("hello").await.text(), "hi");
        assert_eq!(endpoint.request().header("authorization"), expected);
    }
}

#[tokio::test]
async fn images_and_data_are_sent() {
    let endpoint = polite().await;
    let rig = rig(&endpoint).await;
    let image =
        Part { media_type: Some("image/png".into()), ..Part::new(Content::Bytes(b"\x89PNG".to_vec())) };
    let parts = vec![image, Part::new(Content::Data(json!({ "key": "value" })))];
    assert_eq!(rig.execute(rig.turn_of(parts)).await.text(), "hi");
    let body = endpoint.request().json();
    let said = body["messages"].as_array().and_then(|messages| messages.last()).unwrap();
    assert_eq!(
        said["content"],
        json!([
            { "type": "text", "text": "data (application/json):\n{\"key\":\"value\"}" },
            { "type": "image_url", "image_url": { "url": "data:image/png;base64,iVBORw==" } },
        ])
    );
}

#[tokio::test]
async fn a_message_without_text_is_rejected_before_any_call() {
    let endpoint = polite().await;
    let rig = rig(&endpoint).await;
    for turn in [rig.turn(""), rig.turn(" \n\t ")] {
        for streaming in [false, true] {
            let ran = rig.execute(Turn { streaming, ..turn.clone() }).await;
            assert_eq!(ran.failure().message, "Error: message contained no text content.");
            assert_eq!(ran.failure().kind, FailureKind::InvalidTurn);
        }
    }
    assert_eq!(endpoint.connections(), 0, "not even a connection is made");
}

#[tokio::test]
async fn a_turn_makes_one_call_whatever_the_answer_is() {
    for reply in [Reply::status(500, "text/plain", "no"), message(json!({ "content": null }))] {
        let endpoint = FakeGateway::always(reply).await;
        let _ = rig(&endpoint).await.run("hello").await;
        assert_eq!(endpoint.requests().len(), 1);
    }
}
