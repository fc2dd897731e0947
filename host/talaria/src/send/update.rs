//! One thing that an agent says, in a stream or as a result: which of the four it is, in either version's form.

use serde_json::Value;

/// What was said.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Update<'a> {
    /// A task as it is.
    Task(&'a Value),
    /// A message: the whole answer.
    Message(&'a Value),
    /// How a task stands now.
    Status(&'a Value),
    /// A result, or a piece of one.
    Artifact(&'a Value),
    /// Nothing that we know.
    Other,
}

/// A piece of the answer in the message of a status, as Talaria marks it.
const CHUNK: &str = "talaria/chunk";
/// What an executor says about its work, as Talaria tells of it where statuses have pieces of the answer.
const LINE: &str = "talaria/status";
/// A tool at work, as Talaria tells of it.
const TOOL_PROGRESS: &str = "talaria/tool-progress";

// === impl Update ===

impl<'a> Update<'a> {
    /// Reads a result. 0.3 names the kind inside, 1.0 is named from outside.
    pub(super) fn of(result: &'a Value) -> Self {
        let member = |key: &str| result.get(key).filter(|value| value.is_object());
        match result.get("kind").and_then(Value::as_str) {
            Some("task") => return Self::Task(result),
            Some("message") => return Self::Message(result),
            Some("status-update") => return Self::Status(result),
            Some("artifact-update") => return Self::Artifact(result),
            _ => {}
        }
        None.or_else(|| member("task").map(Self::Task))
            .or_else(|| member("message").map(Self::Message))
            .or_else(|| member("statusUpdate").map(Self::Status))
            .or_else(|| member("artifactUpdate").map(Self::Artifact))
            .unwrap_or(Self::Other)
    }
}

/// Whether the message of a status update is a piece of the answer.
pub(super) fn is_chunk(update: &Value) -> bool {
    let message = update.get("status").and_then(|status| status.get("message"));
    message.and_then(|message| message.get("metadata")?.get(CHUNK)?.as_bool()) == Some(true)
}

/// What a status update says about the work beside its message.
pub(super) fn status_line(update: &Value) -> Option<&str> {
    update.get("metadata")?.get(LINE)?.as_str()
}

/// What a status update says about a tool: `tool search started: the weather`.
pub(super) fn tool_progress(update: &Value) -> Option<String> {
    let progress = update.get("metadata")?.get(TOOL_PROGRESS)?;
    let text = |key: &str| progress.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let name = text("name").or_else(|| text("id"))?;
    let mut line = format!("tool {name} {}", text("state").unwrap_or("at work"));
    if let Some(label) = text("label") {
        line.push_str(&format!(": {label}"));
    }
    Some(line)
}

/// Text from elsewhere in one line, so that it cannot pass for a note of ours.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_versions_name_the_same_four() {
        let body = json!({ "taskId": "t" });
        let new = |key: &str| json!({ key: body });
        assert_eq!(Update::of(&new("task")), Update::Task(&body));
        assert_eq!(Update::of(&new("message")), Update::Message(&body));
        assert_eq!(Update::of(&new("statusUpdate")), Update::Status(&body));
        assert_eq!(Update::of(&new("artifactUpdate")), Update::Artifact(&body));
        let old = |kind: &str| json!({ "kind": kind, "taskId": "t" });
        assert_eq!(Update::of(&old("task")), Update::Task(&old("task")));
        assert_eq!(Update::of(&old("message")), Update::Message(&old("message")));
        assert_eq!(Update::of(&old("status-update")), Update::Status(&old("status-update")));
        assert_eq!(Update::of(&old("artifact-update")), Update::Artifact(&old("artifact-update")));
        assert_eq!(Update::of(&json!({ "news": {} })), Update::Other);
    }

    #[test]
    fn a_tool_is_told_of_in_a_line() {
        let progress = |progress: Value| tool_progress(&json!({ "metadata": { TOOL_PROGRESS: progress } }));
        let whole = json!({ "id": "1", "name": "search", "state": "started", "label": "the weather" });
        assert_eq!(progress(whole).as_deref(), Some("tool search started: the weather"));
        let bare = json!({ "id": "1", "state": "failed", "label": null });
        assert_eq!(progress(bare).as_deref(), Some("tool 1 failed"));
        assert_eq!(progress(json!({})), None);
        assert_eq!(one_line("a\n  error: b\t"), "a error: b");
    }
}
