//! A turn as a chat completion, whole or streamed: deltas and tool progress go out as they come in.

use serde::Serialize;
use serde_json::Value;
use talaria_guest::events::{Event, ToolProgress, ToolState};
use talaria_guest::{Failure, FailureKind, Outcome, Request, Turn, config, http};

use super::memory::{self, Memory};
use super::reply::{self, Reply};
use super::restart::Sent;
use super::{KEY, OnRestart, Session, error_status, tell, unreachable};
use crate::history::Remembers;
use crate::{
    Chunk, ERROR_BYTES, Prompt, TURN_TIMEOUT_MS, WHOLE_BODY, at, base, bearer, first, is_event_stream,
    is_success, next_chunk, read, text,
};

/// The event that carries a tool's progress; all others carry chunks.
const TOOL_EVENT: &str = "hermes.tool.progress";

/// The longest text, in characters, that hermes-agent takes whole in a message of a chat completion.
const LONGEST: usize = 65_536;

/// A turn for the gateway's chat route.
pub struct Chat<'a> {
    turn: &'a Turn,
    prompt: Prompt<'a>,
    base_url: &'a str,
    model: &'a str,
    system_prompt: &'a str,
    /// None without the gateway's key.
    session: Option<Session>,
    remembers: Remembers,
    memory: Memory,
}

/// What the route is sent. A type and not a tree of values: a prompt may be long.
#[derive(Serialize)]
struct Body<'a> {
    messages: Vec<Said<'a>>,
    model: &'a str,
    stream: bool,
}

#[derive(Serialize)]
struct Said<'a> {
    content: Content<'a>,
    role: &'a str,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(&'a str),
    Prompt(&'a Prompt<'a>),
}

impl<'a> Chat<'a> {
    /// The turn, with the executor's settings; an empty one is the workspace's.
    #[must_use]
    pub fn new(
        turn: &'a Turn,
        prompt: Prompt<'a>,
        base_url: &'a str,
        model: &'a str,
        system_prompt: &'a str,
    ) -> Self {
        let session = config::has_secret(KEY).then(|| Session::of(turn));
        let (remembers, memory) = (Remembers::Session, Memory::default());
        Self { turn, prompt, base_url, model, system_prompt, session, remembers, memory }
    }

    /// The same, with a conversation that somebody else than the gateway may have to remember.
    #[must_use]
    pub fn remembered_by(self, remembers: Remembers) -> Self {
        let memory = Memory::of(remembers, self.session.as_ref(), self.base_url);
        Self { remembers, memory, ..self }
    }

    /// Refuses a text that hermes-agent would cut on this route without saying so. Other upstreams take what they take.
    ///
    /// # Errors
    /// What the caller reads.
    pub fn fits(&self) -> Result<(), Failure> {
        let length = self.prompt.length();
        if length <= LONGEST || memory::is_hermes_agent(self.base_url) != Some(true) {
            return Ok(());
        }
        let what = format!(
            "[hermes-agent error] the message has {length} characters, and hermes-agent cuts it at {LONGEST} on its chat \
             route; send less, or send it by the executor hermes-runs"
        );
        Err(Failure::new(FailureKind::InvalidTurn, what))
    }

    /// The answer, as a stream where somebody watches; or what became of it, for a turn that a restart interrupted.
    ///
    /// # Errors
    /// What the caller reads.
    pub fn answer(&self, on_restart: OnRestart) -> Result<Outcome, Failure> {
        let before = Sent::of(self.turn)?;
        let stream = before.as_ref().map_or(self.turn.streaming, |sent| sent.stream);
        let body = self.body(stream)?;
        let sent = match before {
            Some(sent) => {
                sent.again(self.turn, &body, base(self.base_url), on_restart)?;
                sent
            }
            None => {
                let sent = Sent::new(self.turn, stream, self.session.is_some(), &body);
                sent.keep(on_restart);
                sent
            }
        };
        if stream { self.read(&self.opened(body)?) } else { self.whole(body, sent.key.as_deref()) }
    }

    /// The answer in one piece. If we go away meanwhile, the gateway carries on.
    fn whole(&self, body: Vec<u8>, key: Option<&str>) -> Result<Outcome, Failure> {
        let request = self.request(body);
        let request = match key {
            Some(key) => request.header("idempotency-key", key),
            None => request,
        };
        let response = request.fetch().map_err(|error| unreachable(&error))?;
        self.follow(response.status, &response.headers);
        if !is_success(response.status) {
            return Err(error_status(response.status, &response.body));
        }
        reply::parse(&response.body)?.outcome(self.turn)
    }

    /// Asks for the answer as a stream, which the gateway gives up when it is dropped.
    ///
    /// # Errors
    /// What the caller reads.
    pub fn open(&self) -> Result<http::Exchange, Failure> {
        self.opened(self.body(true)?)
    }

    fn opened(&self, body: Vec<u8>) -> Result<http::Exchange, Failure> {
        let exchange = self.request(body).open().map_err(|error| unreachable(&error))?;
        self.follow(exchange.status(), &exchange.headers());
        Ok(exchange)
    }

    /// Reads that stream, and passes it on where somebody watches.
    ///
    /// # Errors
    /// What the caller reads.
    pub fn read(&self, exchange: &http::Exchange) -> Result<Outcome, Failure> {
        let unreachable = |error| unreachable(&error);
        let status = exchange.status();
        if !is_success(status) {
            let body = read(exchange, ERROR_BYTES).map_err(unreachable)?;
            return Err(error_status(status, &body));
        }
        if !is_event_stream(exchange) {
            return reply::parse(&read(exchange, WHOLE_BODY).map_err(unreachable)?)?.outcome(self.turn);
        }

        let mut reply = Reply::default();
        let mut said = String::new();
        while let Chunk::Data { event, data } = next_chunk(exchange).map_err(unreachable)? {
            if event == TOOL_EVENT {
                // Also where nobody watches: the answer says which tools it took.
                tell(&tool_progress(&data))?;
                continue;
            }
            reply.ending.note(&data);
            if let Some(delta) = at(&data, "/choices/0/delta").and_then(|delta| reply.beside.take(delta)) {
                // After a tool the gateway begins with line feeds that the final text does not have.
                let delta = if said.is_empty() { delta.trim_start_matches('\n') } else { delta.as_str() };
                if !delta.is_empty() {
                    said.push_str(delta);
                    if self.turn.streaming {
                        tell(&Event::TextDelta(delta.to_owned()))?;
                    }
                }
            }
        }
        if !reply.ending.is_finished() {
            return Err(reply.error().unwrap_or_else(|| Failure {
                retryable: true,
                ..Failure::new(
                    FailureKind::Upstream,
                    "[hermes-agent unreachable] the stream ended before the answer did",
                )
            }));
        }
        reply.text = Some(said);
        reply.outcome(self.turn)
    }

    fn body(&self, stream: bool) -> Result<Vec<u8>, Failure> {
        let workspace = self.turn.workspace.as_ref();
        let model = first(self.model, workspace.and_then(|w| w.model.as_ref()));
        let system = first(self.system_prompt, workspace.and_then(|w| w.system_prompt.as_ref()));
        let system = system.map(|text| Said { content: Content::Text(text), role: "system" });
        let past = self.memory.messages.iter();
        let past = past.map(|said| Said { content: Content::Text(&said.content), role: said.role });
        let said = Said { content: Content::Prompt(&self.prompt), role: "user" };
        self.prompt.body(&Body {
            messages: system.into_iter().chain(past).chain([said]).collect(),
            model: model.unwrap_or("hermes-agent"),
            stream,
        })
    }

    fn request(&self, body: Vec<u8>) -> Request {
        let request = Request::new("POST", format!("{}/chat/completions", base(self.base_url)))
            .body("application/json", body)
            .timeout_ms(TURN_TIMEOUT_MS);
        let request = bearer(request, KEY);
        match &self.session {
            // With a session's name the gateway takes what it has itself, whatever else it is sent.
            Some(session) if matches!(self.remembers, Remembers::Messages | Remembers::None) => {
                session.within(request)
            }
            Some(session) => session.join(request),
            None => request,
        }
    }

    fn follow(&self, status: u16, headers: &[http::Header]) {
        self.memory.learn(status, headers);
        if let Some(session) = &self.session {
            session.follow(headers);
        }
    }
}

fn tool_progress(data: &Value) -> Event {
    let name = text(data, "/tool").unwrap_or_else(|| "tool".into());
    Event::ToolProgress(ToolProgress {
        id: text(data, "/toolCallId").unwrap_or_else(|| name.clone()),
        state: match text(data, "/status").as_deref() {
            Some("completed") => ToolState::Completed,
            Some("failed" | "error") => ToolState::Failed,
            _ => ToolState::Started,
        },
        label: text(data, "/label"),
        metadata: None,
        name,
    })
}
