//! `[gateway]`: the gateway that this process starts and keeps running.
//!
//! The rest of the configuration needs the gateway's key and the secret of its plugin, so these are settled first
//! ([`Prepared`]): those of the environment, else those in the gateway's home, else new ones.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use talaria_config::{ConfigError, Env, Period, Problem, secret};

use super::home::shared_secret_in;
use super::{Config, FORWARDED, Home, HostSecrets, Launch, Passed, Plugin, Settings, User};
use crate::env::BridgeEnv;
use crate::plugin::SHARED_SECRET;

/// `[gateway]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
#[schemars(rename = "gateway")]
pub struct Section {
    /// The program that is the gateway and its arguments, separated by spaces. It must stay in the foreground.
    ///
    /// Example: `command = "/home/agent/.local/bin/hermes gateway run"`
    pub command: String,
    /// Its home, where its `.env` and its `config.yaml` are made to say what the bridge needs.
    ///
    /// Default: `HERMES_HOME`, else `.hermes` in the home of `gateway.user`, else `~/.hermes`
    ///
    /// Example: `home = "/home/agent/.hermes"`
    pub home: Option<PathBuf>,
    /// The user that it runs as. Needs root.
    ///
    /// Default: the user that this process runs as
    ///
    /// Example: `user = "agent"`
    pub user: Option<String>,
    /// The port of its API server, on loopback.
    ///
    /// Example: `port = 8742`
    pub port: u16,
    /// How long its health is awaited when it starts. After that the bridge serves without it, and goes on trying.
    ///
    /// Example: `wait = "30s"`
    pub wait: Period,
    /// The file for its output.
    ///
    /// Default: `gateway.log` in its home
    ///
    /// Example: `log = "/var/log/hermes-gateway.log"`
    pub log: Option<PathBuf>,
    /// The variables of this process's environment that the gateway gets besides those that every gateway gets (see
    /// [workspace.md](workspace.md#the-gateway)). A `*` at the end stands for any ending. A variable that this file names as a
    /// secret is never passed on.
    ///
    /// Example: `env = ["EXA_API_KEY", "FIRECRAWL_*"]`
    pub env: Vec<String>,
}

/// The variable that holds the gateway's key.
pub const KEY: &str = "API_SERVER_KEY";

/// The shortest key that the gateway accepts.
pub(crate) const SHORTEST_KEY: usize = 16;

/// What must be known of the gateway before the rest of the configuration is read.
pub struct Prepared {
    home: PathBuf,
    user: Option<User>,
    /// Its key.
    pub key: SecretString,
    /// The secret that its plugin and this host share, if the plugin is used.
    pub shared_secret: Option<SecretString>,
}

// === impl Section ===

impl Default for Section {
    fn default() -> Self {
        Self {
            command: "hermes gateway run".into(),
            home: None,
            user: None,
            port: 8642,
            wait: Period::secs(120),
            log: None,
            env: Vec::new(),
        }
    }
}

// === impl Prepared ===

impl Prepared {
    /// Reads user, home, key and, if the plugin is used, the secret that it shares. Relative paths start at `folder`.
    ///
    /// # Errors
    /// For a key of the section that cannot be used.
    pub fn read(
        section: &Section,
        folder: &Path,
        bridge: &BridgeEnv,
        env: &Env<'_>,
    ) -> Result<Self, ConfigError> {
        let user = section.user.as_deref().map(User::named).transpose();
        let user = user.map_err(|what| ConfigError::key("gateway.user", what))?;
        if section.command.split_whitespace().next().is_none() {
            return Err(ConfigError::key(
                "gateway.command",
                "empty; write `hermes gateway run`, or leave `[gateway]` out",
            ));
        }
        let home = home(section.home.as_deref(), user.as_ref(), folder, env).ok_or_else(|| {
            ConfigError::key("gateway.home", "neither HERMES_HOME nor HOME is set; name the folder")
        })?;
        let given = secret::by_name(KEY, env).map_err(|what| ConfigError::variable(KEY, what))?;
        let files = Home::new(&home, user.as_ref());
        let key = given.or_else(|| files.key()).unwrap_or_else(random);
        let shared_secret = match bridge.plugin {
            true => {
                let given = secret::by_name(SHARED_SECRET, env);
                let given = given.map_err(|what| ConfigError::variable(SHARED_SECRET, what))?;
                Some(given.or_else(|| shared_secret_in(&files)).unwrap_or_else(random))
            }
            false => None,
        };
        Ok(Self { home, user, key, shared_secret })
    }

    /// Completes the configuration. `callback_url` is the address that the plugin posts its answers to, if there is a callback
    /// listener, `model` is the workspace's, and `secrets` are those that the gateway must not have.
    ///
    /// # Errors
    /// For a key of the section that cannot be used.
    #[expect(clippy::too_many_arguments, reason = "each is read by another part of the configuration")]
    pub fn finish(
        self,
        section: &Section,
        bridge: &BridgeEnv,
        callback_url: Option<String>,
        model: Option<String>,
        secrets: HostSecrets,
        env: &Env<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<Config, Problem> {
        let passed = Passed::read(&section.env, secrets)?;
        if self.key.expose_secret().len() < SHORTEST_KEY {
            warnings.push(format!(
                "{KEY} has less than {SHORTEST_KEY} characters; the gateway does not start with it"
            ));
        }
        let mut variables = Vec::new();
        for name in FORWARDED {
            let Some(value) = env.get(name) else { continue };
            match passed.withheld(name) {
                Some(warning) => warnings.push(warning),
                None => variables.push((name.to_owned(), value.into())),
            }
        }
        let at = bridge.plugin_at.as_deref().unwrap_or("127.0.0.1:8645");
        let (host, port) = at.rsplit_once(':').unwrap_or((at, "8645"));
        let plugin = callback_url.filter(|_| bridge.plugin).map(|callback_url| Plugin {
            host: host.to_owned(),
            port: port.parse().unwrap_or(8645),
            callback_url,
            secret: self.shared_secret.clone(),
        });
        Ok(Config {
            launch: Launch {
                command: section.command.split_whitespace().map(str::to_owned).collect(),
                log: section.log.clone().unwrap_or_else(|| self.home.join("gateway.log")),
                home: self.home,
                user: self.user,
                env: passed,
            },
            settings: Settings {
                port: section.port,
                key: self.key,
                variables,
                model: env.get("HERMES_DEFAULT_MODEL").or(model),
                provider: env.get("HERMES_INFERENCE_PROVIDER"),
                plugin,
                tools: None,
            },
            wait: section.wait.get(),
        })
    }
}

/// A secret of more than 240 random bits.
fn random() -> SecretString {
    let random = || uuid::Uuid::new_v4().simple().to_string();
    format!("{}{}", random(), random()).into()
}

/// The gateway's home: the configured one, that of the environment, or the gateway's own default.
pub(crate) fn home(
    written: Option<&Path>,
    user: Option<&User>,
    folder: &Path,
    env: &Env<'_>,
) -> Option<PathBuf> {
    let of_user = || user.map(|user| user.home().join(".hermes"));
    let of_home = || env.get("HOME").map(|home| Path::new(&home).join(".hermes"));
    let found = written.map(|path| folder.join(path)).or_else(|| env.get("HERMES_HOME").map(PathBuf::from));
    let found = found.or_else(of_user).or_else(of_home)?;
    std::path::absolute(found).ok()
}
