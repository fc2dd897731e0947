//! A fake MCP server over streamable HTTP, that can be scripted to misbehave.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::gateway::{FakeGateway, Recorded};
use crate::reply::{Reply, Stream};

/// A server of tools on loopback. Dropping it closes its port.
///
/// Its tools: `echo` repeats its arguments and the header `x-key`, `fail` reports an error.
pub struct FakeToolServer {
    server: FakeGateway,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    tools: Vec<Value>,
    /// Whether answers are streams of events.
    streams: bool,
    /// Whether requests need the session that `initialize` opened.
    keeps_sessions: bool,
    /// The number of sessions that were opened, and whether the last one is still known.
    sessions: usize,
    knows_session: bool,
    /// Sent before every answer that is a stream.
    notices: Vec<Value>,
    answers: Option<Box<Answers>>,
    received: Vec<Value>,
    ended: Vec<String>,
}

type Answers = dyn Fn(&str, &Value) -> Option<Reply> + Send;

// === impl FakeToolServer ===

impl FakeToolServer {
    /// Starts a server with the tools `echo` and `fail`, which answers with documents and keeps no sessions.
    pub async fn start() -> Self {
        Self::start_at("127.0.0.1:0").await
    }

    /// Starts at a known address.
    pub async fn start_at(address: &str) -> Self {
        let state =
            Arc::new(Mutex::new(State { tools: vec![tool("echo"), tool("fail")], ..State::default() }));
        let answering = Arc::clone(&state);
        let answer = move |request: &Recorded| answering.lock().unwrap().answer(request);
        Self { server: FakeGateway::start_at(address, answer).await, state }
    }

    /// The address of its endpoint.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.server.address())
    }

    /// Replaces the tools, each by its name.
    pub fn set_tools(&self, names: &[&str]) {
        self.state.lock().unwrap().tools = names.iter().map(|name| tool(name)).collect();
    }

    /// Answers with streams from now on: an empty event, these messages, a `ping`, then the response.
    pub fn stream(&self, notices: &[Value]) {
        let mut state = self.state.lock().unwrap();
        (state.streams, state.notices) = (true, notices.to_vec());
    }

    /// Opens a session for each `initialize`, without which nothing is answered.
    pub fn keep_sessions(&self) {
        self.state.lock().unwrap().keeps_sessions = true;
    }

    /// Forgets the session, as a restart does.
    pub fn forget_session(&self) {
        self.state.lock().unwrap().knows_session = false;
    }

    /// Answers what this function answers, by method and message; else as usual.
    pub fn answer_with(&self, answers: impl Fn(&str, &Value) -> Option<Reply> + Send + 'static) {
        self.state.lock().unwrap().answers = Some(Box::new(answers));
    }

    /// The messages so far with this method.
    #[must_use]
    pub fn received(&self, method: &str) -> Vec<Value> {
        let state = self.state.lock().unwrap();
        state.received.iter().filter(|message| message["method"] == method).cloned().collect()
    }

    /// The responses so far to requests of the server.
    #[must_use]
    pub fn responses(&self) -> Vec<Value> {
        let state = self.state.lock().unwrap();
        state.received.iter().filter(|message| message["method"].is_null()).cloned().collect()
    }

    /// The sessions that the client has ended.
    #[must_use]
    pub fn ended(&self) -> Vec<String> {
        self.state.lock().unwrap().ended.clone()
    }

    /// The requests as they arrived.
    #[must_use]
    pub fn requests(&self) -> Vec<Recorded> {
        self.server.requests()
    }
}

// === impl State ===

impl State {
    fn answer(&mut self, request: &Recorded) -> Reply {
        let session = request.headers.get("mcp-session-id").map(|id| id.to_str().unwrap().to_owned());
        if request.method == "DELETE" {
            self.ended.extend(session);
            return Reply::status(200, "text/plain", "");
        }
        let Ok(message) = serde_json::from_slice::<Value>(&request.body) else {
            return Reply::status(400, "text/plain", "not JSON");
        };
        self.received.push(message.clone());
        let method = member(&message, "method").as_str().unwrap_or_default();
        if let Some(reply) = self.answers.as_ref().and_then(|answers| answers(method, &message)) {
            return reply;
        }
        let current = self.knows_session.then(|| format!("session-{}", self.sessions));
        if self.keeps_sessions && method != "initialize" && session != current {
            let error = json!({ "code": -32_001, "message": "Session not found" });
            return Reply::status(404, "application/json", json!({ "id": null, "error": error }).to_string());
        }
        if member(&message, "id").is_null() || method.is_empty() {
            return Reply::status(202, "text/plain", "");
        }
        let params = member(&message, "params");
        let result = match method {
            "initialize" => {
                (self.sessions, self.knows_session) = (self.sessions + 1, true);
                Ok(json!({
                    "protocolVersion": member(params, "protocolVersion"),
                    "capabilities": { "tools": { "listChanged": true } },
                    "serverInfo": { "name": "fake", "version": "0" },
                }))
            }
            "tools/list" => Ok(json!({ "tools": self.tools })),
            "tools/call" => self.call(params, request),
            _ => Err(json!({ "code": -32_601, "message": "Method not found" })),
        };
        let reply = self.reply(member(&message, "id"), result);
        match self.keeps_sessions && method == "initialize" {
            true => reply.header("mcp-session-id", &format!("session-{}", self.sessions)),
            false => reply,
        }
    }

    fn call(&self, params: &Value, request: &Recorded) -> Result<Value, Value> {
        let name = params["name"].as_str().unwrap_or_default();
        if !self.tools.iter().any(|tool| tool["name"] == name) {
            return Err(json!({ "code": -32_602, "message": format!("Unknown tool: {name}") }));
        }
        let key = request.headers.get("x-key").map(|key| key.to_str().unwrap().to_owned());
        let text = match name {
            "fail" => "it went wrong".to_owned(),
            _ => format!("{}{}", params["arguments"], key.unwrap_or_default()),
        };
        Ok(json!({ "content": [{ "type": "text", "text": text }], "isError": name == "fail" }))
    }

    fn reply(&self, id: &Value, result: Result<Value, Value>) -> Reply {
        let response = response(id, result);
        if !self.streams {
            return Reply::json(&response);
        }
        let ping = json!({ "jsonrpc": "2.0", "id": "p-1", "method": "ping" });
        let events = Stream::default().bytes("id: 0\ndata: \n\n");
        let said = self.notices.iter().chain([&ping, &response]);
        said.fold(events, |events, message| events.bytes(format!("event: message\ndata: {message}\n\n")))
            .into()
    }
}

/// A member of an object, or null.
fn member<'v>(value: &'v Value, name: &str) -> &'v Value {
    value.get(name).unwrap_or(&Value::Null)
}

/// A response to a request.
fn response(id: &Value, result: Result<Value, Value>) -> Value {
    match result {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
    }
}

fn tool(name: &str) -> Value {
    json!({
        "name": name,
        "description": format!("The tool {name}."),
        "inputSchema": { "type": "object", "properties": { "x": { "type": "string" } } },
    })
}
