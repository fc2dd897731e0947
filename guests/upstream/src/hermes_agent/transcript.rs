//! What hermes-agent keeps of the bridge's conversations.
//!
//! The gateway has its sessions beside its API, one step above it, and gives them to whoever has its key: those of its own
//! terminal and of other platforms too. Only those are shown that the bridge made: by their id, which begins as
//! [`super::Session`] has it, that of the session that they go on from, or by the plugin that carried them.
//!
//! Messages are numbered over all sessions, so a number is a place in all of them. Sessions come with the one first that
//! was spoken in last: as soon as one has nothing new, neither have the rest, and whoever reads on asks for two pages.

use serde_json::{Value, json};
use talaria_guest::{Failure, FailureKind, Line, Page, Query, Request, config, http};

use super::session::OURS;
use super::{KEY, error, error_status, unreachable};
use crate::{base, bearer, is_success, text};

/// How many of the bridge's sessions are looked into, and among how many they are looked for.
const SESSIONS: (usize, usize) = (10, 100);
/// How long one answer may take.
const TIMEOUT_MS: u32 = 5_000;
/// The largest list of sessions, and the largest session.
const BYTES: u32 = 8 << 20;
/// How much of a text is shown, in characters.
const CHARS: usize = 8_192;
/// What the gateway calls sessions of the plugin.
const PLUGIN: &str = "molecule-a2a";
/// The longest id of a run or a session; the gateway's have 36 characters.
const LONGEST_ID: usize = 256;

/// Reads the lines that are asked for.
///
/// # Errors
/// A [`Failure`] that says why not.
pub fn read(base_url: &str, query: &Query) -> Result<Page, Failure> {
    if !config::has_secret(KEY) {
        let why = format!("the gateway shows its sessions to those with its key; set {KEY}");
        return Err(Failure::new(FailureKind::Upstream, why));
    }
    let list = format!("{}/api/sessions?limit={}", above(base(base_url)), SESSIONS.1);
    let list = get(list).map_err(|error| unreachable(&error))?;
    let mut lines: Vec<Line> = Vec::new();
    for session in ours(&rows(list)?).take(SESSIONS.0) {
        let found = of_session(base_url, &session, query.since)?;
        // The rest were spoken in before.
        if found.is_empty() && query.since > 0 {
            break;
        }
        lines.extend(found);
    }
    lines.sort_unstable_by_key(|line| line.number);
    lines.dedup_by_key(|line| line.number);
    let more = lines.len() > query.limit as usize;
    lines.truncate(query.limit as usize);
    Ok(Page { lines, more })
}

/// The messages of a session.
///
/// # Errors
/// The host's.
pub fn messages(base_url: &str, session: &str) -> Result<http::Response, http::Error> {
    get(format!("{}/api/sessions/{session}/messages", above(base(base_url))))
}

/// Whether a text can be an id in a path.
#[must_use]
pub fn is_id(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=LONGEST_ID).contains(&text.len()) && text.bytes().all(plain)
}

fn get(url: String) -> Result<http::Response, http::Error> {
    bearer(Request::new("GET", url), KEY).timeout_ms(TIMEOUT_MS).max_bytes(BYTES).fetch()
}

/// The address one step above, as `{parent:base_url}` in the needs has it.
fn above(base: &str) -> &str {
    let path = base.find("://").map_or(0, |at| at + "://".len());
    match base.rfind('/') {
        Some(at) if at > path => base.get(..at).unwrap_or(base),
        _ => base,
    }
}

fn rows(response: http::Response) -> Result<Vec<Value>, Failure> {
    if !is_success(response.status) {
        return Err(error_status(response.status, &response.body));
    }
    let mut answer: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    match answer.get_mut("data").map(Value::take) {
        Some(Value::Array(rows)) => Ok(rows),
        _ => Err(error("the gateway's answer is no list")),
    }
}

/// The ids of sessions that the bridge made.
fn ours(rows: &[Value]) -> impl Iterator<Item = String> {
    rows.iter().filter_map(|row| {
        let id = text(row, "/id").filter(|id| is_id(id))?;
        let began = text(row, "/_lineage_root_id");
        let made = id.starts_with(OURS) || began.is_some_and(|root| root.starts_with(OURS));
        (made || text(row, "/source").as_deref() == Some(PLUGIN)).then_some(id)
    })
}

fn of_session(base_url: &str, session: &str, since: u32) -> Result<Vec<Line>, Failure> {
    let response = messages(base_url, session).map_err(|error| unreachable(&error))?;
    // It was deleted in between.
    if response.status == 404 {
        return Ok(Vec::new());
    }
    let rows = rows(response)?;
    Ok(rows.iter().filter_map(|row| line(session, row)).filter(|line| line.number >= since).collect())
}

/// A message as a line. What the model thought is left out.
fn line(session: &str, row: &Value) -> Option<Line> {
    let number = row.get("id").and_then(Value::as_u64).and_then(|id| u32::try_from(id).ok())?;
    let said = match row.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    };
    let mut metadata = serde_json::Map::new();
    for name in ["tool_name", "tool_call_id", "finish_reason"] {
        if let Some(value) = text(row, &format!("/{name}")) {
            metadata.insert(name.into(), value.into());
        }
    }
    if let Some(calls) = row.get("tool_calls").and_then(calls) {
        metadata.insert("tool_calls".into(), calls);
    }
    if said.is_empty() && metadata.is_empty() {
        return None;
    }
    Some(Line {
        number,
        kind: text(row, "/role").unwrap_or_else(|| "message".into()),
        at_ms: row.get("timestamp").and_then(Value::as_f64).map(|seconds| seconds * 1_000.0),
        session: session.to_owned(),
        text: said.chars().take(CHARS).collect(),
        metadata: (!metadata.is_empty()).then(|| Value::Object(metadata).to_string()),
    })
}

/// What tools were called with. The gateway has it as JSON, or as JSON in a text.
fn calls(value: &Value) -> Option<Value> {
    let parsed;
    let calls = match value {
        Value::String(text) => {
            parsed = serde_json::from_str::<Value>(text).ok()?;
            &parsed
        }
        calls => calls,
    };
    let call = |call: &Value| {
        let arguments = text(call, "/function/arguments").unwrap_or_default();
        let arguments: String = arguments.chars().take(CHARS).collect();
        json!({ "name": text(call, "/function/name").unwrap_or_default(), "arguments": arguments })
    };
    let calls: Vec<Value> = calls.as_array()?.iter().map(call).collect();
    (!calls.is_empty()).then(|| calls.into())
}
