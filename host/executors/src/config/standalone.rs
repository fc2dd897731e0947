//! One executor by itself, for `talaria executor test`: its own file, and nothing from this machine.
//!
//! No environment variable is read. Every secret that the file grants has the same made-up value, so that the executor
//! behaves as if it had its keys, and no real key can leak.

use std::path::{Path, PathBuf};

use super::builtin::Builtins;
use super::name::ExecutorName;
use super::section::{Executor, ExecutorSection, Resolver};
use talaria_config::{ConfigError, Env, Problem, Source};

/// Makes an executor from a component and its file: `own`, else the file beside the component, if there is one.
pub fn standalone(
    name: ExecutorName,
    component: PathBuf,
    own: Option<&Path>,
    secret: &str,
) -> Result<Executor, ConfigError> {
    let source = match own {
        Some(path) => {
            let missing =
                || ConfigError::file(path, "there is no such file; correct `--config`, or leave it out");
            Some(Source::read(path)?.ok_or_else(missing)?)
        }
        None => Source::read(&component.with_extension("toml"))?,
    };
    let at = |problem: Problem| match &source {
        Some(source) => source.at(problem),
        None => problem.into(),
    };
    let section: ExecutorSection = match &source {
        Some(source) => source.parse()?,
        None => ExecutorSection::default(),
    };
    if section.component.is_some() {
        let what = "not here: the component is the .wasm file that is named on the command line".into();
        return Err(at(Problem { key: "component".into(), what }));
    }
    let made_up = |name: &str| (!name.ends_with("_FILE")).then(|| secret.to_owned());
    let resolver = Resolver { env: Env(&made_up), folder: Path::new(""), builtins: &Builtins::default() };
    resolver.resolve(name, section, Some(component), &mut Vec::new()).map_err(at)
}
