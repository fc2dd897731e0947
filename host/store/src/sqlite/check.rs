//! Looks at a store without owning it: whether it can be written, and whether everything in it can be read.
//!
//! Both work beside a running host, change nothing, and resume no turns. [`check`] reads each task in a transaction of its
//! own, so that the write-ahead log of the host can be merged meanwhile.

use std::io::Write as _;
use std::path::Path;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use serde::Serialize;
use talaria_turns::StoreError;

use super::fault::Fault;
use super::ledger::Room;
use super::write::natural;
use super::{Config, OpenError, connect, open_reading, read, schema};

/// The problems that are reported at most.
const MOST: usize = 20;
/// The tasks that are listed at once.
const PAGE: i64 = 256;
/// The bytes that prove that there is room on the disk: more than a small turn writes.
const ROOM: usize = 64 << 10;

/// The result of a check.
#[derive(Debug, Serialize)]
pub struct Checked {
    /// The version of its tables.
    pub schema: usize,
    /// The newest version that this program knows.
    pub known_schema: usize,
    /// The tasks.
    pub tasks: u64,
    /// Their events.
    pub events: u64,
    /// The turns that are not over.
    pub open_turns: u64,
    /// The size of the database.
    pub bytes: u64,
    /// The part of it that is free for new tasks.
    pub free_bytes: u64,
    /// The size of the write-ahead log.
    pub log_bytes: u64,
    /// What is wrong; at most twenty findings.
    pub problems: Vec<String>,
}

/// Reads a whole store: SQLite's own check, and every task folded from its log and compared with its row.
///
/// # Errors
/// [`OpenError`] if the file is not a store that this program can read.
pub fn check(path: &Path) -> Result<Checked, OpenError> {
    let failed = |error| OpenError::sql(path, error);
    let connection = open_existing(path)?;
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map(natural);
    let schema = schema::version(&connection).map_err(failed)?;
    let page = number("PRAGMA page_size").map_err(failed)?;
    let mut checked = Checked {
        schema,
        known_schema: schema::MIGRATIONS.len(),
        tasks: 0,
        events: 0,
        open_turns: 0,
        bytes: number("PRAGMA page_count").map_err(failed)? * page,
        free_bytes: number("PRAGMA freelist_count").map_err(failed)? * page,
        log_bytes: log_bytes(path),
        problems: integrity(&connection).map_err(failed)?,
    };
    // A file without tables becomes a store when a host opens it.
    if schema > 0 {
        checked.tasks = number("SELECT count(*) FROM tasks").map_err(failed)?;
        checked.events = number("SELECT coalesce(sum(count), 0) FROM events").map_err(failed)?;
        let pending = "SELECT coalesce(sum(pending), 0) FROM tasks WHERE ended_at IS NULL";
        checked.open_turns = number(pending).map_err(failed)?;
    }
    if schema == checked.known_schema && checked.problems.is_empty() {
        fold_all(&connection, &mut checked.problems).map_err(failed)?;
    }
    Ok(checked)
}

/// Whether a host with this configuration could write new messages to the store: takes the lock of a writer and returns it,
/// writes a file beside it, and looks how full it is.
///
/// # Errors
/// [`OpenError`], with the remedy.
pub fn try_write(path: &Path, config: &Config) -> Result<(), OpenError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Err(OpenError::NoFolder { file: path.to_owned(), folder: folder.to_owned() });
    }
    let room = || {
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(&[1; ROOM])?;
        file.as_file().sync_all()
    };
    room().map_err(|source| OpenError::NotWritable { file: path.to_owned(), source })?;
    let failed = |error| OpenError::sql(path, error);
    if !path.exists() {
        return has_room(path, config, &Connection::open_in_memory().map_err(failed)?);
    }
    drop(open_existing(path)?);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = connect(path, flags, &Config::default()).map_err(failed)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    transaction.rollback().map_err(failed)?;
    has_room(path, config, &connection)
}

fn has_room(path: &Path, config: &Config, connection: &Connection) -> Result<(), OpenError> {
    match Room::new(path, config).check(connection) {
        Ok(()) => Ok(()),
        Err(Fault::Refused(StoreError::Full(why))) => Err(OpenError::Full { file: path.to_owned(), why }),
        Err(Fault::Sql(error)) => Err(OpenError::sql(path, error)),
        Err(fault) => Err(OpenError::Full { file: path.to_owned(), why: fault.text() }),
    }
}

/// Opens a store that exists, to read it.
pub(super) fn open_existing(path: &Path) -> Result<Connection, OpenError> {
    let failed = |error| OpenError::sql(path, error);
    if !path.exists() {
        return Err(OpenError::Missing { file: path.to_owned() });
    }
    let connection = open_reading(path, &Config::default()).map_err(failed)?;
    schema::accept(path, &connection)?;
    Ok(connection)
}

/// What SQLite finds wrong with the file.
pub(super) fn integrity(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut check = connection.prepare(&format!("PRAGMA integrity_check({MOST})"))?;
    let found = check.query_map([], |row| row.get::<_, String>(0))?;
    found.filter(|line| line.as_ref().map_or(true, |line| line != "ok")).collect()
}

fn fold_all(connection: &Connection, problems: &mut Vec<String>) -> rusqlite::Result<()> {
    let mut page = connection.prepare("SELECT key, id FROM tasks WHERE key > ?1 ORDER BY key LIMIT ?2")?;
    let mut after = 0;
    loop {
        let rows = page.query_map([after, PAGE], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let rows: Vec<(i64, String)> = rows.collect::<Result<_, _>>()?;
        let Some((last, _)) = rows.last() else { return Ok(()) };
        after = *last;
        for (key, id) in &rows {
            if problems.len() >= MOST {
                return Ok(());
            }
            // One moment for the row and its events, because a host may append meanwhile.
            let moment = connection.unchecked_transaction()?;
            let found = read::fold_row(&moment, *key);
            match found {
                Ok(None) => {}
                Ok(Some((task, version))) if task.version == version => {}
                Ok(Some((task, version))) => problems.push(format!(
                    "task {id}: its log ends with event {}, its row says {version}",
                    task.version
                )),
                Err(Fault::Sql(error)) => return Err(error),
                Err(fault) => problems.push(format!("task {id}: {}", fault.text())),
            }
        }
    }
}

fn log_bytes(path: &Path) -> u64 {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    std::fs::metadata(log).map_or(0, |file| file.len())
}
