//! Bad input is rejected with a code and the path of the field, and creates no task.

use serde_json::{Value, json};
use talaria_turns::Limits;

use crate::kit::{Answer, Host, message, message_03};

const JSON: (&str, &str) = ("content-type", "application/json");
const V1: (&str, &str) = ("A2A-Version", "1.0");

/// Returns the code, the field and the id of a JSON-RPC error, after checking its form.
fn error(answer: &Answer) -> (i64, String, Value) {
    let body = answer.json();
    assert_eq!(body["jsonrpc"], "2.0", "{body}");
    assert!(body.get("result").is_none(), "{body}");
    let details = body["error"]["data"].as_array().unwrap();
    assert_eq!(details[0]["@type"], "type.googleapis.com/google.rpc.ErrorInfo", "{body}");
    assert!(!body["error"]["message"].as_str().unwrap().is_empty());
    let field = details.iter().find(|detail| detail["@type"] == "type.googleapis.com/google.rpc.BadRequest");
    let field = field.map_or("", |detail| detail["fieldViolations"][0]["field"].as_str().unwrap());
    (body["error"]["code"].as_i64().unwrap(), field.to_owned(), body["id"].clone())
}

#[tokio::test]
async fn rejects_bodies_that_are_not_a_request() {
    let host = Host::start().await;
    let deep = "[".repeat(10_000);
    let deep_closed = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let deep_part = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{{"message":{}1{}}}}}"#,
        r#"{"a":"#.repeat(10_000),
        "}".repeat(10_000)
    );
    let many = format!("[{}0]", "0,".repeat(600_000));
    let cases: [(&str, &[u8], i64); 18] = [
        ("empty", b"", -32700),
        ("text", b"hello", -32700),
        ("cut off", b"{\"jsonrpc\":", -32700),
        ("two", b"{} {}", -32700),
        ("deep", deep.as_bytes(), -32600),
        ("deep and closed", deep_closed.as_bytes(), -32600),
        ("deep in the middle", deep_part.as_bytes(), -32600),
        ("not UTF-8", b"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\xfe\",\"method\":\"SendMessage\"}", -32700),
        ("not UTF-8 in a key", b"{\"\xc3\x28\":1}", -32700),
        ("half a surrogate pair", br#"{"id":"\ud800"}"#, -32700),
        ("too many values", many.as_bytes(), -32600),
        ("a number", b"3", -32600),
        ("a string", b"\"SendMessage\"", -32600),
        ("null", b"null", -32600),
        ("an empty object", b"{}", -32600),
        ("an empty batch", b"[]", -32600),
        ("a batch", br#"[{"jsonrpc":"2.0","id":1,"method":"SendMessage"}]"#, -32600),
        ("a byte order mark", b"\xef\xbb\xbf{}", -32700),
    ];
    for (name, body, code) in cases {
        let answer = host.post(&[JSON, V1], body).await;
        assert_eq!(answer.status, 200, "{name}");
        let (found, _, id) = error(&answer);
        assert_eq!((found, id), (code, Value::Null), "{name}: {}", answer.json());
        if code == -32700 {
            let message = answer.json()["error"]["message"].to_string();
            assert!(
                message.contains(" at line ") && message.contains(" column "),
                "{name}: the position is named: {message}"
            );
        }
    }
    assert_eq!(host.made(), 0);
}

#[tokio::test]
async fn rejects_invalid_envelopes() {
    let host = Host::start().await;
    let params = json!({ "message": message("hi") });
    for (body, code, id) in [
        (json!({ "id": 1, "method": "SendMessage", "params": params }), -32600, json!(1)),
        (
            json!({ "jsonrpc": "1.0", "id": "a", "method": "SendMessage", "params": params }),
            -32600,
            json!("a"),
        ),
        (json!({ "jsonrpc": 2.0, "id": 1, "method": "SendMessage", "params": params }), -32600, json!(1)),
        (json!({ "jsonrpc": "2.0", "method": "SendMessage", "params": params }), -32600, Value::Null),
        (json!({ "jsonrpc": "2.0", "method": "Nothing", "params": params }), -32601, Value::Null),
        (json!({ "jsonrpc": "2.0", "method": "SendMessage", "params": { "": "x" } }), -32602, Value::Null),
        (
            json!({ "jsonrpc": "2.0", "id": {}, "method": "SendMessage", "params": params }),
            -32600,
            Value::Null,
        ),
        (
            json!({ "jsonrpc": "2.0", "id": [1], "method": "SendMessage", "params": params }),
            -32600,
            Value::Null,
        ),
        (
            json!({ "jsonrpc": "2.0", "id": true, "method": "SendMessage", "params": params }),
            -32600,
            Value::Null,
        ),
        (json!({ "jsonrpc": "2.0", "id": 1, "params": params }), -32600, json!(1)),
        (json!({ "jsonrpc": "2.0", "id": 1, "method": 7, "params": params }), -32600, json!(1)),
        (json!({ "jsonrpc": "2.0", "id": null, "method": "Nothing" }), -32601, Value::Null),
        (
            json!({ "jsonrpc": "2.0", "id": 1.5, "method": "sendmessage", "params": params }),
            -32601,
            json!(1.5),
        ),
        (json!({ "jsonrpc": "2.0", "id": 1, "method": "", "params": params }), -32601, json!(1)),
        (
            json!({ "jsonrpc": "2.0", "id": 1, "method": "CancelTask", "params": { "id": "t" } }),
            -32001,
            json!(1),
        ),
        (json!({ "jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard" }), -32004, json!(1)),
        (
            json!({ "jsonrpc": "2.0", "id": 1, "method": "CreateTaskPushNotificationConfig" }),
            -32003,
            json!(1),
        ),
    ] {
        let answer = host.post(&[JSON, V1], body.to_string().as_bytes()).await;
        assert_eq!(answer.status, 200, "{body}");
        let (found, _, echoed) = error(&answer);
        assert_eq!((found, echoed), (code, id), "{body}");
    }
    assert_eq!(host.made(), 0);
}

/// Returns `base` with one change at a path like `message.parts.0`; `null` removes the member.
fn changed(base: &Value, path: &str, value: Value) -> Value {
    let mut params = base.clone();
    let pointer = format!("/{}", path.replace('.', "/"));
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let parent = params.pointer_mut(parent).unwrap();
    match parent {
        Value::Object(members) => members.insert(name.to_owned(), value),
        other => Some(std::mem::replace(&mut other[name.parse::<usize>().unwrap()], value)),
    };
    params
}

#[tokio::test]
async fn rejects_invalid_parameters_of_1_0_with_their_field() {
    let host = Host::start().await;
    let base = json!({ "message": message("hi"), "configuration": {} });
    for (path, value, field) in [
        ("message", Value::Null, "message"),
        ("message", json!("hi"), "message"),
        ("message.messageId", Value::Null, "message.messageId"),
        ("message.messageId", json!(""), "message.messageId"),
        ("message.messageId", json!(7), "message.messageId"),
        ("message.messageId", json!("x".repeat(257)), "message.messageId"),
        ("message.messageId", json!("a\nb"), "message.messageId"),
        ("message.role", Value::Null, "message.role"),
        ("message.role", json!("ROLE_UNSPECIFIED"), "message.role"),
        ("message.role", json!(0), "message.role"),
        ("message.role", json!("user"), "message.role"),
        ("message.parts", Value::Null, "message.parts"),
        ("message.parts", json!([]), "message.parts"),
        ("message.parts", json!({ "text": "hi" }), "message.parts"),
        ("message.parts.0", json!({}), "message.parts[0]"),
        ("message.parts.0", Value::Null, "message.parts[0]"),
        ("message.parts.0", json!({ "text": "a", "data": {} }), "message.parts[0]"),
        ("message.parts.0", json!({ "raw": "", "url": "" }), "message.parts[0]"),
        ("message.parts.0", json!({ "text": ["a"] }), "message.parts[0].text"),
        ("message.parts.0", json!({ "raw": "%%%" }), "message.parts[0].raw"),
        ("message.metadata", json!("x"), "message.metadata"),
        ("message.extensions", json!(["a", 1]), "message.extensions[1]"),
        ("message.contextId", json!(1), "message.contextId"),
        ("message.taskId", json!("\u{7f}"), "message.taskId"),
        ("message.metadata", json!({ "talaria/executor": "nope" }), "message.metadata"),
        ("metadata", json!([]), "metadata"),
        ("configuration", json!(true), "configuration"),
        ("configuration.historyLength", json!(-1), "configuration.historyLength"),
        ("configuration.historyLength", json!(0.5), "configuration.historyLength"),
        ("configuration.returnImmediately", json!("yes"), "configuration.returnImmediately"),
    ] {
        let params = changed(&base, path, value);
        let (code, found, _) = error(&host.call_as(&[], "SendMessage", &params).await);
        assert_eq!((code, found.as_str()), (-32602, field), "{params}");
    }
    for params in [json!([]), json!("x")] {
        let (code, field, _) = error(&host.call_as(&[], "SendMessage", &params).await);
        assert_eq!((code, field.as_str()), (-32602, "params"), "{params}");
    }
    let (code, field, _) = error(&host.call_as(&[], "SendMessage", &Value::Null).await);
    assert_eq!((code, field.as_str()), (-32602, "message"), "no parameters at all");
    assert_eq!(host.made(), 0);
}

#[tokio::test]
async fn rejects_invalid_parameters_of_0_3_with_their_field() {
    let host = Host::start().await;
    let base = json!({ "message": message_03("hi"), "configuration": {} });
    for (path, value, field) in [
        ("message", Value::Null, "message"),
        ("message.kind", json!("task"), "message.kind"),
        ("message.messageId", json!(""), "message.messageId"),
        ("message.messageId", Value::Null, "message.messageId"),
        ("message.role", json!("ROLE_USER"), "message.role"),
        ("message.parts", json!([]), "message.parts"),
        ("message.parts.0", json!({ "kind": "text" }), "message.parts[0].text"),
        ("message.parts.0", json!({ "text": "a", "file": { "uri": "x:y" } }), "message.parts[0]"),
        ("message.parts.0", json!({ "kind": "video", "text": "a" }), "message.parts[0].kind"),
        ("message.parts.0", json!({ "file": { "bytes": "", "uri": "" } }), "message.parts[0].file"),
        ("configuration.blocking", json!("no"), "configuration.blocking"),
        ("configuration.historyLength", json!("-3"), "configuration.historyLength"),
    ] {
        let params = changed(&base, path, value);
        let (code, found, _) = error(&host.call_as(&[], "message/send", &params).await);
        assert_eq!((code, found.as_str()), (-32602, field), "{params}");
    }
    assert_eq!(host.made(), 0);
}

#[tokio::test]
async fn rejects_a_version_that_contradicts_the_method() {
    let host = Host::start().await;
    for (method, version) in [
        ("SendMessage", Some("0.3")),
        ("SendMessage", Some("99.0")),
        ("GetTask", Some("banana")),
        ("message/send", Some("1.0")),
        ("tasks/get", Some("0.2")),
    ] {
        let body =
            json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": { "message": message("hi") } });
        let headers: Vec<_> =
            version.map(|version| ("A2A-Version", version)).into_iter().chain([JSON]).collect();
        let answer = host.post(&headers, body.to_string().as_bytes()).await;
        assert_eq!(error(&answer).0, -32009, "{method} with {version:?}");
        assert_eq!(answer.json()["error"]["data"][0]["reason"], "VERSION_NOT_SUPPORTED");
        assert_eq!(answer.header("a2a-version"), None, "no version was settled");
    }
    assert_eq!(host.made(), 0);
}

#[tokio::test]
async fn rejects_media_types_other_than_json() {
    let host = Host::start().await;
    let body =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": { "message": message("hi") } });
    for content_type in ["text/plain", "application/xml", "application/x-www-form-urlencoded"] {
        for body in [body.to_string(), "not JSON either".into()] {
            let answer = host.post(&[V1, ("content-type", content_type)], body.as_bytes()).await;
            assert_eq!((answer.status, error(&answer).0), (415, -32005), "{content_type}");
        }
    }
    assert_eq!(host.made(), 0);
}

#[tokio::test]
async fn rejects_bodies_over_the_limit() {
    let host = Host::with(|config| config.limits.body = 4096, Limits::default()).await;
    let text = "x".repeat(5000);
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": { "message": message(&text) } });
    let body = body.to_string();
    let check = |answer: &Answer, how: &str| {
        assert_eq!(answer.status, 413, "{how}");
        assert_eq!(error(answer).0, -32600, "{how}");
    };
    check(&host.post(&[JSON, V1], body.as_bytes()).await, "with a length");

    let head = "POST / HTTP/1.1\r\nhost: localhost\r\nA2A-Version: 1.0\r\n";
    let chunked = format!("{head}transfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    check(&host.exchange(chunked.as_bytes()).await, "in chunks");
    // The body is never sent, so the answer must not wait for it.
    let promised = format!("{head}content-length: 99999999\r\nexpect: 100-continue\r\n\r\n");
    check(&host.exchange(promised.as_bytes()).await, "declared but not sent");
    assert_eq!(host.made(), 0);

    let fits = json!({ "message": message(&"x".repeat(3000)) });
    assert!(
        host.call("SendMessage", &fits).await.get("result").is_some(),
        "a body within the limit is accepted"
    );
}

#[tokio::test]
async fn rejects_a_body_that_does_not_arrive() {
    let quick = std::time::Duration::from_millis(50);
    let host = Host::with(|config| config.limits.body_timeout = quick, Limits::default()).await;
    let answer = host.exchange(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{").await;
    assert_eq!((answer.status, error(&answer).0), (408, -32600));
}

#[tokio::test]
async fn rejects_tasks_that_are_missing_over_or_in_another_context() {
    let host = Host::start().await;
    let to = |task: &str, context: Option<&str>| {
        let mut message = message("hi");
        message["taskId"] = json!(task);
        message["contextId"] = json!(context);
        json!({ "message": message })
    };
    let (code, ..) = error(&host.call_as(&[], "SendMessage", &to("nobody", None)).await);
    assert_eq!(code, -32001);
    let (code, field, _) = error(&host.call_as(&[], "GetTask", &json!({ "id": "nobody" })).await);
    assert_eq!((code, field.as_str()), (-32001, ""));
    for (params, field) in [
        (json!({}), "id"),
        (json!({ "id": "" }), "id"),
        (json!({ "id": 7 }), "id"),
        (json!({ "id": "t", "historyLength": -1 }), "historyLength"),
    ] {
        for method in ["GetTask", "tasks/get"] {
            let (code, found, _) = error(&host.call_as(&[], method, &params).await);
            assert_eq!((code, found.as_str()), (-32602, field), "{method} {params}");
        }
    }
    assert_eq!(host.made(), 0);

    let asked = host.call("SendMessage", &json!({ "message": message("ask") })).await;
    let task = asked["result"]["task"]["id"].as_str().unwrap().to_owned();
    let (code, field, _) = error(&host.call_as(&[], "SendMessage", &to(&task, Some("elsewhere"))).await);
    assert_eq!((code, field.as_str()), (-32602, "message.contextId"));
    let done = host.call("SendMessage", &to(&task, None)).await;
    assert!(done.get("result").is_some(), "{done}");
    let (code, ..) = error(&host.call_as(&[], "SendMessage", &to(&task, None)).await);
    assert_eq!(code, -32004, "the task is over");
    assert_eq!(host.made(), 1);
}

#[tokio::test]
async fn rejects_a_push_configuration_rather_than_ignoring_it() {
    let host = Host::start().await;
    let push = json!({ "url": "https://example.com/hook" });
    let one = json!({ "message": message("hi"), "configuration": { "taskPushNotificationConfig": push } });
    let old = json!({ "message": message_03("hi"), "configuration": { "pushNotificationConfig": push } });
    assert_eq!(error(&host.call_as(&[], "SendMessage", &one).await).0, -32003);
    assert_eq!(error(&host.call_as(&[], "message/send", &old).await).0, -32003);
    assert_eq!(host.made(), 0);
}

#[tokio::test]
async fn one_turn_too_many_is_rejected_with_a_time_to_retry() {
    let host = Host::with(|_| {}, Limits { turns: 1, ..Limits::default() }).await;
    let wait = json!({ "message": message("wait"), "configuration": { "returnImmediately": true } });
    host.call("SendMessage", &wait).await;
    host.next_waiting().await;
    let answer = host.call_as(&[], "SendMessage", &json!({ "message": message("hi") })).await;
    assert_eq!((answer.status, error(&answer).0), (429, -32000));
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(answer.json()["error"]["data"][0]["metadata"]["retryAfter"], "1");
    assert_eq!(host.made(), 1);
}

#[tokio::test]
async fn rejects_unknown_paths_and_methods() {
    let host = Host::start().await;
    for (method, path, status, allow) in [
        ("GET", "/nothing", 404, None),
        ("POST", "/.well-known/agent-card.json", 405, Some("GET, HEAD")),
        ("GET", "/", 405, Some("POST")),
        ("OPTIONS", "/", 405, Some("POST")),
        ("POST", "//", 404, None),
        ("BREW", "/", 405, Some("POST")),
    ] {
        let answer = host.request(method, path, &[], b"").await;
        assert_eq!((answer.status, answer.header("allow")), (status, allow), "{method} {path}");
        assert_eq!(answer.json()["error"]["code"], status, "{method} {path}");
    }
}

#[tokio::test]
async fn rejects_headers_over_the_limit() {
    let host = Host::start().await;
    let long = format!("GET / HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(200_000));
    assert_eq!(host.exchange(long.as_bytes()).await.status, 431);
    let many = format!("GET / HTTP/1.1\r\nhost: x\r\n{}\r\n", "x: y\r\n".repeat(500));
    assert_eq!(host.exchange(many.as_bytes()).await.status, 431);
}
