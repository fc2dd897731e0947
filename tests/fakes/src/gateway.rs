//! A fake gateway: an HTTP/1.1 server on loopback that plays a script.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use crate::port::free_port;
use crate::reply::{self, Body, Kind, Reply};
use crate::soon;

/// A scripted gateway. Dropping it closes its port and all its connections.
pub struct FakeGateway {
    address: SocketAddr,
    seen: watch::Sender<Seen>,
    _accepting: JoinSet<()>,
}

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// The method.
    pub method: String,
    /// The path, with the query.
    pub path: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

#[derive(Debug, Default)]
struct Seen {
    requests: Vec<Recorded>,
    probes: usize,
    open: usize,
    keeps_nothing: bool,
    /// The key that every request but a health check must have.
    key: Option<String>,
}

/// The header that names a session, in requests and responses.
const SESSION: &str = "x-hermes-session-id";

type Script = dyn Fn(&Recorded) -> Reply + Send + Sync;

// === impl FakeGateway ===

impl FakeGateway {
    /// Answers each request with the result of a function.
    pub async fn start(script: impl Fn(&Recorded) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_at(&format!("127.0.0.1:{}", free_port()), script).await
    }

    /// Starts at a known address, as soon as that is free.
    pub async fn start_at(
        address: &str,
        script: impl Fn(&Recorded) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let bound = soon("a free port on loopback", async {
            loop {
                match TcpListener::bind(address).await {
                    Err(error) if error.kind() == ErrorKind::AddrInUse => tokio::task::yield_now().await,
                    bound => return bound,
                }
            }
        });
        let listener = bound.await.expect("a port on loopback");
        let address = listener.local_addr().unwrap();
        let seen = watch::Sender::default();
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, seen.clone(), Arc::new(script)));
        Self { address, seen, _accepting: accepting }
    }

    /// Answers every request with the same reply.
    pub async fn always(reply: impl Into<Reply>) -> Self {
        let reply = reply.into();
        Self::start(move |_| reply.clone()).await
    }

    /// Answers with these replies in order, and then with a 500 that says that the script is over.
    pub async fn script(replies: impl IntoIterator<Item = Reply>) -> Self {
        let replies: Mutex<VecDeque<Reply>> = Mutex::new(replies.into_iter().collect());
        Self::start(move |_| {
            let next = replies.lock().unwrap().pop_front();
            next.unwrap_or_else(|| Reply::status(500, "text/plain", "the script is over"))
        })
        .await
    }

    /// The base URL for clients: `http://127.0.0.1:PORT/v1`.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The requests so far, without health checks.
    #[must_use]
    pub fn requests(&self) -> Vec<Recorded> {
        self.seen.borrow().requests.clone()
    }

    /// The only request.
    ///
    /// # Panics
    /// If there was no request, or more than one.
    #[must_use]
    pub fn request(&self) -> Recorded {
        let requests = self.requests();
        let [request] = requests.as_slice() else { panic!("{} requests instead of one", requests.len()) };
        request.clone()
    }

    /// Rejects every request without this key with 401 from now on, but for health checks.
    pub fn want_key(&self, key: &str) {
        self.seen.send_modify(|seen| seen.key = Some(key.to_owned()));
    }

    /// Stops keeping sessions, like a gateway other than hermes-agent.
    pub fn keep_no_sessions(&self) {
        self.seen.send_modify(|seen| seen.keeps_nothing = true);
    }

    /// Resumes keeping sessions.
    pub fn keep_sessions(&self) {
        self.seen.send_modify(|seen| seen.keeps_nothing = false);
    }

    /// The number of health checks.
    #[must_use]
    pub fn probes(&self) -> usize {
        self.seen.borrow().probes
    }

    /// The number of open connections, idle ones included.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.seen.borrow().open
    }

    /// Waits until that many requests have arrived.
    pub async fn asked(&self, requests: usize) {
        let mut seen = self.seen.subscribe();
        let wanted = seen.wait_for(|seen| seen.requests.len() >= requests);
        soon("the gateway was not asked", wanted).await.expect("the gateway is up");
    }

    /// Waits until every connection is closed.
    pub async fn let_go(&self) {
        let mut seen = self.seen.subscribe();
        let wanted = seen.wait_for(|seen| seen.open == 0);
        soon("a connection to the gateway is still open", wanted).await.expect("the gateway is up");
    }
}

// === impl Recorded ===

impl Recorded {
    /// The body as JSON.
    ///
    /// # Panics
    /// If it is not JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a body of JSON")
    }

    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("a header of ASCII"))
    }
}

// === serving ===

/// Counts a connection for as long as it is open, however it ends.
struct Open(watch::Sender<Seen>);

impl Open {
    fn new(seen: watch::Sender<Seen>) -> Self {
        seen.send_modify(|seen| seen.open += 1);
        Self(seen)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.send_modify(|seen| seen.open -= 1);
    }
}

async fn accept(listener: TcpListener, seen: watch::Sender<Seen>, script: Arc<Script>) {
    // Dropping the set closes all connections.
    let mut serving = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let open = Open::new(seen.clone());
        serving.spawn(serve(stream, open, Arc::clone(&script)));
        while serving.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, open: Open, script: Arc<Script>) {
    let (to_write, raw) = oneshot::channel();
    let to_write = Arc::new(Mutex::new(Some(to_write)));
    let service = service_fn(|request| answer(request, &open.0, &script, Arc::clone(&to_write)));
    let mut connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let raw = tokio::select! {
        _ = &mut connection => return,
        Ok(raw) = raw => raw,
    };
    // The reply is not HTTP, so it is written to the bare connection.
    let mut stream = connection.into_parts().io.into_inner();
    let _ = stream.write_all(&raw).await;
    let _ = stream.shutdown().await;
}

async fn answer(
    request: Request<Incoming>,
    seen: &watch::Sender<Seen>,
    script: &Arc<Script>,
    raw: Arc<Mutex<Option<oneshot::Sender<Bytes>>>>,
) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    if matches!(head.uri.path(), "/health" | "/v1/health") {
        seen.send_modify(|seen| seen.probes += 1);
        let healthy = match seen.borrow().keeps_nothing {
            true => json!({ "status": "ok" }),
            false => json!({ "status": "ok", "platform": "hermes-agent", "version": "0.19.0" }),
        };
        return Ok(whole(Reply::json(&healthy)).await);
    }
    let bearer = head.headers.get("authorization").and_then(|value| value.to_str().ok());
    let wanted = seen.borrow().key.clone();
    if wanted.as_ref().is_some_and(|key| bearer != Some(&format!("Bearer {key}"))) {
        let error = json!({ "error": { "message": "Invalid API key", "code": "invalid_api_key" } });
        return Ok(whole(Reply::status(401, "application/json", error.to_string())).await);
    }
    // The second half of a probe without a key, after the health check. The scripts are about turns.
    let is_probe = seen.borrow().probes > 0 && bearer.is_none() && head.uri.path() == "/v1/models";
    if wanted.is_none() && is_probe {
        return Ok(whole(Reply::json(&json!({ "object": "list", "data": [] }))).await);
    }
    let Ok(body) = body.collect().await else { return std::future::pending().await };
    let request = Recorded {
        method: head.method.to_string(),
        path: head.uri.path_and_query().map_or_else(String::new, ToString::to_string),
        headers: head.headers,
        body: body.to_bytes(),
    };
    let reply = script(&request);
    // Like the real gateway, name the session of the request unless the script names another.
    let session = request.headers.get(SESSION).filter(|_| !seen.borrow().keeps_nothing).cloned();
    seen.send_modify(|seen| seen.requests.push(request));
    if let Kind::Raw(bytes) = &reply.0 {
        let _ = raw.lock().unwrap().take().map(|raw| raw.send(bytes.clone()));
    }
    let mut response = whole(reply).await;
    if let Some(session) = session {
        response.headers_mut().entry(SESSION).or_insert(session);
    }
    Ok(response)
}

async fn whole(mut reply: Reply) -> Response<Body> {
    loop {
        match reply.0 {
            Kind::Response { status, headers, body } => return reply::response(status, &headers, body),
            Kind::Hang | Kind::Raw(_) => return std::future::pending().await,
            Kind::Later(later) => {
                let decided = later.lock().unwrap().take();
                let Some(decided) = decided else { return std::future::pending().await };
                let Ok(decided) = decided.await else { return std::future::pending().await };
                reply = decided;
            }
        }
    }
}
