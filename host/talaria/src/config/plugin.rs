//! What the executor `plugin-callback` is given by itself: where the plugin is.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use talaria_config::{HttpUrl, Problem};
use talaria_egress::{InvalidPattern, Pattern};
use talaria_executors::{ExecutorName, Preset};

use super::builtin::CHAT_COMPLETIONS;
use super::env::Seeds;

/// The executor that reaches hermes-agent through its plugin.
pub(crate) const PLUGIN_CALLBACK: &str = "plugin-callback";

/// What plugin and bridge share, by the name that the seeds give it.
pub(crate) const SHARED_SECRET: &str = "MOLECULE_A2A_PLATFORM_SHARED_SECRET";

/// How long a turn may take when nothing is said: the gateway's own bound on one, and a minute.
pub(crate) const DEADLINE: Duration = Duration::from_secs(1_860);

/// What the component is given by itself.
pub(super) fn preset(seeds: &Seeds) -> Preset {
    let (plugin_at, workspace) = (seeds.plugin_at.clone(), seeds.workspace.clone());
    Preset {
        settle: Some(Arc::new(move |name: &ExecutorName, settings: &mut Map<String, Value>| {
            let environment = plugin_at.as_deref().filter(|_| name.as_str() == PLUGIN_CALLBACK);
            settle(settings, environment, workspace.as_deref())
        })),
        secrets: vec![SHARED_SECRET.to_owned()],
        callbacks: true,
        deadline: Some(DEADLINE),
        fallback: seeds.plugin.then(|| ExecutorName::builtin(CHAT_COMPLETIONS)),
        ..Preset::default()
    }
}

/// Settles the addresses in its settings: the environment before the file before the default.
fn settle(
    settings: &mut Map<String, Value>,
    environment: Option<&str>,
    workspace: Option<&str>,
) -> Result<(), Problem> {
    let inbound = match environment {
        Some(address) => parse("inbound_url", &format!("http://{address}/a2a/inbound"))?,
        None => address(settings, "inbound_url")?
            .map_or_else(|| parse("inbound_url", "http://127.0.0.1:8645/a2a/inbound"), Ok)?,
    };
    let health = match address(settings, "health_url")? {
        Some(health) => health,
        None => parse("health_url", &format!("{}/a2a/health", origin(&inbound)))?,
    };
    for (key, url) in [("inbound_url", inbound), ("health_url", health)] {
        callable(&url).map_err(|what| problem(key, what))?;
        settings.insert(key.into(), url.as_str().into());
    }
    if let Some(workspace) = workspace {
        settings.entry("workspace_id").or_insert_with(|| workspace.into());
    }
    Ok(())
}

/// Whether an executor could be granted calls to an address.
pub(super) fn callable(url: &HttpUrl) -> Result<(), String> {
    let pattern: Result<Pattern, InvalidPattern> = format!("GET {url}").parse();
    pattern.map(drop).map_err(|error| format!("`{url}` cannot be called: {}", error.problem))
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
