//! The last good versions of executors, on disk, so that neither a restart nor a bad change loses them.
//!
//! ```text
//! STATE/NAME/current        the version that was last in service and ready
//! STATE/NAME/previous       the one before, for a rollback
//! STATE/NAME/completed      the versions that completed turns and have not been quarantined since, the latest first
//! STATE/NAME/passed-over    the version in the executors folder that was rolled back
//! STATE/NAME/VERSION.wasm   a version's component
//! STATE/NAME/VERSION.toml   its own configuration, if it has one
//! ```
//!
//! The name of a version is a digest of both files, which is checked when the version is read. Files are written by rename,
//! so they are always complete. Of each executor at most four versions are stored: these two, and two that completed turns.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest as _, Sha256};
use talaria_turns::Timestamp;

use crate::config::ExecutorName;

/// The files of a version: a component and its own configuration.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) wasm: Arc<[u8]>,
    pub(crate) policy: Option<String>,
}

/// The name of a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Id(String);

/// The folder with the stored versions.
#[derive(Debug, Clone)]
pub(crate) struct VersionStore(PathBuf, Digests);

/// The digests of stored components, so that each is read once for a list. A version's files never change.
type Digests = Arc<Mutex<HashMap<String, String>>>;

/// The digests that are kept; then they are computed anew.
const DIGESTS: usize = 1_024;

/// A version on disk.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct KeptVersion {
    /// Its name: a digest of both of its files.
    pub id: String,
    /// The digest of its component.
    pub digest: String,
    /// Whether it was last in service and ready.
    pub current: bool,
    /// Whether a rollback goes to it.
    pub previous: bool,
    /// Whether it completed turns and was not quarantined since.
    pub completed: bool,
    /// When it was stored.
    pub since: Option<String>,
}

const CURRENT: &str = "current";
const PREVIOUS: &str = "previous";
const COMPLETED: &str = "completed";
const SKIPPED: &str = "passed-over";

/// The versions that completed turns and are kept: the one in service, and the one to go back to.
const GOOD: usize = 2;

// === impl Content ===

impl Content {
    pub(crate) fn id(&self) -> Id {
        let mut hasher = Sha256::new();
        hasher.update(Sha256::digest(&self.wasm));
        if let Some(policy) = &self.policy {
            hasher.update(policy);
        }
        Id(format!("{:x}", hasher.finalize()))
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Content").field("id", &self.id()).finish_non_exhaustive()
    }
}

// === impl Id ===

impl Id {
    fn parse(text: &str) -> Option<Self> {
        let is_digest = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_digest.then(|| Self(text.to_owned()))
    }
}

// === impl VersionStore ===

impl VersionStore {
    /// Opens the folder; creates it if it is absent.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        Ok(Self(folder.to_owned(), Digests::default()))
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }

    /// The version that was last in service and ready.
    pub(crate) fn current(&self, name: &ExecutorName) -> Option<Id> {
        self.read(name, CURRENT)
    }

    /// The one before.
    pub(crate) fn previous(&self, name: &ExecutorName) -> Option<Id> {
        self.read(name, PREVIOUS)
    }

    /// The version in the executors folder that was rolled back, and is skipped until its files change.
    pub(crate) fn skipped(&self, name: &ExecutorName) -> Option<Id> {
        self.read(name, SKIPPED)
    }

    pub(crate) fn set_skipped(&self, name: &ExecutorName, id: Option<&Id>) -> io::Result<()> {
        match id {
            Some(id) => self.write(name, SKIPPED, id.0.as_bytes()),
            None => match fs::remove_file(self.0.join(name.as_str()).join(SKIPPED)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        }
    }

    /// The version that completed a turn last, of those that have not been quarantined since.
    pub(crate) fn last_good(&self, name: &ExecutorName) -> Option<Id> {
        self.completed(name).into_iter().next()
    }

    /// The versions of an executor, the present one first.
    pub(crate) fn list(&self, name: &ExecutorName) -> Vec<KeptVersion> {
        let (current, previous) = (self.current(name), self.previous(name));
        let completed = self.completed(name);
        let mut ids: Vec<&Id> = Vec::new();
        for id in current.iter().chain(&previous).chain(&completed) {
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        let kept = |id: &Id| {
            let file = self.file(name, id, "wasm");
            let digest = self.digest(id, &file)?;
            let stored = fs::metadata(&file).and_then(|file| file.modified()).ok();
            let since = stored.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
            let millis = since.map(|since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
            Some(KeptVersion {
                id: id.0.clone(),
                digest,
                current: current.as_ref() == Some(id),
                previous: previous.as_ref() == Some(id),
                completed: completed.contains(id),
                since: millis.map(|millis| Timestamp::from_millis(millis).to_string()),
            })
        };
        ids.into_iter().filter_map(kept).collect()
    }

    fn digest(&self, id: &Id, file: &Path) -> Option<String> {
        let lock = || self.1.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&id.0) {
            return Some(known.clone());
        }
        let digest = format!("{:x}", Sha256::digest(fs::read(file).ok()?));
        let mut known = lock();
        if known.len() >= DIGESTS {
            known.clear();
        }
        known.insert(id.0.clone(), digest.clone());
        Some(digest)
    }

    fn completed(&self, name: &ExecutorName) -> Vec<Id> {
        let text = fs::read_to_string(self.0.join(name.as_str()).join(COMPLETED)).unwrap_or_default();
        text.lines().filter_map(Id::parse).take(GOOD).collect()
    }

    /// Records that a version completed a turn. A version that is not stored cannot be gone back to, and is ignored.
    pub(crate) fn set_completed(&self, name: &ExecutorName, id: &Id) -> io::Result<()> {
        if !self.file(name, id, "wasm").exists() {
            return Ok(());
        }
        let mut completed = self.completed(name);
        completed.retain(|other| other != id);
        completed.insert(0, id.clone());
        completed.truncate(GOOD);
        self.write_completed(name, &completed)?;
        self.delete_others(name)
    }

    /// Records that a version was quarantined.
    pub(crate) fn set_quarantined(&self, name: &ExecutorName, id: &Id) -> io::Result<()> {
        let mut completed = self.completed(name);
        if completed.iter().all(|other| other != id) {
            return Ok(());
        }
        completed.retain(|other| other != id);
        self.write_completed(name, &completed)
    }

    fn write_completed(&self, name: &ExecutorName, ids: &[Id]) -> io::Result<()> {
        let lines: Vec<&str> = ids.iter().map(|id| id.0.as_str()).collect();
        self.write(name, COMPLETED, lines.join("\n").as_bytes())
    }

    /// Stores a version as the current one; the one before becomes the previous one.
    pub(crate) fn store(&self, name: &ExecutorName, content: &Content) -> io::Result<()> {
        let id = content.id();
        let was = self.current(name);
        if was.as_ref() == Some(&id) {
            return Ok(());
        }
        self.write(name, &format!("{}.wasm", id.0), &content.wasm)?;
        if let Some(policy) = &content.policy {
            self.write(name, &format!("{}.toml", id.0), policy.as_bytes())?;
        }
        if let Some(was) = was {
            self.write(name, PREVIOUS, was.0.as_bytes())?;
        }
        self.write(name, CURRENT, id.0.as_bytes())?;
        self.delete_others(name)
    }

    /// Reads a version; an error if its files are absent or do not match its name.
    pub(crate) fn content(&self, name: &ExecutorName, id: &Id) -> io::Result<Content> {
        let wasm = fs::read(self.file(name, id, "wasm"))?.into();
        let policy = match fs::read_to_string(self.file(name, id, "toml")) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let content = Content { wasm, policy };
        if content.id() != *id {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the stored files have changed on disk"));
        }
        Ok(content)
    }

    /// Deletes all versions of an executor.
    pub(crate) fn delete(&self, name: &ExecutorName) -> io::Result<()> {
        match fs::remove_dir_all(self.0.join(name.as_str())) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn delete_others(&self, name: &ExecutorName) -> io::Result<()> {
        let mut wanted = self.completed(name);
        wanted.extend([self.current(name), self.previous(name)].into_iter().flatten());
        for entry in fs::read_dir(self.0.join(name.as_str()))? {
            let path = entry?.path();
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            let is_version = path.extension().is_some();
            if is_version && !wanted.iter().any(|id| id.0 == stem) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    fn read(&self, name: &ExecutorName, file: &str) -> Option<Id> {
        Id::parse(&fs::read_to_string(self.0.join(name.as_str()).join(file)).ok()?)
    }

    fn file(&self, name: &ExecutorName, id: &Id, extension: &str) -> PathBuf {
        self.0.join(name.as_str()).join(format!("{}.{extension}", id.0))
    }

    fn write(&self, name: &ExecutorName, file: &str, bytes: &[u8]) -> io::Result<()> {
        let folder = self.0.join(name.as_str());
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        write_whole(&folder.join(file), bytes)
    }
}

/// Writes a file completely, or not at all.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut draft = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(Path::new("")))?;
    draft.write_all(bytes)?;
    draft.as_file().sync_all()?;
    draft.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(wasm: &str, policy: Option<&str>) -> Content {
        Content { wasm: wasm.as_bytes().into(), policy: policy.map(str::to_owned) }
    }

    #[test]
    fn stores_two_versions_and_reads_them_back() {
        let folder = tempfile::tempdir().unwrap();
        let versions = VersionStore::open(&folder.path().join("a/b")).unwrap();
        let name: ExecutorName = "mine".parse().unwrap();
        assert_eq!(versions.current(&name), None);
        let all = [content("1", None), content("2", Some("x = 1")), content("2", Some("x = 2"))];
        for version in &all {
            versions.store(&name, version).unwrap();
            versions.store(&name, version).unwrap();
        }
        let [first, second, third] = all;
        assert_eq!(versions.current(&name), Some(third.id()));
        assert_eq!(versions.previous(&name), Some(second.id()));
        assert_eq!(versions.content(&name, &second.id()).unwrap(), second);
        assert!(versions.content(&name, &first.id()).is_err(), "only two are stored");
        versions.delete(&name).unwrap();
        versions.delete(&name).unwrap();
        assert_eq!(versions.current(&name), None);
    }

    #[test]
    fn keeps_the_last_versions_that_completed_turns_whatever_comes_after() {
        let folder = tempfile::tempdir().unwrap();
        let versions = VersionStore::open(folder.path()).unwrap();
        let name: ExecutorName = "mine".parse().unwrap();
        let all: Vec<Content> = (1..=6).map(|number| content(&number.to_string(), None)).collect();
        let id = |number: usize| all[number - 1].id();
        versions.set_completed(&name, &id(1)).unwrap();
        assert_eq!(versions.last_good(&name), None, "it is not stored");
        for version in &all {
            versions.store(&name, version).unwrap();
            if [1, 2, 3].map(id).contains(&version.id()) {
                versions.set_completed(&name, &version.id()).unwrap();
            }
        }
        assert_eq!(versions.last_good(&name), Some(id(3)), "6, 5 and 4 completed nothing");
        for kept in [2, 3, 5, 6] {
            assert_eq!(versions.content(&name, &id(kept)).unwrap(), all[kept - 1]);
        }
        assert!(versions.content(&name, &id(1)).is_err() && versions.content(&name, &id(4)).is_err());
        versions.set_quarantined(&name, &id(6)).unwrap();
        versions.set_quarantined(&name, &id(3)).unwrap();
        assert_eq!(versions.last_good(&name), Some(id(2)));
        versions.set_quarantined(&name, &id(2)).unwrap();
        assert_eq!(versions.last_good(&name), None);
    }

    #[test]
    fn rejects_a_version_that_was_changed_on_disk() {
        let folder = tempfile::tempdir().unwrap();
        let versions = VersionStore::open(folder.path()).unwrap();
        let name: ExecutorName = "mine".parse().unwrap();
        let version = content("1", None);
        versions.store(&name, &version).unwrap();
        let Id(id) = version.id();
        fs::write(folder.path().join(format!("mine/{id}.toml")), "memory = 1").unwrap();
        assert!(versions.content(&name, &version.id()).is_err());
        fs::write(folder.path().join("mine/current"), "../../etc").unwrap();
        assert_eq!(versions.current(&name), None);
    }

    #[test]
    fn remembers_the_skipped_version_until_it_is_cleared() {
        let folder = tempfile::tempdir().unwrap();
        let versions = VersionStore::open(folder.path()).unwrap();
        let name: ExecutorName = "mine".parse().unwrap();
        let id = content("1", None).id();
        versions.set_skipped(&name, None).unwrap();
        versions.set_skipped(&name, Some(&id)).unwrap();
        assert_eq!(versions.skipped(&name), Some(id));
        versions.set_skipped(&name, None).unwrap();
        assert_eq!(versions.skipped(&name), None);
    }
}
