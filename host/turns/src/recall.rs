//! The earlier messages of a context, for executors whose upstreams keep no history.
//!
//! Nothing is stored for this. The messages are read from the log when a turn asks for them, so a turn that does not ask
//! costs nothing, and the messages last as long as their tasks. The folded [`Task`](crate::Task) would not do: it has only
//! the answer of its last turn, and does not distinguish a question from a line about progress.
//!
//! **Which turns.** A turn that ended well is included: its message, the agent's questions that were answered, the
//! answers, and the reply. A turn that failed, was cancelled or was rejected is left out with its message. A model would
//! read the text of the error as the agent's opinion; and the sender, who saw the error, sends the message again, so it
//! would be there twice. If the reply arrives late after all, the turn is included with it. The turn that asks and those
//! that wait behind it have not ended, so they are not included.
//!
//! **Order.** The tasks in the order in which they were created, but the task of the present turn last.
//!
//! **Bounds.** The messages, their bytes, the tasks that are looked at, and the bytes that are read from the log. The
//! newest messages are kept; everything before the first one that does not fit is left out, so that there are no gaps. A
//! file that does not fit is replaced by its name.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::model::{Artifact, Content, ContextId, Message, Part, Principal, TaskId};
use crate::task::{Event, REPLY, State};

/// A request for the earlier messages of a context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recall {
    /// The owner of the context.
    pub owner: Principal,
    /// The context.
    pub context: ContextId,
    /// The task of the turn that asks. Its messages come last.
    pub present: TaskId,
    /// Whether the messages may be read only if the host made the context's id.
    pub host_made_only: bool,
    /// At most so many messages.
    pub messages: usize,
    /// At most so many bytes of content.
    pub bytes: usize,
}

impl Recall {
    /// The tasks that are looked at. Most have two messages; this leaves room for a series of failures between them.
    pub const TASKS: usize = 1_000;
    /// The bytes of events that are read, if a store has to parse them: some tens of milliseconds.
    pub const READ: usize = 8 << 20;
}

/// The bytes that a message counts beside its content.
const OVERHEAD: usize = 64;

/// Collects messages, from the newest task to the oldest.
pub struct Recollection {
    /// Oldest first.
    found: VecDeque<Arc<Message>>,
    messages: usize,
    bytes: usize,
    tasks: usize,
}

/// Which events of a task a store provides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All of them.
    Whole,
    /// The last ones.
    Tail {
        /// The turns of the task that have not ended.
        pending: usize,
    },
}

// === impl Recollection ===

impl Recollection {
    /// An empty collection.
    #[must_use]
    pub fn new(recall: &Recall) -> Self {
        Self { found: VecDeque::new(), messages: recall.messages, bytes: recall.bytes, tasks: Recall::TASKS }
    }

    /// Whether an older task could add messages.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.messages > 0 && self.tasks > 0
    }

    /// Adds a task that is older than those added before. `events` are in their order.
    pub fn add<'a>(&mut self, task: &TaskId, events: impl IntoIterator<Item = &'a Event>, extent: Extent) {
        self.tasks = self.tasks.saturating_sub(1);
        let mut read = TaskMessages::default();
        // The first events of a tail belong to a turn that began before the tail.
        let mut is_known = extent == Extent::Whole;
        for event in events {
            if is_known {
                read.apply(task, event);
            }
            is_known |= matches!(event, Event::Status { ends_turn: true, .. });
        }
        if let Extent::Tail { pending } = extent {
            // If more turns waited at the beginning of the tail, answers would be put beside the wrong messages.
            if read.turns.len() != pending {
                read.messages.clear();
            }
            self.tasks = 0;
        }
        for message in read.messages.into_iter().rev() {
            if !self.keep(message) {
                return;
            }
        }
    }

    /// Returns the messages, oldest first.
    #[must_use]
    pub fn messages(self) -> Vec<Arc<Message>> {
        self.found.into()
    }

    /// Keeps a message. Returns false if there is no room for it, nor for anything older.
    fn keep(&mut self, mut message: Arc<Message>) -> bool {
        if self.messages == 0 {
            return false;
        }
        if size(&message) > self.bytes {
            Arc::make_mut(&mut message).parts.iter_mut().for_each(name_only);
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

/// Replaces a file by a line with its name.
fn name_only(part: &mut Part) {
    if let Content::Bytes(_) = part.content {
        let kind = part.media_type.as_deref().unwrap_or("a file");
        let name = part.filename.as_deref().map(|name| format!("{name}, ")).unwrap_or_default();
        *part = Part::text(format!("[{name}{kind}, no longer attached]"));
    }
}

/// The messages of one task, read from its events.
#[derive(Default)]
struct TaskMessages {
    messages: Vec<Arc<Message>>,
    /// The messages of the turns that have not ended.
    turns: VecDeque<Vec<Arc<Message>>>,
    question: Option<Arc<Message>>,
    reply: Option<Artifact>,
    /// The messages of the turn that failed last.
    failed: Vec<Arc<Message>>,
}

// === impl TaskMessages ===

impl TaskMessages {
    fn apply(&mut self, task: &TaskId, event: &Event) {
        match event {
            Event::Accepted { message, .. } => self.turns.push_back(vec![Arc::clone(message)]),
            Event::Answered(message) => {
                if let Some(turn) = self.turns.front_mut() {
                    turn.extend(self.question.take());
                    turn.push(Arc::clone(message));
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

    /// Takes a piece of the answer, or all of it.
    fn reply(&mut self, artifact: &Artifact, append: bool) {
        if !append {
            self.reply = None;
        }
        let reply = self.reply.get_or_insert_with(|| Artifact::new(REPLY, Vec::new()));
        // Without the metadata that marks the pieces of a stream, so that they are joined into one text.
        let pieces = artifact.parts.iter().map(|part| Part { metadata: None, ..part.clone() });
        pieces.for_each(|part| reply.push(&part));
    }
}

/// A message of the agent, with the id that the answer of the task has as a message.
fn agent(task: &TaskId, parts: Vec<Part>) -> Option<Arc<Message>> {
    (!parts.is_empty()).then(|| Arc::new(Message::reply(task, parts)))
}

#[cfg(test)]
mod tests;
