//! The identity of a message that is sent again.
//!
//! A client that lost its connection sends its message again, with the same id. The id alone does not identify a message:
//! some clients count from 1 in every context. So a message is identified by its id and a digest of everything that its
//! sender wrote: the role, the parts, the metadata, and the context and task that it named, or that it named none. The
//! order of keys in an object does not count, because a client may encode its JSON again. What came with the request
//! beside the message (metadata, a push configuration) does not count either, because it may differ between tries.

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::model::{Content, ContextId, Message, MessageId, Metadata, Part, Role, TaskId};

/// Identifies a message that a caller may have sent before.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Once {
    /// The id that the caller chose.
    pub message: MessageId,
    /// SHA-256 of what the caller wrote.
    pub digest: [u8; 32],
}

impl Once {
    /// The identity of a message that was sent to this task or context.
    #[must_use]
    pub fn of(message: &Message, task: Option<&TaskId>, context: Option<&ContextId>) -> Self {
        let mut hash = Hash(Sha256::new());
        hash.option(task.map(TaskId::as_str));
        hash.option(context.map(ContextId::as_str));
        hash.tag(match message.role {
            Role::User => 0,
            Role::Agent => 1,
        });
        hash.count(message.parts.len());
        for part in &message.parts {
            hash.part(part);
        }
        hash.metadata(message.metadata.as_ref());
        for list in [&message.extensions, &message.reference_task_ids] {
            hash.count(list.len());
            list.iter().for_each(|text| hash.bytes(text.as_bytes()));
        }
        Self { message: message.id.clone(), digest: hash.0.finalize().into() }
    }
}

/// Hashes each value with its kind and its length, so that different messages cannot give the same input.
struct Hash(Sha256);

impl Hash {
    fn tag(&mut self, tag: u8) {
        self.0.update([tag]);
    }

    fn count(&mut self, count: usize) {
        self.0.update((count as u64).to_be_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.update(bytes);
    }

    fn option(&mut self, text: Option<&str>) {
        self.tag(text.is_some().into());
        self.bytes(text.unwrap_or_default().as_bytes());
    }

    fn part(&mut self, part: &Part) {
        match &part.content {
            Content::Text(text) => {
                self.tag(0);
                self.bytes(text.as_bytes());
            }
            Content::Data(value) => {
                self.tag(1);
                self.value(value);
            }
            Content::Uri(uri) => {
                self.tag(2);
                self.bytes(uri.as_bytes());
            }
            Content::Bytes(bytes) => {
                self.tag(3);
                self.bytes(bytes);
            }
        }
        self.option(part.media_type.as_deref());
        self.option(part.filename.as_deref());
        self.metadata(part.metadata.as_ref());
    }

    fn metadata(&mut self, metadata: Option<&Metadata>) {
        match metadata {
            None => self.tag(0),
            Some(metadata) => {
                self.tag(1);
                self.object(metadata);
            }
        }
    }

    fn object(&mut self, object: &Metadata) {
        let mut entries: Vec<(&String, &Value)> = object.iter().collect();
        entries.sort_unstable_by_key(|(key, _)| *key);
        self.count(entries.len());
        for (key, value) in entries {
            self.bytes(key.as_bytes());
            self.value(value);
        }
    }

    /// Recurses as deep as the value, whose depth was bounded when it was read.
    fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.tag(0),
            Value::Bool(is) => self.tag(1 + u8::from(*is)),
            Value::Number(number) => {
                self.tag(3);
                self.bytes(number.to_string().as_bytes());
            }
            Value::String(text) => {
                self.tag(4);
                self.bytes(text.as_bytes());
            }
            Value::Array(values) => {
                self.tag(5);
                self.count(values.len());
                values.iter().for_each(|value| self.value(value));
            }
            Value::Object(object) => {
                self.tag(6);
                self.object(object);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(metadata: &Value, parts: Vec<Part>) -> Message {
        let mut message = Message { role: Role::User, ..Message::agent(parts) };
        message.id = "m1".parse().unwrap();
        message.metadata = metadata.as_object().cloned();
        message
    }

    #[test]
    fn the_order_of_keys_does_not_change_the_identity() {
        let one = message(&json!({ "a": 1, "b": { "c": [true, null], "d": "x" } }), vec![Part::text("hi")]);
        let two = message(&json!({ "b": { "d": "x", "c": [true, null] }, "a": 1 }), vec![Part::text("hi")]);
        assert_eq!(Once::of(&one, None, None), Once::of(&two, None, None));
    }

    #[test]
    fn everything_that_the_sender_wrote_counts() {
        let (task, context): (TaskId, ContextId) = ("t".parse().unwrap(), "t".parse().unwrap());
        let plain = message(&Value::Null, vec![Part::text("hi")]);
        let identities = [
            Once::of(&plain, None, None),
            Once::of(&plain, Some(&task), None),
            Once::of(&plain, None, Some(&context)),
            Once::of(&message(&json!({}), vec![Part::text("hi")]), None, None),
            Once::of(&message(&Value::Null, vec![Part::text("h"), Part::text("i")]), None, None),
            Once::of(&message(&Value::Null, vec![Part::new(Content::Uri("hi".into()))]), None, None),
            Once::of(&message(&Value::Null, vec![Part::new(Content::Bytes(b"hi".to_vec()))]), None, None),
            Once::of(&message(&Value::Null, vec![Part::new(Content::Data("hi".into()))]), None, None),
            Once::of(&Message { role: Role::Agent, ..plain.clone() }, None, None),
            Once::of(&Message { extensions: vec!["hi".into()], ..plain.clone() }, None, None),
            Once::of(&Message { reference_task_ids: vec!["hi".into()], ..plain }, None, None),
        ];
        for (at, one) in identities.iter().enumerate() {
            for other in &identities[at + 1..] {
                assert_ne!(one, other);
            }
        }
    }
}
