//! The earlier messages of a context, which the gateway stores but does not load for a run.
//!
//! The gateway's own record comes first, since it covers every task of the context. Only texts of the user and of the
//! agent are sent; what tools did is not.

use serde_json::Value;
use talaria_guest::{Content, Message, Role, Turn};

use super::Gateway;
use crate::hermes_agent::Session;
use crate::hermes_agent::transcript::{is_id, messages};
use crate::history::Said;
use crate::{is_success, text, warn};

/// The number of messages that are sent at most; the newest stay.
const MOST: usize = 200;
/// The bytes of them at most. A model's context ends long before the gateway's bound of 10 MB.
const BYTES: usize = 512 << 10;

/// Returns the id that the session goes by now, and the messages so far, oldest first. `fallback` is used where the
/// gateway has no messages of the session.
pub(super) fn of_session(gateway: &Gateway, session: &Session, fallback: Vec<Said>) -> (String, Vec<Said>) {
    let id = session.id();
    // An id that could lead elsewhere in a path is sent, but not read.
    if session.is_new() || !is_id(id) {
        return (id.to_owned(), newest(fallback));
    }
    match stored(gateway, id) {
        Some((now, messages)) => {
            session.moved(&now);
            (now, newest(if messages.is_empty() { fallback } else { messages }))
        }
        None => (id.to_owned(), newest(fallback)),
    }
}

/// The messages that the gateway has of the session, and the id that it goes by now.
fn stored(gateway: &Gateway, session: &str) -> Option<(String, Vec<Said>)> {
    let response = match messages(gateway.base(), session) {
        Ok(response) if is_success(response.status) => response,
        // The gateway stored nothing of the session.
        Ok(response) if response.status == 404 => return None,
        Ok(response) => return without(&format!("status {}", response.status)),
        Err(error) => return without(&error.message),
    };
    let Ok(answer) = serde_json::from_slice::<Value>(&response.body) else { return without("not JSON") };
    let now = text(&answer, "/session_id").filter(|id| is_id(id)).unwrap_or_else(|| session.to_owned());
    Some((now, rows(&answer)))
}

fn without(why: &str) -> Option<(String, Vec<Said>)> {
    warn(&format!("could not read the session's messages from the gateway: {why}"));
    None
}

fn rows(answer: &Value) -> Vec<Said> {
    let rows = answer.get("data").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let row = |row: &Value| {
        let role = match row.get("role")?.as_str()? {
            "user" => "user",
            "assistant" => "assistant",
            _ => return None,
        };
        said(role, content(row.get("content")?))
    };
    rows.iter().filter_map(row).collect()
}

/// The text of a row: as it is, or the texts of its parts.
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
#[must_use]
pub fn of_task(turn: &Turn) -> Vec<Said> {
    turn.history.iter().filter_map(of_message).collect()
}

fn of_message(message: &Message) -> Option<Said> {
    let texts = message.parts.iter().filter_map(|part| match &part.content {
        Content::Text(text) => Some(text.as_str()),
        _ => None,
    });
    let role = match message.role {
        Role::User => "user",
        Role::Agent => "assistant",
    };
    said(role, texts.collect::<Vec<_>>().join(" "))
}

fn said(role: &'static str, content: String) -> Option<Said> {
    (!content.trim().is_empty()).then_some(Said { content, role })
}

/// The newest messages that fit, starting with one of the user.
pub(super) fn newest(mut messages: Vec<Said>) -> Vec<Said> {
    let mut room = BYTES;
    let fits = |message: &&Said| room.checked_sub(message.content.len()).map(|left| room = left).is_some();
    let fitting = messages.iter().rev().take(MOST).take_while(fits).count();
    messages.drain(..messages.len() - fitting);
    let first = messages.iter().position(|message| message.role == "user");
    messages.drain(..first.unwrap_or(messages.len()));
    messages
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn brief(messages: &[Said]) -> Vec<(&str, &str)> {
        messages.iter().map(|said| (said.role, said.content.as_str())).collect()
    }

    #[test]
    fn only_texts_of_the_user_and_the_agent_are_taken() {
        let answer = json!({ "data": [
            { "role": "system", "content": "secret prompt" },
            { "role": "user", "content": [{ "type": "text", "text": "look" }, { "type": "image_url" }, { "text": "here" }] },
            { "role": "assistant", "content": "", "tool_calls": [{}] },
            { "role": "tool", "content": "42" },
            { "role": "assistant", "content": "hm", "reasoning": "a thought" },
            { "role": "assistant", "content": null },
            { "content": "no role" },
            7,
        ] });
        assert_eq!(brief(&rows(&answer)), [("user", "look\nhere"), ("assistant", "hm")]);
        assert_eq!(rows(&json!({ "data": {} })), []);
    }

    #[test]
    fn the_newest_messages_stay_and_the_user_speaks_first() {
        let said = |role, content: &str| Said { content: content.into(), role };
        let long = "x".repeat(BYTES / 2);
        for (messages, expected) in [
            (vec![], vec![]),
            (vec![said("assistant", "hello")], vec![]),
            (
                vec![said("assistant", "a"), said("user", "b"), said("assistant", "c")],
                vec![said("user", "b"), said("assistant", "c")],
            ),
            (
                vec![said("user", &long), said("user", &long), said("user", "x")],
                vec![said("user", &long), said("user", "x")],
            ),
        ] {
            assert_eq!(newest(messages), expected);
        }
        let many = (0..MOST + 3).map(|n| said("user", &n.to_string())).collect();
        let kept = newest(many);
        assert_eq!((kept.len(), kept[0].content.as_str()), (MOST, "3"));
    }
}
