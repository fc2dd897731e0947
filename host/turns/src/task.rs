//! A task is what its events add up to.
//!
//! [`Task::apply`] is the only way a task changes, and it refuses what is not legal: terminal is final, and nothing
//! goes back to submitted. One thing can still be added to a task that failed, and changes nothing that was said of it:
//! the reply that came too late ([`Event::Late`]). A store that folds with it cannot hold a task in a state that no log explains.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::model::{Artifact, Content, ContextId, Message, Metadata, Part, TaskId, Timestamp, base64_text};

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Accepted, not begun.
    Submitted,
    /// A turn runs.
    Working,
    /// The caller must say more.
    InputRequired,
    /// The caller must authenticate somewhere.
    AuthRequired,
    /// Done.
    Completed,
    /// Broken.
    Failed,
    /// Stopped by the caller.
    Canceled,
    /// Refused by the executor.
    Rejected,
}

/// A state, since when, and what the agent says about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Where the task stands.
    pub state: State,
    /// What the agent says about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Message>,
    /// Since when.
    pub at: Timestamp,
}

/// One thing that happened to a task. Events are appended, never changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// A message of the caller joined the task, and a turn of this executor will answer it.
    Accepted {
        /// The message.
        message: Message,
        /// Who takes the turn.
        executor: Box<str>,
        /// The request's metadata.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<Metadata>,
    },
    /// The caller answered what the turn under way asked.
    Answered(Message),
    /// The task moved, or said something while it stays where it is.
    Status {
        /// Where to.
        status: Status,
        /// Joins the task's metadata.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<Metadata>,
        /// Whether the turn under way is over with it.
        #[serde(default)]
        ends_turn: bool,
    },
    /// A point from which the turn under way can be executed again.
    Checkpoint(#[serde(with = "base64_text")] Vec<u8>),
    /// A result, or a piece of one.
    Artifact {
        /// The piece.
        artifact: Artifact,
        /// Adds to the artifact of that id instead of replacing it.
        append: bool,
        /// No further piece follows.
        last: bool,
    },
    /// The whole of an answer that came in pieces before. Its first part is the text that the pieces add up to; parts
    /// after it are new. Follows the pieces wherever a turn ends, so whoever was told no pieces is told this.
    Whole(Artifact),
    /// The reply to a turn that had failed by the time it came. Leaves the status as it is.
    Late(Artifact),
    /// Something to watch and forget: tool progress, an executor's own events. Leaves the task as it is.
    Note {
        /// Its name.
        name: String,
        /// What it says.
        value: serde_json::Value,
    },
}

/// A task, as of `version`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Its id.
    pub id: TaskId,
    /// The conversation that it belongs to.
    pub context: ContextId,
    /// Sequence number of the last event in it; 0 before the first.
    pub version: u64,
    /// Where it stands.
    pub status: Status,
    /// Messages, oldest first. What the agent said with a status joins when the next status comes.
    pub history: Vec<Message>,
    /// Results, in the order of their first pieces.
    pub artifacts: Vec<Artifact>,
    /// Whatever else.
    pub metadata: Metadata,
    /// Who took the last turn; its next message goes there too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executor: Option<Box<str>>,
    /// Turns that are not over, oldest first: where in the history their messages are, and who takes them.
    pub pending: VecDeque<Pending>,
    /// Where in the history the answers are that the turn under way got to its questions since its checkpoint.
    pub answers: Vec<usize>,
    /// Where the turn under way can be executed again from.
    pub checkpoint: Option<Checkpoint>,
}

/// A turn that is not over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pending {
    /// Where in the history its message is.
    pub message: usize,
    /// Who takes it.
    pub executor: Box<str>,
    /// The request's metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// When it began first; a restart does not change that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<Timestamp>,
}

/// What an executor needs to go on from where it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Checkpoint(#[serde(with = "base64_text")] pub Vec<u8>);

/// An event that the task's state does not allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a task that is {from} takes no further events")]
pub struct IllegalMove {
    /// Where the task stands.
    pub from: State,
    /// Where it should have gone; none for an event that is not a move.
    pub to: Option<State>,
}

/// The id of the artifact that holds a turn's answer.
pub const REPLY: &str = "reply";

/// What the metadata of a bare message says when its turn failed.
const STATE: &str = "talaria/state";

// === impl State ===

impl State {
    /// No further event.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled | Self::Rejected)
    }

    /// Waiting for the caller.
    #[must_use]
    pub fn is_interrupted(self) -> bool {
        matches!(self, Self::InputRequired | Self::AuthRequired)
    }

    /// Terminal or interrupted: a blocking send answers now.
    #[must_use]
    pub fn is_settled(self) -> bool {
        self.is_terminal() || self.is_interrupted()
    }

    /// Whether a task may go from here to there. Staying is a move: a status may say something new.
    #[must_use]
    pub fn may_become(self, to: Self) -> bool {
        !self.is_terminal() && (to != Self::Submitted || self == Self::Submitted)
    }

    /// The state after `events`, one after the other.
    ///
    /// # Errors
    /// [`IllegalMove`] for the first that is not legal.
    pub fn check(self, events: &[Event]) -> Result<Self, IllegalMove> {
        events.iter().try_fold(self, |from, event| {
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

// === impl Event ===

impl Event {
    /// A move that says nothing.
    #[must_use]
    pub fn moved(state: State) -> Self {
        Self::said(state, Vec::new())
    }

    /// A move with what the agent says about it; no parts, no message.
    #[must_use]
    pub fn said(state: State, parts: Vec<Part>) -> Self {
        let message = (!parts.is_empty()).then(|| Message::agent(parts));
        let status = Status { state, message, at: Timestamp::now() };
        Self::Status { status, metadata: None, ends_turn: state.is_terminal() }
    }

    /// The same, and the turn under way is over with it.
    #[must_use]
    pub fn ended(state: State, parts: Vec<Part>, metadata: Option<Metadata>) -> Self {
        let message = (!parts.is_empty()).then(|| Message::agent(parts));
        Self::Status { status: Status { state, message, at: Timestamp::now() }, metadata, ends_turn: true }
    }

    /// Whether it is told to those who follow the task. A caller's own message, its answer to a question and a
    /// checkpoint are not.
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

    /// Whether it is a piece of the answer: of its text as it comes, not of an artifact that the executor made.
    #[must_use]
    pub fn is_chunk(&self) -> bool {
        matches!(self, Self::Artifact { artifact, last: false, .. } if artifact.id == REPLY)
    }

    /// The state that the task is in after it, if it says one.
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
    /// A task that was just submitted: version 0, nothing in it.
    #[must_use]
    pub fn new(id: TaskId, context: ContextId) -> Self {
        Self {
            id,
            context,
            version: 0,
            status: Status { state: State::Submitted, message: None, at: Timestamp::now() },
            history: Vec::new(),
            artifacts: Vec::new(),
            metadata: Metadata::new(),
            executor: None,
            pending: VecDeque::new(),
            answers: Vec::new(),
            checkpoint: None,
        }
    }

    /// Folds one event in and counts it.
    ///
    /// # Errors
    /// [`IllegalMove`], with the task unchanged.
    pub fn apply(&mut self, event: &Event) -> Result<(), IllegalMove> {
        self.status.state.check(std::slice::from_ref(event))?;
        match event {
            Event::Accepted { message, executor, metadata } => {
                self.pending.push_back(Pending {
                    message: self.history.len(),
                    executor: executor.clone(),
                    metadata: metadata.clone(),
                    begun: None,
                });
                self.executor = Some(executor.clone());
                self.history.push(message.clone());
            }
            Event::Answered(message) => {
                self.answers.push(self.history.len());
                self.history.push(message.clone());
            }
            Event::Status { status, metadata, ends_turn } => {
                let before = std::mem::replace(&mut self.status, status.clone());
                self.history.extend(before.message);
                self.metadata.extend(metadata.clone().unwrap_or_default());
                if *ends_turn {
                    self.pending.pop_front();
                    self.answers.clear();
                    self.checkpoint = None;
                }
                if let Some(turn) = self.pending.front_mut().filter(|_| status.state == State::Working) {
                    turn.begun.get_or_insert(status.at);
                }
            }
            Event::Checkpoint(data) => {
                self.checkpoint = Some(Checkpoint(data.clone()));
                // Whoever goes on from here knows them.
                self.answers.clear();
            }
            Event::Artifact { artifact, append, .. } => self.fold_artifact(artifact, *append),
            Event::Whole(artifact) | Event::Late(artifact) => self.fold_artifact(artifact, false),
            Event::Note { .. } => {}
        }
        self.version += 1;
        Ok(())
    }

    fn fold_artifact(&mut self, piece: &Artifact, append: bool) {
        match self.artifacts.iter_mut().find(|known| known.id == piece.id) {
            Some(known) if append => {
                for part in &piece.parts {
                    known.push(part);
                }
            }
            Some(known) => *known = piece.clone(),
            None => self.artifacts.push(piece.clone()),
        }
    }

    /// The answer, where the turn only returned text: what a caller gets who did not ask for a task.
    ///
    /// For a failed task this is the failure's text. None while the task is not terminal, when it holds other
    /// artifacts, or when the answer is more than text.
    #[must_use]
    pub fn text_reply(&self) -> Option<Message> {
        let parts = match (self.status.state, self.artifacts.as_slice()) {
            (State::Completed, [reply]) if reply.id == REPLY => reply.parts.clone(),
            (State::Failed, []) => self.status.message.as_ref()?.parts.clone(),
            _ => return None,
        };
        if !parts.iter().all(Part::is_text) {
            return None;
        }
        let mut message = Message::agent(parts);
        // Derived, so that asking twice gives the same message.
        if let Ok(id) = format!("{REPLY}-{}", self.id).parse() {
            message.id = id;
        }
        let mut metadata = self.metadata.clone();
        if self.status.state == State::Failed {
            // A bare message has no state of its own.
            metadata.insert(STATE.into(), "failed".into());
        }
        message.metadata = (!metadata.is_empty()).then_some(metadata);
        Some(message)
    }
}

impl Artifact {
    /// Adds a part; text that follows text of the same kind is joined to it.
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
mod tests {
    use super::*;

    const STATES: [State; 8] = [
        State::Submitted,
        State::Working,
        State::InputRequired,
        State::AuthRequired,
        State::Completed,
        State::Failed,
        State::Canceled,
        State::Rejected,
    ];

    fn task() -> Task {
        Task::new(TaskId::fresh(), ContextId::fresh())
    }

    fn delta(text: &str, append: bool) -> Event {
        let artifact = Artifact::new(REPLY, vec![Part::text(text)]);
        Event::Artifact { artifact, append, last: false }
    }

    #[test]
    fn a_turn_began_when_it_began_first() {
        let mut task = task();
        let message = Message::agent(vec![Part::text("hi")]);
        let at = |millis, ends_turn| Event::Status {
            status: Status { state: State::Working, message: None, at: Timestamp::from_millis(millis) },
            metadata: None,
            ends_turn,
        };
        let accepted = Event::Accepted { message, executor: "echo".into(), metadata: None };
        for event in [accepted.clone(), accepted, at(1, false), at(2, false)] {
            task.apply(&event).unwrap();
        }
        let begun = |task: &Task| task.pending.iter().map(|turn| turn.begun).collect::<Vec<_>>();
        assert_eq!(begun(&task), [Some(Timestamp::from_millis(1)), None], "a restart moves it again");
        task.apply(&at(3, true)).unwrap();
        assert_eq!(begun(&task), [Some(Timestamp::from_millis(3))], "the next one");
    }

    #[test]
    fn terminal_is_final() {
        for terminal in STATES.into_iter().filter(|state| state.is_terminal()) {
            let mut task = task();
            task.apply(&Event::moved(terminal)).unwrap();
            let before = task.clone();
            for next in STATES {
                assert_eq!(
                    task.apply(&Event::moved(next)),
                    Err(IllegalMove { from: terminal, to: Some(next) }),
                    "{terminal} must not become {next}"
                );
            }
            assert!(task.apply(&delta("late", true)).is_err(), "no artifact after {terminal}");
            assert_eq!(task, before, "a refused event changes nothing");
        }
    }

    #[test]
    fn only_what_failed_takes_a_late_reply_and_stays_failed() {
        let Event::Artifact { artifact, .. } = delta("late", false) else { panic!("an artifact") };
        let late = Event::Late(Artifact { id: "late-reply".into(), ..artifact });
        for state in STATES {
            let mut task = task();
            task.apply(&Event::said(state, vec![Part::text("no reply in time")])).unwrap();
            let before = task.clone();
            if state == State::Failed {
                task.apply(&late).unwrap();
                assert_eq!(task.status, before.status);
                assert_eq!((task.version, task.artifacts.len()), (2, 1));
            } else {
                assert_eq!(task.apply(&late), Err(IllegalMove { from: state, to: None }));
                assert_eq!(task, before, "a refused event changes nothing");
            }
        }
    }

    #[test]
    fn nothing_goes_back_to_submitted() {
        for from in [State::Working, State::InputRequired, State::AuthRequired] {
            assert!(!from.may_become(State::Submitted), "{from}");
        }
    }

    #[test]
    fn what_the_agent_said_with_a_status_joins_the_history_at_the_next_one() {
        let mut task = task();
        task.apply(&Event::said(State::InputRequired, vec![Part::text("which one?")])).unwrap();
        assert!(task.history.is_empty());
        task.apply(&Event::moved(State::Working)).unwrap();
        assert_eq!(task.history[0].parts, vec![Part::text("which one?")]);
        assert_eq!(task.status.message, None);
    }

    #[test]
    fn deltas_add_up_to_one_text_and_every_event_counts() {
        let mut task = task();
        task.apply(&delta("Hel", false)).unwrap();
        task.apply(&delta("lo", true)).unwrap();
        assert_eq!(task.artifacts.len(), 1);
        assert_eq!(task.artifacts[0].parts, vec![Part::text("Hello")]);
        assert_eq!(task.version, 2);
        task.apply(&delta("Goodbye", false)).unwrap();
        assert_eq!(task.artifacts[0].parts, vec![Part::text("Goodbye")], "without append it replaces");
    }

    #[test]
    fn a_reply_of_text_is_a_message_with_a_stable_id() {
        let mut task = task();
        task.apply(&delta("hi", false)).unwrap();
        assert_eq!(task.text_reply(), None, "not before the end");
        task.apply(&Event::moved(State::Completed)).unwrap();
        let reply = task.text_reply().unwrap();
        assert_eq!(reply.parts, vec![Part::text("hi")]);
        assert_eq!(reply.id, task.text_reply().unwrap().id);
    }
}
