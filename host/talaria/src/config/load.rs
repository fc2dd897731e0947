//! Putting file, environment and flags together, and checking that they fit.
//!
//! The order of precedence is here and nowhere else, but for the card's, which is in `card`. The first thing that does not fit ends the loading; what has no
//! effect, or an effect that is easily overlooked, becomes a warning.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use secrecy::{ExposeSecret, SecretString};

use crate::route::{NOT_RULES, label};

use super::alone::cache_dir;
use super::env::Seeds;
use super::executor::{Executor, FailMode, Surroundings};
use super::folder::{Files, Folder};
use super::gateway::Settled;
use super::plugin::{PLUGIN_CALLBACK, SHARED_SECRET};
use super::value::{BUILTIN, ExecutorName, Fallback, StoreUrl};
use super::{Admin, Callback, Config, Engine, Overrides, Workspace, file};
use talaria_config::{ConfigError, Env, Problem, SecretRef, Source, nearest, secret};

/// The folder of executors when none is named, if it is there.
const DEFAULT_FOLDER: &str = "executors";

/// The built-in executors that are there without being named.
const ALWAYS: [&str; 2] = ["chat-completions", "conformance"];

/// The one beside it.
const DEFAULT_ADMIN_PORT: u16 = 8001;

/// One loading.
pub(super) struct Loader<'a> {
    /// The file, if there is one.
    pub(super) source: Option<Source>,
    /// Where relative paths start.
    pub(super) folder: PathBuf,
    /// The environment.
    pub(super) env: Env<'a>,
    /// What has been noted so far.
    pub(super) warnings: Vec<String>,
}

/// Where tasks are kept when nothing is said.
const DEFAULT_STORE: &str = "talaria.db";

/// How the folder beside the store's file ends, where versions of executors are kept.
const STATE: &str = "executors";

/// Whether a good version of an executor was kept.
fn is_kept(state: Option<&Path>, name: &ExecutorName) -> bool {
    state.is_some_and(|state| state.join(name.as_str()).is_dir())
}

/// The executor that takes a turn when nothing else is said: the environment before the file.
fn default<'a>(file: &'a file::File, seeds: &Seeds) -> &'a ExecutorName {
    static PLUGIN: LazyLock<ExecutorName> = LazyLock::new(|| ExecutorName::builtin(PLUGIN_CALLBACK));
    if seeds.plugin { &PLUGIN } else { &file.executors.default }
}

// === impl Loader ===

impl Loader<'_> {
    /// Reads the rest and checks it all.
    pub(super) fn load(
        mut self,
        file: file::File,
        gateway: Option<Settled>,
        seeds: &Seeds,
        overrides: &Overrides,
    ) -> Result<Config, ConfigError> {
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
        let folder = self.folder_of_executors(&file, seeds)?;
        let listing = folder.list()?;
        self.warnings.extend(listing.skipped);
        let mut dropped = listing.executors;
        dropped.retain(|_, files| files.component.is_some());
        let is_dropped = |name: &ExecutorName| dropped.contains_key(name) || is_kept(state.as_deref(), name);
        let executors = self.executors(&file, seeds, is_dropped)?;
        let known: BTreeSet<_> = executors.keys().chain(dropped.keys()).cloned().collect();
        for (name, executor) in &executors {
            if let Some(unknown) = executor.fallback.as_ref().filter(|other| !known.contains(other)) {
                let key = format!("executor.{name}.fallback");
                return Err(self.no_executor(&key, unknown, &known));
            }
            if executor.fail_mode == FailMode::LastGood && state.is_none() {
                let what = "nothing is kept to go back to; set `executors.state`";
                return Err(self.at(format!("executor.{name}.fail_mode"), what));
            }
        }
        let default = default(&file, seeds).clone();
        if !known.contains(&default) && !is_dropped(&default) {
            return Err(self.no_executor("executors.default", &default, &known));
        }
        self.routes(&file, &known)?;
        let wants_callbacks = executors.values().any(|executor| executor.grant.callbacks)
            || dropped.iter().any(|(name, files)| self.may_call_back(&folder, name, files));
        let callback = self.callback(file.callback, seeds, wants_callbacks, &folder)?;
        let workspace = Workspace::read(&self.env, &mut self.warnings)?;
        let a2a = self.a2a(file.a2a, workspace.as_ref(), overrides)?;
        let gateway = match (gateway, &file.gateway) {
            (Some(settled), Some(section)) => {
                let (callback, workspace) = (callback.as_ref(), workspace.as_ref());
                Some(settled.finish(section, seeds, callback, workspace, &self.env, &mut self.warnings))
            }
            _ => None,
        };
        let admin = self.admin(&file.admin)?;
        let cache_dir = match file.engine.cache_dir {
            Some(path) => Some(self.folder.join(path)),
            None => cache_dir(self.env.0),
        };
        let oci = file.oci.resolve(&self.folder, &self.env, cache_dir.as_deref(), &mut self.warnings);
        let oci = oci.map_err(|Problem { key, what }| self.at(key, what))?;
        let engine =
            Engine { slots: file.engine.slots, scripted_slots: file.engine.scripted_slots, cache_dir };
        Ok(Config {
            file: self.source.as_ref().map(|source| source.path().to_owned()),
            a2a,
            workspace,
            gateway,
            admin,
            callback,
            store,
            push: file.push,
            keep_for: file.store.keep_for.get(),
            executors,
            folder,
            state,
            default_executor: default,
            caller_may_choose: file.executors.caller_may_choose,
            routes: file.route,
            probe_every: file.executors.probe_every.get(),
            engine,
            oci,
            limits: file.limits,
            warnings: self.warnings,
        })
    }

    pub(super) fn at(&self, key: impl Into<String>, what: impl Into<String>) -> ConfigError {
        let problem = Problem { key: key.into(), what: what.into() };
        match &self.source {
            Some(source) => source.at(problem),
            None => problem.into(),
        }
    }

    fn no_executor(&self, key: &str, name: &ExecutorName, known: &BTreeSet<ExecutorName>) -> ConfigError {
        let hint = nearest(name.as_str(), known.iter().map(ExecutorName::as_str));
        let hint = hint.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        let known: Vec<_> = known.iter().map(ExecutorName::as_str).collect();
        self.at(key, format!("there is no executor `{name}`{hint} (known: {})", known.join(", ")))
    }

    /// The rules: their executors are there, their names are their own. What can never fit is a warning.
    fn routes(&mut self, file: &file::File, executors: &BTreeSet<ExecutorName>) -> Result<(), ConfigError> {
        let mut names = HashSet::from(NOT_RULES);
        let mut last = None;
        for (index, route) in file.route.iter().enumerate() {
            let key = |leaf: &str| format!("route[{index}].{leaf}");
            if let Some(name) = route.name.as_deref() {
                if name.is_empty() || name.len() > 64 || name.chars().any(char::is_control) {
                    let what = "no name for a rule; give 1 to 64 letters, such as `papers`";
                    return Err(self.at(key("name"), what));
                }
                if !names.insert(name) {
                    return Err(self.at(key("name"), format!("`{name}` is taken; a name is one rule's")));
                }
            }
            if !executors.contains(&route.executor) {
                return Err(self.no_executor(&key("executor"), &route.executor, executors));
            }
            if let Some(last) = &last {
                let name = label(index, route);
                self.warnings.push(format!("`{name}` never fits: `{last}` takes everything before it"));
            } else if route.takes_all() {
                last = Some(label(index, route));
            }
            if let (Some(skills), Some(skill)) = (&file.a2a.card.skills, &route.skill) {
                let unknown = skill.plain().filter(|id| !skills.iter().any(|skill| skill.id == **id));
                self.warnings.extend(
                    unknown.map(|id| format!("`{}`: `{id}` is no skill in `a2a.card.skills`", key("skill"))),
                );
            }
        }
        Ok(())
    }

    /// The callback listener, if an executor may receive replies there.
    fn callback(
        &mut self,
        file: Option<file::Callback>,
        seeds: &Seeds,
        is_wanted: bool,
        executors: &Folder,
    ) -> Result<Option<Callback>, ConfigError> {
        // One that is dropped in later may want it.
        if !is_wanted && (file.is_none() || !executors.path().is_dir()) {
            if file.is_some() {
                self.warnings.push("`[callback]` has no effect: no executor is granted `callbacks`".into());
            }
            return Ok(None);
        }
        let file = file.unwrap_or_default();
        let listen = seeds.callback(file.listen);
        let secret = match &file.secret {
            Some(reference) => Some(reference.resolve(&self.folder, &self.env)),
            None => secret::by_name(SHARED_SECRET, &self.env).transpose(),
        };
        let secret = secret.transpose().map_err(|what| self.at("callback.secret", what))?;
        if secret.is_none() && !listen.ip().is_loopback() {
            self.warnings.push(format!(
                "everybody who reaches {listen} can answer in the agent's name: set {SHARED_SECRET} here and for the plugin"
            ));
        }
        Ok(Some(Callback { listen, url: file.url, secret }))
    }

    /// A token that a caller can send.
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
        Ok(Admin { listen, chosen: file.listen.is_some(), token })
    }

    /// The folder of executors. One that was named must be there.
    fn folder_of_executors(&self, file: &file::File, seeds: &Seeds) -> Result<Folder, ConfigError> {
        let dir = file.executors.dir.as_deref();
        let path = self.folder.join(dir.unwrap_or(Path::new(DEFAULT_FOLDER)));
        if dir.is_some() && !path.is_dir() {
            return Err(self.at("executors.dir", format!("there is no folder `{}`", path.display())));
        }
        Ok(Folder {
            path,
            base: self.folder.clone(),
            seeds: seeds.clone(),
            sections: file.executor.clone(),
            main: self.source.clone(),
        })
    }

    /// Whether an executor of the folder is granted replies out of band, as far as that can be read.
    fn may_call_back(&self, folder: &Folder, name: &ExecutorName, files: &Files) -> bool {
        let policy = match &files.policy {
            Some(path) => std::fs::read_to_string(path).ok(),
            None => None,
        };
        // What is wrong with it is told when it is loaded.
        let executor = folder.executor(name, policy.as_deref(), self.env.0, &mut Vec::new());
        executor.is_ok_and(|executor| executor.grant.callbacks)
    }

    /// The executors that do not come from the folder. A section without a component is for one that does, if `is_dropped`.
    fn executors(
        &mut self,
        file: &file::File,
        seeds: &Seeds,
        is_dropped: impl Fn(&ExecutorName) -> bool,
    ) -> Result<BTreeMap<ExecutorName, Executor>, ConfigError> {
        // A built-in executor that nobody asked for would only probe an upstream that nobody has.
        let mut names: Vec<ExecutorName> = ALWAYS.into_iter().map(ExecutorName::builtin).collect();
        names.extend(file.executor.keys().cloned());
        // Those that are only there when somebody wants them.
        let fallbacks = file.executor.values().filter_map(|section| match &section.fallback {
            Some(Fallback::To(name)) => Some(name),
            Some(Fallback::None) | None => None,
        });
        let routed = file.route.iter().map(|route| &route.executor);
        let wanted = fallbacks.chain(routed).chain([default(file, seeds)]);
        names.extend(wanted.filter(|name| BUILTIN.contains(&name.as_str())).cloned());
        let mut executors = BTreeMap::new();
        for name in names {
            let section = file.executor.get(&name).cloned().unwrap_or_default();
            // A built-in one takes the turns again when what was dropped in its place is gone.
            let is_for_folder = section.component.is_none() && !BUILTIN.contains(&name.as_str());
            if executors.contains_key(&name) || (is_for_folder && is_dropped(&name)) {
                continue;
            }
            let around = Surroundings { env: self.env, folder: &self.folder, seeds };
            let executor = Executor::resolve(name.clone(), section, None, &around, &mut self.warnings)
                .map_err(|problem| self.at(format!("executor.{name}.{}", problem.key), problem.what))?;
            executors.insert(name, executor);
        }
        Ok(executors)
    }
}
