//! The cache of compiled components on disk.
//!
//! A compiled component is machine code that the host maps and runs, so the cache never trusts a file that another user
//! could have written: the folder and all its ancestors must belong to the user of this process or to root, and no
//! other user may have write permission. Otherwise the engine logs a warning, disables the cache and compiles
//! components at every start.
//!
//! A file name contains the digest of the component and a hash of the engines' version and settings, so an upgrade
//! compiles components again without further action. Files are written to a temporary name and renamed, so a reader
//! never sees part of one. A file that does not load is compiled again and replaced.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Seek as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Why the cache folder cannot be trusted.
#[derive(Debug, thiserror::Error)]
pub enum UntrustedFolder {
    /// Another user owns the folder or one of its ancestors.
    #[error("{} belongs to user {owner}, not to us or root", path.display())]
    Owner {
        /// The folder.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// Other users may write to the folder or to one of its ancestors.
    #[error("others may write to {} (mode {mode:o}); fix it with `chmod go-w {}`", path.display(), path.display())]
    Mode {
        /// The folder.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The folder cannot be created or inspected.
    #[error("{}: {error}", path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
}

pub(crate) struct Cache {
    folder: PathBuf,
    engines: u64,
}

impl Cache {
    /// Opens the cache folder, creates it if needed, and checks that no other user can write to it.
    pub(crate) fn open(folder: &Path, engines: &[&wasmtime::Engine]) -> Result<Self, UntrustedFolder> {
        let io = |error| UntrustedFolder::Io { path: folder.to_owned(), error };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io)?;
        // Resolve links first, so that the checked path is the one that is used.
        let folder = folder.canonicalize().map_err(io)?;
        for (depth, path) in folder.ancestors().enumerate() {
            trust(path, depth == 0)?;
        }
        let mut hasher = DefaultHasher::new();
        for engine in engines {
            engine.precompile_compatibility_hash().hash(&mut hasher);
        }
        Ok(Self { folder, engines: hasher.finish() })
    }

    /// Returns the path of a component's compiled form, whether or not it exists.
    pub(crate) fn path(&self, digest: &str) -> PathBuf {
        self.folder.join(format!("{digest}-{:016x}.cwasm", self.engines))
    }

    /// Returns the path of a component's compiled form if the file exists and only this user can write to it.
    pub(crate) fn get(&self, digest: &str) -> Option<PathBuf> {
        let path = self.path(digest);
        let found = fs::symlink_metadata(&path).ok()?;
        (found.is_file() && found.uid() == our_uid() && found.mode() & 0o022 == 0).then_some(path)
    }

    /// Stores a component's compiled form, all of a file.
    pub(crate) fn put(&self, digest: &str, mut code: &File) -> io::Result<PathBuf> {
        let path = self.path(digest);
        // The temporary file has a unique name, so two processes never write to the same one. It has mode 0600 and is
        // deleted if any step fails.
        let draft = tempfile::NamedTempFile::new_in(&self.folder)?;
        code.rewind()?;
        // From file to file the kernel copies, without a buffer in this process.
        io::copy(&mut code, &mut draft.as_file())?;
        // Machine code has no checksum, so a power cut must not leave a partial file under the final name.
        draft.as_file().sync_all()?;
        draft.persist(&path)?;
        Ok(path)
    }
}

fn trust(path: &Path, is_cache: bool) -> Result<(), UntrustedFolder> {
    const STICKY: u32 = 0o1000;
    let found = fs::metadata(path).map_err(|error| UntrustedFolder::Io { path: path.to_owned(), error })?;
    let owner = found.uid();
    if owner != our_uid() && (is_cache || owner != 0) {
        return Err(UntrustedFolder::Owner { path: path.to_owned(), owner });
    }
    let mode = found.mode() & 0o7777;
    // In a sticky folder such as /tmp, other users may add files but cannot replace ours.
    if mode & 0o022 != 0 && (is_cache || mode & STICKY == 0) {
        return Err(UntrustedFolder::Mode { path: path.to_owned(), mode });
    }
    Ok(())
}

/// Returns the id of the user that owns the files of this process.
fn our_uid() -> u32 {
    // On Linux this user owns /proc/self. On other systems no user matches, so no folder is trusted.
    fs::metadata("/proc/self").map_or(u32::MAX, |found| found.uid())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn code() -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"code").unwrap();
        file
    }

    fn open(folder: &Path) -> Result<Cache, UntrustedFolder> {
        Cache::open(folder, &[&wasmtime::Engine::default()])
    }

    #[test]
    fn creates_a_private_folder_and_returns_what_was_stored() {
        let home = tempfile::tempdir().unwrap();
        let cache = open(&home.path().join("a/b")).unwrap();
        assert_eq!(fs::metadata(&cache.folder).unwrap().mode() & 0o777, 0o700);
        assert!(cache.get("d1").is_none());
        let path = cache.put("d1", &code()).unwrap();
        assert_eq!(cache.get("d1"), Some(path.clone()));
        assert_eq!(fs::read(path).unwrap(), b"code");
        assert_eq!(fs::read_dir(&cache.folder).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn rejects_a_folder_that_other_users_can_write_to() {
        let home = tempfile::tempdir().unwrap();
        for mode in [0o777, 0o770, 0o722] {
            let folder = home.path().join(format!("{mode:o}"));
            fs::create_dir(&folder).unwrap();
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            let error = open(&folder).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains("others may write"), "{mode:o}: {error}");
        }
    }

    #[test]
    fn rejects_a_folder_below_one_that_other_users_can_write_to() {
        let home = tempfile::tempdir().unwrap();
        let shared = home.path().join("shared");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(open(&shared.join("cache")), Err(UntrustedFolder::Mode { .. })));
    }

    #[test]
    fn ignores_links_and_files_that_other_users_can_write_to() {
        let home = tempfile::tempdir().unwrap();
        let cache = open(home.path()).unwrap();
        let path = cache.put("d1", &code()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(cache.get("d1"), None);
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
        assert_eq!(cache.get("d1"), None, "a link is ignored");
    }
}
