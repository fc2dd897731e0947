//! One run, from its start to its end.

use talaria_guest::events::{self, Event};
use talaria_guest::{Failure, FailureKind, Outcome, control, http};

use super::approval::{Answer, Approval, Choice};
use super::events::RunEvent;
use super::status::{End, Status};
use super::{Checkpoint, Gateway, cancelled};
use crate::hermes_agent::{emit, not_passed_on, unreachable};
use crate::{is_event_stream, is_success, warn};

/// The silence after which the status is asked for.
const SILENCE_MS: u32 = 2_000;
/// The first pause between two statuses where there are no events; doubled up to [`SILENCE_MS`].
const PAUSE_MS: u32 = 100;
/// How often in a row the status may be unreadable before the turn gives up, and the first pause in between. Doubled
/// each time, that makes four seconds: enough for a hiccup, and a gateway that restarts has lost the run anyway.
const MISSES: u32 = 4;
const MISS_MS: u32 = 125;
/// How long the status may lag behind the last event.
const LAG_MS: u32 = 200;
const LAGS: u32 = 3;
/// How often the caller is asked for one approval.
const ASKS: u32 = 3;
/// The time that must be left of the turn to stop a run that outlasts it.
const STOP_MS: u32 = 2_500;

/// A run that is being followed.
pub(super) struct Run {
    gateway: Gateway,
    checkpoint: Checkpoint,
    events: Option<http::Exchange>,
    streaming: bool,
    /// Whether any text was passed on.
    said: bool,
    misses: u32,
    pause: u32,
    /// The approval that was dealt with last.
    settled: Option<String>,
}

impl Run {
    /// A run that was just started, with all its events still to come.
    pub(super) fn started(gateway: Gateway, checkpoint: Checkpoint, streaming: bool) -> Self {
        let events = match gateway.events(&checkpoint.run) {
            Ok(exchange) if is_success(exchange.status()) && is_event_stream(&exchange) => Some(exchange),
            Ok(exchange) => {
                lost_events(&format!("status {}", exchange.status()));
                None
            }
            Err(error) => {
                lost_events(&error.message);
                None
            }
        };
        Self { events, ..Self::resumed(gateway, checkpoint, streaming) }
    }

    /// A run from before a restart. Its events went to a reader that is gone.
    pub(super) fn resumed(gateway: Gateway, checkpoint: Checkpoint, streaming: bool) -> Self {
        Self { gateway, checkpoint, events: None, streaming, said: false, misses: 0, pause: 0, settled: None }
    }

    /// Follows the run to its end.
    pub(super) fn follow(mut self) -> Result<Outcome, Failure> {
        loop {
            let Some(left) = control::remaining_ms().checked_sub(STOP_MS) else { return Err(self.give_up()) };
            match self.next(left.min(SILENCE_MS))? {
                Some(RunEvent::Ended(end)) => return self.confirm(end).outcome(),
                Some(event) => self.pass_on(event)?,
                None => {
                    if let Status::Ended(end) = self.look()? {
                        return end.outcome();
                    }
                }
            }
        }
    }

    /// Waits for the next event; `None` when it is time to look at the status.
    fn next(&mut self, patience: u32) -> Result<Option<RunEvent>, Failure> {
        let Some(events) = &self.events else {
            let pause = self.pause;
            self.pause = (pause * 2).clamp(PAUSE_MS, SILENCE_MS);
            return if control::sleep(pause.min(patience)) { Ok(None) } else { Err(cancelled()) };
        };
        if !events.await_event(patience) {
            return Ok(None);
        }
        match events.next_event() {
            Ok(Some(event)) => return Ok(Some(RunEvent::of(&event))),
            Ok(None) => {}
            Err(error) if error.kind == http::ErrorKind::Cancelled => return Err(unreachable(&error)),
            Err(error) => lost_events(&error.message),
        }
        // Never opened again: the gateway would answer with silence.
        self.events = None;
        Ok(None)
    }

    fn pass_on(&mut self, event: RunEvent) -> Result<(), Failure> {
        match event {
            RunEvent::Delta(delta) if self.streaming => {
                // After a tool the gateway begins with line feeds that the final text does not have.
                let delta = if self.said { delta.as_str() } else { delta.trim_start_matches('\n') };
                if delta.is_empty() {
                    return Ok(());
                }
                self.said = true;
                emit(&Event::TextDelta(delta.to_owned()))
            }
            // Also where the caller is not streaming: the answer lists the tools that it took.
            RunEvent::Tool(event) => emit(&event),
            RunEvent::Approval(request) => loop {
                match self.status()? {
                    Status::Waiting { mark, .. } => return self.ask(Approval { mark, request }),
                    Status::Unreadable(_) => self.rest()?,
                    // The wait is over already.
                    Status::Working | Status::Ended(_) => return Ok(()),
                }
            },
            RunEvent::Delta(_) | RunEvent::Ended(_) | RunEvent::Ignored => Ok(()),
        }
    }

    /// Reads the status and deals with an approval that the run waits for.
    fn look(&mut self) -> Result<Status, Failure> {
        let status = self.status()?;
        match &status {
            // The event about it will come, or has come.
            Status::Waiting { .. } if self.events.is_some() => {}
            Status::Waiting { mark, .. } if self.settled.as_ref() == Some(mark) => {}
            Status::Waiting { mark, request } => {
                let asking = self.checkpoint.asking.clone().filter(|asking| asking.mark == *mark);
                let shown = request.clone().map(|request| Approval { mark: mark.clone(), request });
                match asking.or(shown) {
                    Some(approval) => self.ask(approval)?,
                    None => self.deny_unseen(mark.clone())?,
                }
            }
            Status::Unreadable(_) => self.rest()?,
            Status::Working | Status::Ended(_) => {}
        }
        Ok(status)
    }

    /// Reads the status. Fails once it has been unreadable too often in a row.
    fn status(&mut self) -> Result<Status, Failure> {
        let status = match self.gateway.status(&self.checkpoint.run) {
            Ok(response) => Status::read(&response)?,
            Err(error) if matches!(error.kind, http::ErrorKind::Cancelled | http::ErrorKind::Denied) => {
                return Err(unreachable(&error));
            }
            Err(error) => Status::Unreadable(unreachable(&error)),
        };
        match status {
            Status::Unreadable(failure) if self.misses >= MISSES => Err(failure),
            Status::Unreadable(failure) => {
                self.misses += 1;
                Ok(Status::Unreadable(failure))
            }
            status => {
                self.misses = 0;
                Ok(status)
            }
        }
    }

    /// Pauses after an unreadable status.
    fn rest(&self) -> Result<(), Failure> {
        if control::sleep(MISS_MS << self.misses.min(MISSES)) { Ok(()) } else { Err(cancelled()) }
    }

    /// The end as the status has it. The event's word counts only if the status cannot be had.
    fn confirm(&mut self, end: End) -> End {
        for _ in 0..LAGS {
            match self.status() {
                Ok(Status::Ended(decided)) => return decided,
                Ok(Status::Working | Status::Waiting { .. }) if control::sleep(LAG_MS) => {}
                _ => break,
            }
        }
        end
    }

    /// Asks the caller for an approval, until there is an answer or the run no longer waits for it.
    fn ask(&mut self, approval: Approval) -> Result<(), Failure> {
        self.settled = Some(approval.mark.clone());
        // Stored once: an answer that came while this host was down belongs to the point at which it was asked for.
        if self.checkpoint.asking.as_ref().is_none_or(|asking| asking.mark != approval.mark) {
            self.checkpoint.asking = Some(approval.clone());
            self.checkpoint.store();
        }
        let mut complaint = None;
        let mut decision = None;
        for _ in 0..ASKS {
            let Some(answer) = self.question(&approval, complaint)? else { break };
            complaint = Some(match answer {
                Answer::Choice(choice) if approval.request.allows(choice) => {
                    decision = Some(choice);
                    break;
                }
                Answer::Choice(_) => "That is not offered for this command.",
                Answer::Always => {
                    "`always` would change what the agent may do for everybody, so it cannot be given from here."
                }
                Answer::Unclear => "That answer was not understood.",
            });
        }
        // Without a clear answer, while the run still waits, a denial is the safe one.
        let waits = self.waits_for(&approval.mark)?;
        match decision {
            _ if !waits => report("The agent no longer waits for that approval and goes on without it.")?,
            Some(choice) => self.decide(choice)?,
            None => {
                report("No clear answer came, so the command was denied.")?;
                self.decide(Choice::Deny)?;
            }
        }
        self.checkpoint.asking = None;
        self.checkpoint.store();
        Ok(())
    }

    /// Asks one question; `None` if the run stopped waiting before the answer.
    fn question(&mut self, approval: &Approval, complaint: Option<&str>) -> Result<Option<Answer>, Failure> {
        let parts = approval.request.question(complaint);
        let question = events::pose(&parts).map_err(|error| not_passed_on(&error))?;
        loop {
            let Some(left) = control::remaining_ms().checked_sub(STOP_MS) else { return Err(self.give_up()) };
            let answer = question.wait(left.min(SILENCE_MS)).map_err(|error| not_passed_on(&error))?;
            match answer {
                Some(answer) => return Ok(Some(Answer::of(&answer))),
                None if self.waits_for(&approval.mark)? => {}
                None => return Ok(None),
            }
        }
    }

    /// Whether the run waits for exactly that approval. An unreadable status changes nothing.
    fn waits_for(&mut self, mark: &str) -> Result<bool, Failure> {
        Ok(match self.status()? {
            Status::Waiting { mark: now, .. } => now == mark,
            Status::Unreadable(_) => true,
            Status::Ended(_) | Status::Working => false,
        })
    }

    /// Sends the decision, once: a second copy could answer the next question too.
    fn decide(&self, choice: Choice) -> Result<(), Failure> {
        let why = match self.gateway.approve(&self.checkpoint.run, choice.name()) {
            Ok(response) if is_success(response.status) => return Ok(()),
            // The wait ended a moment ago.
            Ok(response) if matches!(response.status, 404 | 409) => {
                return report("The agent no longer waits for that approval and goes on without it.");
            }
            Ok(response) => format!("status {}", response.status),
            Err(error) if error.kind == http::ErrorKind::Cancelled => return Err(unreachable(&error)),
            Err(error) => error.message,
        };
        warn(&format!("the gateway did not accept an approval: {why}"));
        report("The gateway did not take the answer.")
    }

    /// Denies a command that went to a reader that is gone: what cannot be shown is not allowed.
    fn deny_unseen(&mut self, mark: String) -> Result<(), Failure> {
        self.settled = Some(mark);
        report("A command needed approval, but what it was is lost; it was denied.")?;
        self.decide(Choice::Deny)
    }

    /// Stops the run because the turn's time is over.
    fn give_up(&self) -> Failure {
        if let Err(failure) = self.gateway.stop(&self.checkpoint) {
            warn(&format!("run not stopped; the agent may still be at work: {}", failure.message));
        }
        Failure::new(
            FailureKind::TimedOut,
            "[hermes-agent error] the run took longer than the turn may and was stopped",
        )
    }
}

/// Sends a status line to the caller.
fn report(text: &str) -> Result<(), Failure> {
    emit(&Event::Status(text.into()))
}

fn lost_events(why: &str) {
    warn(&format!("run events lost; following the status instead: {why}"));
}
