//! {{name}}: sends each turn to an OpenAI-compatible API and returns the answer.
//!
//! Calls block, and the host runs other turns meanwhile. Each turn has its own instance.

use serde::Deserialize;
use serde_json::{Value, json};
use talaria_guest::{
    Description, Executor, Failure, FailureKind, FinalState, Needs, Outcome, Request, SetupContext, Turn, config,
    events, http, settings,
};

/// The host fills it in; this code never sees it.
const KEY: &str = "UPSTREAM_KEY";

#[derive(Deserialize)]
struct Settings {
    base_url: String,
    model: String,
}

struct Agent;

impl Executor for Agent {
    /// Declares the name, the settings and the needs. The operator decides what is granted.
    fn describe() -> Description {
        Description {
            settings_schema: json!({
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "base_url": { "type": "string", "default": "https://api.example.com/v1" },
                    "model": { "type": "string", "default": "a-model" },
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
            ..Description::new("{{name}}", env!("CARGO_PKG_VERSION"), "Sends a turn to an OpenAI-shaped API")
        }
    }

    /// Checks that the upstream can be reached, before the first turn and periodically.
    fn setup(context: SetupContext) -> Result<(), Failure> {
        let settings: Settings = settings(&context.settings)?;
        let response = settings.request("GET", "/models").timeout_ms(5_000).fetch().map_err(|error| failed(&error))?;
        if response.status == 200 { Ok(()) } else { Err(upstream(format!("it answers {}", response.status))) }
    }

    fn execute(turn: Turn) -> Result<Outcome, Failure> {
        let settings: Settings = settings(&turn.settings)?;
        let request = settings.request("POST", "/chat/completions").json(&json!({
            "model": settings.model,
            "messages": [{ "role": "user", "content": turn.text }],
            "stream": turn.streaming,
        }));
        if turn.streaming {
            return stream(request);
        }
        let response = request.fetch().map_err(|error| failed(&error))?;
        if response.status != 200 {
            return Err(upstream(format!("it answers {}", response.status)));
        }
        let answer: Value = serde_json::from_slice(&response.body).map_err(|_| upstream("its answer is no JSON"))?;
        match answer.pointer("/choices/0/message/content").and_then(Value::as_str) {
            Some(text) => Ok(Outcome::text(text)),
            None => Err(upstream("its answer has no text")),
        }
    }
}

impl Settings {
    fn request(&self, method: &str, path: &str) -> Request {
        let request = Request::new(method, format!("{}{path}", self.base_url.trim_end_matches('/')));
        match config::has_secret(KEY) {
            true => request.header("authorization", format!("Bearer {{secret:{KEY}}}")),
            false => request,
        }
    }
}

/// Passes the answer on as it arrives.
fn stream(request: Request) -> Result<Outcome, Failure> {
    let exchange = request.open().map_err(|error| failed(&error))?;
    if exchange.status() != 200 {
        return Err(upstream(format!("it answers {}", exchange.status())));
    }
    while let Some(event) = exchange.next_event().map_err(|error| failed(&error))? {
        let chunk: Value = serde_json::from_str(&event.data).unwrap_or_default();
        if let Some(text) = chunk.pointer("/choices/0/delta/content").and_then(Value::as_str) {
            events::emit(&events::Event::TextDelta(text.into()))
                .map_err(|error| Failure::new(FailureKind::Internal, error.message))?;
        }
    }
    // The emitted text is the answer.
    Ok(Outcome::new(FinalState::Completed, Vec::new()))
}

fn upstream(message: impl Into<String>) -> Failure {
    Failure { retryable: true, ..Failure::new(FailureKind::Upstream, message) }
}

fn failed(error: &http::Error) -> Failure {
    match error.kind {
        http::ErrorKind::Denied => Failure::new(FailureKind::Denied, error.message.clone()),
        http::ErrorKind::Cancelled => Failure::new(FailureKind::Cancelled, error.message.clone()),
        http::ErrorKind::TimedOut => Failure::new(FailureKind::TimedOut, error.message.clone()),
        _ => upstream(error.message.clone()),
    }
}

talaria_guest::export!(Agent);
