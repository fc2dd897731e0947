//! One connection of a client, and the request that it sends.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::gateway::SAID;

/// A connection that is kept; closed when dropped.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    address: SocketAddr,
    _driver: JoinSet<()>,
}

/// A prompt of about 1 KiB, which is what people write.
const SENTENCE: &str = "Tell me, in a few words, what the weather will be like in Athens tomorrow. ";

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            let _ = connection.await;
        });
        Ok(Self { sender, address, _driver: driver })
    }

    /// Sends one turn and reads its answer, which must be the upstream's.
    pub(crate) async fn turn(&mut self) -> Result<()> {
        let (status, body) = self.send(self.call("SendMessage", &message())?).await?;
        let answered =
            status == StatusCode::OK && body.windows(SAID.len()).any(|window| window == SAID.as_bytes());
        ensure!(answered, "{status}: {}", String::from_utf8_lossy(&body));
        Ok(())
    }

    /// Hands one turn in and does not wait for its answer.
    pub(crate) async fn hand_in(&mut self) -> Result<()> {
        let mut params = message();
        if let Some(params) = params.as_object_mut() {
            params.insert("configuration".into(), json!({ "returnImmediately": true }));
        }
        let (status, body) = self.send(self.call("SendMessage", &params)?).await?;
        let answer: Value = serde_json::from_slice(&body)?;
        ensure!(answer.pointer("/result/task/id").is_some(), "{status}: {answer}");
        Ok(())
    }

    /// Cancels a task.
    pub(crate) async fn cancel(&mut self, task: &str) -> Result<()> {
        let (status, body) = self.send(self.call("CancelTask", &json!({ "id": task }))?).await?;
        let answer: Value = serde_json::from_slice(&body)?;
        ensure!(answer.get("result").is_some(), "{status}: {answer}");
        Ok(())
    }

    /// Asks for the card, which is there once everything is.
    pub(crate) async fn card(&mut self) -> Result<()> {
        let request = Request::get("/.well-known/agent-card.json").header("host", self.address.to_string());
        let (status, _) = self.send(request.body(Full::default())?).await?;
        ensure!(status == StatusCode::OK, "the card: {status}");
        Ok(())
    }

    /// Asks the operator's server to load an executor again.
    pub(crate) async fn reload(&mut self, executor: &str, token: &str) -> Result<()> {
        let request = Request::post(format!("/executors/{executor}/reload"))
            .header("host", self.address.to_string())
            .header("authorization", format!("Bearer {token}"));
        let (status, body) = self.send(request.body(Full::default())?).await?;
        ensure!(status == StatusCode::OK, "{status}: {}", String::from_utf8_lossy(&body));
        Ok(())
    }

    fn call(&self, method: &str, params: &Value) -> Result<Request<Full<Bytes>>> {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let request = Request::post("/")
            .header("host", self.address.to_string())
            .header("content-type", "application/json")
            .header("a2a-version", "1.0");
        Ok(request.body(Full::new(Bytes::from(serde_json::to_vec(&body)?)))?)
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes)> {
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await.context("no answer")?;
        let status = response.status();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }
}

/// The parameters of a send: a message of its own.
pub(crate) fn message() -> Value {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    json!({ "message": { "messageId": format!("m{id}"), "role": "ROLE_USER", "parts": [{ "text": prompt() }] } })
}

pub(crate) fn prompt() -> String {
    SENTENCE.repeat(1024 / SENTENCE.len())
}
