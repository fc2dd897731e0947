//! Finds changes in the executors folder, once a second.
//!
//! Files are read when two looks in a row find the same metadata (device, inode, size, times), so that a file is not read
//! while it is being written. Every [`DIGEST_EVERY`] all files are read and digested, whatever their metadata says. A
//! version whose digest is that of the version tried last is not reported again, whether it was taken or refused.
//!
//! Why not `notify`: it watches the inode behind a path, and Kubernetes swaps a volume two symbolic links above; network,
//! overlay and bind mounts send no events at all. A few calls of `stat` a second find every change on every file system.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{info, warn};

use super::versions::{Content, Id};
use talaria_config::{ConfigError, Settled};

use crate::config::{ExecutorName, Files, Folder};

/// How often to look.
pub(super) const EVERY: Duration = Duration::from_secs(1);

/// How often all files are read and digested.
const DIGEST_EVERY: Duration = Duration::from_secs(30);

/// The largest component that is read; the engine's own limit is lower.
const LARGEST: u64 = 256 << 20;

/// The largest configuration file of one executor.
const LARGEST_POLICY: u64 = 1 << 20;

/// What the last looks found.
#[derive(Default)]
pub(super) struct Watch {
    executors: BTreeMap<ExecutorName, Looked>,
    /// Problems that were logged, so that each is logged once.
    logged: BTreeSet<String>,
}

/// What the last look found of one executor.
#[derive(Default)]
struct Looked {
    stamp: Settled<Stamp>,
    /// When the files were last read; `None` while they change.
    digested: Option<Instant>,
    /// The version that was tried last.
    tried: Option<Id>,
    is_gone: bool,
}

/// The metadata that changes with the content of a file, on most file systems.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Stamp {
    component: Option<[i64; 7]>,
    policy: Option<[i64; 7]>,
}

/// A change in the folder.
#[derive(Debug)]
pub(super) enum Change {
    /// The executor is new or has changed.
    Present(ExecutorName, Content),
    /// Its files cannot be read.
    Unreadable(ExecutorName, String),
    /// Its files are gone.
    Gone(ExecutorName),
}

// === impl Watch ===

impl Watch {
    /// Looks once. The first look does not wait for a second one.
    pub(super) fn look(&mut self, folder: &Folder, is_first: bool) -> Vec<Change> {
        let listing = match folder.list() {
            Ok(listing) => listing,
            Err(error) => {
                self.log_problem(&error);
                return Vec::new();
            }
        };
        for skipped in listing.skipped.iter().filter(|_| !is_first) {
            self.log(skipped);
        }
        let mut changes = Vec::new();
        for (name, files) in &listing.executors {
            match (&files.component, &files.policy) {
                (Some(_), _) => changes.extend(self.look_at(name, files, is_first)),
                (None, Some(policy)) => {
                    self.log(&format!("{} waits for {}", policy.display(), folder.component(name).display()));
                }
                (None, None) => {}
            }
        }
        let is_there =
            |name: &ExecutorName| listing.executors.get(name).is_some_and(|files| files.component.is_some());
        // Gone in two looks in a row, so that replacing a file by hand does not remove its executor.
        self.executors.retain(|name, looked| {
            let is_there = is_there(name);
            if !is_there && looked.is_gone {
                changes.push(Change::Gone(name.clone()));
                return false;
            }
            looked.is_gone = !is_there;
            true
        });
        changes
    }

    /// The version of an executor that was tried last.
    pub(super) fn tried(&self, name: &ExecutorName) -> Option<&Id> {
        self.executors.get(name)?.tried.as_ref()
    }

    /// Records a version as tried; it is not reported again.
    pub(super) fn was_tried(&mut self, name: &ExecutorName, id: Id) {
        self.executors.entry(name.clone()).or_default().tried = Some(id);
    }

    fn look_at(&mut self, name: &ExecutorName, files: &Files, is_first: bool) -> Option<Change> {
        let looked = self.executors.entry(name.clone()).or_default();
        let stamp = Stamp::of(files);
        if is_first {
            looked.stamp = Settled::new(stamp);
        } else if looked.stamp.see(stamp).is_some() {
            looked.digested = None;
        }
        if !looked.stamp.is_settled() {
            return None;
        }
        if looked.digested.is_some_and(|at| at.elapsed() < DIGEST_EVERY) {
            return None;
        }
        looked.digested = Some(Instant::now());
        match read(files) {
            Ok(content) => {
                let id = content.id();
                if looked.tried.as_ref() == Some(&id) {
                    return None;
                }
                looked.tried = Some(id);
                Some(Change::Present(name.clone(), content))
            }
            Err(error) => {
                let error = error.to_string();
                let is_new = self.logged.insert(error.clone());
                is_new.then(|| Change::Unreadable(name.clone(), error))
            }
        }
    }

    fn log(&mut self, what: &str) {
        if self.logged.insert(what.to_owned()) {
            info!("{what}");
        }
    }

    fn log_problem(&mut self, error: &ConfigError) {
        if self.logged.insert(error.to_string()) {
            warn!(%error, "cannot list the executors folder; loaded executors stay");
        }
    }
}

// === impl Stamp ===

impl Stamp {
    fn of(files: &Files) -> Self {
        let stamp = |path: &Option<std::path::PathBuf>| {
            let found: Metadata = path.as_ref()?.metadata().ok()?;
            Some([
                found.dev().cast_signed(),
                found.ino().cast_signed(),
                found.size().cast_signed(),
                found.mtime(),
                found.mtime_nsec(),
                found.ctime(),
                found.ctime_nsec(),
            ])
        };
        Self { component: stamp(&files.component), policy: stamp(&files.policy) }
    }
}

/// Reads the files of an executor.
pub(super) fn read(files: &Files) -> io::Result<Content> {
    let wasm = match &files.component {
        Some(path) => read_component(path)?,
        None => return Err(io::Error::other("there is no component")),
    };
    let policy = match &files.policy {
        Some(path) => read_policy(path)?,
        None => None,
    };
    Ok(Content { wasm: wasm.into(), policy })
}

pub(super) fn read_component(path: &Path) -> io::Result<Vec<u8>> {
    read_bounded(path, LARGEST)
}

/// Reads the configuration file of an executor, if there is one.
pub(super) fn read_policy(path: &Path) -> io::Result<Option<String>> {
    match read_bounded(path, LARGEST_POLICY) {
        Ok(bytes) => {
            let text = String::from_utf8(bytes);
            text.map(Some).map_err(|_| io::Error::other(format!("{}: is not UTF-8 text", path.display())))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads a regular file; a pipe or a device would block.
fn read_bounded(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let read = || -> io::Result<Vec<u8>> {
        if !path.metadata()?.is_file() {
            return Err(io::Error::other("is not a regular file"));
        }
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
        if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > most {
            return Err(io::Error::other(format!("is larger than {most} bytes")));
        }
        Ok(bytes)
    };
    read().map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}
