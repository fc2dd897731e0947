//! Cassettes: the turns of a trial and the upstream's responses, in TOML, or in JSON with the same keys.
//!
//! ```toml
//! [[turn]]
//! text = "hello"
//! expect = ["Hi"]                 # the reply must contain these
//!
//! [[exchange]]
//! request = "POST https://api.example.com/v1/chat/completions"    # as in a grant
//! contains = ['"stream":true']    # only if the body contains these
//! events = ['{"choices":[{"delta":{"content":"Hi"}}]}', "[DONE]"]
//! ```
//!
//! The first exchange that matches a call answers it, at most `times` times. A call that no exchange matches fails the
//! trial. The size of the file bounds everything; an unknown key is an error with its line.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use talaria_config::{ConfigError, Period, Source};
use talaria_egress::Pattern;

/// The content of a cassette.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Cassette {
    /// The turns, all in one context.
    #[serde(rename = "turn")]
    pub(crate) turns: Vec<CassetteTurn>,
    /// The upstream's responses.
    #[serde(rename = "exchange")]
    pub(crate) exchanges: Vec<Exchange>,
    /// The callbacks, one for each wait.
    #[serde(rename = "callback")]
    pub(crate) callbacks: Vec<Reply>,
}

/// One turn.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CassetteTurn {
    /// The message.
    pub(crate) text: String,
    /// Texts that the reply must contain.
    pub(crate) expect: Vec<String>,
    /// The state in which the turn must end; completed by default.
    pub(crate) state: Option<ExpectedEnd>,
    /// Answers to the executor's questions, in order; then `yes`.
    pub(crate) answers: Vec<String>,
}

/// The state in which a turn must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ExpectedEnd {
    Completed,
    InputRequired,
    AuthRequired,
    Rejected,
    Failed,
}

/// A request and its response.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exchange {
    /// The calls that this exchange answers.
    pub(crate) request: Pattern,
    /// Texts that the body of a call must contain.
    #[serde(default)]
    pub(crate) contains: Vec<String>,
    /// Texts that the body of a call must not contain.
    #[serde(default)]
    pub(crate) lacks: Vec<String>,
    /// How many calls it answers in each part of the trial; unlimited by default.
    #[serde(default)]
    pub(crate) times: Option<u32>,
    /// The status.
    #[serde(default = "ok")]
    pub(crate) status: u16,
    /// The headers; `json` and `events` imply a `content-type`.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    /// The body as text.
    #[serde(default)]
    pub(crate) body: Option<String>,
    /// The body as JSON.
    #[serde(default)]
    pub(crate) json: Option<Value>,
    /// The body as server-sent events.
    #[serde(default)]
    pub(crate) events: Option<Vec<Event>>,
    /// Pause before the response begins.
    #[serde(default)]
    pub(crate) delay: Option<Period>,
    /// Pause between two events.
    #[serde(default)]
    pub(crate) pause: Option<Period>,
    /// Whether the connection breaks at the end of the body.
    #[serde(default)]
    pub(crate) cut: bool,
    /// Whether this call triggers the cancellation in the cancel step; by default the first call does.
    #[serde(default)]
    pub(crate) cancel: bool,
}

/// A server-sent event: its data, or its name and data.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum Event {
    Data(String),
    Named { event: String, data: String },
}

/// A callback.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reply {
    /// `reply`, `notice` or `delivery-failed`.
    #[serde(default = "reply")]
    pub(crate) kind: String,
    /// The content.
    pub(crate) content: String,
    /// Pause before it arrives.
    #[serde(default)]
    pub(crate) delay: Option<Period>,
}

fn ok() -> u16 {
    200
}

fn reply() -> String {
    "reply".into()
}

// === impl Cassette ===

impl Cassette {
    /// Reads a cassette; a file whose name ends in `.json` is JSON.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        let missing = || ConfigError::file(path, "there is no such file; correct `--cassette`");
        let source = Source::read(path)?.ok_or_else(missing)?;
        let cassette: Self = match path.extension().is_some_and(|extension| extension == "json") {
            true => serde_json::from_str(source.text())
                .map_err(|error| ConfigError::file(path, error.to_string()))?,
            false => source.parse_without_schema()?,
        };
        for (index, exchange) in cassette.exchanges.iter().enumerate() {
            let bodies = [exchange.body.is_some(), exchange.json.is_some(), exchange.events.is_some()];
            if bodies.iter().filter(|given| **given).count() > 1 {
                let what =
                    format!("`exchange[{index}]` has more than one of `body`, `json` and `events`; keep one");
                return Err(ConfigError::file(path, what));
            }
            if http::StatusCode::from_u16(exchange.status).is_err() {
                let what = format!("`exchange[{index}].status`: {} is not an HTTP status", exchange.status);
                return Err(ConfigError::file(path, what));
            }
        }
        Ok(cassette)
    }
}

// === impl ExpectedEnd ===

impl ExpectedEnd {
    /// The state as cassettes spell it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::InputRequired => "input-required",
            Self::AuthRequired => "auth-required",
            Self::Rejected => "rejected",
            Self::Failed => "failed",
        }
    }
}

// === impl Exchange ===

impl Exchange {
    /// Whether this exchange answers a call with this body. The call comes as the pattern of itself, once for `http` and
    /// once for `https`, because the stub cannot tell which of the two it was.
    pub(crate) fn matches(&self, call: &[Pattern], body: &str) -> bool {
        call.iter().any(|call| self.request.covers(call))
            && self.contains.iter().all(|piece| body.contains(piece.as_str()))
            && !self.lacks.iter().any(|piece| body.contains(piece.as_str()))
    }

    /// Returns the pieces of the body and the content type.
    pub(crate) fn pieces(&self) -> (Vec<String>, Option<&'static str>) {
        match (&self.body, &self.json, &self.events) {
            (_, Some(json), _) => (vec![json.to_string()], Some("application/json")),
            (_, _, Some(events)) => (events.iter().map(Event::text).collect(), Some("text/event-stream")),
            (Some(body), ..) => (vec![body.clone()], None),
            (None, None, None) => (Vec::new(), None),
        }
    }

    /// Returns every text in the response: an executor may build an address from any of them.
    pub(crate) fn texts(&self) -> Vec<String> {
        let mut texts: Vec<String> = self.headers.values().cloned().collect();
        let mut add = |text: &str| {
            if let Ok(json) = serde_json::from_str(text) {
                collect(&json, &mut texts);
            }
        };
        if let Some(body) = &self.body {
            add(body);
        }
        if let Some(json) = &self.json {
            add(&json.to_string());
        }
        for event in self.events.iter().flatten() {
            add(event.data());
        }
        texts
    }
}

fn collect(json: &Value, texts: &mut Vec<String>) {
    match json {
        Value::String(text) => texts.push(text.clone()),
        Value::Number(number) => texts.push(number.to_string()),
        Value::Array(values) => values.iter().for_each(|value| collect(value, texts)),
        Value::Object(members) => members.values().for_each(|value| collect(value, texts)),
        Value::Null | Value::Bool(_) => {}
    }
}

// === impl Event ===

impl Event {
    fn data(&self) -> &str {
        match self {
            Self::Data(data) | Self::Named { data, .. } => data,
        }
    }

    fn text(&self) -> String {
        let name = match self {
            Self::Data(_) => String::new(),
            Self::Named { event, .. } => format!("event: {event}\n"),
        };
        let data: String = self.data().split('\n').map(|line| format!("data: {line}\n")).collect();
        format!("{name}{data}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, text: &str) -> Result<Cassette, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        Cassette::read(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn toml_and_json_have_the_same_keys() {
        let toml = read(
            "a.toml",
            "[[turn]]\ntext = 'hi'\n[[exchange]]\nrequest = 'GET http://a/*'\nevents = ['1', { event = 'e', data = '2' }]\npause = '5ms'\n",
        );
        let json = read(
            "a.json",
            r#"{"turn":[{"text":"hi"}],"exchange":[{"request":"GET http://a/*","events":["1",{"event":"e","data":"2"}],"pause":"5ms"}]}"#,
        );
        assert_eq!(format!("{:?}", toml.unwrap()), format!("{:?}", json.unwrap()));
    }

    #[test]
    fn reports_a_mistake_with_its_line() {
        let error = read("a.toml", "[[exchange]]\nrequest = 'GET http://a/'\nstatsu = 200\n").unwrap_err();
        assert!(error.contains("a.toml:3:1") && error.contains("did you mean `status`"), "{error}");
        let error =
            read("a.toml", "[[exchange]]\nrequest = 'GET http://a/'\nbody = ''\njson = 1\n").unwrap_err();
        assert!(error.contains("keep one"), "{error}");
        assert!(read("a.toml", "[[exchange]]\nrequest = 'a'\n").is_err());
    }

    #[test]
    fn an_exchange_matches_by_address_and_body() {
        let cassette = read(
            "a.toml",
            "[[exchange]]\nrequest = 'POST https://a.example/v1/*'\ncontains = ['x']\nlacks = ['y']\n",
        );
        let exchange = &cassette.unwrap().exchanges[0];
        let call: Pattern = "POST https://a.example/v1/chat".parse().unwrap();
        let call = [call];
        assert!(exchange.matches(&call, "x"));
        assert!(!exchange.matches(&call, "xy"));
        assert!(!exchange.matches(&call, ""));
        assert!(!exchange.matches(&["GET https://a.example/v1/chat".parse().unwrap()], "x"));
    }
}
