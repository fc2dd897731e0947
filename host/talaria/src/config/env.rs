//! The environment, as the seeds' Python bridge read it.
//!
//! A variable that is empty counts as unset, and a bad value is an error that names the variable, with one exception
//! that the seeds make: a switch that says neither yes nor no is no, and a warning says so.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use talaria_config::{ConfigError, Env, HttpUrl};

/// What the seeds' variables say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seeds {
    /// `HERMES_API_BASE`: the gateway behind `chat-completions` and `hermes-runs`.
    pub(crate) api_base: Option<HttpUrl>,
    /// `OPENAI_BASE_URL`: the endpoint behind `hermes`.
    pub(crate) openai_base: Option<HttpUrl>,
    /// `WORKSPACE_ID`: this process runs in a workspace of the platform.
    pub(crate) workspace: Option<String>,
    /// `MOLECULE_A2A_PLATFORM_ENABLED`: `plugin-callback` takes the turns.
    pub(crate) plugin: bool,
    /// `MOLECULE_A2A_PLATFORM_HOST` and `_PORT`: where the plugin is, if one of them is set.
    pub(crate) plugin_at: Option<String>,
    /// `MOLECULE_A2A_CALLBACK_HOST`: where the callback listener is to be.
    pub(crate) callback_host: Option<IpAddr>,
    /// `MOLECULE_A2A_CALLBACK_PORT`: and on which port.
    pub(crate) callback_port: Option<u16>,
    /// What was said without effect.
    pub(crate) warnings: Vec<String>,
}

/// Where the plugin is when the seeds' variables do not say.
const PLUGIN_HOST: &str = "127.0.0.1";
const PLUGIN_PORT: u16 = 8645;

// === impl Seeds ===

impl Seeds {
    /// Reads and checks them all.
    pub(crate) fn read(env: &Env<'_>) -> Result<Self, ConfigError> {
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

    /// Where the callback listener is to be, given what the file says.
    pub(crate) fn callback(&self, file: SocketAddr) -> SocketAddr {
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
        _ => Err(ConfigError::variable(HOST, "no host; give a name or an address, such as `127.0.0.1`")),
    }
}

fn callback_host(env: &Env<'_>) -> Result<Option<IpAddr>, ConfigError> {
    const NAME: &str = "MOLECULE_A2A_CALLBACK_HOST";
    let Some(host) = env.get(NAME) else { return Ok(None) };
    match host.trim() {
        "localhost" => Ok(Some(Ipv4Addr::LOCALHOST.into())),
        host => host.parse().map(Some).map_err(|_| {
            let what = format!("`{host}` is no address to listen on; give one such as `127.0.0.1`");
            ConfigError::variable(NAME, what)
        }),
    }
}
