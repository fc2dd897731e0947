//! A plugin that answers by callback, as fast as possible or never.
//!
//! It acknowledges a message and posts the answer to the message's callback URL, over kept connections.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
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
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;

use crate::gateway::SAID;

/// A running plugin. Dropping it closes its port.
pub(crate) struct Plugin {
    pub(crate) address: SocketAddr,
    asked: watch::Sender<usize>,
    _serving: JoinSet<()>,
}

struct Shared {
    answers: bool,
    asked: watch::Sender<usize>,
    client: Client<HttpConnector, Full<Bytes>>,
    answering: TaskTracker,
}

// === impl Plugin ===

impl Plugin {
    /// Answers at once.
    pub(crate) async fn fast() -> Result<Self> {
        Self::start(true).await
    }

    /// Accepts messages and never answers them.
    pub(crate) async fn hanging() -> Result<Self> {
        Self::start(false).await
    }

    pub(crate) fn inbound_url(&self) -> String {
        format!("http://{}/a2a/inbound", self.address)
    }

    /// Waits until that many messages have arrived.
    pub(crate) async fn asked(&self, messages: usize) -> Result<()> {
        self.asked.subscribe().wait_for(|asked| *asked >= messages).await?;
        Ok(())
    }

    /// The number of messages that have arrived.
    pub(crate) fn messages(&self) -> usize {
        *self.asked.borrow()
    }

    async fn start(answers: bool) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let asked = watch::Sender::new(0);
        let shared = Arc::new(Shared {
            answers,
            asked: asked.clone(),
            client: Client::builder(TokioExecutor::new()).build(connector),
            answering: TaskTracker::new(),
        });
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                let shared = Arc::clone(&shared);
                connections.spawn(async move {
                    let service = service_fn(|request| shared.take(request));
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, asked, _serving: serving })
    }
}

// === impl Shared ===

impl Shared {
    async fn take(self: &Arc<Self>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let is_message = request.method() == Method::POST;
        let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes);
        let message: Value =
            body.ok().and_then(|body| serde_json::from_slice(&body).ok()).unwrap_or_default();
        if is_message {
            self.asked.send_modify(|asked| *asked += 1);
            if self.answers {
                let shared = Arc::clone(self);
                self.answering.spawn(async move { shared.answer(&message).await });
            }
        }
        let mut response = Response::new(Full::from(r#"{"ok":true,"queued":true}"#));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(response)
    }

    /// Posts the answer. A lost callback leaves its turn waiting, which the load generator notices.
    async fn answer(&self, message: &Value) -> Option<()> {
        let reply = json!({
            "chat_id": message.get("chat_id"),
            "content": SAID,
            "reply_to": message.get("message_id"),
            "metadata": { "notify": true },
        });
        let url = message.get("callback_url")?.as_str()?;
        let request = Request::post(url).header(CONTENT_TYPE, "application/json");
        let answer = self.client.request(request.body(Full::from(reply.to_string())).ok()?).await.ok()?;
        answer.into_body().collect().await.ok().map(drop)
    }
}
