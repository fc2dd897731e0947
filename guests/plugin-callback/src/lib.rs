//! Reaches hermes-agent through its `molecule-a2a` plugin: the message goes to `POST /a2a/inbound`, the answer comes to
//! the host's callback listener.
//!
//! The plugin keeps a session a chat, so a conversation goes on; it can ask for approvals, and it can be stopped. What it
//! gets wrong is put right here and in the host's mailbox: it answers two messages of one chat as one, so the host lets
//! one through at a time; it takes a peer's text for a command when it begins with `/`, so such a text is disarmed; it
//! goes on with a message whose turn was given up, so that is stopped before the next one is sent.
//!
//! A turn goes on after a restart of the host: the message's id is kept before the message is sent, so it is sent at
//! most once, and its answer is fetched if it came meanwhile. The texts that a caller reads when something is wrong are
//! those of the Python bridge, to the letter.

mod approval;
mod chat;
mod wire;

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::json;
use talaria_guest::callback::{self, Pending};
use talaria_guest::events::{self, Event};
use talaria_guest::{
    Capabilities, Description, Executor, Failure, FailureKind, Needs, Outcome, Part, Request, SetupContext,
    Turn, config, control, http, log, settings, state,
};

use crate::chat::Source;
use crate::wire::{Kind, Letter, Message};

/// How long the plugin may take to take a message.
const POST_TIMEOUT_MS: u32 = 10_000;
/// How long it may take to answer the probe.
const PROBE_TIMEOUT_MS: u32 = 5_000;
/// How long it may take to say that it stopped, while a caller waits for the cancel; the host gives that 5 s.
const CANCEL_ACK: Duration = Duration::from_secs(3);
/// The same when nobody waits for it alone.
const ACK: Duration = Duration::from_secs(10);
/// What the host needs at the end of a turn's budget to hear how it ended.
const MARGIN_MS: u32 = 2_000;
/// How much of a notice or of an error a caller gets to read, in characters.
const NOTICE_CHARS: usize = 4_000;
const ERROR_CHARS: usize = 500;
/// Answers to an approval that make no sense, before it counts as denied.
const ANSWERS: usize = 3;
/// What plugin and bridge share, where they share something.
const SECRET: &str = "MOLECULE_A2A_PLATFORM_SHARED_SECRET";
const SECRET_HEADER: &str = "x-molecule-a2a-secret";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    inbound_url: String,
    health_url: String,
    chat_id: Vec<Source>,
    workspace_id: String,
    reply_timeout_seconds: f64,
}

/// Where a turn stands, for after a restart.
#[derive(Serialize, Deserialize)]
struct Point {
    chat: String,
    message: String,
    /// The message is being sent or was: it must not be sent again.
    sent: bool,
    /// Answers of the caller that were acted upon: no approval is given twice.
    acted: usize,
}

struct PluginCallback;

impl Executor for PluginCallback {
    fn describe() -> Description {
        Description {
            display_name: "Hermes plugin".into(),
            settings_schema: schema(),
            capabilities: Capabilities { session: true, ..Capabilities::default() },
            idle_timeout_seconds: Some(900),
            needs: Needs {
                egress: vec!["POST {setting:inbound_url}".into(), "GET {setting:health_url}".into()],
                secrets: vec![SECRET.into()],
                callbacks: true,
            },
            ..Description::new(
                "plugin-callback",
                env!("CARGO_PKG_VERSION"),
                "Sends each turn to hermes-agent's molecule-a2a plugin, which answers by callback",
            )
        }
    }

    fn setup(context: SetupContext) -> Result<(), Failure> {
        let settings: Settings = settings(&context.settings)?;
        settings.check()?;
        let url = &settings.health_url;
        let down = |why: String| Failure {
            retryable: true,
            ..Failure::new(FailureKind::Upstream, format!("the hermes plugin is not ready at {url}: {why}"))
        };
        match Request::new("GET", url.as_str()).timeout_ms(PROBE_TIMEOUT_MS).fetch() {
            Ok(response) if (200..300).contains(&response.status) => Ok(()),
            Ok(response) => Err(down(format!("it answered {}", response.status))),
            Err(error) if error.kind == http::ErrorKind::Denied => {
                let why = "not probed: the grant has no GET for the plugin's health";
                log::write(log::Level::Info, why, None);
                Ok(())
            }
            Err(error) => Err(down(error.message)),
        }
    }

    fn execute(turn: Turn) -> Result<Outcome, Failure> {
        if turn.text.trim().is_empty() {
            return Ok(Outcome::text("(empty prompt — nothing to do)"));
        }
        let settings: Settings = settings(&turn.settings)?;
        settings.check()?;
        let kept = turn.checkpoint.as_deref().and_then(|data| serde_json::from_slice(data).ok());
        let point = match kept {
            Some(point) => point,
            None => {
                let chat = chat::id(&settings, &turn)?;
                let point = Point { chat, message: wire::fresh_id()?, sent: false, acted: 0 };
                // A turn in line for its chat has done nothing yet, and may begin anew.
                point.keep()?;
                point
            }
        };
        let within = control::remaining_ms().saturating_sub(MARGIN_MS);
        let pending = callback::expect_in(&point.chat, &point.message, Some(within)).map_err(unexpected)?;
        let mut conversation = Conversation { settings, turn, point, pending, asked: 0 };
        if !conversation.point.sent {
            conversation.send()?;
        }
        conversation.answer()
    }

    fn cancel(turn: Turn, checkpoint: Option<Vec<u8>>) -> Result<(), Failure> {
        let settings: Settings = settings(&turn.settings)?;
        let point = checkpoint.and_then(|data| serde_json::from_slice::<Point>(&data).ok());
        match point {
            Some(point) if point.sent => stop(&settings, &turn, &point.chat, CANCEL_ACK),
            // Nothing was sent, so there is nothing to stop.
            _ => Ok(()),
        }
    }
}

fn schema() -> String {
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "inbound_url": {
                "type": "string",
                "description": "Where the plugin takes messages",
                "default": "http://127.0.0.1:8645/a2a/inbound",
            },
            "health_url": {
                "type": "string",
                "description": "Where the plugin says that it is there",
                "default": "http://127.0.0.1:8645/a2a/health",
            },
            "chat_id": {
                "type": "array",
                "items": { "enum": ["task", "session", "context", "message", "workspace"] },
                "description": "What the plugin's chat is named after: the first of these that a turn has",
                "default": ["task", "session", "context", "message"],
            },
            "workspace_id": {
                "type": "string",
                "description": "The workspace, where `chat_id` asks for it and the host does not know it",
                "default": "",
            },
            "reply_timeout_seconds": {
                "type": "number",
                "exclusiveMinimum": 0,
                "description": "How long a caller that waits is kept waiting for the answer",
                "default": 600,
            },
        },
    })
    .to_string()
}

/// A message of a chat, and the answer to it.
struct Conversation {
    settings: Settings,
    turn: Turn,
    point: Point,
    pending: Pending,
    /// Questions to the caller. After a restart they are asked again in the same order, and the host knows the answers.
    asked: usize,
}

// === impl Conversation ===

impl Conversation {
    fn send(&mut self) -> Result<(), Failure> {
        if self.pending.overtakes() {
            // Else the plugin would answer both as one, under the other's id.
            status("stopping what the agent was left with by an earlier message")?;
            stop(&self.settings, &self.turn, &self.point.chat, ACK)?;
        }
        self.point.sent = true;
        self.point.keep()?;
        let content = chat::disarmed(&self.turn.text);
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

    /// Waits for the answer, and passes on what is said before it.
    fn answer(&mut self) -> Result<Outcome, Failure> {
        let patience = self.patience();
        let mut until = Instant::now() + patience;
        loop {
            let letter = match next(&self.pending, until) {
                Ok(Some(letter)) => letter,
                Ok(None) => return Err(timed_out(patience)),
                Err(failure) => return Err(failure),
            };
            match letter.kind {
                Kind::Reply => return Ok(Outcome::text(letter.content)),
                Kind::Notice if approval::is_prompt(&letter.content) => {
                    if let Some(answer) = self.approve(letter.content)? {
                        return Ok(Outcome::text(answer));
                    }
                    // The time that the caller took is not the agent's.
                    until = Instant::now() + patience;
                }
                Kind::Notice | Kind::DeliveryFailed => status(&letter.content)?,
            }
        }
    }

    /// A caller that waits is not kept longer than the bridge ever kept one. Where the answer can still reach the caller
    /// later, the turn goes on for as long as it may.
    fn patience(&self) -> Duration {
        let budget = Duration::from_millis(control::remaining_ms().saturating_sub(MARGIN_MS).into());
        if self.turn.session.async_delivery {
            return budget;
        }
        budget.min(Duration::from_secs_f64(self.settings.reply_timeout_seconds))
    }

    /// Lets the caller decide about a command. Gives the agent's answer where it came meanwhile.
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
                // The agent does not wait for ever: it may have gone on without an answer, or ask something else by now.
                let mut newer = None;
                while let Some(letter) = next(&self.pending, Instant::now())? {
                    match letter.kind {
                        Kind::Reply => return Ok(Some(letter.content)),
                        Kind::Notice if approval::is_prompt(&letter.content) => newer = Some(letter.content),
                        Kind::Notice | Kind::DeliveryFailed => status(&letter.content)?,
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
            // Kept before it is sent: what is lost in between is denied, and nothing is approved that was not asked.
            self.point.acted = self.asked;
            self.point.keep()?;
            self.command(choice)?;
        }
        Ok(None)
    }

    /// Sends a command of the gateway, and passes on what it says to it.
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
        if let Some(letter) = next(&pending, Instant::now() + ACK)? {
            status(&letter.content)?;
        }
        Ok(())
    }
}

/// Ends whatever the gateway does in a chat. Where another message has the chat, its turn has seen to that.
fn stop(settings: &Settings, turn: &Turn, chat: &str, patience: Duration) -> Result<(), Failure> {
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
    while let Some(letter) = next(&pending, until)? {
        if letter.kind == Kind::Reply {
            return Ok(());
        }
    }
    log::write(log::Level::Warn, "the gateway did not say that it stopped", None);
    Ok(())
}

/// What comes next; none in time.
fn next(pending: &Pending, until: Instant) -> Result<Option<Letter>, Failure> {
    let left = until.saturating_duration_since(Instant::now());
    match pending.wait(Some(u32::try_from(left.as_millis()).unwrap_or(u32::MAX))) {
        Ok(delivery) => Letter::parse(&delivery.body).map(Some),
        Err(error) if error.kind == callback::ErrorKind::TimedOut => Ok(None),
        Err(error) => Err(unexpected(error)),
    }
}

fn unexpected(error: callback::Error) -> Failure {
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
        // What cannot be said is no reason to lose the answer.
        _ => Ok(()),
    }
}

// === impl Point ===

impl Point {
    fn keep(&self) -> Result<(), Failure> {
        let data = serde_json::to_vec(self).unwrap_or_default();
        state::checkpoint(&data).map_err(|error| Failure {
            retryable: true,
            ..Failure::new(FailureKind::Internal, format!("[hermes plugin error] {}", error.message))
        })
    }
}

// === impl Settings ===

impl Settings {
    fn check(&self) -> Result<(), Failure> {
        let invalid =
            |what: &str| Err(Failure::new(FailureKind::InvalidSettings, format!("settings: {what}")));
        if !(self.reply_timeout_seconds > 0.0 && self.reply_timeout_seconds.is_finite()) {
            return invalid("`reply_timeout_seconds` must be more than 0");
        }
        if self.chat_id.is_empty() {
            return invalid(
                "`chat_id` is empty; give at least one of task, session, context, message, workspace",
            );
        }
        Ok(())
    }

    fn post(&self, message: &Message<'_>) -> Result<(), Failure> {
        let request =
            Request::new("POST", self.inbound_url.as_str()).json(&message.body()).timeout_ms(POST_TIMEOUT_MS);
        let request = if config::has_secret(SECRET) {
            request.header(SECRET_HEADER, format!("{{secret:{SECRET}}}"))
        } else {
            request
        };
        let failed = |kind, why: &str| Failure {
            retryable: true,
            ..Failure::new(kind, format!("[hermes plugin POST error] {why}"))
        };
        let response = request.fetch().map_err(|error| match error.kind {
            // Policy's reasons are for the operator's log, where the host wrote them already.
            http::ErrorKind::Denied => failed(FailureKind::Denied, "the operator's policy does not allow it"),
            http::ErrorKind::TimedOut => failed(FailureKind::TimedOut, &error.message),
            http::ErrorKind::Cancelled => failed(FailureKind::Cancelled, &error.message),
            _ => failed(FailureKind::Upstream, &error.message),
        })?;
        if (200..300).contains(&response.status) {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&response.body);
        let said: String = events::scrub(&said).chars().take(ERROR_CHARS).collect();
        Err(failed(FailureKind::Upstream, &format!("the plugin answered {}: {said}", response.status)))
    }
}

/// One part of text.
pub(crate) fn text_of(parts: &[Part]) -> String {
    let texts = parts.iter().filter_map(|part| match &part.content {
        talaria_guest::Content::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join(" ").trim().to_owned()
}

talaria_guest::export!(PluginCallback);
