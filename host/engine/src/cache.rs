//! Compiled components, kept on disk.
//!
//! A compiled component is machine code that the host maps and runs, so a file that somebody else could have written
//! is never trusted: the folder, and every folder above it, must belong to us or to root, and nobody else may write
//! to it. Where that does not hold the cache is off, with a warning, and components are compiled at every start.
//!
//! A file's name holds the component's digest and a hash of the engine's settings and version: an upgrade compiles
//! anew by itself. Files appear whole, by rename; one that does not load is compiled again and replaced.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// A folder that somebody else could write to.
#[derive(Debug, thiserror::Error)]
pub enum UntrustedFolder {
    /// Somebody else owns a folder on the way.
    #[error("{} belongs to user {owner}, not to us or root", path.display())]
    Owner {
        /// The folder.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// Others may write.
    #[error("others may write to {} (mode {mode:o}); fix it with `chmod go-w {}`", path.display(), path.display())]
    Mode {
        /// The folder.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It cannot be made or looked at.
    #[error("{}: {error}", path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

pub(crate) struct Cache {
    folder: PathBuf,
    engine: u64,
}

impl Cache {
    /// Opens, and makes if needed, a folder that only we can write to.
    pub(crate) fn open(folder: &Path, engine: &wasmtime::Engine) -> Result<Self, UntrustedFolder> {
        let io = |error| UntrustedFolder::Io { path: folder.to_owned(), error };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io)?;
        // Links are resolved first, so that what is checked is what is used.
        let folder = folder.canonicalize().map_err(io)?;
        for (depth, path) in folder.ancestors().enumerate() {
            trust(path, depth == 0)?;
        }
        let mut hasher = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        Ok(Self { folder, engine: hasher.finish() })
    }

    /// Where the compiled form of a component is, or would be.
    pub(crate) fn path(&self, digest: &str) -> PathBuf {
        self.folder.join(format!("{digest}-{:016x}.cwasm", self.engine))
    }

    /// The compiled form, if it is there and ours.
    pub(crate) fn get(&self, digest: &str) -> Option<PathBuf> {
        let path = self.path(digest);
        let found = fs::symlink_metadata(&path).ok()?;
        (found.is_file() && found.uid() == us() && found.mode() & 0o022 == 0).then_some(path)
    }

    /// Keeps a compiled form.
    pub(crate) fn put(&self, digest: &str, code: &[u8]) -> io::Result<PathBuf> {
        let path = self.path(digest);
        // A name of its own, so that two processes do not write into one file; mode 0600; gone where anything fails.
        let mut draft = tempfile::NamedTempFile::new_in(&self.folder)?;
        draft.write_all(code)?;
        // Machine code has no checksum: after a power cut the name must not lead to half of it.
        draft.as_file().sync_all()?;
        draft.persist(&path)?;
        Ok(path)
    }
}

fn trust(path: &Path, is_cache: bool) -> Result<(), UntrustedFolder> {
    const STICKY: u32 = 0o1000;
    let found = fs::metadata(path).map_err(|error| UntrustedFolder::Io { path: path.to_owned(), error })?;
    let owner = found.uid();
    if owner != us() && (is_cache || owner != 0) {
        return Err(UntrustedFolder::Owner { path: path.to_owned(), owner });
    }
    let mode = found.mode() & 0o7777;
    // In a sticky folder such as /tmp others may add files, but not replace ours.
    if mode & 0o022 != 0 && (is_cache || mode & STICKY == 0) {
        return Err(UntrustedFolder::Mode { path: path.to_owned(), mode });
    }
    Ok(())
}

/// The user that this process writes files as.
fn us() -> u32 {
    // Linux shows it as the owner of the process's own folder; elsewhere nothing is trusted.
    fs::metadata("/proc/self").map_or(u32::MAX, |found| found.uid())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn open(folder: &Path) -> Result<Cache, UntrustedFolder> {
        Cache::open(folder, &wasmtime::Engine::default())
    }

    #[test]
    fn a_fresh_folder_is_ours_alone_and_keeps_what_is_put() {
        let home = tempfile::tempdir().unwrap();
        let cache = open(&home.path().join("a/b")).unwrap();
        assert_eq!(fs::metadata(&cache.folder).unwrap().mode() & 0o777, 0o700);
        assert!(cache.get("d1").is_none());
        let path = cache.put("d1", b"code").unwrap();
        assert_eq!(cache.get("d1"), Some(path.clone()));
        assert_eq!(fs::read(path).unwrap(), b"code");
        assert_eq!(fs::read_dir(&cache.folder).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_refused() {
        let home = tempfile::tempdir().unwrap();
        for mode in [0o777, 0o770, 0o722] {
            let folder = home.path().join(format!("{mode:o}"));
            fs::create_dir(&folder).unwrap();
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            let refused = open(&folder).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(refused.contains("others may write"), "{mode:o}: {refused}");
        }
    }

    #[test]
    fn a_folder_below_one_that_others_can_write_to_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let shared = home.path().join("shared");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(open(&shared.join("cache")), Err(UntrustedFolder::Mode { .. })));
    }

    #[test]
    fn a_file_that_others_can_write_to_is_not_used() {
        let home = tempfile::tempdir().unwrap();
        let cache = open(home.path()).unwrap();
        let path = cache.put("d1", b"code").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(cache.get("d1"), None);
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
        assert_eq!(cache.get("d1"), None, "nor is a link");
    }
}
