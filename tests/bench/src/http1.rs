//! One connection of the load generator, and the requests that it sends.
//!
//! The measured loops use this bare connection and not `talaria-client`, whose pool, grants and JSON views would add to
//! every measured turn and compete with the servers for the cores. Set-up and checks outside of the measured loops use
//! the client: see [`client`].

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderValue};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use talaria_client::{Agent, AgentOptions, Client, Protocol};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::gateway::SAID;

/// A connection that is kept open until it is dropped.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    address: SocketAddr,
    _driver: JoinSet<()>,
}

/// The sentence of which a prompt of about 1 KiB is made; that is what people write.
const SENTENCE: &str = "Tell me, in a few words, what the weather will be like in Athens tomorrow. ";

/// A request of the load generator, each with an answer that is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    /// A message with the usual prompt, whose answer is the upstream's text.
    Prompt,
    /// A message with a blank text, which the guest answers without a call.
    Blank,
    /// The usual prompt as a chat completion, with [`KEY`].
    Completion,
}

/// The key of a peer that wants one.
pub(crate) const KEY: &str = "sk-of-the-benchmark-4417";
/// The guest's answer to a blank text.
const NOTHING_TO_DO: &str = "(empty prompt";

// === impl Connection ===

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

    /// Sends a request and reads the answer, which must contain the expected text.
    pub(crate) async fn ask(&mut self, ask: Ask) -> Result<()> {
        let request = match ask {
            Ask::Prompt => self.call("SendMessage", &message())?,
            Ask::Blank => self.call("SendMessage", &message_of(" "))?,
            Ask::Completion => {
                let mut request = self.post("/v1/chat/completions", &completion(false))?;
                let key = HeaderValue::try_from(format!("Bearer {KEY}"))?;
                request.headers_mut().insert(AUTHORIZATION, key);
                request
            }
        };
        let expected = if ask == Ask::Blank { NOTHING_TO_DO } else { SAID };
        let (status, body) = self.send(request).await?;
        let answered = status == StatusCode::OK
            && body.windows(expected.len()).any(|window| window == expected.as_bytes());
        ensure!(answered, "{status}: {}", String::from_utf8_lossy(&body));
        Ok(())
    }

    /// Fetches a page, which must exist.
    pub(crate) async fn get(&mut self, path: &str) -> Result<()> {
        let request = Request::get(path).header("host", self.address.to_string());
        let (status, _) = self.send(request.body(Full::default())?).await?;
        ensure!(status == StatusCode::OK, "{path}: {status}");
        Ok(())
    }

    /// Tells the admin server to reload an executor.
    pub(crate) async fn reload(&mut self, executor: &str, token: &str) -> Result<()> {
        let request = Request::post(format!("/executors/{executor}/reload"))
            .header("host", self.address.to_string())
            .header("authorization", format!("Bearer {token}"));
        let (status, body) = self.send(request.body(Full::default())?).await?;
        ensure!(status == StatusCode::OK, "{status}: {}", String::from_utf8_lossy(&body));
        Ok(())
    }

    fn call(&self, method: &str, params: &Value) -> Result<Request<Full<Bytes>>> {
        self.post("/", &json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }))
    }

    fn post(&self, path: &str, body: &Value) -> Result<Request<Full<Bytes>>> {
        let request = Request::post(path)
            .header("host", self.address.to_string())
            .header("content-type", "application/json")
            .header("a2a-version", "1.0");
        Ok(request.body(Full::new(Bytes::from(serde_json::to_vec(body)?)))?)
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes)> {
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await.context("no answer")?;
        let status = response.status();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }
}

/// A client of the server at an address, for set-up and checks.
pub(crate) fn client(address: SocketAddr) -> Result<Client> {
    let url = format!("http://{address}");
    Ok(Agent::new(AgentOptions { url, token: None, timeout: Duration::from_secs(60) })?
        .direct(Protocol::V1_0))
}

/// The parameters of a send with the usual prompt.
pub(crate) fn message() -> Value {
    message_of(&prompt())
}

/// The parameters of a send, with a new message id.
fn message_of(text: &str) -> Value {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    json!({ "message": { "messageId": format!("m{id}"), "role": "ROLE_USER", "parts": [{ "text": text }] } })
}

/// The usual prompt as a chat completion, which is what the bridge sends to the upstream.
pub(crate) fn completion(stream: bool) -> Value {
    json!({
        "model": "hermes-agent",
        "messages": [{ "role": "user", "content": prompt() }],
        "stream": stream,
    })
}

/// The prompt of every turn.
pub(crate) fn prompt() -> String {
    SENTENCE.repeat(1024 / SENTENCE.len())
}
