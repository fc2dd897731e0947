//! The workspace's folder: bounded reads of files that others wrote, and atomic writes.
//!
//! The files are not trusted: each can be missing, huge, binary, a pipe, or have a name that leads out of the folder. Reads
//! are bounded and never block on anything but a regular file. A file that cannot be used is a [`Trouble`], one sentence
//! with the path, and the caller continues without it.
//!
//! A [`Reader`] also records which paths it read, so that [`Seen::is_current`] can report whether reading again would give
//! a different result. It compares stamps, not contents. A file that changed just before it was read counts as changed,
//! since the next change could leave it with the same stamp.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use talaria_config::files::is_missing;
pub(crate) use talaria_config::files::{Trouble, is_shared, text, write_private};

/// The maximum number of entries that are read from a folder. A workspace has tens of skills.
const ENTRIES: usize = 500;

/// The age from which a modification time is trusted. A younger change may be followed by another with the same time stamp:
/// kernels count in ticks of up to 10 ms, network file systems in coarser ones.
const SETTLED: Duration = Duration::from_millis(100);

/// Reads files and records their stamps.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    seen: Vec<(PathBuf, Option<Stamp>)>,
    /// The files that could not be used, and why.
    pub(crate) troubles: Vec<Trouble>,
}

/// The paths that a reader read, with their stamps.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen(Vec<(PathBuf, Option<Stamp>)>);

/// The metadata that changes when a file does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stamp {
    At {
        inode: u64,
        modified: (i64, i64),
        changed: (i64, i64),
        bytes: u64,
    },
    /// The file had just changed when it was read.
    Unsettled,
}

// === impl Reader ===

impl Reader {
    /// Reads a file of at most `most` bytes; `None` if it is missing or cannot be used.
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

    /// Returns the sorted names in a folder; empty if there is no folder. Names that are not text are left out.
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
                let what = format!("holds more than {ENTRIES} entries; the rest are left out");
                self.troubles.push(Trouble::new(folder, what));
                break;
            }
            match entry.file_name().into_string() {
                Ok(name) if !name.chars().any(char::is_control) => names.push(name),
                Ok(name) => self
                    .troubles
                    .push(Trouble::new(folder.join(name), "its name has control characters; left out")),
                Err(name) => {
                    self.troubles.push(Trouble::new(folder.join(name), "its name is not text; left out"))
                }
            }
        }
        names.sort_unstable();
        names
    }

    pub(crate) fn trouble(&mut self, path: impl AsRef<Path>, what: impl Into<String>) {
        self.troubles.push(Trouble::new(path, what));
    }

    /// Returns the stamps of everything that was read, and the problems.
    pub(crate) fn seen(self) -> (Seen, Vec<Trouble>) {
        (Seen(self.seen), self.troubles)
    }

    fn look(&mut self, path: &Path) {
        self.seen.push((path.to_owned(), Stamp::of(path, SystemTime::now())));
    }
}

// === impl Seen ===

impl Seen {
    /// Whether reading again would give the same result.
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
    /// Returns the stamp of a path; `None` if nothing is there.
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

/// Returns the path of an untrusted name inside `folder`. It may lead into subfolders, but never out of `folder`.
pub(crate) fn inside(folder: &Path, name: &str) -> Result<PathBuf, Trouble> {
    let path = Path::new(name);
    let plain = |component: Component<'_>| matches!(component, Component::Normal(_) | Component::CurDir);
    if name.trim().is_empty() || name.chars().any(char::is_control) || !path.components().all(plain) {
        return Err(Trouble::new(name, "is not the name of a file in the workspace's folder; left out"));
    }
    Ok(folder.join(path))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_file_that_cannot_be_used_is_reported_and_left_out() {
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
        assert_eq!(said.len(), 4, "a missing file is not a problem: {said:?}");
        assert!(said[0].ends_with("long: is longer than 100 bytes; left out"), "{said:?}");
    }

    #[test]
    fn names_cannot_lead_out_of_the_folder() {
        let folder = Path::new("/configs");
        assert_eq!(inside(folder, "prompts/a.md").unwrap(), folder.join("prompts/a.md"));
        for name in ["", " ", "../x", "a/../../x", "/etc/passwd", "a\nb", "a\0b"] {
            let trouble = inside(folder, name).unwrap_err().to_string();
            assert!(!trouble.contains(['\n', '\0']), "{trouble:?}");
        }
    }

    #[test]
    fn a_change_is_noticed_and_unchanged_files_stay_current() {
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
        assert!(!missing.is_current(), "the file exists now");
        assert!(!seen(&path).is_current(), "the file has just changed");
        age(&path);
        age(folder.path());
        let settled = seen(&path);
        assert!(settled.is_current());
        fs::write(&path, "two").unwrap();
        age(&path);
        assert!(!settled.is_current(), "same length and time, different content");
    }
}
