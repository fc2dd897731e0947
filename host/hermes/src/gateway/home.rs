//! The gateway's home: its `.env` and `config.yaml`, adjusted to what Talaria needs.
//!
//! Only what is needed is set; everything else stays, comments and order of the `.env` included. A `config.yaml` that
//! already says what is needed is not touched; any other is saved as `config.yaml.before-talaria` before it is written the
//! first time, since writing YAML loses its comments. One that cannot be parsed is left alone and reported.
//!
//! How files in the home are read and written is in `files`.

use std::io;

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value, json};

use talaria_config::files::Trouble;
use talaria_config::yaml;

use super::files::Home;

/// The two names of the plugin: as a plugin, and as a platform.
const PLUGIN: (&str, &str) = ("molecule_a2a", "molecule-a2a");

/// The variable with the token of the tools, and the header that the gateway makes of it.
const TOOLS_TOKEN: &str = "TALARIA_TOOLS_TOKEN";
const AUTHORIZATION: &str = "Bearer ${TALARIA_TOOLS_TOKEN}";

/// What the files of the gateway must say.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The port of its API server.
    pub port: u16,
    /// The key of that server.
    pub key: SecretString,
    /// Environment variables that it needs, such as the keys of model providers.
    pub variables: Vec<(String, SecretString)>,
    /// The model, if one was chosen.
    pub model: Option<String>,
    /// The provider, if one was chosen.
    pub provider: Option<String>,
    /// The plugin that answers by callback, if it is used.
    pub plugin: Option<Plugin>,
    /// The tools that this host serves to the agent, if any.
    pub tools: Option<ToolServer>,
}

/// The tools that this host serves to the agent.
#[derive(Debug, Clone)]
pub struct ToolServer {
    /// The name of the server, which is part of the names of the tools.
    pub name: String,
    /// Its address.
    pub url: String,
    /// The token that it requires.
    pub token: SecretString,
}

/// The settings of the platform plugin.
#[derive(Debug, Clone)]
pub struct Plugin {
    /// The host that it listens on.
    pub host: String,
    /// The port that it listens on.
    pub port: u16,
    /// The address that it posts its answers to.
    pub callback_url: String,
    /// The secret that it shares with this host.
    pub secret: Option<SecretString>,
}

/// The secret of the plugin in a home's `config.yaml`, if there is one that fits into a header.
pub(crate) fn shared_secret_in(home: &Home) -> Option<SecretString> {
    let config = home.config();
    let secret = config.get("platforms")?.get(PLUGIN.1)?.get("extra")?.get("shared_secret")?.as_str()?;
    let is_sendable = !secret.is_empty() && secret.bytes().all(|byte| byte.is_ascii_graphic());
    is_sendable.then(|| secret.into())
}

/// Writes the workspace's prompt as `SOUL.md`, which the gateway reads. The first one that was there is saved beside it.
pub(crate) fn write_soul(home: &Home, prompt: &str) -> Result<(), Trouble> {
    const NAME: &str = "SOUL.md";
    let before = home.text(NAME)?;
    if before.as_deref() == Some(prompt) {
        return Ok(());
    }
    let saved = before.map_or(Ok(()), |before| home.save_first(NAME, &before));
    saved.and_then(|()| home.write(NAME, prompt)).map_err(|error| unwritable(home, NAME, &error))
}

fn unwritable(home: &Home, name: &str, error: &io::Error) -> Trouble {
    Trouble::new(home.path().join(name), format!("cannot be written ({error})"))
}

/// Makes the home, adjusts both files, and returns what could not be done.
pub(crate) fn prepare(home: &Home, settings: &Settings) -> Vec<Trouble> {
    if let Err(error) = home.make() {
        return vec![Trouble::new(home.path(), format!("cannot be written by the gateway ({error})"))];
    }
    [write_env(home, settings), write_config(home, settings)].into_iter().filter_map(Result::err).collect()
}

fn write_env(home: &Home, settings: &Settings) -> Result<(), Trouble> {
    const NAME: &str = ".env";
    let before = home.text(NAME)?.unwrap_or_default();
    let port = settings.port.to_string();
    let mut set: Vec<(&str, &str)> = vec![
        ("API_SERVER_ENABLED", "true"),
        ("API_SERVER_KEY", settings.key.expose_secret()),
        ("API_SERVER_HOST", "127.0.0.1"),
        ("API_SERVER_PORT", &port),
    ];
    set.extend(settings.variables.iter().map(|(name, value)| (name.as_str(), value.expose_secret())));
    set.extend(settings.tools.iter().map(|tools| (TOOLS_TOKEN, tools.token.expose_secret())));
    let after = merged_env(&before, &set);
    if after != before || home.is_shared(NAME) {
        home.write(NAME, &after).map_err(|error| unwritable(home, NAME, &error))?;
    }
    Ok(())
}

/// The lines with these variables set. A value with a line break does not fit into an `.env` and is left out.
fn merged_env(before: &str, set: &[(&str, &str)]) -> String {
    let set: Vec<_> = set.iter().filter(|(_, value)| !value.contains(['\n', '\r'])).collect();
    let name_of = |line: &str| {
        let line = line.trim_start();
        let line = line.strip_prefix("export ").unwrap_or(line);
        line.split_once('=').map(|(name, _)| name.trim().to_owned())
    };
    let mut lines: Vec<String> = Vec::new();
    let mut done = Vec::new();
    for line in before.lines() {
        let ours = name_of(line).and_then(|name| set.iter().find(|(ours, _)| *ours == name));
        match ours {
            // The gateway would use the last one, so only one is kept.
            Some((name, value)) if !done.contains(name) => {
                done.push(*name);
                lines.push(format!("{name}={value}"));
            }
            Some(_) => {}
            None => lines.push(line.to_owned()),
        }
    }
    lines.extend(
        set.iter().filter(|(name, _)| !done.contains(name)).map(|(name, value)| format!("{name}={value}")),
    );
    lines.join("\n") + "\n"
}

fn write_config(home: &Home, settings: &Settings) -> Result<(), Trouble> {
    const NAME: &str = "config.yaml";
    let text = home.text(NAME)?;
    let cannot = |what: String| {
        let what = format!("{what}; left as it is, so the gateway may lack its plugin");
        Trouble::new(home.path().join(NAME), what)
    };
    let before = yaml::mapping(text.as_deref().unwrap_or_default()).map_err(cannot)?;
    let mut after = before.clone();
    merge_config(&mut after, settings).map_err(cannot)?;
    if after == before {
        return Ok(());
    }
    let yaml = yaml::text(&after).map_err(cannot)?;
    let saved = text.map_or(Ok(()), |text| home.save_first(NAME, &text));
    saved.and_then(|()| home.write(NAME, &yaml)).map_err(|error| unwritable(home, NAME, &error))
}

fn merge_config(config: &mut Map<String, Value>, settings: &Settings) -> Result<(), String> {
    let custom = custom_endpoint(settings);
    if settings.model.is_some() || settings.provider.is_some() || !custom.is_empty() {
        // `model: NAME` is the short form of `model: {default: NAME}`.
        if let Some(Value::String(name)) = config.get("model") {
            let name = name.clone();
            config.insert("model".into(), json!({ "default": name }));
        }
        let model = below(config, "model")?;
        for (key, value) in custom {
            model.insert(key.into(), json!(value));
        }
        for (key, value) in [("default", &settings.model), ("provider", &settings.provider)] {
            if let Some(value) = value {
                model.insert(key.into(), json!(value));
            }
        }
    }
    merge_tools(config, settings.tools.as_ref())?;
    let Some(plugin) = &settings.plugin else { return Ok(()) };
    let enabled = below(config, "plugins")?.entry("enabled").or_insert_with(|| json!([]));
    if enabled.is_null() {
        *enabled = json!([]);
    }
    let enabled = enabled.as_array_mut().ok_or("`plugins.enabled` is not a list")?;
    // People write the name of the platform here instead of the plugin's; it enables nothing.
    enabled.retain(|name| name != PLUGIN.1);
    if !enabled.iter().any(|name| name == PLUGIN.0) {
        enabled.push(json!(PLUGIN.0));
    }
    let platform = below(below(config, "platforms")?, PLUGIN.1)?;
    platform.insert("enabled".into(), json!(true));
    platform
        .entry("home_channel")
        .or_insert_with(|| json!({ "platform": PLUGIN.1, "chat_id": "home", "name": "Home" }));
    let extra = below(platform, "extra")?;
    extra.insert("host".into(), json!(plugin.host));
    extra.insert("port".into(), json!(plugin.port));
    extra.insert("callback_url".into(), json!(plugin.callback_url));
    if let Some(secret) = &plugin.secret {
        extra.insert("shared_secret".into(), json!(secret.expose_secret()));
    }
    Ok(())
}

/// What `model` says of an endpoint that the operator chose, as the Python bridge wrote it: the gateway does not read these
/// variables itself. A provider that was chosen besides counts.
fn custom_endpoint(settings: &Settings) -> Vec<(&'static str, &str)> {
    let variable = |name: &str| {
        let found = settings.variables.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.expose_secret())
    };
    let Some(base_url) = variable("HERMES_CUSTOM_BASE_URL") else { return Vec::new() };
    let rest = [("api_key", "HERMES_CUSTOM_API_KEY"), ("api_mode", "HERMES_CUSTOM_API_MODE")];
    let rest = rest.into_iter().filter_map(|(key, name)| Some((key, variable(name)?)));
    [("provider", "custom"), ("base_url", base_url)].into_iter().chain(rest).collect()
}

/// Adds the server of this host's tools, or removes the one that an earlier start added.
fn merge_tools(config: &mut Map<String, Value>, tools: Option<&ToolServer>) -> Result<(), String> {
    let Some(tools) = tools else {
        if let Some(Value::Object(servers)) = config.get_mut("mcp_servers") {
            servers.retain(|_, server| !is_ours(server));
        }
        return Ok(());
    };
    let server = below(below(config, "mcp_servers")?, &tools.name)?;
    for other in ["command", "args", "env", "transport"] {
        server.remove(other);
    }
    server.insert("url".into(), json!(tools.url));
    below(server, "headers")?.insert("Authorization".into(), json!(AUTHORIZATION));
    server.insert("skip_preflight".into(), json!(true));
    // The server may neither use the model nor ask the person.
    for key in ["sampling", "elicitation"] {
        below(server, key)?.insert("enabled".into(), json!(false));
    }
    // Otherwise the gateway hides the tools behind a search when there are many.
    below(below(config, "tools")?, "tool_search")?.insert("enabled".into(), json!("off"));
    Ok(())
}

fn is_ours(server: &Value) -> bool {
    server.pointer("/headers/Authorization").and_then(Value::as_str) == Some(AUTHORIZATION)
}

/// The address of this host's tools in a home's `config.yaml`, if the gateway will use them.
pub(crate) fn tools_in(home: &Home) -> Option<String> {
    let config = home.config();
    let servers = config.get("mcp_servers")?.as_object()?;
    let ours = servers.values().find(|server| is_ours(server))?;
    let is_on = ours.get("enabled").and_then(Value::as_bool) != Some(false);
    ours.get("url")?.as_str().filter(|_| is_on).map(str::to_owned)
}

/// Returns the mapping at a key, and creates it if the key is absent.
fn below<'m>(map: &'m mut Map<String, Value>, key: &str) -> Result<&'m mut Map<String, Value>, String> {
    let value = map.entry(key).or_insert_with(|| json!({}));
    if value.is_null() {
        *value = json!({});
    }
    value.as_object_mut().ok_or_else(|| format!("`{key}` is not a mapping"))
}

/// What is wrong with the plugin's part of a `config.yaml`, and the fix.
pub(crate) fn plugin_problem(home: &Home) -> Option<(String, String)> {
    let path = home.path().join("config.yaml");
    let config = match home.text("config.yaml") {
        Ok(Some(text)) => yaml::mapping(&text).ok()?,
        Ok(None) => {
            return Some((
                format!("{} does not exist", path.display()),
                "set `[gateway]`, which writes it".into(),
            ));
        }
        Err(_) => return None,
    };
    let enabled = config.get("plugins").and_then(|plugins| plugins.get("enabled")?.as_array());
    let names: Vec<&str> = enabled.into_iter().flatten().filter_map(Value::as_str).collect();
    let platform = config.get("platforms").and_then(|platforms| platforms.get(PLUGIN.1));
    if !names.contains(&PLUGIN.0) {
        let what = if names.contains(&PLUGIN.1) {
            format!("plugins.enabled names `{}`, with a hyphen", PLUGIN.1)
        } else {
            format!("plugins.enabled does not name `{}`", PLUGIN.0)
        };
        return Some((
            what,
            format!(
                "write `plugins: {{enabled: [{}]}}`, with an underscore, into {}",
                PLUGIN.0,
                path.display()
            ),
        ));
    }
    match platform {
        Some(platform) if platform.get("enabled").and_then(Value::as_bool) != Some(false) => None,
        _ => {
            let wrong = config.get("platforms").and_then(|platforms| platforms.get(PLUGIN.0)).is_some();
            let what = if wrong {
                format!("platforms has `{}`, with an underscore", PLUGIN.0)
            } else {
                format!("platforms has no `{}` that is enabled", PLUGIN.1)
            };
            Some((
                what,
                format!(
                    "write `platforms: {{{}: {{enabled: true, …}}}}`, with a hyphen, into {}",
                    PLUGIN.1,
                    path.display()
                ),
            ))
        }
    }
}

#[cfg(test)]
mod tests;
