//! 0.3 out.

use serde::{Serialize, Serializer};
use serde_json::Value;
use talaria_turns::{
    Artifact, Content, ContextId, Message, Metadata, Part, Role, State, Status, Task, TaskId,
};

use super::WRAPPED;
use crate::operation::{Addressed, Answer, Sent, View};
use crate::write::{Base64, Moment, Object, Seq, TaskMetadata};

/// The result of an operation.
pub(crate) struct AnswerOut<'a>(pub(crate) &'a Answer);

struct TaskOut<'a>(&'a View);

struct StatusOut<'a>(&'a Status, &'a Task);

struct ArtifactOut<'a>(&'a Artifact);

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

/// Data that is no object, as an object.
struct Wrapped<'a>(&'a Value);

/// Metadata with the mark that goes with it.
struct Marked<'a>(Option<&'a Metadata>);

impl Serialize for AnswerOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Answer::Task(view) | Answer::Sent(Sent::Task(view)) => TaskOut(view).serialize(serializer),
            Answer::Sent(Sent::Message(Addressed { message, task, context })) => {
                MessageOut { message, task: task.as_ref(), context: context.as_ref(), is_result: true }
                    .serialize(serializer)
            }
        }
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
        object.field("status", &StatusOut(&task.status, task))?;
        if !task.artifacts.is_empty() {
            object.field("artifacts", &Seq(task.artifacts.iter().map(ArtifactOut)))?;
        }
        if !history.is_empty() {
            object.field("history", &Seq(history.iter().map(|message| within(message, task))))?;
        }
        object.maybe("metadata", TaskMetadata::of(&task.metadata))?;
        object.maybe("usage", usage(Some(&task.metadata)))?;
        object.end()
    }
}

impl Serialize for StatusOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(status, task) = *self;
        let mut object = Object::begin(serializer)?;
        object.field("state", state(status.state))?;
        object.maybe("message", status.message.as_ref().map(|message| within(message, task)))?;
        object.field("timestamp", &Moment(status.at))?;
        object.end()
    }
}

impl Serialize for ArtifactOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Artifact { id, name, description, parts, metadata, extensions } = self.0;
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
            Content::Data(value @ Value::Object(_)) => {
                object.field("kind", "data")?;
                object.field("data", value)?;
            }
            Content::Data(value) => {
                object.field("kind", "data")?;
                object.field("data", &Wrapped(value))?;
                object.field("metadata", &Marked(metadata.as_ref()))?;
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

impl Serialize for Wrapped<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = Object::begin(serializer)?;
        object.field("value", self.0)?;
        object.end()
    }
}

impl Serialize for Marked<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = Object::begin(serializer)?;
        for (name, value) in self.0.into_iter().flatten() {
            object.field(name, value)?;
        }
        object.field(WRAPPED, &true)?;
        object.end()
    }
}

fn within<'a>(message: &'a Message, task: &'a Task) -> MessageOut<'a> {
    MessageOut { message, task: Some(&task.id), context: Some(&task.context), is_result: false }
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
