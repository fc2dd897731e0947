//! The protocol over HTTP: one `POST` for each message, answered with a JSON document or with a stream of events.
//!
//! A session is opened by the first request that needs one. If the server has forgotten it, the request is sent once more in
//! a new one: a server that does not know a session has not looked at the request. No other request is sent twice, because
//! a tool may have been run.
//!
//! Bounds: one deadline for everything that a request takes, its session included; the bytes of an answer, whether document
//! or stream; the requests that a server may make of us within one answer. Requests of the server other than `ping` are
//! refused, since nothing is offered to it. The stream that a `GET` opens is not used: nothing that a server says on its own
//! is needed but `list_changed`, which the next refresh finds as well, and a connection for each server would be held for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use talaria_egress::{Error, Exchange, OriginClient, Request};
use tokio::sync::{Mutex, Notify, mpsc};
use tokio::time::timeout;
use tracing::debug;

use super::catalogue::{Catalogue, Reader};
use super::fault::Fault;
use super::message::{self, Message, Refused};
use super::text::line;
use crate::rpc::VERSIONS;

/// The most bytes of an answer. 4 MiB: sixteen times the longest result, since a result that is cut has arrived whole.
pub(super) const ANSWER: usize = 4 << 20;
/// Bytes that are read of an answer that reports an error.
const ERROR_BODY: usize = 16 << 10;
/// Requests of the server that are answered within one answer; further ones are ignored.
const REQUESTS: usize = 16;
/// The longest wait for the acknowledgement of a notification, or of the end of a session.
const NOTICE: Duration = Duration::from_secs(2);
/// The longest id of a session, in bytes. Larger than any token that stands for one.
const SESSION_ID: usize = 1 << 10;

const METHOD_NOT_FOUND: i32 = -32_601;

/// A server, and the session with it.
pub(super) struct Connection {
    client: OriginClient,
    url: String,
    timeout: Duration,
    session: Mutex<Option<Arc<Session>>>,
    next_id: AtomicU64,
    /// The server says that its list of tools has changed.
    pub(super) list_changed: Notify,
    /// Calls that nobody waits for any more.
    abandoned: mpsc::Sender<Abandoned>,
}

/// What `initialize` agreed on.
#[derive(Debug)]
pub(super) struct Session {
    id: Option<String>,
    version: String,
}

/// A call whose caller is gone.
pub(super) struct Abandoned {
    session: Arc<Session>,
    id: u64,
}

/// Reports a call that is dropped before its answer.
struct UnderWay<'a> {
    connection: &'a Connection,
    session: &'a Arc<Session>,
    id: u64,
    is_over: bool,
}

/// What came of a request.
enum Sent {
    Answered(Result<Value, Refused>),
    /// The server does not know the session.
    SessionGone(Fault),
}

/// What a server answers to a request: its result, or its error.
pub(super) type Answered = Result<Result<Value, Refused>, Fault>;

// === impl Connection ===

impl Connection {
    /// The receiver gets the calls that nobody waits for.
    pub(super) fn new(
        client: OriginClient,
        url: String,
        timeout: Duration,
    ) -> (Self, mpsc::Receiver<Abandoned>) {
        let (abandoned, receiver) = mpsc::channel(64);
        let (session, next_id, list_changed) = (Mutex::default(), AtomicU64::new(1), Notify::new());
        (Self { client, url, timeout, session, next_id, list_changed, abandoned }, receiver)
    }

    /// Calls a tool, from a place in a trace if there is one. The caller bounds the time.
    pub(super) async fn call(&self, tool: &str, arguments: Value, trace: Option<&str>) -> Answered {
        let mut params = json!({ "name": tool, "arguments": arguments });
        if let (Some(trace), Some(params)) = (trace, params.as_object_mut()) {
            params.insert("_meta".to_owned(), json!({ "traceparent": trace }));
        }
        self.ask("tools/call", params).await
    }

    /// Reads the list of tools, all pages of it.
    pub(super) async fn list(&self, server: &str, include: Option<&[String]>) -> Result<Catalogue, Fault> {
        let read = async {
            let (mut reader, mut params) = (Reader::new(server, include), json!({}));
            loop {
                let page = self.ask("tools/list", params).await?;
                let page = page.map_err(|Refused { reason, .. }| {
                    Fault::protocol(format!("it refused to list its tools: {}", line(&reason)))
                })?;
                match reader.page(&page).map_err(Fault::protocol)? {
                    Some(cursor) => params = json!({ "cursor": cursor }),
                    None => return Ok(reader.finish()),
                }
            }
        };
        timeout(self.timeout, read).await.unwrap_or_else(|_| Err(Fault::too_slow(self.timeout)))
    }

    /// Tells the server that nobody waits for a call.
    pub(super) async fn cancel(&self, Abandoned { session, id }: Abandoned) {
        let params = json!({ "requestId": id, "reason": "the turn that called is over" });
        self.notify(Some(&session), "notifications/cancelled", params).await;
    }

    /// Ends the session, if the server keeps one.
    pub(super) async fn close(&self) {
        let Some(session) = self.session.lock().await.take().filter(|session| session.id.is_some()) else {
            return;
        };
        let request = self.request("DELETE", Some(&session), Vec::new());
        // A server that does not end sessions answers 405.
        let _ = timeout(NOTICE, self.client.fetch(request)).await;
    }

    async fn ask(&self, method: &str, params: Value) -> Answered {
        let session = self.session().await?;
        match self.post(&session, method, &params).await? {
            Sent::Answered(answer) => Ok(answer),
            Sent::SessionGone(_) => {
                debug!(url = self.url, "the server has forgotten the session; opening another");
                self.forget(&session).await;
                let session = self.session().await?;
                match self.post(&session, method, &params).await? {
                    Sent::Answered(answer) => Ok(answer),
                    Sent::SessionGone(fault) => Err(fault),
                }
            }
        }
    }

    /// Returns the session. The first caller opens it, and the others wait.
    async fn session(&self) -> Result<Arc<Session>, Fault> {
        let mut current = self.session.lock().await;
        if let Some(session) = &*current {
            return Ok(Arc::clone(session));
        }
        let session = Arc::new(self.initialize().await?);
        Ok(Arc::clone(current.insert(session)))
    }

    async fn forget(&self, gone: &Arc<Session>) {
        let mut current = self.session.lock().await;
        if current.as_ref().is_some_and(|session| Arc::ptr_eq(session, gone)) {
            *current = None;
        }
    }

    async fn initialize(&self) -> Result<Session, Fault> {
        let id = self.next_id();
        let params = json!({
            "protocolVersion": VERSIONS[0],
            "capabilities": {},
            "clientInfo": { "name": "talaria", "version": env!("CARGO_PKG_VERSION") },
        });
        let mut exchange = self.open(None, request(id, "initialize", params)).await?;
        if exchange.status() != 200 {
            return Err(failed(&mut exchange).await);
        }
        let session_id = header(&exchange, "mcp-session-id").map(str::to_owned);
        // A brace could be taken for the place of a secret.
        let fits = |id: &String| {
            id.len() <= SESSION_ID && id.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'{')
        };
        if session_id.as_ref().is_some_and(|id| !fits(id)) {
            return Err(Fault::protocol("the id of its session cannot be sent back"));
        }
        let said = self.answer(&mut exchange, None, id).await?;
        let said = said.map_err(|Refused { reason, .. }| {
            Fault::protocol(format!("it refused the connection: {}", line(&reason)))
        })?;
        let version = said.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
        if !VERSIONS.contains(&version) {
            let what =
                format!("it speaks version {:?} of the protocol, which is unknown here", line(version));
            return Err(Fault::protocol(what));
        }
        let session = Session { id: session_id, version: version.to_owned() };
        self.notify(Some(&session), "notifications/initialized", json!({})).await;
        Ok(session)
    }

    async fn post(&self, session: &Arc<Session>, method: &str, params: &Value) -> Result<Sent, Fault> {
        let id = self.next_id();
        let mut under_way = UnderWay { connection: self, session, id, is_over: false };
        let sent = Box::pin(self.post_as(id, session, method, params)).await;
        under_way.is_over = true;
        sent
    }

    async fn post_as(&self, id: u64, session: &Session, method: &str, params: &Value) -> Result<Sent, Fault> {
        let mut exchange = self.open(Some(session), request(id, method, params.clone())).await?;
        match exchange.status() {
            200 => self.answer(&mut exchange, Some(session), id).await.map(Sent::Answered),
            // 404 by the protocol; some servers answer 400.
            400 | 404 if session.id.is_some() => Ok(Sent::SessionGone(failed(&mut exchange).await)),
            _ => Err(failed(&mut exchange).await),
        }
    }

    /// Reads until the response to this request.
    async fn answer(
        &self,
        exchange: &mut Exchange,
        session: Option<&Session>,
        id: u64,
    ) -> Result<Result<Value, Refused>, Fault> {
        let media_type = header(exchange, "content-type").unwrap_or_default();
        let media_type = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let mut requests = 0;
        match media_type.as_str() {
            "application/json" => {
                let body = read_body(exchange, ANSWER).await.map_err(|error| Fault::of_call(&error))?;
                let answer = self.heard(&body, session, id, &mut requests).await?;
                answer.ok_or_else(|| Fault::protocol("its answer is not the response to the request"))
            }
            "text/event-stream" => {
                while let Some(event) = exchange.next_event().await.map_err(|error| Fault::of_call(&error))? {
                    // An empty event tells where a stream may be resumed, and other names are not of the protocol.
                    if event.event != "message" || event.data.is_empty() {
                        continue;
                    }
                    if let Some(answer) =
                        self.heard(event.data.as_bytes(), session, id, &mut requests).await?
                    {
                        return Ok(answer);
                    }
                }
                Err(Fault::protocol(
                    "its stream ended before the answer, so whether the call was carried out is unknown",
                ))
            }
            other => Err(Fault::protocol(format!("it answered with {:?}, which is not MCP", line(other)))),
        }
    }

    /// Takes what a server said; returns the response to this request, if it is among it.
    async fn heard(
        &self,
        document: &[u8],
        session: Option<&Session>,
        id: u64,
        requests: &mut usize,
    ) -> Result<Option<Result<Value, Refused>>, Fault> {
        let messages = message::read(document);
        let messages = messages.map_err(|why| Fault::protocol(format!("its answer is {why}")))?;
        let mut found = None;
        for message in messages {
            match message {
                Message::Response(of, answer) if of == id => found = Some(answer),
                Message::Response(..) => {}
                Message::Notification(method) if method == "notifications/tools/list_changed" => {
                    self.list_changed.notify_one();
                }
                Message::Notification(_) => {}
                Message::Request { id, method } if *requests < REQUESTS => {
                    *requests += 1;
                    self.tell(session, &reply(&id, &method)).await;
                }
                Message::Request { .. } => {}
            }
        }
        Ok(found)
    }

    async fn notify(&self, session: Option<&Session>, method: &str, params: Value) {
        self.tell(session, &json!({ "jsonrpc": "2.0", "method": method, "params": params })).await;
    }

    /// Sends a message that has no answer. If that fails, the next request fails as well and says why.
    async fn tell(&self, session: Option<&Session>, message: &Value) {
        let told = timeout(NOTICE, self.open(session, message.to_string())).await;
        if let Ok(Err(fault)) = told {
            debug!(url = self.url, %fault, "a notice was not delivered");
        }
    }

    async fn open(&self, session: Option<&Session>, body: String) -> Result<Exchange, Fault> {
        let request = self.request("POST", session, body.into_bytes());
        Box::pin(self.client.open(request)).await.map_err(|error| Fault::of_call(&error))
    }

    fn request(&self, method: &str, session: Option<&Session>, body: Vec<u8>) -> Request {
        let mut headers = vec![("accept", "application/json, text/event-stream")];
        if !body.is_empty() {
            headers.push(("content-type", "application/json"));
        }
        if let Some(session) = session {
            headers.push(("mcp-protocol-version", session.version.as_str()));
            headers.extend(session.id.as_deref().map(|id| ("mcp-session-id", id)));
        }
        let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Request {
            method: method.into(),
            url: self.url.clone(),
            headers,
            body: body.into(),
            ..Request::default()
        }
    }

    fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }
}

// === impl UnderWay ===

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            let abandoned = Abandoned { session: Arc::clone(self.session), id: self.id };
            // If too many are under way, the server finds out by itself.
            let _ = self.connection.abandoned.try_send(abandoned);
        }
    }
}

fn request(id: u64, method: &str, params: Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

/// The answer to a request of the server.
pub(crate) fn reply(id: &Value, method: &str) -> Value {
    match method {
        "ping" => json!({ "jsonrpc": "2.0", "id": id, "result": {} }),
        _ => {
            let error = json!({ "code": METHOD_NOT_FOUND, "message": "this client offers nothing" });
            json!({ "jsonrpc": "2.0", "id": id, "error": error })
        }
    }
}

fn header<'e>(exchange: &'e Exchange, name: &str) -> Option<&'e str> {
    exchange.headers().iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// Why a request was not answered, by its status and the beginning of its body.
async fn failed(exchange: &mut Exchange) -> Fault {
    let status = exchange.status();
    let body = match exchange.read(ERROR_BODY).await {
        Ok(Some(body)) => body,
        Ok(None) | Err(_) => Default::default(),
    };
    match status {
        200..300 => Fault::protocol(format!("it answered {status} without the response to the request")),
        _ => Fault::of_status(status, &body),
    }
}

async fn read_body(exchange: &mut Exchange, most: usize) -> Result<Vec<u8>, Error> {
    let mut body = Vec::new();
    while let Some(chunk) = exchange.read(most).await? {
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}
