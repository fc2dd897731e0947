//! Who may call, and what the server answers to everybody else.

use async_trait::async_trait;
use serde_json::{Value, json};
use talaria_egress::{Bounds, Config, Egress, Request as Call, Response as Reply};

use super::*;
use crate::{Output, Tool};

/// One tool, which measures its arguments.
struct Scales;

#[async_trait]
impl Tools for Scales {
    async fn list(&self) -> Vec<Tool> {
        Vec::new()
    }

    async fn call(&self, name: &str, arguments: Value) -> Option<Output> {
        (name == "size").then(|| Output::text(arguments.to_string().len().to_string()))
    }
}

const TOKEN: &str = "token-of-the-agent";
const BEARER: (&str, &str) = ("authorization", "Bearer token-of-the-agent");
const JSON: (&str, &str) = ("content-type", "application/json");

fn server() -> Server {
    Server::new("it", TOKEN.into(), Arc::new(Scales))
}

/// The status with which a request is rejected by its head.
fn rejected(method: &str, path: &str, headers: &[(&str, &str)]) -> Option<u16> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (head, ()) = request.body(()).unwrap().into_parts();
    server().rejected(&head).map(|response| response.status().as_u16())
}

#[test]
fn only_a_client_with_the_token_may_call() {
    let host = ("host", "127.0.0.1:9100");
    assert_eq!(rejected("POST", PATH, &[host, BEARER, JSON]), None);
    let wrong = [
        "",
        "Bearer",
        "Bearer ",
        "Bearer token-of-the-agenT",
        "Basic token-of-the-agent",
        "token-of-the-agent",
    ];
    for authorization in wrong {
        let headers = [host, ("authorization", authorization), JSON];
        assert_eq!(rejected("POST", PATH, &headers), Some(401), "{authorization}");
    }
    assert_eq!(rejected("POST", PATH, &[host, JSON]), Some(401));
    assert_eq!(rejected("GET", PATH, &[host, BEARER]), Some(405));
    assert_eq!(rejected("DELETE", PATH, &[host, BEARER]), Some(405));
    assert_eq!(rejected("POST", "/", &[host, BEARER, JSON]), Some(404));
    assert_eq!(rejected("POST", PATH, &[host, BEARER]), Some(415));
}

#[test]
fn a_web_page_may_not_call_the_tools() {
    for host in [
        "evil.example",
        "evil.example:9100",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "",
        "10.0.0.1:9100",
    ] {
        assert_eq!(rejected("POST", PATH, &[("host", host), BEARER, JSON]), Some(403), "{host}");
    }
    for host in ["localhost:9100", "127.0.0.1", "[::1]:9100", "LOCALHOST"] {
        assert_eq!(rejected("POST", PATH, &[("host", host), BEARER, JSON]), None, "{host}");
        for origin in ["https://evil.example", "http://localhost:9100", "null"] {
            let headers = [("host", host), ("origin", origin), BEARER, JSON];
            assert_eq!(rejected("POST", PATH, &headers), Some(403), "{origin}");
        }
    }
}

async fn post(url: &str, body: String) -> Reply {
    let egress = Egress::new(Config::default());
    let headers = [BEARER, JSON].map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let call = Call { method: "POST".into(), url: url.into(), headers, body: body.into(), ..Call::default() };
    let bounds = Bounds { request_body: 32 << 20, ..Bounds::default() };
    egress.origin_client("test", &url.parse().unwrap()).with_bounds(bounds).fetch(call).await.unwrap()
}

#[tokio::test]
async fn large_arguments_reach_the_tool_and_larger_ones_are_rejected() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}{PATH}", listener.local_addr().unwrap());
    let stop = CancellationToken::new();
    let serving = server().serve(listener, stop.clone());
    let calls = async {
        let call = |bytes: usize| {
            let params = json!({ "name": "size", "arguments": { "x": "x".repeat(bytes) } });
            json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string()
        };
        let reply = post(&url, call(10 << 20)).await;
        let said: Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!((reply.status, &said["result"]["content"][0]["text"]), (200, &json!("10485768")));
        assert_eq!(post(&url, "nonsense".into()).await.status, 400);
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(post(&url, ready.to_string()).await.status, 202);
        assert_eq!(post(&url, call(17 << 20)).await.status, 413);
        stop.cancel();
    };
    tokio::join!(serving, calls);
}
