//! Following a turn as it happens.
//!
//! The turn's stream is read until the task is over or asks. A stream that ends before that was cut, and is taken up
//! again after the last event that came, with a pause that doubles: five times in a row without news, and within the
//! turn's time. An agent that does not number its events cannot say what was missed, so there the task itself is asked
//! for, again and again, until it is settled; what is missing on the screen is then added. The same where the agent
//! refuses to take a stream up.

use std::cell::RefCell;
use std::time::Duration;

use serde_json::{Value, json};
use talaria_egress::Exchange;
use tokio::time::Instant;

use crate::cli::Protocol;

use super::SendError;
use super::agent::{Agent, Incoming};
use super::answer::{self, Standing};
use super::card::Interface;
use super::request::{self, About, Delivery, Outgoing};
use super::screen::Screen;
use super::transcript::{Piece, Transcript};
use super::update::{Update, is_chunk, one_line, status_line, tool_progress};

/// How often a cut stream is taken up again, in a row.
const ATTEMPTS: u32 = 5;
/// The artifact that pieces of an answer in statuses are of; the whole comes as that in the end.
const REPLY: &str = "reply";
/// Between two questions how a task stands: first, and at most. A person does not wait longer for a sign of life.
const POLL: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));

/// The task that is at work, as soon as its id is known.
#[derive(Debug, Default)]
pub(super) struct TaskSeen(RefCell<Option<String>>);

/// One turn, followed.
pub(super) struct Follower<'a> {
    pub(super) agent: &'a Agent,
    pub(super) interface: &'a Interface,
    pub(super) screen: &'a Screen,
    pub(super) seen: &'a TaskSeen,
    pub(super) transcript: &'a mut Transcript,
    /// The first pause before a cut stream is taken up again.
    pub(super) back_off: Duration,
}

/// A turn under way.
struct Turn<'a, 'b> {
    at: &'b mut Follower<'a>,
    deadline: Instant,
    standing: Standing,
    question: String,
    /// What the agent said last about its work.
    said: String,
    /// The message went to a task that was there: what its first snapshot shows is from before.
    goes_on: bool,
    /// This is not the first stream of the turn.
    resumed: bool,
    /// A piece of the answer came in a status.
    in_pieces: bool,
    /// The id of the last event.
    last: Option<String>,
    /// Attempts to take up the stream since the last news.
    attempts: u32,
}

// === impl TaskSeen ===

impl TaskSeen {
    pub(super) fn new(task: Option<String>) -> Self {
        Self(RefCell::new(task))
    }

    pub(super) fn task(&self) -> Option<String> {
        self.0.borrow().clone()
    }

    fn set(&self, task: &str) {
        self.0.replace(Some(task.to_owned()));
    }
}

// === impl Follower ===

impl Follower<'_> {
    /// Sends a message and shows what becomes of it, until the agent's turn is over. Gives how things stand then, and what
    /// the agent asks where it asks.
    pub(super) async fn follow(&mut self, outgoing: &Outgoing) -> Result<(Standing, String), SendError> {
        self.transcript.begin_turn();
        let envelope = request::send(self.interface, outgoing, Delivery::Streamed);
        let now = Instant::now();
        let mut turn = Turn {
            // A time beyond what the clock can hold is none.
            deadline: now
                .checked_add(self.agent.timeout)
                .unwrap_or(now + Duration::from_secs(365 * 24 * 3_600)),
            standing: Standing::default(),
            question: String::new(),
            said: String::new(),
            goes_on: outgoing.task.is_some(),
            resumed: false,
            in_pieces: false,
            last: None,
            attempts: 0,
            at: self,
        };
        let ended = turn.run(&envelope).await;
        turn.at.screen.end_line();
        ended.map(|()| (turn.standing, turn.question))
    }
}

// === impl Turn ===

impl Turn<'_, '_> {
    async fn run(&mut self, envelope: &Value) -> Result<(), SendError> {
        let mut incoming = self.at.agent.open(self.at.interface, envelope, None, self.left()).await?;
        loop {
            let over = match &mut incoming {
                Incoming::Events(events) => self.read(events).await?,
                Incoming::Whole(result) => self.take(result) || self.standing.is_settled(),
            };
            if over {
                return Ok(());
            }
            match self.take_up().await? {
                Some(again) => incoming = again,
                None => return self.poll().await,
            }
        }
    }

    /// Reads a stream to its end; whether that is the turn's.
    async fn read(&mut self, events: &mut Exchange) -> Result<bool, SendError> {
        while let Some((id, result)) = self.at.agent.event(self.at.interface, events).await? {
            if id.is_some() {
                self.last = id;
            }
            // A snapshot is what every new stream begins with, and no sign that this one holds.
            if !matches!(Update::of(&result), Update::Task(_)) {
                self.attempts = 0;
            }
            if self.take(&result) {
                return Ok(true);
            }
        }
        Ok(self.standing.is_settled())
    }

    /// Takes up a stream that was cut; `None` where that cannot be done.
    async fn take_up(&mut self) -> Result<Option<Incoming>, SendError> {
        let Some(task) = self.standing.task.clone() else {
            let what = "the stream broke off before the agent named a task; the turn may still go on";
            return Err(SendError::Agent(what.into()));
        };
        let Some(last) = self.last.clone() else {
            self.at.screen.note("the stream broke off; asking for the task from now on…");
            return Ok(None);
        };
        self.resumed = true;
        while self.attempts < ATTEMPTS {
            self.at.screen.note(format!("the stream broke off; going on after event {}…", one_line(&last)));
            self.pause().await?;
            let envelope = request::about(self.at.interface, &task, About::Subscribe);
            match self.at.agent.open(self.at.interface, &envelope, Some(&last), self.left()).await {
                Ok(incoming) => return Ok(Some(incoming)),
                // Over already, or unknown to the agent: the task itself tells.
                Err(SendError::Refused { .. }) => return Ok(None),
                Err(SendError::Agent(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Asks how the task stands until it is settled.
    async fn poll(&mut self) -> Result<(), SendError> {
        self.resumed = true;
        let task = self.standing.task.clone().unwrap_or_default();
        let envelope = request::about(self.at.interface, &task, About::Get);
        let (mut pause, longest) = POLL;
        loop {
            match self.at.agent.call(self.at.interface, &envelope, self.left()).await {
                Ok(task) => {
                    self.attempts = 0;
                    let result = match self.at.interface.protocol {
                        Protocol::V1_0 => json!({ "task": task }),
                        Protocol::V0_3 => task,
                    };
                    let Update::Task(task) = Update::of(&result) else {
                        return Err(SendError::Agent("the agent's result is no task".into()));
                    };
                    if Standing::of_task(task).is_settled() {
                        self.take(&result);
                        return Ok(());
                    }
                    self.show_task(task);
                }
                Err(SendError::Agent(_)) if self.attempts < ATTEMPTS => {
                    self.pause().await?;
                    continue;
                }
                Err(error) => return Err(error),
            }
            self.sleep(pause).await?;
            pause = (pause * 2).min(longest);
        }
    }

    async fn pause(&mut self) -> Result<(), SendError> {
        let pause = self.at.back_off * 2u32.saturating_pow(self.attempts);
        self.attempts += 1;
        self.sleep(pause).await
    }

    async fn sleep(&self, pause: Duration) -> Result<(), SendError> {
        if self.left() <= pause {
            tokio::time::sleep_until(self.deadline).await;
            return Err(self.at.agent.overdue());
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// What is left of the turn's time.
    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Shows what the agent said; whether the turn is over with it.
    fn take(&mut self, result: &Value) -> bool {
        self.at.screen.event(result);
        match Update::of(result) {
            Update::Task(task) => {
                self.show_task(task);
                // The first stream of a turn may begin with the task as it was before; its end tells.
                self.resumed && self.standing.is_settled()
            }
            Update::Message(message) => {
                self.standing = Standing::of_message(message);
                self.line(&answer::parts_text(message));
                true
            }
            Update::Status(update) => {
                if let Some(progress) = tool_progress(update) {
                    self.stand(Standing { state: None, ..Standing::of_update(update) }, "");
                    self.at.screen.note(one_line(&progress));
                    return false;
                }
                if is_chunk(update) {
                    self.stand(Standing::of_update(update), "");
                    if !std::mem::replace(&mut self.in_pieces, true) {
                        self.at.transcript.forget(REPLY);
                    }
                    let message = update.get("status").and_then(|status| status.get("message"));
                    let text = message.map(answer::flowing_text).unwrap_or_default();
                    let piece = self.at.transcript.append(REPLY, &text);
                    self.show(piece);
                    return false;
                }
                let said = answer::status_text(update);
                let said = if said.is_empty() { status_line(update).unwrap_or_default() } else { &said };
                self.stand(Standing::of_update(update), said);
                self.standing.is_over() || self.standing.asks()
            }
            Update::Artifact(update) => {
                self.stand(Standing::of_update(update), "");
                if let Some(artifact) = update.get("artifact") {
                    let append = update.get("append").and_then(Value::as_bool) == Some(true);
                    let (id, text) = (artifact_id(artifact), answer::flowing_text(artifact));
                    let piece = match append {
                        true => self.at.transcript.append(id, &text),
                        false => self.at.transcript.replace(id, &text),
                    };
                    self.show(piece);
                }
                false
            }
            Update::Other => false,
        }
    }

    /// Shows what is new in a snapshot.
    fn show_task(&mut self, task: &Value) {
        let standing = Standing::of_task(task);
        let is_old = std::mem::take(&mut self.goes_on) && !self.resumed && !standing.is_over();
        for artifact in answer::list(task, "artifacts") {
            let (id, text) = (artifact_id(artifact), answer::flowing_text(artifact));
            if is_old {
                self.at.transcript.know(id, &text);
            } else {
                let piece = self.at.transcript.replace(id, &text);
                self.show(piece);
            }
        }
        let mut said = answer::status_text(task);
        if said.is_empty() && standing.is_over() && self.at.transcript.is_blank() {
            said = answer::last_word(task);
        }
        self.stand(standing, &said);
    }

    /// Takes down how things stand, and tells what has changed: with the agent's words where it has the last one.
    fn stand(&mut self, now: Standing, said: &str) {
        let is_first = self.standing.task.is_none();
        if let Some(task) = &now.task {
            self.at.seen.set(task);
        }
        let changed = now.state.is_some() && now.state != self.standing.state;
        self.standing = Standing {
            state: now.state.or_else(|| self.standing.state.take()),
            task: now.task.or_else(|| self.standing.task.take()),
            context: now.context.or_else(|| self.standing.context.take()),
        };
        let state = self.standing.state.as_deref().unwrap_or("working");
        if self.standing.asks() {
            self.question = said.to_owned();
        }
        // The end is told by whoever waits for it.
        if self.standing.is_over() || self.standing.asks() {
            if self.standing.is_over() && !self.at.transcript.has_shown(said) {
                self.line(said);
            }
        } else if !said.is_empty() && (changed || said != self.said) {
            self.at.screen.note(format!("{state}: {}", one_line(said)));
            self.said = said.to_owned();
        } else if is_first && self.standing.task.is_some() {
            self.at.screen.note(self.standing.summary());
        } else if changed {
            self.at.screen.note(state);
        }
    }

    fn show(&self, piece: Option<Piece>) {
        if let Some(Piece { begins_line, text }) = piece {
            if begins_line {
                self.at.screen.end_line();
            }
            self.at.screen.words(&text);
        }
    }

    /// Says something on a line of its own.
    fn line(&self, text: &str) {
        self.at.screen.end_line();
        self.at.screen.words(text);
        self.at.screen.end_line();
    }
}

fn artifact_id(artifact: &Value) -> &str {
    artifact.get("artifactId").and_then(Value::as_str).unwrap_or_default()
}
