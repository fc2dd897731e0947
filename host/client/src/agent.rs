//! An agent: its card, calls to it, and the events that it streams.
//!
//! Every call has a bound in time and size, and goes through an `egress` client for the one origin in question.

use std::time::Duration;

use secrecy::SecretString;
use serde_json::Value;
use talaria_config::HttpUrl;
use talaria_egress::{Bounds, Egress, ErrorKind, Exchange, Origin, OriginClient, Request, Response};

use crate::answer::Answer;
use crate::card::{self, Card, Interface, Protocol};
use crate::error::{ClientError, excerpt};
use crate::request::{self, Delivery, Message, TaskMethod};
use crate::stream::TurnStream;

/// Time limit for the card, which is a static document.
const CARD_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest card, in bytes; ours has a few KiB.
const LARGEST_CARD: usize = 1024 * 1024;
/// The largest event, in bytes: as much as a whole answer, since an event may hold the whole task.
const LARGEST_EVENT: usize = 16 << 20;
/// Bytes read at once of an answer that is not a stream.
const CHUNK: usize = 64 * 1024;

/// Which agent to call, and how.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    /// The agent's address; its card is below it.
    pub url: String,
    /// The bearer token to send.
    pub token: Option<SecretString>,
    /// Time limit for a whole turn.
    pub timeout: Duration,
}

/// An agent at the address that the caller gave.
#[derive(Debug, Clone)]
pub struct Agent {
    base: String,
    origin: Origin,
    token: Option<SecretString>,
    timeout: Duration,
    egress: Egress,
}

/// A client of one interface of an agent. Cheap to clone; clones share connections.
#[derive(Debug, Clone)]
pub struct Client {
    agent: Agent,
    interface: Interface,
}

/// The answer to a request for a stream.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// A stream.
    Events(Box<Exchange>),
    /// A result in one piece, as some agents send it.
    Whole(Value),
}

// === impl Agent ===

impl Agent {
    /// Checks the options; nothing is connected yet.
    pub fn new(options: AgentOptions) -> Result<Self, ClientError> {
        let AgentOptions { url, token, timeout } = options;
        let base = url.trim_end_matches('/');
        let base = base.strip_suffix("/.well-known/agent-card.json").unwrap_or(base);
        let base: HttpUrl = base.parse().map_err(ClientError::InvalidInput)?;
        let base = base.to_string();
        let origin = parse_origin(&base).map_err(ClientError::InvalidInput)?;
        if base.contains(['?', '#']) {
            let what = format!("`{base}` has a query; give the agent's address alone");
            return Err(ClientError::InvalidInput(what));
        }
        let egress = Egress::new(talaria_egress::Config::default());
        Ok(Self { base, origin, token, timeout, egress })
    }

    /// Time limit for a whole turn.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Fetches the card: below the given address, else at its root, else where 0.2 agents keep it.
    pub async fn card(&self) -> Result<Card, ClientError> {
        let root = self.origin.to_string();
        let mut candidates = vec![format!("{}/.well-known/agent-card.json", self.base)];
        if root != self.base {
            candidates.push(format!("{root}/.well-known/agent-card.json"));
        }
        candidates.push(format!("{}/.well-known/agent.json", self.base));
        for url in &candidates {
            let request = Request {
                method: "GET".into(),
                url: url.clone(),
                headers: vec![("accept".into(), "application/json".into())],
                timeout: Some(CARD_TIMEOUT.min(self.timeout)),
                max_bytes: Some(LARGEST_CARD),
                ..Request::default()
            };
            let response = self.fetch(request).await?;
            match response.status {
                200 => {
                    let card = serde_json::from_slice(&response.body).ok().and_then(Card::read);
                    let not_a_card =
                        || ClientError::Agent(format!("{url} is no agent card{}", excerpt(&response)));
                    return card.ok_or_else(not_a_card);
                }
                404 | 405 | 410 => {}
                _ => return Err(self.unexpected(url, &response)),
            }
        }
        let card = candidates.into_iter().next().unwrap_or_default();
        Err(ClientError::NoCard { card, agent: self.base.clone() })
    }

    /// Returns a client of one of the agent's interfaces.
    pub fn client(&self, interface: Interface) -> Client {
        Client { agent: self.clone(), interface }
    }

    /// Returns a client that posts to the given address itself, without reading the card.
    pub fn direct(&self, protocol: Protocol) -> Client {
        self.client(Interface { url: self.base.clone(), protocol, tenant: None })
    }

    async fn fetch(&self, request: Request) -> Result<Response, ClientError> {
        let client = self.origin_client(&request.url)?;
        let url = request.url.clone();
        let is_turn = request.method == "POST";
        Box::pin(client.fetch(request)).await.map_err(|error| self.failure(&url, is_turn, &error))
    }

    /// Returns a client for the origin of an address, with the token if that is the caller's own agent.
    fn origin_client(&self, url: &str) -> Result<OriginClient, ClientError> {
        let origin = parse_origin(url).map_err(ClientError::Agent)?;
        let bounds = Bounds { timeout: self.timeout, sse_event: LARGEST_EVENT, ..Bounds::default() };
        let client = self.egress.origin_client("send", &origin).with_bounds(bounds);
        match self.token.clone().filter(|_| self.is_own_origin(url)) {
            Some(token) => client.with_bearer(token).map_err(|_| {
                ClientError::InvalidInput("the token holds a line break or control character".into())
            }),
            None => Ok(client),
        }
    }

    fn failure(&self, url: &str, is_turn: bool, error: &talaria_egress::Error) -> ClientError {
        let origin = url.parse().map_or_else(|_| url.to_owned(), |origin: Origin| origin.to_string());
        match error.kind() {
            ErrorKind::TimedOut if is_turn => ClientError::TimedOut { limit: self.timeout },
            ErrorKind::Dns | ErrorKind::Connect | ErrorKind::TimedOut => {
                ClientError::Agent(format!("cannot reach {origin}: {error}; is the agent running there?"))
            }
            ErrorKind::Tls => ClientError::Agent(format!("no secure connection to {origin}: {error}")),
            ErrorKind::InvalidRequest if !is_turn => {
                ClientError::InvalidInput(format!("{url} cannot be called: {error}"))
            }
            _ => ClientError::Agent(format!("no answer from {origin}: {error}")),
        }
    }

    /// Whether an address has the origin that the caller gave.
    fn is_own_origin(&self, url: &str) -> bool {
        card::same_origin(&self.base, url)
    }

    fn unexpected(&self, url: &str, response: &Response) -> ClientError {
        let (status, with_token) = (response.status, self.token.is_some());
        ClientError::Status { url: url.into(), status, with_token, excerpt: excerpt(response) }
    }
}

// === impl Client ===

impl Client {
    /// The agent behind this client.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// The interface that this client calls.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Sends a message and waits for the answer, or only for the task if the delivery is detached.
    pub async fn send(&self, message: &Message, delivery: Delivery) -> Result<Answer, ClientError> {
        let envelope = request::send(&self.interface, message, delivery);
        let result = self.exchange(&envelope, self.agent.timeout).await?;
        let neither = || ClientError::Agent("the agent's result is neither a message nor a task".into());
        Answer::read(result).ok_or_else(neither)
    }

    /// Sends a message and follows the turn.
    pub fn stream(&self, message: &Message) -> TurnStream<'_> {
        let envelope = request::send(&self.interface, message, Delivery::Streamed);
        TurnStream::new(self, envelope)
    }

    /// Reads a task.
    pub async fn get_task(&self, id: &str) -> Result<Value, ClientError> {
        self.about_task(id, TaskMethod::Get, self.agent.timeout).await
    }

    /// Cancels a task.
    pub async fn cancel_task(&self, id: &str) -> Result<Value, ClientError> {
        self.about_task(id, TaskMethod::Cancel, self.agent.timeout).await
    }

    /// Calls any method and returns its result.
    pub async fn call(&self, method: &str, params: Value) -> Result<Value, ClientError> {
        self.exchange(&request::call(&self.interface, method, params), self.agent.timeout).await
    }

    pub(crate) async fn about_task(
        &self,
        id: &str,
        method: TaskMethod,
        timeout: Duration,
    ) -> Result<Value, ClientError> {
        self.exchange(&request::task(&self.interface, id, method), timeout).await
    }

    async fn exchange(&self, envelope: &Value, timeout: Duration) -> Result<Value, ClientError> {
        let request = self.request(envelope, "application/json", timeout)?;
        let response = self.agent.fetch(request).await?;
        self.result(&response)
    }

    /// Sends a request that is answered with events. `after` is the id of the last event that the caller has.
    pub(crate) async fn open(
        &self,
        envelope: &Value,
        after: Option<&str>,
        timeout: Duration,
    ) -> Result<Incoming, ClientError> {
        let mut request = self.request(envelope, "text/event-stream, application/json", timeout)?;
        request.headers.extend(after.map(|id| ("last-event-id".into(), id.into())));
        let client = self.agent.origin_client(&self.interface.url)?;
        let failed = |error| self.agent.failure(&self.interface.url, true, &error);
        let mut exchange = Box::pin(client.open(request)).await.map_err(failed)?;
        let is_stream = exchange.headers().iter().any(|(name, value)| {
            name == "content-type" && value.to_ascii_lowercase().starts_with("text/event-stream")
        });
        if exchange.status() == 200 && is_stream {
            return Ok(Incoming::Events(Box::new(exchange)));
        }
        let (status, headers) = (exchange.status(), exchange.headers().to_vec());
        let mut body = Vec::new();
        while let Some(chunk) = exchange.read(CHUNK).await.map_err(failed)? {
            body.extend_from_slice(&chunk);
        }
        let response = Response { status, headers, body: body.into() };
        self.result(&response).map(Incoming::Whole)
    }

    /// Reads the next event of a stream: its id and its result. Returns `None` where the stream ends or breaks off.
    pub(crate) async fn event(
        &self,
        events: &mut Exchange,
    ) -> Result<Option<(Option<String>, Value)>, ClientError> {
        let event = match events.next_event().await {
            Ok(Some(event)) => event,
            Ok(None) => return Ok(None),
            Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::TooLarge) => {
                return Err(self.agent.failure(&self.interface.url, true, &error));
            }
            Err(_) => return Ok(None),
        };
        let response = Response { status: 200, headers: Vec::new(), body: event.data.into() };
        let result = self.result(&response)?;
        Ok(Some((event.id.filter(|id| !id.is_empty()), result)))
    }

    fn request(&self, envelope: &Value, accept: &str, timeout: Duration) -> Result<Request, ClientError> {
        let url = &self.interface.url;
        if self.agent.token.is_some() && !self.agent.is_own_origin(url) {
            return Err(ClientError::ForeignAddress { url: url.clone(), agent: self.agent.base.clone() });
        }
        Ok(Request {
            method: "POST".into(),
            url: url.clone(),
            headers: vec![
                ("content-type".into(), "application/json".into()),
                ("accept".into(), accept.into()),
                ("a2a-version".into(), self.interface.protocol.as_str().into()),
            ],
            body: envelope.to_string().into(),
            timeout: Some(timeout),
            ..Request::default()
        })
    }

    /// Takes the result out of a JSON-RPC response.
    fn result(&self, response: &Response) -> Result<Value, ClientError> {
        let url = &self.interface.url;
        let answer: Option<Value> = serde_json::from_slice(&response.body).ok();
        let error = answer.as_ref().and_then(|answer| answer.get("error"));
        if let Some((error, code)) = error.and_then(|error| Some((error, error.get("code")?.as_i64()?))) {
            let message =
                error.get("message").and_then(Value::as_str).unwrap_or("no reason given").to_owned();
            return Err(ClientError::Rejected { code, message, error: error.clone() });
        }
        match (response.status, answer) {
            (200, Some(Value::Object(mut answer))) if answer.contains_key("result") => {
                Ok(answer.remove("result").unwrap_or_default())
            }
            (200, _) => {
                Err(ClientError::Agent(format!("{url} did not answer with JSON-RPC{}", excerpt(response))))
            }
            _ => Err(self.agent.unexpected(url, response)),
        }
    }
}

fn parse_origin(url: &str) -> Result<Origin, String> {
    url.parse().map_err(|error: talaria_egress::Error| format!("`{url}` cannot be called: {error}"))
}
