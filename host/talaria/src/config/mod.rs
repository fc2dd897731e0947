//! The configuration: flags before environment before file before defaults, checked once, before any port opens.
//!
//! [`Config::load`] is the only entry point. It returns a consistent configuration, with warnings about keys that have no
//! effect, or a [`ConfigError`] with the place, the key and the fix; the caller prints it and exits with 64. The main file
//! is not read again. Secrets are read here and kept in [`SecretString`]s. `tokens` reads files with tokens again, and
//! `talaria_executors` reads the executors folder and its secrets again.
//!
//! | file | holds |
//! |---|---|
//! | `file` | the shape of `talaria.toml`, which is also its reference |
//! | `executors` | executors, their folder, and routing rules |
//! | `a2a` | the public server and its callers |
//! | `card` | the agent card |
//! | `callback` | the listener for out-of-band replies, and how upstreams post |
//! | `oci` | `[oci]`: registries of components |
//! | `workspace` | the workspace that is served, if any |
//! | `load` | combines and checks all of them |
//! | `value` | values of single keys |

mod a2a;
mod callback;
mod card;
mod executors;
mod file;
mod load;
mod oci;
mod tools;
mod value;
mod workspace;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use talaria_a2a::{CardSigner, Network, Origin, ReplyAs};
use talaria_hermes::gateway::{KEY, Prepared};
use talaria_hermes::{BridgeEnv, CHAT_COMPLETIONS, point_at};
use talaria_turns::{StreamAs, Workspaces};

pub(crate) use callback::Callback;
pub(crate) use card::Card;
pub(crate) use file::{Limits, OpenPath, Push};
pub(crate) use talaria_config::secret::read as read_secret;
pub(crate) use talaria_config::{ConfigError, Env, HttpUrl, Period, Size, Source};
pub(crate) use talaria_executors::ExecutorName;
pub(crate) use tools::Tools;
pub(crate) use value::StoreUrl;
pub(crate) use workspace::Workspace;

use load::Loader;

/// The caller name of the workspace's platform.
pub(crate) const PLATFORM: &str = "workspace-platform";

/// The file that is read if no file is named and it exists.
const DEFAULT_FILE: &str = "talaria.toml";

/// The flags that override the configuration.
#[derive(Debug, Clone, Default)]
pub(crate) struct Overrides {
    /// `--config`: the file; it must exist.
    pub(crate) file: Option<PathBuf>,
    /// `--listen`.
    pub(crate) listen: Option<SocketAddr>,
    /// `--demo`: the store is in memory unless the file says otherwise.
    pub(crate) demo: bool,
}

/// The whole configuration.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// The file that was read.
    pub(crate) file: Option<PathBuf>,
    /// The public server.
    pub(crate) a2a: A2a,
    /// The admin server.
    pub(crate) admin: Admin,
    /// The workspace that is served, if any.
    pub(crate) workspace: Option<Workspace>,
    /// The gateway that this process supervises, if any.
    pub(crate) gateway: Option<talaria_hermes::gateway::Config>,
    /// The server of the agent's tools, in a workspace.
    pub(crate) tools: Option<Tools>,
    /// Push notifications.
    pub(crate) push: Push,
    /// The callback listener, if an executor may receive callbacks.
    pub(crate) callback: Option<Callback>,
    /// Where tasks are kept.
    pub(crate) store: StoreUrl,
    /// How long a task is kept after it ended.
    pub(crate) keep_for: Duration,
    /// Executors and routing rules.
    pub(crate) executors: talaria_executors::Config,
    /// How much work is accepted at once.
    pub(crate) limits: Limits,
    /// Warnings for the operator, one sentence each: keys without effect, and risky choices.
    pub(crate) warnings: Vec<String>,
}

/// The public server.
#[derive(Debug, Clone)]
pub(crate) struct A2a {
    /// The address to listen on.
    pub(crate) listen: SocketAddr,
    /// The URL on the card, if configured; see [`A2a::public_url`].
    pub(crate) url: Option<HttpUrl>,
    /// The proxies whose forwarding headers are trusted.
    pub(crate) trusted_proxies: Vec<Network>,
    /// The origins that may call from a browser.
    pub(crate) cors: Vec<Origin>,
    /// How a blocking send is answered.
    pub(crate) reply: ReplyAs,
    /// The form of a streamed answer.
    pub(crate) stream: StreamAs,
    /// The largest request body.
    pub(crate) max_body: Size,
    /// The callers with a token; if empty, everybody may call.
    pub(crate) tokens: Vec<Token>,
    /// Whether the workspace's platform is a caller; its token arrives with the registration.
    pub(crate) platform_calls: bool,
    /// The host name of this machine, if known.
    pub(crate) hostname: Option<String>,
    /// The agent card.
    pub(crate) card: Card,
    /// Signs the card, if configured.
    pub(crate) card_signer: Option<CardSigner>,
}

/// The admin server.
#[derive(Debug, Clone)]
pub(crate) struct Admin {
    /// The address to listen on.
    pub(crate) listen: SocketAddr,
    /// Whether the address was configured.
    pub(crate) chosen: bool,
    /// The token for every path that is not open; required beyond loopback.
    pub(crate) token: Option<SecretString>,
    /// The paths that need no token.
    pub(crate) open: Vec<OpenPath>,
}

/// A caller with a token.
#[derive(Debug, Clone)]
pub(crate) struct Token {
    /// Its name.
    pub(crate) name: String,
    /// Its token.
    pub(crate) token: SecretString,
    /// The form of its streams, if not the default.
    pub(crate) stream: Option<StreamAs>,
    /// The file of the token, if it comes from one.
    pub(crate) file: Option<PathBuf>,
}

// === impl Config ===

impl Config {
    /// Reads and checks the whole configuration. `env` looks environment variables up.
    pub(crate) fn load(
        overrides: &Overrides,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        Self::load_in(Path::new(""), overrides, env)
    }

    /// Loads the configuration with another working directory.
    fn load_in(
        directory: &Path,
        overrides: &Overrides,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let mut bridge = BridgeEnv::read(&Env(env))?;
        let source = match &overrides.file {
            Some(path) => {
                let missing =
                    || ConfigError::file(path, "there is no such file; correct `--config`, or leave it out");
                Some(Source::read(&directory.join(path))?.ok_or_else(missing)?)
            }
            None => Source::read(&directory.join(DEFAULT_FILE))?,
        };
        let file: file::File = source.as_ref().map(|source| source.parse()).transpose()?.unwrap_or_default();
        let folder = source.as_ref().map_or(directory, Source::folder).to_owned();
        let gateway =
            file.gateway.as_ref().map(|section| Prepared::read(section, &folder, &Env(env))).transpose()?;
        if let (Some(section), None) = (&file.gateway, &bridge.api_base) {
            bridge.api_base = format!("http://127.0.0.1:{}/v1", section.port).parse().ok();
        }
        // Executors get the key that the gateway will have.
        let key = gateway.as_ref().map(|gateway| gateway.key.clone());
        let keyed = |name: &str| match &key {
            Some(key) if name == KEY => Some(key.expose_secret().to_owned()),
            _ => env(name),
        };
        let loader = Loader { source, folder, env: Env(&keyed), warnings: bridge.warnings.clone() };
        loader.load(file, gateway, &bridge, overrides)
    }

    /// The environment as executors see it, with the key of a supervised gateway, which may be in no variable.
    pub(crate) fn variables(&self, env: fn(&str) -> Option<String>) -> talaria_executors::Variables {
        let key = self.gateway.as_ref().map(|gateway| gateway.settings.key.clone());
        Arc::new(move |name| match &key {
            Some(key) if name == KEY => Some(key.expose_secret().to_owned()),
            _ => env(name),
        })
    }

    /// The workspace, for executors.
    pub(crate) fn workspaces(&self) -> Option<Arc<dyn Workspaces>> {
        let workspace = self.workspace.as_ref()?;
        Some(Arc::clone(&workspace.assembly) as _)
    }

    /// Whether this is a smoke test of the image: nothing is called, and no gateway is started.
    pub(crate) fn is_smoke(&self) -> bool {
        self.workspace.as_ref().is_some_and(|workspace| workspace.smoke)
    }

    /// Points `chat-completions` at another gateway, for `--demo`.
    pub(crate) fn use_gateway(&mut self, base_url: &str, key: SecretString) -> Result<(), ConfigError> {
        let base: HttpUrl = base_url.parse().map_err(|what: String| ConfigError::flag("--demo", what))?;
        match self.executors.fixed.get_mut(&ExecutorName::builtin(CHAT_COMPLETIONS)) {
            Some(executor) => point_at(executor, &base, key).map_err(ConfigError::from),
            None => Ok(()),
        }
    }
}

// === impl A2a ===

impl A2a {
    /// The URL on the card, given the bound address.
    pub(crate) fn public_url(&self, bound: SocketAddr) -> String {
        match &self.url {
            Some(url) => url.to_string(),
            None => match &self.hostname {
                Some(name) if bound.ip().is_unspecified() => format!("http://{name}:{}", bound.port()),
                _ => format!("http://{}", callable(bound)),
            },
        }
    }
}

/// The default folder for compiled components.
pub(crate) fn cache_dir(env: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    // Relative values are ignored, as the XDG base directory specification asks.
    let absolute = |name: &str| Env(env).get(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
    Some(base.join("talaria"))
}

/// The address to call for a bound address: loopback, if all addresses are bound.
fn callable(bound: SocketAddr) -> SocketAddr {
    let ip = match bound.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, bound.port())
}

#[cfg(test)]
mod tests;
