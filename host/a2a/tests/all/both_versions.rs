//! Both versions on one server: each caller gets an answer in its own version, about the same tasks.

use serde_json::{Value, json};
use talaria_a2a::ReplyAs;
use talaria_turns::Limits;

use crate::kit::{Host, message, message_03};
use crate::wire::{ALL, Ask, Wire, state};

/// Replaces what differs from run to run, for comparison with a golden file.
fn settled(mut value: Value) -> Value {
    fn walk(value: &mut Value) {
        match value {
            Value::Array(elements) => elements.iter_mut().for_each(walk),
            Value::Object(members) => {
                for (name, value) in members {
                    match (name.as_str(), &value) {
                        ("timestamp", Value::String(at)) => {
                            assert!(at.len() == 24 && at.ends_with('Z'), "UTC with milliseconds: {at}");
                            *value = json!("[timestamp]");
                        }
                        ("id" | "taskId" | "contextId", Value::String(_)) => {
                            *value = json!(format!("[{name}]"))
                        }
                        ("messageId", Value::String(_)) => *value = json!("[messageId]"),
                        _ => walk(value),
                    }
                }
            }
            _ => {}
        }
    }
    walk(&mut value);
    value
}

#[tokio::test]
async fn the_same_turns_are_answered_in_both_versions() {
    let host = Host::start().await;
    for word in ["hello", "fail", "ask", "reject", "file", "as-task", "cost"] {
        let one = host.call("SendMessage", &json!({ "message": message(word) })).await;
        insta::assert_json_snapshot!(format!("v1_{word}"), settled(one));
        let old = host.call("message/send", &json!({ "message": message_03(word) })).await;
        insta::assert_json_snapshot!(format!("v03_{word}"), settled(old));
    }
}

#[tokio::test]
async fn a_message_names_its_context_and_its_task_is_stored() {
    let host = Host::start().await;
    let sent = host.call("SendMessage", &json!({ "message": message("hello") })).await;
    let reply = &sent["result"]["message"];
    assert_eq!(reply.get("taskId"), None, "the task is over and accepts no message");
    let query = json!({ "contextId": reply["contextId"], "includeArtifacts": true });
    let task = host.call("ListTasks", &query).await["result"]["tasks"][0].clone();
    assert_eq!(task["contextId"], reply["contextId"]);
    assert_eq!(task["artifacts"][0]["parts"], reply["parts"]);
    let old = host.call("tasks/get", &json!({ "id": task["id"] })).await["result"].clone();
    assert_eq!((&old["kind"], &old["status"]["state"]), (&json!("task"), &json!("completed")));

    let mut chosen = message("hello");
    chosen["contextId"] = json!("mine");
    let sent = host.call("SendMessage", &json!({ "message": chosen })).await;
    assert_eq!(sent["result"]["message"]["contextId"], "mine", "the caller may choose the context");
}

#[tokio::test]
async fn the_configuration_or_the_executor_makes_an_answer_a_task() {
    let host = Host::with(|config| config.reply = ReplyAs::Task, Limits::default()).await;
    let sent =
        async |word| host.call("SendMessage", &json!({ "message": message(word) })).await["result"].clone();
    assert!(sent("hello").await.get("task").is_some());
    assert!(sent("as-message").await.get("message").is_some(), "the executor overrides the configuration");
    assert!(
        !sent("as-message").await.to_string().contains("talaria/reply"),
        "its wish is not sent to the caller"
    );
}

/// Returns the kind of an answer: `message`, or the state of a task.
async fn answered(wire: Wire, host: &Host, text: &str, task: Option<&str>) -> String {
    let mut params = wire.params(text);
    if let Some(task) = task {
        params["message"]["taskId"] = json!(task);
    }
    let answer = wire.get(host, &Ask::Send(params)).await;
    let is_message = answer.get("message").is_some() || answer["kind"] == "message";
    let task = answer.get("task").unwrap_or(&answer);
    if is_message { "message".into() } else { state(&task["status"]) }
}

#[tokio::test]
async fn a_failure_is_a_task_unless_every_answer_is_a_message() {
    for (reply, hello, fail) in [
        (ReplyAs::Auto, "message", "failed"),
        (ReplyAs::Message, "message", "message"),
        (ReplyAs::Task, "completed", "failed"),
    ] {
        let host = Host::with(|config| config.reply = reply, Limits::default()).await;
        for wire in ALL {
            assert_eq!(answered(wire, &host, "hello", None).await, hello, "{wire:?} {reply:?}");
            assert_eq!(answered(wire, &host, "fail", None).await, fail, "{wire:?} {reply:?}");
            let params = wire.params("fail");
            let answer = wire.ask(&host, &Ask::Send(params)).await;
            assert!(
                answer.json().to_string().contains("[agent unreachable] connection refused"),
                "{answer:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_message_that_names_a_task_is_answered_with_that_task() {
    for (reply, fail) in [(ReplyAs::Auto, "failed"), (ReplyAs::Message, "message"), (ReplyAs::Task, "failed")]
    {
        let host = Host::with(|config| config.reply = reply, Limits::default()).await;
        for wire in ALL {
            for (text, expected) in [("hello", "completed"), ("as-message", "completed"), ("fail", fail)] {
                let asked = host.call("SendMessage", &json!({ "message": message("ask") })).await;
                let id = asked["result"]["task"]["id"].as_str().unwrap();
                assert_eq!(
                    answered(wire, &host, text, Some(id)).await,
                    expected,
                    "{wire:?} {reply:?} {text}"
                );
            }
            let asked = host.call("SendMessage", &json!({ "message": message("ask") })).await;
            let mut params = wire.params("as-message");
            params["message"]["taskId"] = asked["result"]["task"]["id"].clone();
            let frames = wire.open(&host, &[], &Ask::Stream(params)).await.ok().unwrap().rest().await;
            assert!(wire.brief(&frames[0]).starts_with("task "), "streamed too: {wire:?}");
        }
    }
}

#[tokio::test]
async fn the_history_has_the_requested_length() {
    let host = Host::start().await;
    let asked =
        host.call("SendMessage", &json!({ "message": message("ask") })).await["result"]["task"].clone();
    let mut second = message("as-task");
    second["taskId"] = asked["id"].clone();
    let done = host.call("SendMessage", &json!({ "message": second })).await["result"]["task"].clone();
    assert_eq!(done["contextId"], asked["contextId"], "the context is inferred from the task");
    assert_eq!(done["history"].as_array().unwrap().len(), 3, "two messages and the question between them");
    for (length, shown) in [(json!(0), 0), (json!(2), 2), (json!("2"), 2), (json!(99), 3), (Value::Null, 3)] {
        for method in ["GetTask", "tasks/get"] {
            let params = json!({ "id": asked["id"], "historyLength": length });
            let task = host.call(method, &params).await["result"].clone();
            let history = task.get("history").map_or(0, |history| history.as_array().unwrap().len());
            assert_eq!(history, shown, "{method} {length}");
        }
    }
    let params = json!({ "message": message("as-task"), "configuration": { "historyLength": 0 } });
    assert!(host.call("SendMessage", &params).await["result"]["task"].get("history").is_none());
}

#[tokio::test]
async fn a_send_that_does_not_block_is_answered_at_once() {
    let host = Host::start().await;
    let one = json!({ "message": message("wait"), "configuration": { "return_immediately": true } });
    let old = json!({ "message": message_03("wait"), "configuration": { "blocking": false } });
    let one = host.call("SendMessage", &one).await["result"]["task"].clone();
    assert_eq!(one["status"]["state"], "TASK_STATE_SUBMITTED");
    let old = host.call("message/send", &old).await["result"].clone();
    assert_eq!((&old["kind"], &old["status"]["state"]), (&json!("task"), &json!("submitted")));
    host.script.go.add_permits(2);
    for task in [one, old] {
        let ended = host.ended(&task["id"].as_str().unwrap().parse().unwrap()).await;
        assert_eq!(ended["status"]["state"], "TASK_STATE_COMPLETED");
    }
}

#[tokio::test]
async fn the_version_is_read_from_header_or_query_and_echoed() {
    let host = Host::start().await;
    let call = |method: &str, message: Value| {
        json!({ "jsonrpc": "2.0", "id": "x", "method": method, "params": { "message": message } }).to_string()
    };
    let (one, old) = (call("SendMessage", message("hi")), call("message/send", message_03("hi")));
    for (path, headers, body, version) in [
        ("/", vec![("A2A-Version", "1.0")], &one, "1.0"),
        ("/", vec![("a2a-version", "1.1")], &one, "1.0"),
        ("/?A2A-Version=1.0", vec![], &one, "1.0"),
        ("/", vec![], &one, "1.0"),
        ("/", vec![("A2A-Version", "")], &one, "1.0"),
        ("/", vec![], &old, "0.3"),
        ("/", vec![("A2A-Version", "")], &old, "0.3"),
        ("/", vec![("A2A-Version", "0.3.0")], &old, "0.3"),
    ] {
        let sent: Vec<_> = headers.iter().copied().chain([("content-type", "application/json")]).collect();
        let answer = host.request("POST", path, &sent, body.as_bytes()).await;
        assert_eq!(answer.header("a2a-version"), Some(version), "{path} {headers:?}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert!(answer.json().get("result").is_some(), "{path} {headers:?}");
    }
}

/// The platform wraps a message in an envelope, renames `type` to `kind`, and reads the first part of kind `text`.
#[tokio::test]
async fn the_platform_finds_the_text_the_trace_and_the_usage() {
    let host = Host::start().await;
    let message = json!({
        "messageId": "m1", "role": "user",
        "parts": [{ "type": "text", "text": "cost" }, { "root": { "text": "of it" } }],
        "metadata": { "history": [{ "role": "user", "parts": [{ "kind": "text", "text": "before" }] }] },
    });
    let result = host.call("message/send", &json!({ "message": message })).await["result"].clone();
    assert_eq!(result["parts"][0], json!({ "kind": "text", "text": "echo: cost of it" }));
    assert_eq!(result["metadata"]["tool_trace"][0]["tool"], "ls");
    assert_eq!(result["usage"], json!({ "input_tokens": 3, "output_tokens": 5 }));
}
