//! A mailbox, its listener, and a peer that posts.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use talaria_egress::{Access, Config as EgressConfig, Egress, Request};
use talaria_listen::Workers;
use talaria_mailbox::{CallbackWire, Config, Limits, Listener, Mailbox, PlainWire, SecretHeader};
use talaria_redact::{Redactor, Replies, ReplyRedactor};
use talaria_store::Memory;
use talaria_turns::{
    Awaited, CallbackError, CallbackStore, Callbacks, Expectation, Late, LateReplySink, Principal,
    StoreError, TaskId, TaskKey,
};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Long, because machines are slow; it only shows when a test fails.
const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) struct Host {
    pub(crate) mailbox: Mailbox,
    pub(crate) url: String,
    pub(crate) sink: Arc<Recorder>,
    shutdown: CancellationToken,
    tasks: JoinSet<()>,
    /// Callbacks arrive on another thread than turns wait on.
    _workers: Workers,
}

/// What became of late replies.
#[derive(Default)]
pub(crate) struct Recorder {
    /// Those that were taken.
    pub(crate) taken: watch::Sender<Vec<Late>>,
    /// How many more are not taken yet, because their tasks are not over, or the store fails.
    pub(crate) too_early: AtomicUsize,
    pub(crate) failing: AtomicUsize,
}

struct RecordingSink(Arc<Recorder>);

#[async_trait]
impl LateReplySink for RecordingSink {
    async fn deliver(&self, late: &Late) -> Result<bool, StoreError> {
        let one_less = |count: usize| count.checked_sub(1);
        if self.0.failing.fetch_update(SeqCst, SeqCst, one_less).is_ok() {
            return Err(StoreError::Unavailable("down".into()));
        }
        if self.0.too_early.fetch_update(SeqCst, SeqCst, one_less).is_ok() {
            return Ok(false);
        }
        self.0.taken.send_modify(|taken| taken.push(late.clone()));
        Ok(true)
    }
}

impl Recorder {
    /// What was taken, once there are that many.
    pub(crate) async fn taken(&self, many: usize) -> Vec<Late> {
        let mut taken = self.taken.subscribe();
        soon(taken.wait_for(|taken| taken.len() >= many)).await.unwrap().clone()
    }
}

impl Host {
    pub(crate) async fn new() -> Self {
        Self::on(Arc::new(Memory::new(10)), None, Limits::default()).await
    }

    pub(crate) async fn with_secret(secret: &str) -> Self {
        Self::on(Arc::new(Memory::new(10)), Some(secret), Limits::default()).await
    }

    pub(crate) async fn on(store: Arc<dyn CallbackStore>, secret: Option<&str>, limits: Limits) -> Self {
        Self::with_wire(Arc::new(plain(secret)), store, limits).await
    }

    pub(crate) async fn with_wire(
        wire: Arc<dyn CallbackWire>,
        store: Arc<dyn CallbackStore>,
        limits: Limits,
    ) -> Self {
        Self::build(wire, None, store, limits).await
    }

    /// A mailbox without a secret, whose path ends in this token.
    pub(crate) async fn with_token(token: &str) -> Self {
        let store = Arc::new(Memory::new(10));
        Self::build(Arc::new(plain(None)), Some(token), store, Limits::default()).await
    }

    async fn build(
        wire: Arc<dyn CallbackWire>,
        token: Option<&str>,
        store: Arc<dyn CallbackStore>,
        limits: Limits,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}{}", listener.local_addr().unwrap(), wire.path());
        let replies = ReplyRedactor::new(Redactor::process().clone(), Replies::Values);
        let reply_url = token.map_or_else(|| url.clone(), |token| format!("{url}/{token}"));
        let config = Config { reply_url, path_token: token.map(Into::into), wire, limits, replies };
        let mailbox = Mailbox::open(store, config).await.unwrap();
        let shutdown = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let sink = Arc::new(Recorder::default());
        tasks.spawn(mailbox.clone().tend(RecordingSink(Arc::clone(&sink)), shutdown.clone()));
        let workers = Workers::start(1, Handle::current()).unwrap();
        let server = Listener::new(mailbox.clone()).with_workers(workers.spread());
        tasks.spawn(server.serve(listener, shutdown.clone()));
        Self { mailbox, url, sink, shutdown, tasks, _workers: workers }
    }

    /// Stops it in good order.
    pub(crate) async fn stop(mut self) {
        self.shutdown.cancel();
        while self.tasks.join_next().await.is_some() {}
    }

    pub(crate) async fn expect(&self, message: &str) -> Box<dyn Awaited> {
        self.mailbox.expect(expectation(message, None, &task())).await.unwrap()
    }

    pub(crate) async fn expect_in(&self, chat: &str, message: &str) -> Box<dyn Awaited> {
        self.mailbox.expect(expectation(message, Some(chat), &task())).await.unwrap()
    }

    /// Posts a callback in the plain shape; returns the status and the body of the answer.
    pub(crate) async fn post(&self, chat: &str, reply_to: Option<&str>, content: &str) -> (u16, Value) {
        let body = json!({ "chat_id": chat, "content": content, "reply_to": reply_to, "metadata": {} });
        self.send("POST", "", &[], &body.to_string()).await
    }

    /// Any request; `path` goes behind the reply URL.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (u16, Value) {
        let url = format!("{}{path}", self.url);
        let access = Access { patterns: vec![format!("* {url}").parse().unwrap()], ..Access::default() };
        let request = Request {
            method: method.into(),
            url,
            headers: headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            body: body.to_owned().into(),
            ..Request::default()
        };
        let egress = Egress::new(EgressConfig::default());
        let response = soon(egress.fetch(&access, request)).await.unwrap();
        (response.status, serde_json::from_slice(&response.body).unwrap_or_default())
    }
}

/// The wire of most tests.
fn plain(secret: Option<&str>) -> PlainWire {
    PlainWire {
        path: "/replies".into(),
        secret: SecretHeader::new(http::HeaderName::from_static("x-secret"), secret.map(Into::into)),
        message: "/reply_to".parse().unwrap(),
        content: "/content".parse().unwrap(),
        chat: Some("/chat_id".parse().unwrap()),
    }
}

pub(crate) fn task() -> TaskKey {
    TaskKey { owner: Principal::anyone(), task: TaskId::fresh() }
}

pub(crate) fn expectation(message: &str, chat: Option<&str>, task: &TaskKey) -> Expectation {
    Expectation {
        task: task.clone(),
        executor: "it".into(),
        message: message.into(),
        chat: chat.map(Into::into),
        within: None,
    }
}

/// What comes next for a turn.
pub(crate) async fn next(awaited: &mut Box<dyn Awaited>) -> Result<Value, CallbackError> {
    let delivery = soon(awaited.next()).await?;
    assert_eq!(delivery.content_type, "application/json");
    Ok(serde_json::from_slice(&delivery.body).unwrap())
}

pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it should not take as long")
}

pub(crate) fn accepted() -> (u16, Value) {
    (200, json!({ "ok": true }))
}

pub(crate) fn stale() -> (u16, Value) {
    (200, json!({ "ok": true, "stale": true }))
}
