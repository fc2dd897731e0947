//! `config.yaml`: what the platform says this workspace is.
//!
//! The file belongs to the platform and to other runtimes too, so most of its keys mean nothing here; they are kept as
//! they are. A key that nobody knows is reported, since it is most often a misspelt one. A value of the wrong kind is
//! reported and taken as absent, as the Python runtime does; only a file that is no YAML mapping cannot be used.

use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::folder::{self, Reader, Trouble};
use talaria_config::yaml;

/// The file's name.
pub const FILE: &str = "config.yaml";

/// The longest `config.yaml`. Real ones are some KiB; those with a list of models some tens.
pub(crate) const FILE_BYTES: usize = 1 << 20;

/// The keys that some runtime of the platform reads.
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

/// What `config.yaml` says, defaults filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// The agent's name, if it is said.
    pub name: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// The runtime that the platform thinks this is.
    pub runtime: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// Sent once, after the first start.
    pub initial_prompt: Option<String>,
    /// Sent whenever nothing was done for [`Manifest::idle_interval`].
    pub idle_prompt: Option<String>,
    /// See [`Manifest::idle_prompt`].
    pub idle_interval: Duration,
    /// Names of folders below `skills/`.
    pub skills: Vec<String>,
    /// Tool definitions in OpenAI's format.
    pub tools: Vec<Value>,
    /// Files that the system prompt is made of, in order.
    pub prompt_files: Vec<String>,
    /// The port of the A2A server.
    pub port: u16,
    /// Whether the card offers streaming.
    pub streaming: bool,
    /// Whether it offers push notifications.
    pub push_notifications: bool,
    /// The pause between heartbeats.
    pub heartbeat: Duration,
    /// The whole file, the keys that mean nothing here included.
    pub raw: Map<String, Value>,
}

/// One reading of a mapping.
struct Keys<'a> {
    map: &'a Map<String, Value>,
    /// Where the mapping is: empty at the top.
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
            raw: Map::new(),
        }
    }
}

// === impl Manifest ===

impl Manifest {
    /// Reads the file in a folder. A missing one gives the defaults and says so.
    ///
    /// # Errors
    /// When there is a file and it cannot be used at all.
    pub fn read(folder: &Path) -> Result<(Self, Vec<Trouble>), Trouble> {
        let mut reader = Reader::default();
        let manifest = Self::read_with(folder, &mut reader)?;
        Ok((manifest, reader.troubles))
    }

    pub(crate) fn read_with(folder: &Path, reader: &mut Reader) -> Result<Self, Trouble> {
        let path = folder.join(FILE);
        let before = reader.troubles.len();
        let Some(text) = reader.text(&path, FILE_BYTES) else {
            if reader.troubles.len() > before {
                return Err(reader.troubles.remove(before));
            }
            reader.trouble(&path, "there is no such file; the defaults are used");
            return Ok(Self::default());
        };
        let raw = yaml::mapping(&text).map_err(|what| Trouble::new(&path, what))?;
        Ok(Self::of(raw, folder, reader))
    }

    fn of(raw: Map<String, Value>, folder: &Path, reader: &mut Reader) -> Self {
        let defaults = Self::default();
        let mut troubles = Vec::new();
        let mut keys = Keys { map: &raw, at: "", troubles: &mut troubles };
        for unknown in raw.keys().filter(|key| !KNOWN.contains(&key.as_str())) {
            keys.trouble(unknown, "is no key that is known here; kept, without effect");
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
            // Clamped, not refused: so does the platform's own runtime.
            manifest.heartbeat = Duration::from_secs(seconds.clamp(5, 300));
        }
        if manifest.model.is_none()
            && let Some(mut runtime) = keys.below("runtime_config")
        {
            manifest.model = runtime.text("model");
        }
        reader.troubles.append(&mut troubles);
        let [initial, idle] = files.map(|name| name.and_then(|name| prompt_file(folder, &name, reader)));
        manifest.initial_prompt = manifest.initial_prompt.or(initial);
        manifest.idle_prompt = manifest.idle_prompt.or(idle);
        manifest.raw = raw;
        manifest
    }
}

fn prompt_file(folder: &Path, name: &str, reader: &mut Reader) -> Option<String> {
    match folder::inside(folder, name) {
        Ok(path) => {
            let text = reader.text(&path, crate::prompt::FILE_BYTES)?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        }
        Err(trouble) => {
            reader.troubles.push(trouble);
            None
        }
    }
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

    /// A text that is not empty. Numbers count as texts: `version: 1.0` is one.
    fn text(&mut self, key: &str) -> Option<String> {
        let text = match self.of(key)? {
            Value::String(text) => text.trim().to_owned(),
            Value::Number(number) => number.to_string(),
            _ => {
                self.trouble(key, "is no text; left out");
                return None;
            }
        };
        (!text.is_empty()).then_some(text)
    }

    fn texts(&mut self, key: &str) -> Vec<String> {
        let Some(value) = self.of(key) else { return Vec::new() };
        let Value::Array(items) = value else {
            self.trouble(key, "is no list; left out");
            return Vec::new();
        };
        let texts: Vec<_> = items.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        if texts.len() < items.len() {
            self.trouble(key, "holds something that is no text; that is left out");
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
            self.trouble(key, format!("is no number from {} to {}; left out", range.start(), range.end()));
        }
        number
    }

    fn seconds(&mut self, key: &str, range: std::ops::RangeInclusive<u64>) -> Option<Duration> {
        self.number(key, range).map(Duration::from_secs)
    }

    /// Definitions are objects; what is only named is a tool of another runtime.
    fn tools(&mut self) -> Vec<Value> {
        match self.of("tools") {
            None => Vec::new(),
            Some(Value::Array(items)) => items.iter().filter(|item| !item.is_string()).cloned().collect(),
            Some(_) => {
                self.trouble("tools", "is no list; left out");
                Vec::new()
            }
        }
    }

    fn below<'k>(&'k mut self, key: &'k str) -> Option<Keys<'k>> {
        match self.of(key)? {
            Value::Object(_) => {}
            _ => {
                self.trouble(key, "is no mapping; left out");
                return None;
            }
        }
        let map = self.map.get(key)?.as_object()?;
        Some(Keys { map, at: key, troubles: self.troubles })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> Result<(Manifest, Vec<String>), Trouble> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), yaml).unwrap();
        std::fs::write(folder.path().join("first.md"), " begin \n").unwrap();
        let (manifest, troubles) = Manifest::read(folder.path())?;
        Ok((manifest, troubles.iter().map(ToString::to_string).collect()))
    }

    #[test]
    fn the_keys_of_the_platform_are_read() {
        let (manifest, troubles) = read(
            "name: Researcher\nversion: 1.5\nruntime: hermes\nmodel: nousresearch/hermes-4-70b\n\
             skills: [papers, search]\nprompt_files: [system.md, soul.md]\ninitial_prompt_file: first.md\n\
             tools:\n- delegate\n- {type: function, function: {name: look}}\n\
             a2a: {port: 8100, streaming: false}\nobservability: {heartbeat_interval_seconds: 1}\nsecurity_scan: warn\n",
        )
        .unwrap();
        assert_eq!(troubles, [""; 0]);
        let defaults = Manifest::default();
        let text = |text: &str| Some(text.to_owned());
        assert_eq!((manifest.name, manifest.version), (text("Researcher"), text("1.5")));
        assert_eq!((manifest.model, manifest.runtime), (text("nousresearch/hermes-4-70b"), text("hermes")));
        assert_eq!(manifest.skills, ["papers", "search"]);
        assert_eq!(manifest.prompt_files, ["system.md", "soul.md"]);
        assert_eq!(manifest.initial_prompt, text("begin"));
        assert_eq!(manifest.tools.len(), 1);
        assert_eq!((manifest.port, manifest.streaming, manifest.push_notifications), (8100, false, true));
        assert_eq!(manifest.heartbeat, Duration::from_secs(5), "the shortest there is");
        assert_eq!(manifest.idle_interval, defaults.idle_interval);
        assert_eq!(manifest.raw["security_scan"], "warn", "what means nothing here is kept");
    }

    #[test]
    fn wrong_values_are_told_and_left_out_and_the_rest_counts() {
        let (manifest, troubles) = read(
            "name: [x]\nskils: [a]\nskills: papers\nprompt_files: [a.md, 3]\na2a: {port: 70000}\n\
             runtime_config: {model: m}\ninitial_prompt_file: ../secret\nidle_interval_seconds: soon\n",
        )
        .unwrap();
        assert_eq!(manifest.prompt_files, ["a.md"]);
        assert_eq!((manifest.port, manifest.model.as_deref()), (8000, Some("m")));
        for part in [
            "`skils` is no key",
            "`name` is no text",
            "`skills` is no list",
            "`a2a.port` is no number",
            "../secret",
            "idle_interval",
        ] {
            assert!(
                troubles.iter().any(|said| said.replace(": is", " is").contains(part)),
                "{part}: {troubles:?}"
            );
        }
        assert_eq!(troubles.len(), 7, "{troubles:?}");
    }

    #[test]
    fn a_file_that_cannot_be_used_is_an_error_and_a_missing_one_is_not() {
        for bad in ["a: [", "- list", "\0"] {
            assert!(read(bad).unwrap_err().to_string().contains(FILE), "{bad:?}");
        }
        let folder = tempfile::tempdir().unwrap();
        let (manifest, troubles) = Manifest::read(folder.path()).unwrap();
        assert_eq!((manifest, troubles.len()), (Manifest::default(), 1));
        assert_eq!(read("").unwrap().0, Manifest::default());
    }
}
