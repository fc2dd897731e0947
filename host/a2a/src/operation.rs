//! What callers ask for and what they get, whatever version and binding they speak.
//!
//! This is the only place in the crate that can change anything: everything before it reads, everything after it
//! writes. A send returns from the domain when its task is in the store; the turn runs on without the request, so a
//! caller who hangs up while [`Operations::perform`] waits, or while a stream is open, loses nothing but the answer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use talaria_turns::{
    CancelError, ContextId, FollowError, Hook, HookId, Incoming, Message, Metadata, Place, Principal, Query,
    State, StreamAs, Task, TaskId, Timestamp, Turns,
};

use crate::capabilities;
use crate::offer::Offer;
use crate::page;
use crate::refusal::{Kind, Refusal};
use crate::tell;
use crate::updates::{Telling, Updates};
use crate::version::Version;

/// How a blocking send is answered whose turn only returned text. Whoever names a task is answered with that task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
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

/// What is asked for, before its parameters are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Send,
    Stream,
    Get,
    List,
    Cancel,
    Subscribe,
    ExtendedCard,
    SetHook,
    GetHook,
    ListHooks,
    RemoveHook,
}

/// One request, understood.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Request {
    /// Which of several agents behind one server; opaque, and nothing here depends on it.
    pub(crate) tenant: Option<String>,
    pub(crate) operation: Operation,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operation {
    Send(Box<SendMessage>),
    /// The same, answered with a stream; `after` is the last event that a caller has who sends it again.
    Stream(Box<SendMessage>, Option<u64>),
    Get(GetTask),
    List(Box<ListTasks>),
    Cancel(TaskId),
    Subscribe(Subscribe),
    /// As the version has it.
    ExtendedCard(Version),
    SetHook(TaskId, Box<Hook>),
    /// Which one; none means the only one, as 0.3 has it.
    GetHook(TaskId, Option<HookId>),
    ListHooks(TaskId),
    RemoveHook(TaskId, HookId),
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
    /// Media types that the caller can use; none given, any.
    pub(crate) output_modes: Vec<String>,
    /// Where the caller wants to be told what happens.
    pub(crate) hook: Option<Hook>,
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

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ListTasks {
    pub(crate) context: Option<ContextId>,
    pub(crate) state: Option<State>,
    pub(crate) since: Option<Timestamp>,
    pub(crate) after: Option<Place>,
    pub(crate) page_size: usize,
    pub(crate) history_length: Option<usize>,
    pub(crate) artifacts: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Subscribe {
    pub(crate) id: TaskId,
    /// The last event that the caller has.
    pub(crate) after: Option<u64>,
    /// A task that is over is shown once, as 0.3 has it, instead of refused.
    pub(crate) shows_ended: bool,
}

/// What a caller gets.
pub(crate) enum Reply {
    Once(Answer),
    Stream(Box<Updates>),
}

/// What a caller gets at once.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    /// To a send: a message or a task. The proto dialects say which.
    Sent(Sent),
    /// To a question about a task.
    Task(View),
    /// A page of tasks.
    Tasks(Listed),
    /// The extended card.
    Card(Arc<Value>),
    /// A push configuration, as a caller sees it: without its secrets.
    Hook(TaskId, Box<Hook>),
    /// All push configurations of a task.
    Hooks(TaskId, Vec<Hook>),
    /// Nothing to say but that it is done.
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
    /// Empty at the end.
    pub(crate) next: String,
    pub(crate) page_size: usize,
    pub(crate) total: usize,
}

/// A task as a caller sees it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct View {
    pub(crate) task: Arc<Task>,
    pub(crate) history_length: Option<usize>,
    pub(crate) artifacts: bool,
}

/// Performs operations on the domain.
#[derive(Clone)]
pub(crate) struct Operations {
    pub(crate) turns: Turns,
    pub(crate) reply: ReplyAs,
    /// See [`Updates::of_turn`].
    pub(crate) hold: Duration,
    pub(crate) streams: Streams,
}

/// How the pieces of an answer are told, to whom.
#[derive(Debug, Clone, Default)]
pub(crate) struct Streams {
    /// To everybody else.
    pub(crate) otherwise: StreamAs,
    /// To callers by name.
    pub(crate) callers: HashMap<String, StreamAs>,
}

/// Who asks, and what it says beside its request.
pub(crate) struct Caller<'a> {
    pub(crate) principal: Principal,
    /// The extensions that it names.
    pub(crate) extensions: &'a [String],
    /// Where it sent its request, if it said so.
    pub(crate) url: Option<String>,
}

/// In a task's metadata: how its executor wants a send to be answered. For us, not for the caller.
pub(crate) const REPLY_AS: &str = "talaria/reply";
/// In a turn's metadata: the tenant that the request named.
pub const TENANT: &str = "talaria/tenant";
/// In a turn's metadata: the media types that the caller can use, where it said so.
const OUTPUT_MODES: &str = "talaria/output-modes";

// === impl View ===

impl View {
    /// Everything, but for the history that is not asked for.
    pub(crate) fn new(task: Arc<Task>, history_length: Option<usize>) -> Self {
        Self { task, history_length, artifacts: true }
    }

    /// The messages to show.
    pub(crate) fn history(&self) -> &[Message] {
        let all = self.task.history.as_slice();
        let hidden = all.len().saturating_sub(self.history_length.unwrap_or(usize::MAX));
        all.get(hidden..).unwrap_or_default()
    }
}

// === impl Operations ===

impl Operations {
    /// `offer` is the card that counted when it was asked.
    pub(crate) async fn perform(
        &self,
        offer: &Offer,
        Caller { principal: caller, extensions, url }: Caller<'_>,
        request: Request,
    ) -> Result<Reply, Refusal> {
        let Request { tenant, mut operation } = request;
        let mut form = self.streams.form(&caller, extensions, &[]);
        if let Operation::Send(send) | Operation::Stream(send, _) = &mut operation {
            offer.capabilities.serve(&send.configuration)?;
            form = self.streams.form(&caller, extensions, &send.configuration.output_modes);
            if let Some(hook) = &mut send.configuration.hook {
                hook.stream = form;
            }
        }
        match operation {
            Operation::Send(send) => {
                self.send(caller, tenant, *send).await.map(Answer::Sent).map(Reply::Once)
            }
            Operation::Stream(send, after) => self.stream(caller, tenant, *send, after, form).await,
            Operation::Get(GetTask { id, history_length }) => {
                let task =
                    self.turns.task(&caller, &id).await.map_err(|error| Refusal::lookup(&id, &error))?;
                Ok(Reply::Once(Answer::Task(View::new(task, history_length))))
            }
            Operation::List(list) => self.list(&caller, *list).await.map(Answer::Tasks).map(Reply::Once),
            Operation::Cancel(id) => match self.turns.cancel(&caller, &id).await {
                Ok(task) => Ok(Reply::Once(Answer::Task(View::new(task, None)))),
                Err(error @ CancelError::Over { .. }) => {
                    Err(Refusal::new(Kind::TaskNotCancelable, error.to_string()))
                }
                Err(CancelError::Store(error)) => Err(Refusal::lookup(&id, &error)),
            },
            Operation::Subscribe(subscribe) => self.subscribe(&caller, subscribe, form).await,
            Operation::ExtendedCard(version) => {
                Ok(Reply::Once(Answer::Card(offer.extended_card(version, url))))
            }
            Operation::SetHook(id, mut hook) => {
                hook.stream = form;
                let set = self.turns.set_hook(&caller, &id, (*hook).clone()).await;
                set.map_err(|error| Refusal::hook(Some(&id), &error))?;
                Ok(Reply::Once(Answer::Hook(id, hook)))
            }
            Operation::GetHook(id, which) => {
                let hooks = self.hooks(&caller, &id).await?;
                // Without an id it is the one that was set without one, or the first.
                let fits = |hook: &Hook| which.as_ref().is_none_or(|which| hook.id == *which);
                let default = hooks.iter().find(|hook| which.is_none() && hook.id.as_str() == id.as_str());
                let found = default.or_else(|| hooks.iter().find(|hook| fits(hook))).cloned();
                let found = found.ok_or_else(|| Refusal::no_hook(&id))?;
                Ok(Reply::Once(Answer::Hook(id, Box::new(found))))
            }
            Operation::ListHooks(id) => {
                let hooks = self.hooks(&caller, &id).await?;
                Ok(Reply::Once(Answer::Hooks(id, hooks)))
            }
            Operation::RemoveHook(id, hook) => {
                let removed = self.turns.remove_hook(&caller, &id, &hook).await;
                removed.map_err(|error| Refusal::lookup(&id, &error))?;
                Ok(Reply::Once(Answer::Done))
            }
        }
    }

    async fn hooks(&self, caller: &Principal, id: &TaskId) -> Result<Vec<Hook>, Refusal> {
        self.turns.hooks(caller, id).await.map_err(|error| Refusal::lookup(id, &error))
    }

    /// The message on its way in.
    fn incoming(
        &self,
        principal: Principal,
        tenant: Option<String>,
        send: SendMessage,
        streaming: bool,
    ) -> Incoming {
        let SendMessage { addressed: Addressed { message, task, context }, configuration, mut metadata } =
            send;
        // Whoever waits in the request is gone with its answer; the others read the task.
        let async_delivery = streaming || configuration.return_immediately || configuration.hook.is_some();
        if let Some(metadata) = &mut metadata {
            metadata.shift_remove(TENANT);
            metadata.shift_remove(OUTPUT_MODES);
        }
        if !configuration.output_modes.is_empty() {
            metadata.get_or_insert_default().insert(OUTPUT_MODES.into(), configuration.output_modes.into());
        }
        if let Some(tenant) = tenant {
            metadata.get_or_insert_default().insert(TENANT.into(), tenant.into());
        }
        let hook = configuration.hook;
        Incoming { principal, message, task, context, streaming, async_delivery, metadata, hook }
    }

    async fn send(
        &self,
        principal: Principal,
        tenant: Option<String>,
        send: SendMessage,
    ) -> Result<Sent, Refusal> {
        let Configuration { return_immediately, history_length, .. } = send.configuration;
        let (is_hooked, names_task) = (send.configuration.hook.is_some(), send.addressed.task.is_some());
        let accepted = self.turns.send(self.incoming(principal, tenant, send, false)).await?;
        if return_immediately {
            return Ok(Sent::Task(View::new(accepted.task, history_length)));
        }
        let task = accepted.settled().await;
        let failed = task.status.state == State::Failed;
        // What is told later is about a task, so its sender must know which.
        let as_message = match reply_as(&task).or(is_hooked.then_some(ReplyAs::Task)).unwrap_or(self.reply) {
            ReplyAs::Auto => !failed && !names_task,
            ReplyAs::Message => failed || !names_task,
            ReplyAs::Task => false,
        };
        Ok(match as_message.then(|| message_reply(&task)).flatten() {
            Some(message) => Sent::Message(message),
            None => Sent::Task(View::new(task, history_length)),
        })
    }

    async fn stream(
        &self,
        principal: Principal,
        tenant: Option<String>,
        send: SendMessage,
        after: Option<u64>,
        form: StreamAs,
    ) -> Result<Reply, Refusal> {
        let history_length = send.configuration.history_length;
        // A message that names a task is answered with that task.
        let hold = send.addressed.task.is_none().then_some(self.hold);
        let incoming = self.incoming(principal, tenant, send, true);
        let Some(after) = after else {
            let accepted = self.turns.send(incoming).await?;
            let telling = Telling { form, history_length, hold };
            return Ok(Reply::Stream(Box::new(Updates::of_turn(accepted, telling))));
        };
        // A client that lost the stream of a send and sends it again, as the usual libraries do by themselves.
        let known = self.turns.sent_before(&incoming).await.map_err(|error| Refusal::store(&error))?;
        let Some(id) = known else {
            let message = "resumes a stream, but this message was not sent before by a caller with a name";
            return Err(Refusal::field("Last-Event-ID", message));
        };
        let updates = match self.turns.follow(&incoming.principal, &id, Some(after)).await {
            Ok((task, reader)) => Updates::of_turn_from(&task, reader, after, form),
            Err(FollowError::Over { .. }) => Updates::nothing(),
            Err(error) => return Err(Refusal::follow(&id, error)),
        };
        Ok(Reply::Stream(Box::new(updates)))
    }

    async fn subscribe(
        &self,
        caller: &Principal,
        subscribe: Subscribe,
        form: StreamAs,
    ) -> Result<Reply, Refusal> {
        let Subscribe { id, after, shows_ended } = subscribe;
        let updates = match self.turns.follow(caller, &id, after).await {
            Ok((task, reader)) => Updates::of_task(task, reader, after, form),
            Err(FollowError::Over { .. }) if shows_ended => {
                let task =
                    self.turns.task(caller, &id).await.map_err(|error| Refusal::lookup(&id, &error))?;
                Updates::of_ended(task)
            }
            Err(error) => return Err(Refusal::follow(&id, error)),
        };
        Ok(Reply::Stream(Box::new(updates)))
    }

    async fn list(&self, caller: &Principal, list: ListTasks) -> Result<Listed, Refusal> {
        let ListTasks { context, state, since, after, page_size, history_length, artifacts } = list;
        let query = Query { context, state, since, after, limit: page_size };
        let page = self.turns.list(caller, &query).await.map_err(|error| Refusal::store(&error))?;
        Ok(Listed {
            tasks: page.tasks.into_iter().map(|task| View { task, history_length, artifacts }).collect(),
            next: page.next.as_ref().map(page::token).unwrap_or_default(),
            page_size,
            total: page.total,
        })
    }
}

// === impl Streams ===

impl Streams {
    /// The form for a caller who names these extensions and can use these media types: what it asks for, else what the
    /// operator chose for it, else no pieces of text where it can use no text, else what everybody gets.
    fn form(&self, caller: &Principal, extensions: &[String], output_modes: &[String]) -> StreamAs {
        let chosen = || caller.name().and_then(|name| self.callers.get(name)).copied();
        let whole = || (!capabilities::take_text(output_modes)).then_some(StreamAs::Whole);
        tell::asked_for(extensions).or_else(chosen).or_else(whole).unwrap_or(self.otherwise)
    }
}

/// What the executor said about the form of the answer.
pub(crate) fn reply_as(task: &Task) -> Option<ReplyAs> {
    match task.metadata.get(REPLY_AS).and_then(Value::as_str) {
        Some("task") => Some(ReplyAs::Task),
        Some("message") => Some(ReplyAs::Message),
        _ => None,
    }
}

/// The answer as a message, where it can be one.
pub(crate) fn message_reply(task: &Task) -> Option<Addressed> {
    let mut message = task.text_reply()?;
    if let Some(metadata) = &mut message.metadata {
        metadata.shift_remove(REPLY_AS);
    }
    message.metadata = message.metadata.filter(|metadata| !metadata.is_empty());
    // The next message goes into the conversation, not to a task that is over.
    Some(Addressed { message, task: None, context: Some(task.context.clone()) })
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
            let view = View::new(Arc::clone(&task), length);
            assert_eq!(view.history(), &task.history[3 - shown..], "{length:?}");
        }
    }
}
