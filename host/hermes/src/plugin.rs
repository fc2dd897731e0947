//! The preset of `plugin-callback`: the address of the platform plugin of hermes-agent, its secret and its deadline.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use talaria_config::{HttpUrl, Problem};
use talaria_egress::{InvalidPattern, Origin, Pattern};
use talaria_executors::{ExecutorName, Preset};

use crate::builtins::CHAT_COMPLETIONS;
use crate::env::BridgeEnv;

/// The executor that reaches hermes-agent through its plugin.
pub const PLUGIN_CALLBACK: &str = "plugin-callback";

/// The variable that holds the secret which plugin and host share.
pub const SHARED_SECRET: &str = "MOLECULE_A2A_PLATFORM_SHARED_SECRET";

/// The default deadline of a turn: the gateway's own limit, and a minute.
const DEADLINE: Duration = Duration::from_secs(1_860);

/// What the component gets without being configured.
pub(crate) fn preset(env: &BridgeEnv) -> Preset {
    let (plugin_at, workspace) = (env.plugin_at.clone(), env.workspace.clone());
    Preset {
        settle: Some(Arc::new(move |name: &ExecutorName, settings: &mut Map<String, Value>| {
            let environment = plugin_at.as_deref().filter(|_| name.as_str() == PLUGIN_CALLBACK);
            settle(settings, environment, workspace.as_deref())
        })),
        secrets: vec![SHARED_SECRET.to_owned()],
        callbacks: true,
        deadline: Some(DEADLINE),
        fallback: env.plugin.then(|| ExecutorName::builtin(CHAT_COMPLETIONS)),
        ..Preset::default()
    }
}

/// Fills in the addresses in the settings: the environment before the file before the default.
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
        None => {
            let origin: Origin = inbound
                .as_str()
                .parse()
                .map_err(|error| problem("inbound_url", format!("`{inbound}` cannot be called: {error}")))?;
            parse("health_url", &format!("{origin}/a2a/health"))?
        }
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

/// Checks that calls to an address can be granted.
pub(crate) fn callable(url: &HttpUrl) -> Result<(), String> {
    let pattern: Result<Pattern, InvalidPattern> = format!("GET {url}").parse();
    pattern.map(drop).map_err(|error| format!("`{url}` cannot be called: {}", error.problem))
}

/// Whether calls below an address can be made.
pub(crate) fn callable_below(url: &str) -> Result<(), String> {
    let pattern: Result<Pattern, InvalidPattern> = format!("GET {}/*", url.trim_end_matches('/')).parse();
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
