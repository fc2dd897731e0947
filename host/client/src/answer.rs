//! An agent's answer, a message or a task, and the status of the turn that it reports.

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::parts::{parts_text, status_text, task_text};
use crate::update::Update;

/// An answer. It serializes to the result as it arrived and displays as the agent's text.
#[derive(Debug)]
pub struct Answer {
    /// The status of the turn.
    pub status: TurnStatus,
    /// The agent's question, if the turn waits for input.
    pub question: String,
    raw: Value,
    text: String,
}

/// The status of a turn, as far as the agent has reported it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TurnStatus {
    /// The task's state in lower case with hyphens. `None` for a message that is an answer.
    pub state: Option<String>,
    /// The id of the task.
    pub task: Option<String>,
    /// The id of the context.
    pub context: Option<String>,
}

// === impl Answer ===

impl Answer {
    /// Reads a result. Returns `None` if it is neither a message nor a task.
    pub fn read(raw: Value) -> Option<Self> {
        let (status, text, question) = match Update::of(&raw) {
            Update::Task(task) => (TurnStatus::of_task(task), task_text(task), status_text(task)),
            Update::Message(message) => (TurnStatus::of_message(message), parts_text(message), String::new()),
            _ => return None,
        };
        let question = if question.is_empty() { text.clone() } else { question };
        Some(Self { status, question, text, raw })
    }

    /// The result as it arrived.
    pub fn raw(&self) -> &Value {
        &self.raw
    }

    /// The agent's text: the message, or the task's status message and artifacts.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Answer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.raw.serialize(serializer)
    }
}

// === impl TurnStatus ===

impl TurnStatus {
    /// Reads the status of a task.
    pub fn of_task(task: &Value) -> Self {
        Self { state: Some(state(task)), task: id(task, "id"), context: id(task, "contextId") }
    }

    /// Reads the status that a message implies: an answer, unless Talaria marked it as something else.
    pub fn of_message(message: &Value) -> Self {
        let marked = message.get("metadata").and_then(|metadata| metadata.get("talaria/state"));
        let state = marked.and_then(Value::as_str).map(str::to_owned);
        Self { state, task: id(message, "taskId"), context: id(message, "contextId") }
    }

    /// Reads a status update or an artifact update; only the former has a state.
    pub fn of_update(update: &Value) -> Self {
        let state = update.get("status").map(|_| state(update));
        Self { state, task: id(update, "taskId"), context: id(update, "contextId") }
    }

    /// Overwrites what a newer report says; the rest stays.
    pub(crate) fn merge(&mut self, newer: Self) {
        self.state = newer.state.or_else(|| self.state.take());
        self.task = newer.task.or_else(|| self.task.take());
        self.context = newer.context.or_else(|| self.context.take());
    }

    /// Whether the agent has replied, with an answer or with a question.
    pub fn is_reply(&self) -> bool {
        matches!(self.state.as_deref(), None | Some("completed" | "input-required"))
    }

    /// Whether the task waits for the caller's input.
    pub fn wants_input(&self) -> bool {
        self.task.is_some() && self.state.as_deref() == Some("input-required")
    }

    /// Whether the task has reached a terminal state.
    pub fn is_terminal(&self) -> bool {
        matches!(self.state.as_deref(), Some("completed" | "failed" | "canceled" | "cancelled" | "rejected"))
    }

    /// Whether the agent will do nothing more by itself: the state is terminal, or the agent waits for the caller.
    pub fn is_settled(&self) -> bool {
        self.is_terminal() || matches!(self.state.as_deref(), Some("input-required" | "auth-required"))
    }

    /// Summarises state and ids in one line.
    pub fn summary(&self) -> String {
        let mut line = self.state.clone().unwrap_or_else(|| "message".into());
        for (what, id) in [("task", &self.task), ("context", &self.context)] {
            if let Some(id) = id {
                line.push_str(&format!(", {what} {id}"));
            }
        }
        line
    }
}

fn id(body: &Value, key: &str) -> Option<String> {
    body.get(key).and_then(Value::as_str).filter(|id| !id.is_empty()).map(str::to_owned)
}

/// Returns the state of a task or status update in the spelling of 0.3: `TASK_STATE_INPUT_REQUIRED` is `input-required`.
fn state(task: &Value) -> String {
    let state = task
        .get("status")
        .and_then(|status| status.get("state"))
        .and_then(Value::as_str)
        .unwrap_or("unknown");
    state.trim_start_matches("TASK_STATE_").to_lowercase().replace('_', "-")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(raw: Value) -> Answer {
        Answer::read(raw).expect("an answer")
    }

    #[test]
    fn reads_a_message_in_both_versions() {
        let new = read(
            json!({ "message": { "role": "ROLE_AGENT", "contextId": "c", "parts": [{ "text": "a" }, { "text": "b" }] } }),
        );
        let old = read(json!({ "kind": "message", "role": "agent", "contextId": "c", "parts": [
            { "kind": "text", "text": "a" }, { "kind": "text", "text": "b" },
        ] }));
        for answer in [new, old] {
            assert_eq!(
                (answer.to_string().as_str(), answer.status.summary().as_str()),
                ("a\nb", "message, context c")
            );
            assert!(answer.status.is_reply());
        }
    }

    #[test]
    fn reads_a_task_in_both_versions() {
        let task = |state: &str| {
            json!({ "id": "t", "contextId": "c", "status": { "state": state },
            "artifacts": [{ "artifactId": "a", "parts": [{ "text": "hi" }] }] })
        };
        let new = read(json!({ "task": task("TASK_STATE_COMPLETED") }));
        let mut old = task("completed");
        old["kind"] = "task".into();
        for answer in [new, read(old)] {
            assert_eq!(
                (answer.to_string().as_str(), answer.status.summary().as_str()),
                ("hi", "completed, task t, context c")
            );
            assert!(answer.status.is_reply());
        }
    }

    #[test]
    fn completed_and_input_required_tasks_are_replies() {
        let answer = |state: &str| read(json!({ "task": { "id": "t", "status": { "state": state } } }));
        assert!(answer("TASK_STATE_INPUT_REQUIRED").status.is_reply());
        for state in ["FAILED", "REJECTED", "CANCELED", "AUTH_REQUIRED", "WORKING", "SUBMITTED"] {
            assert!(!answer(&format!("TASK_STATE_{state}")).status.is_reply(), "{state}");
        }
    }

    #[test]
    fn a_message_marked_as_failed_is_not_a_reply() {
        let failed = json!({ "parts": [{ "text": "broken" }], "metadata": { "talaria/state": "failed" } });
        let answer = read(json!({ "message": failed }));
        assert_eq!((answer.to_string().as_str(), answer.status.summary().as_str()), ("broken", "failed"));
        assert!(!answer.status.is_reply());
    }

    #[test]
    fn finds_the_text_of_a_task_in_its_status_or_history() {
        let said = |members: Value| {
            let mut task = members;
            task["id"] = "t".into();
            read(json!({ "task": task })).to_string()
        };
        let message = |text: &str| json!({ "role": "ROLE_AGENT", "parts": [{ "text": text }] });
        assert_eq!(
            said(json!({ "status": { "state": "TASK_STATE_FAILED", "message": message("broken") } })),
            "broken"
        );
        assert_eq!(
            said(
                json!({ "status": {}, "history": [message("old"), message("last"), { "role": "ROLE_USER", "parts": [] }] })
            ),
            "last"
        );
        assert_eq!(said(json!({ "status": {} })), "");
    }

    #[test]
    fn describes_parts_that_are_not_text() {
        let parts = json!([
            { "data": { "n": 1 } },
            { "url": "https://a.example/f", "filename": "f.txt", "mediaType": "text/plain" },
            { "kind": "file", "file": { "bytes": "aGk=", "name": "g.txt" } },
            { "raw": "aGk=" },
        ]);
        let text = read(json!({ "message": { "parts": parts } })).to_string();
        assert_eq!(text, "{\"n\":1}\n[file f.txt text/plain https://a.example/f]\n[file g.txt]\n[file]");
    }

    #[test]
    fn rejects_other_results() {
        for raw in [json!(null), json!({}), json!({ "task": 1 }), json!({ "kind": "status-update" })] {
            assert!(Answer::read(raw).is_none());
        }
    }
}
