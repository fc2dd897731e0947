//! 0.3 out.

use serde::{Serialize, Serializer};
use serde_json::Value;
use talaria_turns::{Artifact, Content, ContextId, Message, Metadata, Part, Role, State, Status, TaskId};

use super::WRAPPED;
use crate::dialect::Dialect;
use crate::hook::{HookOut, HooksOut};
use crate::operation::{Addressed, Answer, Sent, View};
use crate::tell::{CHUNK, LINE, Piece, Told};
use crate::updates::{Happened, Home, Item};
use crate::write::{Base64, Mark, Moment, NoteOut, Object, Seq, TaskMetadata};

/// The result of an operation.
pub(crate) struct AnswerOut<'a>(pub(crate) &'a Answer);

/// One event of a stream.
pub(crate) struct ItemOut<'a>(pub(crate) &'a Item);

struct TaskOut<'a>(&'a View);

struct UpdateOut<'a>(&'a Happened);

struct StatusOut<'a>(&'a Status, &'a TaskId, &'a ContextId);

/// A status that says nothing but the state.
struct StateOut(State);

/// A status whose message is a piece of the answer.
struct ChunkOut<'a>(&'a Happened, &'a [Part]);

/// The message of that status.
struct ChunkMessageOut<'a>(&'a Happened, &'a [Part]);

/// A status without its message.
struct SilentOut<'a>(&'a Status);

/// An artifact, with the parts that are to be shown of it.
struct ArtifactOut<'a>(&'a Artifact, &'a [Part]);

/// A message, with the task and the context that it belongs to, and whether it is the result itself.
pub(super) struct MessageOut<'a> {
    pub(super) message: &'a Message,
    pub(super) task: Option<&'a TaskId>,
    pub(super) context: Option<&'a ContextId>,
    pub(super) is_result: bool,
}

pub(super) struct PartOut<'a>(pub(super) &'a Part);

/// The `file` of a part.
struct FileOut<'a>(&'a Part);

/// Data, as an object where it is none, with the metadata that says so.
pub(crate) struct DataOut<'a> {
    value: &'a Value,
    metadata: Option<&'a Metadata>,
}

/// Data; as an object where it is none.
struct Wrapped<'a>(&'a Value);

/// Metadata, with the mark that goes with data that was wrapped.
struct Marked<'a>(Option<&'a Metadata>, bool);

impl Serialize for AnswerOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Answer::Task(view) | Answer::Sent(Sent::Task(view)) => TaskOut(view).serialize(serializer),
            Answer::Sent(Sent::Message(message)) => result(message).serialize(serializer),
            Answer::Card(card) => card.serialize(serializer),
            Answer::Hook(task, hook) => HookOut(Dialect::V03, task, hook).serialize(serializer),
            Answer::Hooks(task, hooks) => HooksOut(Dialect::V03, task, hooks).serialize(serializer),
            Answer::Done => serializer.serialize_unit(),
            // 0.3 has no list; were it asked for, this is the part of the answer that it could read.
            Answer::Tasks(listed) => serializer.collect_seq(listed.tasks.iter().map(TaskOut)),
        }
    }
}

impl Serialize for ItemOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Item::Task(view) => TaskOut(view).serialize(serializer),
            Item::Message(message) => result(message).serialize(serializer),
            Item::Event(happened) => UpdateOut(happened).serialize(serializer),
        }
    }
}

impl Serialize for UpdateOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Happened { home, state, last, .. } = self.0;
        let told = self.0.told();
        let mut object = Object::begin(serializer)?;
        object.field("kind", if told.is_artifact() { "artifact-update" } else { "status-update" })?;
        object.field("taskId", home.task.as_str())?;
        object.field("contextId", home.context.as_str())?;
        match told {
            Told::Status(status, metadata) => {
                object.field("status", &StatusOut(status, &home.task, &home.context))?;
                object.field("final", last)?;
                object.maybe("metadata", metadata.and_then(TaskMetadata::of))?;
            }
            Told::Line(status, line) => {
                object.field("status", &SilentOut(status))?;
                object.field("final", &false)?;
                object.field("metadata", &Mark(LINE, line))?;
            }
            Told::Chunk(parts) => {
                object.field("status", &ChunkOut(self.0, parts))?;
                object.field("final", &false)?;
            }
            Told::Artifact(Piece { artifact, parts, append, last, is_chunk }) => {
                object.field("artifact", &ArtifactOut(artifact, parts))?;
                object.field("append", &append)?;
                object.field("lastChunk", &last)?;
                object.maybe("metadata", is_chunk.then_some(Mark(CHUNK, true)))?;
            }
            Told::Note(name, value) => {
                object.field("status", &StateOut(*state))?;
                object.field("final", &false)?;
                object.field("metadata", &NoteOut(name, value))?;
            }
            Told::Nothing => {}
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
        object.maybe("metadata", TaskMetadata::of(&task.metadata))?;
        object.maybe("usage", usage(Some(&task.metadata)))?;
        object.end()
    }
}

impl Serialize for StatusOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(status, task, context) = *self;
        let mut object = Object::begin(serializer)?;
        object.field("state", state(status.state))?;
        object.maybe("message", status.message.as_ref().map(|message| within(message, task, context)))?;
        object.field("timestamp", &Moment(status.at))?;
        object.end()
    }
}

impl Serialize for SilentOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = Object::begin(serializer)?;
        object.field("state", state(self.0.state))?;
        object.field("timestamp", &Moment(self.0.at))?;
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
        let Self(Happened { home, sequence, .. }, parts) = *self;
        let Home { task, context } = &**home;
        let mut object = Object::begin(serializer)?;
        object.field("kind", "message")?;
        // Derived, so that a stream that is taken up again says the same.
        object.field("messageId", &format_args!("chunk-{task}-{sequence}"))?;
        object.field("contextId", context.as_str())?;
        object.field("taskId", task.as_str())?;
        object.field("role", "agent")?;
        object.field("parts", &Seq(parts.iter().map(PartOut)))?;
        object.field("metadata", &Mark(CHUNK, true))?;
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
        object.maybe("name", name.as_ref())?;
        object.maybe("description", description.as_ref())?;
        object.field("parts", &Seq(parts.iter().map(PartOut)))?;
        object.maybe("metadata", metadata.as_ref())?;
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
        object.maybe("contextId", self.context.map(ContextId::as_str))?;
        object.maybe("taskId", self.task.map(TaskId::as_str))?;
        object.field(
            "role",
            match role {
                Role::User => "user",
                Role::Agent => "agent",
            },
        )?;
        object.field("parts", &Seq(parts.iter().map(PartOut)))?;
        object.maybe("metadata", metadata.as_ref())?;
        object.list("extensions", extensions)?;
        object.list("referenceTaskIds", reference_task_ids)?;
        if self.is_result {
            object.maybe("usage", usage(metadata.as_ref()))?;
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
                object.maybe("metadata", data.metadata())?;
                return object.end();
            }
        }
        object.maybe("metadata", metadata.as_ref())?;
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
        object.maybe("mimeType", media_type.as_ref())?;
        object.maybe("name", filename.as_ref())?;
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
        // A mark that was there already would be a second member of that name.
        for (name, value) in metadata.into_iter().flatten().filter(|(name, _)| !(wrapped && *name == WRAPPED))
        {
            object.field(name, value)?;
        }
        object.maybe(WRAPPED, wrapped.then_some(true))?;
        object.end()
    }
}

fn result(Addressed { message, task, context }: &Addressed) -> MessageOut<'_> {
    MessageOut { message, task: task.as_ref(), context: context.as_ref(), is_result: true }
}

fn within<'a>(message: &'a Message, task: &'a TaskId, context: &'a ContextId) -> MessageOut<'a> {
    MessageOut { message, task: Some(task), context: Some(context), is_result: false }
}

/// What the turn cost: the platform reads it beside the metadata, at the top of the result.
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
