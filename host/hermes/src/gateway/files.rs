//! The files of a gateway's home.
//!
//! If the gateway runs as another user, every file there is read, written, created and deleted in that user's name
//! ([`Acting`]), and never as root; a failure is the user's, such as a missing permission. Only regular files are read, and only
//! up to a limit. Files are replaced, never written into, except for the log.
//!
//! Two things need root: a home that the user may not make or write to, and a log in a folder of root's (`place`).

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use secrecy::SecretString;
use serde_json::Value;
use talaria_config::files::{self, Trouble};
use talaria_config::yaml;

use super::place;
use super::user::{Acting, User};

/// The largest file of the gateway that is read.
const BYTES: usize = 4 << 20;

/// The home of a gateway.
#[derive(Debug, Clone)]
pub struct Home {
    path: PathBuf,
    acting: Acting,
}

/// The file without which the gateway resumes old turns by itself; Talaria knows better what became of them.
const CLEAN_SHUTDOWN: &str = ".clean_shutdown";

/// The number of bytes at the end of a log that are read.
const TAIL_BYTES: u64 = 256 << 10;

/// A log that is longer than this is started anew; the old one is kept with the suffix `.1`.
const LOG_BYTES: u64 = 16 << 20;

// === impl Home ===

impl Home {
    /// The home of a gateway that this process starts as `user`, or as its own user.
    pub fn new(path: impl Into<PathBuf>, user: Option<&User>) -> Self {
        Self { path: path.into(), acting: Acting::for_user(user) }
    }

    /// The home of a gateway that somebody else starts: of its owner.
    pub fn found(path: impl AsRef<Path>) -> Self {
        // Without a slash at the end, with which a link would count as what it leads to.
        let path: PathBuf = path.as_ref().components().collect();
        Self { acting: Acting::for_owner_of(&path), path }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The key in its `.env`, if there is one.
    pub fn key(&self) -> Option<SecretString> {
        self.variable("API_SERVER_KEY")
    }

    /// The value of a variable in its `.env`, if it is set and not empty.
    pub(crate) fn variable(&self, name: &str) -> Option<SecretString> {
        let text = self.text(".env").ok()??;
        let value_of = |line: &str| {
            let line = line.trim();
            let (known, value) = line.strip_prefix("export ").unwrap_or(line).split_once('=')?;
            (known.trim() == name).then(|| value.trim().trim_matches(['"', '\'']).to_owned())
        };
        let value = text.lines().filter_map(value_of).next_back()?;
        (!value.is_empty()).then(|| value.into())
    }

    /// The contents of its `config.yaml`; empty if it is missing or cannot be parsed.
    pub(crate) fn config(&self) -> Value {
        let text = self.text("config.yaml").ok().flatten().unwrap_or_default();
        Value::Object(yaml::mapping(&text).unwrap_or_default())
    }

    /// Whether it has an `.env` that can be read.
    pub(crate) fn has_env(&self) -> bool {
        matches!(self.text(".env"), Ok(Some(_)))
    }

    /// Reads one of its files; `None` if there is no such file.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, Trouble> {
        let path = self.path.join(name);
        let read = self.acting.act(|| files::text(&path, BYTES));
        read.unwrap_or_else(|error| Err(Trouble::new(&path, format!("cannot be read ({error}); left out"))))
    }

    /// Whether anybody but its owner may read or write one of its files.
    pub(super) fn is_shared(&self, name: &str) -> bool {
        let path = self.path.join(name);
        let found = self.acting.act(|| path.metadata()).and_then(|found| found);
        found.is_ok_and(|metadata| files::is_shared(&metadata))
    }

    /// Replaces one of its files.
    pub(super) fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let path = self.path.join(name);
        self.acting.act(|| files::write_private(&path, text))?
    }

    /// Deletes one of its files.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.path.join(name);
        self.acting.act(|| fs::remove_file(path))?
    }

    /// Opens a log to append to. A long one is started anew.
    pub(super) fn open_log(&self, log: &Path) -> io::Result<File> {
        let opened = self.acting.act(|| {
            if log.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() > LOG_BYTES) {
                let mut old = log.as_os_str().to_owned();
                old.push(".1");
                fs::rename(log, old)?;
            }
            let file = File::options().create(true).append(true).custom_flags(files::NONBLOCK).open(log)?;
            files::must_be_regular(&file)?;
            Ok(file)
        })?;
        match opened {
            Err(error) if self.is_roots(log, &error) => {
                place::open_file(log, OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE)
            }
            opened => opened,
        }
    }

    /// Whether a log that the gateway's user may not open can be one of root's: not if it is in the home.
    fn is_roots(&self, log: &Path, error: &io::Error) -> bool {
        self.is_denied(error) && !log.starts_with(&self.path)
    }

    /// The last lines of a log; empty if it cannot be read.
    pub(super) fn tail(&self, log: &Path, lines: usize) -> String {
        let read = || -> io::Result<String> {
            let mut file = match self.acting.act(|| files::open(log))? {
                Err(error) if self.is_roots(log, &error) => place::open_file(log, OFlags::RDONLY)?,
                opened => opened?,
            };
            files::must_be_regular(&file)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
            let mut bytes = Vec::new();
            file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let text = read().unwrap_or_default();
        let skipped = text.lines().count().saturating_sub(lines);
        text.lines().skip(skipped).collect::<Vec<_>>().join("\n")
    }

    /// Makes the folder if it is missing, and makes sure that the gateway can write to it.
    pub(super) fn make(&self) -> io::Result<()> {
        let write = || {
            self.acting.act(|| fs::create_dir_all(&self.path))??;
            self.write(CLEAN_SHUTDOWN, "")
        };
        match (write(), self.acting) {
            (Err(error), Acting::As { uid, gid }) if self.is_denied(&error) => {
                place::give(&self.path, uid, gid)?;
                self.write(CLEAN_SHUTDOWN, "")
            }
            (written, _) => written,
        }
    }

    /// Whether root could do what the gateway's user may not.
    fn is_denied(&self, error: &io::Error) -> bool {
        self.acting != Acting::Itself && error.kind() == io::ErrorKind::PermissionDenied
    }

    /// Saves the first version of a file that is about to be replaced.
    pub(super) fn save_first(&self, name: &str, text: &str) -> io::Result<()> {
        let beside = format!("{name}.before-talaria");
        let path = self.path.join(&beside);
        // Anything that is there counts, a link that leads nowhere too.
        match self.acting.act(|| fs::symlink_metadata(&path))? {
            Err(error) if files::is_missing(&error) => self.write(&beside, text),
            found => found.map(drop),
        }
    }
}
