//! Files that other processes and users write: read within bounds, and replaced whole.
//!
//! Such a file can be missing, huge, binary, a pipe or a link. Reading is bounded and never blocks on anything but a regular
//! file; what cannot be used is a [`Trouble`], one sentence with the path, and the caller goes on without it.

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

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
    read_text(path, most, |_| Ok(()))
}

/// Reads a file as [`text`] does, from a folder of a user with fewer rights than this process: no link is followed.
///
/// # Errors
/// As [`text`], and if the path is a link.
pub fn unlinked_text(path: &Path, most: usize) -> Result<Option<String>, Trouble> {
    read_text(path, most, |file| must_be(file, path))
}

/// Checks that an open file is the one at a path, and not one that a link there leads to. The check comes after opening, so
/// that the owner of the folder cannot change it in between.
///
/// # Errors
/// If it is another file, or cannot be checked.
pub fn must_be(file: &File, path: &Path) -> io::Result<()> {
    let (opened, there) = (file.metadata()?, fs::symlink_metadata(path)?);
    match there.is_file() && (opened.dev(), opened.ino()) == (there.dev(), there.ino()) {
        true => Ok(()),
        false => Err(io::Error::other("it is a link, and its owner may not read what this process may")),
    }
}

fn read_text(
    path: &Path,
    most: usize,
    judge: impl Fn(&File) -> io::Result<()>,
) -> Result<Option<String>, Trouble> {
    let trouble = |what: String| Trouble::new(path, what);
    let unreadable = |error: io::Error| trouble(format!("cannot be read ({error}); left out"));
    match path.metadata() {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => return Err(trouble("is not a regular file; left out".into())),
        Err(error) if is_missing(&error) => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    }
    let mut bytes = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    let read = File::open(path).and_then(|file| {
        judge(&file)?;
        file.take(limit).read_to_end(&mut bytes)
    });
    read.map_err(unreadable)?;
    if bytes.len() > most {
        return Err(trouble(format!("is longer than {most} bytes; left out")));
    }
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(Some(text)),
        _ => Err(trouble("is not UTF-8 text; left out".into())),
    }
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
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn links_are_followed_only_if_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "text").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for path in [&file, &link] {
            assert_eq!(text(path, 100).unwrap().as_deref(), Some("text"));
        }
        assert_eq!(unlinked_text(&file, 100).unwrap().as_deref(), Some("text"));
        assert!(unlinked_text(&link, 100).unwrap_err().to_string().contains("it is a link"));
        assert_eq!(unlinked_text(&folder.path().join("missing"), 100).unwrap(), None);
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
