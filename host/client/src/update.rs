//! The four kinds of result an agent sends, as the result of a call or as one event of a stream, in both versions.

use serde_json::Value;

/// One result. Each variant holds the JSON body.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Update<'a> {
    /// A snapshot of a task.
    Task(&'a Value),
    /// A message, which is the whole answer.
    Message(&'a Value),
    /// A change of a task's status.
    Status(&'a Value),
    /// An artifact, or a piece of one.
    Artifact(&'a Value),
    /// A result of an unknown kind.
    Other,
}

/// Metadata key by which Talaria marks a status message that is a piece of the answer.
const CHUNK: &str = "talaria/chunk";
/// Metadata key of an executor's remark on its work, used when status messages hold pieces of the answer.
const STATUS_LINE: &str = "talaria/status";
/// Metadata key of a tool's progress.
const TOOL_PROGRESS: &str = "talaria/tool-progress";

// === impl Update ===

impl<'a> Update<'a> {
    /// Reads a result. 0.3 names the kind in a member `kind`, 1.0 by the member that wraps the body.
    pub fn of(result: &'a Value) -> Self {
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
pub(crate) fn is_chunk(update: &Value) -> bool {
    let message = update.get("status").and_then(|status| status.get("message"));
    message.and_then(|message| message.get("metadata")?.get(CHUNK)?.as_bool()) == Some(true)
}

/// Returns the executor's remark on its work that a status update carries beside its message.
pub(crate) fn status_line(update: &Value) -> Option<&str> {
    update.get("metadata")?.get(STATUS_LINE)?.as_str()
}

/// Describes the tool progress that a status update carries, like `tool search started: the weather`.
#[allow(unreachable_pub, reason = "public to the fuzz targets only")]
pub fn tool_progress(update: &Value) -> Option<String> {
    let progress = update.get("metadata")?.get(TOOL_PROGRESS)?;
    let text = |key: &str| progress.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let name = text("name").or_else(|| text("id"))?;
    let mut line = format!("tool {name} {}", text("state").unwrap_or("at work"));
    if let Some(label) = text("label") {
        line.push_str(&format!(": {label}"));
    }
    Some(line)
}

/// Joins foreign text into one line, so that it cannot pass for a note of ours.
#[allow(unreachable_pub, reason = "public to the fuzz targets only")]
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_all_four_kinds_in_both_versions() {
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
    fn describes_tool_progress_in_one_line() {
        let progress = |progress: Value| tool_progress(&json!({ "metadata": { TOOL_PROGRESS: progress } }));
        let whole = json!({ "id": "1", "name": "search", "state": "started", "label": "the weather" });
        assert_eq!(progress(whole).as_deref(), Some("tool search started: the weather"));
        let bare = json!({ "id": "1", "state": "failed", "label": null });
        assert_eq!(progress(bare).as_deref(), Some("tool 1 failed"));
        assert_eq!(progress(json!({})), None);
        assert_eq!(one_line("a\n  error: b\t"), "a error: b");
    }
}
