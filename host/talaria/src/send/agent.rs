//! The other side: its card, calls to it, and the events that it sends.
//!
//! Every call has a bound in time and size, and goes through `egress` with a grant for the one address in question.

use std::time::Duration;

use secrecy::SecretString;
use serde_json::Value;
use talaria_egress::{
    Access, Bounds, Egress, ErrorKind, Exchange, HostPattern, Pattern, Request, Response, Secrets,
};

use crate::cli::Send;
use crate::config::HttpUrl;
use crate::output::Printable;

use super::SendError;
use super::card::{self, Card, Interface};

/// For the card: a static document.
const CARD_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest card; ours has a few KiB.
const LARGEST_CARD: usize = 1024 * 1024;
/// The largest event: what a whole answer may have, since an event may hold the whole task.
const LARGEST_EVENT: usize = 16 << 20;
/// What is read at once of an answer that is no stream.
const CHUNK: usize = 64 * 1024;
/// How much of an answer that is no answer is shown.
const SHOWN: usize = 300;
/// The name under which the token is known to the HTTP client.
const TOKEN: &str = "TOKEN";

/// The answer to a request for a stream.
pub(super) enum Incoming {
    /// A stream.
    Events(Exchange),
    /// A result in one piece, as some agents give it.
    Whole(Value),
}

/// The other side.
pub(super) struct Agent {
    /// Where the caller pointed; the card is below.
    base: HttpUrl,
    token: Option<SecretString>,
    /// For a whole turn.
    pub(super) timeout: Duration,
    egress: Egress,
}

// === impl Agent ===

impl Agent {
    pub(super) fn new(args: &Send, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, SendError> {
        let base = args.url.trim_end_matches('/');
        let base = base.strip_suffix("/.well-known/agent-card.json").unwrap_or(base);
        let base: HttpUrl = base.parse().map_err(SendError::Usage)?;
        everything_below(base.as_str()).map_err(SendError::Usage)?;
        if base.as_str().contains(['?', '#']) {
            return Err(SendError::Usage(format!("`{base}` has a query; give the agent's address alone")));
        }
        let token = match &args.token_env {
            Some(name) => {
                let unset = || {
                    SendError::Usage(format!("the environment variable `{name}` of --token-env is not set"))
                };
                Some(env(name).filter(|token| !token.is_empty()).map(SecretString::from).ok_or_else(unset)?)
            }
            None => None,
        };
        let egress = Egress::new(talaria_egress::Config::default());
        Ok(Self { base, token, timeout: args.timeout.get(), egress })
    }

    /// Finds the card: below the given address, else at its root, else where older agents have it.
    pub(super) async fn card(&self) -> Result<Card, SendError> {
        let root = card::origin(self.base.as_str());
        let mut places = vec![format!("{}/.well-known/agent-card.json", self.base)];
        if root != self.base.as_str() {
            places.push(format!("{root}/.well-known/agent-card.json"));
        }
        places.push(format!("{}/.well-known/agent.json", self.base));
        for place in &places {
            let request = Request {
                method: "GET".into(),
                url: place.clone(),
                headers: vec![("accept".into(), "application/json".into())],
                timeout: Some(CARD_TIMEOUT.min(self.timeout)),
                max_bytes: Some(LARGEST_CARD),
                ..Request::default()
            };
            let response = self.fetch(request).await?;
            match response.status {
                200 => {
                    let card = serde_json::from_slice(&response.body).ok().and_then(Card::read);
                    return card.ok_or_else(|| {
                        SendError::Agent(format!("{place} is no agent card{}", shown(&response)))
                    });
                }
                404 | 405 | 410 => {}
                _ => return Err(self.unexpected(place, &response)),
            }
        }
        let place = places.first().map(String::as_str).unwrap_or_default();
        Err(SendError::Agent(format!(
            "there is no agent card at {place}; is `{}` the address of an A2A agent?",
            self.base
        )))
    }

    /// Sends a request and takes the result out of the answer.
    pub(super) async fn call(
        &self,
        interface: &Interface,
        envelope: &Value,
        timeout: Duration,
    ) -> Result<Value, SendError> {
        let request = self.request(interface, envelope, "application/json", timeout)?;
        let response = self.fetch(request).await?;
        self.result(&interface.url, &response)
    }

    /// Sends a request that is answered with events; `after` is the id of the last one that the caller has.
    pub(super) async fn open(
        &self,
        interface: &Interface,
        envelope: &Value,
        after: Option<&str>,
        timeout: Duration,
    ) -> Result<Incoming, SendError> {
        let accept = "text/event-stream, application/json";
        let mut request = self.request(interface, envelope, accept, timeout)?;
        request.headers.extend(after.map(|id| ("last-event-id".into(), id.into())));
        let access = self.admit(&mut request)?;
        let failed = |error| self.failed(&interface.url, true, &error);
        let mut exchange = self.egress.open(&access, request).await.map_err(failed)?;
        let is_stream = exchange.headers().iter().any(|(name, value)| {
            name == "content-type" && value.to_ascii_lowercase().starts_with("text/event-stream")
        });
        if exchange.status() == 200 && is_stream {
            return Ok(Incoming::Events(exchange));
        }
        let (status, headers) = (exchange.status(), exchange.headers().to_vec());
        let mut body = Vec::new();
        while let Some(chunk) = exchange.read(CHUNK).await.map_err(failed)? {
            body.extend_from_slice(&chunk);
        }
        let response = Response { status, headers, body: body.into() };
        self.result(&interface.url, &response).map(Incoming::Whole)
    }

    /// The next event of a stream: its id, and the result in it. `None` where the stream ends or breaks off.
    pub(super) async fn event(
        &self,
        interface: &Interface,
        events: &mut Exchange,
    ) -> Result<Option<(Option<String>, Value)>, SendError> {
        let event = match events.next_event().await {
            Ok(Some(event)) => event,
            Ok(None) => return Ok(None),
            Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::TooLarge) => {
                return Err(self.failed(&interface.url, true, &error));
            }
            Err(_) => return Ok(None),
        };
        let response = Response { status: 200, headers: Vec::new(), body: event.data.into() };
        let result = self.result(&interface.url, &response)?;
        Ok(Some((event.id.filter(|id| !id.is_empty()), result)))
    }

    /// What is said where a turn took longer than it may.
    pub(super) fn overdue(&self) -> SendError {
        let limit = humantime::format_duration(self.timeout);
        SendError::Agent(format!("no reply within {limit}; the turn may still go on, --timeout waits longer"))
    }

    fn request(
        &self,
        interface: &Interface,
        envelope: &Value,
        accept: &str,
        timeout: Duration,
    ) -> Result<Request, SendError> {
        let url = &interface.url;
        if self.token.is_some() && !self.is_mine(url) {
            let what = format!(
                "the card names {url} as the agent's address, and the token goes to `{}` only; \
                 if you trust that address, give it instead",
                self.base
            );
            return Err(SendError::Agent(what));
        }
        Ok(Request {
            method: "POST".into(),
            url: url.clone(),
            headers: vec![
                ("content-type".into(), "application/json".into()),
                ("accept".into(), accept.into()),
                ("a2a-version".into(), interface.protocol.as_str().into()),
            ],
            body: envelope.to_string().into(),
            timeout: Some(timeout),
            ..Request::default()
        })
    }

    /// Takes the result out of an answer.
    fn result(&self, url: &str, response: &Response) -> Result<Value, SendError> {
        let answer: Option<Value> = serde_json::from_slice(&response.body).ok();
        let error = answer.as_ref().and_then(|answer| answer.get("error"));
        if let Some((error, code)) = error.and_then(|error| Some((error, error.get("code")?.as_i64()?))) {
            let message =
                error.get("message").and_then(Value::as_str).unwrap_or("no reason given").to_owned();
            return Err(SendError::Refused { code, message, error: error.clone() });
        }
        match (response.status, answer) {
            (200, Some(Value::Object(mut answer))) if answer.contains_key("result") => {
                Ok(answer.remove("result").unwrap_or_default())
            }
            (200, _) => {
                Err(SendError::Agent(format!("{url} did not answer with JSON-RPC{}", shown(response))))
            }
            _ => Err(self.unexpected(url, response)),
        }
    }

    async fn fetch(&self, mut request: Request) -> Result<Response, SendError> {
        let access = self.admit(&mut request)?;
        let url = request.url.clone();
        let is_turn = request.method == "POST";
        self.egress.fetch(&access, request).await.map_err(|error| self.failed(&url, is_turn, &error))
    }

    /// Grants a request, and puts the token into it where it is the caller's agent that is asked.
    fn admit(&self, request: &mut Request) -> Result<Access, SendError> {
        let mut access = Access { executor: "send".into(), ..Access::default() };
        access.bounds = Bounds { timeout: self.timeout, sse_event: LARGEST_EVENT, ..access.bounds };
        access.patterns = vec![everything_below(&request.url).map_err(SendError::Agent)?];
        // Whoever runs the command named the agent, wherever its name leads.
        access.private = access.patterns.iter().map(HostPattern::from).collect();
        if let Some(token) = self.token.as_ref().filter(|_| self.is_mine(&request.url)) {
            let mut secrets = Secrets::new();
            let unusable = |_| SendError::Usage("the token holds a line break or control character".into());
            secrets.insert(TOKEN, token.clone(), access.patterns.clone()).map_err(unusable)?;
            access.secrets = secrets;
            request.headers.push(("authorization".into(), format!("Bearer {{secret:{TOKEN}}}")));
        }
        Ok(access)
    }

    fn failed(&self, url: &str, is_turn: bool, error: &talaria_egress::Error) -> SendError {
        match error.kind() {
            ErrorKind::TimedOut if is_turn => self.overdue(),
            ErrorKind::Dns | ErrorKind::Connect | ErrorKind::TimedOut => SendError::Agent(format!(
                "cannot reach {}: {error}; is the agent running there?",
                card::origin(url)
            )),
            ErrorKind::Tls => {
                SendError::Agent(format!("no secure connection to {}: {error}", card::origin(url)))
            }
            ErrorKind::InvalidRequest if !is_turn => {
                SendError::Usage(format!("{url} cannot be called: {error}"))
            }
            _ => SendError::Agent(format!("no answer from {}: {error}", card::origin(url))),
        }
    }

    /// Whether an address is where the caller pointed.
    fn is_mine(&self, url: &str) -> bool {
        card::same_origin(self.base.as_str(), url)
    }

    fn unexpected(&self, url: &str, response: &Response) -> SendError {
        let fix = match (response.status, &self.token) {
            (401, None) => "; it wants a token, give its environment variable with --token-env NAME",
            (401 | 403, Some(_)) => "; it does not accept the token",
            (429 | 503, _) => "; it is busy, try again later",
            (300..=399, _) => "; give the address that it redirects to",
            _ => "",
        };
        SendError::Agent(format!("{url} answered with HTTP {}{fix}{}", response.status, shown(response)))
    }
}

/// A grant for one origin.
fn everything_below(url: &str) -> Result<Pattern, String> {
    let pattern = format!("* {}/*", card::origin(url));
    let unusable =
        |error: talaria_egress::InvalidPattern| format!("`{url}` cannot be called: {}", error.problem);
    pattern.parse().map_err(unusable)
}

/// The beginning of a body that is not what was expected.
fn shown(response: &Response) -> String {
    let text = String::from_utf8_lossy(&response.body);
    let text: String = text.trim().chars().take(SHOWN).collect();
    match text.is_empty() {
        true => String::new(),
        false => format!(":\n{}", Printable(&text)),
    }
}
