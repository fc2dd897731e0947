//! A JSON-RPC request: headers, an empty line, the body. A first line `?…` is the query.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use talaria_a2a::fuzz::{self, Asked, Dialect};
use talaria_fuzz::{first_line, head_and_body, headers, wire};

fuzz_target!(|data: &[u8]| {
    let (head, body) = head_and_body(data);
    let query = first_line(head).0.strip_prefix(b"?").and_then(|query| std::str::from_utf8(query).ok());
    let rpc = fuzz::rpc(&headers(head), query, body);

    let parsed = fuzz::json(body);
    assert_eq!(parsed, serde_json::from_slice(body).ok(), "the body is read as serde_json reads it");
    let said = parsed.as_ref().and_then(|body| body.get("id"));
    assert!(rpc.id.is_null() || Some(&rpc.id) == said, "the id is echoed");
    assert!(!rpc.id.is_array() && !rpc.id.is_object() && !rpc.id.is_boolean());

    let asked = match rpc.asked {
        Ok(asked) => asked,
        Err(error) => {
            assert_eq!(error["jsonrpc"], "2.0");
            assert_eq!(error["id"], rpc.id);
            assert!(error.get("result").is_none());
            assert!(error["error"]["code"].as_i64().is_some_and(|code| (-32768..=-32000).contains(&code)));
            assert!(error["error"]["message"].as_str().is_some_and(|message| !message.is_empty()));
            let reason = error["error"]["data"][0]["reason"].as_str();
            assert!(reason.is_some_and(|reason| !reason.is_empty()));
            wire::one_document(&error.to_string());
            return;
        }
    };
    let body = parsed.as_ref().expect("only JSON is understood");
    assert_eq!(body["jsonrpc"], "2.0");
    assert!(said.is_some_and(|id| *id == rpc.id), "only a call with an id is performed");
    let dialect = rpc.dialect.expect("what is understood has a dialect");
    let is_old = body["method"].as_str().is_some_and(|method| method.contains('/'));
    assert_eq!(dialect == Dialect::V03, is_old, "the method's name says the version");
    match asked {
        Asked::Send(said) => wire::check_message(dialect, &said),
        Asked::About(task) => assert_eq!(body["params"]["id"], task.as_str()),
        Asked::Hook(task, hook) => {
            let named = if is_old && hook.is_none() { "id" } else { "taskId" };
            assert_eq!(body["params"][named], task.as_str());
        }
        Asked::List(_) => assert_eq!(dialect, Dialect::V1, "0.3 has no list"),
        Asked::Card => assert!(matches!(body.get("params"), None | Some(Value::Null | Value::Object(_)))),
    }
});
