//! The workspace's folder: reading what others wrote into it, and writing what must not be seen half.
//!
//! Everything that is read here is somebody else's: it can be missing, huge, binary, a pipe, or named so that it leads
//! out of the folder. Reading is bounded and never blocks on what is no regular file; what cannot be used is a
//! [`Trouble`], one sentence with the path, and the caller goes on without it.
//!
//! A [`Reader`] also remembers what it looked at, so that [`Seen::is_current`] can tell whether reading again would
//! give something else. Stamps are compared, not contents; a file that changed at the moment of the reading counts as
//! changed, since its stamp could stay the same.

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Most entries of one folder that are looked at. A workspace has tens of skills.
const ENTRIES: usize = 500;

/// A change that is younger than this when it is seen may be followed by one with the same time stamp: kernels count in
/// ticks of up to 10 ms, network file systems more coarsely.
const SETTLED: Duration = Duration::from_millis(100);

/// Something that cannot be used: where, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {what}", .path.escape_debug())]
pub struct Trouble {
    /// Which file, folder or key.
    pub path: String,
    /// What is wrong, and what happens instead.
    pub what: String,
}

/// Reads files and remembers which.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    seen: Vec<(PathBuf, Option<Stamp>)>,
    /// What could not be used.
    pub(crate) troubles: Vec<Trouble>,
}

/// What a reader looked at.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen(Vec<(PathBuf, Option<Stamp>)>);

/// What tells one state of a file from the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stamp {
    At {
        inode: u64,
        modified: (i64, i64),
        changed: (i64, i64),
        bytes: u64,
    },
    /// It was being changed when it was read.
    Unsettled,
}

// === impl Trouble ===

impl Trouble {
    pub(crate) fn new(path: impl AsRef<Path>, what: impl Into<String>) -> Self {
        Self { path: path.as_ref().to_string_lossy().into_owned(), what: what.into() }
    }
}

// === impl Reader ===

impl Reader {
    /// The text of a file of at most `most` bytes; none where there is no file, or none that can be used.
    pub(crate) fn text(&mut self, path: &Path, most: usize) -> Option<String> {
        self.look(path);
        match text(path, most) {
            Ok(text) => text,
            Err(trouble) => {
                self.troubles.push(trouble);
                None
            }
        }
    }

    /// The names in a folder, in order; none where there is no folder. Names that are no text are left out.
    pub(crate) fn names(&mut self, folder: &Path) -> Vec<String> {
        self.look(folder);
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if is_missing(&error) => return Vec::new(),
            Err(error) => {
                self.troubles.push(Trouble::new(folder, format!("cannot be read ({error}); left out")));
                return Vec::new();
            }
        };
        let mut names = Vec::new();
        for entry in entries.flatten() {
            if names.len() == ENTRIES {
                let what = format!("holds more than {ENTRIES} entries; the rest is left out");
                self.troubles.push(Trouble::new(folder, what));
                break;
            }
            match entry.file_name().into_string() {
                Ok(name) if !name.chars().any(char::is_control) => names.push(name),
                Ok(name) => self
                    .troubles
                    .push(Trouble::new(folder.join(name), "its name has control characters; left out")),
                Err(name) => {
                    self.troubles.push(Trouble::new(folder.join(name), "its name is no text; left out"))
                }
            }
        }
        names.sort_unstable();
        names
    }

    pub(crate) fn trouble(&mut self, path: impl AsRef<Path>, what: impl Into<String>) {
        self.troubles.push(Trouble::new(path, what));
    }

    /// Everything that was looked at.
    pub(crate) fn seen(self) -> (Seen, Vec<Trouble>) {
        (Seen(self.seen), self.troubles)
    }

    fn look(&mut self, path: &Path) {
        self.seen.push((path.to_owned(), Stamp::of(path, SystemTime::now())));
    }
}

// === impl Seen ===

impl Seen {
    /// Whether reading again would give the same.
    pub(crate) fn is_current(&self) -> bool {
        let now = SystemTime::now();
        self.0.iter().all(|(path, stamp)| match stamp {
            Some(Stamp::Unsettled) => false,
            stamp => Stamp::of(path, now) == *stamp,
        })
    }
}

// === impl Stamp ===

impl Stamp {
    /// None where nothing is there.
    fn of(path: &Path, now: SystemTime) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        let settled = metadata.modified().ok().and_then(|at| now.duration_since(at).ok());
        Some(match settled {
            Some(age) if age >= SETTLED => Self::At {
                inode: metadata.ino(),
                modified: (metadata.mtime(), metadata.mtime_nsec()),
                changed: (metadata.ctime(), metadata.ctime_nsec()),
                bytes: metadata.len(),
            },
            _ => Self::Unsettled,
        })
    }
}

/// The text of a regular file; none where nothing is there.
pub(crate) fn text(path: &Path, most: usize) -> Result<Option<String>, Trouble> {
    read_text(path, most, |_| Ok(()))
}

/// The same from a folder of somebody who may do less than this process: nothing is read that a link leads to.
pub(crate) fn unlinked_text(path: &Path, most: usize) -> Result<Option<String>, Trouble> {
    read_text(path, most, |file| must_be(file, path))
}

/// Fails unless a file is the one at a path, and not one that a link there leads to. Asked after the file was opened, so
/// that whoever owns the folder cannot change it in between.
pub(crate) fn must_be(file: &File, path: &Path) -> io::Result<()> {
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
        Ok(_) => return Err(trouble("is no regular file; left out".into())),
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
        _ => Err(trouble("is no text in UTF-8; left out".into())),
    }
}

/// A path inside `folder`, from a name that somebody else wrote. It may lead into folders, never out of them.
pub(crate) fn inside(folder: &Path, name: &str) -> Result<PathBuf, Trouble> {
    let path = Path::new(name);
    let plain = |component: Component<'_>| matches!(component, Component::Normal(_) | Component::CurDir);
    if name.trim().is_empty() || name.chars().any(char::is_control) || !path.components().all(plain) {
        return Err(Trouble::new(name, "is no name of a file in the workspace's folder; left out"));
    }
    Ok(folder.join(path))
}

/// Replaces a file that only its owner may read: whoever looks sees the old one or the new one, whole.
pub(crate) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    // Made with mode 0600, and gone again where anything fails.
    let mut draft = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(Path::new("")))?;
    draft.write_all(text.as_bytes())?;
    draft.as_file().sync_all()?;
    draft.persist(path)?;
    Ok(())
}

/// Whether others than its owner may read or write a file.
pub(crate) fn is_shared(metadata: &Metadata) -> bool {
    metadata.mode() & 0o077 != 0
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_cannot_be_used_is_told_once_and_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
        write("good", "text ä".as_bytes());
        write("long", &[b'x'; 101]);
        write("binary", b"a\0b");
        write("latin", b"\xe4");
        let mut reader = Reader::default();
        let mut read = |name: &str| reader.text(&folder.path().join(name), 100);
        assert_eq!(read("good").as_deref(), Some("text ä"));
        for bad in ["long", "binary", "latin", "", "missing", "good/below"] {
            assert_eq!(read(bad), None, "{bad}");
        }
        let said: Vec<_> = reader.troubles.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 4, "what is missing is no trouble: {said:?}");
        assert!(said[0].ends_with("long: is longer than 100 bytes; left out"), "{said:?}");
    }

    #[test]
    fn links_are_followed_only_where_they_may_be() {
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
    fn names_do_not_lead_out() {
        let folder = Path::new("/configs");
        assert_eq!(inside(folder, "prompts/a.md").unwrap(), folder.join("prompts/a.md"));
        for name in ["", " ", "../x", "a/../../x", "/etc/passwd", "a\nb", "a\0b"] {
            let trouble = inside(folder, name).unwrap_err().to_string();
            assert!(!trouble.contains(['\n', '\0']), "{trouble:?}");
        }
    }

    #[test]
    fn a_change_is_seen_and_quiet_is_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let seen = |path: &Path| {
            let mut reader = Reader::default();
            reader.text(path, 100);
            reader.names(path.parent().unwrap());
            reader.seen().0
        };
        let old = SystemTime::now() - Duration::from_secs(5);
        let age = |path: &Path| File::open(path).unwrap().set_modified(old).unwrap();
        age(folder.path());
        let missing = seen(&path);
        assert!(missing.is_current());
        fs::write(&path, "one").unwrap();
        assert!(!missing.is_current(), "it is there now");
        assert!(!seen(&path).is_current(), "it changed a moment ago");
        age(&path);
        age(folder.path());
        let settled = seen(&path);
        assert!(settled.is_current());
        fs::write(&path, "two").unwrap();
        age(&path);
        assert!(!settled.is_current(), "same length, same time, other content");
    }

    #[test]
    fn a_private_file_is_replaced_whole_and_is_its_owners() {
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
