//! The findings of `talaria doctor`, and the two ways to obtain one that all checks share: a bounded GET and the comparison
//! of clocks.

use std::time::{Duration, SystemTime};

use secrecy::SecretString;
use serde::Serialize;
use serde_json::Value;
use talaria_egress::{Bounds, Egress, Request, Response};

/// The time limit of one request.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The largest difference between two clocks that is not a warning.
const SKEW: Duration = Duration::from_secs(60);

/// The result of one check.
#[derive(Debug, Serialize)]
pub struct Finding {
    /// What was checked, in one or two words.
    pub name: &'static str,
    /// How bad it is.
    pub verdict: Verdict,
    /// What was found, in a sentence.
    #[serde(rename = "finding")]
    pub text: String,
    /// What to do about it, unless all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// All is well.
    Ok,
    /// It works, but not as it should, or not for long.
    Warning,
    /// It does not work.
    Failure,
}

/// Findings in the order of the checks.
#[derive(Debug, Default)]
pub struct Findings(pub Vec<Finding>);

/// Sends the requests of the checks.
pub struct Probe(Egress);

// === impl Findings ===

impl Findings {
    /// Adds a finding that all is well.
    pub fn ok(&mut self, name: &'static str, text: impl Into<String>) {
        self.0.push(Finding { name, verdict: Verdict::Ok, text: text.into(), fix: None });
    }

    /// Adds a warning.
    pub fn warn(&mut self, name: &'static str, text: impl Into<String>, fix: impl Into<String>) {
        self.0.push(Finding { name, verdict: Verdict::Warning, text: text.into(), fix: Some(fix.into()) });
    }

    /// Adds a failure.
    pub fn fail(&mut self, name: &'static str, text: impl Into<String>, fix: impl Into<String>) {
        self.0.push(Finding { name, verdict: Verdict::Failure, text: text.into(), fix: Some(fix.into()) });
    }

    /// Compares the clock of this machine with the `Date` of a response from `whose`. Without a date there is no finding.
    pub fn clock(&mut self, response: &Response, whose: &str) {
        let date = response.headers.iter().find(|(name, _)| name == "date").map(|(_, value)| value.as_str());
        let Some(theirs) = date.and_then(|date| httpdate::parse_http_date(date).ok()) else { return };
        let now = SystemTime::now();
        let apart = now.duration_since(theirs).or_else(|_| theirs.duration_since(now)).unwrap_or_default();
        let text = format!("this clock and that of {whose} are {} s apart", apart.as_secs());
        match apart > SKEW {
            true => self.warn("clock", text, "set the clock of this machine by NTP"),
            false => self.ok("clock", text),
        }
    }
}

// === impl Probe ===

impl Probe {
    /// A probe whose calls leave this host as those of the product do.
    #[must_use]
    pub fn new(config: talaria_egress::Config) -> Self {
        Self(Egress::new(config))
    }

    /// Sends a GET, with `key` as the bearer token if there is one.
    ///
    /// # Errors
    /// If there is no response within five seconds, or its body is larger than 1 MiB.
    pub async fn get(&self, url: &str, key: Option<SecretString>) -> Result<Response, String> {
        let text = |error: talaria_egress::Error| error.to_string();
        let bounds = Bounds { timeout: TIMEOUT, response_body: 1 << 20, ..Bounds::default() };
        let mut client = self.0.origin_client("doctor", &url.parse().map_err(text)?).with_bounds(bounds);
        if let Some(key) = key {
            client = client.with_bearer(key).map_err(|error| error.to_string())?;
        }
        let request = Request { method: "GET".into(), url: url.into(), ..Request::default() };
        client.fetch(request).await.map_err(text)
    }
}

/// The body of a response as JSON; null if it is not JSON.
pub fn json(response: &Response) -> Value {
    serde_json::from_slice(&response.body).unwrap_or_default()
}
