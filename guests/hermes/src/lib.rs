//! Hermes models on any OpenAI-compatible endpoint, with native reasoning and tools, one answer a turn.
//!
//! Hermes 4 thinks if it is told to. Its thoughts are for operators: they go into a span of the trace, never into the
//! reply, an event or a log line, because they would come back as context of the next turn. Endpoints send thoughts in
//! a field of their own or inside the content; both are taken out, in streams too.
//!
//! Tools are sent in the endpoint's own parameter. If the model answers with calls instead of text, the calls are
//! passed on, and the caller decides. With `settings.tool_loop` this executor runs the calls of the host's tools itself
//! (`tool_loop`).
//!
//! A call that fails before anything of the answer was passed on is made again (`retry`).
//!
//! A caller reads only the class of a failure, as in the Python executor, since providers put keys and quotas into
//! their texts.

mod answer;
mod calls;
mod conversation;
mod fault;
mod reasoning;
mod retry;
mod stream;
mod think;
mod tool_loop;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use talaria_guest::types::Workspace;
use talaria_guest::{
    Description, Executor, Failure, FailureKind, Needs, Outcome, Request, SetupContext, Turn, http, log,
    settings, state,
};
use talaria_upstream::hermes_agent::OnRestart;
use talaria_upstream::history::{self, Remembers};
use talaria_upstream::{
    PROBE_TIMEOUT_MS, Prompt, base, bearer, first, input_modes, is_success, turn_timeout_ms,
};

use crate::answer::{Answer, Before};
use crate::conversation::Conversation;
use crate::fault::Fault;
use crate::retry::{DEFAULT_RETRIES, Retries};
use crate::tool_loop::{MOST_ROUNDS, ToolLoop};

/// The endpoint's key.
const KEY: &str = "OPENAI_API_KEY";

#[derive(Deserialize)]
struct Settings {
    base_url: String,
    #[serde(default)]
    model: String,
    #[serde(default)]
    system_prompt: String,
    #[serde(default)]
    tools: Vec<Box<RawValue>>,
    #[serde(default)]
    tool_loop: tool_loop::Setting,
    #[serde(default)]
    history: Remembers,
    #[serde(default)]
    on_restart: OnRestart,
    #[serde(default = "default_retries")]
    max_retries: u32,
}

fn default_retries() -> u32 {
    DEFAULT_RETRIES
}

struct Hermes;

impl Executor for Hermes {
    fn describe() -> Description {
        Description {
            display_name: "Hermes".into(),
            settings_schema: json!({
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "base_url": {
                        "type": "string",
                        "description": "URL of the endpoint's OpenAI-compatible API",
                        "default": "https://openrouter.ai/api/v1",
                    },
                    "model": {
                        "type": "string",
                        "description": "Model to ask for; the workspace's if empty",
                        "default": "",
                    },
                    "system_prompt": {
                        "type": "string",
                        "description": "System prompt; the workspace's if empty",
                        "default": "",
                    },
                    "tools": {
                        "type": "array",
                        "description": "Tools in OpenAI's format; the workspace's if empty",
                        "items": { "type": "object" },
                        "default": [],
                    },
                    "tool_loop": {
                        "anyOf": [
                            { "type": "boolean" },
                            {
                                "type": "object",
                                "additionalProperties": false,
                                "properties": {
                                    "max_rounds": { "type": "integer", "minimum": 1, "maximum": MOST_ROUNDS },
                                },
                            },
                        ],
                        "description": "Runs the model's calls of the host's tools that the grant names, and sends the results back, for up to 8 rounds or `max_rounds`; off: calls are returned",
                        "default": false,
                    },
                    "history": history::schema("`auto` means `messages`, since the endpoint keeps no sessions"),
                    "on_restart": {
                        "type": "string",
                        "enum": ["fail", "retry"],
                        "description": "What happens to a turn that a restart of this host interrupted: `retry` asks the model again",
                        "default": "fail",
                    },
                    "max_retries": {
                        "type": "integer",
                        "minimum": 0,
                        "maximum": 10,
                        "description": "How often a call is made again that failed with 408, 409, 429, 5xx or a lost connection, before anything of the answer was passed on",
                        "default": DEFAULT_RETRIES,
                    },
                },
            })
            .to_string(),
            streaming: true,
            needs: Needs {
                egress: vec![
                    "POST {setting:base_url}/chat/completions".into(),
                    "GET {setting:base_url}/models".into(),
                ],
                secrets: vec![KEY.into()],
                callbacks: false,
            },
            metadata: Some(
                json!({
                    "talaria/input-modes": input_modes(),
                    "talaria/output-modes": ["text/plain", "application/json"],
                })
                .to_string(),
            ),
            ..Description::new(
                "hermes",
                env!("CARGO_PKG_VERSION"),
                "Asks a Hermes model on any OpenAI-compatible endpoint, with native reasoning and tools",
            )
        }
    }

    fn setup(context: SetupContext) -> Result<(), Failure> {
        let settings: Settings = settings(&context.settings)?;
        settings.model(context.workspace.as_ref())?;
        settings.tools(context.workspace.as_ref())?;
        probe(settings.base())
    }

    fn execute(turn: Turn) -> Result<Outcome, Failure> {
        let prompt = Prompt::of(&turn)?;
        if prompt.is_empty() {
            return Err(Failure::new(FailureKind::InvalidTurn, "Error: message contained no text content."));
        }
        let settings: Settings = settings(&turn.settings)?;
        let workspace = turn.workspace.as_ref();
        let model = settings.model(workspace)?;
        ToolLoop::check(&turn)?;
        let own = settings.tools(workspace)?;
        let (mut tool_loop, tools) = ToolLoop::begin(&settings.tool_loop, settings.on_restart, own);
        let conversation = settings.conversation(&turn, &prompt, model, tools);
        if settings.on_restart == OnRestart::Retry && turn.checkpoint.is_none() {
            // An empty checkpoint suffices: it makes the host run the turn again.
            if let Err(error) = state::checkpoint(b"{}") {
                let line = format!("turn not checkpointed; a restart would fail it: {}", error.message);
                log::write(log::Level::Warn, &line, None);
            }
        }
        let mut before = Before::default();
        loop {
            let body = conversation.body(tool_loop.as_ref())?;
            let answer = settings.ask(&turn, &body, model, !before.is_silent())?;
            let goes_on = match &mut tool_loop {
                Some(tool_loop) => tool_loop.follow(&answer.said(), model)?,
                None => false,
            };
            if !goes_on {
                return answer.outcome(&turn, before);
            }
            before.add(answer, &turn);
        }
    }
}

impl Settings {
    fn base(&self) -> &str {
        base(&self.base_url)
    }

    fn model<'a>(&'a self, workspace: Option<&'a Workspace>) -> Result<&'a str, Failure> {
        first(&self.model, workspace.and_then(|workspace| workspace.model.as_ref())).ok_or_else(|| {
            Failure::new(
                FailureKind::InvalidSettings,
                "no model: set settings.model, such as \"nousresearch/hermes-4-70b\"",
            )
        })
    }

    /// The executor's own tools, or the workspace's.
    fn tools(&self, workspace: Option<&Workspace>) -> Result<Vec<Box<RawValue>>, Failure> {
        let tools = match (self.tools.is_empty(), workspace) {
            (true, Some(workspace)) => serde_json::from_str(&workspace.tools).map_err(|error| {
                Failure::new(FailureKind::InvalidSettings, format!("the workspace's tools: {error}"))
            })?,
            _ => self.tools.clone(),
        };
        match tools.iter().find(|tool| !tool.get().starts_with('{')) {
            Some(tool) => {
                let what =
                    format!("tools: {} is no tool; write an object with `type` and `function`", tool.get());
                Err(Failure::new(FailureKind::InvalidSettings, what))
            }
            None => Ok(tools),
        }
    }

    /// What the turn asks, with these tools.
    fn conversation<'a>(
        &'a self,
        turn: &'a Turn,
        prompt: &'a Prompt<'a>,
        model: &'a str,
        tools: Vec<Box<RawValue>>,
    ) -> Conversation<'a> {
        let workspace = turn.workspace.as_ref();
        let system = first(&self.system_prompt, workspace.and_then(|w| w.system_prompt.as_ref()));
        let past = match self.history {
            Remembers::Auto | Remembers::Messages => history::messages(),
            Remembers::Session | Remembers::None => Vec::new(),
        };
        Conversation { model, system, past, prompt, tools, stream: turn.streaming }
    }

    /// Asks the model once, and again after failures that may pass. With `continues` other text of the turn came before.
    fn ask(&self, turn: &Turn, body: &[u8], model: &str, continues: bool) -> Result<Answer, Failure> {
        let mut retries = Retries::new(turn, self.max_retries);
        let (answer, ended) = loop {
            let mut answer = Answer::default();
            let request = self.request(body.to_vec());
            let ended = match turn.streaming {
                true => stream::read(request, &mut answer, continues),
                false => whole(request, &mut answer),
            };
            let again = match &ended {
                Err(fault) if !answer.passed_on => retries.pause(fault, model),
                _ => Ok(false),
            };
            match again {
                Ok(true) => {}
                Ok(false) => break (answer, ended),
                Err(fault) => break (answer, Err(fault)),
            }
        };
        // Also for a turn that failed later.
        answer.reasoning.record(turn, model);
        ended.map_err(|fault| fault.failure(model))?;
        Ok(answer)
    }

    fn request(&self, body: Vec<u8>) -> Request {
        let request = Request::new("POST", format!("{}/chat/completions", self.base()))
            .body("application/json", body)
            .timeout_ms(turn_timeout_ms());
        bearer(request, KEY)
    }
}

/// Asks for the endpoint's models. Only the head of the response is read, since the list of a router is long.
fn probe(base: &str) -> Result<(), Failure> {
    let request = Request::new("GET", format!("{base}/models")).timeout_ms(PROBE_TIMEOUT_MS);
    let upstream = |what: String| Err(Failure::new(FailureKind::Upstream, what));
    match bearer(request, KEY).open().map(|exchange| exchange.status()) {
        Ok(status @ (401 | 403)) => upstream(format!("{base} refuses the key ({status}); set {KEY}")),
        Ok(status) if status >= 500 => upstream(format!("{base} is in trouble ({status})")),
        // An endpoint may lack that list.
        Ok(_) => Ok(()),
        Err(error) if error.kind == http::ErrorKind::Denied => {
            log::write(
                log::Level::Info,
                "probe skipped: the grant has no GET for the endpoint's /models",
                None,
            );
            Ok(())
        }
        Err(error) => upstream(format!("{base} is unreachable: {}", error.message)),
    }
}

/// Reads the answer in one piece.
fn whole(request: Request, answer: &mut Answer) -> Result<(), Fault> {
    let response = request.fetch()?;
    if !is_success(response.status) {
        return Err(Fault::status(response.status, &response.body).with(&response.headers));
    }
    answer.parse(&response.body)
}

talaria_guest::export!(Hermes);
talaria_guest::without_wasi!();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_of_the_schema_are_valid_but_for_the_model() {
        let settings: Settings = settings(&Hermes::describe().default_settings()).unwrap();
        assert_eq!(settings.base(), "https://openrouter.ai/api/v1");
        assert_eq!(settings.model(None).unwrap_err().kind, FailureKind::InvalidSettings);
    }

    #[test]
    fn a_tool_must_be_an_object() {
        let tools = |tools: &str| {
            let json = format!(r#"{{"base_url":"http://h","tools":{tools}}}"#);
            settings::<Settings>(&json).unwrap().tools(None).map(|tools| tools.len()).ok()
        };
        assert_eq!(tools(r#"[{"type":"function"}]"#), Some(1));
        assert_eq!(tools("[]"), Some(0));
        assert_eq!(tools(r#"["terminal"]"#), None);
    }
}
