//! A server on its own port, whose connections are spread over two workers, with a store in memory, a scripted executor, and a client that writes raw bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use talaria_a2a::{Auth, Config, Counts, LiveCard, Server};
use talaria_budget::Budget;
use talaria_listen::Workers;
use talaria_turns::{Limits, PushLimits, PushSender, Route, Shares, Store, TaskId, Turns};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::memory::Counted;
use crate::script::{OneRoute, Script};

/// The longest that any step of a test may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// A running server.
pub(crate) struct Host {
    pub(crate) address: SocketAddr,
    pub(crate) store: Arc<Counted>,
    pub(crate) script: Arc<Script>,
    pub(crate) counts: Counts,
    pub(crate) shutdown: CancellationToken,
    pub(crate) tasks: TaskTracker,
    pub(crate) auth: Auth,
    pub(crate) card: LiveCard,
    /// The ids of tasks whose turns wait, in the order in which they began.
    pub(crate) waiting: tokio::sync::Mutex<mpsc::UnboundedReceiver<TaskId>>,
    /// While a connection is open, the next one is on the other.
    _workers: Workers,
}

/// An HTTP response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

// === impl Host ===

impl Host {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}, Limits::default()).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Config), limits: Limits) -> Self {
        Self::build(change, |store, route| Turns::new(store, route, limits)).await
    }

    /// Starts a server that sends push notifications through this sender.
    pub(crate) async fn pushing(sender: Arc<dyn PushSender>, change: impl FnOnce(&mut Config)) -> Self {
        let change = |config: &mut Config| {
            config.card.push_notifications = true;
            change(config);
        };
        Self::build(change, |store, route| {
            Turns::builder(store, route, Limits::default()).push_sender(sender, PushLimits::default()).build()
        })
        .await
    }

    /// Starts a server whose requests and turns take from this budget.
    pub(crate) async fn budgeted(budget: &Budget) -> Self {
        Self::shared(budget, Shares::default(), |_| {}).await
    }

    /// The same, and callers have these shares.
    pub(crate) async fn shared(budget: &Budget, shares: Shares, change: impl FnOnce(&mut Config)) -> Self {
        let budget = budget.clone();
        let turns = |store, route| {
            Turns::builder(store, route, Limits::default()).budget(budget).shares(shares).build()
        };
        Self::build(change, turns).await
    }

    async fn build(
        change: impl FnOnce(&mut Config),
        turns: impl FnOnce(Arc<dyn Store>, Arc<dyn Route>) -> Turns,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let store = Arc::new(Counted::new());
        let (sender, waiting) = mpsc::unbounded_channel();
        let script =
            Arc::new(Script { waiting: sender, go: Semaphore::new(0), emitted: AtomicUsize::new(0) });
        let route = Arc::new(OneRoute(Arc::clone(&script)));
        let turns = turns(Arc::clone(&store) as _, route);
        let mut config = Config::new(format!("http://{address}"));
        change(&mut config);
        let (shutdown, tasks) = (CancellationToken::new(), TaskTracker::new());
        let workers = Workers::start(2, Handle::current()).unwrap();
        let server = Server::new(config, turns).with_workers(workers.spread());
        let (auth, card, counts) = (server.auth(), server.card(), server.counts());
        tasks.spawn(server.serve(listener, shutdown.clone()));
        let waiting = tokio::sync::Mutex::new(waiting);
        Self { address, store, script, counts, shutdown, tasks, auth, card, waiting, _workers: workers }
    }

    /// The number of tasks created so far.
    pub(crate) fn made(&self) -> usize {
        self.store.made.load(Ordering::SeqCst)
    }

    /// Waits for the next task whose turn waits.
    pub(crate) async fn next_waiting(&self) -> TaskId {
        patiently(async { self.waiting.lock().await.recv().await.unwrap() }).await
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Writes bytes and reads the answer until the server closes or the body is whole.
    pub(crate) async fn exchange(&self, bytes: &[u8]) -> Answer {
        let mut stream = self.connect().await;
        patiently(async {
            // The server may answer and close the connection before it has read everything.
            let _ = stream.write_all(bytes).await;
            read_answer(&mut stream, bytes.starts_with(b"HEAD ")).await
        })
        .await
    }

    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let mut bytes = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\n", self.address).into_bytes();
        for (name, value) in headers {
            bytes.extend(format!("{name}: {value}\r\n").into_bytes());
        }
        bytes.extend(format!("content-length: {}\r\n\r\n", body.len()).into_bytes());
        bytes.extend(body);
        self.exchange(&bytes).await
    }

    pub(crate) async fn post(&self, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        self.request("POST", "/", headers, body).await
    }

    /// Calls a method in its version, with additional headers.
    pub(crate) async fn call_as(&self, headers: &[(&str, &str)], method: &str, params: &Value) -> Answer {
        let mut headers = headers.to_vec();
        headers.push(("content-type", "application/json"));
        if !method.contains('/') {
            headers.push(("A2A-Version", "1.0"));
        }
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        self.post(&headers, body.as_bytes()).await
    }

    /// Calls a method and returns the JSON-RPC response; HTTP must succeed.
    pub(crate) async fn call(&self, method: &str, params: &Value) -> Value {
        let answer = self.call_as(&[], method, params).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// Waits until a task has ended and returns it.
    pub(crate) async fn ended(&self, id: &TaskId) -> Value {
        let mut changed = self.store.changed.subscribe();
        patiently(async {
            loop {
                let task = self.call("GetTask", &json!({ "id": id.as_str() })).await["result"].clone();
                let state = task["status"]["state"].as_str().unwrap().to_owned();
                if state != "TASK_STATE_SUBMITTED" && state != "TASK_STATE_WORKING" {
                    return task;
                }
                changed.changed().await.unwrap();
            }
        })
        .await
    }
}

/// Returns an unused message id; a repeated id would mean the same message.
pub(crate) fn fresh() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    format!("m{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Returns a message of 1.0 with one text.
pub(crate) fn message(text: &str) -> Value {
    json!({ "messageId": fresh(), "role": "ROLE_USER", "parts": [{ "text": text }] })
}

/// Returns a message of 0.3 with one text.
pub(crate) fn message_03(text: &str) -> Value {
    json!({ "kind": "message", "messageId": fresh(), "role": "user", "parts": [{ "kind": "text", "text": text }] })
}

pub(crate) async fn patiently<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("timed out")
}

pub(crate) async fn read_answer(stream: &mut TcpStream, bodiless: bool) -> Answer {
    let mut bytes = Vec::new();
    loop {
        if let Some(answer) = Answer::parse(&bytes, bodiless) {
            return answer;
        }
        let read = stream.read_buf(&mut bytes).await.unwrap();
        assert_ne!(
            read,
            0,
            "the connection ended in the middle of an answer: {:?}",
            String::from_utf8_lossy(&bytes)
        );
    }
}

// === impl Answer ===

impl Answer {
    pub(crate) fn parse(bytes: &[u8], bodiless: bool) -> Option<Self> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let answer = Self { status, head, body: bytes[end..].to_vec() };
        let length = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
        (bodiless || answer.body.len() >= length).then_some(answer)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(": "))
            .find(|(n, _)| *n == name)
            .map(|(_, v)| v)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }
}
