//! `talaria send`: one message to any A2A agent, and its reply.
//!
//! It reads the agent's card, picks the newest version that both sides speak over JSON-RPC, sends, and waits. The reply's
//! text is the only thing on standard output (`--output json`: the result as it came); state and ids go to standard
//! error. Every answer has a bound in time and size. What went wrong is one sentence with the way out, and the exit code
//! says whose turn it is: 1 the agent's, 64 the caller's.
//!
//! A card may name any address as the agent's. The message goes there, since that is what a card is for; a token does
//! not: it is sent only to where the caller pointed.
//!
//! The HTTP client is `egress`, with a grant for the addresses in question, because only that crate may hold one.

mod answer;
mod card;

use std::io::{self, IsTerminal, Read};
use std::process::ExitCode;
use std::time::Duration;

use secrecy::SecretString;
use serde_json::{Value, json};
use talaria_egress::{Access, Bounds, Egress, ErrorKind, Pattern, Request, Response, Secrets};

use crate::cli::{EXIT_USAGE, Protocol, Send};
use crate::config::HttpUrl;
use crate::output::{self, Format, Printable};

use answer::Answer;
use card::{Card, Interface};

/// The longest message from standard input: a book, and well below what servers take.
const LONGEST_MESSAGE: u64 = 1024 * 1024;
/// For the card: a static document.
const CARD_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest card; ours has a few KiB.
const LARGEST_CARD: usize = 1024 * 1024;
/// After this long without a reply a person wants to know what is going on.
const PATIENCE: Duration = Duration::from_secs(1);
/// How much of an answer that is no answer is shown.
const SHOWN: usize = 300;
/// The name under which the token is known to the HTTP client.
const TOKEN: &str = "TOKEN";

/// Why there is no reply, with the way out.
#[derive(Debug, thiserror::Error)]
enum SendError {
    /// The command line cannot be used.
    #[error("{0}")]
    Usage(String),
    /// The agent cannot be reached, or does not answer as one.
    #[error("{0}")]
    Agent(String),
    /// The agent answered with an error.
    #[error("the agent refused: {message} ({code}){}", hint(*.code))]
    Refused {
        /// JSON-RPC's number for it.
        code: i64,
        /// The agent's words.
        message: String,
        /// The whole error object.
        error: Value,
    },
}

/// Sends, prints the reply, and says how it went.
pub(crate) async fn run(args: &Send, format: Format, env: &dyn Fn(&str) -> Option<String>) -> ExitCode {
    match send(args, env, &mut io::stdin().lock()).await {
        Ok(answer) => {
            let printed = output::print(format, &answer);
            output::note(answer.summary());
            if let Some(next) = answer.next_step(&args.url) {
                output::note(next);
            }
            match printed {
                Ok(()) if answer.is_reply() => ExitCode::SUCCESS,
                Ok(()) => ExitCode::FAILURE,
                Err(error) => {
                    output::note(format!("error: the reply cannot be printed: {error}"));
                    ExitCode::FAILURE
                }
            }
        }
        Err(error) => {
            if format == Format::Json {
                // A program reads one document, whatever happens; that it cannot be printed changes nothing.
                drop(output::print(format, &Document(json!({ "error": error.document() }))));
            }
            output::note(format!("error: {error}"));
            ExitCode::from(if matches!(error, SendError::Usage(_)) { EXIT_USAGE } else { 1 })
        }
    }
}

async fn send(
    args: &Send,
    env: &dyn Fn(&str) -> Option<String>,
    stdin: &mut impl Read,
) -> Result<Answer, SendError> {
    if args.stream {
        let what = "this version has no streaming; leave out --stream, the reply comes in one piece";
        return Err(SendError::Usage(what.into()));
    }
    let agent = Agent::new(args, env)?;
    let text = message(&args.text, stdin)?;
    let card = agent.card().await?;
    let interface = card.interface(args.protocol).map_err(SendError::Agent)?;
    let envelope = envelope(args, &text, &interface);
    let reply = agent.call(&interface, &envelope);
    let result = match io::stderr().is_terminal() {
        true => patiently(reply).await?,
        false => reply.await?,
    };
    Answer::read(result)
        .ok_or_else(|| SendError::Agent("the agent's result is neither a message nor a task".into()))
}

/// Tells a person that something is going on.
async fn patiently<T>(reply: impl Future<Output = T>) -> T {
    let mut reply = std::pin::pin!(reply);
    match tokio::time::timeout(PATIENCE, reply.as_mut()).await {
        Ok(result) => result,
        Err(_) => {
            output::note("waiting for the reply… (Ctrl-C to stop waiting; the turn goes on)");
            reply.await
        }
    }
}

/// The message to send.
fn message(text: &str, stdin: &mut impl Read) -> Result<String, SendError> {
    if text != "-" {
        return Ok(text.to_owned());
    }
    let mut read = Vec::new();
    let unreadable = |error: io::Error| SendError::Usage(format!("standard input cannot be read: {error}"));
    stdin.take(LONGEST_MESSAGE + 1).read_to_end(&mut read).map_err(unreadable)?;
    if read.len() as u64 > LONGEST_MESSAGE {
        return Err(SendError::Usage("the message on standard input is longer than 1 MiB; send less".into()));
    }
    String::from_utf8(read)
        .map_err(|_| SendError::Usage("the message on standard input is not UTF-8 text".into()))
}

/// The request, in the interface's version.
fn envelope(args: &Send, text: &str, interface: &Interface) -> Value {
    let id = uuid::Uuid::new_v4().to_string();
    let (method, mut message, mut params) = match interface.protocol {
        Protocol::V1_0 => (
            "SendMessage",
            json!({ "messageId": id, "role": "ROLE_USER", "parts": [{ "text": text }] }),
            json!({}),
        ),
        Protocol::V0_3 => (
            "message/send",
            json!({ "kind": "message", "messageId": id, "role": "user", "parts": [{ "kind": "text", "text": text }] }),
            json!({ "configuration": { "blocking": true } }),
        ),
    };
    let ids = [("contextId", &args.context), ("taskId", &args.task)];
    if let Some(message) = message.as_object_mut() {
        let given = ids.into_iter().filter_map(|(key, id)| Some((key.to_owned(), Value::from(id.clone()?))));
        message.extend(given);
    }
    if let Some(params) = params.as_object_mut() {
        params.insert("message".into(), message);
        if let Some(tenant) = &interface.tenant {
            params.insert("tenant".into(), tenant.as_str().into());
        }
    }
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
}

/// The other side.
struct Agent {
    /// Where the caller pointed; the card is below.
    base: HttpUrl,
    token: Option<SecretString>,
    timeout: Duration,
    egress: Egress,
}

// === impl Agent ===

impl Agent {
    fn new(args: &Send, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, SendError> {
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
    async fn card(&self) -> Result<Card, SendError> {
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
    async fn call(&self, interface: &Interface, envelope: &Value) -> Result<Value, SendError> {
        let url = &interface.url;
        if self.token.is_some() && !self.is_mine(url) {
            let what = format!(
                "the card names {url} as the agent's address, and the token goes to `{}` only; \
                 if you trust that address, give it instead",
                self.base
            );
            return Err(SendError::Agent(what));
        }
        let request = Request {
            method: "POST".into(),
            url: url.clone(),
            headers: vec![
                ("content-type".into(), "application/json".into()),
                ("accept".into(), "application/json".into()),
                ("a2a-version".into(), interface.protocol.as_str().into()),
            ],
            body: envelope.to_string().into(),
            timeout: Some(self.timeout),
            ..Request::default()
        };
        let response = self.fetch(request).await?;
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
                Err(SendError::Agent(format!("{url} did not answer with JSON-RPC{}", shown(&response))))
            }
            _ => Err(self.unexpected(url, &response)),
        }
    }

    async fn fetch(&self, mut request: Request) -> Result<Response, SendError> {
        let mut access = Access { executor: "send".into(), ..Access::default() };
        access.bounds = Bounds { timeout: self.timeout, ..access.bounds };
        access.patterns = vec![everything_below(&request.url).map_err(SendError::Agent)?];
        if let Some(token) = self.token.as_ref().filter(|_| self.is_mine(&request.url)) {
            let mut secrets = Secrets::new();
            let unusable = |_| SendError::Usage("the token holds a line break or control character".into());
            secrets.insert(TOKEN, token.clone(), access.patterns.clone()).map_err(unusable)?;
            access.secrets = secrets;
            request.headers.push(("authorization".into(), format!("Bearer {{secret:{TOKEN}}}")));
        }
        let url = request.url.clone();
        let is_turn = request.method == "POST";
        self.egress.fetch(&access, request).await.map_err(|error| match error.kind() {
            ErrorKind::TimedOut if is_turn => {
                let limit = humantime::format_duration(self.timeout);
                SendError::Agent(format!(
                    "no reply within {limit}; the turn may still go on, --timeout waits longer"
                ))
            }
            ErrorKind::Dns | ErrorKind::Connect | ErrorKind::TimedOut => SendError::Agent(format!(
                "cannot reach {}: {error}; is the agent running there?",
                card::origin(&url)
            )),
            ErrorKind::Tls => {
                SendError::Agent(format!("no secure connection to {}: {error}", card::origin(&url)))
            }
            ErrorKind::InvalidRequest if !is_turn => {
                SendError::Usage(format!("{url} cannot be called: {error}"))
            }
            _ => SendError::Agent(format!("no answer from {}: {error}", card::origin(&url))),
        })
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

// === impl SendError ===

impl SendError {
    fn document(&self) -> Value {
        match self {
            Self::Refused { error, .. } => error.clone(),
            _ => json!({ "message": self.to_string() }),
        }
    }
}

/// The way out of an A2A error, where there is one.
fn hint(code: i64) -> &'static str {
    match code {
        -32001 => "; give the id of a task of yours, or leave out --task",
        -32004 => "; a task that is over takes no message, leave out --task and keep --context",
        -32008 => "; the agent requires a protocol extension that `talaria send` does not know",
        -32009 | -32601 => "; try the other version with --protocol",
        _ => "",
    }
}

/// A JSON document that is printed as it is.
#[derive(serde::Serialize)]
#[serde(transparent)]
struct Document(Value);

impl std::fmt::Display for Document {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests;
