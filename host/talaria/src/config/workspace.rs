//! The workspace that this process serves, if `WORKSPACE_ID` is set.
//!
//! The environment names the workspace and its folder; the folder describes it. A folder that does not exist yet is a
//! warning, because the platform may mount it late; a bad `config.yaml` ends the start, as any other bad configuration
//! does.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use secrecy::SecretString;
use talaria_config::{ConfigError, Env, HttpUrl, secret};
use talaria_workspace::{Assembly, Places, is_id};

/// The default folder.
const FOLDER: &str = "/configs";

/// The folder of plugins that workspaces share.
const SHARED_PLUGINS: &str = "/plugins";

/// The variable of the workspace's token.
pub(super) const TOKEN: &str = "MOLECULE_WORKSPACE_TOKEN";

/// The workspace.
#[derive(Debug, Clone)]
pub(crate) struct Workspace {
    /// Its prompt and its tools.
    pub(crate) assembly: Arc<Assembly>,
    /// `PLATFORM_URL`.
    pub(crate) platform_url: HttpUrl,
    /// `PARENT_ID`: the workspace that it belongs to.
    pub(crate) parent: Option<String>,
    /// `MOLECULE_WORKSPACE_TOKEN`: its token, until the platform has given it one in a file.
    pub(crate) token: Option<SecretString>,
    /// `AGENT_SNAPSHOT_PATH`.
    pub(crate) snapshot: PathBuf,
    /// `MOLECULE_SMOKE_MODE`: a smoke test of the image; nothing is called.
    pub(crate) smoke: bool,
    /// `HOSTNAME`: the name that the platform calls it by.
    pub(crate) hostname: Option<String>,
    /// `MOLECULE_TOOL_ACTIVITY_FILE`: touched when the agent uses a tool.
    pub(crate) tool_activity: Option<PathBuf>,
    /// How calls to the platform leave this host.
    pub(crate) egress: talaria_egress::Config,
}

// === impl Workspace ===

impl Workspace {
    /// Reads the workspace settings; `None` unless `WORKSPACE_ID` is set.
    pub(super) fn read(
        env: &Env<'_>,
        egress: &talaria_egress::Config,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Self>, ConfigError> {
        let Some(id) = id(env, "WORKSPACE_ID")? else { return Ok(None) };
        let folder = env.get("WORKSPACE_CONFIG_PATH").or_else(|| env.get("CONFIGS_DIR"));
        let folder = PathBuf::from(folder.as_deref().unwrap_or(FOLDER));
        let places = Places {
            id,
            folder: folder.clone(),
            shared_plugins: env.get("PLUGINS_DIR").unwrap_or_else(|| SHARED_PLUGINS.into()).into(),
            model: env.get("MODEL_PROVIDER").map(|model| model.trim().to_owned()),
        };
        let assembly = Assembly::open(places)
            .map_err(|trouble| ConfigError::file(&folder.join(talaria_workspace::MANIFEST), trouble.what))?;
        warnings.extend(assembly.current().troubles.iter().map(ToString::to_string));
        let token = secret::by_name(TOKEN, env).map_err(|what| ConfigError::variable(TOKEN, what))?;
        let hostname = env.get("HOSTNAME").filter(|name| is_id(name));
        Ok(Some(Self {
            assembly: Arc::new(assembly),
            platform_url: platform_url(env)?,
            parent: id_or_none(env, "PARENT_ID")?,
            token,
            snapshot: env
                .get("AGENT_SNAPSHOT_PATH")
                .map_or_else(|| folder.join(".agent_snapshot.json"), PathBuf::from),
            smoke: env.is_yes("MOLECULE_SMOKE_MODE"),
            hostname,
            tool_activity: env.get("MOLECULE_TOOL_ACTIVITY_FILE").map(PathBuf::from),
            egress: egress.clone(),
        }))
    }

    /// Its id.
    pub(crate) fn id(&self) -> &str {
        &self.assembly.places().id
    }
}

fn id(env: &Env<'_>, name: &str) -> Result<Option<String>, ConfigError> {
    let Some(id) = env.get(name) else { return Ok(None) };
    let id = id.trim().to_owned();
    match is_id(&id) {
        true => Ok(Some(id)),
        false => Err(ConfigError::variable(
            name,
            format!("{id:?} is no id; give at most 128 letters, digits, dots, dashes and underscores"),
        )),
    }
}

fn id_or_none(env: &Env<'_>, name: &str) -> Result<Option<String>, ConfigError> {
    match env.get(name).is_some_and(|id| id.trim().is_empty()) {
        true => Ok(None),
        false => id(env, name),
    }
}

fn platform_url(env: &Env<'_>) -> Result<HttpUrl, ConfigError> {
    const NAME: &str = "PLATFORM_URL";
    // Found as the platform's own runtime finds it: in a container the host has a name.
    let in_docker = || env.get("DOCKER_VERSION").is_some() || Path::new("/.dockerenv").exists();
    let url = env.get(NAME).unwrap_or_else(|| {
        let host = if in_docker() { "host.docker.internal" } else { "localhost" };
        format!("http://{host}:8080")
    });
    url.trim().trim_end_matches('/').parse().map_err(|what: String| ConfigError::variable(NAME, what))
}
