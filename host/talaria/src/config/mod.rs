//! Configuration: flags before environment before file before defaults, checked once, before any port opens.
//!
//! [`Config::load`] is the only way in. It either gives a configuration that fits together, with warnings for what has
//! no effect, or a [`ConfigError`] that names the place, the key and the fix; the caller prints it and exits with 64.
//! Nothing later reads the main file again. Secrets are read here and live in [`SecretString`]s. The files of tokens are
//! read again by `tokens`, and the folder of executors, with the secrets that they are granted, by `executors`.
//!
//! | file | holds |
//! |---|---|
//! | `file` | the shape of `talaria.toml`, which is also its reference |
//! | `executors` | executors, their folder, and the rules |
//! | `a2a` | the public server, who may call it |
//! | `card` | what the agent card says |
//! | `callback` | the listener for out-of-band replies, and how upstreams post |
//! | `oci` | `[oci]`: the registries that components come from |
//! | `workspace` | the workspace that is served, where there is one |
//! | `load` | putting these together |
//! | `value` | what single values mean |

mod a2a;
mod callback;
mod card;
mod executors;
mod file;
mod load;
mod oci;
mod value;
mod workspace;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use talaria_a2a::{CardSigner, Network, Origin};
use talaria_hermes::gateway::{KEY, Prepared};
use talaria_hermes::{BridgeEnv, CHAT_COMPLETIONS, point_at};
use talaria_turns::Workspaces;

pub(crate) use callback::Callback;
pub(crate) use card::Card;
pub(crate) use file::{Limits, Push, Reply, Stream};
pub(crate) use talaria_config::secret::{by_name as secret_by_name, read as read_secret};
pub(crate) use talaria_config::{ConfigError, Env, HttpUrl, Period, Size, Source};
pub(crate) use talaria_executors::ExecutorName;
pub(crate) use value::StoreUrl;
pub(crate) use workspace::Workspace;

use load::Loader;

/// The name of the caller that the workspace's platform is.
pub(crate) const PLATFORM: &str = "workspace-platform";

/// The file that is read when none is named, if it is there.
const DEFAULT_FILE: &str = "talaria.toml";

/// What the command line adds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Overrides {
    /// `--config`: the file; it must exist.
    pub(crate) file: Option<PathBuf>,
    /// `--listen`.
    pub(crate) listen: Option<SocketAddr>,
    /// `--demo`: nothing is left behind unless the file says so.
    pub(crate) demo: bool,
}

/// Everything that the product is told.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// The file that was read.
    pub(crate) file: Option<PathBuf>,
    /// The public server.
    pub(crate) a2a: A2a,
    /// The operator's server.
    pub(crate) admin: Admin,
    /// The workspace that is served, if there is one.
    pub(crate) workspace: Option<Workspace>,
    /// The gateway that is started and kept up, if one is.
    pub(crate) gateway: Option<talaria_hermes::gateway::Config>,
    /// Push notifications.
    pub(crate) push: Push,
    /// The callback listener, if there is to be one.
    pub(crate) callback: Option<Callback>,
    /// Where tasks are kept.
    pub(crate) store: StoreUrl,
    /// How long a task is kept after it ended.
    pub(crate) keep_for: Duration,
    /// Executors, and which of them takes which messages.
    pub(crate) executors: talaria_executors::Config,
    /// How much is taken on at once.
    pub(crate) limits: Limits,
    /// What was said without effect, or with an effect that should be known. For the operator, one sentence each.
    pub(crate) warnings: Vec<String>,
}

/// The public server.
#[derive(Debug, Clone)]
pub(crate) struct A2a {
    /// The address to listen on.
    pub(crate) listen: SocketAddr,
    /// What the card says, if it was said; see [`A2a::public_url`].
    pub(crate) url: Option<HttpUrl>,
    /// Who may say where others sent their requests.
    pub(crate) trusted_proxies: Vec<Network>,
    /// The origins whose pages may call.
    pub(crate) cors: Vec<Origin>,
    /// What a blocking send is answered with.
    pub(crate) reply: Reply,
    /// How an answer that comes in pieces is told.
    pub(crate) stream: Stream,
    /// The largest request body.
    pub(crate) max_body: Size,
    /// The callers with a token; none means that everybody may call.
    pub(crate) tokens: Vec<Token>,
    /// Whether the platform of the workspace is a caller with a token, which comes when it is registered with.
    pub(crate) platform_calls: bool,
    /// The name that others call this machine by, where that is known.
    pub(crate) hostname: Option<String>,
    /// What the agent card says.
    pub(crate) card: Card,
    /// Signs it, where that is wanted.
    pub(crate) card_signer: Option<CardSigner>,
}

/// The operator's server.
#[derive(Debug, Clone)]
pub(crate) struct Admin {
    /// The address to listen on.
    pub(crate) listen: SocketAddr,
    /// Whether the operator chose that address.
    pub(crate) chosen: bool,
    /// What every path but the one for health asks for; always there beyond loopback.
    pub(crate) token: Option<SecretString>,
}

/// A caller.
#[derive(Debug, Clone)]
pub(crate) struct Token {
    /// Who calls.
    pub(crate) name: String,
    /// With what.
    pub(crate) token: SecretString,
    /// How it is told an answer that comes in pieces, where not as everybody.
    pub(crate) stream: Option<Stream>,
    /// The file that it was read from, where it was.
    pub(crate) file: Option<PathBuf>,
}

// === impl Config ===

impl Config {
    /// Reads and checks everything. `env` is the process's environment, or a test's.
    pub(crate) fn load(
        overrides: &Overrides,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        Self::load_in(Path::new(""), overrides, env)
    }

    /// The same, with another working directory.
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
        // Whoever reads the key gets the one that the gateway will have.
        let key = gateway.as_ref().map(|gateway| gateway.key.clone());
        let keyed = |name: &str| match &key {
            Some(key) if name == KEY => Some(key.expose_secret().to_owned()),
            _ => env(name),
        };
        let loader = Loader { source, folder, env: Env(&keyed), warnings: bridge.warnings.clone() };
        loader.load(file, gateway, &bridge, overrides)
    }

    /// Looks a variable up as executors see it: the key of a gateway that this process starts may be in no variable.
    pub(crate) fn variables(
        &self,
        env: fn(&str) -> Option<String>,
    ) -> Arc<dyn Fn(&str) -> Option<String> + Send + Sync> {
        let key = self.gateway.as_ref().map(|gateway| gateway.settings.key.clone());
        Arc::new(move |name| match &key {
            Some(key) if name == KEY => Some(key.expose_secret().to_owned()),
            _ => env(name),
        })
    }

    /// The workspace that is served, as executors see it.
    pub(crate) fn workspaces(&self) -> Option<Arc<dyn Workspaces>> {
        let workspace = self.workspace.as_ref()?;
        Some(Arc::clone(&workspace.assembly) as _)
    }

    /// Whether only the image is tried: nobody is called, and no gateway is started.
    pub(crate) fn is_smoke(&self) -> bool {
        self.workspace.as_ref().is_some_and(|workspace| workspace.smoke)
    }

    /// Points `chat-completions` at a gateway: what `--demo` does with the gateway that it started.
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
    /// The address that the card tells callers to use, given the one that was bound.
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

/// Where compiled components are kept when nothing is said.
pub(crate) fn cache_dir(env: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    // Relative values are ignored, as the XDG base directory specification asks.
    let absolute = |name: &str| Env(env).get(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
    Some(base.join("talaria"))
}

/// An address to call, given the one that was bound: "every address" is none.
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
