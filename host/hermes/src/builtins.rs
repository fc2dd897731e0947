//! The components that ship with the host, and the settings and secrets that the environment gives each of them.
//!
//! | component | upstream, unless its settings name another | key |
//! |---|---|---|
//! | `chat-completions`, `hermes-runs` | the gateway of a workspace, or `HERMES_API_BASE` | `API_SERVER_KEY` |
//! | `hermes` | OpenRouter, or `OPENAI_BASE_URL` | `OPENAI_API_KEY` |
//! | `plugin-callback` | the plugin of the gateway, see `plugin` | `MOLECULE_A2A_PLATFORM_SHARED_SECRET` |
//! | `a2a` | an agent that speaks A2A, which its settings name | `A2A_TOKEN` |
//! | `conformance` | none | none |

use std::sync::Arc;

use secrecy::SecretString;
use serde_json::{Map, Value};
use talaria_config::{HttpUrl, Problem};
use talaria_executors::{Builtin, Builtins, Executor, ExecutorName, Preset};

use crate::env::BridgeEnv;
use crate::gateway::KEY;
use crate::plugin::{self, PLUGIN_CALLBACK};

/// The default executor.
pub const CHAT_COMPLETIONS: &str = "chat-completions";

/// The address of the gateway in a workspace.
const GATEWAY: &str = "http://127.0.0.1:8642/v1";

macro_rules! component {
    ($name:literal) => {
        include_bytes!(concat!("../../../guests/dist/", $name, ".wasm"))
    };
}

/// The built-in components, with the upstreams that the environment names.
pub fn builtins(env: &BridgeEnv) -> Builtins {
    let gateway = env.api_base.as_ref();
    Builtins::new(vec![
        Builtin { name: "a2a", wasm: component!("a2a"), is_always_loaded: false, preset: agent() },
        Builtin {
            name: CHAT_COMPLETIONS,
            wasm: component!("chat-completions"),
            is_always_loaded: true,
            preset: upstream(GATEWAY, gateway, KEY),
        },
        Builtin {
            name: "conformance",
            wasm: component!("conformance"),
            is_always_loaded: true,
            preset: Preset::default(),
        },
        Builtin {
            name: "hermes",
            wasm: component!("hermes"),
            is_always_loaded: false,
            preset: upstream("https://openrouter.ai/api/v1", env.openai_base.as_ref(), "OPENAI_API_KEY"),
        },
        Builtin {
            name: "hermes-runs",
            wasm: component!("hermes-runs"),
            is_always_loaded: false,
            preset: upstream(GATEWAY, gateway, KEY),
        },
        Builtin {
            name: PLUGIN_CALLBACK,
            wasm: component!("plugin-callback"),
            is_always_loaded: false,
            preset: plugin::preset(env),
        },
    ])
}

/// Points an executor at another gateway, if its component is `chat-completions`.
///
/// # Errors
/// If the address cannot be called.
pub fn point_at(executor: &mut Executor, base: &HttpUrl, key: SecretString) -> Result<(), Problem> {
    match executor.component.is_builtin(CHAT_COMPLETIONS) {
        true => executor.point_at(base, KEY, key),
        false => Ok(()),
    }
}

/// The preset of the component whose upstream is an agent that only its settings can name.
fn agent() -> Preset {
    Preset {
        settle: Some(Arc::new(|_: &ExecutorName, settings: &mut Map<String, Value>| {
            for name in ["url", "interface_url"] {
                let problem = |what: String| Problem { key: format!("settings.{name}"), what };
                match settings.get(name) {
                    Some(Value::String(text)) if name == "interface_url" && text.is_empty() => {}
                    Some(Value::String(text)) => {
                        let url: HttpUrl = text.parse().map_err(problem)?;
                        // Which path is called there is for the agent's card to say.
                        let below = url.as_str().split(['?', '#']).next().unwrap_or_default();
                        plugin::callable_below(below).map_err(problem)?;
                    }
                    Some(_) => return Err(problem("not a string; write it in quotes".into())),
                    None if name == "url" => {
                        return Err(problem(
                            "missing; name the agent, like \"http://127.0.0.1:9900\"".into(),
                        ));
                    }
                    None => {}
                }
            }
            settings.entry("token").or_insert_with(|| "A2A_TOKEN".into());
            Ok(())
        })),
        // Agents with tokens of their own need secrets of their own.
        secrets: vec!["{setting:token}".to_owned()],
        ..Preset::default()
    }
}

/// The preset of a component whose upstream is at `base_url`: the environment's, or `default`.
fn upstream(default: &'static str, environment: Option<&HttpUrl>, key: &str) -> Preset {
    let overrides = environment.map(|base| ("base_url".to_owned(), Value::from(base.as_str())));
    Preset {
        overrides: overrides.into_iter().collect(),
        settle: Some(Arc::new(move |_: &ExecutorName, settings: &mut Map<String, Value>| {
            let problem = |what: String| Problem { key: "settings.base_url".into(), what };
            let base: HttpUrl = match settings.get("base_url") {
                Some(Value::String(text)) => text.parse().map_err(problem)?,
                Some(_) => return Err(problem("not a string; write it in quotes".into())),
                None => default.parse().map_err(problem)?,
            };
            plugin::callable(&base).map_err(problem)?;
            settings.insert("base_url".into(), base.as_str().into());
            Ok(())
        })),
        secrets: vec![key.to_owned()],
        ..Preset::default()
    }
}
