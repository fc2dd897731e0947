//! Following a turn while it runs.
//!
//! A [`TurnStream`] reads the turn's events until the task reaches a terminal state or wants input. A stream that ends
//! before that was cut. The client then resumes it after the last event that arrived, with a pause that doubles: at most
//! five times without progress, and within the turn's deadline. An agent that does not number its events cannot say what
//! was missed, so there the client polls the task until it is settled. It does the same when the agent rejects the
//! resumption.

use std::time::Duration;

use serde_json::{Value, json};
use talaria_backoff::Backoff;
use talaria_egress::Exchange;
use tokio::time::Instant;

use crate::agent::{Client, Incoming};
use crate::answer::TurnStatus;
use crate::card::Protocol;
use crate::error::ClientError;
use crate::request::{self, TaskMethod};
use crate::update::{Update, is_chunk, tool_progress};

/// How often a cut stream is resumed without progress in between.
const ATTEMPTS: u32 = 5;
/// The first pause before a cut stream is resumed. 250 ms: five attempts take 8 s, which is a restart.
const BACK_OFF: Duration = Duration::from_millis(250);
/// The first pause between two polls; it doubles.
const FIRST_POLL: Duration = Duration::from_millis(500);
/// The longest pause between two polls. A person does not wait longer for a sign of life.
const LONGEST_POLL: Duration = Duration::from_secs(5);

/// The events of one turn, across all connections that it takes to read them.
#[derive(Debug)]
pub struct TurnStream<'a> {
    client: &'a Client,
    source: Source,
    deadline: Instant,
    backoff: Backoff,
    polling: Backoff,
    status: TurnStatus,
    /// The id of the last event.
    last: Option<String>,
    /// Whether the events no longer come from the turn's first stream.
    resumed: bool,
}

/// One step of a turn.
#[derive(Debug, PartialEq)]
pub enum StreamItem {
    /// The agent sent this result.
    Update(Value),
    /// Polling returned this snapshot of a task that is not settled yet.
    Snapshot(Value),
    /// The stream broke off; the client is about to resume it after this event.
    Resuming {
        /// The id of the last event that arrived.
        after: String,
    },
    /// The stream broke off and cannot be resumed; the client polls the task from now on.
    Polling,
}

/// Where the next item comes from.
#[derive(Debug)]
enum Source {
    /// The request has not been sent yet.
    Unsent(Value),
    Events(Box<Exchange>),
    Whole(Value),
    /// The stream ended and the turn did not.
    Broken,
    /// The caller knows that the stream is being resumed.
    Resume {
        task: String,
        after: String,
    },
    /// The task is polled, after a pause if `wait` is set.
    Poll {
        task: String,
        wait: bool,
    },
    Ended,
}

// === impl TurnStream ===

impl<'a> TurnStream<'a> {
    pub(crate) fn new(client: &'a Client, envelope: Value) -> Self {
        let now = Instant::now();
        // A limit beyond what the clock can represent counts as a year.
        let deadline = now.checked_add(client.agent().timeout());
        Self {
            client,
            source: Source::Unsent(envelope),
            deadline: deadline.unwrap_or(now + Duration::from_secs(365 * 24 * 3_600)),
            backoff: Backoff::from_first(BACK_OFF),
            polling: Backoff::from_first(FIRST_POLL).up_to(LONGEST_POLL),
            status: TurnStatus::default(),
            last: None,
            resumed: false,
        }
    }

    /// Sets the first pause before a cut stream is resumed; it doubles with every attempt.
    #[must_use]
    pub fn back_off(self, back_off: Duration) -> Self {
        Self { backoff: Backoff::from_first(back_off), ..self }
    }

    /// The status of the turn after the last item.
    pub fn status(&self) -> &TurnStatus {
        &self.status
    }

    /// Whether the items no longer come from the turn's first stream.
    pub fn has_resumed(&self) -> bool {
        self.resumed
    }

    /// Returns the next item, or `None` when the turn is over or wants input.
    ///
    /// Not cancel safe: dropping the future may lose an event.
    pub async fn next(&mut self) -> Result<Option<StreamItem>, ClientError> {
        loop {
            match std::mem::replace(&mut self.source, Source::Ended) {
                Source::Unsent(envelope) => {
                    self.source = self.client.open(&envelope, None, self.left()).await?.into();
                }
                Source::Events(mut events) => {
                    if let Some(result) = self.next_event(&mut events).await? {
                        if !self.apply(&result) {
                            self.source = Source::Events(events);
                        }
                        return Ok(Some(StreamItem::Update(result)));
                    }
                    self.source = self.after_stream();
                }
                Source::Whole(result) => {
                    if !self.apply(&result) {
                        self.source = self.after_stream();
                    }
                    return Ok(Some(StreamItem::Update(result)));
                }
                Source::Broken => {
                    if let Some(item) = self.plan_resumption()? {
                        return Ok(Some(item));
                    }
                }
                Source::Resume { task, after } => self.source = self.resume(task, &after).await?,
                Source::Poll { task, wait } => {
                    if wait {
                        let pause = self.polling.next_delay();
                        self.sleep(pause).await?;
                    }
                    if let Some(item) = self.poll(task).await? {
                        return Ok(Some(item));
                    }
                }
                Source::Ended => return Ok(None),
            }
        }
    }

    async fn next_event(&mut self, events: &mut Exchange) -> Result<Option<Value>, ClientError> {
        let Some((id, result)) = self.client.event(events).await? else { return Ok(None) };
        if id.is_some() {
            self.last = id;
        }
        // Every new stream begins with a snapshot, so a snapshot is not progress.
        if !matches!(Update::of(&result), Update::Task(_)) {
            self.backoff.reset();
        }
        Ok(Some(result))
    }

    /// Updates the status. Returns whether the turn is over with this result.
    fn apply(&mut self, result: &Value) -> bool {
        match Update::of(result) {
            Update::Task(task) => {
                self.status.merge(TurnStatus::of_task(task));
                // The first stream may begin with the task as it was before the turn; its end decides.
                self.resumed && self.status.is_settled()
            }
            Update::Message(message) => {
                self.status = TurnStatus::of_message(message);
                true
            }
            Update::Status(update) => {
                let mut status = TurnStatus::of_update(update);
                let is_tool = tool_progress(update).is_some();
                if is_tool {
                    status.state = None;
                }
                self.status.merge(status);
                !is_tool && !is_chunk(update) && (self.status.is_terminal() || self.status.wants_input())
            }
            Update::Artifact(update) => {
                self.status.merge(TurnStatus::of_update(update));
                false
            }
            Update::Other => false,
        }
    }

    /// What follows the end of a stream.
    fn after_stream(&self) -> Source {
        if self.status.is_settled() { Source::Ended } else { Source::Broken }
    }

    /// Decides how a stream that broke off goes on, and what the caller learns of it.
    fn plan_resumption(&mut self) -> Result<Option<StreamItem>, ClientError> {
        let Some(task) = self.status.task.clone() else {
            let what = "the stream broke off before the agent named a task; the turn may still go on";
            return Err(ClientError::Agent(what.into()));
        };
        match self.last.clone() {
            None => {
                self.source = Source::Poll { task, wait: false };
                Ok(Some(StreamItem::Polling))
            }
            Some(after) if self.backoff.attempts() < ATTEMPTS => {
                self.source = Source::Resume { task, after: after.clone() };
                Ok(Some(StreamItem::Resuming { after }))
            }
            Some(_) => {
                self.source = Source::Poll { task, wait: false };
                Ok(None)
            }
        }
    }

    async fn resume(&mut self, task: String, after: &str) -> Result<Source, ClientError> {
        self.resumed = true;
        self.back_off_once().await?;
        let envelope = request::task(self.client.interface(), &task, TaskMethod::Subscribe);
        match self.client.open(&envelope, Some(after), self.left()).await {
            Ok(incoming) => Ok(incoming.into()),
            // The task is over, or the agent does not know it; polling finds out.
            Err(ClientError::Rejected { .. }) => Ok(Source::Poll { task, wait: false }),
            Err(error) if error.is_transient() => Ok(Source::Broken),
            Err(error) => Err(error),
        }
    }

    /// Polls the task once. Returns `None` if the agent failed and is worth another attempt.
    async fn poll(&mut self, id: String) -> Result<Option<StreamItem>, ClientError> {
        self.resumed = true;
        let task = match self.client.about_task(&id, TaskMethod::Get, self.left()).await {
            Ok(task) => task,
            Err(error) if error.is_transient() && self.backoff.attempts() < ATTEMPTS => {
                self.back_off_once().await?;
                self.source = Source::Poll { task: id, wait: false };
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        self.backoff.reset();
        let result = match self.client.interface().protocol {
            Protocol::V1_0 => json!({ "task": task }),
            Protocol::V0_3 => task,
        };
        if !matches!(Update::of(&result), Update::Task(_)) {
            return Err(ClientError::Agent("the agent's result is no task".into()));
        }
        if self.apply(&result) {
            return Ok(Some(StreamItem::Update(result)));
        }
        self.source = Source::Poll { task: id, wait: true };
        Ok(Some(StreamItem::Snapshot(result)))
    }

    async fn back_off_once(&mut self) -> Result<(), ClientError> {
        let pause = self.backoff.next_delay();
        self.sleep(pause).await
    }

    async fn sleep(&self, pause: Duration) -> Result<(), ClientError> {
        if self.left() <= pause {
            tokio::time::sleep_until(self.deadline).await;
            return Err(ClientError::TimedOut { limit: self.client.agent().timeout() });
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// The time left for the turn.
    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

// === impl Source ===

impl From<Incoming> for Source {
    fn from(incoming: Incoming) -> Self {
        match incoming {
            Incoming::Events(events) => Self::Events(events),
            Incoming::Whole(result) => Self::Whole(result),
        }
    }
}
