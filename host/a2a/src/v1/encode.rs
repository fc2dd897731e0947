//! 1.0 out, and 0.3 as HTTP+JSON has it: two forms of one proto.

use serde::{Serialize, Serializer};
use talaria_turns::{Artifact, Content, ContextId, Message, Part, Role, State, Status, TaskId};

use crate::dialect::Dialect;
use crate::hook::{HookOut, HooksOut};
use crate::operation::{Addressed, Answer, Listed, Sent, View};
use crate::tell::{CHUNK, LINE, Piece, Told};
use crate::updates::{Happened, Home, Item};
use crate::v03::DataOut;
use crate::write::{Base64, Mark, Moment, NoteOut, Object, Seq, TaskMetadata};

/// Which version of the proto.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `lf.a2a.v1`.
    One,
    /// `a2a.v1`, which is 0.3.
    Old,
}

impl Form {
    fn dialect(self) -> Dialect {
        match self {
            Self::One => Dialect::V1,
            Self::Old => Dialect::V03Rest,
        }
    }
}

/// The result of an operation.
pub(crate) struct AnswerOut<'a>(pub(crate) Form, pub(crate) &'a Answer);

/// A `StreamResponse`.
pub(crate) struct ItemOut<'a>(pub(crate) Form, pub(crate) &'a Item);

struct TaskOut<'a>(Form, &'a View);

struct ListOut<'a>(Form, &'a Listed);

struct UpdateOut<'a>(Form, &'a Happened);

struct StatusOut<'a>(Form, &'a Status, &'a TaskId, &'a ContextId);

/// A status that says nothing but the state.
struct StateOut(Form, State);

/// A status whose message is a piece of the answer.
struct ChunkOut<'a>(Form, &'a Happened, &'a [Part]);

/// The message of that status.
struct ChunkMessageOut<'a>(Form, &'a Happened, &'a [Part]);

/// A status without its message.
struct SilentOut<'a>(Form, &'a Status);

/// An artifact, with the parts that are to be shown of it.
struct ArtifactOut<'a>(Form, &'a Artifact, &'a [Part]);

/// A message, with the task and the context that it belongs to.
pub(crate) struct MessageOut<'a>(
    pub(crate) Form,
    pub(crate) &'a Message,
    pub(crate) Option<&'a TaskId>,
    pub(crate) Option<&'a ContextId>,
);

pub(crate) struct PartOut<'a>(pub(crate) Form, pub(crate) &'a Part);

/// The `file` of an old part.
struct FileOut<'a>(&'a Part);

impl Serialize for AnswerOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(form, answer) = *self;
        match answer {
            Answer::Task(view) => TaskOut(form, view).serialize(serializer),
            Answer::Tasks(listed) => ListOut(form, listed).serialize(serializer),
            Answer::Card(card) => card.serialize(serializer),
            Answer::Hook(task, hook) => HookOut(form.dialect(), task, hook).serialize(serializer),
            Answer::Hooks(task, hooks) => HooksOut(form.dialect(), task, hooks).serialize(serializer),
            Answer::Done => Object::begin(serializer)?.end(),
            Answer::Sent(Sent::Task(view)) => one(serializer, "task", &TaskOut(form, view)),
            Answer::Sent(Sent::Message(message)) => one(serializer, "message", &addressed(form, message)),
        }
    }
}

impl Serialize for ItemOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(form, item) = *self;
        match item {
            Item::Task(view) => one(serializer, "task", &TaskOut(form, view)),
            Item::Message(message) => one(serializer, "message", &addressed(form, message)),
            Item::Event(happened) => {
                let name = if happened.told().is_artifact() { "artifactUpdate" } else { "statusUpdate" };
                one(serializer, name, &UpdateOut(form, happened))
            }
        }
    }
}

impl Serialize for UpdateOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(form, happened) = *self;
        let Happened { home, state, last, .. } = happened;
        let mut object = Object::begin(serializer)?;
        object.field("taskId", home.task.as_str())?;
        object.field("contextId", home.context.as_str())?;
        match happened.told() {
            Told::Status(status, metadata) => {
                object.field("status", &StatusOut(form, status, &home.task, &home.context))?;
                object.maybe("final", (form == Form::Old && *last).then_some(true))?;
                object.maybe("metadata", metadata.and_then(TaskMetadata::of))?;
            }
            Told::Line(status, line) => {
                object.field("status", &SilentOut(form, status))?;
                object.field("metadata", &Mark(LINE, line))?;
            }
            Told::Chunk(parts) => object.field("status", &ChunkOut(form, happened, parts))?,
            Told::Artifact(Piece { artifact, parts, append, last, is_chunk }) => {
                object.field("artifact", &ArtifactOut(form, artifact, parts))?;
                object.maybe("append", append.then_some(true))?;
                object.maybe("lastChunk", last.then_some(true))?;
                object.maybe("metadata", is_chunk.then_some(Mark(CHUNK, true)))?;
            }
            Told::Note(name, value) => {
                object.field("status", &StateOut(form, *state))?;
                object.field("metadata", &NoteOut(name, value))?;
            }
            Told::Nothing => {}
        }
        object.end()
    }
}

impl Serialize for ListOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(form, Listed { tasks, next, page_size, total }) = *self;
        let mut object = Object::begin(serializer)?;
        object.field("tasks", &Seq(tasks.iter().map(|view| TaskOut(form, view))))?;
        object.field("nextPageToken", next)?;
        object.field("pageSize", page_size)?;
        object.field("totalSize", total)?;
        object.end()
    }
}

impl Serialize for TaskOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(form, view) = *self;
        let task = &*view.task;
        let history = view.history();
        let mut object = Object::begin(serializer)?;
        object.field("id", task.id.as_str())?;
        object.field("contextId", task.context.as_str())?;
        object.field("status", &StatusOut(form, &task.status, &task.id, &task.context))?;
        if view.artifacts && !task.artifacts.is_empty() {
            object.field(
                "artifacts",
                &Seq(task.artifacts.iter().map(|artifact| ArtifactOut(form, artifact, &artifact.parts))),
            )?;
        }
        if !history.is_empty() {
            let message = |message| MessageOut(form, message, Some(&task.id), Some(&task.context));
            object.field("history", &Seq(history.iter().map(message)))?;
        }
        object.maybe("metadata", TaskMetadata::of(&task.metadata))?;
        object.end()
    }
}

impl Serialize for StatusOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(form, status, task, context) = *self;
        let message = |message| MessageOut(form, message, Some(task), Some(context));
        let mut object = Object::begin(serializer)?;
        object.field("state", state(form, status.state))?;
        object.maybe("message", status.message.as_ref().map(message))?;
        object.field("timestamp", &Moment(status.at))?;
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
        object.field("timestamp", &Moment(self.1.at))?;
        object.end()
    }
}

impl Serialize for ChunkOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(form, happened, parts) = *self;
        let mut object = Object::begin(serializer)?;
        object.field("state", state(form, State::Working))?;
        object.field("message", &ChunkMessageOut(form, happened, parts))?;
        object.end()
    }
}

impl Serialize for ChunkMessageOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(form, Happened { home, sequence, .. }, parts) = *self;
        let Home { task, context } = &**home;
        let mut object = Object::begin(serializer)?;
        // Derived, so that a stream that is taken up again says the same.
        object.field("messageId", &format_args!("chunk-{task}-{sequence}"))?;
        object.field("contextId", context.as_str())?;
        object.field("taskId", task.as_str())?;
        object.field("role", "ROLE_AGENT")?;
        let name = if form == Form::Old { "content" } else { "parts" };
        object.field(name, &Seq(parts.iter().map(|part| PartOut(form, part))))?;
        object.field("metadata", &Mark(CHUNK, true))?;
        object.end()
    }
}

impl Serialize for ArtifactOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(form, Artifact { id, name, description, metadata, extensions, .. }, parts) = *self;
        let nothing = [Part::text("")];
        let parts = if parts.is_empty() { &nothing } else { parts };
        let mut object = Object::begin(serializer)?;
        object.field("artifactId", id)?;
        object.maybe("name", name.as_ref())?;
        object.maybe("description", description.as_ref())?;
        object.field("parts", &Seq(parts.iter().map(|part| PartOut(form, part))))?;
        object.maybe("metadata", metadata.as_ref())?;
        object.list("extensions", extensions)?;
        object.end()
    }
}

impl Serialize for MessageOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(form, message, task, context) = *self;
        let Message { id, role, parts, metadata, extensions, reference_task_ids } = message;
        let mut object = Object::begin(serializer)?;
        object.field("messageId", id.as_str())?;
        object.maybe("contextId", context.map(ContextId::as_str))?;
        object.maybe("taskId", task.map(TaskId::as_str))?;
        let role = match role {
            Role::User => "ROLE_USER",
            Role::Agent => "ROLE_AGENT",
        };
        object.field("role", role)?;
        let name = if form == Form::Old { "content" } else { "parts" };
        object.field(name, &Seq(parts.iter().map(|part| PartOut(form, part))))?;
        object.maybe("metadata", metadata.as_ref())?;
        object.list("extensions", extensions)?;
        if form == Form::One {
            object.list("referenceTaskIds", reference_task_ids)?;
        }
        object.end()
    }
}

impl Serialize for PartOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(form, part) = *self;
        let Part { content, media_type, filename, metadata } = part;
        let mut object = Object::begin(serializer)?;
        match (form, content) {
            (_, Content::Text(text)) => object.field("text", text)?,
            (Form::One, Content::Bytes(bytes)) => object.field("raw", &Base64(bytes))?,
            (Form::One, Content::Uri(uri)) => object.field("url", uri)?,
            (Form::One, Content::Data(value)) => object.field("data", value)?,
            (Form::Old, Content::Bytes(_) | Content::Uri(_)) => object.field("file", &FileOut(part))?,
            (Form::Old, Content::Data(value)) => {
                let data = DataOut::of(value, metadata.as_ref());
                object.field("data", &Data(&data))?;
                object.maybe("metadata", data.metadata())?;
                return object.end();
            }
        }
        object.maybe("metadata", metadata.as_ref())?;
        if form == Form::One {
            object.maybe("filename", filename.as_ref())?;
            object.maybe("mediaType", media_type.as_ref())?;
        }
        object.end()
    }
}

/// The `data` of an old part, which has a `data` of its own.
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
        object.maybe("mimeType", media_type.as_ref())?;
        object.maybe("name", filename.as_ref())?;
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

fn addressed(form: Form, Addressed { message, task, context }: &Addressed) -> MessageOut<'_> {
    MessageOut(form, message, task.as_ref(), context.as_ref())
}

fn state(form: Form, state: State) -> &'static str {
    match state {
        State::Submitted => "TASK_STATE_SUBMITTED",
        State::Working => "TASK_STATE_WORKING",
        State::InputRequired => "TASK_STATE_INPUT_REQUIRED",
        State::AuthRequired => "TASK_STATE_AUTH_REQUIRED",
        State::Completed => "TASK_STATE_COMPLETED",
        State::Failed => "TASK_STATE_FAILED",
        State::Canceled if form == Form::Old => "TASK_STATE_CANCELLED",
        State::Canceled => "TASK_STATE_CANCELED",
        State::Rejected => "TASK_STATE_REJECTED",
    }
}
