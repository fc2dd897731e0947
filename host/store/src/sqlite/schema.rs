//! The tables, and the migration of older files.
//!
//! `user_version` is the number of [`MIGRATIONS`] that a file has had. Opening the file runs the others, each in a
//! transaction of its own together with the new number, so that a crash leaves a complete version. `application_id` marks
//! the file as ours. A database of another application is rejected before anything is written to it, and so is one of a
//! newer Talaria, whose tables this one cannot know.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};
use talaria_turns::State;

use super::fault::{Fault, OpenError};

/// "Tala", in ASCII.
const APPLICATION: i32 = 0x5461_6C61;

/// The migrations: the first makes version 1 of an empty file, the second makes version 2 of version 1, and so on.
pub(super) const MIGRATIONS: &[&str] = &[
    include_str!("v1.sql"),
    include_str!("v2.sql"),
    include_str!("v3.sql"),
    include_str!("v4.sql"),
    include_str!("v5.sql"),
    include_str!("v6.sql"),
    include_str!("v7.sql"),
    include_str!("v8.sql"),
    include_str!("v9.sql"),
    include_str!("v10.sql"),
];

/// What a file turns out to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Empty, or of a version that this host knows.
    Ours,
    /// Of a newer version.
    Newer(usize),
    /// Of another application.
    Foreign,
}

/// Finds out what a file is, without writing to it.
pub(super) fn look(connection: &Connection, migrations: &[&str]) -> rusqlite::Result<Found> {
    let application: i32 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let version = version(connection)?;
    Ok(match application {
        APPLICATION if version > migrations.len() => Found::Newer(version),
        APPLICATION => Found::Ours,
        0 if tables == 0 && version == 0 => Found::Ours,
        _ => Found::Foreign,
    })
}

/// Rejects a file that is not a store, or one of a newer version, without writing to it.
pub(super) fn accept(path: &Path, connection: &Connection) -> Result<(), OpenError> {
    let file = || path.to_owned();
    match look(connection, MIGRATIONS).map_err(|error| OpenError::sql(path, error))? {
        Found::Ours => Ok(()),
        Found::Foreign => Err(OpenError::Foreign { file: file() }),
        Found::Newer(found) => Err(OpenError::Newer { file: file(), found, known: MIGRATIONS.len() }),
    }
}

/// Migrates a file to the newest version.
pub(super) fn migrate(connection: &mut Connection, migrations: &[&str]) -> rusqlite::Result<()> {
    for (number, text) in (1..).zip(migrations) {
        // Immediate, so that of two hosts that start at once the second sees what the first migrated.
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if version(&transaction)? < number {
            transaction.execute_batch(text)?;
            transaction.pragma_update(None, "application_id", APPLICATION)?;
            transaction.pragma_update(None, "user_version", i64::try_from(number).unwrap_or(i64::MAX))?;
        }
        transaction.commit()?;
    }
    Ok(())
}

/// Returns the version of a file; 0 if it has no tables yet.
pub(super) fn version(connection: &Connection) -> rusqlite::Result<usize> {
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    // No Talaria writes a negative version; it is rejected as newer.
    Ok(usize::try_from(version).unwrap_or(usize::MAX))
}

/// Every state, with its name in the file.
const STATES: [(State, &str); 8] = [
    (State::Submitted, "submitted"),
    (State::Working, "working"),
    (State::InputRequired, "input-required"),
    (State::AuthRequired, "auth-required"),
    (State::Completed, "completed"),
    (State::Failed, "failed"),
    (State::Canceled, "canceled"),
    (State::Rejected, "rejected"),
];

/// All states.
pub(super) fn states() -> [State; 8] {
    STATES.map(|(state, _)| state)
}

/// Returns the name of a state in the file.
pub(super) fn word(state: State) -> &'static str {
    STATES.into_iter().find(|(known, _)| *known == state).map_or("", |(_, word)| word)
}

/// Returns the state of a name in the file.
pub(super) fn state(word: &str) -> Result<State, Fault> {
    let found = STATES.into_iter().find(|(_, known)| *known == word);
    found.map(|(state, _)| state).ok_or_else(|| Fault::Unreadable(format!("no state is called {word:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_has_a_word_that_leads_back_to_it() {
        for known in states() {
            assert_eq!(state(word(known)).unwrap(), known);
            assert_eq!(word(known), known.to_string(), "the file and the log use the same words");
        }
        assert!(matches!(state("asleep"), Err(Fault::Unreadable(_))));
    }

    #[test]
    fn a_file_is_brought_up_to_date_from_any_version_once() {
        let texts = ["CREATE TABLE a (x INTEGER)", "ALTER TABLE a ADD COLUMN y INTEGER DEFAULT 7"];
        for from in 0..=texts.len() {
            let mut connection = Connection::open_in_memory().unwrap();
            migrate(&mut connection, &texts[..from]).unwrap();
            if from > 0 {
                connection.execute("INSERT INTO a (x) VALUES (1)", []).unwrap();
            }
            for _ in 0..2 {
                assert_eq!(look(&connection, &texts).unwrap(), Found::Ours, "from {from}");
                migrate(&mut connection, &texts).unwrap();
            }
            assert_eq!(version(&connection).unwrap(), 2);
            let kept: i64 = connection.query_row("SELECT count(y) FROM a", [], |row| row.get(0)).unwrap();
            assert_eq!(kept, i64::from(from > 0), "from {from}");
        }
    }

    #[test]
    fn a_migration_that_fails_leaves_the_version_before() {
        let mut connection = Connection::open_in_memory().unwrap();
        let broken = ["CREATE TABLE a (x INTEGER)", "CREATE TABLE b (x INTEGER); CREATE TABLE a (x INTEGER)"];
        migrate(&mut connection, &broken).unwrap_err();
        assert_eq!(version(&connection).unwrap(), 1);
        let tables: i64 =
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).unwrap();
        assert_eq!(tables, 1, "b was rolled back");
    }
}
