//! Reads the sessions that hermes-agent stores of the bridge's contexts.
//!
//! The gateway serves its sessions beside its API, one level above it, to every holder of its key, including those of
//! its own terminal and of other platforms. Only the bridge's own are shown. A session is the bridge's if its id, or
//! the id of the session that it continues, has the prefix of [`super::Session`], or if the plugin carried it.
//!
//! Messages are numbered across all sessions, so a number is a position in all of them. The gateway lists the session
//! with the newest message first: as soon as one has nothing new, neither have the rest, so reading on costs two
//! requests.

use serde_json::{Value, json};
use talaria_guest::{Failure, FailureKind, Line, Page, Query, Request, config, http};

use super::session::OURS;
use super::{KEY, error, error_status, unreachable};
use crate::{base, bearer, is_success, text};

/// The number of sessions that are read, and the number of sessions that are listed to find them.
const SESSIONS: (usize, usize) = (10, 100);
/// How long one response may take.
const TIMEOUT_MS: u32 = 5_000;
/// The bytes of a list of sessions, or of a session, at most.
const BYTES: u32 = 8 << 20;
/// The characters of a text that are shown.
const CHARS: usize = 8_192;
/// The source of the plugin's sessions.
const PLUGIN: &str = "molecule-a2a";
/// The longest id of a run or a session; the gateway's have 36 characters.
const LONGEST_ID: usize = 256;

/// Reads the lines of a query.
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
        // The rest have only older messages.
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

/// Reads the messages of a session.
///
/// # Errors
/// The host's [`http::Error`].
pub fn messages(base_url: &str, session: &str) -> Result<http::Response, http::Error> {
    get(format!("{}/api/sessions/{session}/messages", above(base(base_url))))
}

/// Whether a text is safe as an id in a path.
#[must_use]
pub fn is_id(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=LONGEST_ID).contains(&text.len()) && text.bytes().all(plain)
}

fn get(url: String) -> Result<http::Response, http::Error> {
    bearer(Request::new("GET", url), KEY).timeout_ms(TIMEOUT_MS).max_bytes(BYTES).fetch()
}

/// The URL one level above, which `{parent:base_url}` stands for in the needs.
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

/// The ids of the bridge's sessions.
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
    // The session was deleted in between.
    if response.status == 404 {
        return Ok(Vec::new());
    }
    let rows = rows(response)?;
    Ok(rows.iter().filter_map(|row| line(session, row)).filter(|line| line.number >= since).collect())
}

/// A message as a line, without the model's thoughts.
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

/// The tool calls of a message, which the gateway has as JSON, or as JSON in a text.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_bridges_sessions_are_shown() {
        let rows = [
            json!({ "id": "talaria-1" }),
            json!({ "id": "20261118_a", "_lineage_root_id": "talaria-1" }),
            json!({ "id": "chat-1", "source": "molecule-a2a" }),
            json!({ "id": "terminal-1", "source": "cli" }),
            json!({ "id": "talaria-../../admin" }),
            json!({ "source": "molecule-a2a" }),
        ];
        assert_eq!(ours(&rows).collect::<Vec<_>>(), ["talaria-1", "20261118_a", "chat-1"]);
    }

    #[test]
    fn an_id_cannot_lead_elsewhere_in_a_path() {
        let long = "x".repeat(LONGEST_ID + 1);
        for (text, safe) in
            [("run_1-a", true), ("", false), ("..", false), ("a/b", false), ("a?b", false), (&long, false)]
        {
            assert_eq!(is_id(text), safe, "{text}");
        }
    }

    #[test]
    fn sessions_are_one_level_above_the_api() {
        for (base, parent) in [
            ("http://h:1/v1", "http://h:1"),
            ("http://h/a/v1", "http://h/a"),
            ("http://h", "http://h"),
            ("h/v1", "h"),
        ] {
            assert_eq!(above(base), parent);
        }
    }

    #[test]
    fn a_line_has_texts_and_tools_and_no_thoughts() {
        let row = json!({
            "id": 7, "role": "assistant", "content": "hi", "timestamp": 1.5, "reasoning": "hm", "finish_reason": "stop",
            "tool_calls": r#"[{"function":{"name":"ls","arguments":"{}"}}]"#,
        });
        let shown = line("s", &row).unwrap();
        assert_eq!((shown.number, shown.kind.as_str(), shown.text.as_str()), (7, "assistant", "hi"));
        assert_eq!((shown.at_ms, shown.session.as_str()), (Some(1_500.0), "s"));
        let metadata: Value = serde_json::from_str(&shown.metadata.unwrap()).unwrap();
        let calls = json!([{ "name": "ls", "arguments": "{}" }]);
        assert_eq!(metadata, json!({ "finish_reason": "stop", "tool_calls": calls }));
        for row in [json!({ "id": 7, "content": "" }), json!({ "content": "hi" }), json!(7)] {
            assert!(line("s", &row).is_none(), "{row}");
        }
    }
}
