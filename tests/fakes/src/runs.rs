//! A fake gateway with runs, like hermes-agent 0.19.
//!
//! Each run plays a script. The fake shares the peculiarities of the real one: events can be read once, and a second
//! subscriber gets keep-alives forever; the status of a run that waited for approval stays the same after the approval;
//! a restart loses every run but no session; a request with an origin is rejected with an empty body; unknown paths are
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

/// A gateway with scripted runs.
pub struct FakeRuns {
    gateway: FakeGateway,
    state: Arc<Mutex<State>>,
}

/// The steps of a run.
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
    /// The event stream breaks; the run carries on.
    Break,
    End {
        event: Value,
        status: Value,
    },
}

// === impl Script ===

impl Script {
    /// An empty script.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sends a piece of text.
    #[must_use]
    pub fn delta(self, text: &str) -> Self {
        self.event(json!({ "event": "message.delta", "delta": text }))
    }

    /// Reports that a tool starts.
    #[must_use]
    pub fn tool_started(self, tool: &str, preview: &str) -> Self {
        self.event(json!({ "event": "tool.started", "tool": tool, "preview": preview }))
    }

    /// Reports that a tool has ended.
    #[must_use]
    pub fn tool_completed(self, tool: &str, error: bool) -> Self {
        self.event(json!({ "event": "tool.completed", "tool": tool, "duration": 0.069, "error": error }))
    }

    /// Sends any event.
    #[must_use]
    pub fn event(self, event: Value) -> Self {
        self.then(Act::Event(event))
    }

    /// Requests approval of a command and waits for it.
    #[must_use]
    pub fn approval(self, command: &str) -> Self {
        self.approval_like(approval(command), None)
    }

    /// Requests approval of a command until the gateway's own timeout.
    #[must_use]
    pub fn approval_until(self, command: &str, timeout: &Arc<Notify>) -> Self {
        self.approval_like(approval(command), Some(Arc::clone(timeout)))
    }

    /// Requests approval with this event.
    #[must_use]
    pub fn approval_like(self, request: Value, timeout: Option<Arc<Notify>>) -> Self {
        self.then(Act::Approval { request, timeout })
    }

    /// Stays silent until `released` is notified.
    #[must_use]
    pub fn wait(self, released: &Arc<Notify>) -> Self {
        self.then(Act::Wait(Arc::clone(released)))
    }

    /// Stays silent forever.
    #[must_use]
    pub fn hang(self) -> Self {
        self.then(Act::Hang)
    }

    /// Breaks the event stream; the run carries on.
    #[must_use]
    pub fn breaks(self) -> Self {
        self.then(Act::Break)
    }

    /// Completes, with 11 tokens in and 7 out. Like the real gateway, sends the text as "reasoning" first.
    #[must_use]
    pub fn completed(self, output: &str) -> Self {
        let usage = json!({ "input_tokens": 11, "output_tokens": 7, "total_tokens": 18 });
        self.event(json!({ "event": "reasoning.available", "text": output })).then(Act::End {
            event: json!({ "event": "run.completed", "output": output, "usage": usage }),
            status: json!({ "status": "completed", "output": output, "usage": usage }),
        })
    }

    /// Fails.
    #[must_use]
    pub fn failed(self, error: &str) -> Self {
        self.then(Act::End {
            event: json!({ "event": "run.failed", "error": error }),
            status: json!({ "status": "failed", "error": error }),
        })
    }

    /// Ends because another client stopped the run.
    #[must_use]
    pub fn cancelled(self) -> Self {
        self.then(cancelled())
    }

    /// Ends with this event and this status.
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
    /// Starts a gateway. Each run plays the next script; a run without one is answered with a 500.
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

    /// The underlying server.
    #[must_use]
    pub fn gateway(&self) -> &FakeGateway {
        &self.gateway
    }

    /// The base URL for clients.
    #[must_use]
    pub fn base_url(&self) -> String {
        self.gateway.base_url()
    }

    /// Requires this key from now on.
    pub fn want_key(&self, key: &str) {
        self.state.lock().unwrap().key = Some(key.into());
    }

    /// Removes a feature.
    pub fn lacks(&self, feature: &str) {
        self.state.lock().unwrap().features.insert(feature.into(), false.into());
    }

    /// Restores a feature.
    pub fn offers(&self, feature: &str) {
        self.state.lock().unwrap().features.insert(feature.into(), true.into());
    }

    /// Becomes an older gateway without runs and without a list of features. Its chat route answers with the reply of
    /// [`FakeRuns::next`], or else with `hi`.
    pub fn grow_old(&self) {
        self.state.lock().unwrap().is_old = true;
    }

    /// Answers the next request with this method and this end of its path with a reply.
    pub fn next(&self, method: &str, path: &str, reply: Reply) {
        self.state.lock().unwrap().overrides.push((method.into(), path.into(), reply));
    }

    /// Restarts: runs are lost and their streams break; sessions stay.
    pub fn restart(&self) {
        let mut state = self.state.lock().unwrap();
        state.players.abort_all();
        state.runs.clear();
    }

    /// Adds messages to a session, each with a role and a text.
    pub fn remember(&self, session: &str, messages: &[(&str, &str)]) {
        let rows =
            messages.iter().map(|(role, content)| json!({ "role": role, "content": content })).collect();
        self.state.lock().unwrap().sessions.insert(session.into(), (session.into(), rows));
    }

    /// Continues a session under another id, like the gateway after compressing it.
    pub fn moves(&self, session: &str, to: &str) {
        let mut state = self.state.lock().unwrap();
        if let Some((at, rows)) = state.sessions.get_mut(session) {
            to.clone_into(at);
            let rows = rows.clone();
            state.sessions.insert(to.into(), (to.into(), rows));
        }
    }

    /// The number of approval requests.
    #[must_use]
    pub fn asked_for(&self) -> usize {
        self.state.lock().unwrap().asked_for
    }

    /// Reports the pending approval in the status, like later gateways.
    pub fn show_approvals(&self) {
        self.state.lock().unwrap().shows_approvals = true;
    }

    /// The decisions on approvals, in order.
    #[must_use]
    pub fn choices(&self) -> Vec<String> {
        self.state.lock().unwrap().choices.clone()
    }

    /// The requests with this method whose path ends with the given text.
    #[must_use]
    pub fn requests(&self, method: &str, path: &str) -> Vec<Recorded> {
        let all = self.gateway.requests().into_iter();
        all.filter(|request| request.method == method && request.path.ends_with(path)).collect()
    }

    /// The bodies of the requests that started runs.
    #[must_use]
    pub fn submitted(&self) -> Vec<Value> {
        self.requests("POST", "/v1/runs").iter().map(Recorded::json).collect()
    }
}
