//! The errors of the SQLite store, with the remedy in their text.
//!
//! A [`Fault`] has two texts: a caller of the store gets the kind of fault without the name of the file, because that text
//! may reach a client; the log and [`OpenError`] name the file.

use std::path::PathBuf;

use rusqlite::ErrorCode;
use talaria_turns::{InvalidId, StoreError};

/// Why a read or a write failed.
#[derive(Debug)]
pub(super) enum Fault {
    /// The store rejected the write; nothing was written.
    Refused(StoreError),
    /// SQLite failed.
    Sql(rusqlite::Error),
    /// The content of the file is not what was written.
    Unreadable(String),
}

/// Why a file cannot be opened as a store.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder of the file does not exist.
    #[error("the folder of {} does not exist; create it with `mkdir -p {}`", .file.display(), .folder.display())]
    NoFolder {
        /// The file.
        file: PathBuf,
        /// Its folder.
        folder: PathBuf,
    },
    /// The file cannot be created or written.
    #[error("cannot create or write {}: {source}; the file and its folder must be writable", .file.display())]
    NotWritable {
        /// The file.
        file: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The file or its disk is so full that new messages are rejected.
    #[error("{} is full: {why}", .file.display())]
    Full {
        /// The file.
        file: PathBuf,
        /// How full, and the remedy.
        why: String,
    },
    /// Another process owns the file.
    #[error("{} is in use ({owner}); stop that process, or name another file in `store.url`", .file.display())]
    InUse {
        /// The file.
        file: PathBuf,
        /// The process.
        owner: String,
    },
    /// The file does not exist.
    #[error("there is no store at {}; name it in `store.url`, or start `talaria serve` once", .file.display())]
    Missing {
        /// The file.
        file: PathBuf,
    },
    /// The file is damaged or not a database.
    #[error(
        "{} is damaged or no SQLite database ({source}); restore it from a copy, or move it away to begin anew",
        .file.display()
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// The file is a database of another application.
    #[error("{} is a database of another application; name another file in `store.url`", .file.display())]
    Foreign {
        /// The file.
        file: PathBuf,
    },
    /// A newer Talaria wrote the file.
    #[error(
        "{} has schema version {found}, this Talaria knows up to {known}; run the newer Talaria, or another file",
        .file.display()
    )]
    Newer {
        /// The file.
        file: PathBuf,
        /// The version of the file.
        found: usize,
        /// The newest version that this host knows.
        known: usize,
    },
    /// The file system lacks what a write-ahead log needs.
    #[error(
        "{} cannot have a write-ahead log (SQLite chose `{mode}`); put it on a local file system",
        .file.display()
    )]
    NoLog {
        /// The file.
        file: PathBuf,
        /// The journal mode that SQLite would use instead.
        mode: String,
    },
    /// Any other error of SQLite.
    #[error("cannot open {}: {} ({source})", .file.display(), trouble(.source))]
    Sql {
        /// The file.
        file: PathBuf,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// No thread could be started.
    #[error("cannot start a thread for the store: {0}")]
    Thread(std::io::Error),
}

// === impl Fault ===

impl Fault {
    /// Returns the error for the caller of the store.
    pub(super) fn into_store(self) -> StoreError {
        match self {
            Self::Refused(error) => error,
            Self::Sql(_) | Self::Unreadable(_) => StoreError::Unavailable(self.text()),
        }
    }

    /// Returns the text for the caller of the store.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Refused(error) => error.to_string(),
            Self::Sql(error) => trouble(error).into(),
            Self::Unreadable(what) => format!("a record is not readable: {what}"),
        }
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<serde_json::Error> for Fault {
    fn from(error: serde_json::Error) -> Self {
        Self::Unreadable(error.to_string())
    }
}

impl From<InvalidId> for Fault {
    fn from(error: InvalidId) -> Self {
        Self::Unreadable(format!("an id {error}"))
    }
}

// === impl OpenError ===

impl OpenError {
    pub(super) fn sql(file: &std::path::Path, source: rusqlite::Error) -> Self {
        let file = file.to_owned();
        match source.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Self::Damaged { file, source },
            _ => Self::Sql { file, source },
        }
    }
}

/// The kinds of faults that have different remedies.
fn trouble(error: &rusqlite::Error) -> &'static str {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => "the disk is full, or the database has reached its bound; make room",
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "the database is locked by another process; end that process, or try again later"
        }
        Some(ErrorCode::SystemIoFailure) => "the disk fails to read or write; check it",
        Some(ErrorCode::ReadOnly) => "the database is read-only; make the file and its folder writable",
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            "the database cannot be opened; make the file and its folder readable and writable"
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            "the database is damaged; restore it from a copy"
        }
        Some(ErrorCode::TooBig) => "what should be written is over SQLite's bound on one value",
        Some(ErrorCode::OutOfMemory) => "the database has no memory",
        _ => "the database failed; the log has the details",
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    #[test]
    fn troubles_with_different_remedies_read_differently() {
        let codes = [
            (ffi::SQLITE_FULL, "disk is full"),
            (ffi::SQLITE_BUSY, "locked"),
            (ffi::SQLITE_BUSY_SNAPSHOT, "locked"),
            (ffi::SQLITE_IOERR_WRITE, "read or write"),
            (ffi::SQLITE_READONLY, "read-only"),
            (ffi::SQLITE_READONLY_DIRECTORY, "read-only"),
            (ffi::SQLITE_CANTOPEN, "cannot be opened"),
            (ffi::SQLITE_CORRUPT, "damaged"),
        ];
        for (code, words) in codes {
            let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            let text = Fault::from(error).into_store().to_string();
            assert!(text.starts_with("the store is unavailable: ") && text.contains(words), "{code}: {text}");
        }
    }
}
