//! The executors folder: `NAME.wasm`, and beside it `NAME.toml` with the keys of `[executor.NAME]`.
//!
//! The folder may change while the host runs, so a mistake in it affects one executor only: [`Folder::executor`] reports it
//! with its line, as in the main file, and all other executors carry on. A file whose name cannot be an executor's is
//! skipped with a warning; files with other extensions, and hidden files, are ignored. The number of executors is bounded,
//! so that a wrong path (`/tmp`) does not load everything on a disk.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use super::builtin::Builtins;
use super::name::ExecutorName;
use super::section::{Executor, ExecutorSection, Resolver};
use talaria_config::{ConfigError, Env, Problem, Source};

/// The most executors in one folder; more is a wrong path.
const MOST: usize = 256;

/// The folder, and what resolving an executor in it needs.
#[derive(Debug, Clone)]
pub struct Folder {
    /// The folder itself.
    pub path: PathBuf,
    /// The folder that relative paths start from.
    pub base: PathBuf,
    /// The components that ship with the host.
    pub builtins: Builtins,
    /// The main file's sections, for components in the folder that have no file of their own.
    pub sections: BTreeMap<ExecutorName, ExecutorSection>,
    /// The main file.
    pub main: Option<Source>,
}

/// The content of the folder.
#[derive(Debug, Default)]
pub struct Listing {
    /// The files of each executor.
    pub executors: BTreeMap<ExecutorName, Files>,
    /// The files that were skipped, and why.
    pub skipped: Vec<String>,
}

/// The files of one executor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    /// `NAME.wasm`
    pub component: Option<PathBuf>,
    /// `NAME.toml`
    pub policy: Option<PathBuf>,
}

// === impl Folder ===

impl Folder {
    /// The path of an executor's component.
    pub fn component(&self, name: &ExecutorName) -> PathBuf {
        self.path.join(format!("{name}.wasm"))
    }

    /// The path of an executor's own configuration.
    pub fn policy(&self, name: &ExecutorName) -> PathBuf {
        self.path.join(format!("{name}.toml"))
    }

    /// Lists the folder. A folder that does not exist is empty.
    pub fn list(&self) -> Result<Listing, ConfigError> {
        let unreadable =
            |error: io::Error| ConfigError::file(&self.path, format!("cannot be listed: {error}"));
        let mut listing = Listing::default();
        let entries = match std::fs::read_dir(&self.path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(listing),
            Err(error) => return Err(unreadable(error)),
        };
        for entry in entries {
            let path = entry.map_err(unreadable)?.path();
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            let extension = path.extension().and_then(|extension| extension.to_str());
            if !matches!(extension, Some("wasm" | "toml")) || stem.starts_with('.') {
                continue;
            }
            match stem.parse::<ExecutorName>() {
                Ok(name) => {
                    let files = listing.executors.entry(name).or_default();
                    match extension {
                        Some("wasm") => files.component = Some(path),
                        _ => files.policy = Some(path),
                    }
                }
                Err(error) => listing.skipped.push(format!("{} is skipped: {error}", path.display())),
            }
            if listing.executors.len() > MOST {
                let problem = format!("holds more than {MOST} executors; is this the right folder?");
                return Err(ConfigError::file(&self.path, problem));
            }
        }
        listing.skipped.sort();
        Ok(listing)
    }

    /// Resolves an executor whose component is in the folder; `policy` is the text of its own file.
    pub fn executor(
        &self,
        name: &ExecutorName,
        policy: Option<&str>,
        env: &dyn Fn(&str) -> Option<String>,
        warnings: &mut Vec<String>,
    ) -> Result<Executor, ConfigError> {
        let key = format!("executor.{name}");
        let own = policy.map(|text| Source::of(self.policy(name), text));
        let section = self.sections.get(name);
        if section.is_some_and(|section| section.component.is_some() || own.is_some()) {
            let files = self.component(name).with_extension("*");
            let what = format!("configured twice: here and by `{}`; keep one", files.display());
            return Err(place(self.main.as_ref(), Problem { key, what }));
        }
        let section: ExecutorSection = match &own {
            Some(own) => own.parse()?,
            None => section.cloned().unwrap_or_default(),
        };
        let problem = |problem: Problem| match &own {
            Some(own) => own.at(problem),
            None => place(
                self.main.as_ref(),
                Problem { key: format!("{key}.{}", problem.key), what: problem.what },
            ),
        };
        if section.component.is_some() {
            let what = "not here: the component is the .wasm file beside this one".into();
            return Err(problem(Problem { key: "component".into(), what }));
        }
        let resolver = Resolver { env: Env(env), folder: &self.base, builtins: &self.builtins };
        resolver.resolve(name.clone(), section, Some(self.component(name)), warnings).map_err(problem)
    }
}

/// Locates a problem in the main file, if there is one.
fn place(main: Option<&Source>, problem: Problem) -> ConfigError {
    match main {
        Some(main) => main.at(problem),
        None => problem.into(),
    }
}
