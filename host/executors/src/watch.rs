//! The folder of executors, looked at every second.
//!
//! Two looks in a row must find the same files (device, inode, size, times) before they are read, so that a file that is
//! being written is not taken half; and every [`DIGEST_EVERY`] everything is read and digested whatever the file system
//! says. What has the digests of what was tried last is no news, whether that was taken or refused, so that everything is
//! logged once.
//!
//! Why not `notify`: it watches what a path leads to, and a Kubernetes volume is swapped two symbolic links above; network,
//! overlay and bind mounts tell it nothing at all. A few calls of `stat` a second find every change on every file system.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{info, warn};

use super::versions::{Content, Id};
use talaria_config::ConfigError;

use crate::config::{ExecutorName, Files, Folder};

/// How often the folder is looked at.
pub(super) const EVERY: Duration = Duration::from_secs(1);

/// How often everything in it is read and digested.
const DIGEST_EVERY: Duration = Duration::from_secs(30);

/// The largest component that is read; the engine says what is too large.
const LARGEST: u64 = 256 << 20;

/// The largest configuration of one executor.
const LARGEST_POLICY: u64 = 1 << 20;

/// What is known of the folder.
#[derive(Default)]
pub(super) struct Watch {
    executors: BTreeMap<ExecutorName, Looked>,
    /// What was said, so that it is said once.
    told: BTreeSet<String>,
}

/// What was found of one executor.
#[derive(Default)]
struct Looked {
    stamp: Stamp,
    /// Since when the files have been as they are; none while that is not known.
    digested: Option<Instant>,
    /// What was tried last.
    tried: Option<Id>,
    is_gone: bool,
}

/// What tells one content of the files from another, most of the time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Stamp {
    component: Option<[i64; 7]>,
    policy: Option<[i64; 7]>,
}

/// What changed.
#[derive(Debug)]
pub(super) enum Change {
    /// It is there, with this content.
    Present(ExecutorName, Content),
    /// It is there and cannot be read.
    Unreadable(ExecutorName, String),
    /// It is gone.
    Gone(ExecutorName),
}

// === impl Watch ===

impl Watch {
    /// One look. At the first one what is there is taken as it is.
    pub(super) fn look(&mut self, folder: &Folder, is_first: bool) -> Vec<Change> {
        let listing = match folder.list() {
            Ok(listing) => listing,
            Err(error) => {
                self.tell_problem(&error);
                return Vec::new();
            }
        };
        for skipped in listing.skipped.iter().filter(|_| !is_first) {
            self.tell(skipped);
        }
        let mut changes = Vec::new();
        for (name, files) in &listing.executors {
            match (&files.component, &files.policy) {
                (Some(_), _) => changes.extend(self.look_at(name, files, is_first)),
                (None, Some(policy)) => {
                    self.tell(&format!(
                        "{} waits for {}",
                        policy.display(),
                        folder.component(name).display()
                    ));
                }
                (None, None) => {}
            }
        }
        let is_there =
            |name: &ExecutorName| listing.executors.get(name).is_some_and(|files| files.component.is_some());
        // Gone twice in a row, so that a file that is replaced by hand is not dropped in between.
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

    /// What was tried last of an executor in the folder.
    pub(super) fn tried(&self, name: &ExecutorName) -> Option<&Id> {
        self.executors.get(name)?.tried.as_ref()
    }

    /// This was tried: the same is no news.
    pub(super) fn was_tried(&mut self, name: &ExecutorName, id: Id) {
        self.executors.entry(name.clone()).or_default().tried = Some(id);
    }

    fn look_at(&mut self, name: &ExecutorName, files: &Files, is_first: bool) -> Option<Change> {
        let looked = self.executors.entry(name.clone()).or_default();
        let stamp = Stamp::of(files);
        if stamp != looked.stamp {
            looked.stamp = stamp;
            looked.digested = None;
            if !is_first {
                return None;
            }
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
                let is_news = self.told.insert(error.clone());
                is_news.then(|| Change::Unreadable(name.clone(), error))
            }
        }
    }

    fn tell(&mut self, what: &str) {
        if self.told.insert(what.to_owned()) {
            info!("{what}");
        }
    }

    fn tell_problem(&mut self, error: &ConfigError) {
        if self.told.insert(error.to_string()) {
            warn!(%error, "the folder of executors is not followed; what is loaded stays");
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

/// The content of an executor's files.
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

/// The text of an executor's own configuration, where there is one.
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

/// A regular file's bytes; a pipe or a device would hold up the look.
fn read_bounded(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let read = || -> io::Result<Vec<u8>> {
        if !path.metadata()?.is_file() {
            return Err(io::Error::other("is no regular file"));
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
