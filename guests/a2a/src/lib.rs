//! Reaches an agent that itself speaks A2A, 1.0 or 0.3, as its card says.
//!
//! A turn becomes a message to the agent, and the agent's task is followed to its end, by its stream where it has one and
//! by asking for the task otherwise. What this promises:
//!
//! - **A message is sent once.** It is sent again only after the agent refused it, and a refused message did nothing. Its id
//!   follows from our task and the turn's number, so that an agent that recognises repetitions does.
//! - **The agent's task outlives this host.** Its id is checkpointed as soon as the agent has said it. After a restart the
//!   task is asked for, and a cancel finds it. Before that a restart fails the turn, unless `on_restart` says otherwise.
//! - **A conversation stays one.** The agent's context belongs to ours. A question of the agent ends the turn, and the next
//!   message of our task goes into the agent's task.
//! - **The agent is believed in nothing that can be checked.** An answer to another request, of another task or context, that
//!   is not JSON, or that leads elsewhere fails the turn and says so.
//!
//! The card is read for each turn: what it would save to keep it is one short request, and a card that is kept outlives an
//! agent that was replaced.

mod address;
mod answer;
mod card;
mod decode;
mod encode;
mod fault;
mod follow;
mod gathered;
mod memory;
mod peer;
mod state;
mod stream;

use serde::Deserialize;
use serde_json::json;
use talaria_guest::{
    Capabilities, Description, Executor, Failure, Needs, Outcome, SetupContext, Turn, settings,
};

use crate::card::Card;
use crate::follow::Following;
use crate::memory::Checkpoint;

/// The settings.
#[derive(Deserialize)]
pub(crate) struct Settings {
    pub(crate) url: String,
    #[serde(default)]
    pub(crate) interface_url: String,
    #[serde(default)]
    pub(crate) version: Wanted,
    #[serde(default)]
    pub(crate) tenant: String,
    #[serde(default)]
    pub(crate) output_modes: Vec<String>,
    #[serde(default = "token")]
    pub(crate) token: String,
    #[serde(default = "poll_seconds")]
    pub(crate) poll_seconds: u32,
    #[serde(default)]
    pub(crate) on_restart: OnRestart,
}

/// The version that the operator wants to be spoken.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum Wanted {
    /// The newest that the card offers.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    /// Only 1.0.
    #[serde(rename = "1.0")]
    V1,
    /// Only 0.3.
    #[serde(rename = "0.3")]
    V03,
}

/// What happens to a turn that a restart interrupted before the agent said which task it is.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnRestart {
    /// It fails.
    #[default]
    Fail,
    /// Its message is sent again, with the same id.
    Retry,
}

/// The name of the secret with the agent's token.
fn token() -> String {
    "A2A_TOKEN".to_owned()
}

fn poll_seconds() -> u32 {
    2
}

struct A2a;

impl Executor for A2a {
    fn describe() -> Description {
        Description {
            display_name: "A2A agent".into(),
            settings_schema: json!({
                "type": "object",
                "additionalProperties": false,
                "required": ["url"],
                "properties": {
                    "url": {
                        "type": "string",
                        "minLength": 1,
                        "description": "URL of the agent, or of its card",
                    },
                    "interface_url": {
                        "type": "string",
                        "description": "URL to send messages to; if empty, the card's, which must be at the origin of `url`",
                        "default": "",
                    },
                    "version": {
                        "enum": ["auto", "1.0", "0.3"],
                        "description": "Version to speak; `auto` takes the newest that the card offers",
                        "default": "auto",
                    },
                    "tenant": {
                        "type": "string",
                        "description": "Tenant to name in requests; if empty, the card's",
                        "default": "",
                    },
                    "token": {
                        "type": "string",
                        "pattern": "^[A-Z0-9_]{1,128}$",
                        "description": "Name of the secret with the agent's bearer token; agents with tokens of their own need names of their own",
                        "default": "A2A_TOKEN",
                        "readOnly": true,
                    },
                    "output_modes": {
                        "type": "array",
                        "items": { "type": "string" },
                        "description": "Media types to ask for where the caller names none",
                        "default": [],
                    },
                    "poll_seconds": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": 60,
                        "description": "First pause before an agent without streams is asked for its task; later ones grow",
                        "default": 2,
                    },
                    "on_restart": {
                        "enum": ["fail", "retry"],
                        "description": "For a turn that a restart interrupted before the agent named its task",
                        "default": "fail",
                        "readOnly": true,
                    },
                },
            })
            .to_string(),
            capabilities: Capabilities { session: true, ..Capabilities::default() },
            idle_timeout_seconds: Some(900),
            streaming: true,
            needs: Needs {
                egress: vec![
                    "GET {origin:url}/*".into(),
                    "GET {origin:interface_url|url}/*".into(),
                    "POST {origin:interface_url|url}/*".into(),
                ],
                secrets: vec!["{setting:token}".into()],
                callbacks: false,
            },
            ..Description::new(
                "a2a",
                env!("CARGO_PKG_VERSION"),
                "Sends each turn to an agent that speaks A2A, and follows its task",
            )
        }
    }

    fn setup(context: SetupContext) -> Result<(), Failure> {
        let settings: Settings = settings(&context.settings)?;
        let card = Card::read(&settings)?;
        let peer = card.peer(&settings)?;
        // A card that anybody may read says nothing about the token.
        if card.wants_token() { peer.prove() } else { Ok(()) }
    }

    fn execute(turn: Turn) -> Result<Outcome, Failure> {
        let settings: Settings = settings(&turn.settings)?;
        match turn.checkpoint.as_deref() {
            Some(stored) => Following::resume(&turn, &settings, Checkpoint::read(stored)?),
            None => {
                let peer = Card::read(&settings)?.peer(&settings)?;
                Following::begin(&turn, &settings, peer)
            }
        }
    }

    fn cancel(_: Turn, checkpoint: Option<Vec<u8>>) -> Result<(), Failure> {
        // Without a checkpoint no task of the agent is known.
        let Some(stored) = checkpoint else { return Ok(()) };
        let Checkpoint { peer, task, .. } = Checkpoint::read(&stored)?;
        match task {
            Some(task) => peer.cancel(&task),
            None => Ok(()),
        }
    }
}

talaria_guest::export!(A2a);
talaria_guest::without_wasi!();

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_defaults_of_the_schema_are_valid_settings() {
        let defaults = A2a::describe().default_settings();
        let mut defaults: Value = serde_json::from_str(&defaults).unwrap();
        defaults["url"] = "http://h".into();
        let settings: Settings = settings(&defaults.to_string()).unwrap();
        assert_eq!((settings.url.as_str(), settings.interface_url.as_str()), ("http://h", ""));
        assert_eq!((settings.poll_seconds, settings.token), (poll_seconds(), token()));
    }
}
