//! `config.yaml`: the platform's description of this workspace.
//!
//! The platform and other runtimes use the file too, so most of its keys have no effect here; they are kept as they are. A
//! key that no runtime knows is reported, since it is usually misspelt. A value of the wrong type is reported and treated as
//! absent, as in the Python runtime. Only a file that is not a YAML mapping cannot be used at all.

use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::folder::{Folder, Reader, Trouble};
use talaria_config::yaml;

/// The file's name.
pub const FILE: &str = "config.yaml";

/// The longest `config.yaml`, in bytes. Real ones have a few KiB, or tens of KiB with a list of models.
pub(crate) const FILE_BYTES: usize = 1 << 20;

/// The keys that any of the platform's runtimes reads.
const KNOWN: [&str; 34] = [
    "name",
    "description",
    "role",
    "version",
    "tier",
    "model",
    "models",
    "provider",
    "runtime",
    "runtime_config",
    "initial_prompt",
    "initial_prompt_file",
    "idle_prompt",
    "idle_prompt_file",
    "idle_interval_seconds",
    "skills",
    "plugins",
    "tools",
    "prompt_files",
    "shared_context",
    "a2a",
    "delegation",
    "sandbox",
    "rbac",
    "hitl",
    "governance",
    "security_scan",
    "compliance",
    "sub_workspaces",
    "effort",
    "task_budget",
    "observability",
    "required_env",
    "template_schema_version",
];

/// The keys of `runtime_config` that other runtimes read, or that count elsewhere.
const RUNTIME: [&str; 8] =
    ["command", "args", "required_env", "timeout", "model", "models", "provider", "auth_token_env"];

/// The content of `config.yaml`, with defaults filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// The agent's name.
    pub name: Option<String>,
    /// A description of the agent.
    pub description: Option<String>,
    /// The agent's version.
    pub version: Option<String>,
    /// The runtime that the platform takes this process for.
    pub runtime: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The prompt that is sent once, after the first start.
    pub initial_prompt: Option<String>,
    /// The prompt that is sent whenever the workspace was idle for [`Manifest::idle_interval`].
    pub idle_prompt: Option<String>,
    /// See [`Manifest::idle_prompt`].
    pub idle_interval: Duration,
    /// The names of folders below `skills/`.
    pub skills: Vec<String>,
    /// Tool definitions in OpenAI's format.
    pub tools: Vec<Value>,
    /// The files that make up the system prompt, in order.
    pub prompt_files: Vec<String>,
    /// The port of the A2A server.
    pub port: u16,
    /// Whether the card advertises streaming.
    pub streaming: bool,
    /// Whether the card advertises push notifications.
    pub push_notifications: bool,
    /// The interval between heartbeats.
    pub heartbeat: Duration,
    /// Settings for the executor: the keys of `runtime_config` that are not the platform's own.
    pub settings: Map<String, Value>,
    /// The whole file, including keys that have no effect here.
    pub raw: Map<String, Value>,
}

/// Reads the keys of a mapping and collects the problems.
struct Keys<'a> {
    map: &'a Map<String, Value>,
    /// The key of the mapping itself; empty for the top level.
    at: &'a str,
    troubles: &'a mut Vec<Trouble>,
}

impl Default for Manifest {
    fn default() -> Self {
        Self {
            name: None,
            description: None,
            version: None,
            runtime: None,
            model: None,
            initial_prompt: None,
            idle_prompt: None,
            idle_interval: Duration::from_secs(600),
            skills: Vec::new(),
            tools: Vec::new(),
            prompt_files: Vec::new(),
            port: 8000,
            streaming: true,
            push_notifications: true,
            heartbeat: Duration::from_secs(30),
            settings: Map::new(),
            raw: Map::new(),
        }
    }
}

// === impl Manifest ===

impl Manifest {
    /// Reads the file in a folder. A missing file gives the defaults and a problem that says so.
    ///
    /// # Errors
    /// If the file exists and cannot be used at all.
    pub fn read(folder: &Path) -> Result<(Self, Vec<Trouble>), Trouble> {
        let mut reader = Reader::default();
        let manifest = Self::read_with(&Folder::open(folder), &mut reader)?;
        Ok((manifest, reader.troubles))
    }

    /// The environment variables that the file requires: for every model, and for this one.
    pub fn required_env(&self, model: Option<&str>) -> Vec<String> {
        let models = self.raw.get("models").and_then(Value::as_array).into_iter().flatten();
        let of_model =
            models.filter(|entry| model.is_some() && entry.get("id").and_then(Value::as_str) == model);
        let runtime = self.raw.get("runtime_config");
        let lists = [self.raw.get("required_env"), runtime.and_then(|runtime| runtime.get("required_env"))];
        let lists = lists.into_iter().chain(of_model.map(|entry| entry.get("required_env")));
        let names = lists.flatten().filter_map(Value::as_array).flatten().filter_map(Value::as_str);
        let mut names: Vec<_> = names.map(str::to_owned).collect();
        names.sort();
        names.dedup();
        names
    }

    /// The keys that differ from those before and that are read at the start only.
    pub(crate) fn restart_keys(&self, before: &Self) -> impl Iterator<Item = &'static str> {
        let changed =
            [("a2a.port", self.port != before.port), ("runtime_config", self.settings != before.settings)];
        changed.into_iter().filter(|(_, is_changed)| *is_changed).map(|(key, _)| key)
    }

    pub(crate) fn read_with(folder: &Folder, reader: &mut Reader) -> Result<Self, Trouble> {
        let path = folder.path().join(FILE);
        let before = reader.troubles.len();
        let Some(text) = reader.text(folder, FILE, FILE_BYTES) else {
            if reader.troubles.len() > before {
                return Err(reader.troubles.remove(before));
            }
            reader.trouble(&path, "there is no such file; the defaults are used");
            return Ok(Self::default());
        };
        let raw = yaml::mapping(&text).map_err(|what| Trouble::new(&path, what))?;
        Ok(Self::of(raw, folder, reader))
    }

    fn of(raw: Map<String, Value>, folder: &Folder, reader: &mut Reader) -> Self {
        let defaults = Self::default();
        let mut troubles = Vec::new();
        let mut keys = Keys { map: &raw, at: "", troubles: &mut troubles };
        for unknown in raw.keys().filter(|key| !KNOWN.contains(&key.as_str())) {
            keys.trouble(unknown, "is not a known key; kept, without effect");
        }
        let mut manifest = Self {
            name: keys.text("name"),
            description: keys.text("description"),
            version: keys.text("version"),
            runtime: keys.text("runtime"),
            model: keys.text("model"),
            initial_prompt: keys.text("initial_prompt"),
            idle_prompt: keys.text("idle_prompt"),
            idle_interval: keys
                .seconds("idle_interval_seconds", 1..=86_400)
                .unwrap_or(defaults.idle_interval),
            skills: keys.texts("skills"),
            tools: keys.tools(),
            prompt_files: keys.texts("prompt_files"),
            raw: Map::new(),
            ..defaults
        };
        let files = [keys.text("initial_prompt_file"), keys.text("idle_prompt_file")];
        if let Some(mut a2a) = keys.below("a2a") {
            let port = a2a.number("port", 1..=65_535).and_then(|port| u16::try_from(port).ok());
            manifest.port = port.unwrap_or(manifest.port);
            manifest.streaming = a2a.switch("streaming").unwrap_or(true);
            manifest.push_notifications = a2a.switch("push_notifications").unwrap_or(true);
        }
        if let Some(mut observability) = keys.below("observability")
            && let Some(seconds) = observability.number("heartbeat_interval_seconds", 0..=u64::MAX)
        {
            // Clamped rather than rejected, as in the platform's own runtime.
            manifest.heartbeat = Duration::from_secs(seconds.clamp(5, 300));
        }
        if let Some(mut runtime) = keys.below("runtime_config") {
            match (&manifest.model, runtime.text("model")) {
                (None, model) => manifest.model = model,
                (Some(model), Some(other)) if *model != other => {
                    runtime.trouble("model", "has no effect: `model` of the file counts");
                }
                _ => {}
            }
            let own = |key: &str| !RUNTIME.contains(&key);
            let settings = runtime.map.iter().filter(|(key, value)| own(key) && !value.is_null());
            manifest.settings = settings.map(|(key, value)| (key.clone(), value.clone())).collect();
        }
        reader.troubles.append(&mut troubles);
        let [initial, idle] = files.map(|name| name.and_then(|name| prompt_file(folder, &name, reader)));
        manifest.initial_prompt = manifest.initial_prompt.or(initial);
        manifest.idle_prompt = manifest.idle_prompt.or(idle);
        manifest.raw = raw;
        manifest
    }
}

fn prompt_file(folder: &Folder, name: &str, reader: &mut Reader) -> Option<String> {
    let text = reader.text(folder, name, crate::prompt::FILE_BYTES)?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

// === impl Keys ===

impl Keys<'_> {
    fn trouble(&mut self, key: &str, what: impl Into<String>) {
        let dot = if self.at.is_empty() { "" } else { "." };
        self.troubles.push(Trouble::new(format!("{FILE}: `{}{dot}{key}`", self.at), what));
    }

    fn of(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// Reads a text; `None` if it is empty. A number counts as a text, as in `version: 1.0`.
    fn text(&mut self, key: &str) -> Option<String> {
        let text = match self.of(key)? {
            Value::String(text) => text.trim().to_owned(),
            Value::Number(number) => number.to_string(),
            _ => {
                self.trouble(key, "is not a text; left out");
                return None;
            }
        };
        (!text.is_empty()).then_some(text)
    }

    fn texts(&mut self, key: &str) -> Vec<String> {
        let Some(value) = self.of(key) else { return Vec::new() };
        let Value::Array(items) = value else {
            self.trouble(key, "is not a list; left out");
            return Vec::new();
        };
        let texts: Vec<_> = items.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        if texts.len() < items.len() {
            self.trouble(key, "has items that are not texts; they are left out");
        }
        texts
    }

    fn switch(&mut self, key: &str) -> Option<bool> {
        let value = self.of(key)?.as_bool();
        if value.is_none() {
            self.trouble(key, "is neither true nor false; left out");
        }
        value
    }

    fn number(&mut self, key: &str, range: std::ops::RangeInclusive<u64>) -> Option<u64> {
        let value = self.of(key)?;
        let number = value.as_u64().or_else(|| value.as_str()?.trim().parse().ok());
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            self.trouble(key, format!("is not a number from {} to {}; left out", range.start(), range.end()));
        }
        number
    }

    fn seconds(&mut self, key: &str, range: std::ops::RangeInclusive<u64>) -> Option<Duration> {
        self.number(key, range).map(Duration::from_secs)
    }

    /// Reads the tool definitions. A string is the name of another runtime's tool and is ignored.
    fn tools(&mut self) -> Vec<Value> {
        match self.of("tools") {
            None => Vec::new(),
            Some(Value::Array(items)) => items.iter().filter(|item| !item.is_string()).cloned().collect(),
            Some(_) => {
                self.trouble("tools", "is not a list; left out");
                Vec::new()
            }
        }
    }

    fn below<'k>(&'k mut self, key: &'k str) -> Option<Keys<'k>> {
        match self.of(key)? {
            Value::Object(_) => {}
            _ => {
                self.trouble(key, "is not a mapping; left out");
                return None;
            }
        }
        let map = self.map.get(key)?.as_object()?;
        Some(Keys { map, at: key, troubles: self.troubles })
    }
}

#[cfg(test)]
mod tests;
