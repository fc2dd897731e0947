//! What a stream says: the task as it was, then what happened to it, in order.
//!
//! Pulled, never pushed: an update is read from the log when the client's connection takes it, so a slow reader costs a
//! cursor. The number of an update is the sequence number of its event. A caller's message, an answer to a question and
//! a checkpoint are events too, but not for the wire: their numbers are skipped, and so are those of pieces of the answer
//! for a caller who wants none.
//!
//! **Where a stream ends.** That of a send ends with its turn: at a terminal state, at an interrupted one, or where the
//! turn is over and the task goes on with the next one that waits. That of a subscription ends at a terminal state only:
//! on a task that asks it stays open and carries the next turn. Where a late reply is in the log behind the end, whoever
//! comes back with an earlier number gets it too.
//!
//! **What is held back.** An executor may want its answer to be one message and nothing else (`talaria/reply`), and
//! says so only at the end. So the first snapshot of a send, and the word that the turn works, wait until something
//! else happens or the hold is over. What is held is those two, for a second at most.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use talaria_turns::{
    Accepted, ContextId, Entry, Event, Reader, State, Status, StoreError, StreamAs, Task, TaskId,
};
use tokio::time::Instant;

use crate::operation::{self, Addressed, ReplyAs, View};
use crate::refusal::Refusal;

/// One thing to say, and the number from which a reader can go on after it.
#[derive(Debug)]
pub(crate) struct Update {
    pub(crate) sequence: u64,
    pub(crate) item: Item,
}

#[derive(Debug)]
pub(crate) enum Item {
    Task(View),
    Message(Addressed),
    /// A status, an artifact or a note.
    Event(Happened),
}

/// An event, and what it takes to write it.
#[derive(Debug)]
pub(crate) struct Happened {
    pub(crate) home: Arc<Home>,
    pub(crate) event: Arc<Event>,
    /// Where the task stood then; a note does not say it.
    pub(crate) state: State,
    /// Whether the interaction ends with it, which 0.3 says of every status.
    pub(crate) last: bool,
    /// Its number.
    pub(crate) sequence: u64,
    /// How the pieces of an answer are told.
    pub(crate) form: StreamAs,
}

/// Which task it is about.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) task: TaskId,
    pub(crate) context: ContextId,
}

/// A stream of updates.
pub(crate) struct Updates {
    source: Option<Source>,
    ready: VecDeque<Update>,
    /// Until when what is ready is held back.
    held: Option<Instant>,
}

/// How a stream is told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Telling {
    pub(crate) form: StreamAs,
    /// How much of the history the first snapshot shows.
    pub(crate) history_length: Option<usize>,
    /// How long the first snapshot may wait for the word that the answer is one message; none where it may not be.
    pub(crate) hold: Option<Duration>,
}

struct Source {
    reader: Reader,
    /// The number of the last event that was read.
    seen: u64,
    home: Arc<Home>,
    state: State,
    ends: Ends,
    form: StreamAs,
}

/// Where a stream ends, if not at a terminal state.
#[derive(Clone, Copy)]
enum Ends {
    /// Nowhere else.
    Terminal,
    /// Where the task waits for the caller, or after as many turns.
    Turn(usize),
}

/// What may be held back: a snapshot, and the word that the turn works.
const HELD: usize = 2;

// === impl Updates ===

impl Updates {
    /// What becomes of a turn.
    pub(crate) fn of_turn(accepted: Accepted, telling: Telling) -> Self {
        let Telling { form, history_length, hold } = telling;
        let (reader, task) = (accepted.reader(), accepted.task);
        // Its turn is the last of those that are not over. None is under way where a message was sent before.
        let settled = task.status.state.is_settled();
        let source = Source::new(&task, reader, Ends::Turn(task.pending.len().max(1)), form);
        let mut updates = Self {
            source: (!settled || task.status.state.is_terminal()).then_some(source),
            ready: VecDeque::from([snapshot(task, history_length)]),
            held: hold.map(|hold| Instant::now() + hold),
        };
        if updates.source.is_none() {
            updates.held = None;
        }
        updates
    }

    /// The same, for a caller who has the events up to `after`.
    pub(crate) fn of_turn_from(task: &Task, reader: Reader, after: u64, form: StreamAs) -> Self {
        let over = task.version == after && task.status.state.is_settled();
        let source = Source {
            state: State::Working,
            seen: after,
            ..Source::new(task, reader, Ends::Turn(usize::MAX), form)
        };
        Self { source: (!over).then_some(source), ready: VecDeque::new(), held: None }
    }

    /// What happens to a task, until it is over. Begins with the task, unless the caller has the events up to `after`.
    pub(crate) fn of_task(task: Arc<Task>, reader: Reader, after: Option<u64>, form: StreamAs) -> Self {
        let mut source = Source::new(&task, reader, Ends::Terminal, form);
        let ready = match after {
            None => VecDeque::from([snapshot(task, None)]),
            Some(after) => {
                source.seen = after;
                if after < task.version {
                    // Notes come from turns at work; every other event says the state itself.
                    source.state = State::Working;
                }
                VecDeque::new()
            }
        };
        Self { source: Some(source), ready, held: None }
    }

    /// A task that is over, shown once.
    pub(crate) fn of_ended(task: Arc<Task>) -> Self {
        Self { ready: VecDeque::from([snapshot(task, None)]), ..Self::nothing() }
    }

    /// A stream that is over.
    pub(crate) fn nothing() -> Self {
        Self { source: None, ready: VecDeque::new(), held: None }
    }

    /// The next update, when it comes; none at the end. May be dropped while it waits, and loses nothing.
    pub(crate) async fn next(&mut self) -> Result<Option<Update>, Refusal> {
        loop {
            if self.held.is_none()
                && let Some(update) = self.ready.pop_front()
            {
                return Ok(Some(update));
            }
            let Some(source) = &mut self.source else { return Ok(None) };
            let next = match self.held {
                None => source.reader.next().await,
                Some(deadline) => match tokio::time::timeout_at(deadline, source.reader.next()).await {
                    Ok(next) => next,
                    Err(_) => {
                        self.held = None;
                        continue;
                    }
                },
            };
            self.read(next)?;
        }
    }

    /// The next update that has happened already, where the stream must end before its time. Waits for nothing new, and
    /// holds nothing back that the log has no more to say about.
    pub(crate) async fn next_known(&mut self) -> Result<Option<Update>, Refusal> {
        loop {
            if self.held.is_none()
                && let Some(update) = self.ready.pop_front()
            {
                return Ok(Some(update));
            }
            match &mut self.source {
                Some(source) if source.is_behind() => {
                    let next = source.reader.next().await;
                    self.read(next)?;
                }
                _ if self.held.take().is_some() => {}
                _ => return Ok(None),
            }
        }
    }

    /// Whether everything was said.
    pub(crate) fn is_over(&self) -> bool {
        self.source.is_none() && self.ready.is_empty()
    }

    fn read(&mut self, next: Result<Option<Entry>, StoreError>) -> Result<(), Refusal> {
        match next {
            Ok(Some(entry)) => self.take(entry),
            Ok(None) => {
                self.release();
                self.source = None;
            }
            Err(error) => {
                self.source = None;
                return Err(Refusal::store(&error));
            }
        }
        Ok(())
    }

    fn take(&mut self, entry: Entry) {
        let Some(source) = &mut self.source else { return };
        source.seen = entry.sequence;
        if !source.form.tells(&entry.event) {
            return;
        }
        if self.held.is_some() && (!is_plain_work(&entry.event) || self.ready.len() >= HELD) {
            self.release();
        }
        let Some(source) = &mut self.source else { return };
        let (happened, over) = source.happened(entry.event, entry.sequence);
        // A reply that came late is behind the end.
        let over = over && !source.is_late_behind();
        self.ready.push_back(Update { sequence: entry.sequence, item: Item::Event(happened) });
        if over {
            self.source = None;
        }
    }

    /// Ends the hold: lets go what was held, or says the one message that makes it moot.
    fn release(&mut self) {
        if self.held.take().is_none() {
            return;
        }
        let Some(source) = &self.source else { return };
        let task = source.reader.task();
        if operation::reply_as(&task) == Some(ReplyAs::Message)
            && let Some(message) = operation::message_reply(&task)
        {
            self.ready.clear();
            self.ready.push_back(Update { sequence: task.version, item: Item::Message(message) });
            self.source = None;
        }
    }
}

// === impl Source ===

impl Source {
    fn new(task: &Task, reader: Reader, ends: Ends, form: StreamAs) -> Self {
        let home = Arc::new(Home { task: task.id.clone(), context: task.context.clone() });
        Self { reader, seen: task.version, home, state: task.status.state, ends, form }
    }

    /// Whether the log has more than was read.
    fn is_behind(&self) -> bool {
        self.seen < self.reader.task().version
    }

    /// Whether the log has more than the end that was read.
    fn is_late_behind(&self) -> bool {
        self.state.is_terminal() && self.is_behind()
    }

    /// What to say about an event, and whether nothing follows it.
    fn happened(&mut self, event: Arc<Event>, sequence: u64) -> (Happened, bool) {
        let (mut over, mut last) = (false, false);
        if let Event::Status { status, ends_turn, .. } = &*event {
            self.state = status.state;
            over = status.state.is_terminal();
            if let Ends::Turn(left) = &mut self.ends {
                *left = left.saturating_sub(usize::from(*ends_turn && *left != usize::MAX));
                over |= status.state.is_interrupted() || *left == 0;
            }
            last = over || status.state.is_settled();
        }
        let (home, state, form) = (Arc::clone(&self.home), self.state, self.form);
        (Happened { home, event, state, last, sequence, form }, over)
    }
}

fn snapshot(task: Arc<Task>, history_length: Option<usize>) -> Update {
    Update { sequence: task.version, item: Item::Task(View::new(task, history_length)) }
}

/// Whether the event says only that the turn works.
fn is_plain_work(event: &Event) -> bool {
    matches!(
        event,
        Event::Status {
            status: Status { state: State::Working, message: None, .. },
            metadata: None,
            ends_turn: false,
        }
    )
}
