//! Reaches an agent by `POST {base_url}/chat/completions`, buffered, or streamed when somebody watches.
//!
//! The texts that a caller reads when something is wrong are those of the Python bridge, to the letter, because
//! platforms match on them. What the bridge got wrong is put right: the gateway reports a provider's failure as
//! HTTP 200 with `finish_reason: "error"`, and that is a failure here, not an answer.

mod reply;
mod session;
mod stream;

use serde::Deserialize;
use serde_json::{Value, json};
use talaria_guest::{
    Capabilities, Description, Executor, Failure, FailureKind, Needs, Outcome, Request, SetupContext, Turn,
    config, events, http, log, settings,
};

use crate::session::Session;

/// How long the gateway may take to answer a turn.
const TURN_TIMEOUT_MS: u32 = 600_000;
/// How long it may take to answer the probe.
const PROBE_TIMEOUT_MS: u32 = 5_000;
/// How much of an upstream's error a caller gets to read, in characters.
const ERROR_CHARS: usize = 500;
/// The secret that the gateway wants, where it wants one.
const KEY: &str = "API_SERVER_KEY";

#[derive(Deserialize)]
struct Settings {
    base_url: String,
    #[serde(default)]
    model: String,
    #[serde(default)]
    system_prompt: String,
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
                        "description": "The gateway's OpenAI-shaped API",
                        "default": "http://127.0.0.1:8642/v1",
                    },
                    "model": {
                        "type": "string",
                        "description": "Model to ask for; the workspace's if empty, `hermes-agent` if there is none",
                        "default": "",
                    },
                    "system_prompt": {
                        "type": "string",
                        "description": "System prompt; the workspace's if empty",
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
                    "POST {setting:base_url}/chat/completions".into(),
                    "GET {setting:base_url}/health".into(),
                ],
                secrets: vec![KEY.into()],
                callbacks: false,
            },
            ..Description::new(
                "chat-completions",
                env!("CARGO_PKG_VERSION"),
                "Sends each turn to an OpenAI-shaped gateway, hermes-agent above all",
            )
        }
    }

    fn setup(context: SetupContext) -> Result<(), Failure> {
        let settings: Settings = settings(&context.settings)?;
        let probe = Request::new("GET", format!("{}/health", settings.base())).timeout_ms(PROBE_TIMEOUT_MS);
        match probe.fetch() {
            Ok(response) if response.status >= 500 => Err(upstream_error(response.status, &response.body)),
            Ok(_) => Ok(()),
            Err(error) if error.kind == http::ErrorKind::Denied => {
                log::write(
                    log::Level::Info,
                    "not probed: the grant has no GET for the gateway's /health",
                    None,
                );
                Ok(())
            }
            Err(error) => Err(unreachable(&error)),
        }
    }

    fn execute(turn: Turn) -> Result<Outcome, Failure> {
        if turn.text.trim().is_empty() {
            return Ok(Outcome::text("(empty prompt — nothing to do)"));
        }
        let settings: Settings = settings(&turn.settings)?;
        let session = Session::of(&turn, config::has_secret(KEY));
        let request = session.join(settings.request(&turn));
        if turn.streaming {
            return stream::answer(request, &session);
        }
        let response = request.fetch().map_err(|error| unreachable(&error))?;
        session.follow(&response.headers);
        if !(200..300).contains(&response.status) {
            return Err(upstream_error(response.status, &response.body));
        }
        reply::parse(&response.body)?.outcome()
    }
}

impl Settings {
    fn base(&self) -> &str {
        self.base_url.trim_end_matches('/')
    }

    fn request(&self, turn: &Turn) -> Request {
        let workspace = turn.workspace.as_ref();
        let first = |own: &str, workspace: Option<&String>| {
            [Some(own), workspace.map(String::as_str)]
                .into_iter()
                .flatten()
                .find(|text| !text.is_empty())
                .map(str::to_owned)
        };
        let model = first(&self.model, workspace.and_then(|w| w.model.as_ref()));
        let system = first(&self.system_prompt, workspace.and_then(|w| w.system_prompt.as_ref()));
        let mut messages: Vec<Value> = Vec::new();
        messages.extend(system.map(|content| json!({ "role": "system", "content": content })));
        messages.push(json!({ "role": "user", "content": turn.text }));
        let body = json!({
            "model": model.as_deref().unwrap_or("hermes-agent"),
            "messages": messages,
            "stream": turn.streaming,
        });
        let request = Request::new("POST", format!("{}/chat/completions", self.base()))
            .json(&body)
            .timeout_ms(TURN_TIMEOUT_MS);
        if config::has_secret(KEY) {
            request.header("authorization", format!("Bearer {{secret:{KEY}}}"))
        } else {
            request
        }
    }
}

/// No response. Policy's reasons are for the operator's log, where the host wrote them already.
fn unreachable(error: &http::Error) -> Failure {
    let (kind, reason) = match error.kind {
        http::ErrorKind::Denied => (FailureKind::Denied, "the operator's policy does not allow it"),
        http::ErrorKind::TimedOut => (FailureKind::TimedOut, error.message.as_str()),
        http::ErrorKind::Cancelled => (FailureKind::Cancelled, error.message.as_str()),
        _ => (FailureKind::Upstream, error.message.as_str()),
    };
    Failure {
        retryable: matches!(kind, FailureKind::Upstream | FailureKind::TimedOut),
        ..Failure::new(kind, format!("[hermes-agent unreachable] {reason}"))
    }
}

/// A response that is not 2xx. Bodies may be JSON or plain text.
fn upstream_error(status: u16, body: &[u8]) -> Failure {
    let text = excerpt(&String::from_utf8_lossy(body));
    Failure {
        retryable: status == 429 || status >= 500,
        ..Failure::new(FailureKind::Upstream, format!("[hermes-agent error {status}] {text}"))
    }
}

/// The beginning of an upstream's text: scrubbed first, since half a key looks like none.
fn excerpt(text: &str) -> String {
    events::scrub(text).chars().take(ERROR_CHARS).collect()
}

talaria_guest::export!(ChatCompletions);
