//! A server on a port of its own, with a store in memory, an executor that does what the message says, and a client
//! that writes bytes.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use talaria_a2a::{Config, Server};
use talaria_turns::{
    Artifact, Content, ContextId, Emitted, Entry, Event, Executor, Failure, FailureKind, FinalState, Limits,
    Message, Outcome, Part, Principal, Route, Scope, StateKey, Store, StoreError, Task, TaskId, TaskKey,
    Turn, Turns, Usage,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Longest that anything here may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running server.
pub(crate) struct Host {
    pub(crate) address: SocketAddr,
    pub(crate) store: Arc<Memory>,
    pub(crate) script: Arc<Script>,
    pub(crate) shutdown: CancellationToken,
    pub(crate) tasks: TaskTracker,
    /// Ids of tasks whose turns wait, in the order they began.
    pub(crate) waiting: tokio::sync::Mutex<mpsc::UnboundedReceiver<TaskId>>,
}

/// Does what the first word of the message says, else echoes it.
pub(crate) struct Script {
    waiting: mpsc::UnboundedSender<TaskId>,
    /// A permit lets one waiting turn go on.
    pub(crate) go: Semaphore,
}

/// Tasks in memory; counts those that were made.
#[derive(Default)]
pub(crate) struct Memory {
    tasks: Mutex<HashMap<TaskKey, Arc<Task>>>,
    pub(crate) made: AtomicUsize,
    changed: watch::Sender<()>,
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
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let store = Arc::new(Memory::default());
        let (sender, waiting) = mpsc::unbounded_channel();
        let script = Arc::new(Script { waiting: sender, go: Semaphore::new(0) });
        let route = Arc::new(OneRoute(Arc::clone(&script)));
        let turns = Turns::new(Arc::clone(&store) as Arc<dyn Store>, route, limits);
        let mut config = Config::new(format!("http://{address}"));
        change(&mut config);
        let (shutdown, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(Server::new(config, turns).serve(listener, shutdown.clone()));
        let waiting = tokio::sync::Mutex::new(waiting);
        Self { address, store, script, shutdown, tasks, waiting }
    }

    /// Tasks ever made.
    pub(crate) fn made(&self) -> usize {
        self.store.made.load(Ordering::SeqCst)
    }

    /// The next task whose turn waits.
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
            // The server may answer, and close, before it has read all.
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

    /// A call in the version that the method belongs to, with more headers.
    pub(crate) async fn call_as(&self, headers: &[(&str, &str)], method: &str, params: &Value) -> Answer {
        let mut headers = headers.to_vec();
        headers.push(("content-type", "application/json"));
        if !method.contains('/') {
            headers.push(("A2A-Version", "1.0"));
        }
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        self.post(&headers, body.as_bytes()).await
    }

    /// A call that must succeed at the level of HTTP; the JSON-RPC response.
    pub(crate) async fn call(&self, method: &str, params: &Value) -> Value {
        let answer = self.call_as(&[], method, params).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// A task that has ended, by asking for it.
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

/// A message of 1.0 with one text.
pub(crate) fn message(text: &str) -> Value {
    json!({ "messageId": "m1", "role": "ROLE_USER", "parts": [{ "text": text }] })
}

/// A message of 0.3 with one text.
pub(crate) fn message_03(text: &str) -> Value {
    json!({ "kind": "message", "messageId": "m1", "role": "user", "parts": [{ "kind": "text", "text": text }] })
}

pub(crate) async fn patiently<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it takes too long")
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
    fn parse(bytes: &[u8], bodiless: bool) -> Option<Self> {
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

// === impl Script ===

struct OneRoute(Arc<Script>);

impl Route for OneRoute {
    fn pick(&self, _: &Principal, message: &Message) -> Result<Arc<dyn Executor>, String> {
        match message.metadata.as_ref().and_then(|metadata| metadata.get("talaria/executor")) {
            None => Ok(Arc::clone(&self.0) as Arc<dyn Executor>),
            Some(name) => Err(format!("no executor {name}")),
        }
    }
}

#[async_trait]
impl Executor for Script {
    fn name(&self) -> &str {
        "script"
    }

    async fn execute(&self, turn: Turn, scope: Scope) -> Result<Outcome, Failure> {
        let word = turn.text.split(' ').next().unwrap_or_default();
        let mut outcome = Outcome {
            state: FinalState::Completed,
            parts: vec![Part::text(format!("echo: {}", turn.text))],
            usage: None,
            metadata: None,
        };
        match word {
            "wait" => {
                self.waiting.send(turn.task.clone()).unwrap();
                self.go.acquire().await.unwrap().forget();
            }
            "fail" => return Err(Failure::new(FailureKind::Upstream, "[hermes-agent unreachable] refused")),
            "ask" => outcome.state = FinalState::InputRequired,
            "reject" => outcome.state = FinalState::Rejected,
            "file" => {
                let file = Part {
                    media_type: Some("text/plain".into()),
                    ..Part::new(Content::Bytes(b"tck".into()))
                };
                let artifact = Artifact {
                    id: "file".into(),
                    name: None,
                    description: None,
                    parts: vec![file],
                    metadata: None,
                    extensions: Vec::new(),
                };
                scope.emit(Emitted::Artifact { artifact, append: false, last: true }).await.unwrap();
            }
            "as-task" => outcome.metadata = json!({ "talaria/reply": "task" }).as_object().cloned(),
            "as-message" => outcome.metadata = json!({ "talaria/reply": "message" }).as_object().cloned(),
            "cost" => {
                outcome.usage = Some(Usage { input_tokens: 3, output_tokens: 5 });
                outcome.metadata =
                    json!({ "tool_trace": [{ "tool": "ls", "input": "." }] }).as_object().cloned();
            }
            _ => {}
        }
        Ok(outcome)
    }
}

// === impl Memory ===

impl Memory {
    fn fold(&self, key: &TaskKey, mut task: Task, events: &[Event]) -> Result<Arc<Task>, StoreError> {
        for event in events {
            task.apply(event)?;
        }
        let task = Arc::new(task);
        self.tasks.lock().unwrap().insert(key.clone(), Arc::clone(&task));
        self.changed.send_replace(());
        Ok(task)
    }
}

#[async_trait]
impl Store for Memory {
    async fn create(
        &self,
        key: &TaskKey,
        context: &ContextId,
        events: Vec<Event>,
    ) -> Result<Arc<Task>, StoreError> {
        self.made.fetch_add(1, Ordering::SeqCst);
        self.fold(key, Task::new(key.task.clone(), context.clone()), &events)
    }

    async fn append(
        &self,
        key: &TaskKey,
        expected: u64,
        events: Vec<Event>,
    ) -> Result<Arc<Task>, StoreError> {
        let task = self.task(key).await?.ok_or(StoreError::NotFound)?;
        if task.version != expected {
            return Err(StoreError::Conflict { expected, actual: task.version });
        }
        self.fold(key, Task::clone(&task), &events)
    }

    async fn task(&self, key: &TaskKey) -> Result<Option<Arc<Task>>, StoreError> {
        Ok(self.tasks.lock().unwrap().get(key).cloned())
    }

    async fn events(&self, _: &TaskKey, _: u64, _: usize) -> Result<Vec<Entry>, StoreError> {
        Ok(Vec::new())
    }

    async fn state(&self, _: &StateKey) -> Result<Option<Arc<[u8]>>, StoreError> {
        Ok(None)
    }

    async fn set_state(&self, _: &StateKey, _: Option<Arc<[u8]>>) -> Result<(), StoreError> {
        Ok(())
    }
}
