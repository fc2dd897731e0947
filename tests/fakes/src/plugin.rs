//! A fake of hermes-agent's molecule-a2a plugin and the gateway behind it: takes messages, answers by callback.
//!
//! The fake shares the peculiarities of the real one (observed on hermes-agent 0.19):
//! - a busy chat queues new messages, sends the running answer without `reply_to`, and answers the queue as one message
//!   under the id of the first;
//! - a text that begins with `/` is a command to the gateway, no matter who sent it;
//! - a callback that fails with 5xx is tried three times, then a text says that delivery failed, and after a restart the
//!   answer comes once more, without `reply_to` and with a prefix; one that fails with 4xx is repeated as "plain text";
//! - `/stop` is answered, but the turn that it stopped is not;
//! - approvals are requested in a notice and granted by commands.

mod gateway;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use talaria_egress::{Config, Egress};
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::gateway::{Gateway, RECOVERED, Seen, accept};
use crate::soon;

/// A scripted plugin. Dropping it closes its port.
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
    /// The secret in its header.
    pub secret: Option<String>,
}

/// One step of the agent's answer to a message.
#[derive(Debug, Clone)]
pub enum Step {
    /// Sends a notice.
    Notice(String),
    /// Waits until the test releases the chat.
    Wait,
    /// Requests approval of a command; as the last step, answers with the result.
    Approval(String),
    /// Answers.
    Answer(String),
    /// Answers twice with the same text.
    AnswerTwice(String),
}

// === impl FakePlugin ===

impl FakePlugin {
    /// Starts a plugin whose agent follows the steps that a function returns.
    pub async fn start(agent: impl Fn(&Inbound) -> Vec<Step> + Send + Sync + 'static) -> Self {
        Self::with_secret(None, agent).await
    }

    /// Starts a plugin whose agent answers with `echo: ` and the message's text.
    pub async fn echo() -> Self {
        Self::start(|message| vec![Step::Answer(format!("echo: {}", message.content()))]).await
    }

    /// Starts a plugin that requires a secret and sends it with callbacks.
    pub async fn with_secret(
        secret: Option<&str>,
        agent: impl Fn(&Inbound) -> Vec<Step> + Send + Sync + 'static,
    ) -> Self {
        let listener = crate::port::listen().await;
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

    /// The URL for messages.
    #[must_use]
    pub fn inbound_url(&self) -> String {
        format!("http://{}/a2a/inbound", self.address)
    }

    /// The URL of its health check.
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

    /// The responses to callbacks so far.
    #[must_use]
    pub fn receipts(&self) -> Vec<(u16, Value)> {
        self.gateway.seen.borrow().receipts.clone()
    }

    /// Waits for that many messages. Returns them.
    pub async fn received(&self, messages: usize) -> Vec<Inbound> {
        self.until("the plugin did not get its messages", |seen| seen.messages.len() >= messages).await;
        self.messages()
    }

    /// Waits for that many commands. Returns them.
    pub async fn commanded(&self, commands: usize) -> Vec<String> {
        self.until("the plugin did not get its commands", |seen| seen.commands.len() >= commands).await;
        self.commands()
    }

    /// Waits until that many callbacks were answered.
    pub async fn posted(&self, callbacks: usize) -> Vec<(u16, Value)> {
        self.until("the callbacks were not answered", |seen| seen.receipts.len() >= callbacks).await;
        self.receipts()
    }

    /// Waits until that many answers could not be delivered.
    pub async fn gave_up(&self, answers: usize) {
        self.until("the plugin still tries", |seen| seen.given_up >= answers).await;
    }

    async fn until(&self, what: &str, fits: impl Fn(&Seen) -> bool) {
        let mut seen = self.gateway.seen.subscribe();
        soon(what, seen.wait_for(|seen| fits(seen))).await.expect("the plugin is up");
    }

    /// Releases a waiting chat.
    pub fn release(&self, chat: &str) {
        let go = Arc::clone(&self.gateway.chats().entry(chat.into()).or_default().go);
        go.notify_one();
    }

    /// Answers messages with this status from now on.
    pub fn refuse(&self, status: Option<u16>) {
        self.gateway.seen.send_modify(|seen| seen.refuse = status);
    }

    /// Sets whether it is down: unhealthy, and rejecting messages.
    pub fn set_down(&self, down: bool) {
        self.gateway.seen.send_modify(|seen| seen.down = down);
    }

    /// Delivers the undelivered answers to this address, as a restarted gateway does.
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

    /// Posts a callback as it is. Returns the response.
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
        // Turns hold a reference to the plugin, so they must be ended here.
        self.gateway.running.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }
}

// === impl Inbound ===

impl Inbound {
    fn text(&self, name: &str) -> &str {
        self.body.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// The text.
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

    /// The callback URL.
    #[must_use]
    pub fn callback_url(&self) -> &str {
        self.text("callback_url")
    }

    /// Whether this is a command: the text begins with `/`, and its first word contains no other slash.
    fn is_command(&self) -> bool {
        let first = self.content().split_whitespace().next().unwrap_or_default();
        self.content().starts_with('/') && first.matches('/').count() == 1
    }
}
