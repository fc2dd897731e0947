//! Reaches hermes-agent by its runs: the route with events, approvals, and a stop that stops.
//!
//! The client of that route is [`talaria_upstream::hermes_agent::runs`], which says what happens to a run.
//!
//! A gateway from before there were runs gets the turn as a chat completion in the context's session. The completion is
//! always streamed, even if the caller is not streaming: the gateway gives up a stream whose reader is gone, but runs
//! an unstreamed completion to its end.

use serde::Deserialize;
use serde_json::json;
use talaria_guest::{
    Capabilities, Description, Executor, Failure, Needs, Outcome, Page, Query, SetupContext, Transcript,
    Turn, settings, types::SetupReason,
};
use talaria_upstream::hermes_agent::runs::{self, Backoff, Checkpoint, Gateway, Start};
use talaria_upstream::hermes_agent::{Chat, EMPTY_PROMPT, KEY, Session, transcript};
use talaria_upstream::{Prompt, first, input_modes};

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
                        "description": "URL of the gateway's API",
                        "default": "http://127.0.0.1:8642/v1",
                    },
                    "model": {
                        "type": "string",
                        "description": "Model to ask for; if empty, the workspace's, else the gateway's",
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
        let capabilities = runs::Capabilities::of(&gateway)?;
        capabilities.prove(&gateway)?;
        // Once, not at every probe.
        if context.reason == SetupReason::Load {
            capabilities.log();
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
        if let Some(stored) = turn.checkpoint.as_deref() {
            return runs::resume(gateway, Checkpoint::read(stored)?, &turn);
        }
        match runs::Capabilities::of(&gateway) {
            Ok(runs::Capabilities::Lacks(_) | runs::Capabilities::Unlisted) => settings.chat(&turn, prompt),
            // A gateway that does not answer gets a run, whose answer is the one that counts.
            Ok(runs::Capabilities::Runs | runs::Capabilities::Denied) | Err(_) => {
                settings.run(gateway, &turn, &prompt)
            }
        }
    }

    fn cancel(turn: Turn, checkpoint: Option<Vec<u8>>) -> Result<(), Failure> {
        // Without a checkpoint no run is known; a stream ended with the turn.
        let Some(stored) = checkpoint else { return Ok(()) };
        let settings: Settings = settings(&turn.settings)?;
        Gateway::new(&settings.base_url).stop(&Checkpoint::read(&stored)?)
    }
}

impl Settings {
    fn chat<'a>(&'a self, turn: &'a Turn, prompt: Prompt<'a>) -> Result<Outcome, Failure> {
        let chat = Chat::new(turn, prompt, &self.base_url, &self.model, &self.system_prompt);
        if chat.is_cut() {
            return Err(chat.too_long());
        }
        let mut backoff = Backoff::new(turn.streaming);
        loop {
            let exchange = chat.open()?;
            if !backoff.wait(exchange.status(), &exchange.headers())? {
                return chat.read(&exchange);
            }
        }
    }

    fn run(&self, gateway: Gateway, turn: &Turn, prompt: &Prompt<'_>) -> Result<Outcome, Failure> {
        let workspace = turn.workspace.as_ref();
        let session = Session::of(turn);
        let start = Start {
            prompt,
            model: first(&self.model, workspace.and_then(|workspace| workspace.model.as_ref())),
            instructions: first(
                &self.system_prompt,
                workspace.and_then(|workspace| workspace.system_prompt.as_ref()),
            ),
            session: Some(&session),
            scope: Some(&session),
            history: runs::of_task(turn),
        };
        runs::start(gateway, start, turn.streaming)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_of_the_schema_are_valid_settings() {
        let defaults = HermesRuns::describe().default_settings();
        let settings: Settings = settings(&defaults).unwrap();
        assert_eq!((settings.base_url.as_str(), settings.model.as_str()), ("http://127.0.0.1:8642/v1", ""));
    }
}
