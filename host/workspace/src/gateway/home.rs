//! The gateway's home: its `.env` and its `config.yaml`, made fit for the bridge.
//!
//! Only what the bridge needs is set; everything else stays, comments and order of the `.env` included. A
//! `config.yaml` that already says what is needed is not touched; one that does not is kept beside as
//! `config.yaml.before-talaria` before it is written the first time, since writing YAML loses its comments. One that
//! cannot be read is left alone and told of.
//!
//! Where the gateway runs as another user, the home is that user's, who could lay a link to anything there. So no link is
//! followed then, and files are replaced, never written into.

use std::fs;
use std::path::Path;

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value, json};

use crate::folder::{self, Trouble};
use crate::yaml;

/// The largest file of the gateway's that is read.
const BYTES: usize = 4 << 20;

/// What of this process's environment the gateway needs: how it finds its models.
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

/// The plugin, by the two names that it goes by.
const PLUGIN: (&str, &str) = ("molecule_a2a", "molecule-a2a");

/// What the gateway is to be told.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The port of its API server.
    pub port: u16,
    /// That server's key.
    pub key: SecretString,
    /// Variables of the environment that it needs, such as providers' keys.
    pub variables: Vec<(String, SecretString)>,
    /// The model, where somebody chose one.
    pub model: Option<String>,
    /// The provider, where somebody chose one.
    pub provider: Option<String>,
    /// The plugin that answers by callback, where it is used.
    pub plugin: Option<Plugin>,
}

/// The platform plugin's part.
#[derive(Debug, Clone)]
pub struct Plugin {
    /// Where it listens.
    pub host: String,
    /// On which port.
    pub port: u16,
    /// Where it answers.
    pub callback_url: String,
    /// What both prove themselves with.
    pub secret: Option<SecretString>,
}

/// Whose a gateway's home is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The user's that this process runs as.
    Ours,
    /// Another user's.
    Theirs,
}

impl Whose {
    fn text(self, path: &Path) -> Result<Option<String>, Trouble> {
        match self {
            Self::Ours => folder::text(path, BYTES),
            Self::Theirs => folder::unlinked_text(path, BYTES),
        }
    }
}

/// The key that is in a home's `.env`, if there is one.
pub fn key_in(home: &Path) -> Option<SecretString> {
    variable_in(home, "API_SERVER_KEY")
}

/// What a home's `.env` sets a variable to; none where it does not, or to nothing.
pub fn variable_in(home: &Path, name: &str) -> Option<SecretString> {
    let text = folder::text(&home.join(".env"), BYTES).ok()??;
    let value_of = |line: &str| {
        let line = line.trim();
        let (known, value) = line.strip_prefix("export ").unwrap_or(line).split_once('=')?;
        (known.trim() == name).then(|| value.trim().trim_matches(['"', '\'']).to_owned())
    };
    let value = text.lines().filter_map(value_of).next_back()?;
    (!value.is_empty()).then(|| value.into())
}

/// What a home's `config.yaml` says; nothing where it is missing or cannot be read.
pub fn config_in(home: &Path) -> Value {
    let text = folder::text(&home.join("config.yaml"), BYTES).ok().flatten().unwrap_or_default();
    Value::Object(yaml::mapping(&text).unwrap_or_default())
}

/// Makes the gateway read the workspace's prompt where messages to it carry none: as its `SOUL.md`. What was there first
/// is kept beside.
pub(crate) fn write_soul(home: &Path, prompt: &str, whose: Whose) -> Result<(), Trouble> {
    let path = home.join("SOUL.md");
    let before = whose.text(&path)?;
    if before.as_deref() == Some(prompt) {
        return Ok(());
    }
    let unwritable = |error: std::io::Error| Trouble::new(&path, format!("cannot be written ({error})"));
    let beside = home.join("SOUL.md.before-talaria");
    if let Some(before) = before.filter(|_| !beside.exists()) {
        folder::write_private(&beside, &before).map_err(unwritable)?;
    }
    folder::write_private(&path, prompt).map_err(unwritable)
}

/// Makes both files say what is wanted.
pub(crate) fn prepare(home: &Path, wanted: &Wanted, whose: Whose) -> Vec<Trouble> {
    let mut troubles = Vec::new();
    if let Err(error) = fs::create_dir_all(home) {
        troubles.push(Trouble::new(home, format!("cannot be made ({error})")));
        return troubles;
    }
    troubles.extend(write_env(home, wanted, whose).err());
    troubles.extend(write_config(home, wanted, whose).err());
    troubles
}

fn write_env(home: &Path, wanted: &Wanted, whose: Whose) -> Result<(), Trouble> {
    let path = home.join(".env");
    let before = whose.text(&path)?.unwrap_or_default();
    let port = wanted.port.to_string();
    let mut set: Vec<(&str, &str)> = vec![
        ("API_SERVER_ENABLED", "true"),
        ("API_SERVER_KEY", wanted.key.expose_secret()),
        ("API_SERVER_HOST", "127.0.0.1"),
        ("API_SERVER_PORT", &port),
    ];
    set.extend(wanted.variables.iter().map(|(name, value)| (name.as_str(), value.expose_secret())));
    let after = merged_env(&before, &set);
    if after != before || path.metadata().is_ok_and(|metadata| folder::is_shared(&metadata)) {
        let written = folder::write_private(&path, &after);
        written.map_err(|error| Trouble::new(&path, format!("cannot be written ({error})")))?;
    }
    Ok(())
}

/// The lines with these variables set. A value of several lines cannot be one of an `.env` and is left out.
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
            // The last one would count, so there is only one.
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

fn write_config(home: &Path, wanted: &Wanted, whose: Whose) -> Result<(), Trouble> {
    let path = home.join("config.yaml");
    let text = whose.text(&path)?;
    let cannot = |what: String| {
        Trouble::new(&path, format!("{what}; it is left as it is, and the gateway may lack its plugin"))
    };
    let before = yaml::mapping(text.as_deref().unwrap_or_default()).map_err(cannot)?;
    let mut after = before.clone();
    merge_config(&mut after, wanted).map_err(cannot)?;
    if after == before {
        return Ok(());
    }
    let unwritable = |error: std::io::Error| Trouble::new(&path, format!("cannot be written ({error})"));
    let beside = home.join("config.yaml.before-talaria");
    if let Some(text) = text.filter(|_| !beside.exists()) {
        folder::write_private(&beside, &text).map_err(unwritable)?;
    }
    let text = yaml::text(&after).map_err(cannot)?;
    folder::write_private(&path, &text).map_err(unwritable)
}

fn merge_config(config: &mut Map<String, Value>, wanted: &Wanted) -> Result<(), String> {
    if wanted.model.is_some() || wanted.provider.is_some() {
        // `model: NAME` is the short form of `model: {default: NAME}`.
        if let Some(Value::String(name)) = config.get("model") {
            let name = name.clone();
            config.insert("model".into(), json!({ "default": name }));
        }
        let model = below(config, "model")?;
        for (key, value) in [("default", &wanted.model), ("provider", &wanted.provider)] {
            if let Some(value) = value {
                model.insert(key.into(), json!(value));
            }
        }
    }
    let Some(plugin) = &wanted.plugin else { return Ok(()) };
    let enabled = below(config, "plugins")?.entry("enabled").or_insert_with(|| json!([]));
    if enabled.is_null() {
        *enabled = json!([]);
    }
    let enabled = enabled.as_array_mut().ok_or("`plugins.enabled` is no list")?;
    // The name of the platform here, and not that of the plugin, is what people write; it enables nothing.
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

/// The mapping at a key, made where there is none.
fn below<'m>(map: &'m mut Map<String, Value>, key: &str) -> Result<&'m mut Map<String, Value>, String> {
    let value = map.entry(key).or_insert_with(|| json!({}));
    if value.is_null() {
        *value = json!({});
    }
    value.as_object_mut().ok_or_else(|| format!("`{key}` is no mapping"))
}

/// What is wrong with the plugin's part of a `config.yaml`, for the doctor.
pub fn plugin_trouble(home: &Path) -> Option<(String, String)> {
    let path = home.join("config.yaml");
    let config = match folder::text(&path, BYTES) {
        Ok(Some(text)) => yaml::mapping(&text).ok()?,
        Ok(None) => {
            return Some((
                format!("{} is not there", path.display()),
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
