//! Copies of a store: a backup while the host runs, and a restore while it does not.
//!
//! **Promise.** A backup is the store at one moment, whatever is written meanwhile, in one file that needs no other. A copy
//! is complete before it has its name: it is written to a temporary file, checked, forced to the disk and renamed. A restore
//! replaces the store only after the copy passed SQLite's check, and keeps what was there as `talaria.db.bak`.
//!
//! **Failure.** [`CopyError`], and nothing has changed.
//!
//! **Why this way.** Pages are copied, in one read transaction. `VACUUM INTO` would number the rows of the log anew, and the
//! numbers are cursors that others hold. Without the transaction the copy would begin again at every write of the host.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};
use serde::Serialize;
use tempfile::{NamedTempFile, TempPath};

use super::check::{integrity, open_existing};
use super::lock::StoreLock;
use super::{Config, OpenError, connect, create_file, schema};

/// What every SQLite database begins with.
const HEADER: &[u8; 16] = b"SQLite format 3\0";
/// The pages that are copied between two reports: 4 MiB.
const PAGES: i32 = 1024;
/// The pause after another process held a lock.
const PAUSE: Duration = Duration::from_millis(20);
/// The backups beside the store that a restore may leave.
const KEPT: u32 = 100;

/// The progress of a copy, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// What is copied.
    pub done: u64,
    /// What there is to copy.
    pub total: u64,
}

/// A backup.
#[derive(Debug, Serialize)]
pub struct Copied {
    /// Where it is.
    pub file: PathBuf,
    /// Its size.
    pub bytes: u64,
}

/// A restored store.
#[derive(Debug, Serialize)]
pub struct Restored {
    /// The store.
    pub file: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// The file that it replaced, under its new name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaced: Option<PathBuf>,
}

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The original, or the store to replace, cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There is a file of that name.
    #[error("{} exists; name another file, or replace it with --force", .0.display())]
    Exists(PathBuf),
    /// The copy is the store itself.
    #[error("{} is the store itself; name another file", .0.display())]
    Itself(PathBuf),
    /// The file has no tables.
    #[error("{} is empty; name a file that `talaria store backup` wrote", .0.display())]
    Empty(PathBuf),
    /// The copy is damaged, and so is the original.
    #[error("{} is damaged: {finding}; nothing was changed", .file.display())]
    Damaged {
        /// The original.
        file: PathBuf,
        /// What SQLite found first.
        finding: String,
    },
    /// SQLite failed.
    #[error("cannot copy {}: {source}", .file.display())]
    Sql {
        /// The original.
        file: PathBuf,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", .file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// Copies a store to a file, while a host may write to it. `report` is called every 4 MiB.
///
/// # Errors
/// [`CopyError`]. A file of that name is replaced only if `overwrite`.
pub fn backup(
    store: &Path,
    to: &Path,
    overwrite: bool,
    report: &mut dyn FnMut(Progress),
) -> Result<Copied, CopyError> {
    let itself = to.canonicalize().is_ok_and(|to| store.canonicalize().is_ok_and(|store| store == to));
    if itself {
        return Err(CopyError::Itself(to.to_owned()));
    }
    if !overwrite && to.exists() {
        return Err(CopyError::Exists(to.to_owned()));
    }
    let (copy, bytes) = copy_beside(store, to, report)?;
    let named = if overwrite { copy.persist(to) } else { copy.persist_noclobber(to) };
    named.map_err(|error| failed(to, error.error))?;
    sync_folder(to);
    Ok(Copied { file: to.to_owned(), bytes })
}

/// Replaces a store, which no host may own, by a copy of `from`.
///
/// # Errors
/// [`CopyError`]; then the store is as it was.
pub fn restore(from: &Path, store: &Path, report: &mut dyn FnMut(Progress)) -> Result<Restored, CopyError> {
    let existed = store.exists();
    // A link is followed: what it points to is replaced, not the link.
    let store =
        &if existed { store.canonicalize().map_err(|error| failed(store, error))? } else { store.to_owned() };
    if from.canonicalize().is_ok_and(|from| from == *store) {
        return Err(CopyError::Itself(from.to_owned()));
    }
    let original = open_existing(from)?;
    let is_empty = schema::version(&original).map_err(|error| OpenError::sql(from, error))? == 0;
    drop(original);
    if is_empty {
        return Err(CopyError::Empty(from.to_owned()));
    }
    create_file(store)?;
    let restored = (|| {
        // Held until the new file is in place.
        let _lock = StoreLock::take(store, None)?;
        let (copy, bytes) = copy_beside(from, store, report)?;
        let replaced = existed.then(|| set_aside(store)).transpose()?;
        copy.persist(store).map_err(|error| failed(store, error.error))?;
        sync_folder(store);
        Ok(Restored { file: store.clone(), bytes, replaced })
    })();
    if restored.is_err() && !existed {
        // Made above, for the lock.
        let _ = fs::remove_file(store);
    }
    restored
}

/// Copies a database to a temporary file in the folder of `to`, and checks the copy.
fn copy_beside(
    from: &Path,
    to: &Path,
    report: &mut dyn FnMut(Progress),
) -> Result<(TempPath, u64), CopyError> {
    let sql = |source| CopyError::Sql { file: from.to_owned(), source };
    let original = open_existing(from)?;
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Made with mode 0600, as the store.
    let draft = NamedTempFile::new_in(folder).map_err(|error| failed(to, error))?.into_temp_path();
    let mut copy = Connection::open(&draft).map_err(sql)?;
    // The draft is deleted after a crash anyway.
    copy.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF").map_err(sql)?;
    let moment = original.unchecked_transaction().map_err(sql)?;
    let page: i64 = moment.query_row("PRAGMA page_size", [], |row| row.get(0)).map_err(sql)?;
    // The transaction begins with the first read of a table.
    moment.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())).map_err(sql)?;
    copy_pages(&moment, &mut copy, page, report).map_err(sql)?;
    drop(moment);
    // One file, which needs no log beside it.
    copy.pragma_update_and_check(None, "journal_mode", "DELETE", |_| Ok(())).map_err(sql)?;
    if let Some(finding) = integrity(&copy).map_err(sql)?.into_iter().next() {
        return Err(CopyError::Damaged { file: from.to_owned(), finding });
    }
    copy.close().map_err(|(_, error)| sql(error))?;
    let file = File::open(&draft).map_err(|error| failed(to, error))?;
    file.sync_all().map_err(|error| failed(to, error))?;
    let bytes = file.metadata().map_err(|error| failed(to, error))?.len();
    Ok((draft, bytes))
}

fn copy_pages(
    from: &Connection,
    to: &mut Connection,
    page: i64,
    report: &mut dyn FnMut(Progress),
) -> rusqlite::Result<()> {
    let copying = Backup::new(from, to)?;
    let bytes = |pages: std::ffi::c_int| u64::try_from(i64::from(pages) * page).unwrap_or(0);
    loop {
        let step = copying.step(PAGES)?;
        let at = copying.progress();
        let total = bytes(at.pagecount);
        report(Progress { done: total.saturating_sub(bytes(at.remaining)), total });
        match step {
            StepResult::Done => return Ok(()),
            StepResult::More => {}
            // Busy or locked: another process has the file for a moment.
            _ => std::thread::sleep(PAUSE),
        }
    }
}

/// Gives a store another name, with its write-ahead log if that cannot be merged.
fn set_aside(store: &Path) -> Result<PathBuf, CopyError> {
    let named = |base: &Path, suffix: &str| {
        let mut name = base.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    // Closing the last connection merges the log and deletes it. It would also delete the log of a file that is not a database.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if is_database(store)
        && let Ok(connection) = connect(store, flags, &Config::default())
    {
        let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    }
    let names = std::iter::once(".bak".to_owned()).chain((1..KEPT).map(|number| format!(".bak.{number}")));
    let free = names.map(|suffix| named(store, &suffix)).find(|name| !name.exists());
    let aside = free.ok_or_else(|| CopyError::Exists(named(store, ".bak")))?;
    for suffix in ["-wal", "-shm"] {
        match fs::rename(named(store, suffix), named(&aside, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(store, error)),
            _ => {}
        }
    }
    // A second name first, so that there is a store at every moment.
    fs::hard_link(store, &aside)
        .or_else(|_| fs::rename(store, &aside))
        .map_err(|error| failed(&aside, error))?;
    Ok(aside)
}

/// Whether a file begins as a database does.
fn is_database(file: &Path) -> bool {
    let mut begin = [0; HEADER.len()];
    File::open(file).and_then(|mut file| file.read_exact(&mut begin)).is_ok() && begin == *HEADER
}

/// Forces a rename to the disk, where the file system can do that.
fn sync_folder(file: &Path) {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}

fn failed(file: &Path, source: io::Error) -> CopyError {
    CopyError::Io { file: file.to_owned(), source }
}
