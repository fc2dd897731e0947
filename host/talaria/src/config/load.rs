//! Combines file, environment and flags, and checks that they are consistent.
//!
//! The order of precedence is decided here only, except for the card, which has its own in `card`. The first problem ends
//! the loading; a key without effect, or with an effect that is easily overlooked, becomes a warning.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use secrecy::{ExposeSecret, SecretString};
use talaria_config::{ConfigError, Env, Problem, SecretRef, Source};
use talaria_hermes::BridgeEnv;
use talaria_hermes::gateway::Prepared;

use super::egress::Unusable;
use super::host_secrets::host_secrets;
use super::value::StoreUrl;
use super::{Admin, Config, Memory, Overrides, PLATFORM, Workspace, cache_dir, file};

/// The default port of the admin server.
const DEFAULT_ADMIN_PORT: u16 = 8001;

/// The state of one loading.
pub(super) struct Loader<'a> {
    /// The file, if there is one.
    pub(super) source: Option<Source>,
    /// The folder that relative paths start from.
    pub(super) folder: PathBuf,
    /// The environment.
    pub(super) env: Env<'a>,
    /// The warnings so far.
    pub(super) warnings: Vec<String>,
}

/// The default file of the store.
const DEFAULT_STORE: &str = "talaria.db";

/// The extension of the folder for versions of executors, beside the file of the store.
const STATE: &str = "executors";

// === impl Loader ===

impl Loader<'_> {
    /// Reads the rest and checks everything.
    pub(super) fn load(
        mut self,
        file: file::File,
        gateway: Option<Prepared>,
        bridge: &BridgeEnv,
        overrides: &Overrides,
    ) -> Result<Config, ConfigError> {
        let written = serde_json::to_value(&file).unwrap_or_default();
        let store = match &file.store.url {
            Some(StoreUrl::Sqlite(path)) => StoreUrl::Sqlite(self.folder.join(path)),
            Some(StoreUrl::Memory) => StoreUrl::Memory,
            None if overrides.demo => StoreUrl::Memory,
            None => StoreUrl::Sqlite(self.folder.join(DEFAULT_STORE)),
        };
        let state = match (&file.executors.state, &store) {
            (Some(path), _) => Some(self.folder.join(path)),
            (None, StoreUrl::Sqlite(path)) => Some(path.with_extension(STATE)),
            (None, StoreUrl::Memory) => None,
        };
        let cache_dir = match &file.engine.cache_dir {
            Some(path) => Some(self.folder.join(path)),
            None => cache_dir(self.env.0),
        };
        let egress = file.egress.resolve(&self.folder, &self.env, &mut self.warnings);
        let egress = egress.map_err(|unusable| match unusable {
            Unusable::Key(Problem { key, what }) => self.at(key, what),
            Unusable::Variable(error) => error,
        })?;
        let telemetry = self.telemetry(&file.telemetry)?;
        let (mut executors, wants_callbacks) = self.executors(&file, bridge, state, cache_dir, &egress)?;
        let secrets = host_secrets(&file, &executors.folder);
        let callback = self.callback(file.callback, bridge, wants_callbacks, &executors.folder)?;
        executors.takes_callbacks = callback.is_some();
        self.no_commands_from_the_platform(&executors)?;
        let memory = Memory::new(file.limits.memory);
        executors.engine.budget = memory.budget.clone();
        let workspace = Workspace::read(&self.env, &egress, &mut self.warnings)?;
        self.suggest(&mut executors, workspace.as_ref());
        let tool_servers = match &file.tools {
            Some(tools) => self.tool_servers(&tools.servers)?,
            None => Vec::new(),
        };
        let tools = self.tools(file.tools, workspace.as_ref())?;
        if let Some(workspace) = &workspace {
            workspace.assembly.set_tools(tools.is_some());
        }
        let a2a = self.a2a(file.a2a, workspace.as_ref(), overrides)?;
        let gateway = match (gateway, &file.gateway) {
            (Some(prepared), Some(section)) => {
                let callback_url = callback.as_ref().map(|callback| callback.reply_url(callback.listen));
                let current = workspace.as_ref().map(|workspace| workspace.assembly.current());
                let model = current.and_then(|current| current.workspace.model.clone());
                let warnings = &mut self.warnings;
                let finished =
                    prepared.finish(section, bridge, callback_url, model, secrets, &self.env, warnings);
                Some(finished.map_err(|Problem { key, what }| self.at(key, what))?)
            }
            _ => None,
        };
        let admin = self.admin(&file.admin)?;
        Ok(Config {
            file: self.source.as_ref().map(|source| source.path().to_owned()),
            a2a,
            workspace,
            gateway,
            tools,
            tool_servers,
            admin,
            callback,
            store,
            push: file.push,
            keep_for: file.store.keep_for.get(),
            prepare_only: self.env.is_yes("MOLECULE_RUNTIME_PREPARE_ONLY"),
            egress,
            telemetry,
            max_size: file.store.max_size,
            min_free: file.store.min_free,
            executors,
            limits: file.limits,
            memory,
            warnings: self.warnings,
            written,
        })
    }

    /// The platform passes on the messages of people and of peers alike, so it cannot be trusted with commands.
    fn no_commands_from_the_platform(
        &self,
        executors: &talaria_executors::Config,
    ) -> Result<(), ConfigError> {
        for (name, executor) in &executors.fixed {
            let trusted = executor.settings.get("commands_from").and_then(serde_json::Value::as_array);
            if trusted.is_some_and(|names| names.iter().any(|name| name == PLATFORM)) {
                let what = format!(
                    "`{PLATFORM}` passes on messages of other workspaces as well; give the people that may use commands \
                     tokens of their own"
                );
                return Err(self.at(format!("executor.{name}.settings.commands_from"), what));
            }
        }
        Ok(())
    }

    /// Gives the default executor the settings of the workspace's `runtime_config`.
    fn suggest(&mut self, executors: &mut talaria_executors::Config, workspace: Option<&Workspace>) {
        let Some(workspace) = workspace else { return };
        let settings = workspace.assembly.current().manifest.settings.clone();
        match executors.fixed.get_mut(&executors.default) {
            _ if settings.is_empty() => {}
            Some(executor) => executor.suggested = settings,
            None => self.warnings.push(format!(
                "`runtime_config` of the workspace has no effect on {}; write its settings into its own file",
                executors.default
            )),
        }
    }

    pub(super) fn at(&self, key: impl Into<String>, what: impl Into<String>) -> ConfigError {
        let problem = Problem { key: key.into(), what: what.into() };
        match &self.source {
            Some(source) => source.at(problem),
            None => problem.into(),
        }
    }

    /// Reads a token; an error if it cannot be sent in a header.
    pub(super) fn bearer(&self, key: &str, reference: &SecretRef) -> Result<SecretString, ConfigError> {
        let secret = reference.resolve(&self.folder, &self.env).map_err(|what| self.at(key, what))?;
        if !secret.expose_secret().bytes().all(|byte| byte.is_ascii_graphic()) {
            let what =
                "the token holds a space, a line break or a letter beyond ASCII, which no caller can send";
            return Err(self.at(key, what));
        }
        Ok(secret)
    }

    fn admin(&self, file: &file::Admin) -> Result<Admin, ConfigError> {
        let listen = file.listen.unwrap_or((Ipv4Addr::LOCALHOST, DEFAULT_ADMIN_PORT).into());
        let token = file.token.as_ref().map(|token| self.bearer("admin.token", token)).transpose()?;
        if token.is_none() && !listen.ip().is_loopback() {
            let what = format!(
                "{listen} is beyond loopback, and everybody who reaches it could read what it shows; \
                 set `admin.token`"
            );
            return Err(self.at("admin.listen", what));
        }
        Ok(Admin { listen, chosen: file.listen.is_some(), token, open: file.open.clone() })
    }
}
