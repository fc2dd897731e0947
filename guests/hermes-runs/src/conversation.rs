//! What was said before, which the gateway keeps and does not read back by itself.
//!
//! The gateway's own messages go before the task's history, since they hold all tasks of the conversation. Only texts of
//! the user and of the agent are sent; what its tools did is not.

use serde_json::{Value, json};
use talaria_guest::{Content, Message, Role, Turn, log};
use talaria_upstream::hermes_agent::Session;
use talaria_upstream::hermes_agent::transcript::{is_id, messages};
use talaria_upstream::{is_success, text};

use crate::gateway::Gateway;

/// The most messages that are sent along, the newest ones.
const MOST: usize = 200;
/// The most bytes of them. A model's context ends long before the gateway's bound of 10 MB.
const BYTES: usize = 512 << 10;

/// The id that the session goes by now, and the conversation so far, oldest message first.
pub(crate) fn so_far(gateway: &Gateway, session: &Session, turn: &Turn) -> (String, Vec<Value>) {
    let kept = session.id();
    // One that could lead elsewhere in a path is used, and not read.
    if session.is_new() || !is_id(kept) {
        return (kept.to_owned(), newest(of_task(turn)));
    }
    match of_session(gateway, kept) {
        Some((now, messages)) => {
            session.moved(&now);
            let messages = if messages.is_empty() { of_task(turn) } else { messages };
            (now, newest(messages))
        }
        None => (kept.to_owned(), newest(of_task(turn))),
    }
}

/// What the gateway has of the session, and the id that it goes by now.
fn of_session(gateway: &Gateway, session: &str) -> Option<(String, Vec<Value>)> {
    let response = match messages(gateway.base(), session) {
        Ok(response) if is_success(response.status) => response,
        // A session of which nothing was kept.
        Ok(response) if response.status == 404 => return None,
        Ok(response) => return without(&format!("status {}", response.status)),
        Err(error) => return without(&error.message),
    };
    let Ok(answer) = serde_json::from_slice::<Value>(&response.body) else { return without("it is no JSON") };
    let now = text(&answer, "/session_id").filter(|id| is_id(id)).unwrap_or_else(|| session.to_owned());
    let rows = answer.get("data").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let messages = rows.iter().filter_map(|row| {
        let role =
            row.get("role").and_then(Value::as_str).filter(|role| matches!(*role, "user" | "assistant"))?;
        said(role, content(row.get("content")?))
    });
    Some((now, messages.collect()))
}

fn without(why: &str) -> Option<(String, Vec<Value>)> {
    let line = format!("the conversation was not read from the gateway: {why}");
    log::write(log::Level::Warn, &line, None);
    None
}

/// A row's text: as it is, or the texts of its parts.
fn content(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str));
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

/// The earlier messages of the turn's task.
fn of_task(turn: &Turn) -> Vec<Value> {
    let message = |message: &Message| {
        let texts = message.parts.iter().filter_map(|part| match &part.content {
            Content::Text(text) => Some(text.as_str()),
            _ => None,
        });
        let role = match message.role {
            Role::User => "user",
            Role::Agent => "assistant",
        };
        said(role, texts.collect::<Vec<_>>().join(" "))
    };
    turn.history.iter().filter_map(message).collect()
}

fn said(role: &str, content: String) -> Option<Value> {
    (!content.trim().is_empty()).then(|| json!({ "role": role, "content": content }))
}

/// The newest messages that fit, from a message of the user on.
fn newest(mut messages: Vec<Value>) -> Vec<Value> {
    let size = |message: &Value| message.get("content").and_then(Value::as_str).map_or(0, str::len);
    let mut room = BYTES;
    let fits = |message: &&Value| room.checked_sub(size(message)).map(|left| room = left).is_some();
    let kept = messages.iter().rev().take(MOST).take_while(fits).count();
    messages.drain(..messages.len() - kept);
    let first =
        messages.iter().position(|message| message.get("role").and_then(Value::as_str) == Some("user"));
    messages.drain(..first.unwrap_or(messages.len()));
    messages
}
