//! The routes of the fake gateway.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use super::state::{Run, State, play};
use crate::gateway::Recorded;
use crate::reply::{Reply, Stream};

pub(super) fn answer(shared: &Arc<Mutex<State>>, request: &Recorded) -> Reply {
    let mut state = shared.lock().unwrap();
    if request.header("origin").is_some() {
        return Reply::status(403, "application/octet-stream", "");
    }
    let wanted = state.key.as_ref().map(|key| format!("Bearer {key}"));
    if wanted.is_some() && wanted.as_deref() != request.header("authorization") {
        let error = json!({ "error": { "message": "Invalid API key", "type": "invalid_request_error", "code": "invalid_api_key" } });
        return Reply::status(401, "application/json", error.to_string());
    }
    let matches = |(method, path, _): &(String, String, Reply)| {
        *method == request.method && request.path.ends_with(path.as_str())
    };
    if let Some(at) = state.overrides.iter().position(matches) {
        return state.overrides.remove(at).2;
    }
    let segments: Vec<&str> = request.path.split('/').skip(1).collect();
    match (request.method.as_str(), segments.as_slice()) {
        ("GET", ["v1", "models"]) => {
            Reply::json(&json!({ "object": "list", "data": [{ "id": "hermes-agent" }] }))
        }
        ("POST", ["v1", "chat", "completions"]) => complete(&mut state, request),
        (_, ["v1", "capabilities" | "runs", ..]) if state.is_old => no_route(),
        ("GET", ["v1", "capabilities"]) => Reply::json(&json!({
            "object": "hermes.api_server.capabilities", "platform": "hermes-agent", "features": state.features,
        })),
        ("POST", ["v1", "runs"]) => submit(shared, &mut state, request),
        ("GET", ["v1", "runs", id]) => match state.runs.get(*id) {
            Some(run) => Reply::json(&Value::Object(run.status.clone())),
            None => no_run(id),
        },
        ("GET", ["v1", "runs", id, "events"]) => match state.runs.get_mut(*id) {
            Some(run) if run.subscribed => Stream::default().bytes(": keepalive\n\n").hang().into(),
            Some(run) => {
                run.subscribed = true;
                Stream::feed(Arc::clone(&run.feed)).into()
            }
            None => no_run(id),
        },
        ("POST", ["v1", "runs", id, "approval"]) => approve(&mut state, id, request),
        ("POST", ["v1", "runs", id, "stop"]) => match state.runs.get(*id).filter(|run| !run.over) {
            Some(run) => {
                run.stop.notify_one();
                state.touch(id, json!({ "status": "stopping", "last_event": "run.stopping" }));
                Reply::json(&json!({ "run_id": id, "status": "stopping" }))
            }
            None => no_run(id),
        },
        ("GET", ["api", "sessions", id, "messages"]) => match state.sessions.get(*id) {
            Some((at, rows)) => Reply::json(&json!({ "object": "list", "session_id": at, "data": rows })),
            None => error(404, &format!("Session not found: {id}"), "session_not_found"),
        },
        _ => no_route(),
    }
}

/// Answers `hi` and stores both messages in the session that the request names.
fn complete(state: &mut State, request: &Recorded) -> Reply {
    let body = request.json();
    if let Some(session) = request.header("x-hermes-session-id") {
        let last = body["messages"].as_array().and_then(|messages| messages.last());
        let rows = [last.cloned().unwrap_or_default(), json!({ "role": "assistant", "content": "hi" })];
        let session = session.to_owned();
        state.sessions.entry(session.clone()).or_insert_with(|| (session, Vec::new())).1.extend(rows);
    }
    if body["stream"] == true { Reply::stream(["hi"]) } else { Reply::completion("hi") }
}

fn no_route() -> Reply {
    Reply::status(404, "text/plain; charset=utf-8", "404: Not Found")
}

fn submit(shared: &Arc<Mutex<State>>, state: &mut State, request: &Recorded) -> Reply {
    let body = request.json();
    // The input is a text, or a list of messages of which the last one counts.
    let last = body["input"].as_array().and_then(|messages| messages.last());
    let input = last.map_or(&body["input"], |message| &message["content"]);
    let texts = |parts: &Vec<Value>| parts.iter().filter_map(|part| part["text"].as_str()).collect();
    let input = input.as_array().map(texts).or_else(|| input.as_str().map(str::to_owned));
    let Some(input) = input.filter(|input| !input.is_empty()) else {
        return error(400, "Missing 'input' field", "");
    };
    let Some(script) = state.scripts.pop_front() else {
        return Reply::status(500, "text/plain", "500 Internal Server Error\n\nthe script is over");
    };
    state.started += 1;
    let id = format!("run_{:032x}", state.started);
    let session = body["session_id"].as_str().unwrap_or(&id).to_owned();
    let row = json!({ "role": "user", "content": input });
    state.sessions.entry(session.clone()).or_insert_with(|| (session.clone(), Vec::new())).1.push(row);
    let (events, receiver) = mpsc::unbounded_channel();
    let stop = Arc::new(Notify::new());
    let status = json!({
        "object": "hermes.run", "run_id": id, "status": "running", "session_id": session,
        "model": "hermes-agent", "created_at": 1_790_000_000.0,
    });
    let run = Run {
        status: status.as_object().cloned().unwrap_or_default(),
        feed: Arc::new(Mutex::new(Some(receiver))),
        subscribed: false,
        events: Some(events),
        pending: None,
        stop: Arc::clone(&stop),
        over: false,
    };
    state.runs.insert(id.clone(), run);
    state.touch(&id, json!({}));
    state.players.spawn(play(Arc::clone(shared), id.clone(), script, stop));
    Reply::status(
        202,
        "application/json; charset=utf-8",
        json!({ "run_id": id, "status": "started" }).to_string(),
    )
}

fn approve(state: &mut State, id: &str, request: &Recorded) -> Reply {
    let choice = request.json()["choice"].as_str().unwrap_or_default().to_owned();
    let Some(run) = state.runs.get_mut(id) else { return no_run(id) };
    if run.over {
        return error(409, &format!("Run has no active approval session: {id}"), "approval_not_active");
    }
    if !["once", "session", "always", "deny"].contains(&choice.as_str()) {
        return error(400, "Invalid approval choice", "invalid_approval_choice");
    }
    let Some(pending) = run.pending.take() else {
        return error(409, &format!("Run has no pending approval: {id}"), "approval_not_pending");
    };
    let _ = pending.send(choice.clone());
    state.choices.push(choice.clone());
    state.touch(id, json!({ "status": "running", "last_event": "approval.responded" }));
    state.push(id, &json!({ "event": "approval.responded", "choice": choice, "resolved": 1 }));
    Reply::json(
        &json!({ "object": "hermes.run.approval_response", "run_id": id, "choice": choice, "resolved": 1 }),
    )
}

fn no_run(id: &str) -> Reply {
    error(404, &format!("Run not found: {id}"), "run_not_found")
}

fn error(status: u16, message: &str, code: &str) -> Reply {
    let error = json!({ "error": { "message": message, "type": "invalid_request_error", "param": null, "code": code } });
    Reply::status(status, "application/json; charset=utf-8", error.to_string())
}
