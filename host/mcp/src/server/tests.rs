//! Who may call, and what the server answers to everybody else.

use std::net::SocketAddr;

use async_trait::async_trait;
use serde_json::{Value, json};
use talaria_egress::{Bounds, Config, Egress, Request as Call, Response as Reply};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

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

/// The status of a request with these headers, sent as it is written.
async fn status(at: SocketAddr, headers: &[(&str, &str)]) -> u16 {
    let mut text = format!("POST {PATH} HTTP/1.1\r\ncontent-length: 0\r\nconnection: close\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    let mut stream = TcpStream::connect(at).await.unwrap();
    stream.write_all(format!("{text}\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_web_page_may_not_call_the_tools() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let serving = server().serve(listener, stop.clone());
    let calls = async {
        for host in
            ["evil.example", "evil.example:9100", "127.0.0.1.evil.example", "localhost.evil.example", ""]
        {
            assert_eq!(status(at, &[("host", host), BEARER, JSON]).await, 403, "{host}");
        }
        for host in ["localhost:9100", "127.0.0.1", "[::1]:9100", "LOCALHOST"] {
            let own = [("host", host), BEARER, JSON];
            assert_eq!(status(at, &own).await, 400, "{host}: it gets in, but sends no request");
            for page in
                [("origin", "https://evil.example"), ("origin", "null"), ("sec-fetch-site", "cross-site")]
            {
                assert_eq!(status(at, &[("host", host), page, BEARER, JSON]).await, 403, "{page:?}");
            }
        }
        stop.cancel();
    };
    tokio::join!(serving, calls);
}

#[tokio::test]
async fn a_body_that_the_host_has_no_memory_for_is_rejected() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}{PATH}", listener.local_addr().unwrap());
    let (stop, budget) = (CancellationToken::new(), Budget::new(1 << 20));
    let serving = server().with_budget(budget.clone()).serve(listener, stop.clone());
    let calls = async {
        let call = |arguments: Value| {
            let params = json!({ "name": "size", "arguments": arguments });
            json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string()
        };
        assert_eq!(post(&url, call(json!("x".repeat(2 << 20)))).await.status, 503, "the body");
        assert_eq!(post(&url, call(json!(vec![0; 50_000]))).await.status, 503, "100 KB become megabytes");
        assert_eq!(post(&url, call(json!("x".repeat(100 << 10)))).await.status, 200);
        assert_eq!(budget.used(), 0, "all is given back");
        stop.cancel();
    };
    tokio::join!(serving, calls);
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
