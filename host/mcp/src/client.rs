//! A server that the operator names, as tools for executors: an MCP client over streamable HTTP.
//!
//! [`RemoteServer`] is a [`Toolbox`]. Its list of tools is read in the background ([`RemoteServer::run`]) and cached, so that
//! a server that is down or slow delays neither the start nor a turn: the turn sees the last good list, and a call of a tool
//! fails with a sentence for the model. The list is read again at an interval, when the server says that it has changed, and
//! when a tool is called that is not in it; not more often than [`Pace::rest`] allows.
//!
//! What a server says is untrusted. It is bounded on the way in, secrets of this host are redacted, and invisible characters
//! are written out (`text`). A result is not wrapped in markers, because it reaches the model as the result of a tool
//! already. An error of a tool is an ordinary result that says so, which a model can act on.
//!
//! A call ends at the server's `timeout`. If the turn is over before that, the server is told. Only so many calls run at
//! once; further ones wait, within the same deadline.
//!
//! Why not `rmcp`: see `docs/decisions/057-servers-of-tools.md`.

pub(crate) mod catalogue;
pub(crate) mod connection;
mod fault;
pub(crate) mod message;
pub(crate) mod result;
pub(crate) mod text;

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use secrecy::SecretString;
use serde_json::{Value, json};
use talaria_egress::{Bounds, Egress, Error, Origin};
use talaria_turns::{CallingTurn, ToolError, ToolSpec, Toolbox};
use tokio::sync::{Mutex, Semaphore, mpsc, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use catalogue::{Catalogue, prefix};
use connection::{ANSWER, Abandoned, Connection};
pub use fault::Fault;
use message::Refused;
use result::CallResult;

/// Calls of one server at once. A server that is built for one agent answers a few.
const AT_ONCE: usize = 8;
/// The longest arguments of a call, in bytes.
const ARGUMENTS: usize = 1 << 20;
/// How often failed calls are logged: a model may try again at once. The metrics count them all.
const LOG_EVERY: Duration = Duration::from_secs(60);
/// How long the first turns wait for the first list, counted from the start.
const FIRST_LIST: Duration = Duration::from_secs(2);

/// A server, as the operator describes it.
#[derive(Debug, Clone)]
pub struct RemoteConfig {
    /// Its name, with which the names of its tools begin.
    pub name: String,
    /// The address of its endpoint.
    pub url: String,
    /// Sent as `Authorization: Bearer`.
    pub token: Option<SecretString>,
    /// Further headers.
    pub headers: Vec<(String, SecretString)>,
    /// How long a call may take.
    pub timeout: Duration,
    /// The tools that are offered, by their names on the server; all, if there is no list.
    pub include: Option<Vec<String>>,
    /// Whether the name in the address may lead into a private network.
    pub private: bool,
}

/// How often a list of tools is read.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// The pause after a list that was read. A minute: long enough for a server, short enough for an operator who waits.
    pub refresh: Duration,
    /// The pause after a failure. 10 s, as between two probes of an executor.
    pub retry: Duration,
    /// The shortest pause, whatever a server or a guest asks for.
    pub rest: Duration,
}

/// How a call of a tool ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd {
    /// The tool did what it was asked.
    Done,
    /// The call was wrong or not allowed.
    Refused,
    /// What the tool needs failed.
    Failed,
    /// The caller did not wait for the end.
    Abandoned,
}

/// Counts the calls of a server.
pub type ServerObserver = Arc<dyn Fn(&str, CallEnd) + Send + Sync>;

/// A server of tools. Its list is kept while [`RemoteServer::run`] runs; without that it is read once.
pub struct RemoteServer {
    name: String,
    include: Option<Vec<String>>,
    timeout: Duration,
    connection: Connection,
    abandoned: Mutex<mpsc::Receiver<Abandoned>>,
    known: watch::Sender<Known>,
    /// When the list was last asked for. Locked while it is.
    refreshed: Mutex<Option<Instant>>,
    slots: Semaphore,
    /// When a failed call was last logged.
    logged: std::sync::Mutex<Option<Instant>>,
    observer: ServerObserver,
    pace: Pace,
    born: Instant,
}

/// What is known of a server.
#[derive(Debug, Clone, Default)]
struct Known {
    /// The last list that was read.
    catalogue: Option<Arc<Catalogue>>,
    /// Why the last attempt failed, if it did.
    fault: Option<Fault>,
}

/// A call in progress; it is counted when this value is dropped.
struct Counted<'a> {
    server: &'a RemoteServer,
    end: CallEnd,
}

// === impl RemoteServer ===

impl RemoteServer {
    /// A server that is not contacted yet.
    ///
    /// # Errors
    /// If the URL is not valid, or a header cannot be sent.
    pub fn new(config: RemoteConfig, egress: &Egress, observer: ServerObserver) -> Result<Self, Error> {
        let RemoteConfig { name, url, token, headers, timeout, include, private } = config;
        let origin: Origin = url.parse()?;
        // The deadline of a call is kept here; the bound is for what it does not cover.
        let bounds = Bounds {
            timeout: timeout.saturating_mul(2),
            request_body: 2 * ARGUMENTS,
            stream_bytes: ANSWER,
            sse_event: ANSWER,
            ..Bounds::default()
        };
        let mut client = egress.origin_client(&format!("tools.servers.{name}"), &origin).with_bounds(bounds);
        if !private {
            client = client.public_only();
        }
        if let Some(token) = token {
            client = client.with_bearer(token).map_err(|invalid| {
                Error::new(talaria_egress::ErrorKind::InvalidRequest, invalid.to_string())
            })?;
        }
        for (header, value) in headers {
            client = client.with_secret_header(&header, value)?;
        }
        let (connection, abandoned) = Connection::new(client, url, timeout);
        Ok(Self {
            name,
            include,
            timeout,
            connection,
            abandoned: Mutex::new(abandoned),
            known: watch::Sender::default(),
            refreshed: Mutex::default(),
            slots: Semaphore::new(AT_ONCE),
            logged: std::sync::Mutex::default(),
            observer,
            pace: Pace::default(),
            born: Instant::now(),
        })
    }

    /// Replaces the default pace.
    #[must_use]
    pub fn with_pace(self, pace: Pace) -> Self {
        Self { pace, ..self }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether its list of tools was read when it was last asked for.
    #[must_use]
    pub fn is_up(&self) -> bool {
        let known = self.known.borrow();
        known.catalogue.is_some() && known.fault.is_none()
    }

    /// Asks for the list of tools once, and ends the session. Returns the number of tools, and what was left out.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub async fn check(&self) -> Result<(usize, Vec<String>), Fault> {
        let listed = self.connection.list(&self.name, self.include.as_deref()).await;
        self.connection.close().await;
        listed.map(|Catalogue { tools, warnings }| (tools.len(), warnings))
    }

    /// Keeps the list of tools, and tells the server of calls that nobody waits for, until `shutdown`; then ends the session.
    pub async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let keep_list = async {
            loop {
                let was_read = self.refresh().await;
                let pause = if was_read { self.pace.refresh } else { self.pace.retry };
                let _ = timeout(pause, self.connection.list_changed.notified()).await;
                tokio::time::sleep(self.pace.rest).await;
            }
        };
        let tell = async {
            let mut abandoned = self.abandoned.lock().await;
            while let Some(call) = abandoned.recv().await {
                self.connection.cancel(call).await;
            }
        };
        tokio::select! {
            () = async { tokio::join!(keep_list, tell); } => {}
            () = shutdown.cancelled() => {}
        }
        self.connection.close().await;
    }

    /// Reads the list, unless that was done a moment ago. Returns whether the last attempt succeeded.
    async fn refresh(&self) -> bool {
        let mut refreshed = self.refreshed.lock().await;
        if refreshed.is_none_or(|at| at.elapsed() >= self.pace.rest) {
            let listed = self.connection.list(&self.name, self.include.as_deref()).await;
            *refreshed = Some(Instant::now());
            self.learn(listed);
        }
        self.is_up()
    }

    fn learn(&self, listed: Result<Catalogue, Fault>) {
        let before = self.known.borrow().clone();
        let server = self.name.as_str();
        match listed {
            Ok(catalogue) => {
                if before.fault.is_some() || before.catalogue.as_deref() != Some(&catalogue) {
                    info!(server, tools = catalogue.tools.len(), "the server's list of tools was read");
                    for warning in &catalogue.warnings {
                        warn!(server, "a tool is left out: {warning}");
                    }
                }
                self.known.send_replace(Known { catalogue: Some(Arc::new(catalogue)), fault: None });
            }
            Err(fault) => {
                if before.fault.as_ref() != Some(&fault) {
                    warn!(server, "the server of tools cannot be used: {fault}; {}", fault.fix);
                }
                self.known.send_replace(Known { fault: Some(fault), ..before });
            }
        }
    }

    /// The name of a tool on the server, by the name that it is offered under.
    async fn remote(&self, name: &str) -> Result<String, ToolError> {
        let named = |known: &Known| {
            known.catalogue.as_ref().and_then(|catalogue| Some(catalogue.named(name)?.remote.clone()))
        };
        let found = named(&self.known.borrow());
        if let Some(remote) = found {
            return Ok(remote);
        }
        let _ = timeout(self.timeout, self.refresh()).await;
        let known = self.known.borrow();
        match (named(&known), &known.catalogue, &known.fault) {
            (Some(remote), ..) => Ok(remote),
            (None, Some(_), _) => Err(ToolError::Unknown(name.to_owned())),
            (None, None, Some(fault)) => Err(self.unavailable(&fault.what)),
            (None, None, None) => Err(self.unavailable("it has not answered yet")),
        }
    }

    /// The error for the model: what happened, and what to do.
    fn unavailable(&self, what: &str) -> ToolError {
        let name = &self.name;
        ToolError::Unavailable(format!(
            "the tools of {name:?} cannot be used now: {what}; go on without them, and say so if the answer needs them"
        ))
    }

    async fn run_tool(
        &self,
        remote: &str,
        arguments: Value,
        trace: Option<&str>,
    ) -> Result<CallResult, ToolError> {
        let called = async {
            // It fails only if it is closed, which it never is.
            let _slot = self.slots.acquire().await;
            self.connection.call(remote, arguments, trace).await
        };
        // The wait for a slot counts.
        let answer = match timeout(self.timeout, called).await {
            Ok(answer) => answer.map_err(|fault| self.failed(&fault))?,
            Err(_) => return Err(self.failed(&Fault::too_slow(self.timeout))),
        };
        match answer {
            Ok(result) => CallResult::read(&result)
                .ok_or_else(|| self.failed(&Fault::protocol("its answer is not the result of a tool"))),
            Err(Refused { code, reason }) => {
                // Method or parameters are wrong: the tool may be gone, or have another schema.
                if matches!(code, -32_602 | -32_601) {
                    self.connection.list_changed.notify_one();
                }
                Ok(CallResult::failed(&reason))
            }
        }
    }

    fn failed(&self, fault: &Fault) -> ToolError {
        let server = self.name.as_str();
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        match *logged {
            Some(at) if at.elapsed() < LOG_EVERY => debug!(server, "a call of a tool failed: {fault}"),
            _ => {
                *logged = Some(Instant::now());
                warn!(server, "a call of a tool failed: {fault}; {}", fault.fix);
            }
        }
        self.unavailable(&fault.what)
    }
}

#[async_trait]
impl Toolbox for RemoteServer {
    async fn tools(&self) -> Vec<ToolSpec> {
        let is_tried = |known: &Known| known.catalogue.is_some() || known.fault.is_some();
        if !is_tried(&self.known.borrow()) {
            let _ = timeout_at(self.born + FIRST_LIST, self.refresh()).await;
        }
        let known = self.known.borrow();
        known.catalogue.iter().flat_map(|catalogue| &catalogue.tools).map(|tool| tool.spec.clone()).collect()
    }

    async fn call(&self, turn: &CallingTurn, name: &str, arguments: Value) -> Result<String, ToolError> {
        if !name.starts_with(&prefix(&self.name)) {
            return Err(ToolError::Unknown(name.to_owned()));
        }
        let mut counted = Counted { server: self, end: CallEnd::Abandoned };
        let arguments = match arguments {
            Value::Null => json!({}),
            arguments => arguments,
        };
        if !arguments.is_object() || arguments.to_string().len() > ARGUMENTS {
            counted.end = CallEnd::Refused;
            let reason = format!("the arguments must be a JSON object of at most {ARGUMENTS} bytes");
            return Ok(CallResult::failed(&reason).text);
        }
        let called = async {
            Box::pin(self.run_tool(&self.remote(name).await?, arguments, turn.traceparent.as_deref())).await
        };
        let called = called.await;
        counted.end = match &called {
            Ok(CallResult { is_error: false, .. }) => CallEnd::Done,
            Ok(_) | Err(ToolError::Unknown(_)) => CallEnd::Refused,
            Err(ToolError::Unavailable(_)) => CallEnd::Failed,
        };
        called.map(|result| result.text)
    }
}

// === impl Counted ===

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        (self.server.observer)(&self.server.name, self.end);
    }
}

// === impl Pace ===

impl Default for Pace {
    fn default() -> Self {
        Self {
            refresh: Duration::from_secs(60),
            retry: Duration::from_secs(10),
            rest: Duration::from_secs(2),
        }
    }
}
