//! HTTP+JSON of 0.3: the proto before 1.0, below `/v1`.

use serde_json::{Value, json};

use crate::kit::{Answer, Host, fresh};

async fn post(host: &Host, path: &str, body: &Value) -> Answer {
    host.request("POST", path, &[("content-type", "application/json")], body.to_string().as_bytes()).await
}

fn message(content: Value) -> Value {
    json!({ "message": { "messageId": fresh(), "role": "ROLE_USER", "content": content } })
}

#[tokio::test]
async fn a_send_is_answered_in_the_proto_of_0_3() {
    let host = Host::start().await;
    let sent = post(&host, "/v1/message:send", &message(json!([{ "text": "hello" }]))).await;
    assert_eq!((sent.status, sent.header("a2a-version")), (200, Some("0.3")), "{sent:?}");
    let reply = &sent.json()["message"];
    assert_eq!(
        (&reply["role"], &reply["content"]),
        (&json!("ROLE_AGENT"), &json!([{ "text": "echo: hello" }]))
    );

    let sent = post(&host, "/v1/message:send", &message(json!([{ "text": "file" }]))).await.json();
    let part = &sent["task"]["artifacts"][0]["parts"][0];
    assert_eq!(*part, json!({ "file": { "fileWithBytes": "dGNr", "mimeType": "text/plain" } }));
    assert_eq!(sent["task"]["history"][0]["content"], json!([{ "text": "file" }]));
    assert_eq!(sent["task"]["status"]["state"], "TASK_STATE_COMPLETED");

    let id = sent["task"]["id"].as_str().unwrap();
    let got = host.request("GET", &format!("/v1/tasks/{id}?historyLength=0"), &[], b"").await.json();
    assert_eq!((&got["id"], got.get("history")), (&json!(id), None));
}

#[tokio::test]
async fn decodes_every_kind_of_part() {
    let host = Host::start().await;
    let content = json!([
        { "text": "as-task" },
        { "file": { "fileWithUri": "https://example.com/a", "mimeType": "text/plain", "name": "a" } },
        { "file": { "file_with_bytes": "dGNr", "mime_type": "text/plain" } },
        { "data": { "data": { "key": "value" } }, "metadata": { "a": 1 } },
    ]);
    let sent = post(&host, "/v1/message:send", &message(content)).await.json();
    let said = &sent["task"]["history"][0]["content"];
    assert_eq!(said[1]["file"]["fileWithUri"], "https://example.com/a");
    assert_eq!(said[2]["file"]["fileWithBytes"], "dGNr");
    assert_eq!(said[3], json!({ "data": { "data": { "key": "value" } }, "metadata": { "a": 1 } }));
    let one = host.call("GetTask", &json!({ "id": sent["task"]["id"] })).await["result"].clone();
    assert_eq!(one["history"][0]["parts"][3]["data"], json!({ "key": "value" }), "1.0 shows the same");
    let old = host.call("tasks/get", &json!({ "id": sent["task"]["id"] })).await["result"].clone();
    assert_eq!(old["history"][0]["parts"][3]["kind"], "data", "0.3 over JSON-RPC shows the same");
}

#[tokio::test]
async fn a_send_need_not_block() {
    let host = Host::start().await;
    // ProtoJSON encodes the first as the second.
    for configuration in [json!({ "blocking": false }), json!({})] {
        let mut body = message(json!([{ "text": "wait" }]));
        body["configuration"] = configuration;
        let sent = post(&host, "/v1/message:send", &body).await.json();
        assert_eq!(sent["task"]["status"]["state"], "TASK_STATE_SUBMITTED");
        host.script.go.add_permits(1);
    }
}

#[tokio::test]
async fn rejects_bad_input_with_its_field() {
    let host = Host::start().await;
    for (body, field) in [
        (json!({}), "message"),
        (json!({ "message": { "role": "ROLE_USER", "content": [{ "text": "a" }] } }), "message.messageId"),
        (
            json!({ "message": { "messageId": "m", "role": "user", "content": [{ "text": "a" }] } }),
            "message.role",
        ),
        (json!({ "message": { "messageId": "m", "role": "ROLE_USER", "content": [] } }), "message.content"),
        (message(json!([{}])), "message.content[0]"),
        (message(json!([{ "file": {} }])), "message.content[0].file"),
        (message(json!([{ "data": { "a": 1 } }])), "message.content[0].data.data"),
    ] {
        let answer = post(&host, "/v1/message:send", &body).await;
        assert_eq!(answer.status, 400, "{body}");
        let found = answer.json()["error"]["details"][1]["fieldViolations"][0]["field"].clone();
        assert_eq!(found, field, "{body}");
    }
    assert_eq!(host.made(), 0);
}

/// The Python SDK of 0.3 sends names with underscores, `request` instead of `message`, and no content type without a body. It
/// looks for the class, the code and the message of an error at the top level.
#[tokio::test]
async fn works_with_the_clients_of_the_sdks() {
    let host = Host::start().await;
    let body = json!({
        "request": { "message_id": fresh(), "role": "ROLE_USER", "content": [{ "text": "ask" }], "metadata": {} },
        "configuration": { "accepted_output_modes": ["text/plain"], "blocking": true },
    });
    let asked = post(&host, "/v1/message:send", &body).await.json();
    let id = asked["task"]["id"].as_str().unwrap();
    let cancel = format!("/v1/tasks/{id}:cancel");
    let headers = [("a2a-version", "0.3")];
    let cancelled = host.request("POST", &cancel, &headers, b"").await.json();
    assert_eq!(cancelled["status"]["state"], "TASK_STATE_CANCELLED");
    for (path, class, code) in
        [("/v1/tasks/none", "TaskNotFoundError", -32001), ("/v1/card", "UnsupportedOperationError", -32004)]
    {
        let error = host.request("GET", path, &headers, b"").await.json();
        assert_eq!(
            (&error["type"], &error["code"], &error["message"]),
            (&json!(class), &json!(code), &error["error"]["message"]),
            "{path}"
        );
    }
}

#[tokio::test]
async fn the_prefix_is_a_tenant_for_a_caller_of_1_0() {
    let host = Host::start().await;
    let body = json!({ "message": crate::kit::message("tenant") }).to_string();
    let headers = [("A2A-Version", "1.0"), ("content-type", "application/json")];
    let sent = host.request("POST", "/v1/message:send", &headers, body.as_bytes()).await.json();
    assert_eq!(sent["message"]["parts"][0]["text"], "v1", "{sent}");
    let answer = host.request("GET", "/v1/tasks/t", &[("A2A-Version", "7.0")], b"").await;
    assert_eq!(answer.json()["error"]["details"][0]["reason"], "VERSION_NOT_SUPPORTED");
    assert_eq!(host.request("GET", "/v1/tasks", &[], b"").await.status, 404, "0.3 cannot list tasks");
}
