//! What the executor `plugin-callback` is given by itself: where the plugin is, and the calls that this implies.

use std::time::Duration;

use serde_json::{Map, Value};
use talaria_egress::Pattern;

use super::env::Seeds;
use super::value::ExecutorName;
use talaria_config::{HttpUrl, Problem};

/// The executor that reaches hermes-agent through its plugin.
pub(crate) const PLUGIN_CALLBACK: &str = "plugin-callback";

/// What plugin and bridge share, by the name that the seeds give it.
pub(crate) const SHARED_SECRET: &str = "MOLECULE_A2A_PLATFORM_SHARED_SECRET";

/// How long a turn may take when nothing is said: the gateway's own bound on one, and a minute.
pub(crate) const DEADLINE: Duration = Duration::from_secs(1_860);

/// Settles the addresses in its settings (the environment before the file before the default) and gives the calls that
/// they imply.
pub(super) fn settle(
    name: &ExecutorName,
    settings: &mut Map<String, Value>,
    seeds: &Seeds,
) -> Result<Vec<Pattern>, Problem> {
    let from_environment = seeds.plugin_at.as_ref().filter(|_| name.as_str() == PLUGIN_CALLBACK);
    let inbound = match from_environment {
        Some(address) => parse("inbound_url", &format!("http://{address}/a2a/inbound"))?,
        None => address(settings, "inbound_url")?
            .map_or_else(|| parse("inbound_url", "http://127.0.0.1:8645/a2a/inbound"), Ok)?,
    };
    let health = match address(settings, "health_url")? {
        Some(health) => health,
        None => parse("health_url", &format!("{}/a2a/health", origin(&inbound)))?,
    };
    settings.insert("inbound_url".into(), inbound.as_str().into());
    settings.insert("health_url".into(), health.as_str().into());
    if let Some(workspace) = &seeds.workspace {
        settings.entry("workspace_id").or_insert_with(|| workspace.as_str().into());
    }
    let calls = [("inbound_url", "POST", inbound), ("health_url", "GET", health)];
    let patterns = calls.into_iter().map(|(key, method, url)| {
        format!("{method} {url}").parse().map_err(|error: talaria_egress::InvalidPattern| {
            problem(key, format!("`{url}` cannot be called: {}", error.problem))
        })
    });
    patterns.collect()
}

fn address(settings: &Map<String, Value>, key: &str) -> Result<Option<HttpUrl>, Problem> {
    match settings.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => parse(key, text).map(Some),
        Some(_) => Err(problem(key, "not a string; write it in quotes")),
    }
}

fn parse(key: &str, text: &str) -> Result<HttpUrl, Problem> {
    text.parse().map_err(|what: String| problem(key, what))
}

fn problem(key: &str, what: impl Into<String>) -> Problem {
    Problem { key: format!("settings.{key}"), what: what.into() }
}

/// Scheme, host and port.
fn origin(url: &HttpUrl) -> &str {
    let url = url.as_str();
    let host = url.find("://").map_or(0, |at| at + 3);
    let end = url.get(host..).and_then(|rest| rest.find('/')).map_or(url.len(), |at| host + at);
    url.get(..end).unwrap_or(url)
}
