//! One connection of a client, and the request that it sends.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
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
        let (status, body) = self.send(send_message(self.address)?).await?;
        let answered =
            status == StatusCode::OK && body.windows(SAID.len()).any(|window| window == SAID.as_bytes());
        ensure!(answered, "{status}: {}", String::from_utf8_lossy(&body));
        Ok(())
    }

    /// Asks for the card, which is there once everything is.
    pub(crate) async fn card(&mut self) -> Result<()> {
        let request = Request::get("/.well-known/agent-card.json").header("host", self.address.to_string());
        let (status, _) = self.send(request.body(Full::default())?).await?;
        ensure!(status == StatusCode::OK, "the card: {status}");
        Ok(())
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes)> {
        let response = self.sender.send_request(request).await.context("no answer")?;
        let status = response.status();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }
}

fn send_message(address: SocketAddr) -> Result<Request<Full<Bytes>>> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let text = SENTENCE.repeat(1024 / SENTENCE.len());
    let body = serde_json::json!({
        "jsonrpc": "2.0",
        "id": id,
        "method": "SendMessage",
        "params": { "message": { "messageId": format!("m{id}"), "role": "ROLE_USER", "parts": [{ "text": text }] } },
    });
    let request = Request::post("/")
        .header("host", address.to_string())
        .header("content-type", "application/json")
        .header("a2a-version", "1.0");
    Ok(request.body(Full::new(Bytes::from(serde_json::to_vec(&body)?)))?)
}
