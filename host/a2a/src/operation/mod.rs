//! Operations and their answers, independent of version and binding.
//!
//! [`Operations::perform`] is the only function in the crate that can change anything: everything before it decodes and
//! checks, everything after it encodes. A send returns from the domain as soon as its task is in the store; the turn runs on
//! without the request. If the client disconnects while `perform` waits, or while a stream is open, it loses only the answer.

mod answer;
mod perform;

use talaria_turns::{
    ContextId, Message, Metadata, Place, PushConfig, PushConfigId, State, TaskId, Timestamp,
};

pub use self::answer::ReplyAs;
pub(crate) use self::answer::{Answer, Listed, Reply, Sent, View, message_reply, reply_as};
pub(crate) use self::perform::{Caller, Operations, Streams};
use crate::version::Version;

/// What a request asks for, before its parameters are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Send,
    Stream,
    Get,
    List,
    Cancel,
    Subscribe,
    ExtendedCard,
    CreatePushConfig,
    GetPushConfig,
    ListPushConfigs,
    DeletePushConfig,
}

/// A decoded request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Request {
    /// The agent behind the server that the request is for. Opaque: nothing in this crate depends on it.
    pub(crate) tenant: Option<String>,
    pub(crate) operation: Operation,
}

/// What a request asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    Send(Box<SendMessage>),
    /// A send that is answered with a stream. The number is that of the last event that a caller has who resends the message.
    Stream(Box<SendMessage>, Option<u64>),
    Get(GetTask),
    List(Box<ListTasks>),
    Cancel(TaskId),
    Subscribe(Subscribe),
    /// The extended card, in the fields of this version.
    ExtendedCard(Version),
    CreatePushConfig(TaskId, Box<PushConfig>),
    /// Without an id it is the task's only configuration, as in 0.3.
    GetPushConfig(TaskId, Option<PushConfigId>),
    ListPushConfigs(TaskId),
    DeletePushConfig(TaskId, PushConfigId),
}

/// A message, with the task and the context that it is for.
#[derive(Debug, Clone, PartialEq)]
pub struct Addressed {
    pub message: Message,
    pub task: Option<TaskId>,
    pub context: Option<ContextId>,
}

/// The caller's wishes for the answer to a send.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Configuration {
    /// Answer once the task exists, instead of when its turn has ended.
    pub return_immediately: bool,
    /// How many of the last messages of the history the answer shows; `None` shows all.
    pub history_length: Option<usize>,
    /// The media types that the caller accepts; empty means any.
    pub output_modes: Vec<String>,
    /// Where to send push notifications about the task.
    pub push: Option<PushConfig>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SendMessage {
    pub addressed: Addressed,
    pub configuration: Configuration,
    pub metadata: Option<Metadata>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct GetTask {
    pub id: TaskId,
    pub history_length: Option<usize>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ListTasks {
    pub context: Option<ContextId>,
    pub state: Option<State>,
    pub since: Option<Timestamp>,
    pub after: Option<Place>,
    pub page_size: usize,
    pub history_length: Option<usize>,
    pub artifacts: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Subscribe {
    pub id: TaskId,
    /// The number of the last event that the caller has.
    pub after: Option<u64>,
    /// Whether a task that is over is shown once, as in 0.3, instead of rejected.
    pub shows_ended: bool,
}

// === impl Operation ===

impl Operation {
    /// The task that it names.
    pub(crate) fn task(&self) -> Option<&TaskId> {
        match self {
            Self::Send(send) | Self::Stream(send, _) => send.addressed.task.as_ref(),
            Self::Get(get) => Some(&get.id),
            Self::Subscribe(subscribe) => Some(&subscribe.id),
            Self::Cancel(task)
            | Self::CreatePushConfig(task, _)
            | Self::GetPushConfig(task, _)
            | Self::ListPushConfigs(task)
            | Self::DeletePushConfig(task, _) => Some(task),
            Self::List(_) | Self::ExtendedCard(_) => None,
        }
    }
}

// === impl Verb ===

impl Verb {
    /// Whether it concerns push notification configurations.
    pub(crate) fn is_about_push(self) -> bool {
        matches!(
            self,
            Self::CreatePushConfig | Self::GetPushConfig | Self::ListPushConfigs | Self::DeletePushConfig
        )
    }
}
