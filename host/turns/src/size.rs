//! How much memory the values of the domain take.
//!
//! Bytes count their length, and strings their length in JSON: a control character takes one byte in memory, but six in the
//! requests that executors make of a message. Everything else counts a fixed part that covers it, so that a list of empty parts
//! or of zeros is not free: a JSON value takes 36 times what `0,` takes in a request.

use serde_json::Value;

use crate::model::{Artifact, Content, Message, Metadata, Part};
use crate::task::{Event, Task};
use crate::trace::TraceContext;

/// A JSON value in memory, with its entry in an object's table.
pub(crate) const VALUE: usize = 128;
/// The fixed part of a part, an artifact, a message, and an event in the tail of a task.
const ITEM: usize = 256;

impl Message {
    /// Returns the bytes that the message takes in memory.
    #[must_use]
    pub fn size(&self) -> usize {
        let texts = self.extensions.iter().chain(&self.reference_task_ids);
        ITEM + self.id.as_str().len()
            + texts.map(|text| VALUE + text.len()).sum::<usize>()
            + metadata(self.metadata.as_ref())
            + parts(&self.parts)
    }
}

impl Artifact {
    fn size(&self) -> usize {
        let texts = [Some(&self.id), self.name.as_ref(), self.description.as_ref()];
        ITEM + texts
            .into_iter()
            .flatten()
            .chain(&self.extensions)
            .map(|text| VALUE + text.len())
            .sum::<usize>()
            + metadata(self.metadata.as_ref())
            + parts(&self.parts)
    }
}

impl Task {
    /// Returns the bytes that the task takes in memory.
    #[must_use]
    pub fn size(&self) -> usize {
        let messages = self.history.iter().chain(&self.status.message);
        ITEM + messages.map(|message| message.size()).sum::<usize>()
            + self.artifacts.iter().map(|artifact| artifact.size()).sum::<usize>()
            + self.pending.iter().map(|turn| ITEM + metadata(turn.metadata.as_deref())).sum::<usize>()
            + self.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.0.len())
            + metadata(Some(&self.metadata))
    }
}

impl Event {
    /// Returns the bytes that the event adds to a live task. A message is shared by the event and the task; what else is in
    /// an event may be in the task and in its tail.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Accepted { message, metadata: more, trace, .. } => {
                message.size() + metadata(more.as_deref()) + trace.as_ref().map_or(0, TraceContext::size)
            }
            Self::Answered(message) => message.size(),
            Self::Status { status, metadata: more, .. } => {
                ITEM + status.message.as_ref().map_or(0, |message| message.size())
                    + 2 * metadata(more.as_ref())
            }
            Self::Checkpoint(data) => ITEM + 2 * data.len(),
            Self::Artifact { artifact, .. } | Self::Whole(artifact) | Self::Late(artifact) => {
                2 * artifact.size()
            }
            Self::Note { name, value: content } => ITEM + name.len() + value(content),
        }
    }
}

fn parts(all: &[Part]) -> usize {
    all.iter().map(part).sum()
}

fn part(part: &Part) -> usize {
    let content = match &part.content {
        Content::Text(text) | Content::Uri(text) => escaped(text),
        Content::Bytes(bytes) => bytes.len(),
        Content::Data(data) => value(data),
    };
    let texts = part.media_type.iter().chain(&part.filename);
    ITEM + content + texts.map(String::len).sum::<usize>() + metadata(part.metadata.as_ref())
}

fn metadata(metadata: Option<&Metadata>) -> usize {
    metadata.map_or(0, |members| members.iter().map(|(name, member)| name.len() + value(member)).sum())
}

/// Returns the bytes of a text in JSON.
fn escaped(text: &str) -> usize {
    let of_byte = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 2,
        0..=0x1f => 6,
        _ => 1,
    };
    text.bytes().map(of_byte).sum()
}

/// The depth is bounded where values come in.
fn value(tree: &Value) -> usize {
    VALUE
        + match tree {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(text) => escaped(text),
            Value::Array(items) => items.iter().map(value).sum(),
            Value::Object(members) => metadata(Some(members)),
        }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_fixed_parts_cover_what_is_in_memory() {
        // An entry of an object is a hash, a name and a value, and its place in the index.
        assert!(size_of::<Value>() + size_of::<String>() + 24 <= VALUE, "{}", size_of::<Value>());
        assert!(
            size_of::<Part>() <= ITEM
                && size_of::<Artifact>() + 16 <= ITEM
                && size_of::<Message>() + 16 <= ITEM
        );
    }

    #[test]
    fn every_string_and_every_value_counts() {
        let text = |length: usize| Message::agent(vec![Part::text("x".repeat(length))]).size();
        assert_eq!(text(1_000) - text(0), 1_000);
        let escapes = Message::agent(vec![Part::text("\u{1}\n\"".repeat(100))]).size();
        assert_eq!(escapes - text(0), 1_000, "as in JSON");
        let data = |tree: Value| Message::agent(vec![Part::new(Content::Data(tree))]).size();
        assert_eq!(data(json!([0, 0, 0])) - data(json!([])), 3 * VALUE);
        assert_eq!(data(json!({ "name": ["x"] })) - data(json!({})), 2 * VALUE + 5);
        let mut part = Part::text("");
        part.filename = Some("x".repeat(500));
        assert_eq!(Message::agent(vec![part.clone()]).size() - text(0), 500);
        part.metadata = json!({ "k": "v" }).as_object().cloned();
        assert_eq!(Message::agent(vec![part]).size() - text(0), 500 + VALUE + 2);
    }
}
