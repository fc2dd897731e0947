//! What the agent says, read in the words of both versions.
//!
//! One reader serves both, because their fields do not collide, and agents mix them. What identifies a task must be there
//! and be usable. A part that cannot be read is left out and logged, and the rest stands.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;
use talaria_guest::events::{Artifact, ToolProgress, ToolState};
use talaria_guest::{Content, Part, Usage};
use talaria_upstream::{excerpt, mark, usage, warn};

use crate::encode::WRAPPED;
use crate::fault::Fault;
use crate::state::State;

/// Agents leave the padding out, and use either alphabet.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// The longest id that is used in a request.
const ID: usize = 256;
/// The parts of one message or artifact that are read.
const PARTS: usize = 1_000;
/// The depth of JSON at most. The host accepts a hundred levels and fails a turn with more.
const DEEPEST: usize = 90;
/// The key of a talaria for a piece of the answer.
const CHUNK: &str = "talaria/chunk";
/// The key of a talaria for what its executor reports.
const STATUS: &str = "talaria/status";
/// The key of a talaria for the progress of a tool.
const TOOL: &str = "talaria/tool-progress";

/// Something that the agent said.
#[derive(Debug)]
pub(crate) enum Item {
    /// A task as it is now.
    Task { ids: Ids, status: Status, artifacts: Vec<Artifact> },
    /// An answer without a task.
    Message { context: Option<String>, parts: Vec<Part> },
    /// A task's new status.
    Status { ids: Ids, status: Status, tool: Option<ToolProgress> },
    /// An artifact of a task, or a piece of one.
    Artifact { ids: Ids, artifact: Artifact },
    /// Something that later versions have.
    Unknown,
}

/// What an item belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ids {
    pub(crate) task: String,
    pub(crate) context: Option<String>,
}

/// The status of a task.
#[derive(Debug)]
pub(crate) struct Status {
    pub(crate) state: State,
    /// The parts of its message.
    pub(crate) parts: Vec<Part>,
    /// Whether the message is a piece of the answer.
    pub(crate) is_chunk: bool,
    /// The tokens that the task consumed.
    pub(crate) usage: Option<Usage>,
    /// Recognises the same status when it is said again.
    pub(crate) mark: u64,
}

/// Reads an answer, or an event of a stream.
pub(crate) fn item(mut answer: Value) -> Result<Item, Fault> {
    let kind = answer.get("kind").and_then(Value::as_str).map(str::to_owned);
    let mut member = |name| answer.get_mut(name).filter(|value| value.is_object()).map(Value::take);
    match kind.as_deref() {
        Some("task") => return task(answer),
        Some("message") => return message(&answer),
        Some("status-update") => return status_update(&answer),
        Some("artifact-update") => return artifact_update(answer),
        _ => {}
    }
    if let Some(found) = member("task") {
        return task(found);
    }
    if let Some(found) = member("message") {
        return message(&found);
    }
    if let Some(found) = member("statusUpdate") {
        return status_update(&found);
    }
    if let Some(found) = member("artifactUpdate") {
        return artifact_update(found);
    }
    match answer.as_object() {
        // A bare task, as `GetTask` answers.
        Some(fields) if fields.contains_key("id") && fields.contains_key("status") => task(answer),
        Some(_) => Ok(Item::Unknown),
        None => Err(Fault::Nonsense("it answered something that is neither a task nor a message".into())),
    }
}

fn task(mut task: Value) -> Result<Item, Fault> {
    let artifacts = task.get_mut("artifacts").map(Value::take);
    let status = status(task.get("status"), task.get("metadata"))?;
    let ids = Ids { task: id(&task, "id")?, context: context(&task)? };
    let artifacts = match artifacts {
        Some(Value::Array(artifacts)) => {
            artifacts.into_iter().map(|found| artifact(found, false, true)).collect::<Result<_, _>>()?
        }
        _ => Vec::new(),
    };
    Ok(Item::Task { ids, status, artifacts })
}

fn message(message: &Value) -> Result<Item, Fault> {
    Ok(Item::Message { context: context(message)?, parts: parts(message) })
}

fn status_update(update: &Value) -> Result<Item, Fault> {
    let metadata = update.get("metadata");
    let mut status = status(update.get("status"), metadata)?;
    let said = |name| metadata.and_then(|metadata| metadata.get(name));
    if status.parts.is_empty()
        && let Some(text) = said(STATUS).and_then(Value::as_str)
    {
        status.parts.push(Part::text(text));
    }
    let tool = said(TOOL).and_then(tool);
    Ok(Item::Status { ids: Ids { task: id(update, "taskId")?, context: context(update)? }, status, tool })
}

fn artifact_update(mut update: Value) -> Result<Item, Fault> {
    let ids = Ids { task: id(&update, "taskId")?, context: context(&update)? };
    let flag = |name| update.get(name) == Some(&Value::Bool(true));
    let (append, last) = (flag("append"), flag("lastChunk"));
    let found = update.get_mut("artifact").map(Value::take).unwrap_or_default();
    Ok(Item::Artifact { ids, artifact: artifact(found, append, last)? })
}

fn status(status: Option<&Value>, metadata: Option<&Value>) -> Result<Status, Fault> {
    let none = Value::Null;
    let status = status.unwrap_or(&none);
    let text = status.get("state").and_then(Value::as_str).unwrap_or_default();
    let state = State::read(text).ok_or_else(|| {
        Fault::Nonsense(format!(
            "its task is in a state that the protocol does not have: {:?}",
            excerpt(text)
        ))
    })?;
    let message = status.get("message").filter(|message| message.is_object());
    let is_chunk =
        message.and_then(|message| message.get("metadata")?.get(CHUNK)) == Some(&Value::Bool(true));
    Ok(Status {
        state,
        parts: message.map(parts).unwrap_or_default(),
        is_chunk,
        usage: metadata.and_then(|metadata| usage(metadata, "/usage/input_tokens", "/usage/output_tokens")),
        mark: mark(status.to_string().as_bytes()),
    })
}

fn artifact(mut artifact: Value, append: bool, last: bool) -> Result<Artifact, Fault> {
    let metadata = artifact.get_mut("metadata").map(Value::take);
    let text = |name: &str| artifact.get(name).and_then(Value::as_str).map(str::to_owned);
    Ok(Artifact {
        id: id(&artifact, "artifactId")?,
        name: text("name"),
        description: text("description"),
        parts: parts(&artifact),
        append,
        last,
        metadata: metadata.and_then(object),
    })
}

/// The parts of a message or an artifact, which early servers of 0.3 called `content`.
fn parts(of: &Value) -> Vec<Part> {
    let listed = of.get("parts").or_else(|| of.get("content")).and_then(Value::as_array);
    let listed = listed.map(Vec::as_slice).unwrap_or_default();
    if listed.len() > PARTS {
        left_out::<()>("parts", &format!("there are {} of them, and {PARTS} are the most", listed.len()));
    }
    listed.iter().take(PARTS).filter_map(part).collect()
}

fn part(part: &Value) -> Option<Part> {
    let said = |from: &Value, names: [&str; 2]| {
        names
            .iter()
            .find_map(|name| from.get(name)?.as_str())
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    let mut metadata = part.get("metadata").cloned();
    let file = part.get("file").filter(|file| file.is_object()).unwrap_or(part);
    let text = |from: &Value, names: [&str; 3]| {
        names.iter().find_map(|name| from.get(name)?.as_str()).map(str::to_owned)
    };
    let content = if let Some(text) = part.get("text").and_then(Value::as_str) {
        Content::Text(text.to_owned())
    } else if let Some(encoded) = text(file, ["raw", "bytes", "fileWithBytes"]) {
        match BASE64.decode(encoded.replace('-', "+").replace('_', "/").trim()) {
            Ok(bytes) => Content::Bytes(bytes),
            Err(_) => return left_out("a file", "it is not base64"),
        }
    } else if let Some(url) = text(file, ["url", "uri", "fileWithUri"]) {
        Content::Uri(url)
    } else if let Some(data) = part.get("data") {
        if !is_within(data, DEEPEST) {
            return left_out("data", "it is nested too deep");
        }
        Content::Data(unwrapped(data, &mut metadata).to_string())
    } else {
        return left_out("a part", "it has no content of a known kind");
    };
    Some(Part {
        content,
        media_type: said(file, ["mediaType", "mimeType"]),
        filename: said(file, ["filename", "name"]),
        metadata: metadata.and_then(object),
    })
}

/// Data that was not an object, out of the object that 0.3 demands.
fn unwrapped<'a>(data: &'a Value, metadata: &mut Option<Value>) -> &'a Value {
    let Some(fields) = metadata.as_mut().and_then(Value::as_object_mut) else { return data };
    match data.get("value") {
        Some(value) if fields.get(WRAPPED) == Some(&Value::Bool(true)) => {
            fields.remove(WRAPPED);
            value
        }
        _ => data,
    }
}

fn tool(progress: &Value) -> Option<ToolProgress> {
    let text = |name: &str| progress.get(name).and_then(Value::as_str).map(str::to_owned);
    let name = text("name")?;
    Some(ToolProgress {
        id: text("id").unwrap_or_else(|| name.clone()),
        name,
        state: match text("state")?.as_str() {
            "started" => ToolState::Started,
            "completed" => ToolState::Completed,
            "failed" => ToolState::Failed,
            _ => return None,
        },
        label: text("label"),
        metadata: None,
    })
}

/// An id that must be there and usable in a request.
fn id(of: &Value, name: &str) -> Result<String, Fault> {
    match of.get(name) {
        Some(Value::String(id)) if is_id(id) => Ok(id.clone()),
        Some(Value::String(_)) => Err(Fault::Nonsense(format!("`{name}` in its answer is no usable id"))),
        _ => Err(Fault::Nonsense(format!("`{name}` is missing in its answer"))),
    }
}

/// The context, which agents may leave out.
fn context(of: &Value) -> Result<Option<String>, Fault> {
    match of.get("contextId") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(id)) if id.is_empty() => Ok(None),
        Some(_) => id(of, "contextId").map(Some),
    }
}

fn is_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= ID && !id.chars().any(char::is_control)
}

/// Metadata as text, if it is an object with something in it.
fn object(metadata: Value) -> Option<String> {
    let fields = metadata.as_object().filter(|fields| !fields.is_empty())?;
    (fields.values().all(|value| is_within(value, DEEPEST))).then(|| metadata.to_string())
}

fn is_within(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(|item| is_within(item, levels - 1)),
        Value::Object(fields) => levels > 0 && fields.values().all(|field| is_within(field, levels - 1)),
        _ => true,
    }
}

fn left_out<T>(what: &str, why: &str) -> Option<T> {
    warn(&format!("left out {what} of the agent's answer: {why}"));
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn why(answer: Value) -> String {
        talaria_guest::Failure::from(item(answer).unwrap_err()).message
    }

    fn brief(item: &Item) -> String {
        match item {
            Item::Task { ids, status, artifacts } => {
                format!("task {} {:?} {:?} {}", ids.task, ids.context, status.state, artifacts.len())
            }
            Item::Message { context, parts } => format!("message {context:?} {}", parts.len()),
            Item::Status { ids, status, tool } => {
                format!("status {} {:?} {} {}", ids.task, status.state, status.parts.len(), tool.is_some())
            }
            Item::Artifact { ids, artifact } => {
                format!("artifact {} {} {} {}", ids.task, artifact.id, artifact.append, artifact.last)
            }
            Item::Unknown => "unknown".into(),
        }
    }

    #[test]
    fn both_versions_are_read_by_their_members() {
        let (new, old) = (json!({ "state": "TASK_STATE_WORKING" }), json!({ "state": "working" }));
        let said = json!([{ "text": "hi" }]);
        for (answer, expected) in [
            (
                json!({ "task": { "id": "t", "contextId": "c", "status": new } }),
                r#"task t Some("c") Working 0"#,
            ),
            (
                json!({ "kind": "task", "id": "t", "contextId": "c", "status": old }),
                r#"task t Some("c") Working 0"#,
            ),
            (
                json!({ "id": "t", "status": new, "artifacts": [{ "artifactId": "a" }] }),
                "task t None Working 1",
            ),
            (json!({ "message": { "contextId": "c", "parts": said } }), r#"message Some("c") 1"#),
            (json!({ "kind": "message", "parts": [{ "kind": "text", "text": "hi" }] }), "message None 1"),
            (json!({ "statusUpdate": { "taskId": "t", "status": new } }), "status t Working 0 false"),
            (
                json!({ "statusUpdate": { "taskId": "t", "status": new, "metadata": {
                    "talaria/status": "thinking",
                    "talaria/tool-progress": { "name": "ls", "state": "started" },
                } } }),
                "status t Working 1 true",
            ),
            (
                json!({ "kind": "status-update", "taskId": "t", "status": old, "final": true }),
                "status t Working 0 false",
            ),
            (
                json!({ "artifactUpdate": { "taskId": "t", "artifact": { "artifactId": "a" }, "append": true } }),
                "artifact t a true false",
            ),
            (
                json!({ "kind": "artifact-update", "taskId": "t", "artifact": { "artifactId": "a" }, "lastChunk": true }),
                "artifact t a false true",
            ),
            (json!({ "later": {} }), "unknown"),
        ] {
            assert_eq!(brief(&item(answer.clone()).unwrap()), expected, "{answer}");
        }
    }

    #[test]
    fn what_identifies_a_task_must_be_there() {
        let status = json!({ "state": "working" });
        for (answer, expected) in [
            (json!({ "task": { "status": status } }), "`id` is missing in its answer"),
            (json!({ "task": { "id": "", "status": status } }), "`id` in its answer is no usable id"),
            (json!({ "task": { "id": "a\nb", "status": status } }), "`id` in its answer is no usable id"),
            (
                json!({ "task": { "id": "t", "contextId": 7, "status": status } }),
                "`contextId` is missing in its answer",
            ),
            (
                json!({ "task": { "id": "t", "status": { "state": "TASK_STATE_DONE" } } }),
                r#"its task is in a state that the protocol does not have: "TASK_STATE_DONE""#,
            ),
            (json!({ "artifactUpdate": { "taskId": "t" } }), "`artifactId` is missing in its answer"),
            (json!([]), "it answered something that is neither a task nor a message"),
        ] {
            assert_eq!(why(answer.clone()), format!("[agent error] {expected}"), "{answer}");
        }
    }

    #[test]
    fn parts_of_both_versions_are_the_same_parts() {
        let deep = (0..100).fold(json!(1), |inner, _| json!([inner]));
        for (part_in, expected) in [
            (
                json!({ "text": "a", "mediaType": "text/markdown" }),
                Some(("text a", Some("text/markdown"), None)),
            ),
            (json!({ "kind": "text", "text": "a" }), Some(("text a", None, None))),
            (
                json!({ "raw": "_-8", "mediaType": "image/png", "filename": "a.png" }),
                Some(("bytes 2", Some("image/png"), Some("a.png"))),
            ),
            (
                json!({ "kind": "file", "file": { "bytes": "//8=", "mimeType": "image/png", "name": "a.png" } }),
                Some(("bytes 2", Some("image/png"), Some("a.png"))),
            ),
            (json!({ "url": "http://f" }), Some(("uri http://f", None, None))),
            (json!({ "kind": "file", "file": { "uri": "http://f" } }), Some(("uri http://f", None, None))),
            (json!({ "data": [1] }), Some(("data [1]", None, None))),
            (
                json!({ "kind": "data", "data": { "value": [1] }, "metadata": { WRAPPED: true } }),
                Some(("data [1]", None, None)),
            ),
            (json!({ "raw": "!" }), None),
            (json!({ "data": deep }), None),
            (json!({ "other": 1 }), None),
            (json!(7), None),
        ] {
            let read = part(&part_in).map(|part| {
                let content = match part.content {
                    Content::Text(text) => format!("text {text}"),
                    Content::Bytes(bytes) => format!("bytes {}", bytes.len()),
                    Content::Uri(uri) => format!("uri {uri}"),
                    Content::Data(data) => format!("data {data}"),
                };
                assert_eq!(part.metadata, None, "{part_in}");
                (content, part.media_type, part.filename)
            });
            let expected = expected.map(|(content, media, name)| {
                (content.to_owned(), media.map(str::to_owned), name.map(str::to_owned))
            });
            assert_eq!(read, expected, "{part_in}");
        }
    }
}
