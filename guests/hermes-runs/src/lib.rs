//! Reaches hermes-agent by its runs: the route with events, approvals and a stop that stops.
//!
//! A run is started, then followed by its events and by its status. The status decides: the gateway streams events to one
//! reader once, and a stream that was cut can be silent for ever while the run goes on, so silence is always looked into,
//! and a broken stream is never opened again. The run's id is kept as a checkpoint before anything else happens: after a
//! restart of this host the run is followed by its status alone, and a cancel finds it. A restart of the gateway loses the
//! run, and the turn says so.
//!
//! What the gateway does not do by itself is done here: it keeps the turns of a session and does not read them back, so the
//! conversation is sent along with each turn.
//!
//! A run that is not over when the turn's time is, is stopped.
//!
//! A gateway from before there were runs gets the turn as a chat completion in the conversation's session. It is streamed
//! also where nobody watches: a gateway gives up a stream whose reader is gone, and works on for anybody else.

mod approval;
mod checkpoint;
mod conversation;
mod events;
mod gateway;
mod offer;
mod place;
mod run;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use talaria_guest::{
    Capabilities, Description, Executor, Failure, FailureKind, Needs, Outcome, Page, Query, SetupContext,
    Transcript, Turn, settings, types::SetupReason,
};
use talaria_upstream::hermes_agent::{Chat, EMPTY_PROMPT, KEY, Session, transcript};
use talaria_upstream::{Prompt, first, input_modes};

use crate::checkpoint::Checkpoint;
use crate::gateway::Gateway;
use crate::offer::Offer;
use crate::place::Place;
use crate::run::Run;

#[derive(Deserialize)]
struct Settings {
    base_url: String,
    #[serde(default)]
    model: String,
    #[serde(default)]
    system_prompt: String,
}

/// What starts a run. A type and not a tree of values: images are large.
#[derive(Serialize)]
struct Body<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conversation_history: Vec<Value>,
    input: Input<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    session_id: String,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Input<'a> {
    Text(&'a Prompt<'a>),
    Message([Said<'a>; 1]),
}

#[derive(Serialize)]
struct Said<'a> {
    content: &'a Prompt<'a>,
    role: &'static str,
}

struct HermesRuns;

impl Executor for HermesRuns {
    fn describe() -> Description {
        Description {
            display_name: "Hermes runs".into(),
            settings_schema: json!({
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "base_url": {
                        "type": "string",
                        "description": "The gateway's API",
                        "default": "http://127.0.0.1:8642/v1",
                    },
                    "model": {
                        "type": "string",
                        "description": "Model to ask for; the workspace's if empty, the gateway's if there is none",
                        "default": "",
                    },
                    "system_prompt": {
                        "type": "string",
                        "description": "Instructions on top of the agent's own; the workspace's if empty",
                        "default": "",
                    },
                },
            })
            .to_string(),
            capabilities: Capabilities { session: true, ..Capabilities::default() },
            idle_timeout_seconds: Some(900),
            streaming: true,
            needs: Needs {
                egress: vec![
                    "GET {setting:base_url}/capabilities".into(),
                    "POST {setting:base_url}/runs".into(),
                    "GET {setting:base_url}/runs/*".into(),
                    "POST {setting:base_url}/runs/*".into(),
                    "GET {parent:base_url}/api/sessions*".into(),
                    "POST {setting:base_url}/chat/completions".into(),
                    "GET {setting:base_url}/models".into(),
                    "GET {setting:base_url}/health".into(),
                ],
                secrets: vec![KEY.into()],
                callbacks: false,
            },
            metadata: Some(json!({ "talaria/input-modes": input_modes() }).to_string()),
            ..Description::new(
                "hermes-runs",
                env!("CARGO_PKG_VERSION"),
                "Sends each turn to hermes-agent as a run, with events, approvals and a stop that stops",
            )
        }
    }

    fn setup(context: SetupContext) -> Result<(), Failure> {
        let settings: Settings = settings(&context.settings)?;
        let gateway = Gateway::new(&settings.base_url);
        let offer = Offer::of(&gateway)?;
        offer.prove(&gateway)?;
        // Once, not at every probe.
        if context.reason == SetupReason::Load {
            offer.report();
        }
        Ok(())
    }

    fn execute(turn: Turn) -> Result<Outcome, Failure> {
        let prompt = Prompt::of(&turn)?;
        if prompt.is_empty() {
            return Ok(Outcome::text(EMPTY_PROMPT));
        }
        let settings: Settings = settings(&turn.settings)?;
        let gateway = Gateway::new(&settings.base_url);
        if let Some(kept) = turn.checkpoint.as_deref() {
            return Run::resumed(gateway, Checkpoint::read(kept)?, turn.streaming).follow();
        }
        // A gateway that does not say gets a run: its answer to that is the honest one.
        if !matches!(Offer::of(&gateway), Ok(Offer::Runs) | Err(_)) {
            return settings.chat(&turn, prompt);
        }
        let session = Session::of(&turn);
        let body = settings.body(&gateway, &session, &turn, &prompt)?;
        let checkpoint = Checkpoint::new(gateway.submit(&body, &session, turn.streaming)?);
        checkpoint.keep();
        Run::started(gateway, checkpoint, turn.streaming).follow()
    }

    fn cancel(turn: Turn, checkpoint: Option<Vec<u8>>) -> Result<(), Failure> {
        // Without a checkpoint there is no run that anybody knows of; a stream ended with the turn.
        let Some(kept) = checkpoint else { return Ok(()) };
        let settings: Settings = settings(&turn.settings)?;
        Gateway::new(&settings.base_url).stop(&Checkpoint::read(&kept)?.run)
    }
}

impl Settings {
    fn chat<'a>(&'a self, turn: &'a Turn, prompt: Prompt<'a>) -> Result<Outcome, Failure> {
        let chat = Chat::new(turn, prompt, &self.base_url, &self.model, &self.system_prompt);
        chat.fits()?;
        let mut place = Place::new(turn.streaming);
        loop {
            let exchange = chat.open()?;
            if !place.wait(exchange.status(), &exchange.headers())? {
                return chat.read(&exchange);
            }
        }
    }

    fn body(
        &self,
        gateway: &Gateway,
        session: &Session,
        turn: &Turn,
        prompt: &Prompt<'_>,
    ) -> Result<Vec<u8>, Failure> {
        let workspace = turn.workspace.as_ref();
        let (session_id, conversation_history) = conversation::so_far(gateway, session, turn);
        // Images are taken in a message; the route reads no other list.
        let input = if prompt.is_text() {
            Input::Text(prompt)
        } else {
            Input::Message([Said { content: prompt, role: "user" }])
        };
        prompt.body(&Body {
            conversation_history,
            input,
            instructions: first(&self.system_prompt, workspace.and_then(|w| w.system_prompt.as_ref())),
            model: first(&self.model, workspace.and_then(|w| w.model.as_ref())),
            session_id,
        })
    }
}

/// The turn was cancelled while it waited.
fn cancelled() -> Failure {
    Failure::new(FailureKind::Cancelled, "[hermes-agent unreachable] the turn was cancelled")
}

impl Transcript for HermesRuns {
    fn read(query: Query) -> Result<Page, Failure> {
        let settings: Settings = settings(&query.settings)?;
        transcript::read(&settings.base_url, &query)
    }
}

talaria_guest::export!(HermesRuns);
talaria_guest::export_transcript!(HermesRuns);
talaria_guest::without_wasi!();
