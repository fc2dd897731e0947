//! What a run says while it runs.

use serde_json::Value;
use talaria_guest::events::{Event, ToolProgress, ToolState};
use talaria_guest::http;
use talaria_upstream::{text, usage};

use crate::approval::Request;
use crate::run::{Decided, End};

/// What an event means here; most mean nothing.
pub(crate) enum News {
    /// A piece of the answer.
    Delta(String),
    /// A tool call began or ended.
    Tool(Event),
    /// The agent wants to do something that somebody must allow.
    Approval(Request),
    /// The run is over.
    Over(End),
    /// Nothing. What a model thinks is among it: the gateway sends the answer under that name, and it is never shown.
    Nothing,
}

impl News {
    pub(crate) fn of(event: &http::SseEvent) -> Self {
        let Ok(data) = serde_json::from_str::<Value>(&event.data) else { return Self::Nothing };
        // The gateway names its events inside; a later one may do it outside.
        let name = data.get("event").and_then(Value::as_str).unwrap_or(&event.event);
        match name {
            "message.delta" => text(&data, "/delta").map_or(Self::Nothing, Self::Delta),
            "tool.started" => Self::Tool(tool(&data, ToolState::Started)),
            "tool.completed" => {
                let failed =
                    data.get("error").is_some_and(|error| !matches!(error, Value::Null | Value::Bool(false)));
                Self::Tool(tool(&data, if failed { ToolState::Failed } else { ToolState::Completed }))
            }
            "approval.request" => Self::Approval(Request::of(&data)),
            "run.completed" => Self::Over(End::new(Decided::Completed, &data)),
            "run.failed" => Self::Over(End::new(Decided::Failed, &data)),
            "run.cancelled" | "run.interrupted" => Self::Over(End::new(Decided::Cancelled, &data)),
            _ => Self::Nothing,
        }
    }
}

impl End {
    /// What an event, or a status, says about the end.
    pub(crate) fn new(decided: Decided, data: &Value) -> Self {
        Self {
            decided,
            output: text(data, "/output"),
            error: text(data, "/error"),
            usage: usage(data, "/usage/input_tokens", "/usage/output_tokens"),
        }
    }
}

/// Calls have no id here, so a tool goes by its name.
fn tool(data: &Value, state: ToolState) -> Event {
    let name = text(data, "/tool").unwrap_or_else(|| "tool".into());
    Event::ToolProgress(ToolProgress {
        id: name.clone(),
        name,
        state,
        label: text(data, "/preview"),
        metadata: None,
    })
}
