//! The content of a stream: a snapshot of the task, then its events in order.
//!
//! Updates are pulled: each is read from the log when the client's connection takes it, so a slow reader costs no more than a
//! cursor. The number of an update is the sequence number of its event. A caller's message, an answer to a question and a
//! checkpoint are events too, but not for clients: their numbers are skipped, and so are those of chunks for a caller that
//! wants none.
//!
//! **End of a stream.** The stream of a send ends with its turn: at a terminal state, at an interrupted one, or when the turn
//! is over and the task continues with the next turn in its queue. The stream of a subscription ends only at a terminal
//! state; while the task waits for input it stays open, and it carries the next turn. If the log holds a late reply after
//! the end, a client that resumes from an earlier number gets it too.
//!
//! **Held-back updates.** An executor may want its answer to be a single message (`talaria/reply`), but says so only at the
//! end. So the first snapshot of a send, and the status that the turn is working, are held back until another event arrives
//! or the hold expires, which takes a second at most. Nothing else is ever held back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use talaria_turns::{
    Accepted, ContextId, Entry, Event, Reader, State, Status, StoreError, StreamAs, Task, TaskId,
};
use tokio::time::Instant;

use crate::operation::{self, Addressed, ReplyAs, View};
use crate::rejection::Rejection;

/// One update, and the number from which a reader can resume after it.
#[derive(Debug)]
pub(crate) struct Update {
    pub(crate) sequence: u64,
    pub(crate) item: StreamItem,
}

#[derive(Debug)]
pub(crate) enum StreamItem {
    Task(View),
    Message(Addressed),
    /// A status, an artifact or a note.
    Event(StreamEvent),
}

/// An event, and what is needed to encode it.
#[derive(Debug)]
pub(crate) struct StreamEvent {
    pub(crate) task_ref: Arc<TaskRef>,
    pub(crate) event: Arc<Event>,
    /// The state of the task at that time, which a note does not hold.
    pub(crate) state: State,
    /// Whether the interaction ends with it, which 0.3 sends with every status.
    pub(crate) last: bool,
    /// The sequence number of the event.
    pub(crate) sequence: u64,
    /// The form of a streamed answer.
    pub(crate) form: StreamAs,
}

/// A task and its context.
#[derive(Debug)]
pub(crate) struct TaskRef {
    pub(crate) task: TaskId,
    pub(crate) context: ContextId,
}

/// A stream of updates.
pub(crate) struct UpdateStream {
    source: Option<Source>,
    ready: VecDeque<Update>,
    /// Until when `ready` is held back.
    held: Option<Instant>,
}

/// The options of a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamOptions {
    pub(crate) form: StreamAs,
    /// How many messages of the history the first snapshot shows.
    pub(crate) history_length: Option<usize>,
    /// How long the first snapshot may be held back in case the answer is a single message; `None` if it cannot be one.
    pub(crate) hold: Option<Duration>,
}

struct Source {
    reader: Reader,
    /// The number of the last event read.
    seen: u64,
    task_ref: Arc<TaskRef>,
    state: State,
    ends: Ends,
    form: StreamAs,
}

/// Where a stream ends, beside a terminal state.
#[derive(Clone, Copy)]
enum Ends {
    /// Nowhere else.
    Terminal,
    /// Where the task waits for the caller, or after this many turns.
    Turn(usize),
}

/// The number of updates that may be held back: the snapshot, and the status that the turn is working.
const HELD: usize = 2;

// === impl UpdateStream ===

impl UpdateStream {
    /// Streams a turn.
    pub(crate) fn of_turn(accepted: Accepted, telling: StreamOptions) -> Self {
        let StreamOptions { form, history_length, hold } = telling;
        let (reader, task) = (accepted.reader(), accepted.task);
        // The turn is the last one in the task's queue. The queue is empty if the message is a duplicate.
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

    /// Streams a turn for a caller that has the events up to `after`.
    pub(crate) fn of_turn_from(task: &Task, reader: Reader, after: u64, form: StreamAs) -> Self {
        let over = task.version == after && task.status.state.is_settled();
        let source = Source {
            state: State::Working,
            seen: after,
            ..Source::new(task, reader, Ends::Turn(usize::MAX), form)
        };
        Self { source: (!over).then_some(source), ready: VecDeque::new(), held: None }
    }

    /// Streams a task until it is over. Starts with a snapshot, unless the caller has the events up to `after`.
    pub(crate) fn of_task(task: Arc<Task>, reader: Reader, after: Option<u64>, form: StreamAs) -> Self {
        let mut source = Source::new(&task, reader, Ends::Terminal, form);
        let ready = match after {
            None => VecDeque::from([snapshot(task, None)]),
            Some(after) => {
                source.seen = after;
                if after < task.version {
                    // Only a working turn emits notes; every other event holds the state itself.
                    source.state = State::Working;
                }
                VecDeque::new()
            }
        };
        Self { source: Some(source), ready, held: None }
    }

    /// Streams a single snapshot of a task that is over.
    pub(crate) fn of_ended(task: Arc<Task>) -> Self {
        Self { ready: VecDeque::from([snapshot(task, None)]), ..Self::empty() }
    }

    /// Returns a stream without updates.
    pub(crate) fn empty() -> Self {
        Self { source: None, ready: VecDeque::new(), held: None }
    }

    /// Waits for the next update; `None` at the end. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Option<Update>, Rejection> {
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

    /// Returns the next update that is already in the log, for a stream that must end early. Does not wait for new events, and
    /// releases held-back updates once the log is read.
    pub(crate) async fn next_known(&mut self) -> Result<Option<Update>, Rejection> {
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

    /// Whether every update has been returned.
    pub(crate) fn is_over(&self) -> bool {
        self.source.is_none() && self.ready.is_empty()
    }

    fn read(&mut self, next: Result<Option<Entry>, StoreError>) -> Result<(), Rejection> {
        match next {
            Ok(Some(entry)) => self.take(entry),
            Ok(None) => {
                self.release();
                self.source = None;
            }
            Err(error) => {
                self.source = None;
                return Err(Rejection::store(&error));
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
        let (event, over) = source.stream_event(entry.event, entry.sequence);
        // A late reply comes after the end.
        let over = over && !source.is_late_behind();
        self.ready.push_back(Update { sequence: entry.sequence, item: StreamItem::Event(event) });
        if over {
            self.source = None;
        }
    }

    /// Ends the hold: releases the held-back updates, or replaces them by the single message that the executor wants.
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
            self.ready.push_back(Update { sequence: task.version, item: StreamItem::Message(message) });
            self.source = None;
        }
    }
}

// === impl Source ===

impl Source {
    fn new(task: &Task, reader: Reader, ends: Ends, form: StreamAs) -> Self {
        let task_ref = Arc::new(TaskRef { task: task.id.clone(), context: task.context.clone() });
        Self { reader, seen: task.version, task_ref, state: task.status.state, ends, form }
    }

    /// Whether the log has unread events.
    fn is_behind(&self) -> bool {
        self.seen < self.reader.task().version
    }

    /// Whether the log has unread events after the end of the task.
    fn is_late_behind(&self) -> bool {
        self.state.is_terminal() && self.is_behind()
    }

    /// Returns the event for the stream, and whether it is the last one.
    fn stream_event(&mut self, event: Arc<Event>, sequence: u64) -> (StreamEvent, bool) {
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
        let (task_ref, state, form) = (Arc::clone(&self.task_ref), self.state, self.form);
        (StreamEvent { task_ref, event, state, last, sequence, form }, over)
    }
}

fn snapshot(task: Arc<Task>, history_length: Option<usize>) -> Update {
    Update { sequence: task.version, item: StreamItem::Task(View::new(task, history_length)) }
}

/// Whether the event says only that the turn is working.
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
