//! Reaches hermes-agent through its `molecule-a2a` plugin: the message goes to `POST /a2a/inbound`, the answer comes to
//! the host's callback listener.
//!
//! The plugin keeps one session a chat, so the agent remembers; it can ask for approvals, and it can be stopped. Three
//! of its faults are corrected here and in the host's mailbox. It answers two messages of one chat as one, so the host
//! lets one through at a time. It takes a caller's text for a command if the text begins with `/`, so such a text is
//! disarmed, unless the operator trusts the caller with commands. It goes on with a message whose turn was given up, so that message is stopped before the next one is sent.
//!
//! A turn survives a restart of the host: the message's id is stored before the message is sent, so the message is sent
//! at most once, and its answer is fetched if it came meanwhile. The texts that a caller reads when something is wrong
//! are those of the Python bridge, to the letter.

mod approval;
mod chat;
mod chat_turn;
mod refusal;
mod wire;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use talaria_guest::{
    Capabilities, Description, Executor, Failure, FailureKind, Needs, Outcome, Part, Request, SetupContext,
    Turn, callback, config, control, events, http, log, settings, state,
};

use crate::chat::Source;
use crate::chat_turn::{ChatTurn, stop, unexpected};
use crate::wire::Message;

/// How long the plugin may take to accept a message.
const POST_TIMEOUT_MS: u32 = 10_000;
/// How long it may take to answer the probe.
const PROBE_TIMEOUT_MS: u32 = 5_000;
/// How long it may take to acknowledge a stop while a caller waits for the cancel, which the host allows 5 s.
const CANCEL_ACK: Duration = Duration::from_secs(3);
/// The part of a turn's budget that is left for the host to learn how the turn ended.
const MARGIN_MS: u32 = 2_000;
/// The characters of an error that a caller reads.
const ERROR_CHARS: usize = 500;
/// The secret that plugin and bridge share, if they share one.
const SECRET: &str = "MOLECULE_A2A_PLATFORM_SHARED_SECRET";
const SECRET_HEADER: &str = "x-molecule-a2a-secret";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    inbound_url: String,
    health_url: String,
    pub(crate) chat_id: Vec<Source>,
    pub(crate) workspace_id: String,
    pub(crate) reply_timeout_seconds: f64,
    pub(crate) commands_from: Vec<String>,
}

/// The state of a turn that a restart needs.
#[derive(Serialize, Deserialize)]
pub(crate) struct Point {
    pub(crate) chat: String,
    pub(crate) message: String,
    /// Whether the message was sent, or is about to be: it must not be sent again.
    pub(crate) sent: bool,
    /// The number of the caller's answers that were acted upon: no approval is given twice.
    pub(crate) acted: usize,
}

/// The media types that become part of the text, which is all that the plugin takes.
const TEXTS: [&str; 5] = ["text/plain", "text/*", "application/json", "application/xml", "application/yaml"];

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
            metadata: Some(json!({ "talaria/input-modes": TEXTS }).to_string()),
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
                let why = "probe skipped: the grant has no GET for the plugin's health";
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
        let stored = turn.checkpoint.as_deref().and_then(|data| serde_json::from_slice(data).ok());
        let point = match stored {
            Some(point) => point,
            None => {
                let chat = chat::id(&settings, &turn)?;
                let point = Point { chat, message: wire::fresh_id()?, sent: false, acted: 0 };
                // A turn that waits for its chat has done nothing yet, and may start over.
                point.store()?;
                point
            }
        };
        let within = control::remaining_ms().saturating_sub(MARGIN_MS);
        let pending = callback::expect_in(&point.chat, &point.message, Some(within)).map_err(unexpected)?;
        let mut chat_turn = ChatTurn { settings, turn, point, pending, asked: 0 };
        if !chat_turn.point.sent {
            chat_turn.send()?;
        }
        chat_turn.answer()
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
                "description": "URL at which the plugin accepts messages",
                "default": "http://127.0.0.1:8645/a2a/inbound",
            },
            "health_url": {
                "type": "string",
                "description": "URL of the plugin's health check",
                "default": "http://127.0.0.1:8645/a2a/health",
            },
            "chat_id": {
                "type": "array",
                "items": { "enum": ["task", "session", "context", "message", "workspace"] },
                "description": "What names the plugin's chat: the first of these that a turn has. The Python bridge used \
                                `[\"task\", \"session\", \"context\", \"message\"]`; the platform's newest runtime begins with `workspace`",
                "default": ["session", "context", "task", "message"],
            },
            "workspace_id": {
                "type": "string",
                "description": "Id of the workspace, used if `chat_id` names `workspace` and the host serves none",
                "default": "",
            },
            "reply_timeout_seconds": {
                "type": "number",
                "exclusiveMinimum": 0,
                "description": "Seconds that a caller waits for the answer at most",
                "default": 600,
            },
            "commands_from": {
                "type": "array",
                "items": { "type": "string" },
                "description": "Callers, by the names of their tokens, whose texts that begin with `/` are commands of the gateway, \
                                `/yolo` among them. Messages that name a peer never are",
                "readOnly": true,
                "default": [],
            },
        },
    })
    .to_string()
}

// === impl Point ===

impl Point {
    pub(crate) fn store(&self) -> Result<(), Failure> {
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

    pub(crate) fn post(&self, message: &Message<'_>) -> Result<(), Failure> {
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
            // The reasons of a denial are for the operator, and the host has logged them already.
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

/// The texts of the parts, joined with one space.
pub(crate) fn text_of(parts: &[Part]) -> String {
    let texts = parts.iter().filter_map(|part| match &part.content {
        talaria_guest::Content::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join(" ").trim().to_owned()
}

talaria_guest::export!(PluginCallback);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_of_the_schema_are_valid_and_others_are_checked() {
        let defaults = PluginCallback::describe().default_settings();
        let settings: Settings = settings(&defaults).unwrap();
        assert!(settings.check().is_ok());
        assert!(settings.chat_id == [Source::Session, Source::Context, Source::Task, Source::Message]);
        for (timeout, chat_id) in [(0.0, vec![Source::Task]), (f64::NAN, vec![Source::Task]), (1.0, vec![])] {
            let settings: Settings = talaria_guest::settings(&defaults).unwrap();
            let settings = Settings { reply_timeout_seconds: timeout, chat_id, ..settings };
            assert_eq!(settings.check().unwrap_err().kind, FailureKind::InvalidSettings, "{timeout}");
        }
    }

    #[test]
    fn texts_of_parts_are_joined() {
        let parts =
            [Part::text(" a"), Part::new(talaria_guest::Content::Data("{}".into())), Part::text("b ")];
        assert_eq!(text_of(&parts), "a b");
    }
}
