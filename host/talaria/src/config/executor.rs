//! Executors: `[executor.NAME]` as written, and what becomes of it.
//!
//! A built-in executor needs no section: its settings come from the environment of the seeds, and its grant is the one
//! that its settings imply. What a section says replaces that part only. An executor of the operator's own gets exactly
//! what its section grants: nothing, if it grants nothing.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use secrecy::SecretString;
use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use talaria_egress::{Pattern, Secrets};

use super::env::Seeds;
use super::grant::{self, Grant, GrantSection, Implied};
use super::plugin::{self, PLUGIN_CALLBACK};
use super::secret::SecretGrant;
use super::value::{BUILTIN, ComponentRef, ExecutorName, Fallback};
use talaria_config::{Env, HttpUrl, Period, Problem, count, secret};

/// The executor of the seeds, and the default.
pub(crate) const CHAT_COMPLETIONS: &str = "chat-completions";

/// The gateway's address in a workspace, as the seeds have it.
pub(crate) const GATEWAY: &str = "http://127.0.0.1:8642/v1";

/// The gateway's key, by the name that the seeds give it.
const GATEWAY_KEY: &str = "API_SERVER_KEY";

/// A built-in component with an upstream: what its executor is given by itself.
struct Upstream {
    /// The component.
    name: &'static str,
    /// Where the upstream is when nothing is said.
    base: &'static str,
    /// Where the environment says that it is; heard by the executor of the component's name only.
    from: fn(&Seeds) -> Option<&HttpUrl>,
    /// The calls that the component makes, written as in its needs.
    calls: &'static [&'static str],
    /// The upstream's key.
    key: &'static str,
}

/// The built-in components with an upstream.
const UPSTREAMS: [Upstream; 3] = [
    Upstream {
        name: CHAT_COMPLETIONS,
        base: GATEWAY,
        from: |seeds| seeds.api_base.as_ref(),
        calls: &[
            "POST {setting:base_url}/chat/completions",
            "GET {setting:base_url}/health",
            "GET {setting:base_url}/models",
            "GET {parent:base_url}/api/sessions*",
            "GET {parent:base_url}/health/detailed",
        ],
        key: GATEWAY_KEY,
    },
    Upstream {
        name: "hermes",
        base: "https://openrouter.ai/api/v1",
        from: |seeds| seeds.openai_base.as_ref(),
        calls: &["POST {setting:base_url}/chat/completions", "GET {setting:base_url}/models"],
        key: "OPENAI_API_KEY",
    },
    Upstream {
        name: "hermes-runs",
        base: GATEWAY,
        from: |seeds| seeds.api_base.as_ref(),
        calls: &[
            "GET {setting:base_url}/capabilities",
            "POST {setting:base_url}/runs",
            "GET {setting:base_url}/runs/*",
            "POST {setting:base_url}/runs/*",
            "GET {parent:base_url}/api/sessions*",
            "POST {setting:base_url}/chat/completions",
            "GET {setting:base_url}/models",
            "GET {setting:base_url}/health",
        ],
        key: GATEWAY_KEY,
    },
];

/// `[executor.NAME]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
#[schemars(rename = "executor.NAME")]
pub(crate) struct ExecutorSection {
    /// The component: a path, relative to this file, `builtin:NAME`, or `oci://REGISTRY/NAME@sha256:DIGEST`.
    ///
    /// Default: the built-in component of that name, else `NAME.wasm` in `executors.dir`
    ///
    /// Example: `component = "my-agent.wasm"`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) component: Option<ComponentRef>,
    /// How long a turn may take, waiting included; at most a day.
    ///
    /// Default: `600s`; for `builtin:plugin-callback` `1860s`, a minute more than hermes-agent gives a turn
    ///
    /// Example: `deadline = "120s"`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deadline: Option<Period>,
    /// How many of its turns run at once; a further one waits for its place, within its deadline. At most `100000`.
    ///
    /// Example: `concurrency = 10`
    pub(crate) concurrency: NonZeroU32,
    /// How many of its turns wait for their place; a further one fails as busy and can be tried again. At most `100000`.
    ///
    /// Example: `queue = 100`
    pub(crate) queue: NonZeroU32,
    /// The executor that takes its turns while it is not ready; `none` for none. It takes them again by itself.
    ///
    /// Default: none; `chat-completions` for `plugin-callback` where `MOLECULE_A2A_PLATFORM_ENABLED` picked it
    ///
    /// Example: `fallback = "chat-completions"`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fallback: Option<Fallback>,
    /// What happens to its turns while it is in quarantine, because it crashed again and again: `closed` fails them at once,
    /// `fallback` hands them to the executor in `fallback`, `last-good` goes back to the version before this one.
    ///
    /// Default: `fallback` where one is named, else `closed`
    ///
    /// Example: `fail_mode = "last-good"`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fail_mode: Option<FailMode>,
    /// What the component itself is told; it says what it understands. Built in: `base_url`, `model` and `system_prompt`
    /// for `chat-completions`, `hermes-runs` and `hermes`, `history` for `chat-completions` and `hermes`, and `tools` for
    /// `hermes`; `inbound_url`, `health_url`, `chat_id`, `workspace_id` and `reply_timeout_seconds` for `plugin-callback`.
    /// `HERMES_API_BASE` overrides `base_url` of `executor.chat-completions` and `executor.hermes-runs`, `OPENAI_BASE_URL`
    /// that of `executor.hermes`, `MOLECULE_A2A_PLATFORM_HOST` and `_PORT` override `inbound_url` of
    /// `executor.plugin-callback`.
    ///
    /// Example: `settings = { base_url = "http://127.0.0.1:8642/v1", model = "hermes-agent" }`
    #[serde(deserialize_with = "settings")]
    pub(crate) settings: Map<String, Value>,
    /// What the component may do.
    pub(crate) grant: GrantSection,
}

/// What happens to the turns of an executor that is in quarantine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FailMode {
    /// They fail at once.
    Closed,
    /// The fallback takes them.
    Fallback,
    /// The version before takes them.
    LastGood,
}

/// An executor, ready to be loaded.
#[derive(Debug, Clone)]
pub(crate) struct Executor {
    /// Its name.
    pub(crate) name: ExecutorName,
    /// Its component; a path is usable as it is.
    pub(crate) component: ComponentRef,
    /// How long a turn may take.
    pub(crate) deadline: Duration,
    /// How many of its turns run at once.
    pub(crate) concurrency: NonZeroU32,
    /// How many of its turns wait for their place.
    pub(crate) queue: NonZeroU32,
    /// What takes its turns while it is not ready.
    pub(crate) fallback: Option<ExecutorName>,
    /// What happens to its turns while it is in quarantine.
    pub(crate) fail_mode: FailMode,
    /// What the component is told, as the contract's JSON.
    pub(crate) settings: Map<String, Value>,
    /// What it may do.
    pub(crate) grant: Grant,
}

/// What an executor's configuration is read against.
pub(crate) struct Surroundings<'a> {
    /// The environment, for secrets.
    pub(crate) env: Env<'a>,
    /// Where relative paths start.
    pub(crate) folder: &'a Path,
    /// The variables of the seeds.
    pub(crate) seeds: &'a Seeds,
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

/// A free table, as JSON. What JSON does not have is refused (not-a-number) or becomes text (dates).
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
        toml::Value::Float(_) => return Err("no number that JSON has; a component is given JSON".into()),
        toml::Value::Boolean(flag) => Value::Bool(flag),
        toml::Value::Datetime(date) => Value::String(date.to_string()),
        toml::Value::Array(values) => Value::Array(values.into_iter().map(json).collect::<Result<_, _>>()?),
        toml::Value::Table(table) => Value::Object(members(table)?),
    })
}

// === impl Executor ===

impl Executor {
    /// Makes an executor of its section. `dropped` is its component in the folder of executors. Keys in problems start
    /// below the section.
    pub(crate) fn resolve(
        name: ExecutorName,
        section: ExecutorSection,
        dropped: Option<PathBuf>,
        around: &Surroundings<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<Self, Problem> {
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
        let component = match (component, dropped) {
            (Some(ComponentRef::File(path)), _) => ComponentRef::File(around.folder.join(path)),
            (Some(builtin), _) => builtin,
            (None, Some(path)) => ComponentRef::File(path),
            (None, None) if BUILTIN.contains(&name.as_str()) => {
                ComponentRef::Builtin(name.as_str().to_owned())
            }
            (None, None) => {
                let what = format!(
                    "not given; give a path, `builtin:NAME` or `oci://…@sha256:…`, or put `{name}.wasm` into `executors.dir`"
                );
                return Err(problem("component", what));
            }
        };
        // The environment goes before the file, also for a component of the operator's own under that name.
        if let Some(base) = Upstream::named(name.as_str()).and_then(|upstream| (upstream.from)(around.seeds))
        {
            settings.insert("base_url".into(), base.as_str().into());
        }
        let upstream = Upstream::of(&component);
        let is_plugin = matches!(&component, ComponentRef::Builtin(known) if known == PLUGIN_CALLBACK);
        let implied = match upstream {
            Some(upstream) => {
                let base = upstream.base_url(&settings)?;
                settings.insert("base_url".into(), base.as_str().into());
                upstream.implied(&base)?
            }
            None if is_plugin => plugin::settle(&name, &mut settings, around.seeds)?,
            None => Vec::new(),
        };
        let fallback = match fallback {
            Some(Fallback::To(other)) if other == name => {
                return Err(problem("fallback", "itself; name another executor, or `none`"));
            }
            Some(Fallback::To(other)) => Some(other),
            Some(Fallback::None) => None,
            None => (around.seeds.plugin && name.as_str() == PLUGIN_CALLBACK)
                .then(|| ExecutorName::builtin(CHAT_COMPLETIONS)),
        };
        let fail_mode = match fail_mode {
            Some(FailMode::Fallback) if fallback.is_none() => {
                return Err(problem("fail_mode", "there is no fallback; name one with `fallback`"));
            }
            Some(fail_mode) => fail_mode,
            None if fallback.is_some() => FailMode::Fallback,
            None => FailMode::Closed,
        };
        let deadline = match deadline {
            Some(deadline) => deadline.get(),
            None if is_plugin => plugin::DEADLINE,
            None => grant::TURN,
        };
        grant::at_most("deadline", Period::of(deadline), grant::DEADLINE)?;
        grant::at_most("concurrency", concurrency.get(), grant::TURNS)?;
        grant::at_most("queue", queue.get(), grant::TURNS)?;
        let key = upstream.map(|upstream| upstream.key).or(is_plugin.then_some(plugin::SHARED_SECRET));
        let by_default = Vec::from_iter(key.map(|key| SecretGrant { name: key.into(), to: Vec::new() }));
        let written = grant.secrets.clone();
        let builtin = matches!(component, ComponentRef::Builtin(_));
        let implied = Implied { egress: implied, builtin, callbacks: is_plugin };
        let mut grant = grant.settle(implied, around.folder)?;
        let mut secrets = Secrets::new();
        for (index, wanted) in written.as_ref().unwrap_or(&by_default).iter().enumerate() {
            let key = format!("grant.secrets[{index}]");
            let destinations = destinations(wanted, &grant.egress).map_err(|what| problem(&key, what))?;
            let value = secret::by_name(&wanted.name, &around.env).map_err(|what| problem(&key, what))?;
            if value.is_none() && written.is_some() {
                let name = format!("{}, which executor.{name} is granted,", wanted.name);
                warnings.push(format!(
                    "{name} is not set; set it, or {}_FILE to the path of its file",
                    wanted.name
                ));
            }
            secrets
                .insert(&wanted.name, value.unwrap_or_default(), destinations)
                .map_err(|error| problem(&key, error.to_string()))?;
        }
        grant.secrets = secrets;
        Ok(Self { name, component, deadline, concurrency, queue, fallback, fail_mode, settings, grant })
    }

    /// Points a `chat-completions` executor at a gateway, with the grant that this implies.
    pub(crate) fn point_at(&mut self, base: &HttpUrl, key: SecretString) -> Result<(), Problem> {
        let Some(upstream) = Upstream::of(&self.component) else { return Ok(()) };
        let egress = upstream.implied(base)?;
        let mut secrets = Secrets::new();
        secrets
            .insert(upstream.key, key, egress.clone())
            .map_err(|error| problem("grant.secrets", error.to_string()))?;
        self.settings.insert("base_url".into(), base.as_str().into());
        self.grant = self.grant.pointed_at(egress, secrets);
        Ok(())
    }
}

fn problem(key: &str, what: impl Into<String>) -> Problem {
    Problem { key: key.to_owned(), what: what.into() }
}

// === impl Upstream ===

impl Upstream {
    fn of(component: &ComponentRef) -> Option<&'static Self> {
        let ComponentRef::Builtin(name) = component else { return None };
        Self::named(name)
    }

    fn named(name: &str) -> Option<&'static Self> {
        UPSTREAMS.iter().find(|upstream| upstream.name == name)
    }

    /// The upstream's address, without a trailing slash.
    fn base_url(&self, settings: &Map<String, Value>) -> Result<HttpUrl, Problem> {
        let written = match settings.get("base_url") {
            Some(Value::String(text)) => text,
            Some(_) => return Err(problem("settings.base_url", "not a string; write it in quotes")),
            None => self.base,
        };
        written.parse().map_err(|what: String| problem("settings.base_url", what))
    }

    /// The calls that the component makes to an upstream there.
    fn implied(&self, base: &HttpUrl) -> Result<Vec<Pattern>, Problem> {
        let settings = Map::from_iter([("base_url".to_owned(), base.as_str().into())]);
        let pattern = |call: &&str| {
            let call = talaria_engine::fill_in(call, &settings).map_err(|error| error.to_string())?;
            let parsed = call.parse().map_err(|error: talaria_egress::InvalidPattern| error.problem);
            parsed.map_err(|what| format!("`{base}` cannot be called: {what}"))
        };
        let patterns = self.calls.iter().map(pattern);
        patterns.collect::<Result<_, String>>().map_err(|what| problem("settings.base_url", what))
    }
}

/// Where a secret may go: where the grant says, else wherever the executor may call.
fn destinations(wanted: &SecretGrant, egress: &[Pattern]) -> Result<Vec<Pattern>, String> {
    if wanted.to.is_empty() {
        return Ok(egress.to_vec());
    }
    let pattern = |to: &String| match to.contains(' ') {
        true => to.parse(),
        false => format!("* {to}").parse(),
    };
    let patterns = wanted.to.iter().map(pattern);
    patterns.collect::<Result<_, talaria_egress::InvalidPattern>>().map_err(|error| error.to_string())
}
