//! The workspace's folder: bounded reads of files that others wrote, and atomic writes.
//!
//! The files are not trusted: each can be missing, huge, binary, a pipe, or a link. Reads are bounded and never block on
//! anything but a regular file. A file that cannot be used is a [`Trouble`], one sentence with the path, and the caller
//! continues without it.
//!
//! What is read goes into a prompt or the agent card, so a plugin or a skill must not bring in a file of somebody else. A
//! [`Folder`] is what its files are confined to: the workspace's folder for prompt files, the folder of each plugin, the
//! folder of each skill. Links are followed, but a file that is not in the folder when it has been opened is refused, and so
//! is a hidden one, whose name begins with a dot, such as a token. A hidden folder is refused too, with one exception: one
//! that begins with two dots and that a link leads to. Kubernetes mounts a config map as links into `..data`.
//!
//! A [`Reader`] also records which paths it read, so that [`Seen::is_current`] can report whether reading again would give
//! a different result. It compares stamps, not contents. A file that changed just before it was read counts as changed,
//! since the next change could leave it with the same stamp.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use talaria_config::files::{self, is_missing};
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

/// A folder whose files may go into a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Folder {
    /// Its path, as it was named.
    path: PathBuf,
    /// The same without links.
    real: PathBuf,
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
    pub(crate) fn text(&mut self, folder: &Folder, name: &str, most: usize) -> Option<String> {
        if let Ok(path) = folder.join(name) {
            self.look(&path);
        }
        match folder.text(name, most) {
            Ok(text) => text,
            Err(trouble) => {
                self.troubles.push(trouble);
                None
            }
        }
    }

    /// Returns a folder in a folder; `None` if it cannot be used. One that does not exist has no files.
    pub(crate) fn enter(&mut self, folder: &Folder, name: &str) -> Option<Folder> {
        if let Ok(path) = folder.join(name) {
            self.look(&path);
        }
        match folder.enter(name) {
            Ok(found) => found,
            Err(trouble) => {
                self.troubles.push(trouble);
                None
            }
        }
    }

    /// Returns the sorted names in a folder, without hidden ones; empty if there is no folder. Names that are not text are
    /// left out.
    pub(crate) fn names(&mut self, folder: &Folder) -> Vec<String> {
        let folder = folder.path.as_path();
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
                Ok(name) if name.starts_with('.') => {}
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

// === impl Folder ===

impl Folder {
    /// A folder of the configuration, which may be a link itself. One that does not exist has no files.
    pub(crate) fn open(path: &Path) -> Self {
        Self { path: path.to_owned(), real: path.canonicalize().unwrap_or_else(|_| path.to_owned()) }
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of an untrusted name. It may lead into subfolders, but never out of the folder, and to nothing hidden.
    pub(crate) fn join(&self, name: &str) -> Result<PathBuf, Trouble> {
        let plain = |component: Component<'_>| match component {
            Component::Normal(name) => !name.as_encoded_bytes().starts_with(b"."),
            Component::CurDir => true,
            _ => false,
        };
        let path = Path::new(name);
        if name.trim().is_empty() || name.chars().any(char::is_control) || !path.components().all(plain) {
            return Err(Trouble::new(name, "is not the name of a visible file in its folder; left out"));
        }
        Ok(self.path.join(path))
    }

    /// Reads a file of at most `most` bytes; `None` if it is missing.
    pub(crate) fn text(&self, name: &str, most: usize) -> Result<Option<String>, Trouble> {
        let path = self.join(name)?;
        match files::open(&path) {
            Ok(file) => {
                self.must_hold(&file, &path)?;
                files::text_of(&file, &path, most).map(Some)
            }
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(Trouble::new(&path, format!("cannot be read ({error}); left out"))),
        }
    }

    /// Appends to a file, which is created if there is nothing of its name.
    pub(crate) fn append(&self, name: &str, text: &str) -> Result<(), Trouble> {
        let path = self.join(name)?;
        let unwritable = |error| Trouble::new(&path, format!("cannot be written ({error})"));
        let mut options = File::options();
        options.append(true).custom_flags(files::NONBLOCK);
        let opened = match options.open(&path) {
            // Unlike `create`, this does not create what a link leads to.
            Err(error) if is_missing(&error) => options.create_new(true).open(&path),
            opened => opened,
        };
        let mut file = opened.map_err(unwritable)?;
        self.must_hold(&file, &path)?;
        files::must_be_regular(&file).and_then(|()| file.write_all(text.as_bytes())).map_err(unwritable)
    }

    /// Returns a folder in this one; `None` if it is a file. One that does not exist has no files.
    fn enter(&self, name: &str) -> Result<Option<Self>, Trouble> {
        let path = self.join(name)?;
        let real = match path.canonicalize() {
            Ok(real) if real.is_dir() => real,
            Ok(_) => return Ok(None),
            Err(error) if is_missing(&error) => self.real.join(name),
            Err(error) => return Err(Trouble::new(&path, format!("cannot be read ({error}); left out"))),
        };
        let names = names_below(&self.real, &real).ok_or_else(|| self.leads_out(&path))?;
        match names.iter().any(|name| is_hidden_folder(name)) {
            true => Err(leads_to_hidden(&path)),
            false => Ok(Some(Self { path, real })),
        }
    }

    /// Checks that an open file is in this folder and not hidden. That is asked of the open file, so that nobody can change a
    /// link in between.
    fn must_hold(&self, file: &File, path: &Path) -> Result<(), Trouble> {
        let real = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let real =
            real.map_err(|error| Trouble::new(path, format!("cannot be found ({error}); left out")))?;
        let names = names_below(&self.real, &real).ok_or_else(|| self.leads_out(path))?;
        match names.split_last() {
            Some((last, folders))
                if !is_hidden(last) && !folders.iter().any(|name| is_hidden_folder(name)) =>
            {
                Ok(())
            }
            _ => Err(leads_to_hidden(path)),
        }
    }

    fn leads_out(&self, path: &Path) -> Trouble {
        Trouble::new(path, format!("is a link that leads out of {}; left out", self.path.display()))
    }
}

fn leads_to_hidden(path: &Path) -> Trouble {
    Trouble::new(path, "is a link to a hidden file or folder; left out")
}

/// The names that lead from one folder to a path below it.
fn names_below(folder: &Path, path: &Path) -> Option<Vec<String>> {
    let below = path.strip_prefix(folder).ok()?;
    Some(below.iter().map(|name| name.to_string_lossy().into_owned()).collect())
}

fn is_hidden(name: &str) -> bool {
    name.starts_with('.')
}

/// Whether a folder is hidden and not one of those that Kubernetes makes.
fn is_hidden_folder(name: &str) -> bool {
    is_hidden(name) && !name.starts_with("..")
}

#[cfg(test)]
mod tests;
