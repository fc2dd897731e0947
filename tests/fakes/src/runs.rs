//! A gateway with runs, as hermes-agent 0.19 has them.
//!
//! Each run plays a script. What is odd about the real one is odd here: events can be read once, and whoever subscribes
//! again gets keep-alives for ever; the status of a run that waited for approval goes on saying so after the wait is over;
//! a restart forgets every run and no session; a request with an origin is refused with an empty body; unknown paths are
//! answered in plain text.

#![expect(clippy::indexing_slicing, reason = "members of JSON values, where a missing one is null")]

mod routes;
mod state;

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::gateway::{FakeGateway, Recorded};
use crate::reply::Reply;

use self::routes::answer;
use self::state::State;

/// A gateway whose runs a test scripted.
pub struct FakeRuns {
    gateway: FakeGateway,
    state: Arc<Mutex<State>>,
}

/// What a run does, in order.
#[derive(Debug, Clone, Default)]
pub struct Script(Vec<Act>);

#[derive(Debug, Clone)]
enum Act {
    Event(Value),
    Approval {
        request: Value,
        timeout: Option<Arc<Notify>>,
    },
    Wait(Arc<Notify>),
    Hang,
    /// The event stream breaks; the run goes on.
    Break,
    End {
        event: Value,
        status: Value,
    },
}

// === impl Script ===

impl Script {
    /// Says and does nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A piece of text.
    #[must_use]
    pub fn delta(self, text: &str) -> Self {
        self.event(json!({ "event": "message.delta", "delta": text }))
    }

    /// A tool begins.
    #[must_use]
    pub fn tool_started(self, tool: &str, preview: &str) -> Self {
        self.event(json!({ "event": "tool.started", "tool": tool, "preview": preview }))
    }

    /// A tool has ended.
    #[must_use]
    pub fn tool_completed(self, tool: &str, error: bool) -> Self {
        self.event(json!({ "event": "tool.completed", "tool": tool, "duration": 0.069, "error": error }))
    }

    /// Any event.
    #[must_use]
    pub fn event(self, event: Value) -> Self {
        self.then(Act::Event(event))
    }

    /// Asks for approval of a command, and waits for it.
    #[must_use]
    pub fn approval(self, command: &str) -> Self {
        self.approval_like(approval(command), None)
    }

    /// The same, until the gateway's own patience ends.
    #[must_use]
    pub fn approval_until(self, command: &str, timeout: &Arc<Notify>) -> Self {
        self.approval_like(approval(command), Some(Arc::clone(timeout)))
    }

    /// Asks for approval with this event.
    #[must_use]
    pub fn approval_like(self, request: Value, timeout: Option<Arc<Notify>>) -> Self {
        self.then(Act::Approval { request, timeout })
    }

    /// Stays silent until `released` is notified.
    #[must_use]
    pub fn wait(self, released: &Arc<Notify>) -> Self {
        self.then(Act::Wait(Arc::clone(released)))
    }

    /// Stays silent for ever.
    #[must_use]
    pub fn hang(self) -> Self {
        self.then(Act::Hang)
    }

    /// The event stream breaks, and the run goes on.
    #[must_use]
    pub fn breaks(self) -> Self {
        self.then(Act::Break)
    }

    /// Ends well, with 11 tokens in and 7 out. As the real one does, the text comes as "reasoning" first.
    #[must_use]
    pub fn completed(self, output: &str) -> Self {
        let usage = json!({ "input_tokens": 11, "output_tokens": 7, "total_tokens": 18 });
        self.event(json!({ "event": "reasoning.available", "text": output })).then(Act::End {
            event: json!({ "event": "run.completed", "output": output, "usage": usage }),
            status: json!({ "status": "completed", "output": output, "usage": usage }),
        })
    }

    /// Ends badly.
    #[must_use]
    pub fn failed(self, error: &str) -> Self {
        self.then(Act::End {
            event: json!({ "event": "run.failed", "error": error }),
            status: json!({ "status": "failed", "error": error }),
        })
    }

    /// Ends because somebody else stopped it.
    #[must_use]
    pub fn cancelled(self) -> Self {
        self.then(cancelled())
    }

    /// Ends with an event and a status that a test made.
    #[must_use]
    pub fn ends(self, event: Value, status: Value) -> Self {
        self.then(Act::End { event, status })
    }

    fn then(mut self, act: Act) -> Self {
        self.0.push(act);
        self
    }
}

fn cancelled() -> Act {
    Act::End { event: json!({ "event": "run.cancelled" }), status: json!({ "status": "cancelled" }) }
}

fn approval(command: &str) -> Value {
    json!({
        "command": command, "pattern_key": "delete in root path", "pattern_keys": ["delete in root path"],
        "description": "delete in root path", "allow_permanent": true,
        "choices": ["once", "session", "always", "deny"],
    })
}

// === impl FakeRuns ===

impl FakeRuns {
    /// The first run plays the first script, and so on; a run without one is answered with a 500.
    pub async fn start(scripts: impl IntoIterator<Item = Script>) -> Self {
        let features = [
            "chat_completions",
            "run_submission",
            "run_status",
            "run_events_sse",
            "run_stop",
            "run_approval_response",
            "approval_events",
            "session_resources",
        ];
        let state = State {
            scripts: scripts.into_iter().collect(),
            features: features.into_iter().map(|name| (name.to_owned(), true.into())).collect(),
            ..State::default()
        };
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        let gateway = FakeGateway::start(move |request| answer(&shared, request)).await;
        Self { gateway, state }
    }

    /// The server behind it.
    #[must_use]
    pub fn gateway(&self) -> &FakeGateway {
        &self.gateway
    }

    /// Where clients find it.
    #[must_use]
    pub fn base_url(&self) -> String {
        self.gateway.base_url()
    }

    /// Wants this key from now on.
    pub fn want_key(&self, key: &str) {
        self.state.lock().unwrap().key = Some(key.into());
    }

    /// Takes back a feature.
    pub fn lacks(&self, feature: &str) {
        self.state.lock().unwrap().features.insert(feature.into(), false.into());
    }

    /// Gives a feature back.
    pub fn offers(&self, feature: &str) {
        self.state.lock().unwrap().features.insert(feature.into(), true.into());
    }

    /// Becomes a gateway from before there were runs: neither they nor a list of features. Its chat route answers what
    /// [`FakeRuns::next`] was given, else `hi`.
    pub fn grow_old(&self) {
        self.state.lock().unwrap().is_old = true;
    }

    /// Answers the next such request with this. A method, and how the path ends.
    pub fn next(&self, method: &str, path: &str, reply: Reply) {
        self.state.lock().unwrap().overrides.push((method.into(), path.into(), reply));
    }

    /// Restarts: runs are forgotten and their streams break; sessions stay.
    pub fn restart(&self) {
        let mut state = self.state.lock().unwrap();
        state.players.abort_all();
        state.runs.clear();
    }

    /// Puts messages into a session, each a role and a text.
    pub fn remember(&self, session: &str, messages: &[(&str, &str)]) {
        let rows =
            messages.iter().map(|(role, content)| json!({ "role": role, "content": content })).collect();
        self.state.lock().unwrap().sessions.insert(session.into(), (session.into(), rows));
    }

    /// Goes on with a session under another id, as the gateway does after compressing it.
    pub fn moves(&self, session: &str, to: &str) {
        let mut state = self.state.lock().unwrap();
        if let Some((at, rows)) = state.sessions.get_mut(session) {
            to.clone_into(at);
            let rows = rows.clone();
            state.sessions.insert(to.into(), (to.into(), rows));
        }
    }

    /// How many approvals were asked for.
    #[must_use]
    pub fn asked_for(&self) -> usize {
        self.state.lock().unwrap().asked_for
    }

    /// Says in the status what is waited for, as later gateways do.
    pub fn show_approvals(&self) {
        self.state.lock().unwrap().shows_approvals = true;
    }

    /// The approvals that were given or denied, in order.
    #[must_use]
    pub fn choices(&self) -> Vec<String> {
        self.state.lock().unwrap().choices.clone()
    }

    /// The requests with this method whose paths end so.
    #[must_use]
    pub fn requests(&self, method: &str, path: &str) -> Vec<Recorded> {
        let all = self.gateway.requests().into_iter();
        all.filter(|request| request.method == method && request.path.ends_with(path)).collect()
    }

    /// What the runs were started with.
    #[must_use]
    pub fn submitted(&self) -> Vec<Value> {
        self.requests("POST", "/v1/runs").iter().map(Recorded::json).collect()
    }
}
