//! Files that other processes and users write: read within bounds, and replaced whole.
//!
//! Such a file can be missing, huge, binary, a pipe or a link. Reading is bounded and never blocks on anything but a regular
//! file; what cannot be used is a [`Trouble`], one sentence with the path, and the caller goes on without it.

use std::fs::{File, Metadata};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// The flag with which opening a pipe does not wait for its other end.
#[expect(clippy::cast_possible_wrap, reason = "the flags of open(2) are positive numbers of the type int")]
pub const NONBLOCK: i32 = OFlags::NONBLOCK.bits() as i32;

/// A file, folder or key that cannot be used, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {what}", .path.escape_debug())]
pub struct Trouble {
    /// Which file, folder or key.
    pub path: String,
    /// What is wrong, and what happens instead.
    pub what: String,
}

// === impl Trouble ===

impl Trouble {
    /// A problem with this path.
    pub fn new(path: impl AsRef<Path>, what: impl Into<String>) -> Self {
        Self { path: path.as_ref().to_string_lossy().into_owned(), what: what.into() }
    }
}

/// Reads a regular file of at most `most` bytes; `None` if there is no file.
///
/// # Errors
/// [`Trouble`] if it is not a regular file, too long, not UTF-8, or cannot be read.
pub fn text(path: &Path, most: usize) -> Result<Option<String>, Trouble> {
    match open(path) {
        Ok(file) => text_of(&file, path, most).map(Some),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(unreadable(path, &error)),
    }
}

/// Opens a file for reading. A pipe without a writer or a device does not block; [`must_be_regular`] tells them apart.
///
/// # Errors
/// Those of the operating system.
pub fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(NONBLOCK).open(path)
}

/// Reads an open file as [`text`] does. `path` is for the problem.
///
/// # Errors
/// As [`text`].
pub fn text_of(file: &File, path: &Path, most: usize) -> Result<String, Trouble> {
    must_be_regular(file).map_err(|error| Trouble::new(path, format!("{error}; left out")))?;
    let mut bytes = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit).read_to_end(&mut bytes).map_err(|error| unreadable(path, &error))?;
    if bytes.len() > most {
        return Err(Trouble::new(path, format!("is longer than {most} bytes; left out")));
    }
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => Err(Trouble::new(path, "is not UTF-8 text; left out")),
    }
}

/// Checks that an open file is not a folder, pipe, device or socket. The check comes after opening, so that nobody can change
/// the file in between.
///
/// # Errors
/// If it is not a regular file.
pub fn must_be_regular(file: &File) -> io::Result<()> {
    match file.metadata()?.is_file() {
        true => Ok(()),
        false => Err(io::Error::other("is not a regular file")),
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Trouble {
    Trouble::new(path, format!("cannot be read ({error}); left out"))
}

/// Replaces a file with one that only its owner may read. A reader sees the old text or the new one, never a part.
///
/// # Errors
/// If it cannot be written; the old file stays then.
pub fn write_private(path: &Path, text: &str) -> io::Result<()> {
    // Created with mode 0600, and deleted if anything fails.
    let mut draft = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(Path::new("")))?;
    draft.write_all(text.as_bytes())?;
    draft.as_file().sync_all()?;
    draft.persist(path)?;
    Ok(())
}

/// Whether anybody but its owner may read or write a file.
pub fn is_shared(metadata: &Metadata) -> bool {
    metadata.mode() & 0o077 != 0
}

/// Whether an error means that there is no such file.
pub fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn neither_a_pipe_nor_a_device_nor_a_folder_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for path in [pipe.as_path(), folder.path(), Path::new("/dev/zero")] {
            let trouble = text(path, 100).unwrap_err().to_string();
            assert!(trouble.ends_with("is not a regular file; left out"), "{trouble}");
        }
        assert_eq!(text(&folder.path().join("missing"), 100).unwrap(), None);
    }

    #[test]
    fn a_private_file_is_replaced_whole_and_only_its_owner_may_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".auth_token");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        write_private(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
        assert!(write_private(&folder.path().join("no/such/folder"), "x").is_err());
    }
}
