//! The text of messages, artifacts and tasks. Parts that are not text are described in brackets.

use serde_json::Value;

/// Returns the text of a task: its status message and artifacts, or else the agent's last message.
pub(crate) fn task_text(task: &Value) -> String {
    let artifacts = list(task, "artifacts").map(parts_text);
    let texts: Vec<_> =
        [status_text(task)].into_iter().chain(artifacts).filter(|text| !text.is_empty()).collect();
    if texts.is_empty() { last_agent_message(task) } else { texts.join("\n") }
}

/// Returns the text of the status message of a task or status update.
pub(crate) fn status_text(body: &Value) -> String {
    body.get("status").and_then(|status| status.get("message")).map(parts_text).unwrap_or_default()
}

/// Returns the text of the agent's last message in a task's history.
pub(crate) fn last_agent_message(task: &Value) -> String {
    let by_agent =
        |message: &&Value| message.get("role").is_some_and(|role| role == "agent" || role == "ROLE_AGENT");
    list(task, "history").rfind(by_agent).map(parts_text).unwrap_or_default()
}

/// Iterates over a member that is a list; a missing member counts as an empty list.
pub(crate) fn list<'a>(body: &'a Value, key: &str) -> impl DoubleEndedIterator<Item = &'a Value> {
    body.get(key).and_then(Value::as_array).into_iter().flatten()
}

/// Returns the text of a message or artifact, one part per line.
pub(crate) fn parts_text(body: &Value) -> String {
    list(body, "parts").map(part_text).collect::<Vec<_>>().join("\n")
}

/// Returns the text of an artifact that arrives in pieces: text parts join, other parts get lines of their own.
#[allow(unreachable_pub, reason = "public to the fuzz targets only")]
pub fn flowing_text(artifact: &Value) -> String {
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
    // In 0.3 the members of a file are one level down.
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
