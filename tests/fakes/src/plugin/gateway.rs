//! The gateway behind the fake plugin, and the plugin's server.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use talaria_egress::{Access, Egress, Pattern};
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};

use super::{Inbound, Step};

pub(super) type Agent = dyn Fn(&Inbound) -> Vec<Step> + Send + Sync;

pub(super) struct Gateway {
    pub(super) secret: Option<String>,
    pub(super) agent: Box<Agent>,
    pub(super) egress: Egress,
    pub(super) retry: Duration,
    pub(super) chats: Mutex<HashMap<String, Chat>>,
    pub(super) seen: watch::Sender<Seen>,
    pub(super) running: Mutex<JoinSet<()>>,
}

#[derive(Default)]
pub(super) struct Chat {
    turn: Option<AbortHandle>,
    queue: VecDeque<Inbound>,
    approval: Option<oneshot::Sender<bool>>,
    pub(super) go: Arc<Notify>,
    /// Undelivered answers.
    pub(super) owed: Vec<String>,
}

#[derive(Default)]
pub(super) struct Seen {
    pub(super) messages: Vec<Inbound>,
    pub(super) commands: Vec<String>,
    /// The responses to callbacks, status and body, in order.
    pub(super) receipts: Vec<(u16, Value)>,
    /// The number of answers that could not be delivered.
    pub(super) given_up: usize,
    pub(super) refuse: Option<u16>,
    pub(super) down: bool,
}

/// Texts of the gateway.
const FAILED: &str = "⚠️ Message delivery failed after multiple attempts. Please try again — your request was processed \
                      but the response could not be sent.";
pub(super) const RECOVERED: &str =
    "♻️ Recovered reply — the gateway restarted during delivery, so this may be a duplicate:\n\n";
const PLAIN: &str = "(Response formatting failed, plain text:)\n\n";
const STOPPED: &str = "⚡ Stopped. You can continue this session.";

// === impl Gateway ===

impl Gateway {
    pub(super) fn chats(&self) -> MutexGuard<'_, HashMap<String, Chat>> {
        self.chats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(self: &Arc<Self>, future: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        while running.try_join_next().is_some() {}
        running.spawn(future)
    }

    fn take(self: &Arc<Self>, message: Inbound) {
        if message.is_command() {
            self.seen.send_modify(|seen| seen.commands.push(message.content().into()));
            let gateway = Arc::clone(self);
            self.spawn(async move { gateway.command(message).await });
            return;
        }
        self.seen.send_modify(|seen| seen.messages.push(message.clone()));
        let mut chats = self.chats();
        let chat = chats.entry(message.chat().into()).or_default();
        if chat.turn.is_some() {
            chat.queue.push_back(message);
            return;
        }
        let gateway = Arc::clone(self);
        chat.turn = Some(self.spawn(async move { gateway.run(message).await }));
    }

    async fn command(self: Arc<Self>, command: Inbound) {
        let said = {
            let mut chats = self.chats();
            let chat = chats.entry(command.chat().into()).or_default();
            match command.content() {
                "/stop" => {
                    if let Some(turn) = chat.turn.take() {
                        turn.abort();
                    }
                    chat.approval = None;
                    chat.queue.clear();
                    STOPPED.to_owned()
                }
                approval @ ("/approve" | "/approve session" | "/approve always" | "/deny") => {
                    let approved = approval != "/deny";
                    match chat.approval.take() {
                        Some(waiting) => {
                            let _ = waiting.send(approved);
                            let word = if approved { "✅ Command approved." } else { "❌ Command denied." };
                            format!("{word} The agent is resuming...")
                        }
                        None => "No pending command to approve.".to_owned(),
                    }
                }
                other => format!("Unknown command `{other}`."),
            }
        };
        self.deliver(&command, Some(command.id()), &said).await;
    }

    async fn run(self: Arc<Self>, first: Inbound) {
        let mut message = first.clone();
        loop {
            let steps = (self.agent)(&message);
            let last = steps.len().saturating_sub(1);
            for (at, step) in steps.into_iter().enumerate() {
                let is_last = at == last;
                match step {
                    Step::Notice(text) => self.deliver(&message, None, &text).await,
                    Step::Wait => {
                        let go = Arc::clone(&self.chats().entry(message.chat().into()).or_default().go);
                        go.notified().await;
                    }
                    Step::Approval(command) => {
                        let (answer, answered) = oneshot::channel();
                        self.chats().entry(message.chat().into()).or_default().approval = Some(answer);
                        self.deliver(&message, None, &prompt(&command)).await;
                        let approved = answered.await.unwrap_or(false);
                        let word = if approved { "ran" } else { "was not allowed to run" };
                        if is_last {
                            self.answer(&first, &format!("{word} {command}"), true).await;
                        }
                    }
                    Step::Answer(text) => self.answer(&first, &text, is_last).await,
                    Step::AnswerTwice(text) => {
                        self.answer(&first, &text, false).await;
                        self.answer(&first, &text, is_last).await;
                    }
                }
            }
            let mut chats = self.chats();
            let chat = chats.entry(message.chat().into()).or_default();
            if chat.turn.is_none() {
                return;
            }
            if chat.queue.is_empty() {
                chat.turn = None;
                return;
            }
            // The queued messages become one message to the agent, and its answer goes to the first.
            let merged: Vec<String> = chat.queue.drain(..).map(|message| message.content().into()).collect();
            if let Some(content) = message.body.get_mut("content") {
                *content = merged.join("\n").into();
            }
        }
    }

    /// A turn releases its chat with its last answer: a message that arrives during the delivery starts a new turn.
    async fn answer(&self, message: &Inbound, text: &str, is_last: bool) {
        let busy = {
            let mut chats = self.chats();
            let chat = chats.entry(message.chat().into()).or_default();
            let busy = !chat.queue.is_empty();
            if is_last && !busy {
                chat.turn = None;
            }
            busy
        };
        self.deliver(message, (!busy).then(|| message.id()), text).await;
    }

    /// Delivers like the real gateway: with retries, and at last a text that says that delivery failed.
    async fn deliver(&self, message: &Inbound, reply_to: Option<&str>, text: &str) {
        let (url, chat) = (message.callback_url(), message.chat());
        for _ in 0..3 {
            match self.post(url, chat, reply_to, text).await {
                Some((200..300, _)) => return,
                Some((400..500, _)) => {
                    self.post(url, chat, reply_to, &format!("{PLAIN}{text}")).await;
                    return;
                }
                Some(_) | None => tokio::time::sleep(self.retry).await,
            }
        }
        self.chats().entry(chat.into()).or_default().owed.push(text.into());
        self.post(url, chat, reply_to, FAILED).await;
        self.seen.send_modify(|seen| seen.given_up += 1);
    }

    pub(super) async fn post(
        &self,
        url: &str,
        chat: &str,
        reply_to: Option<&str>,
        content: &str,
    ) -> Option<(u16, Value)> {
        let pattern: Pattern = format!("POST {url}").parse().expect("a callback URL");
        let access = Access { patterns: vec![pattern], ..Access::default() };
        let mut headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        headers.extend(self.secret.clone().map(|secret| ("x-molecule-a2a-secret".to_owned(), secret)));
        let body = json!({ "chat_id": chat, "content": content, "reply_to": reply_to, "metadata": {} });
        let request = talaria_egress::Request {
            method: "POST".into(),
            url: url.into(),
            headers,
            body: body.to_string().into(),
            ..talaria_egress::Request::default()
        };
        let response = self.egress.fetch(&access, request).await.ok()?;
        let receipt = (response.status, serde_json::from_slice(&response.body).unwrap_or_default());
        self.seen.send_modify(|seen| seen.receipts.push(receipt.clone()));
        Some(receipt)
    }
}

fn prompt(command: &str) -> String {
    format!(
        "⚠️ **Dangerous command requires approval:**\n```\n{command}\n```\nReason: delete in root path\n\nReply `/approve` to \
         execute this one operation, `/approve session` to approve this pattern for the session, `/approve always` to \
         approve permanently, or `/deny` to cancel."
    )
}

// === serving ===

pub(super) async fn accept(listener: TcpListener, gateway: Arc<Gateway>) {
    // Dropping the set closes all connections.
    let mut serving = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let gateway = Arc::clone(&gateway);
        serving.spawn(async move {
            let service = service_fn(|request| answer(request, &gateway));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
        while serving.try_join_next().is_some() {}
    }
}

async fn answer(
    request: Request<Incoming>,
    gateway: &Arc<Gateway>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let (refuse, down) = {
        let seen = gateway.seen.borrow();
        (seen.refuse, seen.down)
    };
    if down {
        return Ok(reply(503, &json!({ "ok": false, "error": "down" })));
    }
    if head.uri.path() == "/a2a/health" {
        return Ok(reply(200, &json!({ "ok": true, "platform": "molecule-a2a" })));
    }
    let secret = head.headers.get("x-molecule-a2a-secret").and_then(|value| value.to_str().ok());
    if gateway.secret.is_some() && gateway.secret.as_deref() != secret {
        return Ok(reply(401, &json!({ "ok": false, "error": "unauthorized" })));
    }
    if let Some(status) = refuse {
        return Ok(reply(status, &json!({ "ok": false, "error": "refused" })));
    }
    let Ok(body) = body.collect().await else { return std::future::pending().await };
    let Ok(body) = serde_json::from_slice(&body.to_bytes()) else {
        return Ok(reply(400, &json!({ "ok": false, "error": "invalid json" })));
    };
    let message = Inbound { body, secret: secret.map(Into::into) };
    if message.chat().is_empty() || !message.body.get("content").is_some_and(Value::is_string) {
        return Ok(reply(400, &json!({ "ok": false, "error": "chat_id and content required" })));
    }
    gateway.take(message);
    Ok(reply(200, &json!({ "ok": true, "queued": true })))
}

fn reply(status: u16, body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body.to_string()));
    *response.status_mut() = http::StatusCode::from_u16(status).expect("a status");
    response
}
