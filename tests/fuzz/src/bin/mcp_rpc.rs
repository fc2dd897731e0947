//! A request to the server of the agent's tools. The first line is the protocol version that a header names, if any.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use talaria_fuzz::first_line;
use talaria_mcp::fuzz::{Said, TOOL, VERSIONS, answer};

fuzz_target!(|data: &[u8]| {
    let (version, body) = first_line(data);
    let version = std::str::from_utf8(version).ok().filter(|version| !version.is_empty());
    let (said, room) = answer(version, body);
    let json = serde_json::from_slice::<Value>(body).ok();
    assert!(room >= body.len() + json.as_ref().map_or(0, bytes), "the values fit into what is set aside");
    match &said {
        Said::Accepted => {
            let json = json.expect("only JSON is acknowledged");
            assert!(json["id"].is_null() || !json["method"].is_string(), "a request has an answer: {json}");
        }
        Said::Invalid(said) => {
            assert!(said["id"].is_null() && said["error"]["message"].is_string(), "{said}");
            let is_batch = json.as_ref().is_some_and(Value::is_array);
            let fits = json.is_some_and(|json| {
                json["method"].is_string() && (json["id"].is_string() || json["id"].is_number())
            });
            let is_known = version.is_none_or(|version| VERSIONS.contains(&version));
            assert!(is_batch || !fits || !is_known, "a good request is rejected: {said}");
        }
        Said::Response(said) => check_response(&json.expect("only JSON has a response"), said),
    }
    // Written and read again, it is the same: no text of the client breaks the answer.
    if let Said::Response(said) | Said::Invalid(said) = said {
        assert_eq!(serde_json::from_str::<Value>(&said.to_string()).expect("JSON"), said);
    }
});

fn check_response(asked: &Value, said: &Value) {
    assert_eq!(said["id"], asked["id"], "the answer has the id of its request");
    assert_ne!(said.get("result").is_some(), said.get("error").is_some(), "one of both: {said}");
    match asked["method"].as_str().expect("a method") {
        "ping" => assert_eq!(said["result"], json!({})),
        "initialize" => {
            let version = said["result"]["protocolVersion"].as_str().expect("a version");
            assert!(VERSIONS.contains(&version));
            let wanted = asked["params"]["protocolVersion"].as_str();
            assert!(wanted.is_none_or(|wanted| !VERSIONS.contains(&wanted) || wanted == version));
        }
        "tools/list" => assert_eq!(said["result"]["tools"][0]["name"], TOOL),
        "tools/call" if asked["params"]["name"] == TOOL => {
            let arguments = asked["params"].get("arguments").cloned().unwrap_or_default();
            assert_eq!(
                said["result"]["content"][0]["text"],
                arguments.to_string(),
                "the tool gets what was sent"
            );
        }
        _ => {
            let reason = said["error"]["message"].as_str().expect("a reason");
            assert!(reason.len() < 1000, "a reason is short: {reason}");
        }
    }
}

/// The bytes of a value and all in it, without what its container sets aside in addition.
fn bytes(value: &Value) -> usize {
    size_of::<Value>()
        + match value {
            Value::Array(items) => items.iter().map(bytes).sum(),
            Value::Object(fields) => fields.values().map(bytes).sum(),
            _ => 0,
        }
}
