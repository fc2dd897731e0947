//! Parts that are not text, from the client to the upstream: which ones an executor accepts, and how others are rejected.

use serde_json::{Value, json};
use talaria_egress::{Access, Bounds, Config, Egress, Request, Response};
use talaria_fakes::{FakeGateway, Reply, guest, soon};

use crate::bridge::{Bridge, Start};

const PNG: &str = "iVBORw0KGgo=";

async fn started(folder: &std::path::Path) -> (FakeGateway, Bridge) {
    let gateway = FakeGateway::always(Reply::completion("hi")).await;
    let bridge = Start::new(folder).env("HERMES_API_BASE", &gateway.base_url()).up();
    (gateway, bridge)
}

/// Sends a request that is larger than any that the client sends.
async fn post(bridge: &Bridge, path: &str, headers: &[(&str, &str)], body: String) -> Response {
    let access = Access {
        patterns: vec![format!("POST {}/*", bridge.url()).parse().unwrap()],
        bounds: Bounds { request_body: 64 << 20, ..Bounds::default() },
        ..Access::default()
    };
    let request = Request {
        method: "POST".into(),
        url: format!("{}{path}", bridge.url()),
        headers: headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        body: body.into(),
        ..Request::default()
    };
    soon("the bridge answers", Egress::new(Config::default()).fetch(&access, request)).await.unwrap()
}

/// Returns a part in 1.0 and in 0.3.
fn file(media_type: Option<&str>, bytes: &str) -> (Value, Value) {
    let mut one = json!({ "raw": bytes, "filename": "a.bin" });
    let mut old = json!({ "kind": "file", "file": { "bytes": bytes, "name": "a.bin" } });
    if let Some(media_type) = media_type {
        one["mediaType"] = media_type.into();
        old["file"]["mimeType"] = media_type.into();
    }
    (one, old)
}

/// Sends the parts in every version and binding, and returns the errors as (code or status, text).
async fn rejections(bridge: &Bridge, (one, old): &(Value, Value)) -> Vec<(i64, String)> {
    let error = |answer: &Value| {
        let error = &answer["error"];
        (error["code"].as_i64().unwrap_or_else(|| panic!("{answer}")), error["message"].to_string())
    };
    let new =
        json!({ "message": { "messageId": "m1", "role": "ROLE_USER", "parts": [{ "text": "look" }, one] } });
    let text = json!({ "kind": "text", "text": "look" });
    let message = json!({ "kind": "message", "messageId": "m1", "role": "user", "parts": [text, old] });
    let old = json!({ "message": message });
    let mut found = vec![
        error(&bridge.call("SendMessage", new.clone()).await),
        error(&bridge.call("SendStreamingMessage", new.clone()).await),
        error(&bridge.call_v03("message/send", old).await),
    ];
    let headers = [("content-type", "application/json"), ("a2a-version", "1.0")];
    let response = bridge.request("POST", "/message:send", &headers, &new.to_string()).await;
    let answer: Value = serde_json::from_slice(&response.body).unwrap();
    found.push((response.status.into(), answer["error"]["message"].to_string()));
    let file = json!({ "fileWithBytes": one["raw"], "mimeType": one["mediaType"], "name": one["filename"] });
    let content = json!([{ "text": "look" }, { "file": file }]);
    let older =
        json!({ "message": { "messageId": "m1", "role": "ROLE_USER", "content": content } }).to_string();
    let response = bridge.request("POST", "/v1/message:send", &headers[..1], &older).await;
    let answer: Value = serde_json::from_slice(&response.body).unwrap();
    found.push((response.status.into(), answer["error"]["message"].to_string()));
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_parts_that_the_executor_does_not_accept_and_stores_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (gateway, bridge) = started(folder.path()).await;
    for (part, why) in [
        (
            file(Some("application/pdf"), "JVBERi0="),
            "is an inline file of type \\\"application/pdf\\\"; this agent takes",
        ),
        (file(Some("image/tiff"), PNG), "is an inline file of type \\\"image/tiff\\\"; this agent takes"),
        (file(None, PNG), "is a file without a media type"),
        (file(Some("image/png"), ""), "is an empty file"),
        (file(Some("text/plain"), "/w=="), "is a text file that is not UTF-8"),
    ] {
        let found = rejections(&bridge, &part).await;
        let codes: Vec<_> = found.iter().map(|(code, _)| *code).collect();
        assert_eq!(codes, [-32005, -32005, -32005, 400, 400], "{why}: {found:?}");
        for (_, text) in &found {
            assert!(text.contains("message.parts[1]") && text.contains(why), "{text}");
        }
    }
    let tasks = bridge.call("ListTasks", json!({})).await;
    assert_eq!(tasks["result"]["tasks"], json!([]), "nothing was stored");
    assert_eq!(gateway.requests().len(), 0, "no request reached the upstream");
}

#[tokio::test(flavor = "multi_thread")]
async fn images_data_and_text_files_reach_the_upstream_from_both_versions() {
    let folder = tempfile::tempdir().unwrap();
    let (gateway, bridge) = started(folder.path()).await;
    let expected = json!([
        { "type": "text", "text": "data (application/json):\n{\"a\":1}\n\na.bin (text/csv):\nx,y" },
        { "type": "image_url", "image_url": { "url": format!("data:image/png;base64,{PNG}") } },
    ]);
    let (png, old_png) = file(Some("image/png"), PNG);
    let (csv, old_csv) = file(Some("text/csv"), "eCx5");
    let parts = json!([{ "data": { "a": 1 } }, png, csv]);
    let new = json!({ "message": { "messageId": "m1", "role": "ROLE_USER", "parts": parts } });
    let answer = bridge.call("SendMessage", new).await;
    assert_eq!(answer["result"]["message"]["parts"][0]["text"], "hi", "{answer}");
    let parts = json!([{ "kind": "data", "data": { "a": 1 } }, old_png, old_csv]);
    let old = json!({ "message": { "kind": "message", "messageId": "m2", "role": "user", "parts": parts } });
    let answer = bridge.call_v03("message/send", old).await;
    assert_eq!(answer["result"]["parts"][0]["text"], "hi", "{answer}");
    for request in gateway.requests() {
        assert_eq!(request.json()["messages"][0]["content"], expected);
    }
    assert_eq!(gateway.requests().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_card_lists_the_media_types_that_the_executor_accepts() {
    let folder = tempfile::tempdir().unwrap();
    let (_gateway, bridge) = started(folder.path()).await;
    let card = bridge.request("GET", "/.well-known/agent-card.json", &[], "").await;
    let card: Value = serde_json::from_slice(&card.body).unwrap();
    assert_eq!(
        card["defaultInputModes"],
        json!([
            "text/plain",
            "text/*",
            "application/json",
            "application/xml",
            "application/yaml",
            "image/png",
            "image/jpeg",
            "image/gif",
            "image/webp",
        ])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_without_declared_media_types_accepts_everything() {
    let folder = tempfile::tempdir().unwrap();
    let executors = folder.path().join("executors");
    std::fs::create_dir(&executors).unwrap();
    std::fs::write(executors.join("echo.wasm"), guest("test/echo")).unwrap();
    let bridge = Start::new(folder.path()).config("[executors]\ndefault = \"echo\"\n").up();
    let (pdf, _) = file(Some("application/pdf"), "JVBERi0=");
    let new =
        json!({ "message": { "messageId": "m1", "role": "ROLE_USER", "parts": [{ "text": "look" }, pdf] } });
    let answer = bridge.call("SendMessage", new).await;
    assert_eq!(answer["result"]["message"]["parts"][0]["text"], "look", "{answer}");
    // A stored message can be read back, however deeply its data is nested.
    let deep =
        |depth: usize| serde_json::from_str::<Value>(&format!("{}{}", "[".repeat(depth), "]".repeat(depth)));
    let parts = json!([{ "text": "deep" }, { "data": deep(95).unwrap() }]);
    let configuration = json!({ "returnImmediately": true });
    let message = json!({ "messageId": "m2", "role": "ROLE_USER", "parts": parts });
    let sent =
        bridge.call("SendMessage", json!({ "message": message, "configuration": configuration })).await;
    let id = sent["result"]["task"]["id"].clone();
    bridge.kill();
    let bridge = Start::new(folder.path()).up();
    let task = bridge.call("GetTask", json!({ "id": id })).await;
    assert_eq!(task["result"]["history"][0]["parts"], parts, "{task}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_data_that_is_too_deep_and_images_that_are_too_large_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let (gateway, bridge) = started(folder.path()).await;
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let image = "A".repeat(27 << 20);
    for (part, old, code, status, why) in [
        (
            format!(r#"{{"data":{deep}}}"#),
            format!(r#"{{"kind":"data","data":{deep}}}"#),
            -32600,
            400,
            "nested more than 100 deep",
        ),
        (
            format!(r#"{{"raw":"{image}","mediaType":"image/png"}}"#),
            format!(r#"{{"kind":"file","file":{{"bytes":"{image}","mimeType":"image/png"}}}}"#),
            -32600,
            413,
            "over 16777216 bytes",
        ),
    ] {
        let new = format!(r#"{{"message":{{"messageId":"m1","role":"ROLE_USER","parts":[{part}]}}}}"#);
        let old =
            format!(r#"{{"message":{{"kind":"message","messageId":"m1","role":"user","parts":[{old}]}}}}"#);
        let call = |method: &str, params: &str| {
            format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{params}}}"#)
        };
        let one = [("content-type", "application/json"), ("a2a-version", "1.0")];
        let three = [("content-type", "application/json")];
        for (path, headers, body, is_rpc) in [
            ("/", one.as_slice(), call("SendMessage", &new), true),
            ("/", three.as_slice(), call("message/send", &old), true),
            ("/message:send", one.as_slice(), new, false),
        ] {
            let response = post(&bridge, path, headers, body).await;
            let answer: Value = serde_json::from_slice(&response.body).unwrap();
            if is_rpc {
                assert_eq!(answer["error"]["code"], code, "{answer}");
            } else {
                assert_eq!(response.status, status, "{answer}");
            }
            assert!(answer["error"]["message"].as_str().unwrap().contains(why), "{answer}");
        }
    }
    let tasks = bridge.call("ListTasks", json!({})).await;
    assert_eq!(tasks["result"]["tasks"], json!([]), "nothing was stored");
    assert_eq!(gateway.requests().len(), 0, "no request reached the upstream");
}
