//! HTTP+JSON of 1.0: the same operations, with paths, statuses and media types of HTTP.

use serde_json::{Value, json};

use crate::kit::{Host, message};

const VERSION: (&str, &str) = ("A2A-Version", "1.0");
const JSON: &str = "application/json";
const A2A: &str = "application/a2a+json";

#[tokio::test]
async fn answers_are_those_of_json_rpc_without_the_envelope() {
    let host = Host::start().await;
    let asked = host.call("SendMessage", &json!({ "message": message("ask") })).await["result"].clone();
    let id = asked["task"]["id"].as_str().unwrap();
    let rpc = host.call("GetTask", &json!({ "id": id, "historyLength": 0 })).await["result"].clone();
    let rest = host.request("GET", &format!("/tasks/{id}?historyLength=0"), &[VERSION], b"").await;
    assert_eq!((rest.status, rest.json()), (200, rpc));
    assert_eq!(rest.header("a2a-version"), Some("1.0"));
    assert_eq!(rest.header("cache-control"), Some("no-store"));
    assert_eq!(rest.header("vary"), Some("A2A-Version, A2A-Extensions, Accept"));

    let body = json!({ "message": message("hello"), "configuration": { "historyLength": 0 } }).to_string();
    let sent =
        host.request("POST", "/message:send", &[VERSION, ("content-type", JSON)], body.as_bytes()).await;
    assert_eq!(sent.json()["message"]["parts"], json!([{ "text": "echo: hello" }]));
    let theirs: a2a::SendMessageResponse = serde_json::from_value(sent.json()).unwrap();
    assert_eq!(serde_json::to_value(theirs).unwrap(), sent.json(), "the Rust SDK reads it");
}

#[tokio::test]
async fn the_version_may_be_in_the_query() {
    let host = Host::start().await;
    let body = json!({ "message": message("hello") }).to_string();
    let sent = host
        .request("POST", "/message:send?A2A-Version=1.0", &[("content-type", JSON)], body.as_bytes())
        .await;
    assert_eq!(sent.status, 200, "{sent:?}");
}

#[tokio::test]
async fn an_answer_has_the_media_type_of_the_request() {
    let host = Host::start().await;
    for (content_type, accept, answer, error) in [
        (Some(JSON), None, JSON, JSON),
        (Some(A2A), None, A2A, JSON),
        (Some(JSON), Some(A2A), A2A, A2A),
        (Some("application/json; charset=utf-8"), Some("*/*"), JSON, JSON),
    ] {
        let mut headers = vec![VERSION];
        headers.extend(content_type.map(|content_type| ("content-type", content_type)));
        headers.extend(accept.map(|accept| ("accept", accept)));
        let body = json!({ "message": message("hello") }).to_string();
        let sent = host.request("POST", "/message:send", &headers, body.as_bytes()).await;
        assert_eq!((sent.status, sent.header("content-type")), (200, Some(answer)), "{headers:?}");
        let rejected = host.request("POST", "/message:send", &headers, b"{}").await;
        assert_eq!((rejected.status, rejected.header("content-type")), (400, Some(error)), "{headers:?}");
    }
    let got = host.request("GET", "/tasks", &[VERSION, ("accept", A2A)], b"").await;
    assert_eq!(got.header("content-type"), Some(A2A));
}

#[tokio::test]
async fn an_error_has_its_status_its_name_and_its_reason() {
    let host = Host::start().await;
    let done = host.call("SendMessage", &json!({ "message": message("as-task") })).await;
    let done = done["result"]["task"]["id"].as_str().unwrap().to_owned();
    let mut late = message("more");
    late["taskId"] = json!(done);
    let late = json!({ "message": late }).to_string();
    let made = host.made();
    let cancel = format!("/tasks/{done}:cancel");
    let subscribe = format!("/tasks/{done}:subscribe");
    let json_type = ("content-type", JSON);
    for (method, path, headers, body, status, name, reason) in [
        ("GET", "/tasks/none", vec![VERSION], "", 404, "NOT_FOUND", "TASK_NOT_FOUND"),
        ("POST", "/tasks/none:cancel", vec![VERSION], "", 404, "NOT_FOUND", "TASK_NOT_FOUND"),
        ("GET", "/tasks/none:subscribe", vec![VERSION], "", 404, "NOT_FOUND", "TASK_NOT_FOUND"),
        ("POST", &cancel, vec![VERSION, json_type], "{}", 400, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"),
        ("POST", &subscribe, vec![VERSION], "", 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
        (
            "POST",
            "/message:send",
            vec![VERSION, json_type],
            &late,
            400,
            "FAILED_PRECONDITION",
            "UNSUPPORTED_OPERATION",
        ),
        ("POST", "/message:send", vec![VERSION, json_type], "{", 400, "INVALID_ARGUMENT", "PARSE_ERROR"),
        ("POST", "/message:send", vec![VERSION, json_type], "[]", 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        ("POST", "/message:send", vec![VERSION], "", 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        (
            "POST",
            "/message:send",
            vec![VERSION, ("content-type", "text/plain")],
            &late,
            415,
            "INVALID_ARGUMENT",
            "CONTENT_TYPE_NOT_SUPPORTED",
        ),
        ("GET", "/tasks/x", vec![], "", 404, "NOT_FOUND", "TASK_NOT_FOUND"),
        (
            "GET",
            "/tasks/x",
            vec![("A2A-Version", "99.0")],
            "",
            400,
            "FAILED_PRECONDITION",
            "VERSION_NOT_SUPPORTED",
        ),
        (
            "GET",
            "/tasks/x",
            vec![("A2A-Version", "0.3")],
            "",
            400,
            "FAILED_PRECONDITION",
            "VERSION_NOT_SUPPORTED",
        ),
        ("GET", "/extendedAgentCard", vec![VERSION], "", 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
        (
            "POST",
            "/tasks/x/pushNotificationConfigs",
            vec![VERSION],
            "{}",
            400,
            "FAILED_PRECONDITION",
            "PUSH_NOTIFICATION_NOT_SUPPORTED",
        ),
        (
            "DELETE",
            "/tasks/x/pushNotificationConfigs/c",
            vec![VERSION],
            "",
            400,
            "FAILED_PRECONDITION",
            "PUSH_NOTIFICATION_NOT_SUPPORTED",
        ),
    ] {
        let answer = host.request(method, path, &headers, body.as_bytes()).await;
        let error = answer.json()["error"].clone();
        assert_eq!((answer.status, &error["code"]), (status, &json!(status)), "{method} {path} {error}");
        assert_eq!(
            (&error["status"], &error["details"][0]["reason"]),
            (&json!(name), &json!(reason)),
            "{path}"
        );
        assert_eq!(error["details"][0]["domain"], "a2a-protocol.org");
        let spoken = (reason != "VERSION_NOT_SUPPORTED").then_some("1.0");
        assert_eq!(answer.header("a2a-version"), spoken, "{path}");
    }
    assert_eq!(host.made(), made);
}

#[tokio::test]
async fn rejects_methods_that_a_path_does_not_take() {
    let host = Host::start().await;
    for (method, path, allow) in [
        ("GET", "/message:send", "POST"),
        ("PUT", "/message:stream", "POST"),
        ("POST", "/tasks", "GET"),
        ("DELETE", "/tasks/t", "GET"),
        ("GET", "/tasks/t:cancel", "POST"),
        ("PATCH", "/tasks/t:subscribe", "GET, POST"),
        ("DELETE", "/tasks/t/pushNotificationConfigs", "GET, POST"),
        ("POST", "/tasks/t/pushNotificationConfigs/c", "GET, DELETE"),
        ("POST", "/extendedAgentCard", "GET"),
        ("POST", "/v1/card", "GET"),
    ] {
        let answer = host.request(method, path, &[], b"").await;
        assert_eq!((answer.status, answer.header("allow")), (405, Some(allow)), "{method} {path}");
    }
}

#[tokio::test]
async fn the_body_may_repeat_the_path_but_not_contradict_it() {
    let host = Host::start().await;
    let asked = host.call("SendMessage", &json!({ "message": message("ask") })).await;
    let id = asked["result"]["task"]["id"].as_str().unwrap();
    let cancel = async |body: Value| {
        let path = format!("/tasks/{id}:cancel");
        host.request("POST", &path, &[VERSION, ("content-type", JSON)], body.to_string().as_bytes()).await
    };
    let other = cancel(json!({ "id": "other" })).await;
    assert_eq!(other.status, 400);
    assert_eq!(other.json()["error"]["details"][1]["fieldViolations"][0]["field"], "id");
    assert_eq!(cancel(json!({ "id": id })).await.status, 200);
    let again = cancel(json!({})).await;
    assert_eq!(
        again.json()["error"]["details"][0]["reason"],
        "TASK_NOT_CANCELABLE",
        "the id in the path is enough"
    );
}

#[tokio::test]
async fn the_limits_apply_to_http_json_too() {
    let host = Host::with(|config| config.limits.body = 4096, talaria_turns::Limits::default()).await;
    let body = json!({ "message": message(&"x".repeat(5000)) }).to_string();
    let answer =
        host.request("POST", "/message:send", &[VERSION, ("content-type", JSON)], body.as_bytes()).await;
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (413, &json!(413)));

    let limits = talaria_turns::Limits { turns: 1, ..talaria_turns::Limits::default() };
    let host = Host::with(|_| {}, limits).await;
    let wait =
        json!({ "message": message("wait"), "configuration": { "returnImmediately": true } }).to_string();
    assert_eq!(
        host.request("POST", "/message:send", &[VERSION, ("content-type", JSON)], wait.as_bytes())
            .await
            .status,
        200
    );
    host.next_waiting().await;
    for path in ["/message:send", "/message:stream"] {
        let body = json!({ "message": message("hi") }).to_string();
        let answer = host.request("POST", path, &[VERSION, ("content-type", JSON)], body.as_bytes()).await;
        assert_eq!((answer.status, answer.header("retry-after")), (429, Some("1")), "{path}");
        assert_eq!(answer.json()["error"]["status"], "RESOURCE_EXHAUSTED");
    }
}
