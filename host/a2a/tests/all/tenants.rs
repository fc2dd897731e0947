//! Tenants: every path of 1.0 exists below a tenant, which is opaque and must be the same in path and body.

use serde_json::{Value, json};

use crate::kit::{Answer, Host, message};
use crate::sse::Sse;

const VERSION: (&str, &str) = ("A2A-Version", "1.0");
const JSON: (&str, &str) = ("content-type", "application/json");

async fn send(host: &Host, path: &str, tenant: Option<&str>) -> Answer {
    let body = json!({ "tenant": tenant, "message": message("tenant") });
    host.request("POST", path, &[VERSION, JSON], body.to_string().as_bytes()).await
}

#[tokio::test]
async fn the_turn_gets_the_tenant_from_path_or_body() {
    let host = Host::start().await;
    for (path, tenant, received) in [
        ("/message:send", None, "none"),
        ("/message:send", Some("acme"), "acme"),
        ("/acme/message:send", None, "acme"),
        ("/acme/message:send", Some("acme"), "acme"),
        ("/acme/message:send", Some(""), "acme"),
        ("/a%20%C3%BC/message:send", None, "a ü"),
    ] {
        let sent = send(&host, path, tenant).await.json();
        assert_eq!(sent["message"]["parts"][0]["text"], received, "{path} {tenant:?}: {sent}");
    }
    let params = json!({ "tenant": "acme", "message": message("tenant") });
    let sent = host.call("SendMessage", &params).await;
    assert_eq!(sent["result"]["message"]["parts"][0]["text"], "acme");
    let mut forged = params;
    forged["tenant"] = Value::Null;
    forged["message"] = message("tenant");
    forged["metadata"] = json!({ "talaria/tenant": "acme" });
    let sent = host.call("SendMessage", &forged).await;
    assert_eq!(
        sent["result"]["message"]["parts"][0]["text"], "none",
        "the caller's metadata cannot set the tenant"
    );
}

#[tokio::test]
async fn path_and_body_must_agree() {
    let host = Host::start().await;
    for (tenant, status) in [(json!("other"), 400), (json!(7), 400), (json!({}), 400)] {
        let body = json!({ "tenant": tenant, "message": message("hi") }).to_string();
        let answer = host.request("POST", "/acme/message:send", &[VERSION, JSON], body.as_bytes()).await;
        assert_eq!(answer.status, status, "{tenant}");
        assert_eq!(answer.json()["error"]["details"][1]["fieldViolations"][0]["field"], "tenant");
    }
    let answer = host.request("GET", "/acme/tasks?tenant=other", &[VERSION], b"").await;
    assert_eq!(answer.status, 400);
    assert_eq!(host.made(), 0);
}

#[tokio::test]
async fn every_path_exists_below_a_tenant() {
    let host = Host::start().await;
    let body = json!({ "message": message("ask") }).to_string();
    let asked = host.request("POST", "/acme/message:send", &[VERSION, JSON], body.as_bytes()).await.json();
    let id = asked["task"]["id"].as_str().unwrap();
    for path in [format!("/acme/tasks/{id}"), "/acme/tasks".into()] {
        let (below, plain) = (
            host.request("GET", &path, &[VERSION], b"").await,
            host.request("GET", path.strip_prefix("/acme").unwrap(), &[VERSION], b"").await,
        );
        assert_eq!((below.status, below.json()), (200, plain.json()), "{path}");
    }
    let path = format!("/acme/tasks/{id}/pushNotificationConfigs");
    assert_eq!(host.request("GET", &path, &[VERSION], b"").await.status, 400);
    for method in ["GET", "POST"] {
        let path = format!("/acme/tasks/{id}:subscribe");
        assert!(Sse::open(&host, method, &path, &[VERSION], b"").await.is_ok(), "{method}");
    }
    let body = json!({ "message": message("hi") }).to_string();
    let mut stream = Sse::open(&host, "POST", "/acme/message:stream", &[VERSION, JSON], body.as_bytes())
        .await
        .ok()
        .unwrap();
    assert_eq!(stream.rest().await.len(), 4);
    let cancelled = host.request("POST", &format!("/acme/tasks/{id}:cancel"), &[VERSION], b"").await;
    assert_eq!(cancelled.json()["status"]["state"], "TASK_STATE_CANCELED");
}
