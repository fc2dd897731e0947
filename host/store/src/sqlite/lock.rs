//! The lock that makes one host the owner of a store.
//!
//! **Promise.** At most one process opens a store to serve it. A second one would resume the turns of the first, that is,
//! fail them as interrupted by a restart. The lock is a file beside the database, `talaria.db.lock`, which the owner keeps
//! locked with `flock` for as long as it lives. The kernel releases it however the process ends, so there is no stale lock to
//! remove after `kill -9`. Paths are resolved first: two links to one database find the same lock.
//!
//! **Failure.** If another process holds the lock, [`OpenError::InUse`] names it. On a file system without locks the store
//! opens with a warning, because nothing can be known there.
//!
//! **Why this way.** The content of the file is for people only: a process id in it may belong to another process, in another
//! container or on another machine, and only the kernel knows whether the owner still lives. The database itself is not
//! locked this way, because on some network file systems `flock` and SQLite's own locks are the same. The file is never
//! deleted: a process could then lock a file that is gone while another one locks its successor.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use talaria_turns::Timestamp;

use super::OpenError;

/// How long to wait for a lock that another process holds for a moment: [`Owner::of`] takes it to find out whether it is free.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often to try meanwhile.
const TRY_EVERY: Duration = Duration::from_millis(10);
/// More than an owner writes.
const LONGEST: u64 = 4096;

/// The process that owns a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Its process id, on its machine or in its container.
    pub pid: u32,
    /// The name of its machine or container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The address that it serves, if it serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// When it opened the store.
    pub since: String,
}

/// A store that this process owns until the lock is dropped.
#[derive(Debug)]
pub(super) struct StoreLock {
    _file: Option<File>,
}

// === impl StoreLock ===

impl StoreLock {
    /// Makes this process the owner of a store whose file exists. `address` is what it tells others about itself.
    pub(super) fn take(database: &Path, address: Option<&str>) -> Result<Self, OpenError> {
        let failed = |source| OpenError::NotWritable { file: database.to_owned(), source };
        let path = beside(database).map_err(failed)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file =
            options.open(&path).map_err(|source| OpenError::NotWritable { file: path.clone(), source })?;
        let begin = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if begin.elapsed() < PATIENCE => {
                    std::thread::sleep(TRY_EVERY);
                }
                Err(TryLockError::WouldBlock) => {
                    let owner =
                        read(&mut file).map_or_else(|| "another process".into(), |owner| owner.to_string());
                    return Err(OpenError::InUse { file: database.to_owned(), owner });
                }
                Err(TryLockError::Error(error)) => {
                    tracing::warn!(
                        %error, file = %path.display(),
                        "the file system has no locks; make sure that no other talaria uses this store"
                    );
                    return Ok(Self { _file: None });
                }
            }
        }
        // A process that cannot lock the file reads this; a failure costs others only the name of the owner.
        if let Err(error) = write(&mut file, &Owner::this(address)) {
            tracing::warn!(%error, file = %path.display(), "the owner of the store is not recorded");
        }
        Ok(Self { _file: Some(file) })
    }
}

// === impl Owner ===

impl Owner {
    /// Returns the process that owns a store now. `None` if no process does, or if the file system cannot tell.
    #[must_use]
    pub fn of(database: &Path) -> Option<Self> {
        // A shared lock fails exactly while an owner has the exclusive one; it is dropped at once.
        let mut file = File::open(beside(database).ok()?).ok()?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Some(read(&mut file).unwrap_or_else(Self::unknown)),
            Ok(()) | Err(TryLockError::Error(_)) => None,
        }
    }

    fn this(address: Option<&str>) -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        Self {
            pid: std::process::id(),
            host: host.map(|host| host.trim().to_owned()).filter(|host| !host.is_empty()),
            address: address.map(str::to_owned),
            since: Timestamp::now().to_string(),
        }
    }

    /// An owner that has not written its name yet.
    fn unknown() -> Self {
        Self { pid: 0, host: None, address: None, since: Timestamp::now().to_string() }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, host, address, since } = self;
        write!(f, "talaria, pid {pid}")?;
        if let Some(host) = host {
            write!(f, " on {host}")?;
        }
        if let Some(address) = address {
            write!(f, ", serving {address}")?;
        }
        write!(f, ", since {since}")
    }
}

/// The lock file of a database, the same for every path to it.
fn beside(database: &Path) -> io::Result<PathBuf> {
    let mut path = database.canonicalize()?.into_os_string();
    path.push(".lock");
    Ok(path.into())
}

fn read(file: &mut File) -> Option<Owner> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(LONGEST).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn write(file: &mut File, owner: &Owner) -> io::Result<()> {
    let text = serde_json::to_string(owner)?;
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(text.as_bytes())
}
