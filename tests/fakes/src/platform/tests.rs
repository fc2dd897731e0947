//! The peculiarities of the platform that the product must cope with.

use serde_json::{Value, json};
use talaria_egress::{Access, Config, Egress, Request};

use super::FakePlatform;
use crate::gateway::FakeGateway;
use crate::reply::Reply;

const LEAD: &str = "00000000-0000-4000-8000-000000000001";
const ANN: &str = "00000000-0000-4000-8000-000000000002";
const BEN: &str = "00000000-0000-4000-8000-000000000003";
const STRANGER: &str = "00000000-0000-4000-8000-000000000009";

/// A client of the platform with these headers.
async fn call(
    platform: &FakePlatform,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> (u16, Value) {
    let url = format!("{}{path}", platform.url());
    let patterns = vec![format!("{method} {}/*", platform.url()).parse().unwrap()];
    let request = Request {
        method: method.into(),
        url,
        headers: headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        body: if method == "GET" { String::new().into() } else { body.to_string().into() },
        ..Request::default()
    };
    let access = Access { patterns, ..Access::default() };
    let response = Egress::new(Config::default()).fetch(&access, request).await.unwrap();
    (response.status, serde_json::from_slice(&response.body).unwrap_or_default())
}

/// A call of a hosted workspace with its token.
async fn as_workspace(
    platform: &FakePlatform,
    id: &str,
    method: &str,
    path: &str,
    body: Value,
) -> (u16, Value) {
    let bearer = format!("Bearer {}", platform.token_of(id).unwrap());
    let headers = [("authorization", bearer.as_str()), ("x-workspace-id", id)];
    call(platform, method, path, &headers, &body).await
}

async fn register(platform: &FakePlatform, id: &str, bridge: &FakeGateway) {
    let url = format!("http://{}", bridge.address());
    let body = json!({ "id": id, "url": url, "agent_card": { "name": id } });
    assert_eq!(call(platform, "POST", "/registry/register", &[], &body).await.0, 200);
}

/// A platform with a lead, two members and a stranger, whose bridges all answer with this text.
async fn team(text: &str) -> (FakePlatform, FakeGateway) {
    let platform = FakePlatform::start().await;
    platform.host(LEAD, "Lead", None);
    platform.host(ANN, "Ann", Some(LEAD));
    platform.host(BEN, "Ben", Some(LEAD));
    platform.host(STRANGER, "Stranger", None);
    let parts = json!([{ "kind": "data", "data": {} }, { "kind": "text", "text": text }, { "kind": "text", "text": "more" }]);
    let bridge =
        FakeGateway::always(Reply::json(&json!({ "result": { "kind": "message", "parts": parts } }))).await;
    for id in [LEAD, ANN, BEN, STRANGER] {
        register(&platform, id, &bridge).await;
    }
    (platform, bridge)
}

async fn delegate(platform: &FakePlatform, to: &str, key: &str) -> (u16, Value) {
    let body = json!({ "target_id": to, "task": "look it up", "idempotency_key": key });
    as_workspace(platform, LEAD, "POST", &format!("/workspaces/{LEAD}/delegate"), body).await
}

async fn log(platform: &FakePlatform, query: &str) -> (u16, Value) {
    let path = format!("/workspaces/{LEAD}/activity?type=delegation{query}");
    as_workspace(platform, LEAD, "GET", &path, Value::Null).await
}

#[tokio::test]
async fn a_delegation_reaches_its_bridge_once_and_has_rows_for_request_and_end() {
    let text = "ä".repeat(400);
    let (platform, bridge) = team(&text).await;
    let (status, answer) = delegate(&platform, ANN, "k-1").await;
    assert_eq!(
        (status, &answer["status"], &answer["delegation_id"]),
        (202, &json!("delegated"), &json!("d-1"))
    );
    platform.ended_delegations(1).await;
    let (status, answer) = delegate(&platform, ANN, "k-1").await;
    assert_eq!(
        (status, &answer["idempotent_hit"], &answer["status"]),
        (200, &json!(true), &json!("completed"))
    );
    let sent = bridge.request().json();
    let message = &sent["params"]["message"];
    assert_eq!((&sent["method"], &sent["jsonrpc"]), (&json!("message/send"), &json!("2.0")));
    assert_eq!(
        (&message["messageId"], &message["metadata"]["delegation_id"]),
        (&json!("d-1"), &json!("d-1"))
    );
    assert_eq!(message["parts"], json!([{ "kind": "text", "text": "look it up" }]));
    let (_, rows) = log(&platform, "&since_secs=60").await;
    assert_eq!((&rows[0]["method"], &rows[1]["method"]), (&json!("delegate_result"), &json!("delegate")));
    assert_eq!((&rows[0]["response_body"]["text"], &rows[0]["status"]), (&json!(text), &json!("completed")));
    let path = format!("/workspaces/{LEAD}/delegations");
    let (_, list) = as_workspace(&platform, LEAD, "GET", &path, Value::Null).await;
    assert_eq!(list.as_array().unwrap().len(), 2);
    assert_eq!(list[0]["response_preview"].as_str().unwrap().len(), 300);
    assert_eq!((&list[1]["status"], &list[1]["delegation_id"]), (&json!("completed"), &json!("d-1")));
}

#[tokio::test]
async fn a_cursor_reads_forward_and_an_unknown_one_is_gone() {
    let (platform, _bridge) = team("found").await;
    delegate(&platform, ANN, "k-1").await;
    platform.ended_delegations(1).await;
    let (_, rows) = log(&platform, "").await;
    let oldest = rows[1]["id"].as_str().unwrap();
    let (_, rows) = log(&platform, &format!("&since_id={oldest}")).await;
    assert_eq!((rows.as_array().unwrap().len(), &rows[0]["method"]), (1, &json!("delegate_result")));
    assert_eq!(log(&platform, "&since_id=forgotten").await.0, 410);
    assert_eq!(log(&platform, "&since_secs=-1").await.0, 400);
}

#[tokio::test]
async fn a_busy_target_queues_and_its_row_is_rewritten_after_a_heartbeat() {
    let (platform, bridge) = team("found").await;
    platform.set_busy(ANN, true);
    delegate(&platform, ANN, "k-1").await;
    platform.ended_delegations(1).await;
    let (_, rows) = log(&platform, "").await;
    assert_eq!((&rows[0]["status"], &rows[0]["response_body"]["queued"]), (&json!("queued"), &json!(true)));
    assert!(bridge.requests().is_empty());
    platform.set_busy(ANN, false);
    let beat = json!({ "workspace_id": ANN });
    as_workspace(&platform, ANN, "POST", "/registry/heartbeat", beat).await;
    bridge.asked(1).await;
    let row = rows[0]["id"].clone();
    let rewritten = async {
        loop {
            let (_, rows) = log(&platform, "").await;
            if rows[0]["status"] == "completed" {
                return rows;
            }
        }
    };
    let rows = crate::soon("the answer", rewritten).await;
    assert_eq!((&rows[0]["id"], &rows[0]["response_body"]["text"]), (&row, &json!("found")), "in place");
    assert_eq!(rows[1]["status"], "queued", "the request does not hear of it");
}

#[tokio::test]
async fn a_polling_target_completes_with_a_receipt() {
    let (platform, bridge) = team("found").await;
    platform.let_poll(ANN);
    delegate(&platform, ANN, "k-1").await;
    platform.ended_delegations(1).await;
    let (_, rows) = log(&platform, "").await;
    let text = rows[0]["response_body"]["text"].as_str().unwrap();
    assert!(rows[0]["status"] == "completed" && text.contains("\"delivery_mode\":\"poll\""), "{rows}");
    assert!(bridge.requests().is_empty());
}

#[tokio::test]
async fn a_forbidden_target_fails_later_and_frees_its_key() {
    let (platform, bridge) = team("found").await;
    assert_eq!(delegate(&platform, STRANGER, "k-1").await.0, 202, "it is not checked at once");
    platform.ended_delegations(1).await;
    let (_, rows) = log(&platform, "").await;
    assert_eq!(rows[0]["status"], "failed");
    assert!(rows[0]["error_detail"].as_str().unwrap().starts_with("access denied"), "{rows}");
    let (status, again) = delegate(&platform, STRANGER, "k-1").await;
    assert_eq!((status, &again["delegation_id"]), (202, &json!("d-2")), "a new one");
    assert!(bridge.requests().is_empty());
    // Members reach each other, and the lead.
    for (from, to, expected) in [(ANN, BEN, 200), (ANN, LEAD, 200), (ANN, ANN, 200), (ANN, STRANGER, 403)] {
        let body = json!({ "method": "message/send", "params": {} });
        let path = format!("/workspaces/{to}/a2a");
        assert_eq!(as_workspace(&platform, from, "POST", &path, body).await.0, expected, "{from} {to}");
    }
    let names = |peers: &Value| -> Vec<String> {
        peers.as_array().unwrap().iter().map(|peer| peer["name"].as_str().unwrap().to_owned()).collect()
    };
    for (of, expected) in [(LEAD, vec!["Ann", "Ben"]), (ANN, vec!["Lead", "Ben"]), (STRANGER, vec![])] {
        let path = format!("/registry/{of}/peers");
        let (_, peers) = as_workspace(&platform, of, "GET", &path, Value::Null).await;
        assert_eq!(names(&peers), expected);
    }
}

#[tokio::test]
async fn a_target_that_is_down_is_tried_twice_and_then_fails() {
    let (platform, bridge) = team("found").await;
    drop(bridge);
    delegate(&platform, ANN, "k-1").await;
    platform.ended_delegations(1).await;
    let (_, rows) = log(&platform, "").await;
    assert_eq!(
        (&rows[0]["status"], &rows[0]["error_detail"]),
        (&json!("failed"), &json!("failed to reach workspace agent"))
    );
}

#[tokio::test]
async fn tokens_are_those_of_one_workspace() {
    let (platform, _bridge) = team("found").await;
    let bearer = |id: &str| format!("Bearer {}", platform.token_of(id).unwrap());
    let (lead, ann) = (bearer(LEAD), bearer(ANN));
    assert_ne!(lead, ann);
    let (delegate, peers) = (format!("/workspaces/{LEAD}/delegate"), format!("/registry/{LEAD}/peers"));
    let proxy = format!("/workspaces/{ANN}/a2a");
    let body = json!({ "target_id": ANN, "task": "x" });
    for (method, path, token, claimed, expected) in [
        ("GET", &peers, Some(&lead), LEAD, 200),
        ("GET", &peers, Some(&ann), LEAD, 401),
        ("GET", &peers, None, LEAD, 401),
        ("POST", &delegate, Some(&lead), LEAD, 202),
        ("POST", &delegate, Some(&lead), ANN, 401),
        ("POST", &delegate, Some(&ann), LEAD, 403),
        ("POST", &proxy, Some(&lead), LEAD, 200),
        ("POST", &proxy, Some(&lead), ANN, 401),
        ("POST", &proxy, Some(&lead), "system:it", 403),
        ("POST", &proxy, None, LEAD, 401),
    ] {
        let mut headers = vec![("x-workspace-id", claimed)];
        headers.extend(token.map(|token| ("authorization", token.as_str())));
        let (status, answer) = call(&platform, method, path, &headers, &body).await;
        assert_eq!(status, expected, "{method} {path} {claimed}: {answer}");
    }
    let to = |target: &str| {
        let body = json!({ "target_id": target, "task": "x" });
        as_workspace(&platform, LEAD, "POST", &delegate, body)
    };
    assert_eq!(to("Ann").await.0, 400, "a target is a UUID");
    let (status, answer) = to(LEAD).await;
    assert!(status == 400 && answer["hint"].is_string(), "{answer}");
    platform.deny("delegate");
    assert_eq!(to(ANN).await, (403, json!({ "error": "tool call failed" })));
}

#[tokio::test]
async fn memories_stay_in_their_namespaces() {
    let (platform, _bridge) = team("found").await;
    let path = |id: &str| format!("/workspaces/{id}/memories?q=ignored");
    for (id, scope, expected) in
        [(LEAD, "GLOBAL", 201), (ANN, "GLOBAL", 403), (ANN, "LOCAL", 201), (ANN, "TEAM", 201)]
    {
        let body = json!({ "content": format!("{scope} of {id}"), "scope": scope });
        assert_eq!(as_workspace(&platform, id, "POST", &path(id), body).await.0, expected, "{id} {scope}");
    }
    for (id, count) in [(ANN, 3), (BEN, 2), (STRANGER, 0)] {
        let (_, found) = as_workspace(&platform, id, "GET", &path(id), Value::Null).await;
        assert_eq!(found.as_array().unwrap().len(), count, "{id}: {found}");
    }
    platform.deny("memory");
    assert_eq!(as_workspace(&platform, ANN, "GET", &path(ANN), Value::Null).await.0, 503);
}
