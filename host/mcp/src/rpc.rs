//! The protocol itself: JSON-RPC 2.0, one message in, at most one out.
//!
//! Known methods are `initialize`, `ping`, `tools/list` and `tools/call`. Notifications are acknowledged and change nothing,
//! a cancellation among them: the client closes its connection, which ends the call. Responses from the client, which answer
//! requests that this server never makes, are acknowledged too. Batches are rejected: only one version of the protocol had
//! them.

use serde_json::{Value, json};

use crate::{Output, Tool, Tools};

/// The versions of the protocol that this server speaks, newest first. What it uses is the same in all of them.
pub(crate) const VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

const PARSE_ERROR: i32 = -32_700;
const INVALID_REQUEST: i32 = -32_600;
const METHOD_NOT_FOUND: i32 = -32_601;
const INVALID_PARAMS: i32 = -32_602;

/// The bytes of a value in memory, with its entry in an object's table.
const VALUE: usize = 128;

/// The answer to a message.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer {
    /// There is nothing to say.
    Accepted,
    /// A response.
    Response(Value),
    /// The message is not a request; the response says why.
    Invalid(Value),
}

/// The most memory that the values in a body take once they are parsed: `[0,0,…` takes many times its size.
pub(crate) fn room(body: &[u8]) -> usize {
    let starts = body.iter().filter(|byte| matches!(byte, b',' | b':' | b'[' | b'{')).count();
    body.len().saturating_add(starts.saturating_add(1).saturating_mul(VALUE))
}

/// Answers the message in a body. `version` is the protocol version that the request's header names, `name` the server's.
pub(crate) async fn answer(tools: &dyn Tools, name: &str, version: Option<&str>, body: &[u8]) -> Answer {
    let mut message = match serde_json::from_slice(body) {
        Ok(Value::Object(message)) => message,
        Ok(Value::Array(_)) => {
            return invalid(INVALID_REQUEST, "batches are not supported; send one request");
        }
        Ok(_) => return invalid(INVALID_REQUEST, "the body is not a request"),
        Err(error) => return invalid(PARSE_ERROR, &format!("the body is not JSON: {error}")),
    };
    let method = message.get("method").and_then(Value::as_str);
    let id = match (message.get("id"), method) {
        (None | Some(Value::Null), Some(_)) => return Answer::Accepted,
        (Some(_), None) if message.contains_key("result") || message.contains_key("error") => {
            return Answer::Accepted;
        }
        (Some(id @ (Value::String(_) | Value::Number(_))), Some(_)) => id.clone(),
        _ => return invalid(INVALID_REQUEST, "a request has a `method`, and a text or a number as `id`"),
    };
    let method = method.unwrap_or_default();
    if method != "initialize"
        && let Some(version) = version.filter(|version| !VERSIONS.contains(version))
    {
        let text = format!("MCP-Protocol-Version {version:?} is not supported; use {}", VERSIONS.join(", "));
        return invalid(INVALID_REQUEST, &text);
    }
    let method = method.to_owned();
    let params = message.remove("params").unwrap_or_default();
    Answer::Response(match run(tools, name, &method, params).await {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err((code, text)) => {
            json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": text } })
        }
    })
}

async fn run(tools: &dyn Tools, name: &str, method: &str, mut params: Value) -> Result<Value, (i32, String)> {
    match method {
        "initialize" => {
            let wanted = params.get("protocolVersion").and_then(Value::as_str);
            let version = VERSIONS.into_iter().find(|known| Some(*known) == wanted);
            Ok(json!({
                "protocolVersion": version.unwrap_or(VERSIONS[0]),
                "capabilities": { "tools": { "listChanged": false } },
                "serverInfo": { "name": name, "version": env!("CARGO_PKG_VERSION") },
            }))
        }
        "ping" => Ok(json!({})),
        "tools/list" => {
            let list = |Tool { name, description, input_schema }| json!({ "name": name, "description": description, "inputSchema": input_schema });
            Ok(json!({ "tools": tools.list().await.into_iter().map(list).collect::<Vec<_>>() }))
        }
        "tools/call" => {
            let arguments = params.get_mut("arguments").map(Value::take).unwrap_or_default();
            let Some(tool) = params.get("name").and_then(Value::as_str) else {
                return Err((INVALID_PARAMS, "`name` is missing or not a text".into()));
            };
            let Some(Output { text, is_fault }) = tools.call(tool, arguments).await else {
                let tool: String = tool.chars().take(80).collect();
                return Err((INVALID_PARAMS, format!("there is no tool {tool:?}")));
            };
            Ok(json!({ "content": [{ "type": "text", "text": text }], "isError": is_fault }))
        }
        _ => {
            let method: String = method.chars().take(80).collect();
            Err((METHOD_NOT_FOUND, format!("there is no method {method:?}")))
        }
    }
}

fn invalid(code: i32, text: &str) -> Answer {
    Answer::Invalid(json!({ "jsonrpc": "2.0", "id": null, "error": { "code": code, "message": text } }))
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;

    struct Echo;

    #[async_trait]
    impl Tools for Echo {
        async fn list(&self) -> Vec<Tool> {
            let input_schema = json!({ "type": "object" });
            vec![Tool { name: "echo", description: "Repeats its arguments.".into(), input_schema }]
        }

        async fn call(&self, name: &str, arguments: Value) -> Option<Output> {
            (name == "echo").then(|| Output::text(arguments.to_string()))
        }
    }

    async fn ask(body: Value) -> Value {
        match answer(&Echo, "it", None, body.to_string().as_bytes()).await {
            Answer::Response(value) | Answer::Invalid(value) => value,
            Answer::Accepted => panic!("it was taken for a notification"),
        }
    }

    #[tokio::test]
    async fn a_client_gets_its_version_or_the_newest() {
        for (wanted, expected) in [
            (json!("2024-11-05"), "2024-11-05"),
            (json!("2025-11-25"), "2025-11-25"),
            (json!("1999-01-01"), "2025-11-25"),
            (json!(7), "2025-11-25"),
        ] {
            let params = json!({ "protocolVersion": wanted, "capabilities": {} });
            let said =
                ask(json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params })).await;
            assert_eq!(said["result"]["protocolVersion"], expected);
            assert_eq!(said["result"]["serverInfo"]["name"], "it");
            assert!(said["result"]["capabilities"]["tools"].is_object());
        }
    }

    #[tokio::test]
    async fn tools_are_listed_and_called() {
        let said = ask(json!({ "jsonrpc": "2.0", "id": "a", "method": "tools/list" })).await;
        assert_eq!((&said["id"], &said["result"]["tools"][0]["name"]), (&json!("a"), &json!("echo")));
        for arguments in [json!({ "x": 1 }), json!("text"), json!(null)] {
            let params = json!({ "name": "echo", "arguments": arguments });
            let said =
                ask(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })).await;
            assert_eq!(said["result"]["content"][0]["text"], arguments.to_string());
            assert_eq!(said["result"]["isError"], false);
        }
        let params = json!({ "name": "rm" });
        let said = ask(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })).await;
        assert_eq!(said["error"]["code"], INVALID_PARAMS);
        assert_eq!(ask(json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" })).await["result"], json!({}));
    }

    #[test]
    fn the_room_of_a_body_covers_its_values() {
        for (body, values) in [("0", 1), ("[0,0,0]", 4), (r#"{"a":[{}],"b":"x,y"}"#, 4), ("[[],[[]]]", 4)] {
            assert!(room(body.as_bytes()) >= body.len() + values * VALUE, "{body}");
        }
        assert!(room(&[b'x'; 1000]) < 2000, "texts take little more than their size");
    }

    #[tokio::test]
    async fn notifications_and_responses_are_acknowledged() {
        for message in [
            json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
            json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } }),
            json!({ "jsonrpc": "2.0", "id": 1, "result": {} }),
        ] {
            assert_eq!(answer(&Echo, "it", None, message.to_string().as_bytes()).await, Answer::Accepted);
        }
    }

    #[tokio::test]
    async fn what_is_not_a_request_is_answered_with_the_reason() {
        for (body, code) in [
            ("", PARSE_ERROR),
            ("{", PARSE_ERROR),
            ("\u{feff}{}", PARSE_ERROR),
            ("[]", INVALID_REQUEST),
            ("7", INVALID_REQUEST),
            ("{}", INVALID_REQUEST),
            (r#"{"id":{},"method":"ping"}"#, INVALID_REQUEST),
            (r#"{"id":1,"method":7}"#, INVALID_REQUEST),
        ] {
            let Answer::Invalid(said) = answer(&Echo, "it", None, body.as_bytes()).await else {
                panic!("{body}")
            };
            assert_eq!(said["error"]["code"], code, "{body}");
        }
        let deep = "[".repeat(100_000);
        assert!(matches!(answer(&Echo, "it", None, deep.as_bytes()).await, Answer::Invalid(_)));
        let said = ask(json!({ "jsonrpc": "2.0", "id": 1, "method": "resources/list" })).await;
        assert_eq!(said["error"]["code"], METHOD_NOT_FOUND);
        let ping = br#"{"id":1,"method":"ping"}"#;
        assert!(matches!(answer(&Echo, "it", Some("2030-01-01"), ping).await, Answer::Invalid(_)));
        assert!(matches!(answer(&Echo, "it", Some("2025-06-18"), ping).await, Answer::Response(_)));
    }
}
