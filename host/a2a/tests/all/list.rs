//! Lists of tasks: newest first, paged, filtered, and limited to the caller's own.

use secrecy::SecretString;
use serde_json::{Value, json};
use talaria_a2a::Token;
use talaria_turns::Limits;

use crate::kit::{Host, message};

const VERSION: (&str, &str) = ("A2A-Version", "1.0");

/// Lists over both bindings, which must give the same result.
async fn list(host: &Host, query: &[(&str, &str)]) -> Value {
    let params: Value = query.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    let params = match params {
        Value::Object(mut members) => {
            if let Some(flag) = members.get_mut("includeArtifacts") {
                *flag = json!(*flag == "true");
            }
            Value::Object(members)
        }
        other => other,
    };
    let rpc = host.call("ListTasks", &params).await["result"].clone();
    let query: Vec<_> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let rest = host.request("GET", &format!("/tasks?{}", query.join("&")), &[VERSION], b"").await;
    assert_eq!(rest.status, 200, "{rest:?}");
    assert_eq!(rest.json(), rpc);
    rpc
}

fn ids(page: &Value) -> Vec<String> {
    page["tasks"].as_array().unwrap().iter().map(|task| task["id"].as_str().unwrap().to_owned()).collect()
}

async fn send(host: &Host, text: &str, context: &str) -> String {
    let mut message = message(text);
    message["contextId"] = json!(context);
    let sent = host.call("SendMessage", &json!({ "message": message })).await["result"].clone();
    if let Some(id) = sent["task"]["id"].as_str() {
        return id.to_owned();
    }
    // A message does not name its task, which is the newest of its context.
    let newest =
        host.call("ListTasks", &json!({ "contextId": context, "pageSize": 1 })).await["result"].clone();
    newest["tasks"][0]["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn pages_hold_every_task_once_newest_first() {
    let host = Host::start().await;
    let empty = list(&host, &[]).await;
    assert_eq!(empty, json!({ "tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0 }));
    let mut sent = Vec::new();
    for nth in 0..7 {
        sent.push(send(&host, &format!("hello {nth}"), "c").await);
    }
    let all = list(&host, &[]).await;
    let mut listed = ids(&all);
    assert_eq!((&all["totalSize"], &all["nextPageToken"]), (&json!(7), &json!("")));
    let times: Vec<_> = all["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| task["status"]["timestamp"].clone().to_string())
        .collect();
    assert!(times.is_sorted_by(|one, other| one >= other), "{times:?}");
    let mut paged = Vec::new();
    let mut token = String::new();
    loop {
        let page = list(&host, &[("pageSize", "3"), ("pageToken", &token)]).await;
        assert_eq!((&page["pageSize"], &page["totalSize"]), (&json!(3), &json!(7)));
        paged.extend(ids(&page));
        token = page["nextPageToken"].as_str().unwrap().to_owned();
        if token.is_empty() {
            break;
        }
        assert!(token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)), "{token}");
    }
    assert_eq!(paged, listed, "the pages together are the list");
    listed.sort();
    sent.sort();
    assert_eq!(listed, sent);
}

#[tokio::test]
async fn filters_combine() {
    let host = Host::start().await;
    let done = send(&host, "hello", "a").await;
    let asks = send(&host, "ask", "a").await;
    let other = send(&host, "ask", "b").await;
    assert_eq!(ids(&list(&host, &[("contextId", "a")]).await).len(), 2);
    assert_eq!(ids(&list(&host, &[("status", "TASK_STATE_COMPLETED")]).await), [&*done]);
    assert_eq!(
        ids(&list(&host, &[("status", "TASK_STATE_INPUT_REQUIRED"), ("contextId", "a")]).await),
        [asks]
    );
    assert_eq!(ids(&list(&host, &[("context_id", "b"), ("status", "6")]).await), [other]);
    assert_eq!(ids(&list(&host, &[("status", "TASK_STATE_FAILED")]).await), Vec::<String>::new());
    assert_eq!(ids(&list(&host, &[("status", "TASK_STATE_UNSPECIFIED"), ("contextId", "")]).await).len(), 3);

    let task = host.call("GetTask", &json!({ "id": done })).await["result"].clone();
    let at = task["status"]["timestamp"].as_str().unwrap();
    assert!(
        ids(&list(&host, &[("statusTimestampAfter", at)]).await).contains(&done),
        "the bound is inclusive"
    );
    let page = list(&host, &[("statusTimestampAfter", "2999-01-01T00:00:00Z")]).await;
    assert_eq!((ids(&page).len(), &page["totalSize"]), (0, &json!(0)));
    let path = "/tasks?statusTimestampAfter=1999-01-01T00:00:00%2B02:00";
    assert_eq!(ids(&host.request("GET", path, &[VERSION], b"").await.json()).len(), 3);
}

#[tokio::test]
async fn artifacts_and_history_are_shown_as_requested() {
    let host = Host::start().await;
    send(&host, "file please", "c").await;
    let first = |page: Value| page["tasks"][0].clone();
    let plain = first(list(&host, &[]).await);
    assert!(plain.get("artifacts").is_none(), "{plain}");
    assert_eq!(plain["history"].as_array().unwrap().len(), 1);
    assert!(first(list(&host, &[("includeArtifacts", "false")]).await).get("artifacts").is_none());
    assert!(first(list(&host, &[("includeArtifacts", "true")]).await)["artifacts"].is_array());
    assert!(first(list(&host, &[("historyLength", "0")]).await).get("history").is_none());
}

#[tokio::test]
async fn rejects_invalid_parameters_with_their_field() {
    let host = Host::start().await;
    send(&host, "hello", "c").await;
    let huge = "x".repeat(10_000);
    for (name, value) in [
        ("pageSize", "0"),
        ("pageSize", "101"),
        ("pageSize", "-1"),
        ("pageSize", "many"),
        ("pageToken", "nonsense"),
        ("pageToken", "MTIuMw=="),
        ("pageToken", &huge),
        ("historyLength", "-1"),
        ("historyLength", "4294967296"),
        ("status", "WORKING"),
        ("status", "99"),
        ("statusTimestampAfter", "yesterday"),
        ("includeArtifacts", "perhaps"),
        ("contextId", &huge),
    ] {
        let answer = host.call_as(&[], "ListTasks", &json!({ name: value })).await.json();
        assert_eq!(answer["error"]["code"], -32602, "{name}={value}");
        assert_eq!(answer["error"]["data"][1]["fieldViolations"][0]["field"], name, "{answer}");
        let answer = host.request("GET", &format!("/tasks?{name}={value}"), &[VERSION], b"").await;
        assert_eq!(answer.status, 400, "{name}={value}");
        assert_eq!(answer.json()["error"]["details"][1]["fieldViolations"][0]["field"], name, "{answer:?}");
    }
}

#[tokio::test]
async fn a_caller_sees_only_its_own_tasks() {
    let token = |name: &str, secret: &str| Token::new(name, SecretString::from(secret)).unwrap();
    let host =
        Host::with(|config| config.tokens = vec![token("a", "one"), token("b", "two")], Limits::default())
            .await;
    let (one, two) = (("authorization", "Bearer one"), ("authorization", "Bearer two"));
    host.call_as(&[one], "SendMessage", &json!({ "message": message("hello") })).await;
    let count =
        async |who| host.call_as(&[who], "ListTasks", &json!({})).await.json()["result"]["totalSize"].clone();
    assert_eq!((count(one).await, count(two).await), (json!(1), json!(0)));
    let page = host.request("GET", "/tasks", &[two, VERSION], b"").await.json();
    assert_eq!(page["tasks"], json!([]));
    assert_eq!(host.request("GET", "/tasks", &[VERSION], b"").await.status, 401);
}
