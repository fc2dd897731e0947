//! Asks two upstreams at once, takes the answer of the one that begins first, and stops the other.
//!
//! The code is straight-line: it opens both streams, then polls them in turn with `await-event`, a few milliseconds
//! each. The first one with text wins. Dropping the loser's exchange closes its connection, and its upstream stops. An
//! upstream that fails has lost; if both fail, the turn says why.
//!
//! `open` returns with the head of the response, which streaming gateways send before they think.

use std::collections::VecDeque;

use serde::Deserialize;
use serde_json::{Value, json};
use talaria_guest::{
    Description, Executor, Failure, FailureKind, FinalState, Needs, Outcome, Part, Request, SetupContext,
    Turn, Usage, config, control, events, http, log, settings,
};

/// How long one stream is polled before the other.
const LOOK_MS: u32 = 10;
const PROBE_MS: u32 = 5_000;

#[derive(Deserialize)]
struct Settings {
    first_url: String,
    second_url: String,
    model: String,
}

/// An upstream in the race.
struct Runner<'a> {
    base: &'a str,
    exchange: http::Exchange,
}

struct Race;

impl Executor for Race {
    fn describe() -> Description {
        let url = |default: &str| json!({ "type": "string", "description": "An OpenAI-shaped API", "default": default });
        Description {
            settings_schema: json!({
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "first_url": url("http://127.0.0.1:8642/v1"),
                    "second_url": url("http://127.0.0.1:8643/v1"),
                    "model": { "type": "string", "description": "Model to ask for", "default": "hermes-agent" },
                },
            })
            .to_string(),
            streaming: true,
            needs: Needs {
                egress: ["first_url", "second_url"]
                    .iter()
                    .flat_map(|base| {
                        [
                            format!("POST {{setting:{base}}}/chat/completions"),
                            format!("GET {{setting:{base}}}/health"),
                        ]
                    })
                    .collect(),
                secrets: vec!["FIRST_KEY".into(), "SECOND_KEY".into()],
                callbacks: false,
            },
            ..Description::new(
                "race",
                env!("CARGO_PKG_VERSION"),
                "Asks two upstreams, takes the first that answers",
            )
        }
    }

    /// Ready if at least one upstream is.
    fn setup(context: SetupContext) -> Result<(), Failure> {
        let settings: Settings = settings(&context.settings)?;
        let probe = |base: &str| {
            let response =
                Request::new("GET", format!("{}/health", trimmed(base))).timeout_ms(PROBE_MS).fetch();
            match response {
                Ok(response) if response.status < 500 => Ok(()),
                Ok(response) => Err(upstream(format!("{base} answers {}", response.status))),
                Err(error) => Err(failed(&error)),
            }
        };
        probe(&settings.first_url).or_else(|_| probe(&settings.second_url))
    }

    fn execute(turn: Turn) -> Result<Outcome, Failure> {
        let settings: Settings = settings(&turn.settings)?;
        let body = json!({
            "model": settings.model,
            "messages": [{ "role": "user", "content": turn.text }],
            "stream": true,
        });
        let mut runners = VecDeque::new();
        let mut lost = None;
        for (base, key) in [(&settings.first_url, "FIRST_KEY"), (&settings.second_url, "SECOND_KEY")] {
            match start(trimmed(base), key, &body) {
                Ok(exchange) => runners.push_back(Runner { base, exchange }),
                Err(failure) => lost = Some(failure),
            }
        }
        while let Some(mut runner) = runners.pop_front() {
            if !runner.exchange.await_event(LOOK_MS) {
                if control::cancelled() {
                    return Err(Failure::new(FailureKind::Cancelled, "the turn was cancelled"));
                }
                runners.push_back(runner);
                continue;
            }
            match runner.first_text() {
                Ok(Some(text)) => {
                    // This closes the other connection.
                    drop(runners);
                    log::write(log::Level::Info, &format!("{} wins", runner.base), None);
                    return runner.finish(text, turn.streaming);
                }
                // The event has no text yet.
                Ok(None) => runners.push_back(runner),
                Err(failure) => lost = Some(failure),
            }
        }
        Err(lost.unwrap_or_else(|| upstream("no upstream answers")))
    }
}

impl Runner<'_> {
    /// The text of the next event, if it has one.
    fn first_text(&mut self) -> Result<Option<String>, Failure> {
        match self.next()? {
            Some(chunk) => Ok(text(&chunk).map(str::to_owned)),
            None => Err(upstream(format!("{} ended without an answer", self.base))),
        }
    }

    /// The rest of the answer.
    fn finish(self, first: String, streaming: bool) -> Result<Outcome, Failure> {
        let mut answer = String::new();
        let mut usage = None;
        say(&mut answer, &first, streaming)?;
        while let Some(chunk) = self.next()? {
            usage = spent(&chunk).or(usage);
            if let Some(text) = text(&chunk) {
                say(&mut answer, text, streaming)?;
            }
        }
        // What was emitted is the answer.
        let parts = if streaming { Vec::new() } else { vec![Part::text(answer)] };
        Ok(Outcome { usage, ..Outcome::new(FinalState::Completed, parts) })
    }

    fn next(&self) -> Result<Option<Value>, Failure> {
        match self.exchange.next_event().map_err(|error| failed(&error))? {
            Some(event) if event.data != "[DONE]" => serde_json::from_str(&event.data)
                .map(Some)
                .map_err(|_| upstream(format!("{} streams no JSON", self.base))),
            _ => Ok(None),
        }
    }
}

fn start(base: &str, key: &str, body: &Value) -> Result<http::Exchange, Failure> {
    let mut request = Request::new("POST", format!("{base}/chat/completions")).json(body);
    if config::has_secret(key) {
        request = request.header("authorization", format!("Bearer {{secret:{key}}}"));
    }
    let exchange = request.open().map_err(|error| failed(&error))?;
    match exchange.status() {
        200 => Ok(exchange),
        status => Err(upstream(format!("{base} answers {status}"))),
    }
}

fn say(answer: &mut String, text: &str, streaming: bool) -> Result<(), Failure> {
    if streaming {
        let said = events::emit(&events::Event::TextDelta(text.to_owned()));
        said.map_err(|error| Failure::new(FailureKind::Internal, error.message))?;
    } else {
        answer.push_str(text);
    }
    Ok(())
}

fn text(chunk: &Value) -> Option<&str> {
    chunk.pointer("/choices/0/delta/content").and_then(Value::as_str).filter(|text| !text.is_empty())
}

fn spent(chunk: &Value) -> Option<Usage> {
    let count = |name: &str| chunk.pointer(&format!("/usage/{name}"))?.as_u64()?.try_into().ok();
    Some(Usage { input_tokens: count("prompt_tokens")?, output_tokens: count("completion_tokens")? })
}

fn trimmed(base: &str) -> &str {
    base.trim_end_matches('/')
}

fn upstream(message: impl Into<String>) -> Failure {
    Failure { retryable: true, ..Failure::new(FailureKind::Upstream, message) }
}

fn failed(error: &http::Error) -> Failure {
    let kind = match error.kind {
        http::ErrorKind::Denied => FailureKind::Denied,
        http::ErrorKind::Cancelled => FailureKind::Cancelled,
        http::ErrorKind::TimedOut => FailureKind::TimedOut,
        _ => return upstream(error.message.clone()),
    };
    Failure::new(kind, error.message.clone())
}

talaria_guest::export!(Race);
