//! Reaches an agent by `POST {base_url}/chat/completions`: buffered, or streamed if the caller is streaming.
//!
//! The texts that a caller reads when something is wrong are those of the Python bridge, to the letter, because
//! platforms match on them. One thing is corrected: the gateway reports a provider's failure as HTTP 200 with
//! `finish_reason: "error"`, and that is a failure here, not an answer.
//!
//! hermes-agent cuts a long text on this route without saying so. Such a text goes out as a run instead, in the same
//! session, if the gateway has runs; if it has none, the turn is rejected.
//!
//! A turn that a restart of this host interrupted is asked again where that is safe; a run is followed to its end.

use serde::Deserialize;
use serde_json::json;
use talaria_guest::{
    Capabilities, Description, Executor, Failure, FailureKind, Needs, Outcome, Page, Query, Request,
    SetupContext, Transcript, Turn, config, http, log, settings,
};
use talaria_upstream::hermes_agent::runs::{self, Checkpoint, Gateway};
use talaria_upstream::hermes_agent::{
    Chat, EMPTY_PROMPT, KEY, OnRestart, error_status, transcript, unreachable,
};
use talaria_upstream::history::{self, Remembers};
use talaria_upstream::{PROBE_TIMEOUT_MS, Prompt, base, bearer, input_modes};

#[derive(Deserialize)]
struct Settings {
    base_url: String,
    #[serde(default)]
    model: String,
    #[serde(default)]
    system_prompt: String,
    #[serde(default)]
    history: Remembers,
    #[serde(default)]
    on_restart: OnRestart,
}

struct ChatCompletions;

impl Executor for ChatCompletions {
    fn describe() -> Description {
        Description {
            display_name: "Chat completions".into(),
            settings_schema: json!({
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "base_url": {
                        "type": "string",
                        "description": "URL of the gateway's OpenAI-shaped API",
                        "default": "http://127.0.0.1:8642/v1",
                    },
                    "model": {
                        "type": "string",
                        "description": "Model to ask for; if empty, the workspace's, else `hermes-agent`",
                        "default": "",
                    },
                    "system_prompt": {
                        "type": "string",
                        "description": "System prompt; the workspace's if empty",
                        "default": "",
                    },
                    "history": history::schema(
                        "`auto` means `session` for a hermes-agent whose key is set, else `messages`",
                    ),
                    "on_restart": {
                        "type": "string",
                        "enum": ["fail", "retry"],
                        "description": "What happens to a turn that a restart of this host interrupted and whose answer the gateway \
                            does not keep: `retry` sends it again, and its tools may run twice",
                        "default": "fail",
                    },
                },
            })
            .to_string(),
            capabilities: Capabilities { session: true, ..Capabilities::default() },
            idle_timeout_seconds: Some(900),
            streaming: true,
            needs: Needs {
                egress: vec![
                    "POST {setting:base_url}/chat/completions".into(),
                    "GET {setting:base_url}/health".into(),
                    "GET {setting:base_url}/models".into(),
                    "GET {parent:base_url}/api/sessions*".into(),
                    "GET {parent:base_url}/health/detailed".into(),
                    "GET {setting:base_url}/capabilities".into(),
                    "POST {setting:base_url}/runs".into(),
                    "GET {setting:base_url}/runs/*".into(),
                    "POST {setting:base_url}/runs/*".into(),
                ],
                secrets: vec![KEY.into()],
                callbacks: false,
            },
            metadata: Some(json!({ "talaria/input-modes": input_modes() }).to_string()),
            ..Description::new(
                "chat-completions",
                env!("CARGO_PKG_VERSION"),
                "Sends each turn to an OpenAI-shaped gateway, hermes-agent above all",
            )
        }
    }

    /// Also asks for the list of models, which wants the key: health needs none, so a wrong or a missing one would pass until
    /// the first turn.
    fn setup(context: SetupContext) -> Result<(), Failure> {
        let settings: Settings = settings(&context.settings)?;
        let get = |route: &str| {
            Request::new("GET", format!("{}{route}", base(&settings.base_url))).timeout_ms(PROBE_TIMEOUT_MS)
        };
        if let Some(health) = granted(get("/health").fetch())?
            && health.status >= 500
        {
            return Err(error_status(health.status, &health.body));
        }
        // Only its head is read: the list of a router is long.
        if let Some(models) = granted(bearer(get("/models"), KEY).open())?
            && let status @ (401 | 403) = models.status()
        {
            let (at, verb) =
                (&settings.base_url, if config::has_secret(KEY) { "refuses the" } else { "wants a" });
            let why = format!("the gateway at {at} {verb} key ({status}); set {KEY} to that of its .env");
            return Err(Failure::new(FailureKind::Upstream, why));
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
        if let Some(checkpoint) = Checkpoint::of_run(turn.checkpoint.as_deref()) {
            return runs::resume(gateway, checkpoint, &turn);
        }
        let chat = Chat::new(&turn, prompt, &settings.base_url, &settings.model, &settings.system_prompt)
            .remembered_by(settings.history);
        // A turn that went out on the chat route before a restart stays there, since its tools would run twice.
        if turn.checkpoint.is_some() || !chat.is_cut() {
            return chat.answer(settings.on_restart);
        }
        match runs::Capabilities::of(&gateway)? {
            runs::Capabilities::Runs => chat.run(gateway),
            _ => Err(chat.too_long()),
        }
    }

    /// Stops the run of a turn that has one. A stream ends with the turn, and the gateway notices.
    fn cancel(turn: Turn, checkpoint: Option<Vec<u8>>) -> Result<(), Failure> {
        let Some(checkpoint) = Checkpoint::of_run(checkpoint.as_deref()) else { return Ok(()) };
        let settings: Settings = settings(&turn.settings)?;
        Gateway::new(&settings.base_url).stop(&checkpoint)
    }
}

/// The result of a call; `None` if the grant does not include it, which does not stop the executor from working.
fn granted<T>(called: Result<T, http::Error>) -> Result<Option<T>, Failure> {
    match called {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.kind == http::ErrorKind::Denied => {
            log::write(log::Level::Info, &format!("probe skipped: {}", error.message), None);
            Ok(None)
        }
        Err(error) => Err(unreachable(&error)),
    }
}

impl Transcript for ChatCompletions {
    fn read(query: Query) -> Result<Page, Failure> {
        let settings: Settings = settings(&query.settings)?;
        transcript::read(&settings.base_url, &query)
    }
}

talaria_guest::export!(ChatCompletions);
talaria_guest::export_transcript!(ChatCompletions);
talaria_guest::without_wasi!();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_of_the_schema_are_valid_settings() {
        let defaults = ChatCompletions::describe().default_settings();
        let settings: Settings = settings(&defaults).unwrap();
        assert_eq!(settings.base_url, "http://127.0.0.1:8642/v1");
        assert!(settings.history == Remembers::Auto && settings.on_restart == OnRestart::Fail);
    }
}
