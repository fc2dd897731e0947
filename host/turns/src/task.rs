//! Tasks and the events that they are made of.
//!
//! [`Task::apply`] is the only way to change a task, and it rejects events that are not legal: a terminal state is final,
//! and no task goes back to submitted. The one event that a failed task still takes is a reply that arrived too late
//! ([`Event::Late`]); it leaves the status as it is. Every store folds events with this function, so no store can hold a
//! task in a state that its log does not explain.
//!
//! Messages and artifacts are shared: an event and the tasks that it was folded into hold the same `Arc`.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::keys;
use crate::model::{Artifact, Content, ContextId, Message, Metadata, Part, TaskId, Timestamp, base64_text};
use crate::shared;
use crate::trace::TraceContext;

/// The state of a task, as A2A defines it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Accepted; its turn has not begun.
    Submitted,
    /// A turn is running.
    Working,
    /// The caller must provide more input.
    InputRequired,
    /// The caller must authenticate somewhere.
    AuthRequired,
    /// Ended well.
    Completed,
    /// Ended with an error.
    Failed,
    /// Cancelled by the caller.
    Canceled,
    /// Rejected by the executor.
    Rejected,
}

/// A state, with its time and the message that the agent attached to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The state.
    pub state: State,
    /// The message that the agent attached.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "shared::option")]
    pub message: Option<Arc<Message>>,
    /// When the status was set.
    pub at: Timestamp,
}

/// Something that happened to a task. Events are appended and never changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// A message of the caller was added to the task; a turn of this executor answers it.
    Accepted {
        /// The message.
        #[serde(with = "shared")]
        message: Arc<Message>,
        /// The executor of the turn.
        executor: Box<str>,
        /// The request's metadata.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "shared::option")]
        metadata: Option<Arc<Metadata>>,
        /// The turn's place in a trace, if traces are on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trace: Option<TraceContext>,
    },
    /// The caller answered a question of the running turn.
    Answered(#[serde(with = "shared")] Arc<Message>),
    /// The status of the task changed. The state may be the same as before, with a new message.
    Status {
        /// The new status.
        status: Status,
        /// Merged into the task's metadata.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<Metadata>,
        /// Whether the running turn ends with this event.
        #[serde(default)]
        ends_turn: bool,
    },
    /// A point from which the running turn can be resumed.
    Checkpoint(#[serde(with = "base64_text")] Vec<u8>),
    /// A result, or a piece of one.
    Artifact {
        /// The artifact, or the piece.
        #[serde(with = "shared")]
        artifact: Arc<Artifact>,
        /// Whether the parts are appended to the artifact of that id; otherwise they replace it.
        append: bool,
        /// Whether this is the last piece.
        last: bool,
    },
    /// The whole of an answer that was streamed before. The first part is the text that the pieces add up to; other parts
    /// are new. It follows the pieces whenever a turn ends, for readers that were not sent the pieces.
    Whole(#[serde(with = "shared")] Arc<Artifact>),
    /// The reply to a turn that had failed before the reply arrived. Leaves the status as it is.
    Late(#[serde(with = "shared")] Arc<Artifact>),
    /// Progress to report but not to keep: tool calls, an executor's own events. Leaves the task as it is.
    Note {
        /// The name.
        name: String,
        /// The content.
        value: serde_json::Value,
    },
}

/// A task at a version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// The id.
    pub id: TaskId,
    /// The context that the task belongs to.
    pub context: ContextId,
    /// The sequence number of the last event that was applied; 0 before the first.
    pub version: u64,
    /// The status.
    pub status: Status,
    /// The messages, oldest first. The message of a status is added when the next status replaces it.
    #[serde(with = "shared::list")]
    pub history: Vec<Arc<Message>>,
    /// The results, in the order of their first pieces.
    #[serde(with = "shared::list")]
    pub artifacts: Vec<Arc<Artifact>>,
    /// Additional values.
    pub metadata: Metadata,
    /// The executor of the last turn, which also gets the next message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executor: Option<Box<str>>,
    /// The place of the last turn in a trace, if traces were on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
    /// The turns that have not ended, oldest first.
    pub pending: VecDeque<Pending>,
    /// The answers that the running turn got since its checkpoint, as indexes into the history.
    pub answers: Vec<usize>,
    /// The point from which the running turn can be resumed. While the task waits for its caller, that of its last turn.
    pub checkpoint: Option<Checkpoint>,
}

/// A turn that has not ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pending {
    /// The index of its message in the history.
    pub message: usize,
    /// Its executor.
    pub executor: Box<str>,
    /// The request's metadata.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "shared::option")]
    pub metadata: Option<Arc<Metadata>>,
    /// When it began; a restart does not change that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<Timestamp>,
    /// Its place in a trace, if traces were on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
}

/// What an executor needs in order to resume a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Checkpoint(#[serde(with = "base64_text")] pub Vec<u8>);

/// An event that the state of the task does not allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a task that is {from} takes no further events")]
pub struct IllegalMove {
    /// The state of the task.
    pub from: State,
    /// The state in the event; `None` if the event has none.
    pub to: Option<State>,
}

/// The id of the artifact that holds the answer of a turn.
pub const REPLY: &str = "reply";

// === impl State ===

impl State {
    /// Whether the task has ended.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled | Self::Rejected)
    }

    /// Whether the task waits for its caller.
    #[must_use]
    pub fn is_interrupted(self) -> bool {
        matches!(self, Self::InputRequired | Self::AuthRequired)
    }

    /// Whether a blocking send is answered in this state: the task is terminal or interrupted.
    #[must_use]
    pub fn is_settled(self) -> bool {
        self.is_terminal() || self.is_interrupted()
    }

    /// Whether a task in this state may change to `to`. It may also stay as it is, with a new message.
    #[must_use]
    pub fn may_become(self, to: Self) -> bool {
        !self.is_terminal() && (to != Self::Submitted || self == Self::Submitted)
    }

    /// Returns the state that a task in this state has after `events`.
    ///
    /// # Errors
    /// [`IllegalMove`] for the first event that is not legal.
    pub fn check(self, events: &[impl Borrow<Event>]) -> Result<Self, IllegalMove> {
        events.iter().map(Borrow::borrow).try_fold(self, |from, event: &Event| {
            let to = event.state();
            let after = to.unwrap_or(from);
            let is_legal = match event {
                Event::Late(_) => from == Self::Failed,
                _ => from.may_become(after),
            };
            if is_legal { Ok(after) } else { Err(IllegalMove { from, to }) }
        })
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Submitted => "submitted",
            Self::Working => "working",
            Self::InputRequired => "input-required",
            Self::AuthRequired => "auth-required",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
            Self::Rejected => "rejected",
        })
    }
}

// === impl Status ===

impl Status {
    fn now(state: State, parts: Vec<Part>) -> Self {
        let message = (!parts.is_empty()).then(|| Arc::new(Message::agent(parts)));
        Self { state, message, at: Timestamp::now() }
    }
}

// === impl Event ===

impl Event {
    /// A status without a message.
    #[must_use]
    pub fn moved(state: State) -> Self {
        Self::said(state, Vec::new())
    }

    /// A status with a message of the agent; without a message if there are no parts.
    #[must_use]
    pub fn said(state: State, parts: Vec<Part>) -> Self {
        Self::Status { status: Status::now(state, parts), metadata: None, ends_turn: state.is_terminal() }
    }

    /// A status that ends the running turn.
    #[must_use]
    pub fn ended(state: State, parts: Vec<Part>, metadata: Option<Metadata>) -> Self {
        Self::Status { status: Status::now(state, parts), metadata, ends_turn: true }
    }

    /// Whether readers of the task are sent this event. They are not sent messages of the caller, nor checkpoints.
    #[must_use]
    pub fn is_shown(&self) -> bool {
        match self {
            Self::Status { .. }
            | Self::Artifact { .. }
            | Self::Whole(_)
            | Self::Late(_)
            | Self::Note { .. } => true,
            Self::Accepted { .. } | Self::Answered(_) | Self::Checkpoint(_) => false,
        }
    }

    /// Whether this is a piece of a streamed answer, not of an artifact that the executor made.
    #[must_use]
    pub fn is_chunk(&self) -> bool {
        matches!(self, Self::Artifact { artifact, last: false, .. } if artifact.id == REPLY)
    }

    /// Returns the state in this event, if it has one.
    #[must_use]
    pub fn state(&self) -> Option<State> {
        match self {
            Self::Status { status, .. } => Some(status.state),
            _ => None,
        }
    }
}

// === impl Task ===

impl Task {
    /// A task that was just submitted, at version 0.
    #[must_use]
    pub fn new(id: TaskId, context: ContextId) -> Self {
        Self {
            id,
            context,
            version: 0,
            status: Status::now(State::Submitted, Vec::new()),
            history: Vec::new(),
            artifacts: Vec::new(),
            metadata: Metadata::new(),
            executor: None,
            trace: None,
            pending: VecDeque::new(),
            answers: Vec::new(),
            checkpoint: None,
        }
    }

    /// Applies an event, which gets the next version.
    ///
    /// # Errors
    /// [`IllegalMove`], with the task unchanged.
    pub fn apply(&mut self, event: &Event) -> Result<(), IllegalMove> {
        self.status.state.check(std::slice::from_ref(event))?;
        match event {
            Event::Accepted { message, executor, metadata, trace } => {
                if self.pending.is_empty() {
                    // It belongs to a turn that has ended.
                    self.checkpoint = None;
                }
                self.pending.push_back(Pending {
                    message: self.history.len(),
                    executor: executor.clone(),
                    metadata: metadata.clone(),
                    begun: None,
                    trace: trace.clone(),
                });
                self.trace.clone_from(trace);
                self.executor = Some(executor.clone());
                self.history.push(Arc::clone(message));
            }
            Event::Answered(message) => {
                self.answers.push(self.history.len());
                self.history.push(Arc::clone(message));
            }
            Event::Status { status, metadata, ends_turn } => {
                let before = std::mem::replace(&mut self.status, status.clone());
                self.history.extend(before.message);
                self.metadata
                    .extend(metadata.iter().flatten().map(|(key, value)| (key.clone(), value.clone())));
                if *ends_turn {
                    self.pending.pop_front();
                    self.answers.clear();
                    // A task that waits for its caller may still have work upstream, which a cancel stops.
                    if !status.state.is_interrupted() {
                        self.checkpoint = None;
                    }
                }
                if let Some(turn) = self.pending.front_mut().filter(|_| status.state == State::Working) {
                    turn.begun.get_or_insert(status.at);
                }
            }
            Event::Checkpoint(data) => {
                self.checkpoint = Some(Checkpoint(data.clone()));
                // A turn that is resumed from the checkpoint knows these answers.
                self.answers.clear();
            }
            Event::Artifact { artifact, append, .. } => self.apply_artifact(artifact, *append),
            Event::Whole(artifact) | Event::Late(artifact) => self.apply_artifact(artifact, false),
            Event::Note { .. } => {}
        }
        self.version += 1;
        Ok(())
    }

    fn apply_artifact(&mut self, piece: &Arc<Artifact>, append: bool) {
        match self.artifacts.iter_mut().find(|known| known.id == piece.id) {
            Some(known) if append => {
                // Copies only what is shared: the first piece, which is its event's too.
                let known = Arc::make_mut(known);
                for part in &piece.parts {
                    known.push(part);
                }
            }
            Some(known) => *known = Arc::clone(piece),
            None => self.artifacts.push(Arc::clone(piece)),
        }
    }

    /// Whether the task is open although it has no turn: work for it goes on elsewhere.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.status.state == State::Working && self.pending.is_empty()
    }

    /// The events that complete a held task with the answer of its last turn.
    pub(crate) fn released(&self) -> Vec<Event> {
        let answer = match &self.status.message {
            Some(promise) => {
                let artifact = Arc::new(Artifact::new(REPLY, promise.parts.clone()));
                Some(Event::Artifact { artifact, append: false, last: true })
            }
            // It was streamed.
            None => self.artifacts.iter().find(|known| known.id == REPLY).cloned().map(Event::Whole),
        };
        answer.into_iter().chain([Event::ended(State::Completed, Vec::new(), None)]).collect()
    }

    /// Returns the answer as a message, if the turn returned nothing but text. A caller that did not ask for a task gets
    /// this.
    ///
    /// For a failed task it is the text of the failure. `None` while the task has not ended, if it has other artifacts,
    /// or if the answer is more than text.
    #[must_use]
    pub fn text_reply(&self) -> Option<Message> {
        let parts = match (self.status.state, self.artifacts.as_slice()) {
            (State::Completed, [reply]) if reply.id == REPLY => &reply.parts,
            (State::Failed, []) => &self.status.message.as_ref()?.parts,
            _ => return None,
        };
        if !parts.iter().all(Part::is_text) {
            return None;
        }
        let mut metadata = self.metadata.clone();
        if self.status.state == State::Failed {
            metadata.insert(keys::STATE.into(), "failed".into());
        }
        let metadata = (!metadata.is_empty()).then_some(metadata);
        Some(Message { metadata, ..Message::reply(&self.id, parts.clone()) })
    }
}

impl Artifact {
    /// Appends a part; text is joined to text of the same kind before it.
    pub(crate) fn push(&mut self, part: &Part) {
        if let (
            Some(Part { content: Content::Text(text), media_type, filename: None, metadata: None }),
            Content::Text(more),
        ) = (self.parts.last_mut(), &part.content)
            && *media_type == part.media_type
            && part.filename.is_none()
            && part.metadata.is_none()
        {
            text.push_str(more);
        } else {
            self.parts.push(part.clone());
        }
    }
}

#[cfg(test)]
mod tests;
