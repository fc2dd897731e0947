//! One turn in a chat: its message is sent once, its answer is waited for, and notices on the way are passed on.

use std::time::{Duration, Instant};

use talaria_guest::callback::{self, Pending};
use talaria_guest::events::{self, Event};
use talaria_guest::{Failure, FailureKind, Outcome, Turn, control, log};

use crate::wire::{Callback, Kind, Message};
use crate::{MARGIN_MS, Point, Settings, approval, chat, refusal, wire};

/// How long the gateway may take to acknowledge a command while the turn goes on.
const ACK: Duration = Duration::from_secs(10);
/// The characters of a notice that a caller reads.
const NOTICE_CHARS: usize = 4_000;
/// The number of unusable answers to an approval after which the command is denied.
const ANSWERS: usize = 3;

/// A turn, the place where it stands, and the answer that it waits for.
pub(crate) struct ChatTurn {
    pub(crate) settings: Settings,
    pub(crate) turn: Turn,
    pub(crate) point: Point,
    pub(crate) pending: Pending,
    /// The number of questions to the caller. After a restart they are asked again in the same order, and the host
    /// knows the answers.
    pub(crate) asked: usize,
}

// === impl ChatTurn ===

impl ChatTurn {
    /// Sends the message, after stopping what the chat was left with.
    pub(crate) fn send(&mut self) -> Result<(), Failure> {
        if self.pending.overtakes() {
            // Otherwise the plugin would answer both as one, under the other's id.
            status("stopping what the agent was left with by an earlier message")?;
            stop(&self.settings, &self.turn, &self.point.chat, ACK)?;
        }
        self.point.sent = true;
        self.point.store()?;
        let content = match chat::may_command(&self.settings, &self.turn) {
            true => self.turn.text.clone(),
            false => chat::disarmed(&self.turn.text),
        };
        let message = Message {
            chat_id: &self.point.chat,
            message_id: &self.point.message,
            content: &content,
            callback_url: &self.pending.reply_url(),
            turn: &self.turn,
            is_said: true,
        };
        self.settings.post(&message)
    }

    /// Waits for the answer, and passes notices on.
    pub(crate) fn answer(&mut self) -> Result<Outcome, Failure> {
        let patience = self.patience();
        let mut until = Instant::now() + patience;
        loop {
            let received = match next(&self.pending, until) {
                Ok(Some(received)) => received,
                Ok(None) => return Err(timed_out(patience)),
                Err(failure) => return Err(failure),
            };
            match received.kind {
                Kind::Reply => return outcome(received.content),
                Kind::Notice if approval::is_prompt(&received.content) => {
                    if let Some(answer) = self.approve(received.content)? {
                        return outcome(answer);
                    }
                    // The caller's time does not count as the agent's.
                    until = Instant::now() + patience;
                }
                Kind::Notice | Kind::DeliveryFailed => status(&received.content)?,
            }
        }
    }

    /// A caller that waits is kept waiting no longer than the Python bridge did. If the answer can still reach the
    /// caller later, the turn takes all of its time.
    fn patience(&self) -> Duration {
        let budget = Duration::from_millis(control::remaining_ms().saturating_sub(MARGIN_MS).into());
        if self.turn.session.async_delivery {
            return budget;
        }
        budget.min(Duration::from_secs_f64(self.settings.reply_timeout_seconds))
    }

    /// Asks the caller about a command. Returns the agent's answer if it came meanwhile.
    fn approve(&mut self, mut prompt: String) -> Result<Option<String>, Failure> {
        let mut hint = None;
        let mut tries = 0;
        let choice = loop {
            let question = approval::question(&prompt, hint);
            let answer = events::ask(&question).map_err(|error| {
                let kind = match error.kind {
                    events::ErrorKind::Cancelled => FailureKind::Cancelled,
                    events::ErrorKind::TimedOut => FailureKind::TimedOut,
                    _ => FailureKind::Internal,
                };
                Failure::new(kind, format!("[hermes plugin error] {}", error.message))
            })?;
            self.asked += 1;
            if self.asked > self.point.acted {
                // The agent does not wait for ever: it may have gone on without an answer, or may ask something else by
                // now.
                let mut newer = None;
                while let Some(received) = next(&self.pending, Instant::now())? {
                    match received.kind {
                        Kind::Reply => return Ok(Some(received.content)),
                        Kind::Notice if approval::is_prompt(&received.content) => {
                            newer = Some(received.content)
                        }
                        Kind::Notice | Kind::DeliveryFailed => status(&received.content)?,
                    }
                }
                if let Some(newer) = newer {
                    (prompt, hint, tries) = (newer, None, 0);
                    continue;
                }
            }
            match approval::choice(&prompt, &answer) {
                Ok(choice) => break choice,
                Err(why) => hint = Some(why),
            }
            tries += 1;
            if tries == ANSWERS {
                status("no usable answer: the command is denied")?;
                break approval::DENY;
            }
        };
        if self.asked > self.point.acted {
            // Stored before it is sent: a decision that is lost in between counts as denied, and nothing is approved
            // twice.
            self.point.acted = self.asked;
            self.point.store()?;
            self.command(choice)?;
        }
        Ok(None)
    }

    /// Sends a command to the gateway, and passes on its acknowledgement.
    fn command(&self, command: &str) -> Result<(), Failure> {
        let id = wire::fresh_id()?;
        let pending = callback::expect(&id).map_err(unexpected)?;
        let message = Message {
            chat_id: &self.point.chat,
            message_id: &id,
            content: command,
            callback_url: &pending.reply_url(),
            turn: &self.turn,
            is_said: false,
        };
        self.settings.post(&message)?;
        if let Some(received) = next(&pending, Instant::now() + ACK)? {
            status(&received.content)?;
        }
        Ok(())
    }
}

/// The outcome of a reply, which may say that there is no answer.
fn outcome(reply: String) -> Result<Outcome, Failure> {
    match refusal::of(&reply) {
        Some(failure) => Err(failure),
        None => Ok(Outcome::text(reply)),
    }
}

/// Stops the gateway's work in a chat. If another message has the chat already, its turn has done so.
pub(crate) fn stop(settings: &Settings, turn: &Turn, chat: &str, patience: Duration) -> Result<(), Failure> {
    let id = wire::fresh_id()?;
    let pending = match callback::expect_in(chat, &id, Some(0)) {
        Ok(pending) => pending,
        Err(error) if error.kind == callback::ErrorKind::TimedOut => return Ok(()),
        Err(error) => return Err(unexpected(error)),
    };
    let url = pending.reply_url();
    settings.post(&Message {
        chat_id: chat,
        message_id: &id,
        content: "/stop",
        callback_url: &url,
        turn,
        is_said: false,
    })?;
    let until = Instant::now() + patience;
    while let Some(received) = next(&pending, until)? {
        if received.kind == Kind::Reply {
            return Ok(());
        }
    }
    log::write(log::Level::Warn, "the gateway did not say that it stopped", None);
    Ok(())
}

/// Waits for the next callback; `None` if none comes in time.
fn next(pending: &Pending, until: Instant) -> Result<Option<Callback>, Failure> {
    let left = until.saturating_duration_since(Instant::now());
    match pending.wait(Some(u32::try_from(left.as_millis()).unwrap_or(u32::MAX))) {
        Ok(delivery) => Callback::parse(&delivery.body).map(Some),
        Err(error) if error.kind == callback::ErrorKind::TimedOut => Ok(None),
        Err(error) => Err(unexpected(error)),
    }
}

pub(crate) fn unexpected(error: callback::Error) -> Failure {
    let kind = match error.kind {
        callback::ErrorKind::TimedOut => FailureKind::TimedOut,
        callback::ErrorKind::Cancelled => FailureKind::Cancelled,
        callback::ErrorKind::Denied => FailureKind::Denied,
        callback::ErrorKind::Duplicate | callback::ErrorKind::Unsupported => FailureKind::Internal,
    };
    Failure { retryable: true, ..Failure::new(kind, format!("[hermes plugin error] {}", error.message)) }
}

fn timed_out(after: Duration) -> Failure {
    let seconds = after.as_secs_f64().round();
    let text = format!("[hermes plugin reply timeout after {seconds}s]");
    Failure { retryable: true, ..Failure::new(FailureKind::TimedOut, text) }
}

fn status(text: &str) -> Result<(), Failure> {
    let text: String = events::scrub(text).chars().take(NOTICE_CHARS).collect();
    match events::emit(&Event::Status(text)) {
        Err(error) if error.kind == events::ErrorKind::Cancelled => {
            Err(Failure::new(FailureKind::Cancelled, format!("[hermes plugin error] {}", error.message)))
        }
        // A status that cannot be sent does not cost the answer.
        _ => Ok(()),
    }
}
