//! The same turn, streamed: deltas and tool progress go out as they come in.

use serde_json::Value;
use talaria_guest::events::{self, Event, ToolProgress, ToolState};
use talaria_guest::{Failure, FailureKind, Outcome, Request, http};

use crate::reply::{self, Reply};
use crate::session::Session;
use crate::{ERROR_CHARS, unreachable, upstream_error};

/// The event that carries a tool's progress; all others carry chunks.
const TOOL_EVENT: &str = "hermes.tool.progress";
/// How much of an error's body is read: what is shown of it, in the longest characters, and a key that begins there.
const ERROR_BYTES: usize = ERROR_CHARS * 4 + 4_096;
/// The largest body of a gateway that was asked to stream and answered in one piece.
const WHOLE_BODY: usize = 8 << 20;

pub(crate) fn answer(request: Request, session: &Session) -> Result<Outcome, Failure> {
    let exchange = request.open().map_err(|error| unreachable(&error))?;
    session.follow(&exchange.headers());
    let status = exchange.status();
    if !(200..300).contains(&status) {
        return Err(upstream_error(status, &read(&exchange, ERROR_BYTES)?));
    }
    let streamed = exchange.headers().iter().any(|(name, value)| {
        name == "content-type" && value.to_ascii_lowercase().starts_with("text/event-stream")
    });
    if !streamed {
        return reply::parse(&read(&exchange, WHOLE_BODY)?)?.outcome();
    }

    let mut reply = Reply::default();
    let mut text = String::new();
    while let Some(event) = exchange.next_event().map_err(|error| unreachable(&error))? {
        if event.data == "[DONE]" {
            break;
        }
        let Ok(data) = serde_json::from_str::<Value>(&event.data) else { continue };
        if event.event == TOOL_EVENT {
            emit(tool_progress(&data))?;
            continue;
        }
        reply.note(&data);
        if let Some(delta) = data.pointer("/choices/0/delta/content").and_then(Value::as_str) {
            // After a tool the gateway begins with line feeds that the final text does not have.
            let delta = if text.is_empty() { delta.trim_start_matches('\n') } else { delta };
            if !delta.is_empty() {
                text.push_str(delta);
                emit(Event::TextDelta(delta.to_owned()))?;
            }
        }
    }
    if !reply.is_finished() {
        return Err(reply.error().unwrap_or_else(|| Failure {
            retryable: true,
            ..Failure::new(
                FailureKind::Upstream,
                "[hermes-agent unreachable] the stream ended before the answer did",
            )
        }));
    }
    reply.text = Some(text);
    reply.outcome()
}

fn emit(event: Event) -> Result<(), Failure> {
    events::emit(&event).map_err(|error| {
        let kind = match error.kind {
            events::ErrorKind::Cancelled => FailureKind::Cancelled,
            _ => FailureKind::Internal,
        };
        Failure::new(
            kind,
            format!("[hermes-agent error] the answer could not be passed on: {}", error.message),
        )
    })
}

fn tool_progress(data: &Value) -> Event {
    let text = |key: &str| data.get(key).and_then(Value::as_str).map(str::to_owned);
    let name = text("tool").unwrap_or_else(|| "tool".into());
    Event::ToolProgress(ToolProgress {
        id: text("toolCallId").unwrap_or_else(|| name.clone()),
        state: match text("status").as_deref() {
            Some("completed") => ToolState::Completed,
            Some("failed" | "error") => ToolState::Failed,
            _ => ToolState::Started,
        },
        label: text("label"),
        metadata: None,
        name,
    })
}

/// The body, up to a bound; the rest is left.
fn read(exchange: &http::Exchange, bound: usize) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    while body.len() < bound {
        let room = u32::try_from(bound - body.len()).unwrap_or(u32::MAX);
        match exchange.read(room).map_err(|error| unreachable(&error))? {
            Some(bytes) => body.extend_from_slice(&bytes),
            None => break,
        }
    }
    Ok(body)
}
