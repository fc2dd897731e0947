//! Answers: what an operation returns, before a codec encodes it.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use talaria_turns::{Message, PushConfig, Task, TaskId, keys};

use super::Addressed;
use crate::update_stream::UpdateStream;

/// How a blocking send is answered if its turn returned only text. A send that names a task is answered with that task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReplyAs {
    /// With the text, as a message; a failure with the task.
    #[default]
    Auto,
    /// With the text, as a message; a failure too, whether or not a task was named.
    Message,
    /// With the task, always.
    Task,
}

/// What a caller gets.
pub(crate) enum Reply {
    Once(Answer),
    Stream(Box<UpdateStream>),
}

/// An answer that is not a stream.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    /// To a send: a message or a task. The ProtoJSON dialects name which.
    Sent(Sent),
    /// To a request about one task.
    Task(View),
    /// A page of tasks.
    Tasks(Listed),
    /// The extended card.
    Card(Arc<Value>),
    /// A push configuration, encoded without its secrets.
    PushConfig(TaskId, Box<PushConfig>),
    /// All push configurations of a task.
    PushConfigs(TaskId, Vec<PushConfig>),
    /// Nothing but success.
    Done,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Sent {
    Message(Addressed),
    Task(View),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Listed {
    pub(crate) tasks: Vec<View>,
    /// The token of the next page; empty on the last page.
    pub(crate) next: String,
    pub(crate) page_size: usize,
    pub(crate) total: usize,
}

/// A task, with how much of it the caller wants to see.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct View {
    pub(crate) task: Arc<Task>,
    pub(crate) history_length: Option<usize>,
    pub(crate) artifacts: bool,
}

// === impl View ===

impl View {
    /// Shows the whole task, with the last `history_length` messages.
    pub(crate) fn new(task: Arc<Task>, history_length: Option<usize>) -> Self {
        Self { task, history_length, artifacts: true }
    }

    /// The messages to show.
    pub(crate) fn history(&self) -> &[Arc<Message>] {
        let all = self.task.history.as_slice();
        let hidden = all.len().saturating_sub(self.history_length.unwrap_or(usize::MAX));
        all.get(hidden..).unwrap_or_default()
    }
}

/// Returns how the executor wants the send to be answered, if it says so.
pub(crate) fn reply_as(task: &Task) -> Option<ReplyAs> {
    match task.metadata.get(keys::REPLY).and_then(Value::as_str) {
        Some("task") => Some(ReplyAs::Task),
        Some("message") => Some(ReplyAs::Message),
        _ => None,
    }
}

/// Returns the answer as a message, if it can be one.
pub(crate) fn message_reply(task: &Task) -> Option<Addressed> {
    let mut message = task.text_reply()?;
    if let Some(metadata) = &mut message.metadata {
        metadata.shift_remove(keys::REPLY);
    }
    message.metadata = message.metadata.filter(|metadata| !metadata.is_empty());
    // The caller's next message continues the context; the task is over.
    Some(Addressed { message, task: None, context: Some(task.context.clone()) })
}

#[cfg(test)]
mod tests {
    use talaria_turns::{ContextId, Part};

    use super::*;

    #[test]
    fn a_view_shows_the_last_messages() {
        let mut task = Task::new(TaskId::fresh(), ContextId::fresh());
        task.history = ["a", "b", "c"].map(|text| Arc::new(Message::agent(vec![Part::text(text)]))).into();
        let task = Arc::new(task);
        for (length, shown) in [(None, 3), (Some(0), 0), (Some(2), 2), (Some(3), 3), (Some(9), 3)] {
            let view = View::new(Arc::clone(&task), length);
            assert_eq!(view.history(), &task.history[3 - shown..], "{length:?}");
        }
    }
}
