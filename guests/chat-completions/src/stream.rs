//! The same turn, streamed: deltas and tool progress go out as they come in.

use serde_json::Value;
use talaria_guest::events::{self, Event, ToolProgress, ToolState};
use talaria_guest::{Failure, FailureKind, Outcome, Request};
use talaria_upstream::{
    Chunk, ERROR_BYTES, WHOLE_BODY, hermes_agent, is_event_stream, is_success, next_chunk, read, text,
};

use crate::reply::{self, Reply};
use crate::session::Session;

/// The event that carries a tool's progress; all others carry chunks.
const TOOL_EVENT: &str = "hermes.tool.progress";

pub(crate) fn answer(request: Request, session: &Session) -> Result<Outcome, Failure> {
    let unreachable = |error| hermes_agent::unreachable(&error);
    let exchange = request.open().map_err(unreachable)?;
    session.follow(&exchange.headers());
    let status = exchange.status();
    if !is_success(status) {
        let body = read(&exchange, ERROR_BYTES).map_err(unreachable)?;
        return Err(hermes_agent::error_status(status, &body));
    }
    if !is_event_stream(&exchange) {
        return reply::parse(&read(&exchange, WHOLE_BODY).map_err(unreachable)?)?.outcome();
    }

    let mut reply = Reply::default();
    let mut said = String::new();
    while let Chunk::Data { event, data } = next_chunk(&exchange).map_err(unreachable)? {
        if event == TOOL_EVENT {
            emit(tool_progress(&data))?;
            continue;
        }
        reply.ending.note(&data);
        if let Some(delta) = data.pointer("/choices/0/delta/content").and_then(Value::as_str) {
            // After a tool the gateway begins with line feeds that the final text does not have.
            let delta = if said.is_empty() { delta.trim_start_matches('\n') } else { delta };
            if !delta.is_empty() {
                said.push_str(delta);
                emit(Event::TextDelta(delta.to_owned()))?;
            }
        }
    }
    if !reply.ending.is_finished() {
        return Err(reply.error().unwrap_or_else(|| Failure {
            retryable: true,
            ..Failure::new(
                FailureKind::Upstream,
                "[hermes-agent unreachable] the stream ended before the answer did",
            )
        }));
    }
    reply.text = Some(said);
    reply.outcome()
}

fn emit(event: Event) -> Result<(), Failure> {
    events::emit(&event).map_err(|error| hermes_agent::not_passed_on(&error))
}

fn tool_progress(data: &Value) -> Event {
    let name = text(data, "/tool").unwrap_or_else(|| "tool".into());
    Event::ToolProgress(ToolProgress {
        id: text(data, "/toolCallId").unwrap_or_else(|| name.clone()),
        state: match text(data, "/status").as_deref() {
            Some("completed") => ToolState::Completed,
            Some("failed" | "error") => ToolState::Failed,
            _ => ToolState::Started,
        },
        label: text(data, "/label"),
        metadata: None,
        name,
    })
}
