//! The gateway's home: its `.env` and `config.yaml`, adjusted to what Talaria needs.
//!
//! Only what is needed is set; everything else stays, comments and order of the `.env` included. A `config.yaml` that
//! already says what is needed is not touched; any other is saved as `config.yaml.before-talaria` before it is written the
//! first time, since writing YAML loses its comments. One that cannot be parsed is left alone and reported.
//!
//! If the gateway runs as another user, the home belongs to that user, who could put a link to anything there. Then no link
//! is followed, and files are replaced, never written into.

use std::fs;
use std::path::Path;

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value, json};

use talaria_config::files::{self, Trouble};
use talaria_config::yaml;

/// The largest file of the gateway that is read.
const BYTES: usize = 4 << 20;

/// The variables of this process's environment that the gateway needs to find its models.
pub const FORWARDED: [&str; 31] = [
    "HERMES_INFERENCE_PROVIDER",
    "HERMES_AUXILIARY_PROVIDER",
    "HERMES_API_KEY",
    "NOUS_API_KEY",
    "OPENROUTER_API_KEY",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "ANTHROPIC_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "DEEPSEEK_API_KEY",
    "GLM_API_KEY",
    "KIMI_API_KEY",
    "KIMI_CN_API_KEY",
    "MINIMAX_API_KEY",
    "MINIMAX_CN_API_KEY",
    "DASHSCOPE_API_KEY",
    "XIAOMI_API_KEY",
    "ARCEEAI_API_KEY",
    "NVIDIA_API_KEY",
    "OLLAMA_API_KEY",
    "HF_TOKEN",
    "AI_GATEWAY_API_KEY",
    "KILOCODE_API_KEY",
    "OPENCODE_ZEN_API_KEY",
    "OPENCODE_GO_API_KEY",
    "COPILOT_GITHUB_TOKEN",
    "GH_TOKEN",
    "HERMES_CUSTOM_BASE_URL",
    "HERMES_CUSTOM_API_KEY",
    "HERMES_CUSTOM_API_MODE",
];

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

/// The owner of a gateway's home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HomeOwner {
    /// The user of this process.
    ThisUser,
    /// Another user, who must not lead this process anywhere.
    OtherUser,
}

impl HomeOwner {
    fn text(self, path: &Path) -> Result<Option<String>, Trouble> {
        match self {
            Self::ThisUser => files::text(path, BYTES),
            Self::OtherUser => files::unlinked_text(path, BYTES),
        }
    }
}

/// The key in a home's `.env`, if there is one.
pub fn key_in(home: &Path) -> Option<SecretString> {
    variable_in(home, "API_SERVER_KEY")
}

/// The value of a variable in a home's `.env`, if it is set and not empty.
pub(crate) fn variable_in(home: &Path, name: &str) -> Option<SecretString> {
    let text = files::text(&home.join(".env"), BYTES).ok()??;
    let value_of = |line: &str| {
        let line = line.trim();
        let (known, value) = line.strip_prefix("export ").unwrap_or(line).split_once('=')?;
        (known.trim() == name).then(|| value.trim().trim_matches(['"', '\'']).to_owned())
    };
    let value = text.lines().filter_map(value_of).next_back()?;
    (!value.is_empty()).then(|| value.into())
}

/// The contents of a home's `config.yaml`; empty if it is missing or cannot be parsed.
pub(crate) fn config_in(home: &Path) -> Value {
    let text = files::text(&home.join("config.yaml"), BYTES).ok().flatten().unwrap_or_default();
    Value::Object(yaml::mapping(&text).unwrap_or_default())
}

/// Writes the workspace's prompt as `SOUL.md`, which the gateway reads. The first one that was there is saved beside it.
pub(crate) fn write_soul(home: &Path, prompt: &str, owner: HomeOwner) -> Result<(), Trouble> {
    let path = home.join("SOUL.md");
    let before = owner.text(&path)?;
    if before.as_deref() == Some(prompt) {
        return Ok(());
    }
    let unwritable = |error: std::io::Error| Trouble::new(&path, format!("cannot be written ({error})"));
    let beside = home.join("SOUL.md.before-talaria");
    if let Some(before) = before.filter(|_| !beside.exists()) {
        files::write_private(&beside, &before).map_err(unwritable)?;
    }
    files::write_private(&path, prompt).map_err(unwritable)
}

/// Adjusts both files, and returns what could not be done.
pub(crate) fn prepare(home: &Path, settings: &Settings, owner: HomeOwner) -> Vec<Trouble> {
    let mut problems = Vec::new();
    if let Err(error) = fs::create_dir_all(home) {
        problems.push(Trouble::new(home, format!("cannot be created ({error})")));
        return problems;
    }
    problems.extend(write_env(home, settings, owner).err());
    problems.extend(write_config(home, settings, owner).err());
    problems
}

fn write_env(home: &Path, settings: &Settings, owner: HomeOwner) -> Result<(), Trouble> {
    let path = home.join(".env");
    let before = owner.text(&path)?.unwrap_or_default();
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
    if after != before || path.metadata().is_ok_and(|metadata| files::is_shared(&metadata)) {
        let written = files::write_private(&path, &after);
        written.map_err(|error| Trouble::new(&path, format!("cannot be written ({error})")))?;
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

fn write_config(home: &Path, settings: &Settings, owner: HomeOwner) -> Result<(), Trouble> {
    let path = home.join("config.yaml");
    let text = owner.text(&path)?;
    let cannot = |what: String| {
        Trouble::new(&path, format!("{what}; left as it is, so the gateway may lack its plugin"))
    };
    let before = yaml::mapping(text.as_deref().unwrap_or_default()).map_err(cannot)?;
    let mut after = before.clone();
    merge_config(&mut after, settings).map_err(cannot)?;
    if after == before {
        return Ok(());
    }
    let unwritable = |error: std::io::Error| Trouble::new(&path, format!("cannot be written ({error})"));
    let beside = home.join("config.yaml.before-talaria");
    if let Some(text) = text.filter(|_| !beside.exists()) {
        files::write_private(&beside, &text).map_err(unwritable)?;
    }
    let text = yaml::text(&after).map_err(cannot)?;
    files::write_private(&path, &text).map_err(unwritable)
}

fn merge_config(config: &mut Map<String, Value>, settings: &Settings) -> Result<(), String> {
    if settings.model.is_some() || settings.provider.is_some() {
        // `model: NAME` is the short form of `model: {default: NAME}`.
        if let Some(Value::String(name)) = config.get("model") {
            let name = name.clone();
            config.insert("model".into(), json!({ "default": name }));
        }
        let model = below(config, "model")?;
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
pub(crate) fn tools_in(home: &Path) -> Option<String> {
    let config = config_in(home);
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
pub(crate) fn plugin_problem(home: &Path) -> Option<(String, String)> {
    let path = home.join("config.yaml");
    let config = match files::text(&path, BYTES) {
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
