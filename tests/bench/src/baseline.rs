//! The baseline: a native bridge without sandbox, store, policy or versions. It does for the same request one parse, one
//! pooled upstream call and one reply, on a hyper server.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

type Upstream = Client<HttpConnector, Full<Bytes>>;

/// Serves until it is killed.
pub(crate) async fn serve(listen: SocketAddr, gateway: SocketAddr) -> Result<()> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let upstream: Upstream = Client::builder(TokioExecutor::new()).build(connector);
    let completions: Uri = format!("http://{gateway}/v1/chat/completions").parse()?;
    let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        let _ = stream.set_nodelay(true);
        let (upstream, completions) = (upstream.clone(), completions.clone());
        connections.spawn(async move {
            let service = service_fn(|request| respond(request, &upstream, &completions));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn respond(
    request: Request<Incoming>,
    upstream: &Upstream,
    completions: &Uri,
) -> Result<Response<Full<Bytes>>> {
    // A readiness check.
    if request.method() != http::Method::POST {
        return Ok(Response::new(Full::default()));
    }
    let answer = turn(request, upstream, completions).await;
    let (status, body) = match answer {
        Ok(body) => (StatusCode::OK, body),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, json!({ "error": format!("{error:#}") })),
    };
    let mut response = Response::new(Full::new(Bytes::from(serde_json::to_vec(&body)?)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

async fn turn(request: Request<Incoming>, upstream: &Upstream, completions: &Uri) -> Result<Value> {
    let call: Value = serde_json::from_slice(&request.into_body().collect().await?.to_bytes())?;
    anyhow::ensure!(call.get("method").and_then(Value::as_str) == Some("SendMessage"), "no such method");
    let text = call.pointer("/params/message/parts/0/text").and_then(Value::as_str).context("no text")?;
    let body = json!({
        "model": "hermes-agent",
        "messages": [{ "role": "user", "content": text }],
        "stream": false,
    });
    let mut outgoing = Request::post(completions).body(Full::new(Bytes::from(serde_json::to_vec(&body)?)))?;
    outgoing.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let answer = upstream.request(outgoing).await?;
    anyhow::ensure!(answer.status().is_success(), "the upstream says {}", answer.status());
    let answer: Value = serde_json::from_slice(&answer.into_body().collect().await?.to_bytes())?;
    let said = answer.pointer("/choices/0/message/content").and_then(Value::as_str).context("no content")?;
    Ok(json!({
        "jsonrpc": "2.0",
        "id": call.get("id"),
        "result": { "message": { "messageId": "m1", "role": "ROLE_AGENT", "parts": [{ "text": said }] } },
    }))
}
