//! Printing a turn while it runs: the agent's text as it arrives, and notes on what the agent does meanwhile.

use std::cell::RefCell;

use serde_json::Value;

use super::render::Renderer;
use super::transcript::{Piece, Transcript};
use super::{SendError, TurnEnd};
use crate::answer::TurnStatus;
use crate::parts::{flowing_text, last_agent_message, list, parts_text, status_text};
use crate::request::Message;
use crate::stream::{StreamItem, TurnStream};
use crate::update::{Update, is_chunk, one_line, status_line, tool_progress};

/// The id of the artifact that holds the whole answer, once its pieces were sent in status messages.
const REPLY: &str = "reply";

/// The id of the running task, as soon as it is known; Ctrl-C cancels this task.
#[derive(Debug, Default)]
pub(super) struct RunningTask(RefCell<Option<String>>);

/// Prints one turn.
pub(super) struct Follower<'a> {
    pub(super) renderer: &'a Renderer,
    pub(super) running: &'a RunningTask,
    pub(super) transcript: &'a mut Transcript,
    /// The status that was printed last.
    shown: TurnStatus,
    question: String,
    /// The agent's last remark on its work.
    remark: String,
    /// Whether the first snapshot shows the task as it was before this message.
    continues_task: bool,
    /// Whether the turn's stream was resumed.
    resumed: bool,
    /// Whether a piece of the answer arrived in a status message.
    in_pieces: bool,
}

// === impl RunningTask ===

impl RunningTask {
    pub(super) fn new(id: Option<String>) -> Self {
        Self(RefCell::new(id))
    }

    pub(super) fn id(&self) -> Option<String> {
        self.0.borrow().clone()
    }

    fn set(&self, id: &str) {
        self.0.replace(Some(id.to_owned()));
    }
}

// === impl Follower ===

impl<'a> Follower<'a> {
    pub(super) fn new(
        renderer: &'a Renderer,
        running: &'a RunningTask,
        transcript: &'a mut Transcript,
        message: &Message,
    ) -> Self {
        Self {
            renderer,
            running,
            transcript,
            shown: TurnStatus::default(),
            question: String::new(),
            remark: String::new(),
            continues_task: message.task.is_some(),
            resumed: false,
            in_pieces: false,
        }
    }

    /// Prints the turn until it is over or wants input.
    pub(super) async fn follow(mut self, mut turn: TurnStream<'_>) -> Result<TurnEnd, SendError> {
        self.transcript.begin_turn();
        let ended = self.print(&mut turn).await;
        self.renderer.end_line();
        ended?;
        Ok(TurnEnd { status: turn.status().clone(), question: self.question, answer: None })
    }

    async fn print(&mut self, turn: &mut TurnStream<'_>) -> Result<(), SendError> {
        while let Some(item) = turn.next().await? {
            self.resumed = turn.has_resumed();
            match item {
                StreamItem::Update(result) => {
                    self.renderer.event(&result);
                    self.print_update(&result, turn.status());
                }
                StreamItem::Snapshot(result) => self.print_update(&result, turn.status()),
                StreamItem::Resuming { after } => {
                    let note = format!("the stream broke off; going on after event {}…", one_line(&after));
                    self.renderer.note(note);
                }
                StreamItem::Polling => {
                    self.renderer.note("the stream broke off; asking for the task from now on…");
                }
            }
        }
        Ok(())
    }

    fn print_update(&mut self, result: &Value, now: &TurnStatus) {
        match Update::of(result) {
            Update::Task(task) => self.print_task(task, now),
            Update::Message(message) => self.print_line(&parts_text(message)),
            Update::Status(update) => self.print_status_update(update, now),
            Update::Artifact(update) => {
                self.print_status(now, "");
                if let Some(artifact) = update.get("artifact") {
                    let append = update.get("append").and_then(Value::as_bool) == Some(true);
                    let (id, text) = (artifact_id(artifact), flowing_text(artifact));
                    let piece = match append {
                        true => self.transcript.append(id, &text),
                        false => self.transcript.replace(id, &text),
                    };
                    self.print_piece(piece);
                }
            }
            Update::Other => {}
        }
    }

    fn print_status_update(&mut self, update: &Value, now: &TurnStatus) {
        if let Some(progress) = tool_progress(update) {
            self.print_status(now, "");
            self.renderer.note(one_line(&progress));
        } else if is_chunk(update) {
            self.print_status(now, "");
            if !std::mem::replace(&mut self.in_pieces, true) {
                self.transcript.reset(REPLY);
            }
            let message = update.get("status").and_then(|status| status.get("message"));
            let text = message.map(flowing_text).unwrap_or_default();
            let piece = self.transcript.append(REPLY, &text);
            self.print_piece(piece);
        } else {
            let text = status_text(update);
            let text = if text.is_empty() { status_line(update).unwrap_or_default() } else { &text };
            self.print_status(now, text);
        }
    }

    /// Prints what a snapshot adds.
    fn print_task(&mut self, task: &Value, now: &TurnStatus) {
        let is_over = TurnStatus::of_task(task).is_terminal();
        let is_old = std::mem::take(&mut self.continues_task) && !self.resumed && !is_over;
        for artifact in list(task, "artifacts") {
            let (id, text) = (artifact_id(artifact), flowing_text(artifact));
            if is_old {
                self.transcript.record_known(id, &text);
            } else {
                let piece = self.transcript.replace(id, &text);
                self.print_piece(piece);
            }
        }
        let mut text = status_text(task);
        if text.is_empty() && is_over && self.transcript.is_blank() {
            text = last_agent_message(task);
        }
        self.print_status(now, &text);
    }

    /// Notes what has changed. The text of a final status is the agent's answer, so it goes to standard output.
    fn print_status(&mut self, now: &TurnStatus, text: &str) {
        let is_first = self.shown.task.is_none();
        let changed = now.state.is_some() && now.state != self.shown.state;
        if let Some(task) = &now.task {
            self.running.set(task);
        }
        self.shown = now.clone();
        let state = now.state.as_deref().unwrap_or("working");
        if now.wants_input() {
            self.question = text.to_owned();
        } else if now.is_terminal() {
            // The session notes the final state itself.
            if !self.transcript.has_shown(text) {
                self.print_line(text);
            }
        } else if !text.is_empty() && (changed || text != self.remark) {
            self.renderer.note(format!("{state}: {}", one_line(text)));
            self.remark = text.to_owned();
        } else if is_first && now.task.is_some() {
            self.renderer.note(now.summary());
        } else if changed {
            self.renderer.note(state);
        }
    }

    fn print_piece(&self, piece: Option<Piece>) {
        if let Some(Piece { begins_line, text }) = piece {
            if begins_line {
                self.renderer.end_line();
            }
            self.renderer.text(&text);
        }
    }

    /// Prints text on a line of its own.
    fn print_line(&self, text: &str) {
        self.renderer.end_line();
        self.renderer.text(text);
        self.renderer.end_line();
    }
}

fn artifact_id(artifact: &Value) -> &str {
    artifact.get("artifactId").and_then(Value::as_str).unwrap_or_default()
}
