//! The requests to the gateway.

use serde_json::json;
use talaria_fakes::{FakeGateway, Reply};
use talaria_rig::Rig;
use talaria_turns::{Content, FinalState, Part, Turn, Usage};

use super::{KEY, polite, rig};

#[tokio::test]
async fn the_request_is_that_of_the_python_bridge_to_the_letter() {
    let gateway = polite().await;
    let ran = rig(&gateway).await.run("hello there").await;
    assert_eq!(ran.text(), "hi");
    assert_eq!(ran.events, [], "a buffered turn says nothing meanwhile");
    let request = gateway.request();
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/chat/completions"));
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.header("authorization"), None, "no key is set");
    assert_eq!(
        request.json(),
        json!({
            "model": "hermes-agent",
            "messages": [{ "role": "user", "content": "hello there" }],
            "stream": false,
        })
    );
}

#[tokio::test]
async fn no_header_is_sent_that_the_gateway_rejects() {
    let gateway = polite().await;
    let _ = rig(&gateway).await.run("hello").await;
    let request = gateway.request();
    // hermes-agent answers any request that has an origin with 403.
    for header in ["origin", "cookie", "accept-encoding", "x-hermes-session-id"] {
        assert_eq!(request.header(header), None, "{header}");
    }
}

#[tokio::test]
async fn a_configured_model_and_system_prompt_are_sent_the_prompt_first() {
    let gateway = polite().await;
    let rig = rig(&gateway).await.setting("model", "hermes-4").setting("system_prompt", "Be brief.");
    let _ = rig.run("hello").await;
    assert_eq!(
        gateway.request().json(),
        json!({
            "model": "hermes-4",
            "messages": [
                { "role": "system", "content": "Be brief." },
                { "role": "user", "content": "hello" },
            ],
            "stream": false,
        })
    );
}

#[tokio::test]
async fn an_empty_model_and_system_prompt_count_as_not_configured() {
    let gateway = polite().await;
    let _ = rig(&gateway).await.setting("model", "").setting("system_prompt", "").run("hello").await;
    let body = gateway.request().json();
    assert_eq!(body["model"], "hermes-agent");
    assert_eq!(body["messages"], json!([{ "role": "user", "content": "hello" }]));
}

#[tokio::test]
async fn the_key_is_sent_when_it_is_set_and_not_empty() {
    for (value, expected) in
        [(Some("k-0123456789abcdef"), Some("Bearer k-0123456789abcdef")), (Some(""), None), (None, None)]
    {
        let gateway = polite().await;
        let mut rig = rig(&gateway).await;
        if let Some(value) = value {
            rig = rig.secret(KEY, value);
        }
        assert_eq!(rig.run("hello").await.text(), "hi");
        assert_eq!(gateway.request().header("authorization"), expected, "with the key {value:?}");
    }
}

#[tokio::test]
async fn slashes_at_the_end_of_the_base_url_are_stripped() {
    for slashes in ["", "/", "//"] {
        let gateway = polite().await;
        let rig = Rig::new("chat-completions")
            .await
            .setting("base_url", format!("{}{slashes}", gateway.base_url()));
        assert_eq!(rig.run("hello").await.text(), "hi");
        assert_eq!(gateway.request().path, "/v1/chat/completions", "with {slashes:?} at the end");
    }
}

#[tokio::test]
async fn a_blank_prompt_is_answered_without_a_call() {
    let gateway = polite().await;
    let rig = rig(&gateway).await;
    let turns = [rig.turn(""), rig.turn(" \n\t "), rig.turn("\u{a0}\u{2003}")];
    for turn in turns {
        for streaming in [false, true] {
            let ran = rig.execute(Turn { streaming, ..turn.clone() }).await;
            assert_eq!(ran.text(), "(empty prompt — nothing to do)", "{:?}", turn.message);
            assert_eq!(ran.events, []);
        }
    }
    assert_eq!(gateway.requests().len(), 0);
    assert_eq!(gateway.connections(), 0, "not even a connection is made");
}

#[tokio::test]
async fn all_text_parts_make_the_prompt_and_files_are_listed() {
    let gateway = polite().await;
    let rig = rig(&gateway).await;
    let mut file = Part::new(Content::Uri("workspace:/data/q3.pdf".into()));
    file.media_type = Some("application/pdf".into());
    let _ = rig.execute(rig.turn_of(vec![Part::text(" read"), file, Part::text("it ")])).await;
    assert_eq!(
        gateway.request().json()["messages"][0]["content"],
        "read it\n\nAttached files:\n- q3.pdf (application/pdf) at workspace:/data/q3.pdf"
    );
}

#[tokio::test]
async fn any_text_passes_both_ways_unchanged() {
    let text = "\"quotes\" \\ {secret:API_SERVER_KEY} \u{0} \u{7f} 🦀 äöü \u{202e} </script>";
    let gateway = FakeGateway::start(|request| {
        let said = request.json()["messages"][0]["content"].clone();
        Reply::content(&said)
    })
    .await;
    let rig = rig(&gateway).await.secret(KEY, "k-0123456789abcdef");
    assert_eq!(rig.run(text).await.text(), text, "a secret is filled into headers only");
    let long = "ä".repeat(1 << 16);
    assert_eq!(rig.run(&long).await.text().len(), long.len());
}

#[tokio::test]
async fn usage_is_passed_on() {
    let gateway = polite().await;
    let ran = rig(&gateway).await.run("hello").await;
    let outcome = ran.result.expect("a reply");
    assert_eq!(outcome.state, FinalState::Completed);
    assert_eq!(outcome.usage, Some(Usage { input_tokens: 11, output_tokens: 7 }));
}

#[tokio::test]
async fn malformed_usage_is_left_out() {
    for usage in [json!(null), json!({}), json!({ "prompt_tokens": "11", "completion_tokens": -1 })] {
        let body = json!({ "choices": [{ "message": { "content": "hi" } }], "usage": usage });
        let gateway = FakeGateway::always(Reply::json(&body)).await;
        let ran = rig(&gateway).await.run("hello").await;
        assert_eq!(ran.text(), "hi");
        assert_eq!(ran.result.expect("a reply").usage, None, "{usage}");
    }
}
