//! `talaria doctor`: what is wrong with this machine, and what to do about it.
//!
//! Each check answers one question that an operator would otherwise answer by reading logs, with a finding and a fix.
//! Nothing is changed or started, and every question has a time limit. A running host is recognised by its card, so that
//! its own port does not count as taken.
//!
//! Exit code: 0 if nothing is wrong, 2 with warnings, 1 with failures.

mod gateway;
mod machine;
mod model;

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use talaria_egress::{Bounds, Egress, Request, Response};

use crate::config::{Config, Env};

/// How long one question may take.
const QUESTION: Duration = Duration::from_secs(5);

/// What came of it.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    worst: Verdict,
    checks: Vec<Check>,
}

/// One question and its answer.
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    /// What was looked at, in one or two words.
    name: &'static str,
    verdict: Verdict,
    finding: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Ok,
    Warning,
    Failure,
}

/// What the checks work with.
struct Examination<'a> {
    config: &'a Config,
    env: Env<'a>,
    egress: Egress,
    checks: Vec<Check>,
}

// === impl Report ===

impl Report {
    /// Looks at everything.
    pub(crate) async fn new(config: &Config, env: &dyn Fn(&str) -> Option<String>) -> Self {
        let egress = Egress::new(talaria_egress::Config::default());
        let mut examination = Examination { config, env: Env(env), egress, checks: Vec::new() };
        for warning in &config.warnings {
            examination.warn("configuration", warning.clone(), "see docs/configuration.md");
        }
        examination.machine().await;
        examination.gateway().await;
        let checks = examination.checks;
        Self { worst: checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Ok), checks }
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        match self.worst {
            Verdict::Ok => 0,
            Verdict::Failure => 1,
            Verdict::Warning => 2,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Check { name, verdict, finding, fix } in &self.checks {
            let mark = match verdict {
                Verdict::Ok => "ok     ",
                Verdict::Warning => "warning",
                Verdict::Failure => "FAILURE",
            };
            writeln!(f, "{mark}  {name}: {finding}")?;
            if let Some(fix) = fix {
                writeln!(f, "           fix: {fix}")?;
            }
        }
        let (failures, warnings) = (self.count(Verdict::Failure), self.count(Verdict::Warning));
        write!(f, "{} checks, {failures} failures, {warnings} warnings", self.checks.len())
    }
}

impl Report {
    fn count(&self, verdict: Verdict) -> usize {
        self.checks.iter().filter(|check| check.verdict == verdict).count()
    }
}

// === impl Examination ===

impl Examination<'_> {
    fn ok(&mut self, name: &'static str, finding: impl Into<String>) {
        self.checks.push(Check { name, verdict: Verdict::Ok, finding: finding.into(), fix: None });
    }

    fn warn(&mut self, name: &'static str, finding: impl Into<String>, fix: impl Into<String>) {
        let (finding, fix) = (finding.into(), Some(fix.into()));
        self.checks.push(Check { name, verdict: Verdict::Warning, finding, fix });
    }

    fn fail(&mut self, name: &'static str, finding: impl Into<String>, fix: impl Into<String>) {
        let (finding, fix) = (finding.into(), Some(fix.into()));
        self.checks.push(Check { name, verdict: Verdict::Failure, finding, fix });
    }

    /// Asks an address of the configuration; with a key where it is given.
    async fn get(&self, url: &str, key: Option<secrecy::SecretString>) -> Result<Response, String> {
        let text = |error: talaria_egress::Error| error.to_string();
        let bounds = Bounds { timeout: QUESTION, response_body: 1 << 20, ..Bounds::default() };
        let mut client = self.egress.origin_client("doctor", &url.parse().map_err(text)?).with_bounds(bounds);
        if let Some(key) = key {
            client = client.with_bearer(key).map_err(|error| error.to_string())?;
        }
        let request = Request { method: "GET".into(), url: url.into(), ..Request::default() };
        client.fetch(request).await.map_err(text)
    }
}

fn json(response: &Response) -> Value {
    serde_json::from_slice(&response.body).unwrap_or_default()
}

fn header<'r>(response: &'r Response, name: &str) -> Option<&'r str> {
    response.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}
