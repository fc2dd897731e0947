//! The upstream: as fast as a server can be, so that it hides nothing, or one that never answers.

use std::convert::Infallible;
use std::net::SocketAddr;

use anyhow::Result;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What the upstream says; the load looks for [`SAID`] in what comes back.
const COMPLETION: &[u8] = br#"{"id":"chatcmpl-1","object":"chat.completion","created":1790000000,"model":"hermes-agent","choices":[{"index":0,"message":{"role":"assistant","content":"carried safely"},"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18}}"#;
pub(crate) const SAID: &str = "carried safely";

/// A running upstream; gone when dropped.
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    asked: watch::Receiver<usize>,
    _serving: JoinSet<()>,
}

impl Gateway {
    /// Answers at once.
    pub(crate) async fn fast() -> Result<Self> {
        Self::start(false).await
    }

    /// Takes turns and never answers them.
    pub(crate) async fn hanging() -> Result<Self> {
        Self::start(true).await
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Returns when that many turns have arrived.
    pub(crate) async fn asked(&mut self, turns: usize) -> Result<()> {
        self.asked.wait_for(|asked| *asked >= turns).await?;
        Ok(())
    }

    /// How many turns have arrived.
    pub(crate) fn turns(&self) -> usize {
        *self.asked.borrow()
    }

    async fn start(hangs: bool) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (counter, asked) = watch::channel(0);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                let counter = hangs.then(|| counter.clone());
                connections.spawn(async move {
                    let service = service_fn(|request| answer(request, counter.as_ref()));
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, asked, _serving: serving })
    }
}

async fn answer(
    request: Request<Incoming>,
    hangs: Option<&watch::Sender<usize>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let turn = request.method() == Method::POST;
    // Read, as any gateway would; what it says is the load's business.
    let _ = request.into_body().collect().await;
    if let (Some(counter), true) = (hangs, turn) {
        counter.send_modify(|asked| *asked += 1);
        std::future::pending::<()>().await;
    }
    let mut response = Response::new(Full::new(Bytes::from_static(COMPLETION)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}
