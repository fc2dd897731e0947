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
