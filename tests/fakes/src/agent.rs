//! A fake agent that speaks A2A: it answers each operation with what a test wrote down.
//!
//! The fake adds only what belongs to the binding: the envelope of JSON-RPC, server-sent events. What is in it is the
//! test's, so that it can say what no honest agent says. `GetTask` without an answer of its own gets the task that was set
//! last.

#![expect(clippy::indexing_slicing, reason = "members of JSON values, where a missing one is null")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::gateway::{FakeGateway, Recorded};
use crate::reply::{Reply, Stream};

/// How the agent is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spoken {
    /// 1.0 over JSON-RPC.
    V1,
    /// 0.3 over JSON-RPC.
    V03,
    /// 1.0 over HTTP+JSON.
    Rest,
}

/// An agent that speaks A2A.
pub struct FakeAgent {
    gateway: FakeGateway,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    card: Option<Reply>,
    says: VecDeque<(String, Say)>,
    task: Value,
    token: Option<String>,
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Say(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Result(Value),
    Error(i64, String),
    Stream(Vec<Step>),
    Misnumbered(Value),
    Reply(Reply),
}

#[derive(Debug, Clone)]
enum Step {
    Item(Value),
    Raw(String),
    Wait(Arc<Notify>),
    Cut,
    Hang,
}

// === impl Say ===

impl Say {
    /// A result.
    #[must_use]
    pub fn result(value: Value) -> Self {
        Self(Kind::Result(value))
    }

    /// A stream of these items, which then ends. Without items, the others can be added.
    #[must_use]
    pub fn stream(items: impl IntoIterator<Item = Value>) -> Self {
        Self(Kind::Stream(items.into_iter().map(Step::Item).collect()))
    }

    /// An error of the protocol.
    #[must_use]
    pub fn error(code: i64, message: &str) -> Self {
        Self(Kind::Error(code, message.into()))
    }

    /// A result under the id of another request.
    #[must_use]
    pub fn misnumbered(value: Value) -> Self {
        Self(Kind::Misnumbered(value))
    }

    /// Anything else.
    #[must_use]
    pub fn reply(reply: Reply) -> Self {
        Self(Kind::Reply(reply))
    }

    /// Then another item.
    #[must_use]
    pub fn item(self, item: Value) -> Self {
        self.step(Step::Item(item))
    }

    /// Then an event with this data.
    #[must_use]
    pub fn raw(self, data: &str) -> Self {
        self.step(Step::Raw(data.into()))
    }

    /// Then silence until `released` is notified.
    #[must_use]
    pub fn wait(self, released: &Arc<Notify>) -> Self {
        self.step(Step::Wait(Arc::clone(released)))
    }

    /// Then the connection breaks.
    #[must_use]
    pub fn cut(self) -> Self {
        self.step(Step::Cut)
    }

    /// Then silence.
    #[must_use]
    pub fn hang(self) -> Self {
        self.step(Step::Hang)
    }

    fn step(mut self, step: Step) -> Self {
        if let Kind::Stream(steps) = &mut self.0 {
            steps.push(step);
        }
        self
    }

    fn into_reply(self, id: &Value, spoken: Spoken) -> Reply {
        let wrap = |value: Value| match spoken {
            Spoken::Rest => value,
            _ => json!({ "jsonrpc": "2.0", "id": id, "result": value }),
        };
        match self.0 {
            Kind::Result(value) => Reply::json(&wrap(value)),
            Kind::Misnumbered(value) => Reply::json(&json!({ "jsonrpc": "2.0", "id": 77, "result": value })),
            Kind::Error(code, message) if spoken == Spoken::Rest => {
                let reason = if code == -32001 { "TASK_NOT_FOUND" } else { "UNSUPPORTED_OPERATION" };
                let error = json!({ "code": 400, "message": message, "details": [{ "reason": reason }] });
                Reply::status(400, "application/json", json!({ "error": error }).to_string())
            }
            Kind::Error(code, message) => Reply::json(
                &json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } }),
            ),
            Kind::Stream(steps) => {
                let add = |stream: Stream, step| match step {
                    Step::Item(item) => stream.bytes(format!("data: {}\n\n", wrap(item))),
                    Step::Raw(data) => stream.bytes(format!("data: {data}\n\n")),
                    Step::Wait(released) => stream.wait(&released),
                    Step::Cut => stream.cut(),
                    Step::Hang => stream.hang(),
                };
                steps.into_iter().fold(Stream::default(), add).into()
            }
            Kind::Reply(reply) => reply,
        }
    }
}

// === impl FakeAgent ===

impl FakeAgent {
    /// Starts an agent whose card says how it is spoken to, and whether it streams.
    pub async fn start(spoken: Spoken, streams: bool) -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let gateway = FakeGateway::start(move |request| answer(&shared, request, spoken, streams)).await;
        Self { gateway, state }
    }

    /// The URL of the agent.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.gateway.address())
    }

    /// The underlying server.
    #[must_use]
    pub fn gateway(&self) -> &FakeGateway {
        &self.gateway
    }

    /// Answers the request for the card with this.
    pub fn card(&self, reply: Reply) {
        self.state.lock().unwrap().card = Some(reply);
    }

    /// Requires this token.
    pub fn want_token(&self, token: &str) {
        self.state.lock().unwrap().token = Some(token.into());
    }

    /// Answers the next request for this operation, by its name in JSON-RPC of 1.0.
    pub fn next(&self, operation: &str, say: Say) {
        self.state.lock().unwrap().says.push_back((operation.into(), say));
    }

    /// Sets the task that `GetTask` and `CancelTask` return.
    pub fn task(&self, task: Value) {
        self.state.lock().unwrap().task = task;
    }

    /// The requests for this operation, by its name in JSON-RPC of 1.0.
    #[must_use]
    pub fn asked(&self, operation: &str) -> Vec<Recorded> {
        let all = self.gateway.requests().into_iter();
        all.filter(|request| operation_of(request) == operation).collect()
    }

    /// The messages that it was sent.
    #[must_use]
    pub fn messages(&self) -> Vec<Value> {
        let all = self.gateway.requests().into_iter();
        let sent = all.filter(|request| {
            matches!(operation_of(request).as_str(), "SendMessage" | "SendStreamingMessage")
        });
        sent.map(|request| params(&request)["message"].clone()).collect()
    }
}

/// The parameters of a request, whatever the binding.
#[must_use]
pub fn params(request: &Recorded) -> Value {
    let body = request.json();
    if body.get("jsonrpc").is_some() { body["params"].clone() } else { body }
}

fn operation_of(request: &Recorded) -> String {
    let path = request.path.split('?').next().unwrap_or_default();
    if path.ends_with("agent-card.json") {
        return "card".into();
    }
    let by_path = match (request.method.as_str(), path) {
        (_, path) if path.ends_with("/message:send") => "SendMessage",
        (_, path) if path.ends_with("/message:stream") => "SendStreamingMessage",
        (_, path) if path.ends_with(":cancel") => "CancelTask",
        (_, path) if path.ends_with(":subscribe") => "SubscribeToTask",
        ("GET", path) if path.contains("/tasks/") => "GetTask",
        _ => match request.json()["method"].as_str().unwrap_or_default() {
            "message/send" => "SendMessage",
            "message/stream" => "SendStreamingMessage",
            "tasks/get" => "GetTask",
            "tasks/cancel" => "CancelTask",
            "tasks/resubscribe" => "SubscribeToTask",
            other => return other.to_owned(),
        },
    };
    by_path.to_owned()
}

fn answer(state: &Mutex<State>, request: &Recorded, spoken: Spoken, streams: bool) -> Reply {
    let operation = operation_of(request);
    let mut state = state.lock().unwrap();
    if operation == "card" {
        let host = request.headers["host"].to_str().expect("a host");
        return state
            .card
            .clone()
            .unwrap_or_else(|| Reply::json(&card(host, spoken, streams, state.token.is_some())));
    }
    let given = request.headers.get("authorization").and_then(|value| value.to_str().ok());
    if let Some(token) = &state.token
        && given != Some(&format!("Bearer {token}"))
    {
        return Reply::status(401, "text/plain", "who are you?");
    }
    let id = if spoken == Spoken::Rest { Value::Null } else { request.json()["id"].clone() };
    let scripted = state.says.iter().position(|(name, _)| *name == operation);
    let say = match scripted.and_then(|at| state.says.remove(at)) {
        Some((_, say)) => say,
        None if operation == "GetTask" && !state.task.is_null() => Say::result(state.task.clone()),
        None if operation == "CancelTask" && !state.task.is_null() => Say::result(state.task.clone()),
        None if operation == "GetTask" => Say::error(-32001, "no such task"),
        None => Say::error(-32004, &format!("{operation} is not in the script")),
    };
    say.into_reply(&id, spoken)
}

fn card(host: &str, spoken: Spoken, streams: bool, wants_token: bool) -> Value {
    let url = format!("http://{host}/rpc");
    let mut card = json!({
        "name": "fake", "description": "a fake", "version": "1", "capabilities": { "streaming": streams },
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"], "skills": [],
    });
    match spoken {
        Spoken::V03 => {
            card["url"] = url.into();
            card["protocolVersion"] = "0.3.0".into();
        }
        Spoken::V1 | Spoken::Rest => {
            let binding = if spoken == Spoken::V1 { "JSONRPC" } else { "HTTP+JSON" };
            card["supportedInterfaces"] =
                json!([{ "url": url, "protocolBinding": binding, "protocolVersion": "1.0" }]);
        }
    }
    if wants_token {
        card["securityRequirements"] = json!([{ "schemes": { "bearer": { "list": [] } } }]);
    }
    card
}
