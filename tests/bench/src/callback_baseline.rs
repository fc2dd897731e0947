//! The baseline of a callback round trip: a native bridge that keeps the waiting turns in a map, like the Python bridge,
//! and does nothing else. One server takes both turns and callbacks.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

const REPLY: &str = "/a2a/reply";

struct Native {
    client: Client<HttpConnector, Full<Bytes>>,
    inbound: String,
    reply_url: String,
    next: AtomicU64,
    waiting: Mutex<HashMap<String, oneshot::Sender<String>>>,
}

/// Serves until it is killed.
pub(crate) async fn serve(listen: SocketAddr, plugin: SocketAddr) -> Result<()> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let native = Arc::new(Native {
        client: Client::builder(TokioExecutor::new()).build(connector),
        inbound: format!("http://{plugin}/a2a/inbound"),
        reply_url: format!("http://{listen}{REPLY}"),
        next: AtomicU64::new(0),
        waiting: Mutex::default(),
    });
    let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        let _ = stream.set_nodelay(true);
        let native = Arc::clone(&native);
        connections.spawn(async move {
            let service = service_fn(|request| native.respond(request));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

impl Native {
    async fn respond(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>> {
        // A readiness check.
        if request.method() != Method::POST {
            return Ok(Response::new(Full::default()));
        }
        let is_reply = request.uri().path() == REPLY;
        let body: Value = serde_json::from_slice(&request.into_body().collect().await?.to_bytes())?;
        let answer = if is_reply { self.reply(&body)? } else { self.turn(&body).await? };
        let mut response = Response::new(Full::new(Bytes::from(serde_json::to_vec(&answer)?)));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(response)
    }

    fn reply(&self, body: &Value) -> Result<Value> {
        let to = body.get("reply_to").and_then(Value::as_str).context("no reply_to")?;
        let said = body.get("content").and_then(Value::as_str).context("no content")?;
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(to);
        let _ = waiting.context("nobody waits")?.send(said.to_owned());
        Ok(json!({ "ok": true }))
    }

    async fn turn(&self, call: &Value) -> Result<Value> {
        let text = call.pointer("/params/message/parts/0/text").and_then(Value::as_str).context("no text")?;
        let id = self.next.fetch_add(1, Ordering::Relaxed).to_string();
        let message = json!({
            "chat_id": id, "message_id": id, "content": text, "callback_url": self.reply_url,
        });
        let (answer, answered) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(id, answer);
        let request = Request::post(&self.inbound).header(CONTENT_TYPE, "application/json");
        let taken = self.client.request(request.body(Full::from(message.to_string()))?).await?;
        anyhow::ensure!(taken.status().is_success(), "the plugin says {}", taken.status());
        taken.into_body().collect().await?;
        let said = answered.await?;
        Ok(json!({
            "jsonrpc": "2.0",
            "id": call.get("id"),
            "result": { "message": { "messageId": "m1", "role": "ROLE_AGENT", "parts": [{ "text": said }] } },
        }))
    }
}
