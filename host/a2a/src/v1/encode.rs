//! 1.0 out.

use serde::{Serialize, Serializer};
use talaria_turns::{Artifact, Content, ContextId, Message, Part, Role, State, Status, Task, TaskId};

use crate::operation::{Addressed, Answer, Sent, View};
use crate::write::{Base64, Moment, Object, Seq, TaskMetadata};

/// The result of an operation.
pub(crate) struct AnswerOut<'a>(pub(crate) &'a Answer);

struct TaskOut<'a>(&'a View);

struct StatusOut<'a>(&'a Status, &'a Task);

struct ArtifactOut<'a>(&'a Artifact);

/// A message, with the task and the context that it belongs to.
pub(super) struct MessageOut<'a>(
    pub(super) &'a Message,
    pub(super) Option<&'a TaskId>,
    pub(super) Option<&'a ContextId>,
);

pub(super) struct PartOut<'a>(pub(super) &'a Part);

impl Serialize for AnswerOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let sent = match self.0 {
            Answer::Task(view) => return TaskOut(view).serialize(serializer),
            Answer::Sent(sent) => sent,
        };
        let mut object = Object::begin(serializer)?;
        match sent {
            Sent::Task(view) => object.field("task", &TaskOut(view))?,
            Sent::Message(Addressed { message, task, context }) => {
                object.field("message", &MessageOut(message, task.as_ref(), context.as_ref()))?;
            }
        }
        object.end()
    }
}

impl Serialize for TaskOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let task = &*self.0.task;
        let history = self.0.history();
        let mut object = Object::begin(serializer)?;
        object.field("id", task.id.as_str())?;
        object.field("contextId", task.context.as_str())?;
        object.field("status", &StatusOut(&task.status, task))?;
        if !task.artifacts.is_empty() {
            object.field("artifacts", &Seq(task.artifacts.iter().map(ArtifactOut)))?;
        }
        if !history.is_empty() {
            let message = |message| MessageOut(message, Some(&task.id), Some(&task.context));
            object.field("history", &Seq(history.iter().map(message)))?;
        }
        object.maybe("metadata", TaskMetadata::of(&task.metadata))?;
        object.end()
    }
}

impl Serialize for StatusOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(status, task) = *self;
        let message = |message| MessageOut(message, Some(&task.id), Some(&task.context));
        let mut object = Object::begin(serializer)?;
        object.field("state", state(status.state))?;
        object.maybe("message", status.message.as_ref().map(message))?;
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
        let Self(message, task, context) = *self;
        let Message { id, role, parts, metadata, extensions, reference_task_ids } = message;
        let mut object = Object::begin(serializer)?;
        object.field("messageId", id.as_str())?;
        object.maybe("contextId", context.map(ContextId::as_str))?;
        object.maybe("taskId", task.map(TaskId::as_str))?;
        object.field(
            "role",
            match role {
                Role::User => "ROLE_USER",
                Role::Agent => "ROLE_AGENT",
            },
        )?;
        object.field("parts", &Seq(parts.iter().map(PartOut)))?;
        object.maybe("metadata", metadata.as_ref())?;
        object.list("extensions", extensions)?;
        object.list("referenceTaskIds", reference_task_ids)?;
        object.end()
    }
}

impl Serialize for PartOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Part { content, media_type, filename, metadata } = self.0;
        let mut object = Object::begin(serializer)?;
        match content {
            Content::Text(text) => object.field("text", text)?,
            Content::Bytes(bytes) => object.field("raw", &Base64(bytes))?,
            Content::Uri(uri) => object.field("url", uri)?,
            Content::Data(value) => object.field("data", value)?,
        }
        object.maybe("metadata", metadata.as_ref())?;
        object.maybe("filename", filename.as_ref())?;
        object.maybe("mediaType", media_type.as_ref())?;
        object.end()
    }
}

fn state(state: State) -> &'static str {
    match state {
        State::Submitted => "TASK_STATE_SUBMITTED",
        State::Working => "TASK_STATE_WORKING",
        State::InputRequired => "TASK_STATE_INPUT_REQUIRED",
        State::AuthRequired => "TASK_STATE_AUTH_REQUIRED",
        State::Completed => "TASK_STATE_COMPLETED",
        State::Failed => "TASK_STATE_FAILED",
        State::Canceled => "TASK_STATE_CANCELED",
        State::Rejected => "TASK_STATE_REJECTED",
    }
}
