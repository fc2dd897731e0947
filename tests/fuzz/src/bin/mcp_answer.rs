//! What a server of tools answers: a message, the result of a call, a list of tools.
#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use talaria_mcp::fuzz::{
    ALL, DEPTH, DESCRIPTION, Heard, NAME, PAGES, RESULT, SCHEMA, TOOLS, VALUES, hear, is_hidden, result,
    tools,
};

/// What is written behind a text that was cut.
const MARK: usize = 100;

fuzz_target!(|document: &[u8]| {
    let json = serde_json::from_slice::<Value>(document).ok();
    match hear(document) {
        Ok(heard) => {
            let json = json.as_ref().expect("only JSON is heard");
            assert!(depth(json) <= DEPTH && values(json) <= VALUES, "what is parsed is bounded");
            let sent = json.as_array().map_or(1, Vec::len);
            assert!(heard.len() <= sent, "a message is heard once");
            heard.iter().for_each(|heard| check_heard(heard, json));
        }
        // A text that is not valid may hide a bracket from the parser, but not from the measure.
        Err("not JSON") => assert!(json.is_none(), "what is JSON is not called otherwise"),
        Err(_) => assert!(json.as_ref().is_none_or(|json| depth(json) > DEPTH || values(json) > VALUES)),
    }
    let Some(json) = json else { return };
    check_result(&json);
    check_tools(&json);
});

fn check_heard(heard: &Heard, sent: &Value) {
    let sent = sent.to_string();
    match heard {
        Heard::Response(id, answer) => {
            assert!(sent.contains(&id.to_string()));
            if let Err(reason) = answer {
                assert!(!reason.contains(is_hidden), "{reason:?}");
            }
        }
        Heard::Request(reply) => {
            assert!(reply["id"].is_string() || reply["id"].is_number(), "{reply}");
            assert_ne!(reply.get("result").is_some(), reply.get("error").is_some(), "{reply}");
        }
        Heard::Notification(method) => assert!(sent.contains(&Value::from(method.as_str()).to_string())),
    }
}

fn check_result(json: &Value) {
    let Some((text, is_error)) = result(json) else { return };
    assert!(text.len() <= RESULT + MARK && !text.contains(is_hidden), "{text:?}");
    assert_eq!(is_error, json["isError"] == true);
    assert!(!is_error || text.starts_with("The tool failed:\n"), "{text:?}");
    let blocks = json["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let plain =
        blocks.iter().filter(|block| block["type"] == "text").filter_map(|block| block["text"].as_str());
    for part in plain.filter(|part| !part.contains(is_hidden)) {
        assert!(text.len() >= RESULT || text.contains(part), "no text is lost: {part:?}");
    }
}

fn check_tools(json: &Value) {
    let (offered, pages) = tools("docs", json);
    assert!(offered.len() <= TOOLS && pages <= PAGES);
    let names: BTreeSet<_> = offered.iter().map(|(tool, _)| tool.name.as_str()).collect();
    assert_eq!(names.len(), offered.len(), "names are unique");
    let mut all = 0;
    for (tool, remote) in &offered {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        assert!(tool.name.len() <= NAME && tool.name.bytes().all(is_plain), "{:?}", tool.name);
        assert!(tool.name.starts_with("docs__"), "it is known whose tool it is: {:?}", tool.name);
        assert!(
            json["tools"].as_array().is_some_and(|tools| tools.iter().any(|tool| tool["name"] == **remote))
        );
        assert!(tool.description.len() <= DESCRIPTION + "…".len() && !tool.description.contains(is_hidden));
        let schema = tool.input_schema.to_string();
        assert!(schema.len() <= SCHEMA && tool.input_schema["type"] == "object", "{schema}");
        all += tool.description.len() + schema.len();
    }
    assert!(all <= ALL);
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

fn values(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(values).sum(),
        Value::Object(fields) => fields.values().map(values).sum(),
        _ => 0,
    }
}
