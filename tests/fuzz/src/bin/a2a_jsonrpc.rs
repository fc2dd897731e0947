//! A JSON-RPC request: headers, an empty line, the body. A first line `?…` is the query.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use talaria_a2a::fuzz::{self, Dialect, Operation};
use talaria_fuzz::{first_line, head_and_body, headers, wire};
use talaria_turns::TaskId;

fuzz_target!(|data: &[u8]| {
    let (head, body) = head_and_body(data);
    let query = first_line(head).0.strip_prefix(b"?").and_then(|query| std::str::from_utf8(query).ok());
    let (id, dialect, operation) = fuzz::rpc(&headers(head), query, body);

    let parsed = fuzz::json(body);
    assert_eq!(parsed, serde_json::from_slice(body).ok(), "the body is parsed as serde_json parses it");
    let sent_id = parsed.as_ref().and_then(|body| body.get("id"));
    assert!(id.is_null() || Some(&id) == sent_id, "the id is echoed");
    assert!(!id.is_array() && !id.is_object() && !id.is_boolean());

    let operation = match operation {
        Ok(operation) => operation,
        Err(error) => return check_error(&id, &error),
    };
    let body = parsed.as_ref().expect("only JSON is decoded");
    assert_eq!(body["jsonrpc"], "2.0");
    assert!(sent_id.is_some_and(|sent| *sent == id), "only a call with an id is performed");
    let dialect = dialect.expect("a decoded request has a dialect");
    let is_old = body["method"].as_str().is_some_and(|method| method.contains('/'));
    assert_eq!(dialect == Dialect::V03, is_old, "the name of the method determines the version");
    let names = |name: &str, snake: &str, task: &TaskId| {
        let params = &body["params"];
        let named = params.get(name).filter(|value| !value.is_null()).or_else(|| params.get(snake));
        assert_eq!(named.and_then(Value::as_str), Some(task.as_str()));
    };
    match operation {
        Operation::Send(send) | Operation::Stream(send, _) => wire::check_message(dialect, &send.addressed),
        Operation::Get(get) => names("id", "id", &get.id),
        Operation::Subscribe(subscribe) => names("id", "id", &subscribe.id),
        Operation::Cancel(task) => names("id", "id", &task),
        Operation::CreatePushConfig(task, _) => names("taskId", "task_id", &task),
        Operation::GetPushConfig(task, _)
        | Operation::ListPushConfigs(task)
        | Operation::DeletePushConfig(task, _) => {
            if is_old {
                names("id", "id", &task)
            } else {
                names("taskId", "task_id", &task)
            }
        }
        Operation::List(_) => assert_eq!(dialect, Dialect::V1, "0.3 cannot list tasks"),
        Operation::ExtendedCard(_) => {
            assert!(matches!(body.get("params"), None | Some(Value::Null | Value::Object(_))));
        }
    }
});

fn check_error(id: &Value, error: &Value) {
    assert_eq!(error["jsonrpc"], "2.0");
    assert_eq!(error["id"], *id);
    assert!(error.get("result").is_none());
    assert!(error["error"]["code"].as_i64().is_some_and(|code| (-32768..=-32000).contains(&code)));
    assert!(error["error"]["message"].as_str().is_some_and(|message| !message.is_empty()));
    let reason = error["error"]["data"][0]["reason"].as_str();
    assert!(reason.is_some_and(|reason| !reason.is_empty()));
    wire::one_document(&error.to_string());
}
