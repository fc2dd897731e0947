//! Hermes models on any OpenAI-compatible endpoint, with native reasoning and tools, one answer a turn.
//!
//! Hermes 4 thinks if it is told to. Its thoughts are for operators: they go into a span of the trace, never into the
//! reply, an event or a log line, because they would come back as context of the next turn. Endpoints send thoughts in
//! a field of their own or inside the content; both are taken out, in streams too.
//!
//! Tools are sent in the endpoint's own parameter. If the model answers with calls instead of text, the calls are
//! passed on: this executor calls nothing, and the caller decides.
//!
//! A call that fails before anything of the answer was passed on is made again (`retry`).
//!
//! A caller reads only the class of a failure, as in the Python executor, since providers put keys and quotas into
//! their texts.

mod answer;
mod calls;
mod fault;
mod reasoning;
mod retry;
mod stream;
mod think;

use serde::{Deserialize, Serialize};
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

use crate::answer::Answer;
use crate::fault::Fault;
use crate::retry::{DEFAULT_RETRIES, Retries};

/// The endpoint's key.
const KEY: &str = "OPENAI_API_KEY";
/// The names of models that think if they are told to.
const THINKING_MODELS: [&str; 2] = ["hermes-4", "hermes4"];

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
    history: Remembers,
    #[serde(default)]
    on_restart: OnRestart,
    #[serde(default = "default_retries")]
    max_retries: u32,
}

fn default_retries() -> u32 {
    DEFAULT_RETRIES
}

/// The body of a request.
#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<Message<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Reasoning>,
    /// Absent rather than empty, because some endpoints reject an empty list.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    tools: &'a [Box<RawValue>],
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stream: bool,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Content<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(&'a str),
    Prompt(&'a Prompt<'a>),
}

#[derive(Serialize)]
struct Reasoning {
    enabled: bool,
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
        let body = settings.body(&turn, &prompt, model)?;
        if settings.on_restart == OnRestart::Retry && turn.checkpoint.is_none() {
            // An empty checkpoint suffices: it makes the host run the turn again.
            if let Err(error) = state::checkpoint(b"{}") {
                let line = format!("turn not checkpointed; a restart would fail it: {}", error.message);
                log::write(log::Level::Warn, &line, None);
            }
        }
        let mut retries = Retries::new(&turn, settings.max_retries);
        let (answer, ended) = loop {
            let mut answer = Answer::default();
            let request = settings.request(body.clone());
            let ended =
                if turn.streaming { stream::read(request, &mut answer) } else { whole(request, &mut answer) };
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
        answer.reasoning.record(&turn, model);
        ended.map_err(|fault| fault.failure(model))?;
        answer.outcome(&turn)
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

    fn body(&self, turn: &Turn, prompt: &Prompt<'_>, model: &str) -> Result<Vec<u8>, Failure> {
        let workspace = turn.workspace.as_ref();
        let system = first(&self.system_prompt, workspace.and_then(|w| w.system_prompt.as_ref()));
        let system = system.map(|text| Message { role: "system", content: Content::Text(text) });
        let said = Message { role: "user", content: Content::Prompt(prompt) };
        let tools = self.tools(workspace)?;
        let past = match self.history {
            Remembers::Auto | Remembers::Messages => history::messages(),
            Remembers::Session | Remembers::None => Vec::new(),
        };
        let past = past.iter().map(|said| Message { role: said.role, content: Content::Text(&said.content) });
        prompt.body(&Body {
            model,
            messages: system.into_iter().chain(past).chain([said]).collect(),
            reasoning: thinks(model).then_some(Reasoning { enabled: true }),
            tools: &tools,
            stream: turn.streaming,
        })
    }

    fn request(&self, body: Vec<u8>) -> Request {
        let request = Request::new("POST", format!("{}/chat/completions", self.base()))
            .body("application/json", body)
            .timeout_ms(turn_timeout_ms());
        bearer(request, KEY)
    }
}

/// Whether the model thinks if it is told to.
fn thinks(model: &str) -> bool {
    let model = model.to_lowercase();
    THINKING_MODELS.iter().any(|name| model.contains(name))
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
    fn only_hermes_4_is_told_to_think() {
        for (model, expected) in [
            ("nousresearch/hermes-4-70b", true),
            ("Hermes4", true),
            ("nousresearch/hermes-3-llama-3.1-405b", false),
            ("gpt-4", false),
        ] {
            assert_eq!(thinks(model), expected, "{model}");
        }
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
