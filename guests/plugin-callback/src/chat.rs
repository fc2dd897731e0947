//! Which chat of the gateway a turn belongs to, and what the gateway is told of it.

use serde::Deserialize;
use serde_json::{Value, json};
use talaria_guest::{Failure, Turn, control};

use crate::{Settings, wire};

/// What a chat may be named after.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Source {
    /// The task: a chat for each.
    Task,
    /// The session, or the chat, that the caller named.
    Session,
    /// The conversation.
    Context,
    /// The message.
    Message,
    /// The workspace: one chat for everybody.
    Workspace,
}

/// Messages of a history that are passed on, as many as the platform sends.
const HISTORY: usize = 20;
/// Bytes of a history that are passed on: the plugin takes a mebibyte, and the message must fit too.
const HISTORY_BYTES: usize = 256 << 10;

/// The chat's id.
pub(crate) fn id(settings: &Settings, turn: &Turn) -> Result<String, Failure> {
    // What a caller chooses is told apart by caller, or one could speak in another's chat.
    let own = |text: String| match &turn.principal {
        Some(principal) => format!("{}:{text}", principal.name),
        None => text,
    };
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let named = settings.chat_id.iter().find_map(|source| match source {
        Source::Task => given(&turn.task_id),
        Source::Session => given(&turn.session.id)
            .or_else(|| control::session("chat-id").filter(|chat| !chat.is_empty()))
            .map(own),
        Source::Context => given(&turn.context_id).map(own),
        Source::Message => given(&turn.message.id).map(own),
        Source::Workspace => {
            let known = turn.workspace.as_ref().map(|workspace| workspace.id.as_str());
            given(known.unwrap_or(&settings.workspace_id)).map(|id| format!("workspace:{id}"))
        }
    });
    match named {
        Some(id) => Ok(id),
        None => Ok(format!("adhoc-{}", wire::fresh_id()?.chars().take(12).collect::<String>())),
    }
}

/// A text that the gateway does not take for one of its commands. The agent reads the same.
pub(crate) fn disarmed(text: &str) -> String {
    if text.starts_with('/') { format!(" {text}") } else { text.to_owned() }
}

/// Earlier messages that came along with the message, in the shape that the gateway understands; the newest that fit.
pub(crate) fn history(turn: &Turn) -> Vec<Value> {
    let metadata = turn.message.metadata.as_deref().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let sent =
        ["messages_history", "history"].iter().find_map(|name| metadata.as_ref()?.get(*name)?.as_array());
    let newest = sent.into_iter().flatten().rev().filter_map(line);
    let mut room = HISTORY_BYTES;
    let fits = newest.take(HISTORY).take_while(|(_, text)| match room.checked_sub(text.len()) {
        Some(left) => {
            room = left;
            true
        }
        None => false,
    });
    let mut history: Vec<Value> =
        fits.map(|(role, content)| json!({ "role": role, "content": content })).collect();
    history.reverse();
    history
}

/// A message as the platform, or an OpenAI-shaped client, writes it.
fn line(message: &Value) -> Option<(&'static str, String)> {
    let role = match message.get("role").and_then(Value::as_str) {
        Some("user") => "user",
        Some("agent" | "assistant") => "assistant",
        _ => return None,
    };
    let text = match message.get("content").and_then(Value::as_str) {
        Some(text) => text.to_owned(),
        None => {
            let parts = message.get("parts").and_then(Value::as_array)?;
            let texts = parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str));
            texts.collect::<Vec<_>>().join(" ")
        }
    };
    let text = text.trim();
    (!text.is_empty()).then(|| (role, text.to_owned()))
}
