//! The environment variables of the Python bridge, all honoured.
//!
//! An empty variable counts as unset, and a bad value is an error that names the variable. There is one exception, as in the
//! Python bridge: a switch that says neither yes nor no counts as no, with a warning.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use talaria_config::{ConfigError, Env, HttpUrl};

/// What the variables of the Python bridge say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BridgeEnv {
    /// `HERMES_API_BASE`: the gateway behind `chat-completions` and `hermes-runs`.
    pub api_base: Option<HttpUrl>,
    /// `OPENAI_BASE_URL`: the endpoint behind `hermes`.
    pub openai_base: Option<HttpUrl>,
    /// `WORKSPACE_ID`: this process runs in a workspace of the platform.
    pub workspace: Option<String>,
    /// `MOLECULE_A2A_PLATFORM_ENABLED`: `plugin-callback` is the default executor.
    pub plugin: bool,
    /// `MOLECULE_A2A_PLATFORM_HOST` and `_PORT`: the address of the plugin, if one of them is set.
    pub plugin_at: Option<String>,
    /// `MOLECULE_A2A_CALLBACK_HOST`: the address of the callback listener.
    pub callback_host: Option<IpAddr>,
    /// `MOLECULE_A2A_CALLBACK_PORT`: its port.
    pub callback_port: Option<u16>,
    /// Values that have no effect, one sentence each.
    pub warnings: Vec<String>,
}

/// The address of the plugin if the variables do not name one.
const PLUGIN_HOST: &str = "127.0.0.1";
const PLUGIN_PORT: u16 = 8645;

// === impl BridgeEnv ===

impl BridgeEnv {
    /// Reads and checks all of them.
    ///
    /// # Errors
    /// For a value that cannot be used; it names the variable.
    pub fn read(env: &Env<'_>) -> Result<Self, ConfigError> {
        let mut warnings = Vec::new();
        Ok(Self {
            api_base: env.url("HERMES_API_BASE")?,
            openai_base: env.url("OPENAI_BASE_URL")?,
            workspace: env.get("WORKSPACE_ID"),
            plugin: env.switch("MOLECULE_A2A_PLATFORM_ENABLED", &mut warnings).unwrap_or_default(),
            plugin_at: plugin_at(env)?,
            callback_host: callback_host(env)?,
            callback_port: env.port("MOLECULE_A2A_CALLBACK_PORT")?,
            warnings,
        })
    }

    /// The address of the callback listener, given the one in the file.
    pub fn callback_listen(&self, file: SocketAddr) -> SocketAddr {
        SocketAddr::new(
            self.callback_host.unwrap_or_else(|| file.ip()),
            self.callback_port.unwrap_or_else(|| file.port()),
        )
    }
}

fn plugin_at(env: &Env<'_>) -> Result<Option<String>, ConfigError> {
    const HOST: &str = "MOLECULE_A2A_PLATFORM_HOST";
    let (host, port) = (env.get(HOST), env.port("MOLECULE_A2A_PLATFORM_PORT")?);
    if host.is_none() && port.is_none() {
        return Ok(None);
    }
    let host = host.as_deref().map_or(PLUGIN_HOST, str::trim);
    let host = match host.parse() {
        Ok(IpAddr::V6(ip)) => format!("[{ip}]"),
        _ => host.to_owned(),
    };
    let address = format!("{host}:{}", port.unwrap_or(PLUGIN_PORT));
    match format!("http://{address}").parse::<HttpUrl>() {
        Ok(_) if !host.contains(['/', '?', '#']) => Ok(Some(address)),
        _ => Err(ConfigError::variable(HOST, "not a host; give a name or an address, such as `127.0.0.1`")),
    }
}

fn callback_host(env: &Env<'_>) -> Result<Option<IpAddr>, ConfigError> {
    const NAME: &str = "MOLECULE_A2A_CALLBACK_HOST";
    let Some(host) = env.get(NAME) else { return Ok(None) };
    match host.trim() {
        "localhost" => Ok(Some(Ipv4Addr::LOCALHOST.into())),
        host => host.parse().map(Some).map_err(|_| {
            let what = format!("`{host}` is not an address to listen on; give one such as `127.0.0.1`");
            ConfigError::variable(NAME, what)
        }),
    }
}
