//! The events of a run.

use serde_json::Value;
use talaria_guest::events::{Event, ToolProgress, ToolState};
use talaria_guest::http;

use super::approval::Request;
use super::status::{Decided, End};
use crate::text;

/// What an event of a run means to a turn.
pub(super) enum RunEvent {
    /// A piece of the answer.
    Delta(String),
    /// A tool call began or ended.
    Tool(Event),
    /// The agent wants to do something that somebody must allow.
    Approval(Request),
    /// The run is over.
    Ended(End),
    /// Nothing, as most events. Reasoning is among them: the gateway sends the answer under that name, and thoughts are
    /// never shown.
    Ignored,
}

impl RunEvent {
    pub(super) fn of(event: &http::SseEvent) -> Self {
        let Ok(data) = serde_json::from_str::<Value>(&event.data) else { return Self::Ignored };
        // The gateway names its events inside the data; a later one may do it outside.
        let name = data.get("event").and_then(Value::as_str).unwrap_or(&event.event);
        match name {
            "message.delta" => text(&data, "/delta").map_or(Self::Ignored, Self::Delta),
            "tool.started" => Self::Tool(tool(&data, ToolState::Started)),
            "tool.completed" => {
                let failed =
                    data.get("error").is_some_and(|error| !matches!(error, Value::Null | Value::Bool(false)));
                Self::Tool(tool(&data, if failed { ToolState::Failed } else { ToolState::Completed }))
            }
            "approval.request" => Self::Approval(Request::of(&data)),
            "run.completed" => Self::Ended(End::new(Decided::Completed, &data)),
            "run.failed" => Self::Ended(End::new(Decided::Failed, &data)),
            "run.cancelled" | "run.interrupted" => Self::Ended(End::new(Decided::Cancelled, &data)),
            _ => Self::Ignored,
        }
    }
}

/// Tool calls of a run have no id, so a tool goes by its name.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn brief(event: &str, data: &str) -> String {
        let event = http::SseEvent { event: event.into(), data: data.into(), id: None };
        match RunEvent::of(&event) {
            RunEvent::Delta(text) => format!("delta {text}"),
            RunEvent::Tool(Event::ToolProgress(tool)) => {
                let state = match tool.state {
                    ToolState::Started => "started",
                    ToolState::Completed => "completed",
                    ToolState::Failed => "failed",
                };
                format!("{} {state} {}", tool.name, tool.label.unwrap_or_default())
            }
            RunEvent::Tool(_) => "another event".into(),
            RunEvent::Approval(_) => "approval".into(),
            RunEvent::Ended(end) => {
                format!("{:?} {:?} {:?}", end.decided, end.output, end.error)
            }
            RunEvent::Ignored => "ignored".into(),
        }
    }

    #[test]
    fn every_event_has_one_meaning() {
        for (event, data, expected) in [
            ("message", r#"{"event":"message.delta","delta":"hi"}"#, "delta hi"),
            ("message.delta", r#"{"delta":"hi"}"#, "delta hi"),
            ("message", r#"{"event":"message.delta"}"#, "ignored"),
            (
                "message",
                r#"{"event":"tool.started","tool":"terminal","preview":"ls"}"#,
                "terminal started ls",
            ),
            (
                "message",
                r#"{"event":"tool.completed","tool":"terminal","error":false}"#,
                "terminal completed ",
            ),
            ("message", r#"{"event":"tool.completed","tool":"terminal","error":"no"}"#, "terminal failed "),
            ("message", r#"{"event":"tool.started"}"#, "tool started "),
            ("message", r#"{"event":"approval.request","command":"rm"}"#, "approval"),
            ("message", r#"{"event":"run.completed","output":"hi"}"#, r#"Completed Some("hi") None"#),
            ("message", r#"{"event":"run.failed","error":"no"}"#, r#"Failed None Some("no")"#),
            ("message", r#"{"event":"run.cancelled"}"#, "Cancelled None None"),
            ("message", r#"{"event":"run.interrupted"}"#, "Cancelled None None"),
            ("message", r#"{"event":"reasoning.available","text":"hi"}"#, "ignored"),
            ("message", "[DONE]", "ignored"),
        ] {
            assert_eq!(brief(event, data), expected, "{data}");
        }
    }
}
