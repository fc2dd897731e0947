//! `[gateway]`: the gateway that this process starts and keeps up, where it is told to.
//!
//! Its key is the one thing that the rest of the configuration needs before it can be read, so it is settled first: the
//! environment's, else the one in the gateway's home, else a new one.

use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret as _, SecretString};
use talaria_hermes::gateway::{Config, FORWARDED, Launch, Plugin, Settings, User, key_in};

use super::env::Seeds;
use super::plugin::SHARED_SECRET;
use super::{Callback, Workspace, file};
use talaria_config::{ConfigError, Env, secret};

/// The gateway's key, by the name that the seeds give it.
pub(crate) const KEY: &str = "API_SERVER_KEY";

/// The shortest key that the gateway takes.
pub(crate) const SHORTEST_KEY: usize = 16;

/// What is known of the gateway before the rest.
pub(super) struct Settled {
    home: PathBuf,
    user: Option<User>,
    pub(super) key: SecretString,
}

// === impl Settled ===

impl Settled {
    pub(super) fn read(section: &file::Gateway, folder: &Path, env: &Env<'_>) -> Result<Self, ConfigError> {
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
        let key = given.or_else(|| key_in(&home)).unwrap_or_else(|| {
            // Two of them have more than 240 random bits.
            let random = || uuid::Uuid::new_v4().simple().to_string();
            format!("{}{}", random(), random()).into()
        });
        Ok(Self { home, user, key })
    }

    /// The rest, now that the others are known.
    pub(super) fn finish(
        self,
        section: &file::Gateway,
        seeds: &Seeds,
        callback: Option<&Callback>,
        workspace: Option<&Workspace>,
        env: &Env<'_>,
        warnings: &mut Vec<String>,
    ) -> Config {
        if self.key.expose_secret().len() < SHORTEST_KEY {
            warnings.push(format!(
                "{KEY} has less than {SHORTEST_KEY} characters; the gateway does not start with it"
            ));
        }
        let variables = FORWARDED.iter().filter_map(|name| Some(((*name).to_owned(), env.get(name)?.into())));
        let at = seeds.plugin_at.as_deref().unwrap_or("127.0.0.1:8645");
        let (host, port) = at.rsplit_once(':').unwrap_or((at, "8645"));
        let plugin = callback.filter(|_| seeds.plugin).map(|callback| Plugin {
            host: host.to_owned(),
            port: port.parse().unwrap_or(8645),
            callback_url: callback.reply_url(callback.listen),
            secret: secret::by_name(SHARED_SECRET, env).ok().flatten(),
        });
        let chosen = workspace.and_then(|workspace| workspace.assembly.current().workspace.model.clone());
        Config {
            launch: Launch {
                command: section.command.split_whitespace().map(str::to_owned).collect(),
                log: section.log.clone().unwrap_or_else(|| self.home.join("gateway.log")),
                home: self.home,
                user: self.user,
            },
            settings: Settings {
                port: section.port,
                key: self.key,
                variables: variables.collect(),
                model: env.get("HERMES_DEFAULT_MODEL").or(chosen),
                provider: env.get("HERMES_INFERENCE_PROVIDER"),
                plugin,
            },
            wait: section.wait.get(),
        }
    }
}

/// The gateway's home: as written, as the environment has it, or where the gateway looks by itself.
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
