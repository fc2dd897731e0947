//! Tests beyond what every store promises.

mod agreement;
mod copies;
mod durability;
mod ownership;
mod trouble;

use std::path::PathBuf;

use rusqlite::Connection;
use tempfile::TempDir;

use super::{Config, Sqlite};

crate::suite::every_promise!(empty);

fn empty() -> (Sqlite, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (open(&folder), folder)
}

fn file(folder: &TempDir) -> PathBuf {
    folder.path().join("talaria.db")
}

fn open(folder: &TempDir) -> Sqlite {
    Sqlite::open(&file(folder), &Config::default()).unwrap()
}

/// Counts rows through a connection beside the store.
fn count(folder: &TempDir, sql: &str) -> i64 {
    let connection = Connection::open(file(folder)).unwrap();
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}
