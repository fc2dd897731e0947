//! Performs operations on the domain.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use talaria_budget::{Budget, Charge};
use talaria_turns::{
    CancelError, FollowError, Incoming, Principal, PushConfig, PushConfigId, Query, State, StreamAs, TaskId,
    Turns, keys,
};

use super::{
    Addressed, Answer, Configuration, GetTask, ListTasks, Listed, Operation, Reply, ReplyAs, Request,
    SendMessage, Sent, Subscribe, View, message_reply, reply_as,
};
use crate::access::Noted;
use crate::capabilities;
use crate::live_card::CardSnapshot;
use crate::memory;
use crate::page_token;
use crate::rejection::{ErrorKind, Rejection};
use crate::stream_form;
use crate::update_stream::{StreamOptions, UpdateStream};

/// Performs operations on the domain.
#[derive(Clone)]
pub(crate) struct Operations {
    pub(crate) turns: Turns,
    pub(crate) reply: ReplyAs,
    /// See [`UpdateStream::of_turn`].
    pub(crate) hold: Duration,
    pub(crate) streams: Streams,
    /// Whether callers without a name may list their tasks, which all of them share.
    pub(crate) anyone_may_list: bool,
}

/// The form in which each caller gets a streamed answer, unless it asks for another.
#[derive(Debug, Clone, Default)]
pub(crate) struct Streams {
    /// For everybody else.
    pub(crate) otherwise: StreamAs,
    /// For callers by name.
    pub(crate) callers: HashMap<String, StreamAs>,
}

/// The caller of an operation, and what it says beside its request.
pub(crate) struct Caller<'a> {
    pub(crate) principal: Principal,
    /// The extensions that it supports.
    pub(crate) extensions: &'a [String],
    /// The address that it sent its request to, if known.
    pub(crate) url: Option<String>,
    /// The memory that its request takes, of what its requests and responses may take.
    pub(crate) charge: Charge,
    /// What the access log shows of the request.
    pub(crate) noted: &'a Noted,
}

// === impl Operations ===

impl Operations {
    /// Performs a request. `card` is the card that was current when the request came in.
    pub(crate) async fn perform(
        &self,
        card: &CardSnapshot,
        Caller { principal: caller, extensions, url, charge, noted }: Caller<'_>,
        request: Request,
    ) -> Result<Reply, Rejection> {
        let Request { tenant, mut operation } = request;
        let mut form = self.streams.form(&caller, extensions, &[]);
        if let Operation::Send(send) | Operation::Stream(send, _) = &mut operation {
            form = self.streams.form(&caller, extensions, &send.configuration.output_modes);
            if let Some(config) = &mut send.configuration.push {
                config.stream = form;
            }
        }
        if let Some(task) = operation.task() {
            noted.task(task);
        }
        let answer = match operation {
            Operation::Send(send) => Answer::Sent(self.send(caller, tenant, *send, charge, noted).await?),
            Operation::Stream(send, after) => {
                return self.stream((caller, tenant), *send, after, form, charge, noted).await;
            }
            Operation::Get(GetTask { id, history_length }) => {
                let task = self.turns.task(&caller, &id).await;
                let task = task.map_err(|error| Rejection::lookup(&id, &error))?;
                memory::room(charge.budget(), task.size())?;
                Answer::Task(View::new(task, history_length))
            }
            Operation::List(_) if caller.name().is_none() && !self.anyone_may_list => {
                return Err(Rejection::no_list());
            }
            Operation::List(list) => Answer::Tasks(self.list(&caller, *list, charge.budget()).await?),
            Operation::Cancel(id) => Answer::Task(self.cancel(&caller, &id).await?),
            Operation::Subscribe(subscribe) => {
                return self.subscribe(&caller, subscribe, form, charge.budget()).await;
            }
            Operation::ExtendedCard(version) => Answer::Card(card.extended_card(version, url)),
            Operation::CreatePushConfig(id, mut config) => {
                config.stream = form;
                let set = self.turns.set_push_config(&caller, &id, (*config).clone()).await;
                set.map_err(|error| Rejection::push_config(Some(&id), &error))?;
                Answer::PushConfig(id, config)
            }
            Operation::GetPushConfig(id, which) => {
                let config = self.push_config(&caller, &id, which.as_ref()).await?;
                Answer::PushConfig(id, Box::new(config))
            }
            Operation::ListPushConfigs(id) => {
                let configs = self.push_configs(&caller, &id).await?;
                Answer::PushConfigs(id, configs)
            }
            Operation::DeletePushConfig(id, config) => {
                let deleted = self.turns.delete_push_config(&caller, &id, &config).await;
                deleted.map_err(|error| Rejection::lookup(&id, &error))?;
                Answer::Done
            }
        };
        Ok(Reply::Once(answer))
    }

    async fn push_configs(&self, caller: &Principal, id: &TaskId) -> Result<Vec<PushConfig>, Rejection> {
        self.turns.push_configs(caller, id).await.map_err(|error| Rejection::lookup(id, &error))
    }

    /// Returns the push configuration `which`. Without an id it is the one that was set without an id, or the first.
    async fn push_config(
        &self,
        caller: &Principal,
        id: &TaskId,
        which: Option<&PushConfigId>,
    ) -> Result<PushConfig, Rejection> {
        let configs = self.push_configs(caller, id).await?;
        let position = match which {
            Some(which) => configs.iter().position(|config| config.id == *which),
            None => configs.iter().position(|config| config.id.as_str() == id.as_str()).or(Some(0)),
        };
        let config = position.and_then(|position| configs.into_iter().nth(position));
        config.ok_or_else(|| Rejection::no_push_config(id))
    }

    async fn cancel(&self, caller: &Principal, id: &TaskId) -> Result<View, Rejection> {
        match self.turns.cancel(caller, id).await {
            Ok(task) => Ok(View::new(task, None)),
            Err(error @ CancelError::Over { .. }) => {
                Err(Rejection::new(ErrorKind::TaskNotCancelable, error.to_string()))
            }
            Err(CancelError::Store(error)) => Err(Rejection::lookup(id, &error)),
        }
    }

    /// Builds the message for the domain.
    fn incoming(
        &self,
        principal: Principal,
        tenant: Option<String>,
        send: SendMessage,
        streaming: bool,
        noted: &Noted,
    ) -> Incoming {
        let SendMessage { addressed, configuration, mut metadata } = send;
        let Addressed { message, task, context } = addressed;
        // A caller that blocks is gone once it has its answer; the others can still read the task later.
        let async_delivery = streaming || configuration.return_immediately || configuration.push.is_some();
        if let Some(metadata) = &mut metadata {
            metadata.shift_remove(keys::TENANT);
            metadata.shift_remove(keys::OUTPUT_MODES);
        }
        if !configuration.output_modes.is_empty() {
            metadata
                .get_or_insert_default()
                .insert(keys::OUTPUT_MODES.into(), configuration.output_modes.into());
        }
        if let Some(tenant) = tenant {
            metadata.get_or_insert_default().insert(keys::TENANT.into(), tenant.into());
        }
        let push = configuration.push;
        let (message, metadata) = (Arc::new(message), metadata.map(Arc::new));
        let trace = noted.trace.clone();
        Incoming { principal, message, task, context, streaming, async_delivery, metadata, push, trace }
    }

    async fn send(
        &self,
        principal: Principal,
        tenant: Option<String>,
        send: SendMessage,
        charge: Charge,
        noted: &Noted,
    ) -> Result<Sent, Rejection> {
        let Configuration { return_immediately, history_length, .. } = send.configuration;
        let (has_push, names_task) = (send.configuration.push.is_some(), send.addressed.task.is_some());
        let accepted = self.turns.send(self.incoming(principal, tenant, send, false, noted)).await?;
        // From here on the turn is charged for its message.
        drop(charge);
        noted.task(&accepted.task.id);
        if return_immediately {
            return Ok(Sent::Task(View::new(accepted.task, history_length)));
        }
        let task = accepted.settled().await;
        let failed = task.status.state == State::Failed;
        // Push notifications are about a task, so the sender must learn its id.
        let as_message = match reply_as(&task).or(has_push.then_some(ReplyAs::Task)).unwrap_or(self.reply) {
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
        (principal, tenant): (Principal, Option<String>),
        send: SendMessage,
        after: Option<u64>,
        form: StreamAs,
        charge: Charge,
        noted: &Noted,
    ) -> Result<Reply, Rejection> {
        let history_length = send.configuration.history_length;
        // A message that names a task is answered with that task.
        let hold = send.addressed.task.is_none().then_some(self.hold);
        let incoming = self.incoming(principal, tenant, send, true, noted);
        let Some(after) = after else {
            let accepted = self.turns.send(incoming).await?;
            drop(charge);
            noted.task(&accepted.task.id);
            let options = StreamOptions { form, history_length, hold };
            return Ok(Reply::Stream(Box::new(UpdateStream::of_turn(accepted, options))));
        };
        // A client that lost the stream of a send resends it; the usual libraries do so by themselves.
        let known = self.turns.sent_before(&incoming).await.map_err(|error| Rejection::store(&error))?;
        let Some(id) = known else {
            let message = "resumes a stream, but this message was not sent before by a caller with a name";
            return Err(Rejection::field("Last-Event-ID", message));
        };
        let updates = match self.turns.follow(&incoming.principal, &id, Some(after)).await {
            Ok((task, reader)) => UpdateStream::of_turn_from(&task, reader, after, form),
            Err(FollowError::Over { .. }) => UpdateStream::empty(),
            Err(error) => return Err(Rejection::follow(&id, error)),
        };
        Ok(Reply::Stream(Box::new(updates)))
    }

    async fn subscribe(
        &self,
        caller: &Principal,
        subscribe: Subscribe,
        form: StreamAs,
        budget: &Budget,
    ) -> Result<Reply, Rejection> {
        let Subscribe { id, after, shows_ended } = subscribe;
        memory::room(budget, memory::STREAM)?;
        let updates = match self.turns.follow(caller, &id, after).await {
            Ok((task, reader)) => UpdateStream::of_task(task, reader, after, form),
            Err(FollowError::Over { .. }) if shows_ended => {
                let task =
                    self.turns.task(caller, &id).await.map_err(|error| Rejection::lookup(&id, &error))?;
                UpdateStream::of_ended(task)
            }
            Err(error) => return Err(Rejection::follow(&id, error)),
        };
        Ok(Reply::Stream(Box::new(updates)))
    }

    async fn list(&self, caller: &Principal, list: ListTasks, budget: &Budget) -> Result<Listed, Rejection> {
        let ListTasks { context, state, since, after, page_size, history_length, artifacts } = list;
        // What it will be is not known before it is read.
        let _charge = budget.charge((2 * memory::PAGE).min(budget.limit()))?;
        let query = Query { context, state, since, after, limit: page_size, bytes: memory::PAGE };
        let page = self.turns.list(caller, &query).await.map_err(|error| Rejection::store(&error))?;
        Ok(Listed {
            tasks: page.tasks.into_iter().map(|task| View { task, history_length, artifacts }).collect(),
            next: page.next.as_ref().map(page_token::encode).unwrap_or_default(),
            page_size,
            total: page.total,
        })
    }
}

// === impl Streams ===

impl Streams {
    /// Returns the form for a caller with these extensions and accepted media types: the one that the caller asks for, else
    /// the one that the operator chose for it, else no pieces if it does not accept text, else the default.
    fn form(&self, caller: &Principal, extensions: &[String], output_modes: &[String]) -> StreamAs {
        let chosen = || caller.name().and_then(|name| self.callers.get(name)).copied();
        let whole = || (!capabilities::accepts_text(output_modes)).then_some(StreamAs::Whole);
        stream_form::requested(extensions).or_else(chosen).or_else(whole).unwrap_or(self.otherwise)
    }
}
