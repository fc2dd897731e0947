//! What a conversation remembers: what was said in its earlier turns, for upstreams that keep nothing themselves.
//!
//! Nothing is kept for this. It is read from the log when a turn asks for it, so a turn that does not ask costs nothing,
//! and memory lasts as long as its tasks do. A folded [`Task`](crate::Task) would not do: it has the answer of its last
//! turn only, and it does not tell a question from a line about progress.
//!
//! **A turn is remembered when it ended well**: the message, the questions of the agent that were answered, the answers, and
//! the reply. A turn that failed, was cancelled or was refused leaves nothing, neither its message nor what was said of it:
//! an error's text would be read as the agent's opinion, and its sender was told and sends the message again, which would
//! then be there twice. If the reply comes late after all, the turn is remembered with it. The turn that asks and those
//! that wait behind it are not over, so they are not in it.
//!
//! **Order.** Tasks in the order in which they were created, and last the one that the present turn belongs to.
//!
//! **Bounds.** Messages, bytes, tasks that are looked at and bytes that are read for it. The newest stay; what lies
//! before the first message that does not fit is left out, so that there are no holes. A file that does not fit is
//! replaced by its name.

use std::collections::VecDeque;

use crate::model::{Artifact, Content, ContextId, Message, Part, Principal, Role, TaskId};
use crate::task::{Event, REPLY, State};

/// What is asked of a conversation's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recall {
    /// Whose conversation.
    pub owner: Principal,
    /// Which one.
    pub context: ContextId,
    /// The task of the turn that asks. It is told last.
    pub present: TaskId,
    /// Tell nothing of a conversation whose id a caller chose.
    pub host_made_only: bool,
    /// At most so many messages.
    pub messages: usize,
    /// At most so many bytes, counted by what the parts hold.
    pub bytes: usize,
}

impl Recall {
    /// Tasks that are looked at. Most hold two messages; this leaves room for a stretch of failures between them.
    pub const TASKS: usize = 1_000;
    /// Bytes of events that are read, where reading costs by the byte. Some tens of milliseconds of parsing.
    pub const READ: usize = 8 << 20;
}

/// What a message costs beside what its parts hold.
const OVERHEAD: usize = 64;

/// Gathers what is remembered, from the newest task to the oldest.
pub struct Recollection {
    /// Oldest first.
    found: VecDeque<Message>,
    messages: usize,
    bytes: usize,
    tasks: usize,
}

/// What a store has of a task's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All of them.
    Whole,
    /// The last ones, of a task that has as many turns which are not over.
    Tail {
        /// Turns that are not over.
        pending: usize,
    },
}

// === impl Recollection ===

impl Recollection {
    /// Nothing yet.
    #[must_use]
    pub fn new(recall: &Recall) -> Self {
        Self { found: VecDeque::new(), messages: recall.messages, bytes: recall.bytes, tasks: Recall::TASKS }
    }

    /// Whether an older task could add anything.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.messages > 0 && self.tasks > 0
    }

    /// Adds a task that is older than those before, by its events in their order.
    pub fn add<'a>(&mut self, task: &TaskId, events: impl IntoIterator<Item = &'a Event>, extent: Extent) {
        self.tasks = self.tasks.saturating_sub(1);
        let mut told = Told::default();
        // The turn that the first events of a tail belong to began before it.
        let mut is_known = extent == Extent::Whole;
        for event in events {
            if is_known {
                told.hear(task, event);
            }
            is_known |= matches!(event, Event::Status { ends_turn: true, .. });
        }
        if let Extent::Tail { pending } = extent {
            // Where more turns waited at its beginning, answers would be told of the wrong messages.
            if told.turns.len() != pending {
                told.messages.clear();
            }
            self.tasks = 0;
        }
        for message in told.messages.into_iter().rev() {
            if !self.keep(message) {
                return;
            }
        }
    }

    /// What was found, oldest first.
    #[must_use]
    pub fn messages(self) -> Vec<Message> {
        self.found.into()
    }

    /// False when there is no room for it, nor for anything older.
    fn keep(&mut self, mut message: Message) -> bool {
        if self.messages == 0 {
            return false;
        }
        if size(&message) > self.bytes {
            message.parts.iter_mut().for_each(name_only);
        }
        let size = size(&message);
        if size > self.bytes {
            self.messages = 0;
            return false;
        }
        self.bytes -= size;
        self.messages -= 1;
        self.found.push_front(message);
        true
    }
}

fn size(message: &Message) -> usize {
    let parts = message.parts.iter().map(|part| match &part.content {
        Content::Text(text) | Content::Uri(text) => text.len(),
        Content::Data(value) => value.to_string().len(),
        Content::Bytes(bytes) => bytes.len(),
    });
    parts.sum::<usize>() + OVERHEAD
}

/// A file becomes a line that names it.
fn name_only(part: &mut Part) {
    if let Content::Bytes(_) = part.content {
        let kind = part.media_type.as_deref().unwrap_or("a file");
        let name = part.filename.as_deref().map(|name| format!("{name}, ")).unwrap_or_default();
        *part = Part::text(format!("[{name}{kind}, no longer attached]"));
    }
}

/// What was said in one task so far.
#[derive(Default)]
struct Told {
    messages: Vec<Message>,
    /// What was said in the turns that are not over.
    turns: VecDeque<Vec<Message>>,
    question: Option<Message>,
    reply: Option<Artifact>,
    /// The turn that failed last.
    failed: Vec<Message>,
}

// === impl Told ===

impl Told {
    fn hear(&mut self, task: &TaskId, event: &Event) {
        match event {
            Event::Accepted { message, .. } => self.turns.push_back(vec![message.clone()]),
            Event::Answered(message) => {
                if let Some(turn) = self.turns.front_mut() {
                    turn.extend(self.question.take());
                    turn.push(message.clone());
                }
            }
            Event::Artifact { artifact, append, .. } if artifact.id == REPLY => self.reply(artifact, *append),
            Event::Whole(artifact) if artifact.id == REPLY => self.reply(artifact, false),
            Event::Status { status, ends_turn: false, .. } if status.state.is_interrupted() => {
                self.question.clone_from(&status.message);
            }
            Event::Status { status, ends_turn: true, .. } => {
                self.question = None;
                let mut parts = self.reply.take().map(|reply| reply.parts).unwrap_or_default();
                let mut turn = self.turns.pop_front().unwrap_or_default();
                match status.state {
                    State::Failed | State::Canceled | State::Rejected => {
                        self.failed = turn;
                        return;
                    }
                    State::Completed | State::Working | State::Submitted if !parts.is_empty() => {}
                    _ => parts.extend(status.message.iter().flat_map(|message| message.parts.clone())),
                }
                turn.extend(agent(task, parts));
                self.messages.append(&mut turn);
            }
            Event::Late(artifact) => {
                self.messages.append(&mut self.failed);
                self.messages.extend(agent(task, artifact.parts.clone()));
            }
            Event::Artifact { .. }
            | Event::Whole(_)
            | Event::Status { .. }
            | Event::Checkpoint(_)
            | Event::Note { .. } => {}
        }
    }

    /// A piece of the answer, or all of it.
    fn reply(&mut self, artifact: &Artifact, append: bool) {
        if !append {
            self.reply = None;
        }
        let reply = self.reply.get_or_insert_with(|| Artifact::new(REPLY, Vec::new()));
        // Without the marks for whoever watched it come, so that the pieces of a text are one.
        let pieces = artifact.parts.iter().map(|part| Part { metadata: None, ..part.clone() });
        pieces.for_each(|part| reply.push(&part));
    }
}

/// What the agent said, with the id that its answer has as a message.
fn agent(task: &TaskId, parts: Vec<Part>) -> Option<Message> {
    let id = format!("{REPLY}-{task}").parse().ok();
    let message = Message { role: Role::Agent, ..Message::agent(parts) };
    let message = Message { id: id.unwrap_or_else(|| message.id.clone()), ..message };
    (!message.parts.is_empty()).then_some(message)
}

#[cfg(test)]
mod tests;
