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
//! | `egress` | `[egress]`: proxies and certificates of outbound calls |
//! | `oci` | `[oci]`: registries of components |
//! | `shares` | how much each caller may take |
//! | `shown` | the configuration in effect, without secrets |
//! | `telemetry` | traces |
//! | `tools` | the agent's tools, and servers of tools for executors |
//! | `workspace` | the workspace that is served, if any |
//! | `host_secrets` | the variables that the gateway must not get |
//! | `load` | combines and checks all of them |
//! | `value` | values of single keys |

mod a2a;
mod callback;
mod card;
mod egress;
mod executors;
mod file;
mod host_secrets;
mod load;
mod oci;
mod shares;
mod shown;
mod telemetry;
mod tools;
mod value;
mod workspace;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use talaria_a2a::{CardSigner, GrpcAddress, Network, Origin, ReplyAs};
use talaria_budget::{Budget, Machine};
use talaria_hermes::gateway::{KEY, Prepared};
use talaria_hermes::{BridgeEnv, CHAT_COMPLETIONS, SHARED_SECRET, point_at};
use talaria_store::SqliteConfig;
use talaria_turns::{StreamAs, Workspaces};

pub(crate) use callback::Callback;
pub(crate) use card::Card;
pub(crate) use file::{CallerLimits, Limits, OpenPath, Push};
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

/// What a connection holds at most before its request is charged: the largest head, and the state of the connection.
const CONNECTION: u64 = 72 << 10;

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
    /// The servers whose tools executors may be granted.
    pub(crate) tool_servers: Vec<talaria_mcp::RemoteConfig>,
    /// Push notifications.
    pub(crate) push: Push,
    /// The callback listener, if an executor may receive callbacks.
    pub(crate) callback: Option<Callback>,
    /// Where tasks are kept.
    pub(crate) store: StoreUrl,
    /// How long a task is kept after it ended.
    pub(crate) keep_for: Duration,
    /// `MOLECULE_RUNTIME_PREPARE_ONLY`: only files are written, and nothing is served.
    pub(crate) prepare_only: bool,
    /// How outbound calls leave this host.
    pub(crate) egress: talaria_egress::Config,
    /// Where traces are sent; `None` if they are off.
    pub(crate) telemetry: Option<talaria_telemetry::Config>,
    /// The largest size of the store.
    pub(crate) max_size: Size,
    /// The free space on its disk, if configured.
    pub(crate) min_free: Option<Size>,
    /// Executors and routing rules.
    pub(crate) executors: talaria_executors::Config,
    /// How much work is accepted at once.
    pub(crate) limits: Limits,
    /// The memory that this process may use.
    pub(crate) memory: Memory,
    /// Warnings for the operator, one sentence each: keys without effect, and risky choices.
    pub(crate) warnings: Vec<String>,
    /// The file with its defaults, for the operator.
    pub(crate) written: serde_json::Value,
}

/// The memory that this process may use, and how it is divided.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    /// All of it, in bytes.
    pub(crate) whole: u64,
    /// Whether it was configured.
    pub(crate) chosen: bool,
    /// The part for what callers make the host hold.
    pub(crate) budget: Budget,
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
    /// The port for gRPC alone, if there is one.
    pub(crate) grpc_listen: Option<SocketAddr>,
    /// What the card says about gRPC.
    pub(crate) grpc: GrpcAddress,
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
    /// How much it may take, where that is not `limits.caller`.
    pub(crate) limits: CallerLimits,
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
        // A gateway's plugin gets the secret that the callback listener asks for.
        let callback = file.callback.as_ref().filter(|callback| callback.plain.is_none());
        let asked = callback.and_then(|callback| callback.secret.as_ref()?.resolve(&folder, &Env(env)).ok());
        let shared = |name: &str| match &asked {
            Some(asked) if name == SHARED_SECRET => Some(asked.expose_secret().to_owned()),
            _ => env(name),
        };
        let prepare = |section| Prepared::read(section, &folder, &bridge, &Env(&shared));
        let gateway = file.gateway.as_ref().map(prepare).transpose()?;
        if let (Some(section), None) = (&file.gateway, &bridge.api_base) {
            bridge.api_base = format!("http://127.0.0.1:{}/v1", section.port).parse().ok();
        }
        // Executors get the key and the secret that the gateway will have.
        let key = gateway.as_ref().map(|gateway| gateway.key.clone());
        let shared_secret = gateway.as_ref().and_then(|gateway| gateway.shared_secret.clone());
        let keyed = |name: &str| of_gateway(name, &key, &shared_secret).or_else(|| env(name));
        let loader = Loader { source, folder, env: Env(&keyed), warnings: bridge.warnings.clone() };
        loader.load(file, gateway, &bridge, overrides)
    }

    /// The environment as executors see it, with the key and the secret of a supervised gateway, which may be in no variable.
    pub(crate) fn variables(&self, env: fn(&str) -> Option<String>) -> talaria_executors::Variables {
        let settings = self.gateway.as_ref().map(|gateway| &gateway.settings);
        let key = settings.map(|settings| settings.key.clone());
        let shared_secret = settings.and_then(|settings| settings.plugin.as_ref()?.secret.clone());
        Arc::new(move |name| of_gateway(name, &key, &shared_secret).or_else(|| env(name)))
    }

    /// The workspace, for executors.
    pub(crate) fn workspaces(&self) -> Option<Arc<dyn Workspaces>> {
        let workspace = self.workspace.as_ref()?;
        Some(Arc::clone(&workspace.assembly) as _)
    }

    /// How full a store in a file may be.
    pub(crate) fn sqlite(&self) -> SqliteConfig {
        SqliteConfig {
            max_bytes: Some(self.max_size.bytes()),
            min_free: self.min_free.map(Size::bytes),
            ..SqliteConfig::default()
        }
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

// === impl Memory ===

impl Memory {
    /// Divides the configured memory, or what the machine has. Half is for the budget. The other half is for the process
    /// itself (40 MiB), connections (see [`Memory::connections`]), the store's caches, what is charged a moment late, and
    /// what the allocator does not give back at once.
    pub(crate) fn new(configured: Option<Size>) -> Self {
        let whole = configured.map_or_else(|| Machine::default().memory(), Size::bytes);
        let budget = Budget::new(usize::try_from(whole / 2).unwrap_or(usize::MAX));
        Self { whole, chosen: configured.is_some(), budget }
    }

    /// The connections of callers: as many as an eighth of the memory holds if each sends a head of the largest size.
    pub(crate) fn connections(&self) -> usize {
        usize::try_from(self.whole / 8 / CONNECTION).unwrap_or(usize::MAX)
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

/// A variable that a supervised gateway settles.
fn of_gateway(
    name: &str,
    key: &Option<SecretString>,
    shared_secret: &Option<SecretString>,
) -> Option<String> {
    let value = match name {
        KEY => key,
        SHARED_SECRET => shared_secret,
        _ => return None,
    };
    value.as_ref().map(|value| value.expose_secret().to_owned())
}

/// The default folder for compiled components.
pub(crate) fn cache_dir(env: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    // Relative values are ignored, as the XDG base directory specification asks.
    let absolute = |name: &str| Env(env).get(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
    Some(base.join("talaria"))
}

/// The address to call for a bound address: loopback, if all addresses are bound.
pub(crate) fn callable(bound: SocketAddr) -> SocketAddr {
    let ip = match bound.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, bound.port())
}

#[cfg(test)]
mod tests;
