//! What callers ask for and what they get, whatever version and binding they speak.
//!
//! This is the only place in the crate that can change anything: everything before it reads, everything after it
//! writes. A send returns from the domain when its task is in the store; the turn runs on without the request, so a
//! caller who hangs up while [`Operations::perform`] waits loses nothing but the answer.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use talaria_turns::{ContextId, Incoming, Message, Metadata, Principal, StoreError, Task, TaskId, Turns};

use crate::refusal::{Kind, Refusal};

/// How a blocking send is answered whose turn only returned text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReplyAs {
    /// With the text, as a message.
    #[default]
    Message,
    /// With the task, always.
    Task,
}

/// One request, understood.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operation {
    SendMessage(Box<SendMessage>),
    GetTask(GetTask),
}

/// A message and where it goes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Addressed {
    pub(crate) message: Message,
    pub(crate) task: Option<TaskId>,
    pub(crate) context: Option<ContextId>,
}

/// How the caller wants a send to be answered.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Configuration {
    /// Answer once the task exists, instead of when its turn has ended.
    pub(crate) return_immediately: bool,
    /// Messages of the history that the answer shows, the last ones; none shows all.
    pub(crate) history_length: Option<usize>,
    /// The caller wants to be called back.
    pub(crate) push: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SendMessage {
    pub(crate) addressed: Addressed,
    pub(crate) configuration: Configuration,
    pub(crate) metadata: Option<Metadata>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GetTask {
    pub(crate) id: TaskId,
    pub(crate) history_length: Option<usize>,
}

/// What a caller gets.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    /// To a send: a message or a task. Version 1.0 says which.
    Sent(Sent),
    /// To a question about a task.
    Task(View),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Sent {
    Message(Addressed),
    Task(View),
}

/// A task as a caller sees it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct View {
    pub(crate) task: Arc<Task>,
    pub(crate) history_length: Option<usize>,
}

/// Performs operations on the domain.
#[derive(Clone)]
pub(crate) struct Operations {
    turns: Turns,
    reply: ReplyAs,
}

/// In a task's metadata: how its executor wants a blocking send to be answered. For us, not for the caller.
pub(crate) const REPLY_AS: &str = "talaria/reply";

// === impl View ===

impl View {
    /// The messages to show.
    pub(crate) fn history(&self) -> &[Message] {
        let all = self.task.history.as_slice();
        let hidden = all.len().saturating_sub(self.history_length.unwrap_or(usize::MAX));
        all.get(hidden..).unwrap_or_default()
    }
}

// === impl Operations ===

impl Operations {
    pub(crate) fn new(turns: Turns, reply: ReplyAs) -> Self {
        Self { turns, reply }
    }

    pub(crate) async fn perform(&self, caller: Principal, operation: Operation) -> Result<Answer, Refusal> {
        match operation {
            Operation::SendMessage(send) => self.send(caller, *send).await.map(Answer::Sent),
            Operation::GetTask(get) => self.get(&caller, get).await.map(Answer::Task),
        }
    }

    async fn send(&self, principal: Principal, send: SendMessage) -> Result<Sent, Refusal> {
        let SendMessage { addressed: Addressed { message, task, context }, configuration, metadata } = send;
        if configuration.push {
            // Taking it and never calling back would leave the caller waiting for ever.
            return Err(Refusal::new(Kind::PushNotSupported, "this server sends no push notifications"));
        }
        let history_length = configuration.history_length;
        let incoming = Incoming { principal, message, task, context, streaming: false, metadata };
        let accepted = self.turns.send(incoming).await?;
        if configuration.return_immediately {
            return Ok(Sent::Task(View { task: accepted.task, history_length }));
        }
        let id = accepted.task.id.clone();
        let task = accepted.settled(&self.turns).await.map_err(|error| missing_or_broken(&id, &error))?;
        Ok(match self.reply_in(&task) {
            Some(message) => Sent::Message(Addressed {
                message,
                task: Some(task.id.clone()),
                context: Some(task.context.clone()),
            }),
            None => Sent::Task(View { task, history_length }),
        })
    }

    async fn get(
        &self,
        caller: &Principal,
        GetTask { id, history_length }: GetTask,
    ) -> Result<View, Refusal> {
        let task = self.turns.task(caller, &id).await.map_err(|error| missing_or_broken(&id, &error))?;
        Ok(View { task, history_length })
    }

    /// The answer as a message, where it is one: the executor's word first, then the configuration's.
    fn reply_in(&self, task: &Task) -> Option<Message> {
        let as_message = match task.metadata.get(REPLY_AS).and_then(Value::as_str) {
            Some("task") => false,
            Some("message") => true,
            _ => self.reply == ReplyAs::Message,
        };
        let mut message = as_message.then(|| task.text_reply()).flatten()?;
        if let Some(metadata) = &mut message.metadata {
            metadata.shift_remove(REPLY_AS);
        }
        message.metadata = message.metadata.filter(|metadata| !metadata.is_empty());
        Some(message)
    }
}

fn missing_or_broken(task: &TaskId, error: &StoreError) -> Refusal {
    match error {
        StoreError::NotFound => Refusal::no_task(task),
        error => Refusal::store(error),
    }
}

#[cfg(test)]
mod tests {
    use talaria_turns::{ContextId, Part};

    use super::*;

    #[test]
    fn a_view_shows_the_last_messages() {
        let mut task = Task::new(TaskId::fresh(), ContextId::fresh());
        task.history = ["a", "b", "c"].map(|text| Message::agent(vec![Part::text(text)])).into();
        let task = Arc::new(task);
        for (length, shown) in [(None, 3), (Some(0), 0), (Some(2), 2), (Some(3), 3), (Some(9), 3)] {
            let view = View { task: Arc::clone(&task), history_length: length };
            assert_eq!(view.history(), &task.history[3 - shown..], "{length:?}");
        }
    }
}
