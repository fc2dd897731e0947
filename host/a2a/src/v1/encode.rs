//! Encodes 1.0, and 0.3 as HTTP+JSON has it: two versions of one proto.

use serde::{Serialize, Serializer};
use talaria_turns::{Artifact, Content, ContextId, Message, Part, Role, State, Status, TaskId, keys};

use crate::dialect::Dialect;
use crate::json_out::{Base64, MetadataEntry, NoteOut, Object, Seq, TaskMetadata, TimestampOut};
use crate::operation::{Addressed, Answer, Listed, Sent, View};
use crate::push::{PushConfigOut, PushConfigsOut};
use crate::stream_form::{Piece, Rendered};
use crate::update_stream::{StreamEvent, StreamItem, TaskRef};
use crate::v03::DataOut;

/// A version of the proto.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proto {
    /// `lf.a2a.v1`.
    V1,
    /// `a2a.v1`, which belongs to A2A 0.3.
    V03,
}

impl Proto {
    fn dialect(self) -> Dialect {
        match self {
            Self::V1 => Dialect::V1,
            Self::V03 => Dialect::V03Rest,
        }
    }
}

/// The answer to an operation.
pub(crate) struct AnswerOut<'a>(pub(crate) Proto, pub(crate) &'a Answer);

/// A `StreamResponse`.
pub(crate) struct StreamItemOut<'a>(pub(crate) Proto, pub(crate) &'a StreamItem);

struct TaskOut<'a>(Proto, &'a View);

struct ListOut<'a>(Proto, &'a Listed);

struct UpdateOut<'a>(Proto, &'a StreamEvent);

struct StatusOut<'a>(Proto, &'a Status, &'a TaskId, &'a ContextId);

/// A status with nothing but the state.
struct StateOut(Proto, State);

/// A status whose message is a chunk of the answer.
struct ChunkOut<'a>(Proto, &'a StreamEvent, &'a [Part]);

/// The message of that status.
struct ChunkMessageOut<'a>(Proto, &'a StreamEvent, &'a [Part]);

/// A status without its message.
struct SilentOut<'a>(Proto, &'a Status);

/// An artifact, with those of its parts that are shown.
struct ArtifactOut<'a>(Proto, &'a Artifact, &'a [Part]);

/// A message, with its task and its context.
pub(crate) struct MessageOut<'a>(
    pub(crate) Proto,
    pub(crate) &'a Message,
    pub(crate) Option<&'a TaskId>,
    pub(crate) Option<&'a ContextId>,
);

pub(crate) struct PartOut<'a>(pub(crate) Proto, pub(crate) &'a Part);

/// The `file` of a part in `a2a.v1`.
struct FileOut<'a>(&'a Part);

impl Serialize for AnswerOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(proto, answer) = *self;
        match answer {
            Answer::Task(view) => TaskOut(proto, view).serialize(serializer),
            Answer::Tasks(listed) => ListOut(proto, listed).serialize(serializer),
            Answer::Card(card) => card.serialize(serializer),
            Answer::PushConfig(task, config) => {
                PushConfigOut(proto.dialect(), task, config).serialize(serializer)
            }
            Answer::PushConfigs(task, configs) => {
                PushConfigsOut(proto.dialect(), task, configs).serialize(serializer)
            }
            Answer::Done => Object::begin(serializer)?.end(),
            Answer::Sent(Sent::Task(view)) => one(serializer, "task", &TaskOut(proto, view)),
            Answer::Sent(Sent::Message(message)) => one(serializer, "message", &addressed(proto, message)),
        }
    }
}

impl Serialize for StreamItemOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(proto, item) = *self;
        match item {
            StreamItem::Task(view) => one(serializer, "task", &TaskOut(proto, view)),
            StreamItem::Message(message) => one(serializer, "message", &addressed(proto, message)),
            StreamItem::Event(event) => {
                let name = if event.rendered().is_artifact() { "artifactUpdate" } else { "statusUpdate" };
                one(serializer, name, &UpdateOut(proto, event))
            }
        }
    }
}

impl Serialize for UpdateOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(proto, event) = *self;
        let StreamEvent { task_ref, state, last, .. } = event;
        let mut object = Object::begin(serializer)?;
        object.field("taskId", task_ref.task.as_str())?;
        object.field("contextId", task_ref.context.as_str())?;
        match event.rendered() {
            Rendered::Status(status, metadata) => {
                object.field("status", &StatusOut(proto, status, &task_ref.task, &task_ref.context))?;
                object.optional("final", (proto == Proto::V03 && *last).then_some(true))?;
                object.optional("metadata", metadata.and_then(TaskMetadata::of))?;
            }
            Rendered::Progress(status, text) => {
                object.field("status", &SilentOut(proto, status))?;
                object.field("metadata", &MetadataEntry(keys::STATUS, text))?;
            }
            Rendered::Chunk(parts) => object.field("status", &ChunkOut(proto, event, parts))?,
            Rendered::Artifact(Piece { artifact, parts, append, last, is_chunk }) => {
                object.field("artifact", &ArtifactOut(proto, artifact, parts))?;
                object.optional("append", append.then_some(true))?;
                object.optional("lastChunk", last.then_some(true))?;
                object.optional("metadata", is_chunk.then_some(MetadataEntry(keys::CHUNK, true)))?;
            }
            Rendered::Note(name, value) => {
                object.field("status", &StateOut(proto, *state))?;
                object.field("metadata", &NoteOut(name, value))?;
            }
            Rendered::Nothing => {}
        }
        object.end()
    }
}

impl Serialize for ListOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(proto, Listed { tasks, next, page_size, total }) = *self;
        let mut object = Object::begin(serializer)?;
        object.field("tasks", &Seq(tasks.iter().map(|view| TaskOut(proto, view))))?;
        object.field("nextPageToken", next)?;
        object.field("pageSize", page_size)?;
        object.field("totalSize", total)?;
        object.end()
    }
}

impl Serialize for TaskOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(proto, view) = *self;
        let task = &*view.task;
        let history = view.history();
        let mut object = Object::begin(serializer)?;
        object.field("id", task.id.as_str())?;
        object.field("contextId", task.context.as_str())?;
        object.field("status", &StatusOut(proto, &task.status, &task.id, &task.context))?;
        if view.artifacts && !task.artifacts.is_empty() {
            object.field(
                "artifacts",
                &Seq(task.artifacts.iter().map(|artifact| ArtifactOut(proto, artifact, &artifact.parts))),
            )?;
        }
        if !history.is_empty() {
            let message = |message| MessageOut(proto, message, Some(&task.id), Some(&task.context));
            object.field("history", &Seq(history.iter().map(|earlier| message(earlier))))?;
        }
        object.optional("metadata", TaskMetadata::of(&task.metadata))?;
        object.end()
    }
}

impl Serialize for StatusOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(proto, status, task, context) = *self;
        let message = |message| MessageOut(proto, message, Some(task), Some(context));
        let mut object = Object::begin(serializer)?;
        object.field("state", state(proto, status.state))?;
        object.optional("message", status.message.as_deref().map(message))?;
        object.field("timestamp", &TimestampOut(status.at))?;
        object.end()
    }
}

impl Serialize for StateOut {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        one(serializer, "state", state(self.0, self.1))
    }
}

impl Serialize for SilentOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = Object::begin(serializer)?;
        object.field("state", state(self.0, self.1.state))?;
        object.field("timestamp", &TimestampOut(self.1.at))?;
        object.end()
    }
}

impl Serialize for ChunkOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(proto, event, parts) = *self;
        let mut object = Object::begin(serializer)?;
        object.field("state", state(proto, State::Working))?;
        object.field("message", &ChunkMessageOut(proto, event, parts))?;
        object.end()
    }
}

impl Serialize for ChunkMessageOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(proto, StreamEvent { task_ref, sequence, .. }, parts) = *self;
        let TaskRef { task, context } = &**task_ref;
        let mut object = Object::begin(serializer)?;
        // Derived from the event, so that a resumed stream sends the same id.
        object.field("messageId", &format_args!("chunk-{task}-{sequence}"))?;
        object.field("contextId", context.as_str())?;
        object.field("taskId", task.as_str())?;
        object.field("role", "ROLE_AGENT")?;
        let name = if proto == Proto::V03 { "content" } else { "parts" };
        object.field(name, &Seq(parts.iter().map(|part| PartOut(proto, part))))?;
        object.field("metadata", &MetadataEntry(keys::CHUNK, true))?;
        object.end()
    }
}

impl Serialize for ArtifactOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(proto, Artifact { id, name, description, metadata, extensions, .. }, parts) = *self;
        let nothing = [Part::text("")];
        let parts = if parts.is_empty() { &nothing } else { parts };
        let mut object = Object::begin(serializer)?;
        object.field("artifactId", id)?;
        object.optional("name", name.as_ref())?;
        object.optional("description", description.as_ref())?;
        object.field("parts", &Seq(parts.iter().map(|part| PartOut(proto, part))))?;
        object.optional("metadata", metadata.as_ref())?;
        object.list("extensions", extensions)?;
        object.end()
    }
}

impl Serialize for MessageOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(proto, message, task, context) = *self;
        let Message { id, role, parts, metadata, extensions, reference_task_ids } = message;
        let mut object = Object::begin(serializer)?;
        object.field("messageId", id.as_str())?;
        object.optional("contextId", context.map(ContextId::as_str))?;
        object.optional("taskId", task.map(TaskId::as_str))?;
        let role = match role {
            Role::User => "ROLE_USER",
            Role::Agent => "ROLE_AGENT",
        };
        object.field("role", role)?;
        let name = if proto == Proto::V03 { "content" } else { "parts" };
        object.field(name, &Seq(parts.iter().map(|part| PartOut(proto, part))))?;
        object.optional("metadata", metadata.as_ref())?;
        object.list("extensions", extensions)?;
        if proto == Proto::V1 {
            object.list("referenceTaskIds", reference_task_ids)?;
        }
        object.end()
    }
}

impl Serialize for PartOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(proto, part) = *self;
        let Part { content, media_type, filename, metadata } = part;
        let mut object = Object::begin(serializer)?;
        match (proto, content) {
            (_, Content::Text(text)) => object.field("text", text)?,
            (Proto::V1, Content::Bytes(bytes)) => object.field("raw", &Base64(bytes))?,
            (Proto::V1, Content::Uri(uri)) => object.field("url", uri)?,
            (Proto::V1, Content::Data(value)) => object.field("data", value)?,
            (Proto::V03, Content::Bytes(_) | Content::Uri(_)) => object.field("file", &FileOut(part))?,
            (Proto::V03, Content::Data(value)) => {
                let data = DataOut::of(value, metadata.as_ref());
                object.field("data", &Data(&data))?;
                object.optional("metadata", data.metadata())?;
                return object.end();
            }
        }
        object.optional("metadata", metadata.as_ref())?;
        if proto == Proto::V1 {
            object.optional("filename", filename.as_ref())?;
            object.optional("mediaType", media_type.as_ref())?;
        }
        object.end()
    }
}

/// The `data` of a part in `a2a.v1`, which has a nested `data`.
struct Data<'a>(&'a DataOut<'a>);

impl Serialize for Data<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        one(serializer, "data", &self.0.data())
    }
}

impl Serialize for FileOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Part { content, media_type, filename, .. } = self.0;
        let mut object = Object::begin(serializer)?;
        match content {
            Content::Bytes(bytes) => object.field("fileWithBytes", &Base64(bytes))?,
            Content::Uri(uri) => object.field("fileWithUri", uri)?,
            Content::Text(_) | Content::Data(_) => {}
        }
        object.optional("mimeType", media_type.as_ref())?;
        object.optional("name", filename.as_ref())?;
        object.end()
    }
}

/// An object with one member.
fn one<S: Serializer>(
    serializer: S,
    name: &str,
    value: &(impl Serialize + ?Sized),
) -> Result<S::Ok, S::Error> {
    let mut object = Object::begin(serializer)?;
    object.field(name, value)?;
    object.end()
}

fn addressed(proto: Proto, Addressed { message, task, context }: &Addressed) -> MessageOut<'_> {
    MessageOut(proto, message, task.as_ref(), context.as_ref())
}

fn state(proto: Proto, state: State) -> &'static str {
    match state {
        State::Submitted => "TASK_STATE_SUBMITTED",
        State::Working => "TASK_STATE_WORKING",
        State::InputRequired => "TASK_STATE_INPUT_REQUIRED",
        State::AuthRequired => "TASK_STATE_AUTH_REQUIRED",
        State::Completed => "TASK_STATE_COMPLETED",
        State::Failed => "TASK_STATE_FAILED",
        State::Canceled if proto == Proto::V03 => "TASK_STATE_CANCELLED",
        State::Canceled => "TASK_STATE_CANCELED",
        State::Rejected => "TASK_STATE_REJECTED",
    }
}
