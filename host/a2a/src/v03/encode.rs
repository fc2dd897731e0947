//! Encodes 0.3 as JSON-RPC has it.

use serde::{Serialize, Serializer};
use serde_json::Value;
use talaria_turns::{
    Artifact, Content, ContextId, Message, Metadata, Part, Role, State, Status, TaskId, keys,
};

use super::WRAPPED;
use crate::dialect::Dialect;
use crate::json_out::{Base64, MetadataEntry, NoteOut, Object, Seq, TaskMetadata, TimestampOut};
use crate::operation::{Addressed, Answer, Sent, View};
use crate::push::{PushConfigOut, PushConfigsOut};
use crate::stream_form::{Piece, Rendered};
use crate::update_stream::{StreamEvent, StreamItem, TaskRef};

/// The answer to an operation.
pub(crate) struct AnswerOut<'a>(pub(crate) &'a Answer);

/// One event of a stream.
pub(crate) struct StreamItemOut<'a>(pub(crate) &'a StreamItem);

struct TaskOut<'a>(&'a View);

struct UpdateOut<'a>(&'a StreamEvent);

struct StatusOut<'a>(&'a Status, &'a TaskId, &'a ContextId);

/// A status with nothing but the state.
struct StateOut(State);

/// A status whose message is a chunk of the answer.
struct ChunkOut<'a>(&'a StreamEvent, &'a [Part]);

/// The message of that status.
struct ChunkMessageOut<'a>(&'a StreamEvent, &'a [Part]);

/// A status without its message.
struct SilentOut<'a>(&'a Status);

/// An artifact, with those of its parts that are shown.
struct ArtifactOut<'a>(&'a Artifact, &'a [Part]);

/// A message, with its task and its context, and whether it is the result itself.
pub(super) struct MessageOut<'a> {
    pub(super) message: &'a Message,
    pub(super) task: Option<&'a TaskId>,
    pub(super) context: Option<&'a ContextId>,
    pub(super) is_result: bool,
}

pub(super) struct PartOut<'a>(pub(super) &'a Part);

/// The `file` of a part.
struct FileOut<'a>(&'a Part);

/// Data and its metadata, wrapped and marked unless the data is an object.
pub(crate) struct DataOut<'a> {
    value: &'a Value,
    metadata: Option<&'a Metadata>,
}

/// Data, wrapped in an object unless it is one.
struct Wrapped<'a>(&'a Value);

/// Metadata, with the mark for wrapped data.
struct Marked<'a>(Option<&'a Metadata>, bool);

impl Serialize for AnswerOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Answer::Task(view) | Answer::Sent(Sent::Task(view)) => TaskOut(view).serialize(serializer),
            Answer::Sent(Sent::Message(message)) => result(message).serialize(serializer),
            Answer::Card(card) => card.serialize(serializer),
            Answer::PushConfig(task, config) => {
                PushConfigOut(Dialect::V03, task, config).serialize(serializer)
            }
            Answer::PushConfigs(task, configs) => {
                PushConfigsOut(Dialect::V03, task, configs).serialize(serializer)
            }
            Answer::Done => serializer.serialize_unit(),
            // 0.3 cannot list tasks, so no request leads here.
            Answer::Tasks(listed) => serializer.collect_seq(listed.tasks.iter().map(TaskOut)),
        }
    }
}

impl Serialize for StreamItemOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            StreamItem::Task(view) => TaskOut(view).serialize(serializer),
            StreamItem::Message(message) => result(message).serialize(serializer),
            StreamItem::Event(event) => UpdateOut(event).serialize(serializer),
        }
    }
}

impl Serialize for UpdateOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let StreamEvent { task_ref, state, last, .. } = self.0;
        let rendered = self.0.rendered();
        let mut object = Object::begin(serializer)?;
        object.field("kind", if rendered.is_artifact() { "artifact-update" } else { "status-update" })?;
        object.field("taskId", task_ref.task.as_str())?;
        object.field("contextId", task_ref.context.as_str())?;
        match rendered {
            Rendered::Status(status, metadata) => {
                object.field("status", &StatusOut(status, &task_ref.task, &task_ref.context))?;
                object.field("final", last)?;
                object.optional("metadata", metadata.and_then(TaskMetadata::of))?;
            }
            Rendered::Progress(status, text) => {
                object.field("status", &SilentOut(status))?;
                object.field("final", &false)?;
                object.field("metadata", &MetadataEntry(keys::STATUS, text))?;
            }
            Rendered::Chunk(parts) => {
                object.field("status", &ChunkOut(self.0, parts))?;
                object.field("final", &false)?;
            }
            Rendered::Artifact(Piece { artifact, parts, append, last, is_chunk }) => {
                object.field("artifact", &ArtifactOut(artifact, parts))?;
                object.field("append", &append)?;
                object.field("lastChunk", &last)?;
                object.optional("metadata", is_chunk.then_some(MetadataEntry(keys::CHUNK, true)))?;
            }
            Rendered::Note(name, value) => {
                object.field("status", &StateOut(*state))?;
                object.field("final", &false)?;
                object.field("metadata", &NoteOut(name, value))?;
            }
            Rendered::Nothing => {}
        }
        object.end()
    }
}

impl Serialize for StateOut {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = Object::begin(serializer)?;
        object.field("state", state(self.0))?;
        object.end()
    }
}

impl Serialize for TaskOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let task = &*self.0.task;
        let history = self.0.history();
        let mut object = Object::begin(serializer)?;
        object.field("kind", "task")?;
        object.field("id", task.id.as_str())?;
        object.field("contextId", task.context.as_str())?;
        object.field("status", &StatusOut(&task.status, &task.id, &task.context))?;
        if self.0.artifacts && !task.artifacts.is_empty() {
            object.field(
                "artifacts",
                &Seq(task.artifacts.iter().map(|artifact| ArtifactOut(artifact, &artifact.parts))),
            )?;
        }
        if !history.is_empty() {
            object.field(
                "history",
                &Seq(history.iter().map(|message| within(message, &task.id, &task.context))),
            )?;
        }
        object.optional("metadata", TaskMetadata::of(&task.metadata))?;
        object.optional("usage", usage(Some(&task.metadata)))?;
        object.end()
    }
}

impl Serialize for StatusOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(status, task, context) = *self;
        let mut object = Object::begin(serializer)?;
        object.field("state", state(status.state))?;
        object.optional("message", status.message.as_ref().map(|message| within(message, task, context)))?;
        object.field("timestamp", &TimestampOut(status.at))?;
        object.end()
    }
}

impl Serialize for SilentOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = Object::begin(serializer)?;
        object.field("state", state(self.0.state))?;
        object.field("timestamp", &TimestampOut(self.0.at))?;
        object.end()
    }
}

impl Serialize for ChunkOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = Object::begin(serializer)?;
        object.field("state", state(State::Working))?;
        object.field("message", &ChunkMessageOut(self.0, self.1))?;
        object.end()
    }
}

impl Serialize for ChunkMessageOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(StreamEvent { task_ref, sequence, .. }, parts) = *self;
        let TaskRef { task, context } = &**task_ref;
        let mut object = Object::begin(serializer)?;
        object.field("kind", "message")?;
        // Derived from the event, so that a resumed stream sends the same id.
        object.field("messageId", &format_args!("chunk-{task}-{sequence}"))?;
        object.field("contextId", context.as_str())?;
        object.field("taskId", task.as_str())?;
        object.field("role", "agent")?;
        object.field("parts", &Seq(parts.iter().map(PartOut)))?;
        object.field("metadata", &MetadataEntry(keys::CHUNK, true))?;
        object.end()
    }
}

impl Serialize for ArtifactOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(Artifact { id, name, description, metadata, extensions, .. }, parts) = *self;
        let nothing = [Part::text("")];
        let parts = if parts.is_empty() { &nothing } else { parts };
        let mut object = Object::begin(serializer)?;
        object.field("artifactId", id)?;
        object.optional("name", name.as_ref())?;
        object.optional("description", description.as_ref())?;
        object.field("parts", &Seq(parts.iter().map(PartOut)))?;
        object.optional("metadata", metadata.as_ref())?;
        object.list("extensions", extensions)?;
        object.end()
    }
}

impl Serialize for MessageOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Message { id, role, parts, metadata, extensions, reference_task_ids } = self.message;
        let mut object = Object::begin(serializer)?;
        object.field("kind", "message")?;
        object.field("messageId", id.as_str())?;
        object.optional("contextId", self.context.map(ContextId::as_str))?;
        object.optional("taskId", self.task.map(TaskId::as_str))?;
        object.field(
            "role",
            match role {
                Role::User => "user",
                Role::Agent => "agent",
            },
        )?;
        object.field("parts", &Seq(parts.iter().map(PartOut)))?;
        object.optional("metadata", metadata.as_ref())?;
        object.list("extensions", extensions)?;
        object.list("referenceTaskIds", reference_task_ids)?;
        if self.is_result {
            object.optional("usage", usage(metadata.as_ref()))?;
        }
        object.end()
    }
}

impl Serialize for PartOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Part { content, metadata, .. } = self.0;
        let mut object = Object::begin(serializer)?;
        match content {
            Content::Text(text) => {
                object.field("kind", "text")?;
                object.field("text", text)?;
            }
            Content::Bytes(_) | Content::Uri(_) => {
                object.field("kind", "file")?;
                object.field("file", &FileOut(self.0))?;
            }
            Content::Data(value) => {
                let data = DataOut::of(value, metadata.as_ref());
                object.field("kind", "data")?;
                object.field("data", &data.data())?;
                object.optional("metadata", data.metadata())?;
                return object.end();
            }
        }
        object.optional("metadata", metadata.as_ref())?;
        object.end()
    }
}

impl Serialize for FileOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Part { content, media_type, filename, .. } = self.0;
        let mut object = Object::begin(serializer)?;
        match content {
            Content::Bytes(bytes) => object.field("bytes", &Base64(bytes))?,
            Content::Uri(uri) => object.field("uri", uri)?,
            Content::Text(_) | Content::Data(_) => {}
        }
        object.optional("mimeType", media_type.as_ref())?;
        object.optional("name", filename.as_ref())?;
        object.end()
    }
}

impl<'a> DataOut<'a> {
    pub(crate) fn of(value: &'a Value, metadata: Option<&'a Metadata>) -> Self {
        Self { value, metadata }
    }

    pub(crate) fn data(&self) -> impl Serialize {
        Wrapped(self.value)
    }

    pub(crate) fn metadata(&self) -> Option<impl Serialize> {
        (!self.value.is_object() || self.metadata.is_some())
            .then(|| Marked(self.metadata, !self.value.is_object()))
    }
}

impl Serialize for Wrapped<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_object() {
            return self.0.serialize(serializer);
        }
        let mut object = Object::begin(serializer)?;
        object.field("value", self.0)?;
        object.end()
    }
}

impl Serialize for Marked<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = Object::begin(serializer)?;
        let Self(metadata, wrapped) = *self;
        // An existing mark would become a second member of the same name.
        for (name, value) in metadata.into_iter().flatten().filter(|(name, _)| !(wrapped && *name == WRAPPED))
        {
            object.field(name, value)?;
        }
        object.optional(WRAPPED, wrapped.then_some(true))?;
        object.end()
    }
}

fn result(Addressed { message, task, context }: &Addressed) -> MessageOut<'_> {
    MessageOut { message, task: task.as_ref(), context: context.as_ref(), is_result: true }
}

fn within<'a>(message: &'a Message, task: &'a TaskId, context: &'a ContextId) -> MessageOut<'a> {
    MessageOut { message, task: Some(task), context: Some(context), is_result: false }
}

/// Returns the usage of the turn, which the platform reads at the top of the result, beside the metadata.
fn usage(metadata: Option<&Metadata>) -> Option<&Value> {
    metadata?.get("usage").filter(|usage| usage.is_object())
}

fn state(state: State) -> &'static str {
    match state {
        State::Submitted => "submitted",
        State::Working => "working",
        State::InputRequired => "input-required",
        State::AuthRequired => "auth-required",
        State::Completed => "completed",
        State::Failed => "failed",
        State::Canceled => "canceled",
        State::Rejected => "rejected",
    }
}
