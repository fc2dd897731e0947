//! One run, from its start to its end.

use serde_json::Value;
use talaria_guest::events::{self, Event};
use talaria_guest::{Failure, FailureKind, Outcome, Usage, control, http, log};
use talaria_upstream::hermes_agent::{self, NO_CONTENT, error_status, not_passed_on, tell, unreachable};
use talaria_upstream::{is_event_stream, is_success, text};

use crate::approval::{Approval, Choice, Request, Said};
use crate::checkpoint::Checkpoint;
use crate::events::News;
use crate::gateway::Gateway;

/// How long silence is taken for patience before the status is asked for.
const SILENCE_MS: u32 = 2_000;
/// How long it is left alone at first where there are no events; doubled up to [`SILENCE_MS`].
const PAUSE_MS: u32 = 100;
/// How often in a row the status may be unreadable before the turn gives up, and how long it waits in between at first.
/// Doubled each time, that is four seconds: enough for a hiccup, and a gateway that restarts has lost the run anyway.
const MISSES: u32 = 4;
const MISS_MS: u32 = 125;
/// How long the status may lag behind the last event.
const LAG_MS: u32 = 200;
const LAGS: u32 = 3;
/// How often the caller is asked for one approval.
const ASKS: u32 = 3;
/// What must be left of the turn's time to stop a run that outlasts it.
const STOP_MS: u32 = 2_500;

/// A run that is being followed.
pub(crate) struct Run {
    gateway: Gateway,
    checkpoint: Checkpoint,
    events: Option<http::Exchange>,
    streaming: bool,
    /// Whether any text was passed on.
    said: bool,
    misses: u32,
    pause: u32,
    /// The approval that was seen to last.
    settled: Option<String>,
}

/// How a run ended.
pub(crate) struct End {
    pub(crate) decided: Decided,
    pub(crate) output: Option<String>,
    pub(crate) error: Option<String>,
    pub(crate) usage: Option<Usage>,
}

#[derive(Clone, Copy)]
pub(crate) enum Decided {
    Completed,
    Failed,
    Cancelled,
}

/// How a run stands.
enum Standing {
    Over(End),
    /// Since when it waits, and for what, where the gateway says so.
    Waits {
        mark: String,
        request: Option<Request>,
    },
    Works,
    /// It could not be read this time.
    Missed(Failure),
}

impl Run {
    /// A run that was just started: its events are all there.
    pub(crate) fn started(gateway: Gateway, checkpoint: Checkpoint, streaming: bool) -> Self {
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

    /// A run of before a restart. Its events went to a reader that is gone.
    pub(crate) fn resumed(gateway: Gateway, checkpoint: Checkpoint, streaming: bool) -> Self {
        Self { gateway, checkpoint, events: None, streaming, said: false, misses: 0, pause: 0, settled: None }
    }

    /// Follows it to its end.
    pub(crate) fn follow(mut self) -> Result<Outcome, Failure> {
        loop {
            let Some(left) = control::remaining_ms().checked_sub(STOP_MS) else { return Err(self.give_up()) };
            match self.next(left.min(SILENCE_MS))? {
                Some(News::Over(end)) => return self.confirm(end)?.outcome(),
                Some(news) => self.pass_on(news)?,
                None => {
                    if let Standing::Over(end) = self.look()? {
                        return end.outcome();
                    }
                }
            }
        }
    }

    /// The next event; none when it is time to look at the status.
    fn next(&mut self, patience: u32) -> Result<Option<News>, Failure> {
        let Some(events) = &self.events else {
            let pause = self.pause;
            self.pause = (pause * 2).clamp(PAUSE_MS, SILENCE_MS);
            return if control::sleep(pause.min(patience)) { Ok(None) } else { Err(crate::cancelled()) };
        };
        if !events.await_event(patience) {
            return Ok(None);
        }
        match events.next_event() {
            Ok(Some(event)) => return Ok(Some(News::of(&event))),
            Ok(None) => {}
            Err(error) if error.kind == http::ErrorKind::Cancelled => return Err(unreachable(&error)),
            Err(error) => lost_events(&error.message),
        }
        // Never opened again: the gateway would answer with silence.
        self.events = None;
        Ok(None)
    }

    fn pass_on(&mut self, news: News) -> Result<(), Failure> {
        match news {
            News::Delta(delta) if self.streaming => {
                // After a tool the gateway begins with line feeds that the final text does not have.
                let delta = if self.said { delta.as_str() } else { delta.trim_start_matches('\n') };
                if delta.is_empty() {
                    return Ok(());
                }
                self.said = true;
                tell(&Event::TextDelta(delta.to_owned()))
            }
            // Also where nobody watches: the answer says which tools it took.
            News::Tool(event) => tell(&event),
            News::Approval(request) => loop {
                match self.standing()? {
                    Standing::Waits { mark, .. } => return self.ask(Approval { mark, request }),
                    Standing::Missed(_) => self.rest()?,
                    // It is over already.
                    Standing::Works | Standing::Over(_) => return Ok(()),
                }
            },
            News::Delta(_) | News::Over(_) | News::Nothing => Ok(()),
        }
    }

    /// Looks at the status, and sees to what it shows.
    fn look(&mut self) -> Result<Standing, Failure> {
        let standing = self.standing()?;
        match &standing {
            // Its event comes, or has come.
            Standing::Waits { .. } if self.events.is_some() => {}
            Standing::Waits { mark, .. } if self.settled.as_ref() == Some(mark) => {}
            Standing::Waits { mark, request } => {
                let asking = self.checkpoint.asking.clone().filter(|asking| asking.mark == *mark);
                let told = request.clone().map(|request| Approval { mark: mark.clone(), request });
                match asking.or(told) {
                    Some(approval) => self.ask(approval)?,
                    None => self.deny_unseen(mark.clone())?,
                }
            }
            Standing::Missed(_) => self.rest()?,
            Standing::Works | Standing::Over(_) => {}
        }
        Ok(standing)
    }

    /// How the run stands. Fails when that cannot be told any more.
    fn standing(&mut self) -> Result<Standing, Failure> {
        let standing = match self.gateway.status(&self.checkpoint.run) {
            Ok(response) => read(&response)?,
            Err(error) if matches!(error.kind, http::ErrorKind::Cancelled | http::ErrorKind::Denied) => {
                return Err(unreachable(&error));
            }
            Err(error) => Standing::Missed(unreachable(&error)),
        };
        match standing {
            Standing::Missed(failure) if self.misses >= MISSES => Err(failure),
            Standing::Missed(failure) => {
                self.misses += 1;
                Ok(Standing::Missed(failure))
            }
            standing => {
                self.misses = 0;
                Ok(standing)
            }
        }
    }

    /// Leaves the gateway alone after a status that could not be read.
    fn rest(&self) -> Result<(), Failure> {
        if control::sleep(MISS_MS << self.misses.min(MISSES)) { Ok(()) } else { Err(crate::cancelled()) }
    }

    /// What the status says about an end that an event told of. Only a status that cannot be had leaves it to the event.
    fn confirm(&mut self, end: End) -> Result<End, Failure> {
        for _ in 0..LAGS {
            match self.standing() {
                Ok(Standing::Over(decided)) => return Ok(decided),
                Ok(Standing::Works | Standing::Waits { .. }) if control::sleep(LAG_MS) => {}
                _ => break,
            }
        }
        Ok(end)
    }

    /// Puts an approval to the caller, until there is an answer or the run no longer waits for it.
    fn ask(&mut self, approval: Approval) -> Result<(), Failure> {
        self.settled = Some(approval.mark.clone());
        // Kept once: an answer that came while this host was down belongs to the point at which it was asked for.
        if self.checkpoint.asking.as_ref().is_none_or(|asking| asking.mark != approval.mark) {
            self.checkpoint.asking = Some(approval.clone());
            self.checkpoint.keep();
        }
        let mut complaint = None;
        let mut decision = None;
        for _ in 0..ASKS {
            let Some(said) = self.question(&approval, complaint)? else { break };
            complaint = Some(match said {
                Said::Choice(choice) if approval.request.allows(choice) => {
                    decision = Some(choice);
                    break;
                }
                Said::Choice(_) => "That is not offered for this command.",
                Said::Always => {
                    "`always` would change what the agent may do for everybody, so it cannot be given from here."
                }
                Said::Unclear => "That answer was not understood.",
            });
        }
        // Asked in vain, and somebody still waits: no is the safe answer.
        let waits = self.waits_for(&approval.mark)?;
        match decision {
            _ if !waits => status("The agent no longer waits for that approval and goes on without it.")?,
            Some(choice) => self.decide(choice)?,
            None => {
                status("No clear answer came, so the command was denied.")?;
                self.decide(Choice::Deny)?;
            }
        }
        self.checkpoint.asking = None;
        self.checkpoint.keep();
        Ok(())
    }

    /// One question; none when the run stopped waiting first.
    fn question(&mut self, approval: &Approval, complaint: Option<&str>) -> Result<Option<Said>, Failure> {
        let parts = approval.request.question(complaint);
        let question = events::pose(&parts).map_err(|error| not_passed_on(&error))?;
        loop {
            let Some(left) = control::remaining_ms().checked_sub(STOP_MS) else { return Err(self.give_up()) };
            let answer = question.wait(left.min(SILENCE_MS)).map_err(|error| not_passed_on(&error))?;
            match answer {
                Some(answer) => return Ok(Some(Said::of(&answer))),
                None if self.waits_for(&approval.mark)? => {}
                None => return Ok(None),
            }
        }
    }

    /// Whether the run waits for just that. A status that cannot be read changes nothing.
    fn waits_for(&mut self, mark: &str) -> Result<bool, Failure> {
        Ok(match self.standing()? {
            Standing::Waits { mark: now, .. } => now == mark,
            Standing::Missed(_) => true,
            Standing::Over(_) | Standing::Works => false,
        })
    }

    /// Tells the gateway, once: said twice, it could answer the next question too.
    fn decide(&self, choice: Choice) -> Result<(), Failure> {
        let refused = match self.gateway.approve(&self.checkpoint.run, choice.name()) {
            Ok(response) if is_success(response.status) => return Ok(()),
            // It was over a moment ago.
            Ok(response) if matches!(response.status, 404 | 409) => {
                return status("The agent no longer waits for that approval and goes on without it.");
            }
            Ok(response) => format!("status {}", response.status),
            Err(error) if error.kind == http::ErrorKind::Cancelled => return Err(unreachable(&error)),
            Err(error) => error.message,
        };
        log::write(log::Level::Warn, &format!("the gateway did not take an approval: {refused}"), None);
        status("The gateway did not take the answer.")
    }

    /// The command went to a reader that is gone, and what cannot be shown is not allowed.
    fn deny_unseen(&mut self, mark: String) -> Result<(), Failure> {
        self.settled = Some(mark);
        status("A command needed approval, but what it was is lost; it was denied.")?;
        self.decide(Choice::Deny)
    }

    /// The turn's time is over, and with it the run.
    fn give_up(&self) -> Failure {
        if let Err(failure) = self.gateway.stop(&self.checkpoint.run) {
            log::write(log::Level::Warn, &format!("the run may still be at work: {}", failure.message), None);
        }
        Failure::new(
            FailureKind::TimedOut,
            "[hermes-agent error] the run took longer than the turn may and was stopped",
        )
    }
}

impl End {
    fn outcome(self) -> Result<Outcome, Failure> {
        match self.decided {
            Decided::Completed => {
                let text =
                    self.output.filter(|output| !output.is_empty()).unwrap_or_else(|| NO_CONTENT.into());
                Ok(Outcome { usage: self.usage, ..Outcome::text(text) })
            }
            Decided::Failed => Err(hermes_agent::error(self.error.as_deref().unwrap_or("the run failed"))),
            Decided::Cancelled => Err(hermes_agent::error("the run was cancelled at the gateway")),
        }
    }
}

/// Reads a status. A run that is not there any more is a failure, and so is a key that is not taken.
fn read(response: &http::Response) -> Result<Standing, Failure> {
    if response.status == 404 {
        return Err(hermes_agent::error("gateway restarted: it does not know the run any more"));
    }
    if !is_success(response.status) {
        let failure = error_status(response.status, &response.body);
        return if failure.retryable { Ok(Standing::Missed(failure)) } else { Err(failure) };
    }
    let data: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    let decided = match text(&data, "/status").as_deref() {
        Some("completed") => Decided::Completed,
        Some("failed") => Decided::Failed,
        Some("cancelled" | "interrupted") => Decided::Cancelled,
        // It goes on saying so after the wait; the last event tells.
        Some("waiting_for_approval") if text(&data, "/last_event").as_deref() == Some("approval.request") => {
            let mark = data.get("updated_at").map(ToString::to_string).unwrap_or_default();
            let request = data.get("approval").filter(|approval| approval.is_object()).map(Request::of);
            return Ok(Standing::Waits { mark, request });
        }
        Some(_) => return Ok(Standing::Works),
        None => return Ok(Standing::Missed(hermes_agent::error("the run's status makes no sense"))),
    };
    Ok(Standing::Over(End::new(decided, &data)))
}

fn status(text: &str) -> Result<(), Failure> {
    tell(&Event::Status(text.into()))
}

fn lost_events(why: &str) {
    let line = format!("the run's events are lost, its status is followed: {why}");
    log::write(log::Level::Warn, &line, None);
}
