//! Executors of the main file, built-in ones, the executors folder, and routing rules.
//!
//! The default, every fallback and every rule must name an executor that exists.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use talaria_config::{ConfigError, Problem, nearest};
use talaria_egress::Egress;
use talaria_engine::{Claims, Compiler, EngineConfig, SessionKeys};
use talaria_executors::config::{Files, Folder, Resolver};
use talaria_executors::route::{NOT_RULES, label};
use talaria_executors::{Builtins, Executor, ExecutorName, FailMode, Fallback};
use talaria_hermes::{BridgeEnv, PEER_KEYS, PLUGIN_CALLBACK, SESSION_KEYS, builtins};
use talaria_turns::Principal;

use super::load::Loader;
use super::{PLATFORM, file};

/// The executors folder if none is configured and it exists.
const DEFAULT_FOLDER: &str = "executors";

/// Whether a good version of an executor is stored.
fn is_kept(state: Option<&Path>, name: &ExecutorName) -> bool {
    state.is_some_and(|state| state.join(name.as_str()).is_dir())
}

/// The default executor: the environment takes precedence over the file.
fn default<'a>(file: &'a file::File, bridge: &BridgeEnv) -> &'a ExecutorName {
    static PLUGIN: LazyLock<ExecutorName> = LazyLock::new(|| ExecutorName::builtin(PLUGIN_CALLBACK));
    if bridge.plugin { &PLUGIN } else { &file.executors.default }
}

/// The callers that may say for which workspace they call: the platform. Where no tokens are required, its calls have none
/// either, so that nobody can tell it from others; elsewhere no caller is without a name.
fn believed(is_workspace: bool) -> fn(&Principal) -> bool {
    match is_workspace {
        true => |caller| caller.name().is_none_or(|name| name == PLATFORM),
        false => |_| false,
    }
}

// === impl Loader ===

impl Loader<'_> {
    /// The configuration of executors, and whether one of them may receive callbacks.
    pub(super) fn executors(
        &mut self,
        file: &file::File,
        bridge: &BridgeEnv,
        state: Option<PathBuf>,
        cache_dir: Option<PathBuf>,
        egress: &talaria_egress::Config,
    ) -> Result<(talaria_executors::Config, bool), ConfigError> {
        let builtins = builtins(bridge);
        let folder = self.folder_of_executors(file, &builtins)?;
        let listing = folder.list()?;
        self.warnings.extend(listing.skipped);
        let mut dropped = listing.executors;
        dropped.retain(|_, files| files.component.is_some());
        let is_dropped = |name: &ExecutorName| dropped.contains_key(name) || is_kept(state.as_deref(), name);
        let default = default(file, bridge).clone();
        let fixed = self.fixed(file, &default, &builtins, is_dropped)?;
        let known: BTreeSet<_> = fixed.keys().chain(dropped.keys()).cloned().collect();
        for (name, executor) in &fixed {
            if let Some(unknown) = executor.fallback.as_ref().filter(|other| !known.contains(other)) {
                let key = format!("executor.{name}.fallback");
                return Err(self.no_executor(&key, unknown, &known));
            }
            let written = file.executor.get(name).and_then(|section| section.fail_mode);
            if written == Some(FailMode::LastGood) && state.is_none() {
                let what = "nothing is kept to go back to; set `executors.state`";
                return Err(self.at(format!("executor.{name}.fail_mode"), what));
            }
        }
        if !known.contains(&default) && !is_dropped(&default) {
            return Err(self.no_executor("executors.default", &default, &known));
        }
        self.routes(file, &known)?;
        let wants_callbacks = fixed.values().any(|executor| executor.grant.callbacks)
            || dropped.iter().any(|(name, files)| self.may_call_back(&folder, name, files));
        let client = Egress::new(egress.clone());
        let oci = file.oci.resolve(&self.folder, &self.env, cache_dir.as_deref(), client, &mut self.warnings);
        let oci = oci.map_err(|Problem { key, what }| self.at(key, what))?;
        let engine = EngineConfig {
            slots: file.engine.slots.get(),
            scripted_slots: file.engine.scripted_slots.get(),
            cache_dir,
            compiler: Compiler::this_program(),
            ..EngineConfig::default()
        };
        // Each turn may have a connection to the one upstream. To open another takes longer than the rest of a short turn.
        let idle_per_host = egress.idle_per_host.max(usize::try_from(engine.slots).unwrap_or(usize::MAX));
        let config = talaria_executors::Config {
            fixed,
            folder,
            state,
            default,
            caller_may_choose: file.executors.caller_may_choose,
            routes: file.route.clone(),
            probe_every: file.executors.probe_every.get(),
            engine,
            egress: talaria_egress::Config { idle_per_host, ..egress.clone() },
            session_keys: SessionKeys(SESSION_KEYS),
            claims: Claims { keys: PEER_KEYS, is_believed: believed(bridge.workspace.is_some()) },
            replies: file.redact.replies.into(),
            oci,
            takes_callbacks: wants_callbacks,
            builtins,
        };
        Ok((config, wants_callbacks))
    }

    fn no_executor(&self, key: &str, name: &ExecutorName, known: &BTreeSet<ExecutorName>) -> ConfigError {
        let hint = nearest(name.as_str(), known.iter().map(ExecutorName::as_str));
        let hint = hint.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        let known: Vec<_> = known.iter().map(ExecutorName::as_str).collect();
        self.at(key, format!("there is no executor `{name}`{hint} (known: {})", known.join(", ")))
    }

    /// Checks the rules: their executors exist, their names are unique. A rule that can never match is a warning.
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

    /// The executors folder. If it is configured, it must exist.
    fn folder_of_executors(&self, file: &file::File, builtins: &Builtins) -> Result<Folder, ConfigError> {
        let dir = file.executors.dir.as_deref();
        let path = self.folder.join(dir.unwrap_or(Path::new(DEFAULT_FOLDER)));
        if dir.is_some() && !path.is_dir() {
            return Err(self.at("executors.dir", format!("there is no folder `{}`", path.display())));
        }
        Ok(Folder {
            path,
            base: self.folder.clone(),
            builtins: builtins.clone(),
            sections: file.executor.clone(),
            main: self.source.clone(),
        })
    }

    /// Whether an executor in the folder is granted callbacks, if its file can be read.
    fn may_call_back(&self, folder: &Folder, name: &ExecutorName, files: &Files) -> bool {
        let policy = match &files.policy {
            Some(path) => std::fs::read_to_string(path).ok(),
            None => None,
        };
        // A mistake in it is reported when it is loaded.
        let executor = folder.executor(name, policy.as_deref(), self.env.0, &mut Vec::new());
        executor.is_ok_and(|executor| executor.grant.callbacks)
    }

    /// The executors that do not come from the folder. A section without a component configures one that does, if
    /// `is_dropped`.
    fn fixed(
        &mut self,
        file: &file::File,
        default: &ExecutorName,
        builtins: &Builtins,
        is_dropped: impl Fn(&ExecutorName) -> bool,
    ) -> Result<BTreeMap<ExecutorName, Executor>, ConfigError> {
        // Other built-in executors load on demand: their probes would fail without an upstream.
        let always = builtins.iter().filter(|builtin| builtin.is_always_loaded);
        let mut names: Vec<_> = always.map(|builtin| ExecutorName::builtin(builtin.name)).collect();
        let is_builtin = |name: &ExecutorName| builtins.get(name.as_str()).is_some();
        names.extend(file.executor.keys().cloned());
        // Built-in executors that something refers to.
        let fallbacks = file.executor.values().filter_map(|section| match &section.fallback {
            Some(Fallback::To(name)) => Some(name),
            Some(Fallback::None) | None => None,
        });
        let routed = file.route.iter().map(|route| &route.executor);
        let wanted = fallbacks.chain(routed).chain([default]);
        names.extend(wanted.filter(|name| is_builtin(name)).cloned());
        let mut executors = BTreeMap::new();
        for name in names {
            let section = file.executor.get(&name).cloned().unwrap_or_default();
            // A built-in executor returns to service when the file that replaced it is gone.
            let is_for_folder = section.component.is_none() && !is_builtin(&name);
            if executors.contains_key(&name) || (is_for_folder && is_dropped(&name)) {
                continue;
            }
            let resolver = Resolver { env: self.env, folder: &self.folder, builtins };
            let executor = resolver
                .resolve(name.clone(), section, None, &mut self.warnings)
                .map_err(|problem| self.at(format!("executor.{name}.{}", problem.key), problem.what))?;
            executors.insert(name, executor);
        }
        Ok(executors)
    }
}
