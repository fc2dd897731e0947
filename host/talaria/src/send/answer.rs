//! What an agent answered: a message or a task, in either version's form, as text and as it came.

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::update::Update;

/// An answer. Its JSON is the result as it came, its text is what the agent says.
#[derive(Debug)]
pub(super) struct Answer {
    /// How things stand with it.
    pub(super) standing: Standing,
    /// What the agent asks, where it asks.
    pub(super) question: String,
    raw: Value,
    text: String,
}

/// How things stand between the caller and the agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// The task's state in lower case with hyphens; `None` for a message that is an answer.
    pub(super) state: Option<String>,
    /// The task.
    pub(super) task: Option<String>,
    /// The conversation.
    pub(super) context: Option<String>,
}

// === impl Answer ===

impl Answer {
    /// Reads a result; `None` if it is neither a message nor a task.
    pub(super) fn read(raw: Value) -> Option<Self> {
        let (standing, text, question) = match Update::of(&raw) {
            Update::Task(task) => (Standing::of_task(task), task_text(task), status_text(task)),
            Update::Message(message) => (Standing::of_message(message), parts_text(message), String::new()),
            _ => return None,
        };
        let question = if question.is_empty() { text.clone() } else { question };
        Some(Self { standing, question, text, raw })
    }
}

// === impl Standing ===

impl Standing {
    pub(super) fn of_task(task: &Value) -> Self {
        Self { state: Some(state(task)), task: id(task, "id"), context: id(task, "contextId") }
    }

    pub(super) fn of_message(message: &Value) -> Self {
        Self { state: marked_state(message), task: id(message, "taskId"), context: id(message, "contextId") }
    }

    /// What a status update or an artifact update says; only the former has a state.
    pub(super) fn of_update(update: &Value) -> Self {
        let state = update.get("status").map(|_| state(update));
        Self { state, task: id(update, "taskId"), context: id(update, "contextId") }
    }

    /// Whether the agent said what there is to say: an answer, or a question back.
    pub(super) fn is_reply(&self) -> bool {
        matches!(self.state.as_deref(), None | Some("completed" | "input-required"))
    }

    /// Whether the agent asks the caller.
    pub(super) fn asks(&self) -> bool {
        self.task.is_some() && self.state.as_deref() == Some("input-required")
    }

    /// Whether the task is over.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state.as_deref(), Some("completed" | "failed" | "canceled" | "cancelled" | "rejected"))
    }

    /// Whether the agent does nothing more by itself.
    pub(super) fn is_settled(&self) -> bool {
        self.is_over() || matches!(self.state.as_deref(), Some("input-required" | "auth-required"))
    }

    /// State and ids, in a line.
    pub(super) fn summary(&self) -> String {
        let mut line = self.state.clone().unwrap_or_else(|| "message".into());
        for (what, id) in [("task", &self.task), ("context", &self.context)] {
            if let Some(id) = id {
                line.push_str(&format!(", {what} {id}"));
            }
        }
        line
    }

    /// What the caller can do now, where that is not plain.
    pub(super) fn next_step(&self, url: &str) -> Option<String> {
        let task = self.task.as_deref()?;
        match self.state.as_deref()? {
            "input-required" => {
                Some(format!("the agent asks for more; answer with: talaria send {url} TEXT --task {task}"))
            }
            "auth-required" => Some("the agent waits until you have authenticated where it says".into()),
            "submitted" | "working" => {
                Some(format!("the agent is still at work; task {task} has the answer later"))
            }
            _ => None,
        }
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

fn id(body: &Value, key: &str) -> Option<String> {
    body.get(key).and_then(Value::as_str).filter(|id| !id.is_empty()).map(str::to_owned)
}

/// `TASK_STATE_INPUT_REQUIRED` and `input-required` are one.
fn state(task: &Value) -> String {
    let state = task
        .get("status")
        .and_then(|status| status.get("state"))
        .and_then(Value::as_str)
        .unwrap_or("unknown");
    state.trim_start_matches("TASK_STATE_").to_lowercase().replace('_', "-")
}

/// What Talaria says of a turn that it answers with a bare message, where it is not a success.
fn marked_state(message: &Value) -> Option<String> {
    message.get("metadata")?.get("talaria/state")?.as_str().map(str::to_owned)
}

/// What a task says: its status message and its artifacts; where there are none, the agent's last message.
fn task_text(task: &Value) -> String {
    let artifacts = list(task, "artifacts").map(parts_text);
    let said: Vec<_> =
        [status_text(task)].into_iter().chain(artifacts).filter(|text| !text.is_empty()).collect();
    if said.is_empty() { last_word(task) } else { said.join("\n") }
}

/// The message of a task's or an update's status.
pub(super) fn status_text(body: &Value) -> String {
    body.get("status").and_then(|status| status.get("message")).map(parts_text).unwrap_or_default()
}

/// The agent's last message in a task's history.
pub(super) fn last_word(task: &Value) -> String {
    let by_agent =
        |message: &&Value| message.get("role").is_some_and(|role| role == "agent" || role == "ROLE_AGENT");
    list(task, "history").rfind(by_agent).map(parts_text).unwrap_or_default()
}

/// The members of a list; none where there is no list.
pub(super) fn list<'a>(body: &'a Value, key: &str) -> impl DoubleEndedIterator<Item = &'a Value> {
    body.get(key).and_then(Value::as_array).into_iter().flatten()
}

/// The text of a message's or artifact's parts; what is no text is named.
pub(super) fn parts_text(body: &Value) -> String {
    list(body, "parts").map(part_text).collect::<Vec<_>>().join("\n")
}

/// The same of an artifact that comes in pieces: text follows on text, and what is no text has a line of its own.
pub(super) fn flowing_text(artifact: &Value) -> String {
    let mut text = String::new();
    for part in list(artifact, "parts") {
        let is_text = part.get("text").is_some_and(Value::is_string);
        if !is_text && !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&part_text(part));
        if !is_text {
            text.push('\n');
        }
    }
    text
}

fn part_text(part: &Value) -> String {
    if let Some(text) = part.get("text").and_then(Value::as_str) {
        return text.to_owned();
    }
    if let Some(data) = part.get("data") {
        return data.to_string();
    }
    // 0.3 has a file's members one level down.
    let file = part.get("file").unwrap_or(part);
    let member = |keys: [&str; 2]| keys.iter().find_map(|key| file.get(*key)?.as_str());
    let mut shown = String::from("[file");
    let known = [member(["filename", "name"]), member(["mediaType", "mimeType"]), member(["url", "uri"])];
    for known in known.into_iter().flatten() {
        shown.push(' ');
        shown.push_str(known);
    }
    shown.push(']');
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(raw: Value) -> Answer {
        Answer::read(raw).expect("an answer")
    }

    #[test]
    fn a_message_is_read_in_both_versions() {
        let new = read(
            json!({ "message": { "role": "ROLE_AGENT", "contextId": "c", "parts": [{ "text": "a" }, { "text": "b" }] } }),
        );
        let old = read(json!({ "kind": "message", "role": "agent", "contextId": "c", "parts": [
            { "kind": "text", "text": "a" }, { "kind": "text", "text": "b" },
        ] }));
        for answer in [new, old] {
            assert_eq!(
                (answer.to_string().as_str(), answer.standing.summary().as_str()),
                ("a\nb", "message, context c")
            );
            assert!(answer.standing.is_reply());
        }
    }

    #[test]
    fn a_task_is_read_in_both_versions() {
        let task = |state: &str| {
            json!({ "id": "t", "contextId": "c", "status": { "state": state },
            "artifacts": [{ "artifactId": "a", "parts": [{ "text": "hi" }] }] })
        };
        let new = read(json!({ "task": task("TASK_STATE_COMPLETED") }));
        let mut old = task("completed");
        old["kind"] = "task".into();
        for answer in [new, read(old)] {
            assert_eq!(
                (answer.to_string().as_str(), answer.standing.summary().as_str()),
                ("hi", "completed, task t, context c")
            );
            assert!(answer.standing.is_reply());
        }
    }

    #[test]
    fn the_state_decides_whether_it_is_a_reply() {
        let answer = |state: &str| read(json!({ "task": { "id": "t", "status": { "state": state } } }));
        assert!(answer("TASK_STATE_INPUT_REQUIRED").standing.is_reply());
        for state in ["FAILED", "REJECTED", "CANCELED", "AUTH_REQUIRED", "WORKING", "SUBMITTED"] {
            assert!(!answer(&format!("TASK_STATE_{state}")).standing.is_reply(), "{state}");
        }
        let asks = answer("input-required").standing.next_step("http://a").expect("a next step");
        assert_eq!(asks, "the agent asks for more; answer with: talaria send http://a TEXT --task t");
        assert!(answer("failed").standing.next_step("http://a").is_none());
    }

    #[test]
    fn a_message_that_tells_of_a_failure_is_no_reply() {
        let failed = json!({ "parts": [{ "text": "broken" }], "metadata": { "talaria/state": "failed" } });
        let answer = read(json!({ "message": failed }));
        assert_eq!((answer.to_string().as_str(), answer.standing.summary().as_str()), ("broken", "failed"));
        assert!(!answer.standing.is_reply());
    }

    #[test]
    fn what_a_task_says_is_found_where_it_is() {
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
    fn what_is_no_text_is_named() {
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
    fn anything_else_is_no_answer() {
        for raw in [json!(null), json!({}), json!({ "task": 1 }), json!({ "kind": "status-update" })] {
            assert!(Answer::read(raw).is_none());
        }
    }
}
