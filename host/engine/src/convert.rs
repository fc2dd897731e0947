//! Conversion between the types of the domain and those of the contract.
//!
//! Every string from a guest is redacted here. The nesting of a guest's JSON is limited, and so is the size of the tree
//! that it becomes.

use std::time::Duration;

use serde_json::Value;
use talaria_redact::ReplyRedactor;
use talaria_turns::{
    Content, FailureKind, FinalState, Message, Metadata, Outcome, Part, Role, Turn, Usage, Workspace,
    message_text,
};
use tokio::time::Instant;

use crate::contract::bindings::talaria::executor::types as wit;
use crate::host::pieces::is_open_text;
use crate::session::Withheld;
use crate::size;

/// The maximum nesting depth of a guest's JSON, the same as for requests.
const MAX_DEPTH: usize = 100;

pub(crate) fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

/// Formats a duration in seconds: `600s`, `1.5s`.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{}s", duration.as_secs_f64())
}

// === to the guest ===

pub(crate) fn turn(
    turn: Turn,
    session: wit::Session,
    withheld: Withheld,
    workspace: Option<wit::Workspace>,
    settings: &str,
    deadline: Instant,
) -> wit::Turn {
    wit::Turn {
        task_id: turn.task.to_string(),
        context_id: turn.context.to_string(),
        message: message(&turn.message, withheld),
        text: message_text(&turn.message.parts),
        history: turn.history.iter().map(|earlier| message(earlier, withheld)).collect(),
        workspace,
        session,
        principal: turn.principal.name().map(|name| wit::Principal { name: name.to_owned(), metadata: None }),
        settings: settings.to_owned(),
        streaming: turn.streaming,
        budget_ms: millis(deadline.saturating_duration_since(Instant::now())),
        checkpoint: turn.checkpoint,
        metadata: turn.metadata.as_deref().map(|metadata| text_of(&withheld.apply(metadata))),
    }
}

pub(crate) fn workspace(workspace: &Workspace) -> wit::Workspace {
    let Workspace { id, model, system_prompt, tools } = workspace.clone();
    wit::Workspace { id, model, system_prompt, tools, metadata: None }
}

pub(crate) fn message(message: &Message, withheld: Withheld) -> wit::Message {
    wit::Message {
        id: message.id.to_string(),
        role: match message.role {
            Role::User => wit::Role::User,
            Role::Agent => wit::Role::Agent,
        },
        parts: message.parts.iter().map(part).collect(),
        metadata: message.metadata.as_ref().map(|metadata| text_of(&withheld.apply(metadata))),
    }
}

fn part(part: &Part) -> wit::Part {
    wit::Part {
        content: match &part.content {
            Content::Text(text) => wit::Content::Text(text.clone()),
            Content::Data(data) => wit::Content::Data(data.to_string()),
            Content::Uri(uri) => wit::Content::Uri(uri.clone()),
            Content::Bytes(bytes) => wit::Content::Bytes(bytes.clone()),
        },
        media_type: part.media_type.clone(),
        filename: part.filename.clone(),
        metadata: part.metadata.as_ref().map(text_of),
    }
}

/// Encodes metadata as JSON.
fn text_of(metadata: &Metadata) -> String {
    // The keys are strings, so this cannot fail.
    serde_json::to_string(metadata).unwrap_or_default()
}

// === from the guest ===

pub(crate) fn outcome(outcome: wit::Outcome, replies: &ReplyRedactor) -> Result<Outcome, String> {
    Ok(Outcome {
        state: match outcome.state {
            wit::FinalState::Completed => FinalState::Completed,
            wit::FinalState::InputRequired => FinalState::InputRequired,
            wit::FinalState::AuthRequired => FinalState::AuthRequired,
            wit::FinalState::Rejected => FinalState::Rejected,
        },
        parts: parts(outcome.parts, replies)?,
        usage: outcome
            .usage
            .map(|usage| Usage { input_tokens: usage.input_tokens, output_tokens: usage.output_tokens }),
        metadata: metadata("outcome.metadata", outcome.metadata, replies)?,
    })
}

pub(crate) fn failure_kind(kind: wit::FailureKind) -> FailureKind {
    match kind {
        wit::FailureKind::InvalidTurn => FailureKind::InvalidTurn,
        wit::FailureKind::InvalidSettings => FailureKind::InvalidSettings,
        wit::FailureKind::Upstream => FailureKind::Upstream,
        wit::FailureKind::Denied => FailureKind::Denied,
        wit::FailureKind::TimedOut => FailureKind::TimedOut,
        wit::FailureKind::Cancelled => FailureKind::Cancelled,
        wit::FailureKind::Internal => FailureKind::Internal,
    }
}

pub(crate) fn parts(parts: Vec<wit::Part>, replies: &ReplyRedactor) -> Result<Vec<Part>, String> {
    let parts = piece_parts(parts, replies)?.into_iter().map(|mut part| {
        if let (true, Content::Text(text)) = (is_open_text(&part), &mut part.content) {
            *text = replies.text(std::mem::take(text));
        }
        part
    });
    Ok(parts.collect())
}

/// Converts the parts of a piece of an artifact. [Open text](is_open_text) is not redacted yet: it may end, or begin, in
/// the middle of a secret.
pub(crate) fn piece_parts(parts: Vec<wit::Part>, replies: &ReplyRedactor) -> Result<Vec<Part>, String> {
    let convert = |part: wit::Part| {
        let mut part = Part {
            content: match part.content {
                wit::Content::Text(text) => Content::Text(text),
                wit::Content::Data(data) => Content::Data(json("part.data", &data, replies)?),
                wit::Content::Uri(uri) => Content::Uri(replies.text(uri)),
                wit::Content::Bytes(bytes) => Content::Bytes(replies.bytes(bytes)),
            },
            media_type: part.media_type.map(|text| replies.text(text)),
            filename: part.filename.map(|text| replies.text(text)),
            metadata: metadata("part.metadata", part.metadata, replies)?,
        };
        if let (false, Content::Text(text)) = (is_open_text(&part), &mut part.content) {
            *text = replies.text(std::mem::take(text));
        }
        Ok(part)
    };
    parts.into_iter().map(convert).collect()
}

pub(crate) fn metadata(
    field: &str,
    text: Option<String>,
    replies: &ReplyRedactor,
) -> Result<Option<Metadata>, String> {
    match text.map(|text| json(field, &text, replies)).transpose()? {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(metadata)) => Ok(Some(metadata)),
        Some(_) => Err(format!("{field} is not a JSON object")),
    }
}

/// Parses a guest's JSON and redacts every string in it, keys included.
///
/// The nesting is limited as in requests: a store wraps the value in some more levels and can read back at most 128.
pub(crate) fn json(field: &str, text: &str, replies: &ReplyRedactor) -> Result<Value, String> {
    size::check_tree(field, text)?;
    let mut value = serde_json::from_str(text).map_err(|error| format!("{field} is not JSON: {error}"))?;
    match redact(&mut value, replies, MAX_DEPTH) {
        true => Ok(value),
        false => Err(format!("{field} is nested more than {MAX_DEPTH} deep")),
    }
}

/// Redacts every string in `value`. Returns false if it is nested deeper than `depth`.
fn redact(value: &mut Value, replies: &ReplyRedactor, depth: usize) -> bool {
    match value {
        Value::String(text) => *text = replies.text(std::mem::take(text)),
        Value::Array(items) => {
            let Some(depth) = depth.checked_sub(1) else { return items.is_empty() };
            return items.iter_mut().all(|item| redact(item, replies, depth));
        }
        Value::Object(fields) => {
            let Some(depth) = depth.checked_sub(1) else { return fields.is_empty() };
            let redacted = std::mem::take(fields).into_iter().map(|(key, field)| (replies.text(key), field));
            *fields = redacted.collect();
            return fields.values_mut().all(|field| redact(field, replies, depth));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    true
}
