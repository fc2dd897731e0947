//! A cassette: what a trial says to an executor, and what the upstream answers, in TOML, or in JSON with the same keys.
//!
//! ```toml
//! [[turn]]
//! text = "hello"
//! expect = ["Hi"]                 # the reply must hold these
//!
//! [[exchange]]
//! request = "POST https://api.example.com/v1/chat/completions"    # as in a grant
//! contains = ['"stream":true']    # only if the body holds these
//! events = ['{"choices":[{"delta":{"content":"Hi"}}]}', "[DONE]"]
//! ```
//!
//! The first exchange that fits a call answers it, as often as it is called or `times` says. A call that none fits fails
//! the trial. Everything is bounded by the size of the file; an unknown key is an error with its line.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use talaria_egress::Pattern;

use crate::config::{ConfigError, Period, Source};

/// What is said, and what is answered.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Cassette {
    /// The turns of one conversation.
    #[serde(rename = "turn")]
    pub(super) turns: Vec<Line>,
    /// The upstream's answers.
    #[serde(rename = "exchange")]
    pub(super) exchanges: Vec<Exchange>,
    /// What comes in at the callback listener, one for each that is waited for.
    #[serde(rename = "callback")]
    pub(super) callbacks: Vec<Reply>,
}

/// One turn.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Line {
    /// What the caller says.
    pub(super) text: String,
    /// What the reply must hold.
    pub(super) expect: Vec<String>,
    /// How it must end, if not as completed.
    pub(super) state: Option<End>,
    /// What the caller answers when it is asked, in order; `yes` when there is nothing left.
    pub(super) answers: Vec<String>,
}

/// How a turn is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum End {
    Completed,
    InputRequired,
    AuthRequired,
    Rejected,
    Failed,
}

/// A request and its answer.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Exchange {
    /// The calls that it answers.
    pub(super) request: Pattern,
    /// Only those whose body holds all of these.
    #[serde(default)]
    pub(super) contains: Vec<String>,
    /// Only those whose body holds none of these.
    #[serde(default)]
    pub(super) lacks: Vec<String>,
    /// How often, in each of the trial's parts; always, if it is not said.
    #[serde(default)]
    pub(super) times: Option<u32>,
    /// The status.
    #[serde(default = "ok")]
    pub(super) status: u16,
    /// The headers; `content-type` is added where the body tells it.
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    /// The body as it is.
    #[serde(default)]
    pub(super) body: Option<String>,
    /// The body as JSON.
    #[serde(default)]
    pub(super) json: Option<Value>,
    /// The body as server-sent events.
    #[serde(default)]
    pub(super) events: Option<Vec<Event>>,
    /// Before the answer begins.
    #[serde(default)]
    pub(super) delay: Option<Period>,
    /// Between two events.
    #[serde(default)]
    pub(super) pause: Option<Period>,
    /// The connection breaks at the end of the body.
    #[serde(default)]
    pub(super) cut: bool,
    /// The turn that is cancelled is cancelled by this call; without one it is the first call.
    #[serde(default)]
    pub(super) cancel: bool,
}

/// A server-sent event: its data, or more of it.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Event {
    Data(String),
    Named { event: String, data: String },
}

/// A reply out of band.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reply {
    /// `reply`, `notice` or `delivery-failed`.
    #[serde(default = "reply")]
    pub(super) kind: String,
    /// What it says.
    pub(super) content: String,
    /// How long it takes.
    #[serde(default)]
    pub(super) delay: Option<Period>,
}

fn ok() -> u16 {
    200
}

fn reply() -> String {
    "reply".into()
}

// === impl Cassette ===

impl Cassette {
    /// Reads one; JSON if the file says so.
    pub(super) fn read(path: &Path) -> Result<Self, ConfigError> {
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
                let what = format!("`exchange[{index}].status`: {} is no status", exchange.status);
                return Err(ConfigError::file(path, what));
            }
        }
        Ok(cassette)
    }
}

// === impl End ===

impl End {
    /// As it is written.
    pub(super) fn name(self) -> &'static str {
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
    /// Whether it answers a call with this body. The call is given as the pattern of itself, once for `http` and once
    /// for `https`: on the stand-in's side of the connection nobody knows which it was.
    pub(super) fn fits(&self, call: &[Pattern], body: &str) -> bool {
        call.iter().any(|call| self.request.covers(call))
            && self.contains.iter().all(|piece| body.contains(piece.as_str()))
            && !self.lacks.iter().any(|piece| body.contains(piece.as_str()))
    }

    /// The pieces of the body, and its content type.
    pub(super) fn pieces(&self) -> (Vec<String>, Option<&'static str>) {
        match (&self.body, &self.json, &self.events) {
            (_, Some(json), _) => (vec![json.to_string()], Some("application/json")),
            (_, _, Some(events)) => (events.iter().map(Event::text).collect(), Some("text/event-stream")),
            (Some(body), ..) => (vec![body.clone()], None),
            (None, None, None) => (Vec::new(), None),
        }
    }

    /// Every text that the answer gives: what an executor may build an address of.
    pub(super) fn texts(&self) -> Vec<String> {
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
    fn toml_and_json_say_the_same() {
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
    fn a_mistake_has_its_place() {
        let error = read("a.toml", "[[exchange]]\nrequest = 'GET http://a/'\nstatsu = 200\n").unwrap_err();
        assert!(error.contains("a.toml:3:1") && error.contains("did you mean `status`"), "{error}");
        let error =
            read("a.toml", "[[exchange]]\nrequest = 'GET http://a/'\nbody = ''\njson = 1\n").unwrap_err();
        assert!(error.contains("keep one"), "{error}");
        assert!(read("a.toml", "[[exchange]]\nrequest = 'a'\n").is_err());
    }

    #[test]
    fn an_exchange_fits_by_address_and_body() {
        let cassette = read(
            "a.toml",
            "[[exchange]]\nrequest = 'POST https://a.example/v1/*'\ncontains = ['x']\nlacks = ['y']\n",
        );
        let exchange = &cassette.unwrap().exchanges[0];
        let call: Pattern = "POST https://a.example/v1/chat".parse().unwrap();
        let call = [call];
        assert!(exchange.fits(&call, "x"));
        assert!(!exchange.fits(&call, "xy"));
        assert!(!exchange.fits(&call, ""));
        assert!(!exchange.fits(&["GET https://a.example/v1/chat".parse().unwrap()], "x"));
    }
}
