//! The folder of executors: `NAME.wasm`, and beside it `NAME.toml` with the keys of `[executor.NAME]`.
//!
//! Read once, at load. A file whose name cannot be an executor's, or a `.toml` without its `.wasm`, is skipped with a
//! warning; a `NAME.toml` with a mistake is an error with its line, as in the main file. Other files are nobody's
//! business. The number of executors is bounded, so that a wrong path (`/tmp`) does not load a disk.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::source::{ConfigError, Source};
use super::value::ExecutorName;

/// More executors than this in one folder is a mistake.
const MOST: usize = 256;

/// An executor in the folder.
#[derive(Debug)]
pub(crate) struct Dropped {
    /// Its component.
    pub(crate) component: PathBuf,
    /// Its own configuration, if there is one.
    pub(crate) source: Option<Source>,
}

/// Lists the executors of a folder. A folder that does not exist is `None`.
pub(crate) fn scan(
    folder: &Path,
    warnings: &mut Vec<String>,
) -> Result<Option<BTreeMap<ExecutorName, Dropped>>, ConfigError> {
    let unreadable = |error: io::Error| ConfigError::file(folder, format!("cannot be listed: {error}"));
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    let mut found = BTreeMap::new();
    let mut configured = Vec::new();
    for entry in entries {
        let path = entry.map_err(unreadable)?.path();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("toml") => configured.push(path),
            Some("wasm") => match path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().parse()
            {
                Ok(name) => {
                    found.insert(name, path);
                }
                Err(error @ String { .. }) => {
                    warnings.push(format!("{} is skipped: {error}", path.display()))
                }
            },
            _ => {}
        }
        if found.len() > MOST {
            return Err(ConfigError::file(
                folder,
                format!("holds more than {MOST} components; is this the right folder?"),
            ));
        }
    }
    configured.sort();
    for path in configured.iter().filter(|path| !path.with_extension("wasm").exists()) {
        warnings.push(format!(
            "{} is skipped: there is no {}",
            path.display(),
            path.with_extension("wasm").display()
        ));
    }
    let mut executors = BTreeMap::new();
    for (name, component) in found {
        let source = Source::read(&component.with_extension("toml"))?;
        executors.insert(name, Dropped { component, source });
    }
    Ok(Some(executors))
}
