//! What a turn has emitted so far, and the events that end it.
//!
//! An answer that was streamed is stored once more as a whole before the event that ends the turn ([`Event::Whole`]). A
//! reader that begins in the middle, or that is not sent pieces, then needs nothing but the log from there on. If the
//! outcome differs from the pieces in white space only, the pieces count, and the outcome's text is not sent a second
//! time. Artifacts that the executor left open are closed.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::executor::{Emitted, Failure, FinalState, Outcome, ToolProgress, ToolState};
use crate::keys;
use crate::live_task::Events;
use crate::model::{Artifact, Content, Metadata, Part};
use crate::task::{Event, REPLY, State, Task};

/// The tool calls that the metadata of an answer lists, and the characters of each one's line: what the platform shows.
const TRACED: usize = 40;
const TRACED_LINE: usize = 200;
/// The open artifacts of a turn that are closed when it ends. No executor streams as many at once.
const OPEN: usize = 64;

/// What a turn has emitted so far.
#[derive(Default)]
pub(super) struct Progress {
    /// The streamed text of the answer.
    reply: Option<String>,
    /// The questions that were asked since the checkpoint.
    pub(super) asked: usize,
    /// The tool calls that began, as `[{tool, input}]`.
    trace: Vec<Value>,
    /// The ids of the executor's artifacts that have pieces, but not a last one.
    open: Vec<String>,
}

impl Progress {
    /// Turns what the executor emitted into an event.
    pub(super) fn event(&mut self, emitted: Emitted) -> Event {
        match emitted {
            Emitted::TextDelta(text) => {
                let append = self.reply.is_some();
                self.reply.get_or_insert_default().push_str(&text);
                Event::Artifact { artifact: reply(vec![Part::text(text)]), append, last: false }
            }
            Emitted::Artifact { artifact, append, last } => {
                self.open.retain(|id| *id != artifact.id);
                if !last && self.open.len() < OPEN {
                    self.open.push(artifact.id.clone());
                }
                Event::Artifact { artifact: Arc::new(artifact), append, last }
            }
            Emitted::Status(text) => Event::said(State::Working, vec![Part::text(text)]),
            Emitted::Tool(tool) => {
                self.trace(&tool);
                Event::Note {
                    name: "tool-progress".into(),
                    value: json!({
                        "id": tool.id,
                        "name": tool.name,
                        "state": match tool.state {
                            ToolState::Started => "started",
                            ToolState::Completed => "completed",
                            ToolState::Failed => "failed",
                        },
                        "label": tool.label,
                        "metadata": tool.metadata,
                    }),
                }
            }
            Emitted::Custom { name, value } => Event::Note { name, value },
        }
    }

    /// Returns the last events of a cancelled turn.
    pub(super) fn cancelled(self) -> Vec<Event> {
        self.closed_by(Event::ended(State::Canceled, Vec::new(), None))
    }

    /// Returns the last events of a failed turn.
    pub(super) fn failed(self, failure: Failure) -> Vec<Event> {
        self.closed_by(Event::ended(State::Failed, vec![Part::text(failure.message)], None))
    }

    /// Returns the last events of a turn with an outcome.
    pub(super) fn ended(mut self, outcome: Outcome) -> Vec<Event> {
        let Outcome { state, parts, usage, metadata } = outcome;
        let mut metadata = metadata.unwrap_or_default();
        let status = metadata.remove(keys::STATUS).and_then(|text| text.as_str().map(str::to_owned));
        if let Some(usage) = usage {
            metadata.insert(
                "usage".into(),
                json!({ "input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens }),
            );
        }
        let trace = std::mem::take(&mut self.trace);
        if !trace.is_empty() {
            metadata.entry("tool_trace").or_insert_with(|| trace.into());
        }
        let metadata = Some(metadata).filter(|metadata: &Metadata| !metadata.is_empty());
        let state = match state {
            FinalState::Completed => {
                let ended =
                    Event::ended(State::Completed, status.into_iter().map(Part::text).collect(), metadata);
                if parts.is_empty() {
                    return self.closed_by(ended);
                }
                let answer = answer(self.reply.take(), parts);
                return self.closings().chain([answer, ended]).collect();
            }
            FinalState::InputRequired => State::InputRequired,
            FinalState::AuthRequired => State::AuthRequired,
            FinalState::Rejected => State::Rejected,
        };
        self.closed_by(Event::ended(state, parts, metadata))
    }

    /// Returns the last events of a turn whose task stays open, if its outcome completes it. The answer is a promise: it
    /// becomes the message of a status, unless it was streamed and so has been read.
    pub(super) fn held(&self, outcome: &Outcome) -> Option<Vec<Event>> {
        if outcome.state != FinalState::Completed {
            return None;
        }
        let parts = if self.reply.is_some() { Vec::new() } else { outcome.parts.clone() };
        let mut metadata = outcome.metadata.clone().unwrap_or_default();
        metadata.remove(keys::STATUS);
        let metadata = Some(metadata).filter(|metadata| !metadata.is_empty());
        let closings = self.open.iter().map(|id| closing(id));
        Some(closings.chain([Event::ended(State::Working, parts, metadata)]).collect())
    }

    /// The end of a turn that adds nothing to its answer: what was streamed is closed before it.
    fn closed_by(mut self, end: Event) -> Vec<Event> {
        let whole = self.reply.take().map(|said| Event::Whole(reply(vec![Part::text(said)])));
        self.closings().chain(whole).chain([end]).collect()
    }

    /// Closes the artifacts that were left open.
    fn closings(self) -> impl Iterator<Item = Event> {
        self.open.into_iter().map(|id| closing(&id))
    }

    fn trace(&mut self, tool: &ToolProgress) {
        if tool.state == ToolState::Started && self.trace.len() < TRACED {
            let line: String = tool.label.iter().flat_map(|label| label.chars()).take(TRACED_LINE).collect();
            self.trace.push(json!({ "tool": tool.name, "input": line }));
        }
    }
}

/// The last piece of an artifact, without content.
fn closing(id: &str) -> Event {
    Event::Artifact { artifact: Arc::new(Artifact::new(id, Vec::new())), append: true, last: true }
}

/// Keeps a task working that would be completed by `events`, if it has messages that are not answered yet.
pub(super) fn unless_pending(events: &Events, task: &Task) -> Events {
    let mut kept = Events::clone(events);
    if task.pending.len() > 1
        && let Some(last) = Arc::make_mut(&mut kept).last_mut()
        && last.state() == Some(State::Completed)
        && let Event::Status { status, .. } = Arc::make_mut(last)
    {
        status.state = State::Working;
    }
    kept
}

/// The answer of a turn. If it was streamed, and these parts have the same text but for white space, the streamed text
/// counts; parts other than text follow it.
fn answer(streamed: Option<String>, parts: Vec<Part>) -> Event {
    let Some(streamed) = streamed.filter(|streamed| has_text(&parts, streamed)) else {
        return Event::Artifact { artifact: reply(parts), append: false, last: true };
    };
    let (mut texts, others): (Vec<Part>, Vec<Part>) = parts.into_iter().partition(Part::is_text);
    if let Some(text) = texts.first_mut() {
        text.content = Content::Text(streamed);
    }
    texts.extend(others);
    Event::Whole(reply(texts))
}

/// Whether there is one text part, not a file, and it is this text but for white space.
fn has_text(parts: &[Part], streamed: &str) -> bool {
    let mut texts = parts.iter().filter(|part| part.is_text());
    match (texts.next(), texts.next()) {
        (Some(Part { content: Content::Text(text), filename: None, .. }), None) => {
            characters(text).eq(characters(streamed))
        }
        _ => false,
    }
}

/// The characters of a text without its white space.
fn characters(text: &str) -> impl Iterator<Item = char> {
    text.chars().filter(|char| !char.is_whitespace())
}

fn reply(parts: Vec<Part>) -> Arc<Artifact> {
    Arc::new(Artifact::new(REPLY, parts))
}
