//! `[executor.NAME]` as written, and the executor that it configures.
//!
//! A built-in executor needs no section: its preset gives it settings and secrets, and its grant follows from the needs of
//! its component. A key in a section replaces that part only. An executor of the operator's own gets exactly what its
//! section grants: nothing, if it grants nothing.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use secrecy::SecretString;
use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use talaria_config::{Env, HttpUrl, Period, Problem, count, secret};
use talaria_egress::Pattern;
use talaria_engine::fill_in;

use super::builtin::{Builtin, Builtins};
use super::grant::{self, Grant, GrantSection};
use super::name::{ComponentRef, ExecutorName, Fallback};
use super::secret::SecretGrant;

/// `[executor.NAME]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
#[schemars(rename = "executor.NAME")]
pub struct ExecutorSection {
    /// The component: a path, relative to this file, `builtin:NAME`, or `oci://REGISTRY/NAME@sha256:DIGEST`.
    ///
    /// Default: the built-in component of that name, else `NAME.wasm` in `executors.dir`
    ///
    /// Example: `component = "my-agent.wasm"`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub component: Option<ComponentRef>,
    /// How long a turn may take, waiting included; at most a day.
    ///
    /// Default: `600s`; a built-in component may have its own
    ///
    /// Example: `deadline = "120s"`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Period>,
    /// The number of its turns that run at once; further turns wait, within their deadline. At most `100000`.
    ///
    /// Example: `concurrency = 10`
    pub concurrency: NonZeroU32,
    /// The number of its turns that wait; further turns fail as busy and can be retried. At most `100000`.
    ///
    /// Example: `queue = 100`
    pub queue: NonZeroU32,
    /// The executor that takes its turns while it is not ready; `none` for no fallback. Once ready, it takes its turns again.
    ///
    /// Default: none; a built-in executor may have its own
    ///
    /// Example: `fallback = "chat-completions"`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Fallback>,
    /// What happens to its turns while it is in quarantine, after several crashes in a row: `closed` fails them at once,
    /// `fallback` gives them to the executor in `fallback`, `last-good` goes back to the last version that completed turns
    /// and was not quarantined since; if no such version is stored, they fail at once.
    ///
    /// Default: `fallback` if one is named, else `last-good`
    ///
    /// Example: `fail_mode = "closed"`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fail_mode: Option<FailMode>,
    /// The settings of the component, checked against its schema. [executors.md](executors.md) lists the settings of the
    /// built-in components, and the environment variables that override them.
    ///
    /// Example: `settings = { base_url = "http://127.0.0.1:8642/v1", model = "large" }`
    #[serde(deserialize_with = "settings")]
    pub settings: Map<String, Value>,
    /// What the component may do.
    pub grant: GrantSection,
}

/// What happens to the turns of an executor in quarantine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FailMode {
    /// They fail at once.
    Closed,
    /// The fallback takes them.
    Fallback,
    /// The last version that completed turns takes them.
    LastGood,
}

/// A configured executor, ready to be loaded.
#[derive(Debug, Clone)]
pub struct Executor {
    /// Its name.
    pub name: ExecutorName,
    /// Its component; a path is not relative to the file any more.
    pub component: ComponentRef,
    /// How long a turn may take.
    pub deadline: Duration,
    /// The number of its turns that run at once.
    pub concurrency: NonZeroU32,
    /// The number of its turns that wait.
    pub queue: NonZeroU32,
    /// The executor that takes its turns while it is not ready.
    pub fallback: Option<ExecutorName>,
    /// What happens to its turns while it is in quarantine.
    pub fail_mode: FailMode,
    /// The settings of the component, as the JSON of the contract.
    pub settings: Map<String, Value>,
    /// Settings that the workspace suggests; they count where the component has them and `settings` does not.
    pub suggested: Map<String, Value>,
    /// What it may do.
    pub grant: Grant,
}

/// Makes executors from their sections.
pub struct Resolver<'a> {
    /// The environment, for secrets.
    pub env: Env<'a>,
    /// The folder that relative paths start from.
    pub folder: &'a Path,
    /// The components that ship with the host.
    pub builtins: &'a Builtins,
}

// === impl ExecutorSection ===

impl Default for ExecutorSection {
    fn default() -> Self {
        Self {
            component: None,
            deadline: None,
            fallback: None,
            fail_mode: None,
            concurrency: count::<1000>(),
            queue: count::<1000>(),
            settings: Map::new(),
            grant: GrantSection::default(),
        }
    }
}

/// Reads a free-form table as JSON. Dates become text; numbers that JSON lacks are rejected.
fn settings<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Map<String, Value>, D::Error> {
    members(toml::Table::deserialize(deserializer)?).map_err(de::Error::custom)
}

fn members(table: toml::Table) -> Result<Map<String, Value>, String> {
    let member = |(key, value)| match json(value) {
        Ok(value) => Ok((key, value)),
        Err(what) => Err(format!("`{key}`: {what}")),
    };
    table.into_iter().map(member).collect()
}

fn json(value: toml::Value) -> Result<Value, String> {
    Ok(match value {
        toml::Value::String(text) => Value::String(text),
        toml::Value::Integer(number) => Value::from(number),
        toml::Value::Float(number) if number.is_finite() => Value::from(number),
        toml::Value::Float(_) => {
            return Err("JSON has no such number, and a component gets its settings as JSON".into());
        }
        toml::Value::Boolean(flag) => Value::Bool(flag),
        toml::Value::Datetime(date) => Value::String(date.to_string()),
        toml::Value::Array(values) => Value::Array(values.into_iter().map(json).collect::<Result<_, _>>()?),
        toml::Value::Table(table) => Value::Object(members(table)?),
    })
}

// === impl Resolver ===

impl Resolver<'_> {
    /// Makes an executor from its section. `dropped` is its component in the executors folder. Keys in problems are
    /// relative to the section.
    pub fn resolve(
        &self,
        name: ExecutorName,
        section: ExecutorSection,
        dropped: Option<PathBuf>,
        warnings: &mut Vec<String>,
    ) -> Result<Executor, Problem> {
        let ExecutorSection {
            component,
            deadline,
            concurrency,
            queue,
            fallback,
            fail_mode,
            mut settings,
            grant,
        } = section;
        let component = self.component(&name, component, dropped)?;
        let own = self.builtins.get(name.as_str()).map(|builtin| &builtin.preset);
        // The environment takes precedence, also over the settings of an operator's component of that name.
        if let Some(preset) = own {
            settings.extend(preset.overrides.clone());
        }
        let builtin = self.builtin(&component);
        if let Some(settle) = builtin.and_then(|builtin| builtin.preset.settle.as_ref()) {
            settle(&name, &mut settings)?;
        }
        let fallback = match fallback {
            Some(Fallback::To(other)) if other == name => {
                return Err(problem("fallback", "itself; name another executor, or `none`"));
            }
            Some(Fallback::To(other)) => Some(other),
            Some(Fallback::None) => None,
            None => own.and_then(|preset| preset.fallback.clone()),
        };
        let fail_mode = match fail_mode {
            Some(FailMode::Fallback) if fallback.is_none() => {
                return Err(problem("fail_mode", "there is no fallback; name one with `fallback`"));
            }
            Some(fail_mode) => fail_mode,
            None if fallback.is_some() => FailMode::Fallback,
            None => FailMode::LastGood,
        };
        let deadline = match deadline {
            Some(deadline) => deadline.get(),
            None => builtin.and_then(|builtin| builtin.preset.deadline).unwrap_or(grant::TURN),
        };
        grant::at_most("deadline", Period::of(deadline), grant::DEADLINE)?;
        grant::at_most("concurrency", concurrency.get(), grant::TURNS)?;
        grant::at_most("queue", queue.get(), grant::TURNS)?;
        let written = grant.secrets.clone();
        let mut grant = grant.settle(builtin.map(|builtin| &builtin.preset), self.folder)?;
        let keys = builtin.into_iter().flat_map(|builtin| &builtin.preset.secrets);
        let named = |name: &String| fill_in(name, &settings).unwrap_or_else(|_| name.clone());
        let by_default: Vec<_> = keys.map(|name| SecretGrant { name: named(name), to: Vec::new() }).collect();
        for (index, wanted) in written.as_ref().unwrap_or(&by_default).iter().enumerate() {
            let key = format!("grant.secrets[{index}]");
            let to = destinations(wanted).map_err(|what| problem(&key, what))?;
            let value = secret::by_name(&wanted.name, &self.env).map_err(|what| problem(&key, what))?;
            if value.is_none() && written.is_some() {
                let name = format!("{}, which executor.{name} is granted,", wanted.name);
                warnings.push(format!(
                    "{name} is not set; set it, or {}_FILE to the path of its file",
                    wanted.name
                ));
            }
            grant
                .insert_secret(&wanted.name, value.unwrap_or_default(), to)
                .map_err(|error| problem(&key, error.to_string()))?;
        }
        let suggested = Map::new();
        Ok(Executor {
            name,
            component,
            deadline,
            concurrency,
            queue,
            fallback,
            fail_mode,
            settings,
            suggested,
            grant,
        })
    }

    /// The component: as written, else the file in the folder, else the built-in one of that name.
    fn component(
        &self,
        name: &ExecutorName,
        written: Option<ComponentRef>,
        dropped: Option<PathBuf>,
    ) -> Result<ComponentRef, Problem> {
        match (written, dropped) {
            (Some(ComponentRef::File(path)), _) => Ok(ComponentRef::File(self.folder.join(path))),
            (Some(ComponentRef::Builtin(known)), _) if self.builtins.get(&known).is_none() => {
                let names: Vec<_> = self.builtins.iter().map(|builtin| builtin.name).collect();
                let what = format!("no built-in component `{known}` (built in: {})", names.join(", "));
                Err(problem("component", what))
            }
            (Some(component), _) => Ok(component),
            (None, Some(path)) => Ok(ComponentRef::File(path)),
            (None, None) if self.builtins.get(name.as_str()).is_some() => {
                Ok(ComponentRef::Builtin(name.as_str().to_owned()))
            }
            (None, None) => {
                let what = format!(
                    "not given; give a path, `builtin:NAME` or `oci://…@sha256:…`, or put `{name}.wasm` into `executors.dir`"
                );
                Err(problem("component", what))
            }
        }
    }

    fn builtin(&self, component: &ComponentRef) -> Option<&Builtin> {
        match component {
            ComponentRef::Builtin(name) => self.builtins.get(name),
            ComponentRef::File(_) | ComponentRef::Oci(_) => None,
        }
    }
}

// === impl Executor ===

impl Executor {
    /// Points an executor with a built-in component at another upstream, with `secret` as its key there. Its grant then
    /// follows from the needs of its component.
    pub fn point_at(&mut self, base: &HttpUrl, key: &str, secret: SecretString) -> Result<(), Problem> {
        self.settings.insert("base_url".into(), base.as_str().into());
        self.grant.reopen(key, secret).map_err(|error| problem("grant.secrets", error.to_string()))
    }
}

fn problem(key: &str, what: impl Into<String>) -> Problem {
    Problem { key: key.to_owned(), what: what.into() }
}

/// The destinations of a secret, as written.
fn destinations(wanted: &SecretGrant) -> Result<Vec<Pattern>, String> {
    let pattern = |to: &String| match to.contains(' ') {
        true => to.parse(),
        false => format!("* {to}").parse(),
    };
    let patterns = wanted.to.iter().map(pattern);
    patterns.collect::<Result<_, talaria_egress::InvalidPattern>>().map_err(|error| error.to_string())
}
