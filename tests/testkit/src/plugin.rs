//! The molecule-a2a plugin of hermes-agent, with the gateway behind it: takes messages, answers by callback.
//!
//! What is odd about the real one is odd here too (seen on hermes-agent 0.19):
//! - a chat that is busy queues what comes, sends the running answer without `reply_to`, and answers the queue as one
//!   message, under the id of the first;
//! - a text that begins with `/` is a command of the gateway, whoever sent it;
//! - a callback that fails with 5xx is tried three times, then a text says that delivery failed, and after a restart
//!   the answer comes once more, without `reply_to` and with a mark; one that fails with 4xx comes again as "plain text";
//! - `/stop` is answered, what it stopped is not;
//! - approvals are asked for in a notice, and answered by commands.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::net::SocketAddr;
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
use talaria_egress::{Access, Config, Egress, Pattern};
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};

use crate::soon;

/// A plugin that a test scripted. It is gone when it is dropped.
pub struct FakePlugin {
    address: SocketAddr,
    gateway: Arc<Gateway>,
    _accepting: JoinSet<()>,
}

/// A message as it arrived.
#[derive(Debug, Clone)]
pub struct Inbound {
    /// The whole body.
    pub body: Value,
    /// The secret that came with it.
    pub secret: Option<String>,
}

/// What the agent does about a message, in this order.
#[derive(Debug, Clone)]
pub enum Step {
    /// Says something without answering.
    Notice(String),
    /// Waits until the test lets the chat go on.
    Wait,
    /// Asks for approval of a command; if it is the last step, it says what became of it.
    Approval(String),
    /// Answers.
    Answer(String),
    /// Answers, and then again with the same.
    AnswerTwice(String),
}

type Agent = dyn Fn(&Inbound) -> Vec<Step> + Send + Sync;

struct Gateway {
    secret: Option<String>,
    agent: Box<Agent>,
    egress: Egress,
    retry: Duration,
    chats: Mutex<HashMap<String, Chat>>,
    seen: watch::Sender<Seen>,
    running: Mutex<JoinSet<()>>,
}

#[derive(Default)]
struct Chat {
    turn: Option<AbortHandle>,
    queue: VecDeque<Inbound>,
    approval: Option<oneshot::Sender<bool>>,
    go: Arc<Notify>,
    /// Answers that were not delivered.
    owed: Vec<String>,
}

#[derive(Default)]
struct Seen {
    messages: Vec<Inbound>,
    commands: Vec<String>,
    /// What the bridge answered to callbacks: status and body, in order.
    receipts: Vec<(u16, Value)>,
    /// Answers that could not be delivered.
    given_up: usize,
    refuse: Option<u16>,
    down: bool,
}

/// The gateway's words.
const FAILED: &str = "⚠️ Message delivery failed after multiple attempts. Please try again — your request was processed \
                      but the response could not be sent.";
const RECOVERED: &str =
    "♻️ Recovered reply — the gateway restarted during delivery, so this may be a duplicate:\n\n";
const PLAIN: &str = "(Response formatting failed, plain text:)\n\n";
const STOPPED: &str = "⚡ Stopped. You can continue this session.";

// === impl FakePlugin ===

impl FakePlugin {
    /// A plugin whose agent does what the function says.
    pub async fn start(agent: impl Fn(&Inbound) -> Vec<Step> + Send + Sync + 'static) -> Self {
        Self::with_secret(None, agent).await
    }

    /// A plugin whose agent answers with the message's text after `echo: `.
    pub async fn echo() -> Self {
        Self::start(|message| vec![Step::Answer(format!("echo: {}", message.content()))]).await
    }

    /// A plugin that wants a secret, and sends it along.
    pub async fn with_secret(
        secret: Option<&str>,
        agent: impl Fn(&Inbound) -> Vec<Step> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port on loopback");
        let address = listener.local_addr().unwrap();
        let gateway = Arc::new(Gateway {
            secret: secret.map(Into::into),
            agent: Box::new(agent),
            egress: Egress::new(Config::default()),
            retry: Duration::from_millis(20),
            chats: Mutex::default(),
            seen: watch::Sender::default(),
            running: Mutex::default(),
        });
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, Arc::clone(&gateway)));
        Self { address, gateway, _accepting: accepting }
    }

    /// Where it takes messages.
    #[must_use]
    pub fn inbound_url(&self) -> String {
        format!("http://{}/a2a/inbound", self.address)
    }

    /// Where it says that it is there.
    #[must_use]
    pub fn health_url(&self) -> String {
        format!("http://{}/a2a/health", self.address)
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The messages so far, without commands.
    #[must_use]
    pub fn messages(&self) -> Vec<Inbound> {
        self.gateway.seen.borrow().messages.clone()
    }

    /// The commands so far.
    #[must_use]
    pub fn commands(&self) -> Vec<String> {
        self.gateway.seen.borrow().commands.clone()
    }

    /// What the bridge answered to callbacks so far.
    #[must_use]
    pub fn receipts(&self) -> Vec<(u16, Value)> {
        self.gateway.seen.borrow().receipts.clone()
    }

    /// Returns that many messages, once they have arrived.
    pub async fn received(&self, messages: usize) -> Vec<Inbound> {
        self.until("the plugin did not get its messages", |seen| seen.messages.len() >= messages).await;
        self.messages()
    }

    /// Returns once that many commands have arrived.
    pub async fn commanded(&self, commands: usize) -> Vec<String> {
        self.until("the plugin did not get its commands", |seen| seen.commands.len() >= commands).await;
        self.commands()
    }

    /// Returns once that many callbacks were answered.
    pub async fn posted(&self, callbacks: usize) -> Vec<(u16, Value)> {
        self.until("the callbacks were not answered", |seen| seen.receipts.len() >= callbacks).await;
        self.receipts()
    }

    /// Returns once that many answers could not be delivered.
    pub async fn gave_up(&self, answers: usize) {
        self.until("the plugin still tries", |seen| seen.given_up >= answers).await;
    }

    async fn until(&self, what: &str, fits: impl Fn(&Seen) -> bool) {
        let mut seen = self.gateway.seen.subscribe();
        soon(what, seen.wait_for(|seen| fits(seen))).await.expect("the plugin is up");
    }

    /// Lets a chat go on that waits.
    pub fn release(&self, chat: &str) {
        let go = Arc::clone(&self.gateway.chats().entry(chat.into()).or_default().go);
        go.notify_one();
    }

    /// Answers messages with this status from now on.
    pub fn refuse(&self, status: Option<u16>) {
        self.gateway.seen.send_modify(|seen| seen.refuse = status);
    }

    /// Says that it is not healthy from now on, and takes no messages.
    pub fn set_down(&self, down: bool) {
        self.gateway.seen.send_modify(|seen| seen.down = down);
    }

    /// What a restarted gateway does: delivers what it owes, to this address.
    pub async fn recover(&self, callback_url: &str) {
        let owed: Vec<(String, Vec<String>)> = {
            let mut chats = self.gateway.chats();
            chats.iter_mut().map(|(name, chat)| (name.clone(), std::mem::take(&mut chat.owed))).collect()
        };
        for (chat, answers) in owed {
            for answer in answers {
                self.callback(callback_url, &chat, None, &format!("{RECOVERED}{answer}")).await;
            }
        }
    }

    /// Posts one callback as it is; what the bridge answered.
    pub async fn callback(
        &self,
        callback_url: &str,
        chat: &str,
        reply_to: Option<&str>,
        content: &str,
    ) -> (u16, Value) {
        self.gateway.post(callback_url, chat, reply_to, content).await.expect("the bridge answers")
    }
}

impl Drop for FakePlugin {
    fn drop(&mut self) {
        // Its turns hold it, so it ends them.
        self.gateway.running.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }
}

// === impl Inbound ===

impl Inbound {
    fn text(&self, name: &str) -> &str {
        self.body.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// What it says.
    #[must_use]
    pub fn content(&self) -> &str {
        self.text("content")
    }

    /// Its chat.
    #[must_use]
    pub fn chat(&self) -> &str {
        self.text("chat_id")
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        self.text("message_id")
    }

    /// Where the answer goes.
    #[must_use]
    pub fn callback_url(&self) -> &str {
        self.text("callback_url")
    }

    /// Only a text that begins with `/`, and whose first word has no other, is a command.
    fn is_command(&self) -> bool {
        let first = self.content().split_whitespace().next().unwrap_or_default();
        self.content().starts_with('/') && first.matches('/').count() == 1
    }
}

// === impl Gateway ===

impl Gateway {
    fn chats(&self) -> MutexGuard<'_, HashMap<String, Chat>> {
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
            // All that waited is one message to the agent, and its answer goes to the first.
            let merged: Vec<String> = chat.queue.drain(..).map(|message| message.content().into()).collect();
            if let Some(content) = message.body.get_mut("content") {
                *content = merged.join("\n").into();
            }
        }
    }

    /// With its last answer a turn lets go of its chat: what comes while that is delivered is a turn of its own.
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

    /// As the gateway delivers: again where it fails, and at last a text that says so.
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

    async fn post(
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

async fn accept(listener: TcpListener, gateway: Arc<Gateway>) {
    // Ends all connections with itself.
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
