//! A turn as a chat completion, whole or streamed. Deltas and tool progress are passed on as they arrive.

use serde::Serialize;
use serde_json::Value;
use talaria_guest::events::{Event, ToolProgress, ToolState};
use talaria_guest::{Failure, FailureKind, Outcome, Request, Turn, config, http};

use super::memory::{self, Memory};
use super::reply::{self, Reply};
use super::restart::Sent;
use super::runs::{self, Gateway, Start};
use super::{KEY, OnRestart, Session, emit, error_status, unreachable};
use crate::completion::Plain;
use crate::history::Remembers;
use crate::{
    DONE, ERROR_BYTES, Prompt, WHOLE_BODY, at, base, bearer, first, is_event_stream, is_success, read, text,
    turn_timeout_ms,
};

/// The event with a tool's progress; all other events are chunks.
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
    /// `None` without the gateway's key.
    session: Option<Session>,
    remembers: Remembers,
    memory: Memory,
}

/// The request body. A type and not a tree of values, because a prompt may be long.
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
    /// The turn, with the executor's settings; the workspace's stand in for an empty one.
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

    /// The same, in a context that the gateway may not remember by itself.
    #[must_use]
    pub fn remembered_by(self, remembers: Remembers) -> Self {
        let memory = Memory::of(remembers, self.session.as_ref(), self.base_url);
        Self { remembers, memory, ..self }
    }

    /// Whether hermes-agent would cut the text on this route, which it does silently. Other upstreams get a text of any
    /// length.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.prompt.is_longer(LONGEST) && memory::is_hermes_agent(self.base_url) == Some(true)
    }

    /// The failure of a turn whose text hermes-agent would cut.
    #[must_use]
    pub fn too_long(&self) -> Failure {
        let length = self.prompt.length();
        let what = format!(
            "[hermes-agent error] the message has {length} characters, and hermes-agent cuts it at {LONGEST} on its chat \
             route; send less, or send it by the executor hermes-runs"
        );
        Failure::new(FailureKind::InvalidTurn, what)
    }

    /// Answers by a run, which takes a text of any length, with the session and the memory of this route.
    ///
    /// # Errors
    /// The failure that the caller reads.
    pub fn run(self, gateway: Gateway) -> Result<Outcome, Failure> {
        let (model, instructions) = (self.model(), self.instructions());
        let scope = self.session.as_ref();
        let history = match self.remembers {
            Remembers::Auto | Remembers::Session if self.memory.messages.is_empty() => {
                runs::of_task(self.turn)
            }
            _ => self.memory.messages,
        };
        let start = Start {
            prompt: &self.prompt,
            model,
            instructions,
            session: scope.filter(|_| matches!(self.remembers, Remembers::Auto | Remembers::Session)),
            scope,
            history,
        };
        runs::start(gateway, start, self.turn.streaming)
    }

    /// Answers the turn, as a stream if the caller is streaming. A turn that a restart interrupted is asked again where
    /// that is safe.
    ///
    /// # Errors
    /// The failure that the caller reads.
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
                sent.store(on_restart);
                sent
            }
        };
        if stream { self.read(&self.opened(body)?) } else { self.whole(body, sent.key.as_deref()) }
    }

    /// Answers in one piece. If this host goes away meanwhile, the gateway carries on.
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

    /// Opens the answer as a stream. The gateway gives the turn up when the stream is dropped.
    ///
    /// # Errors
    /// The failure that the caller reads.
    pub fn open(&self) -> Result<http::Exchange, Failure> {
        self.opened(self.body(true)?)
    }

    fn opened(&self, body: Vec<u8>) -> Result<http::Exchange, Failure> {
        let exchange = self.request(body).open().map_err(|error| unreachable(&error))?;
        self.follow(exchange.status(), &exchange.headers());
        Ok(exchange)
    }

    /// Reads that stream, and passes it on if the caller is streaming.
    ///
    /// # Errors
    /// The failure that the caller reads.
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
        while let Some(event) = exchange.next_event().map_err(unreachable)?.filter(|event| event.data != DONE)
        {
            let is_tool = event.event == TOOL_EVENT;
            if !is_tool && let Some(plain) = Plain::of_chunk(event.data.as_bytes()) {
                reply.ending.note_plain(plain.finish_reason, plain.usage);
                self.say(plain.text, &mut said)?;
                continue;
            }
            let Ok(data) = serde_json::from_str::<Value>(&event.data) else { continue };
            if is_tool {
                // Also if the caller is not streaming: the answer lists the tools that it took.
                emit(&tool_progress(&data))?;
                continue;
            }
            reply.ending.note(&data);
            self.say(at(&data, "/choices/0/delta").and_then(|delta| reply.beside.take(delta)), &mut said)?;
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

    /// Adds a delta to what was said, and passes it on if the caller is streaming.
    fn say(&self, delta: Option<String>, said: &mut String) -> Result<(), Failure> {
        let mut delta = delta.unwrap_or_default();
        if said.is_empty() {
            // After a tool the gateway begins with line feeds that the final text does not have.
            delta.drain(..delta.len() - delta.trim_start_matches('\n').len());
        }
        if !delta.is_empty() {
            said.push_str(&delta);
            if self.turn.streaming {
                emit(&Event::TextDelta(delta))?;
            }
        }
        Ok(())
    }

    fn body(&self, stream: bool) -> Result<Vec<u8>, Failure> {
        let system = self.instructions().map(|text| Said { content: Content::Text(text), role: "system" });
        let past = self.memory.messages.iter();
        let past = past.map(|said| Said { content: Content::Text(&said.content), role: said.role });
        let said = Said { content: Content::Prompt(&self.prompt), role: "user" };
        self.prompt.body(&Body {
            messages: system.into_iter().chain(past).chain([said]).collect(),
            model: self.model().unwrap_or("hermes-agent"),
            stream,
        })
    }

    /// The executor's model, or the workspace's.
    fn model(&self) -> Option<&'a str> {
        first(self.model, self.turn.workspace.as_ref().and_then(|workspace| workspace.model.as_ref()))
    }

    /// The executor's system prompt, or the workspace's.
    fn instructions(&self) -> Option<&'a str> {
        let workspace = self.turn.workspace.as_ref();
        first(self.system_prompt, workspace.and_then(|workspace| workspace.system_prompt.as_ref()))
    }

    fn request(&self, body: Vec<u8>) -> Request {
        let request = Request::new("POST", format!("{}/chat/completions", base(self.base_url)))
            .body("application/json", body)
            .timeout_ms(turn_timeout_ms());
        let request = bearer(request, KEY);
        match &self.session {
            // If a request names a session, the gateway uses its own messages and ignores those in the request.
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
