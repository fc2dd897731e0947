//! The environment, as the seeds' Python bridge read it.
//!
//! A variable that is empty counts as unset, and a bad value is an error that names the variable, with one exception
//! that the seeds make: a switch that says neither yes nor no is no, and a warning says so. Variables whose part of the
//! product does not exist in this version are checked all the same, so that a typing error does not wait for the
//! version that reads them.

use super::source::ConfigError;
use super::value::HttpUrl;

/// Reads variables; the test's map or the process's.
#[derive(Clone, Copy)]
pub(crate) struct Env<'a>(pub(crate) &'a dyn Fn(&str) -> Option<String>);

/// What the seeds' variables say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seeds {
    /// `HERMES_API_BASE`: the gateway behind `chat-completions` and `hermes-runs`.
    pub(crate) api_base: Option<HttpUrl>,
    /// `OPENAI_BASE_URL`: the endpoint behind `hermes`.
    pub(crate) openai_base: Option<HttpUrl>,
    /// `WORKSPACE_ID`: this process runs in a workspace of the platform.
    pub(crate) workspace: Option<String>,
    /// What was said without effect.
    pub(crate) warnings: Vec<String>,
}

/// Read by executors that this version does not ship.
const LATER: [&str; 5] = [
    "MOLECULE_A2A_PLATFORM_HOST",
    "MOLECULE_A2A_PLATFORM_PORT",
    "MOLECULE_A2A_PLATFORM_SHARED_SECRET",
    "MOLECULE_A2A_CALLBACK_HOST",
    "MOLECULE_A2A_CALLBACK_PORT",
];

// === impl Env ===

impl Env<'_> {
    /// The value of a variable, if it is set and not empty.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }
}

// === impl Seeds ===

impl Seeds {
    /// Reads and checks them all.
    pub(crate) fn read(env: &Env<'_>) -> Result<Self, ConfigError> {
        let mut warnings = Vec::new();
        let (api_base, openai_base) = (address(env, "HERMES_API_BASE")?, address(env, "OPENAI_BASE_URL")?);
        if plugin_wanted(env, &mut warnings) {
            warnings.push(
                "MOLECULE_A2A_PLATFORM_ENABLED asks for the executor `plugin-callback`, which this version does not \
                 ship; `chat-completions` is used"
                    .into(),
            );
        }
        let mut unused = Vec::new();
        for name in LATER {
            let Some(value) = env.get(name) else { continue };
            if name.ends_with("_PORT") && !value.trim().parse::<u16>().is_ok_and(|port| port != 0) {
                return Err(ConfigError::variable(
                    name,
                    format!("`{value}` is no port; give a number from 1 to 65535"),
                ));
            }
            unused.push(name);
        }
        match unused.as_slice() {
            [] => {}
            [name] => warnings.push(format!("{name} has no effect in this version")),
            names => warnings.push(format!("{} have no effect in this version", names.join(", "))),
        }
        Ok(Self { api_base, openai_base, workspace: env.get("WORKSPACE_ID"), warnings })
    }
}

fn address(env: &Env<'_>, name: &str) -> Result<Option<HttpUrl>, ConfigError> {
    let address = env.get(name).map(|text| text.trim().parse());
    address.transpose().map_err(|problem: String| ConfigError::variable(name, problem))
}

fn plugin_wanted(env: &Env<'_>, warnings: &mut Vec<String>) -> bool {
    const NAME: &str = "MOLECULE_A2A_PLATFORM_ENABLED";
    let value = env.get(NAME).unwrap_or_default();
    match value.trim().to_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => true,
        "" | "0" | "false" | "no" | "off" => false,
        _ => {
            warnings.push(format!(
                "{NAME} is neither yes (1, true, yes, on) nor no (0, false, no, off); taken as no"
            ));
            false
        }
    }
}
