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

mod approval;
mod checkpoint;
mod conversation;
mod events;
mod gateway;
mod run;

use serde::Deserialize;
use serde_json::{Value, json};
use talaria_guest::{
    Capabilities, Description, Executor, Failure, FailureKind, Needs, Outcome, SetupContext, Turn, http, log,
    settings,
};
use talaria_upstream::hermes_agent::{self, EMPTY_PROMPT, KEY, error_status, unreachable};
use talaria_upstream::{first, is_success};

use crate::checkpoint::Checkpoint;
use crate::gateway::Gateway;
use crate::run::Run;

/// What a gateway must offer. Approvals are not among it: a gateway without them asks for none.
const FEATURES: [&str; 4] = ["run_submission", "run_status", "run_events_sse", "run_stop"];

#[derive(Deserialize)]
struct Settings {
    base_url: String,
    #[serde(default)]
    model: String,
    #[serde(default)]
    system_prompt: String,
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
                    "GET {parent:base_url}/api/sessions/*".into(),
                ],
                secrets: vec![KEY.into()],
                callbacks: false,
            },
            ..Description::new(
                "hermes-runs",
                env!("CARGO_PKG_VERSION"),
                "Sends each turn to hermes-agent as a run, with events, approvals and a stop that stops",
            )
        }
    }

    fn setup(context: SetupContext) -> Result<(), Failure> {
        let settings: Settings = settings(&context.settings)?;
        let response = match Gateway::new(&settings.base_url).capabilities() {
            Ok(response) => response,
            Err(error) if error.kind == http::ErrorKind::Denied => {
                let what = "not probed: the grant has no GET for the gateway's /capabilities";
                log::write(log::Level::Info, what, None);
                return Ok(());
            }
            Err(error) => return Err(unreachable(&error)),
        };
        if response.status == 404 {
            return Err(hermes_agent::error(
                "the gateway has no /capabilities, so no runs; use chat-completions",
            ));
        }
        if !is_success(response.status) {
            return Err(error_status(response.status, &response.body));
        }
        let offered: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        let has = |name: &&str| {
            offered.pointer("/features").and_then(|all| all.get(name)) == Some(&Value::Bool(true))
        };
        match FEATURES.iter().find(|name| !has(name)) {
            Some(lacking) => Err(hermes_agent::error(&format!(
                "the gateway does not offer runs (features.{lacking} is not true); use chat-completions"
            ))),
            None => Ok(()),
        }
    }

    fn execute(turn: Turn) -> Result<Outcome, Failure> {
        if turn.text.trim().is_empty() {
            return Ok(Outcome::text(EMPTY_PROMPT));
        }
        let settings: Settings = settings(&turn.settings)?;
        let gateway = Gateway::new(&settings.base_url);
        let run = match turn.checkpoint.as_deref() {
            Some(kept) => Run::resumed(gateway, Checkpoint::read(kept)?, turn.streaming),
            None => {
                let id = gateway.submit(&settings.body(&gateway, &turn), turn.streaming)?;
                let checkpoint = Checkpoint::new(id);
                checkpoint.keep();
                Run::started(gateway, checkpoint, turn.streaming)
            }
        };
        run.follow()
    }

    fn cancel(turn: Turn, checkpoint: Option<Vec<u8>>) -> Result<(), Failure> {
        // Without a checkpoint there is no run that anybody knows of.
        let Some(kept) = checkpoint else { return Ok(()) };
        let settings: Settings = settings(&turn.settings)?;
        Gateway::new(&settings.base_url).stop(&Checkpoint::read(&kept)?.run)
    }
}

impl Settings {
    fn body(&self, gateway: &Gateway, turn: &Turn) -> Value {
        let workspace = turn.workspace.as_ref();
        let (session, conversation) = conversation::so_far(gateway, turn);
        let mut body = json!({ "input": turn.text, "session_id": session });
        let mut put = |name: &str, value: Option<Value>| {
            if let (Value::Object(body), Some(value)) = (&mut body, value) {
                body.insert(name.into(), value);
            }
        };
        let own = |own, workspace| first(own, workspace).map(Value::from);
        put("instructions", own(&self.system_prompt, workspace.and_then(|w| w.system_prompt.as_ref())));
        put("model", own(&self.model, workspace.and_then(|w| w.model.as_ref())));
        put("conversation_history", (!conversation.is_empty()).then(|| conversation.into()));
        body
    }
}

/// The turn was cancelled while it waited.
fn cancelled() -> Failure {
    Failure::new(FailureKind::Cancelled, "[hermes-agent unreachable] the turn was cancelled")
}

talaria_guest::export!(HermesRuns);
