//! A turn: its message, and what becomes of the agent's task.
//!
//! A stream is read as long as it lasts. When it ends, breaks or stays silent, the agent is asked for the task, whose state
//! decides; then the stream is opened again, a few times, and after that the agent is asked at growing intervals. An agent
//! that is away for a while is asked on. A task that is not over when the turn's time is, is cancelled.

use talaria_guest::{Failure, FailureKind, FinalState, Outcome, Part, Turn, control};
use talaria_upstream::warn;

use crate::decode::{Ids, Item, Status, item};
use crate::encode;
use crate::fault::{Fault, error, reason};
use crate::gathered::{Gathered, text_of};
use crate::memory::{self, Checkpoint, Open};
use crate::peer::{MARGIN_MS, Peer};
use crate::state::State;
use crate::stream::Stream;
use crate::{OnRestart, Settings};

/// The silence after which the agent is asked for the task, although its stream is open.
const SILENCE_MS: u32 = 30_000;
/// The longest pause between two questions.
const PAUSE_MS: u32 = 30_000;
/// How often in a row the agent may not answer when it is asked for a task. With the pauses it has some minutes to return.
const MISSES: u32 = 12;
/// How often a task may show the question that was answered, before it counts as asked again.
const STALE: u32 = 6;
/// How often in a row a stream is opened again that brought nothing.
const REOPENED: u32 = 3;

/// A turn on its way.
pub(crate) struct Following<'a> {
    turn: &'a Turn,
    settings: &'a Settings,
    peer: Peer,
    /// The agent's task.
    task: Option<String>,
    /// The agent's context.
    context: Option<String>,
    /// The agent's task that waits for this message.
    answers: Option<Open>,
    gathered: Gathered,
    /// The last status that was reported.
    reported: String,
    /// How often the question that this message answers was seen since.
    stale: u32,
    /// What is left of the turn's time for its end.
    margin_ms: u32,
    pause_ms: u32,
    reopened: u32,
}

impl<'a> Following<'a> {
    /// Sends the message of a turn and follows what becomes of it.
    pub(crate) fn begin(turn: &'a Turn, settings: &'a Settings, peer: Peer) -> Result<Outcome, Failure> {
        let (context, answers) = (memory::context(&peer.url)?, memory::open(turn)?);
        let mut this = Self::new(turn, settings, peer, context, answers);
        if let Some(outcome) = this.went_on()? {
            return Ok(outcome);
        }
        this.send()
    }

    /// Takes a turn up again after a restart.
    pub(crate) fn resume(
        turn: &'a Turn,
        settings: &'a Settings,
        checkpoint: Checkpoint,
    ) -> Result<Outcome, Failure> {
        let Checkpoint { peer, task, context, answers } = checkpoint;
        let mut this = Self::new(turn, settings, peer, context, memory::open(turn)?);
        if task.is_none() {
            return this.send();
        }
        // A task that was begun anew answers nothing.
        this.answers =
            this.answers.filter(|open| Some(&open.task) == task.as_ref() && Some(open.mark) == answers);
        this.task = task;
        this.follow(None)
    }

    fn new(
        turn: &'a Turn,
        settings: &'a Settings,
        peer: Peer,
        context: Option<String>,
        answers: Option<Open>,
    ) -> Self {
        Self {
            turn,
            settings,
            peer,
            task: None,
            context,
            answers,
            gathered: Gathered::new(turn.streaming),
            reported: String::new(),
            stale: 0,
            margin_ms: MARGIN_MS.min(turn.budget_ms / 10),
            pause_ms: settings.poll_seconds.saturating_mul(1_000),
            reopened: 0,
        }
    }

    /// The end of a task that waited for an authentication and then went on by itself: its answer is what the caller waits
    /// for, and a message would come too late.
    fn went_on(&mut self) -> Result<Option<Outcome>, Failure> {
        let Some(open) = self.answers.clone().filter(|open| open.auth) else { return Ok(None) };
        match self.peer.task(&open.task).and_then(item) {
            Ok(now @ Item::Task { .. }) if matches!(&now, Item::Task { status, .. } if status.state.is_terminal()) =>
            {
                self.task = Some(open.task);
                self.take(now)
            }
            Err(fault) if fault.is_cancelled() => Err(fault.into()),
            // The send will say what is wrong.
            _ => Ok(None),
        }
    }

    fn send(&mut self) -> Result<Outcome, Failure> {
        if self.settings.on_restart == OnRestart::Retry {
            self.checkpoint();
        }
        let delivered = match self.deliver() {
            // The agent refused it, so that it did nothing with it.
            Err(Fault::Refused { .. }) if self.is_over() => {
                warn("the agent's task is over; the message begins another one in its context");
                self.answers = None;
                self.deliver()
            }
            delivered => delivered,
        };
        let (first, stream) = delivered.map_err(undelivered)?;
        match self.take(item(first)?)? {
            Some(outcome) => Ok(outcome),
            None if self.task.is_none() => {
                Err(error("it answered without a task and without a message; the message was not sent again"))
            }
            None => self.follow(Some(stream)),
        }
    }

    /// Sends the message. Returns the first answer, and what else comes.
    fn deliver(&self) -> Result<(serde_json::Value, Stream), Fault> {
        let answers = self.answers.as_ref().map(|open| open.task.as_str());
        let params = || encode::send(self.turn, self.settings, &self.peer, answers, self.context.as_deref());
        let mut stream = if self.peer.streams {
            match self.peer.stream(params()) {
                // Its card promises more than it does, and a message to a task that is over is refused in the same way.
                Err(fault) if fault.is_unsupported() && answers.is_none() => {
                    Stream::One(Some(self.peer.send(params())?))
                }
                opened => opened?,
            }
        } else {
            Stream::One(Some(self.peer.send(params())?))
        };
        match stream.next()? {
            Some(first) => Ok((first, stream)),
            None => Err(Fault::Nonsense(
                "its stream ended before it said what became of the message, which was not sent again".into(),
            )),
        }
    }

    /// Whether the task that the message was for is over, or the agent does not know it any more.
    fn is_over(&self) -> bool {
        let Some(open) = &self.answers else { return false };
        match self.peer.task(&open.task).and_then(item) {
            Ok(Item::Task { status, .. }) => status.state.is_terminal(),
            Ok(_) => false,
            Err(fault) => fault.is_no_task(),
        }
    }

    /// Follows the task to its end.
    fn follow(&mut self, stream: Option<Stream>) -> Result<Outcome, Failure> {
        let (mut stream, mut misses) = (stream, 0);
        loop {
            if let Some(open) = &mut stream {
                if let Some(outcome) = self.read(open)? {
                    return Ok(outcome);
                }
                self.gathered.is_patchy |= matches!(open, Stream::Events(..));
                stream = None;
            }
            match self.ask() {
                Ok(Some(outcome)) => return Ok(outcome),
                Ok(None) => misses = 0,
                Err(Lost::Passing(fault)) if misses < MISSES => {
                    misses += 1;
                    warn(&format!("the agent did not say how its task is: {}", Failure::from(fault).message));
                }
                Err(Lost::Passing(fault)) => return Err(self.away(fault)),
                Err(Lost::Failed(failure)) => return Err(failure),
            }
            if misses == 0 && self.peer.streams && self.reopened < REOPENED {
                self.reopened += 1;
                match self.peer.subscribe(self.named()?) {
                    Ok(opened) => {
                        // Some agents do not say where their task is by then.
                        self.gathered.is_patchy = true;
                        stream = Some(opened);
                        continue;
                    }
                    Err(fault) if fault.is_cancelled() => return Err(fault.into()),
                    Err(_) => self.reopened = REOPENED,
                }
            }
            self.wait()?;
        }
    }

    /// Reads a stream until it ends; returns the outcome if the task ends with it.
    fn read(&mut self, stream: &mut Stream) -> Result<Option<Outcome>, Failure> {
        loop {
            if !stream.is_ready(SILENCE_MS.min(self.time_left()?)) {
                match self.ask() {
                    Ok(Some(outcome)) => return Ok(Some(outcome)),
                    Ok(None) | Err(Lost::Passing(_)) => continue,
                    Err(Lost::Failed(failure)) => return Err(failure),
                }
            }
            match stream.next() {
                Ok(Some(answer)) => {
                    self.reopened = 0;
                    if let Some(outcome) = self.take(item(answer)?)? {
                        return Ok(Some(outcome));
                    }
                }
                Ok(None) => return Ok(None),
                Err(fault) if fault.is_passing() => {
                    warn(&format!(
                        "the agent's stream broke; asking for its task: {}",
                        Failure::from(fault).message
                    ));
                    return Ok(None);
                }
                Err(fault) => return Err(fault.into()),
            }
        }
    }

    /// Asks the agent for the task; returns the outcome if it is over.
    fn ask(&mut self) -> Result<Option<Outcome>, Lost> {
        let task = self.named().map_err(Lost::Failed)?.to_owned();
        let answered = self.peer.task(&task).and_then(item);
        match answered {
            Ok(now @ Item::Task { .. }) => self.take(now).map_err(Lost::Failed),
            Ok(_) => Err(Lost::Failed(error("it was asked for a task and answered something else"))),
            Err(fault) if fault.is_passing() => Err(Lost::Passing(fault)),
            Err(fault) if fault.is_no_task() => {
                Err(Lost::Failed(error("it does not know its task any more, and its answer is lost")))
            }
            Err(fault) => Err(Lost::Failed(fault.into())),
        }
    }

    /// Waits before the next question.
    fn wait(&mut self) -> Result<(), Failure> {
        let ms = self.pause_ms.min(PAUSE_MS);
        self.pause_ms = ms.saturating_mul(2);
        if control::sleep(ms.min(self.time_left()?)) {
            Ok(())
        } else {
            Err(Failure::new(FailureKind::Cancelled, "the turn was cancelled"))
        }
    }

    /// The time that is left for the task; cancels it if there is none.
    fn time_left(&self) -> Result<u32, Failure> {
        let left = control::remaining_ms().saturating_sub(self.margin_ms);
        if left > 0 {
            return Ok(left);
        }
        let stopped = self.task.as_deref().map_or(Ok(()), |task| self.peer.cancel(task));
        if let Err(failure) = stopped {
            warn(&format!("task not cancelled; the agent may still be at work: {}", failure.message));
        }
        let why = "[agent error] its task took longer than the turn may and was cancelled";
        Err(Failure::new(FailureKind::TimedOut, why))
    }

    /// Takes something that the agent said; returns the outcome if the task, or the message, is over with it.
    fn take(&mut self, said: Item) -> Result<Option<Outcome>, Failure> {
        match said {
            Item::Task { ids, status, artifacts } => {
                self.name(ids)?;
                self.gathered.snapshot(artifacts)?;
                self.gathered.is_patchy = false;
                if self.is_stale(&status) { Ok(None) } else { self.status(status) }
            }
            Item::Status { ids, status, tool } => {
                self.name(ids)?;
                if let Some(tool) = tool {
                    self.gathered.tool(tool)?;
                }
                self.status(status)
            }
            Item::Artifact { ids, artifact } => {
                self.name(ids)?;
                self.gathered.piece(artifact)?;
                Ok(None)
            }
            Item::Message { .. } if self.task.is_some() => {
                Err(error("it answered with a message after it had begun a task"))
            }
            Item::Message { context, parts } => {
                self.settle_context(context)?;
                self.forget_open()?;
                Ok(Some(Outcome::new(FinalState::Completed, parts)))
            }
            Item::Unknown => Ok(None),
        }
    }

    /// Whether a task still shows the question that this message answers, because the agent has not gone on yet. An agent that
    /// shows it again and again asks the same once more.
    fn is_stale(&mut self, status: &Status) -> bool {
        let is_same = self.answers.as_ref().is_some_and(|open| open.mark == status.mark);
        self.stale += u32::from(is_same);
        status.state.is_interrupted() && is_same && self.stale <= STALE
    }

    /// Checks that this belongs to the task, or makes it the task, which is then stored.
    fn name(&mut self, ids: Ids) -> Result<(), Failure> {
        // Some agents, hermes-agent among them, begin a task for each message of a context, whatever task it names.
        if self.task.is_none()
            && self.context.is_some()
            && self.context == ids.context
            && self.answers.as_ref().is_some_and(|open| open.task != ids.task)
        {
            self.answers = None;
        }
        let known = self.task.as_deref().or(self.answers.as_ref().map(|open| open.task.as_str()));
        if let Some(known) = known.filter(|known| *known != ids.task) {
            return Err(error(&format!("it spoke of the task {} and was asked about {known}", ids.task)));
        }
        self.settle_context(ids.context)?;
        if self.task.is_none() {
            self.task = Some(ids.task);
            self.checkpoint();
        }
        Ok(())
    }

    /// Checks that the agent speaks of the context that it was asked in, or stores the one that it made.
    fn settle_context(&mut self, context: Option<String>) -> Result<(), Failure> {
        match (&self.context, context) {
            (_, None) => Ok(()),
            (Some(known), Some(said)) if *known == said => Ok(()),
            (Some(known), Some(said)) => {
                Err(error(&format!("it answered in the context {said} and was asked in {known}")))
            }
            (None, Some(said)) => {
                memory::set_context(&self.peer.url, &said)?;
                self.context = Some(said);
                Ok(())
            }
        }
    }

    fn checkpoint(&self) {
        let (task, context) = (self.task.clone(), self.context.clone());
        let answers = self.answers.as_ref().map(|open| open.mark);
        Checkpoint { peer: self.peer.clone(), task, context, answers }.store();
    }

    fn status(&mut self, status: Status) -> Result<Option<Outcome>, Failure> {
        let state = status.state;
        if !state.is_terminal() && !state.is_interrupted() {
            if status.is_chunk {
                self.gathered.chunk(status.parts)?;
            } else {
                let text = text_of(&status.parts);
                if self.reported != text {
                    self.reported.clone_from(&text);
                    self.pause_ms = self.settings.poll_seconds.saturating_mul(1_000);
                    self.gathered.report(text)?;
                }
            }
            return Ok(None);
        }
        self.fill_gaps()?;
        self.end(status).map(Some)
    }

    /// Reads the artifacts once more if pieces of them may have been missed.
    fn fill_gaps(&mut self) -> Result<(), Failure> {
        if !core::mem::take(&mut self.gathered.is_patchy) {
            return Ok(());
        }
        let Some(task) = self.task.as_deref() else { return Ok(()) };
        match self.peer.task(task).and_then(item) {
            Ok(Item::Task { artifacts, .. }) => self.gathered.snapshot(artifacts),
            _ => {
                warn(
                    "pieces of the agent's answer may be missing: its stream broke, and its task cannot be read",
                );
                Ok(())
            }
        }
    }

    /// The outcome of a task in its last state, or one that waits for its caller.
    fn end(&mut self, status: Status) -> Result<Outcome, Failure> {
        let state = status.state;
        if state.is_interrupted() {
            let (task, mark) = (self.named()?.to_owned(), status.mark);
            let auth = state == State::AuthRequired;
            memory::set_open(self.turn, Some(&Open { task, mark, auth }))?;
        } else {
            self.forget_open()?;
        }
        let said = text_of(&status.parts);
        let or = |parts: Vec<Part>, otherwise: &str| {
            if parts.is_empty() { vec![Part::text(otherwise)] } else { parts }
        };
        match state {
            State::InputRequired => {
                self.gathered.show_rest()?;
                let parts = or(status.parts, "The agent asks for input, and does not say for what.");
                Ok(Outcome::new(FinalState::InputRequired, parts))
            }
            State::AuthRequired => {
                self.gathered.show_rest()?;
                let parts = or(status.parts, "The agent asks for an authentication, and does not say where.");
                Ok(Outcome::new(FinalState::AuthRequired, parts))
            }
            State::Rejected => {
                let parts = or(status.parts, "The agent rejected the message, and does not say why.");
                Ok(Outcome::new(FinalState::Rejected, parts))
            }
            State::Failed => Err(reason(&said, "its task failed, and it does not say why")),
            State::Canceled => Err(reason(&said, "it cancelled its task, and does not say why")),
            State::Completed | State::Submitted | State::Working => {
                let gathered = core::mem::replace(&mut self.gathered, Gathered::new(false));
                Ok(gathered.outcome(status))
            }
        }
    }

    /// Our task continues none of the agent's any more.
    fn forget_open(&mut self) -> Result<(), Failure> {
        // What was not stored needs no removal.
        if self.turn.history.is_empty() { Ok(()) } else { memory::set_open(self.turn, None) }
    }

    fn named(&self) -> Result<&str, Failure> {
        self.task.as_deref().ok_or_else(|| error("it did not say which task the message went into"))
    }

    /// The failure of an agent that was asked too often.
    fn away(&self, fault: Fault) -> Failure {
        let failure = Failure::from(fault);
        let message = format!("{}; its task was asked for {} times", failure.message, MISSES + 1);
        Failure { message, ..failure }
    }
}

/// Why the agent was not heard.
enum Lost {
    /// It may be heard a little later.
    Passing(Fault),
    /// The turn has failed.
    Failed(Failure),
}

/// The failure of a message that has no answer. It says so where the agent may have got the message.
fn undelivered(fault: Fault) -> Failure {
    let is_open = matches!(
        &fault,
        Fault::Http(talaria_guest::http::Error {
            kind: talaria_guest::http::ErrorKind::TimedOut | talaria_guest::http::ErrorKind::Protocol,
            ..
        })
    );
    let failure = Failure::from(fault);
    if is_open {
        let message =
            format!("{}; the agent may have the message, which was not sent again", failure.message);
        Failure { message, retryable: false, ..failure }
    } else {
        failure
    }
}
