//! Connections are limited in number and in idle time, and HTTP/2 is served on the same port.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use talaria_turns::Limits;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::kit::{Host, message, patiently, read_answer};

#[tokio::test]
async fn one_connection_too_many_is_rejected() {
    let host = Host::with(|config| config.limits.connections = 1, Limits::default()).await;
    let mut first = host.connect().await;
    let request = b"GET /.well-known/agent-card.json HTTP/1.1\r\nhost: localhost\r\n\r\n";
    first.write_all(request).await.unwrap();
    assert_eq!(patiently(read_answer(&mut first, false)).await.status, 200);
    let mut second = host.connect().await;
    assert_eq!(patiently(read_answer(&mut second, false)).await.status, 429);
    first.write_all(request).await.unwrap();
    assert_eq!(patiently(read_answer(&mut first, false)).await.status, 200, "the first is kept alive");
}

#[tokio::test]
async fn a_silent_peer_is_disconnected() {
    let host =
        Host::with(|config| config.limits.header_timeout = Duration::from_millis(50), Limits::default())
            .await;
    // Nothing, the first bytes of either HTTP version, and half a request.
    for said in ["", "P", "PRI * HT", "POST / HTTP/1.1\r\nhost:"] {
        let mut stream = host.connect().await;
        stream.write_all(said.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        let _ = patiently(stream.read_to_end(&mut rest)).await;
        assert_eq!(rest, b"", "{said:?}");
    }
}

#[tokio::test]
async fn requests_left_after_the_grace_period_are_closed() {
    for h2 in [false, true] {
        let host =
            Host::with(|config| config.limits.grace = Duration::from_millis(50), Limits::default()).await;
        let mut request =
            http::Request::post(format!("http://{}/", host.address)).header("A2A-Version", "1.0");
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": { "message": message("wait") } });
        let io = TokioIo::new(host.connect().await);
        request = request.header("content-type", "application/json");
        let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
        let clients = tokio_util::task::TaskTracker::new();
        let cut = async {
            host.next_waiting().await;
            host.shutdown.cancel();
            host.tasks.close();
            patiently(host.tasks.wait()).await;
        };
        let (answer, ()) = if h2 {
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
            clients.spawn(connection);
            tokio::join!(patiently(sender.send_request(request)), cut)
        } else {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
            clients.spawn(connection);
            tokio::join!(patiently(sender.send_request(request)), cut)
        };
        assert!(answer.is_err(), "h2: {h2}");
    }
}

#[tokio::test]
async fn http_2_is_served_without_an_upgrade() {
    let host = Host::start().await;
    let io = TokioIo::new(host.connect().await);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    let clients = tokio_util::task::TaskTracker::new();
    clients.spawn(connection);
    let body =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": { "message": message("hi") } });
    let request = http::Request::post(format!("http://{}/", host.address)).header("A2A-Version", "1.0");
    let request = request.header("content-type", "application/json");
    let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
    let answer = patiently(sender.send_request(request)).await.unwrap();
    assert_eq!(answer.status(), 200);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["result"]["message"]["parts"][0]["text"], "echo: hi");

    let head = http::Request::head(format!("http://{}/.well-known/agent-card.json", host.address));
    let answer = patiently(sender.send_request(head.body(Full::default()).unwrap())).await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(answer.headers().contains_key("content-length"));
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "");
}

#[tokio::test]
async fn streams_share_one_http_2_connection() {
    let host = Host::start().await;
    let io = TokioIo::new(host.connect().await);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    let clients = tokio_util::task::TaskTracker::new();
    clients.spawn(connection);
    let mut open = async |text: &str| {
        let body = json!({ "message": message(text) }).to_string();
        let request = http::Request::post(format!("http://{}/message:stream", host.address))
            .header("content-type", "application/json");
        let request = request.header("A2A-Version", "1.0").body(Full::new(Bytes::from(body))).unwrap();
        patiently(sender.send_request(request)).await.unwrap()
    };
    let (silent, loud) = (open("wait").await, open("say").await);
    host.next_waiting().await;
    let loud = patiently(loud.into_body().collect()).await.unwrap().to_bytes();
    assert_eq!(
        loud.windows(4).filter(|window| window == b"\nid:").count(),
        10,
        "eleven frames: the first has no line before it"
    );
    host.script.go.add_permits(1);
    let silent = patiently(silent.into_body().collect()).await.unwrap().to_bytes();
    assert!(String::from_utf8(silent.to_vec()).unwrap().contains("TASK_STATE_COMPLETED"));
}
