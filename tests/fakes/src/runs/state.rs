//! The state of the fake gateway, and the agent that plays its scripts.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinSet;

use super::{Act, Script, cancelled};
use crate::reply::{Feed, Reply};

#[derive(Default)]
pub(super) struct State {
    pub(super) scripts: VecDeque<Script>,
    pub(super) runs: HashMap<String, Run>,
    pub(super) started: usize,
    pub(super) clock: u64,
    pub(super) features: Map<String, Value>,
    /// Whether this is an older gateway without runs.
    pub(super) is_old: bool,
    pub(super) key: Option<String>,
    pub(super) overrides: Vec<(String, String, Reply)>,
    /// Sessions by id: the id under which the session continues, and its messages.
    pub(super) sessions: HashMap<String, (String, Vec<Value>)>,
    pub(super) choices: Vec<String>,
    /// The number of approval requests.
    pub(super) asked_for: usize,
    /// Whether the status reports the pending approval, like later gateways.
    pub(super) shows_approvals: bool,
    pub(super) players: JoinSet<()>,
}

pub(super) struct Run {
    pub(super) status: Map<String, Value>,
    pub(super) feed: Feed,
    pub(super) subscribed: bool,
    pub(super) events: Option<mpsc::UnboundedSender<Option<Bytes>>>,
    pub(super) pending: Option<oneshot::Sender<String>>,
    pub(super) stop: Arc<Notify>,
    pub(super) over: bool,
}

// === impl State ===

impl State {
    pub(super) fn touch(&mut self, id: &str, changes: Value) {
        self.clock += 1;
        let now = self.clock;
        let Some(run) = self.runs.get_mut(id) else { return };
        run.status.insert("updated_at".into(), json!(1_790_000_000.0 + now as f64 / 8.0));
        if let Value::Object(changes) = changes {
            run.status.extend(changes);
        }
    }

    pub(super) fn push(&self, id: &str, event: &Value) {
        let Some(run) = self.runs.get(id) else { return };
        let mut event = event.clone();
        event["run_id"] = id.into();
        event["timestamp"] = json!(1_790_000_000.5);
        if let Some(events) = &run.events {
            let _ = events.send(Some(Bytes::from(format!("data: {event}\n\n"))));
        }
    }

    fn end(&mut self, id: &str, event: &Value, status: Value) {
        self.push(id, event);
        self.touch(id, status);
        self.touch(id, json!({ "last_event": event["event"] }));
        let Some(run) = self.runs.get_mut(id) else { return };
        run.over = true;
        if let Some(events) = run.events.take() {
            let _ = events.send(Some(Bytes::from_static(b": stream closed\n\n")));
            let _ = events.send(None);
        }
        let session = run.status["session_id"].as_str().unwrap_or_default().to_owned();
        let output = event["output"].as_str().map(str::to_owned);
        if let (Some((_, rows)), Some(output)) = (self.sessions.get_mut(&session), output) {
            rows.push(json!({ "role": "assistant", "content": output, "reasoning": "private" }));
        }
    }
}

/// Plays a run's script.
pub(super) async fn play(state: Arc<Mutex<State>>, id: String, script: Script, stop: Arc<Notify>) {
    let acts = async {
        for act in script.0 {
            match act {
                Act::Event(event) => {
                    let mut state = state.lock().unwrap();
                    if event["event"] != "message.delta" {
                        state.touch(&id, json!({ "last_event": event["event"] }));
                    }
                    state.push(&id, &event);
                }
                Act::Approval { mut request, timeout } => {
                    let (decide, decided) = oneshot::channel();
                    {
                        let mut state = state.lock().unwrap();
                        let waiting =
                            json!({ "status": "waiting_for_approval", "last_event": "approval.request" });
                        state.touch(&id, waiting);
                        if state.shows_approvals {
                            state.touch(&id, json!({ "approval": request }));
                        }
                        state.asked_for += 1;
                        request["event"] = "approval.request".into();
                        state.push(&id, &request);
                        if let Some(run) = state.runs.get_mut(&id) {
                            run.pending = Some(decide);
                        }
                    }
                    let patience = async {
                        match timeout {
                            Some(timeout) => timeout.notified().await,
                            None => std::future::pending().await,
                        }
                    };
                    let denied = tokio::select! {
                        choice = decided => !matches!(choice.as_deref(), Ok("once" | "session" | "always")),
                        () = patience => true,
                    };
                    let mut state = state.lock().unwrap();
                    if let Some(run) = state.runs.get_mut(&id) {
                        run.pending = None;
                    }
                    let done = json!({ "event": "tool.completed", "tool": "terminal", "duration": 0.1, "error": denied });
                    state.touch(&id, json!({ "last_event": "tool.completed" }));
                    state.push(&id, &done);
                }
                Act::Wait(released) => released.notified().await,
                Act::Hang => std::future::pending().await,
                Act::Break => {
                    let mut state = state.lock().unwrap();
                    if let Some(run) = state.runs.get_mut(&id) {
                        run.events = None;
                    }
                }
                Act::End { event, status } => return Some((event, status)),
            }
        }
        None
    };
    let end = tokio::select! {
        end = acts => end,
        () = stop.notified() => match cancelled() {
            Act::End { event, status } => Some((event, status)),
            _ => None,
        },
    };
    match end {
        Some((event, status)) => state.lock().unwrap().end(&id, &event, status),
        // The script is over but the run is not.
        None => std::future::pending().await,
    }
}
