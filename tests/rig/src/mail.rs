//! A mailbox with its listener, for executors that receive callbacks.

use std::sync::Arc;

use async_trait::async_trait;
use talaria_hermes::{CALLBACK_PATH, HermesWire};
use talaria_mailbox::{Config, Limits, Listener, Mailbox};
use talaria_redact::{Redactor, Replies, ReplyRedactor};
use talaria_store::Memory;
use talaria_turns::{CallbackStore, Callbacks, Late, LateReplySink, StoreError};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// A mailbox on loopback. Dropping it closes its port.
pub struct MailHost {
    /// The mailbox.
    pub mailbox: Mailbox,
    /// The callback URL.
    pub url: String,
    _serving: JoinSet<()>,
}

/// Accepts late replies and drops them.
struct Nobody;

#[async_trait]
impl LateReplySink for Nobody {
    async fn deliver(&self, _: &Late) -> Result<bool, StoreError> {
        Ok(true)
    }
}

impl MailHost {
    /// Starts a mailbox in memory, without a secret.
    pub async fn start() -> Self {
        Self::on(Arc::new(Memory::new(1)), None).await
    }

    /// Starts a mailbox on a store.
    pub async fn on(letters: Arc<dyn CallbackStore>, secret: Option<&str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port on loopback");
        let url = format!("http://{}{CALLBACK_PATH}", listener.local_addr().unwrap());
        // Thousands of callbacks may arrive at once.
        let limits = Limits { connections: 10_000, ..Limits::default() };
        let wire = Arc::new(HermesWire::new(secret.map(Into::into)));
        let config = Config {
            reply_url: url.clone(),
            path_token: None,
            wire,
            limits,
            replies: ReplyRedactor::new(Redactor::new(secret), Replies::Values),
        };
        let mailbox = Mailbox::open(letters, config).await.expect("a mailbox");
        let never = CancellationToken::new();
        let mut serving = JoinSet::new();
        serving.spawn(mailbox.clone().tend(Nobody, never.clone()));
        serving.spawn(Listener::new(mailbox.clone()).serve(listener, never));
        Self { mailbox, url, _serving: serving }
    }

    /// The mailbox in the form that executors get.
    #[must_use]
    pub fn callbacks(&self) -> Arc<dyn Callbacks> {
        Arc::new(self.mailbox.clone())
    }
}
