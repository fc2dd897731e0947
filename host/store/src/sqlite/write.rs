//! The writes.
//!
//! A [`Write`] is prepared by its caller, with all JSON encoded, so that the one writer only has to read a row and write.
//! It can be run again, because a group of writes that fails is run one by one. A write that is rejected has written
//! nothing, because every check comes before the first change.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _, params};
use talaria_turns::{
    ContextId, Event, IllegalMove, Once, Principal, PushConfigId, Said, State, StateKey, StoreError, TaskKey,
    Timestamp,
};

use super::fault::Fault;
use super::ledger::{Books, Holding};
use super::{callbacks, delegations, read, schema};

/// The tasks that one write deletes. Each has rows in four tables; so many keep the writer busy for some milliseconds.
pub(super) const FORGET_AT_ONCE: usize = 200;

/// The events that a task has before it gets a snapshot: several times as many as a turn without streaming makes.
pub(super) const FIRST_SNAPSHOT: u64 = 64;

/// A write.
pub(super) enum Write {
    /// A new task.
    Create { key: TaskKey, context: ContextId, host_made: bool, change: Change },
    /// More events. Returns how many events the task has beyond its snapshot.
    Append { key: TaskKey, expected: u64, change: Change },
    /// A snapshot: the task as JSON, folded up to a version.
    Snapshot { key: TaskKey, version: u64, json: String },
    /// A value of an executor.
    State { key: StateKey, value: Option<Arc<[u8]>> },
    /// Sets a push configuration; one of the same id keeps its cursor.
    SetPush { key: TaskKey, id: PushConfigId, json: String, cursor: u64 },
    /// Deletes a push configuration.
    DeletePush { key: TaskKey, id: PushConfigId },
    /// Moves the cursor of a push configuration, and sets whether it is given up: when, and why as JSON.
    MovePush { key: TaskKey, id: PushConfigId, cursor: u64, given_up: Option<(Timestamp, String)> },
    /// Deletes the tasks of an owner that ended, up to and including this one, but no more than [`FORGET_AT_ONCE`]. Returns
    /// how many.
    Forget { owner: Principal, newest: Ended },
    /// Nothing, if a new message would be written; otherwise it is rejected like one.
    Room,
    /// A write of expected replies and callbacks.
    Callbacks(callbacks::Write),
    /// A write of delegations.
    Delegations(delegations::Write),
}

/// When a task ended, then its id, so that no two of an owner are equal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ended {
    pub(super) at: i64,
    pub(super) id: String,
}

/// What events change in the row of a task.
pub(super) struct Change {
    count: u64,
    at: Timestamp,
    pub(super) json: String,
    /// For each state that the task may have: the state after the events, or the event that is not legal.
    moves: [(State, Result<State, IllegalMove>); 8],
    /// The time of the last status among the events.
    status_at: Option<Timestamp>,
    /// How the number of turns that have not ended changes: the difference, and the least result.
    turns: (i64, i64),
    /// The message that is accepted once.
    once: Option<Once>,
    /// Whether a message is accepted, which a full store rejects.
    accepts: bool,
    /// What the operator's list shows.
    said: Said,
}

// === impl Change ===

impl Change {
    pub(super) fn of(events: &[Arc<Event>], once: Option<&Once>) -> Result<Self, StoreError> {
        let plain: Vec<&Event> = events.iter().map(AsRef::as_ref).collect();
        let json = serde_json::to_string(&plain)
            .map_err(|error| StoreError::Unavailable(format!("an event cannot be written: {error}")))?;
        let mut change = Self {
            count: events.len() as u64,
            at: Timestamp::now(),
            json,
            moves: schema::states().map(|from| (from, from.check(events))),
            status_at: None,
            turns: (0, 0),
            once: once.cloned(),
            accepts: events.iter().any(|event| matches!(**event, Event::Accepted { .. })),
            said: Said::of(plain.iter().copied()),
        };
        let (more, least) = &mut change.turns;
        for event in events {
            match &**event {
                Event::Accepted { .. } => (*more, *least) = (*more + 1, *least + 1),
                Event::Status { status, ends_turn, .. } => {
                    change.status_at = Some(status.at);
                    if *ends_turn {
                        (*more, *least) = (*more - 1, (*least - 1).max(0));
                    }
                }
                _ => {}
            }
        }
        Ok(change)
    }

    fn after(&self, from: State) -> Result<State, StoreError> {
        let found = self.moves.iter().find(|(known, _)| *known == from);
        Ok(found.map_or(Ok(from), |(_, after)| *after)?)
    }

    fn turns(&self, before: i64) -> i64 {
        (before + self.turns.0).max(self.turns.1)
    }

    /// The bytes that are stored for the events.
    fn bytes(&self) -> i64 {
        if self.count > 0 { integer(self.json.len() as u64) } else { 0 }
    }
}

// === impl Write ===

impl Write {
    /// Runs the write within the open transaction. A write that is rejected has written nothing.
    pub(super) fn run(&self, connection: &Connection, books: &mut Books) -> Result<u64, Fault> {
        match self {
            Self::Create { key, context, host_made, change } => {
                create(connection, books, key, context, *host_made, change)
            }
            Self::Append { key, expected, change } => append(connection, books, key, *expected, change),
            Self::Snapshot { key, version, json } => snapshot(connection, key, *version, json),
            Self::State { key, value } => set_state(connection, key, value.as_deref()),
            Self::SetPush { key, id, json, cursor } => set_push_config(connection, key, id, json, *cursor),
            Self::DeletePush { key, id } => delete_push(connection, key, id),
            Self::MovePush { key, id, cursor, given_up } => {
                move_push_cursor(connection, key, id, *cursor, given_up.as_ref())
            }
            Self::Forget { owner, newest } => forget(connection, books, owner, newest),
            Self::Room => books.room.check(connection).map(|()| 0),
            Self::Callbacks(write) => write.run(connection),
            Self::Delegations(write) => write.run(connection),
        }
    }
}

fn create(
    connection: &Connection,
    books: &mut Books,
    key: &TaskKey,
    context: &ContextId,
    host_made: bool,
    change: &Change,
) -> Result<u64, Fault> {
    not_sent_before(connection, &key.owner, change)?;
    let state = change.after(State::Submitted)?;
    books.room.check(connection)?;
    let status_at = change.status_at.unwrap_or(change.at);
    let created = connection
        .prepare_cached(
            "INSERT INTO tasks
                 (owner, id, context, version, state, status_at, created_at, ended_at, pending, host_made, bytes,
                  executor, text)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, CASE WHEN ?10 THEN 1 ELSE EXISTS
                 (SELECT 1 FROM tasks WHERE owner = ?1 AND context = ?3 AND host_made) END, ?11, ?12, ?13)
             ON CONFLICT (owner, id) DO NOTHING",
        )?
        .execute(params![
            owner(key),
            key.task.as_str(),
            context.as_str(),
            integer(change.count),
            schema::word(state),
            millis(status_at),
            millis(change.at),
            state.is_terminal().then(|| millis(status_at)),
            change.turns(0),
            host_made,
            change.bytes(),
            change.said.executor,
            change.said.text.as_deref().unwrap_or_default(),
        ])?;
    if created == 0 {
        return Err(StoreError::Exists.into());
    }
    let row = connection.last_insert_rowid();
    insert_events(connection, row, 0, change)?;
    take_in(connection, key, row, change)?;
    let mut holding = Holding { bytes: change.bytes(), ..Holding::default() };
    holding.states.add(state, 1);
    books.note(&key.owner, holding);
    Ok(0)
}

fn append(
    connection: &Connection,
    books: &mut Books,
    key: &TaskKey,
    expected: u64,
    change: &Change,
) -> Result<u64, Fault> {
    not_sent_before(connection, &key.owner, change)?;
    let found = connection
        .prepare_cached(
            "SELECT key, version, state, pending, snapshot_version FROM tasks WHERE owner = ?1 AND id = ?2",
        )?
        .query_row(params![owner(key), key.task.as_str()], |row| {
            let state = schema::state(row.get_ref(2)?.as_str()?);
            Ok((
                row.get::<_, i64>(0)?,
                row.get::<_, i64>(1)?,
                state,
                row.get::<_, i64>(3)?,
                row.get::<_, i64>(4)?,
            ))
        })
        .optional()?;
    let (row, version, state, pending, snapshot) = found.ok_or(StoreError::NotFound)?;
    let actual = natural(version);
    if actual != expected {
        return Err(StoreError::Conflict { expected, actual }.into());
    }
    let before = state?;
    let state = change.after(before)?;
    if change.accepts {
        books.room.check(connection)?;
    }
    let is_updated = match change.status_at {
        None if change.turns == (0, 0) => grow(connection, row, version, change)?,
        status_at => {
            let status = (state, change.turns(pending), status_at.map(millis));
            let ends = state.is_terminal() && !before.is_terminal();
            move_to(connection, row, version, change, status, ends)?
        }
    };
    if !is_updated {
        return Err(Fault::Unreadable(format!("task {} changed within a transaction", key.task)));
    }
    insert_events(connection, row, version, change)?;
    note_said(connection, row, &change.said)?;
    take_in(connection, key, row, change)?;
    let mut holding = Holding { bytes: change.bytes(), ..Holding::default() };
    holding.states.add(before, -1);
    holding.states.add(state, 1);
    books.note(&key.owner, holding);
    Ok(natural(version - snapshot) + change.count)
}

// SQLite writes every index that has a column which a statement sets, whether or not the value changes. So there is a
// statement for each kind of change, which sets no other column. Each checks the version again: if another writer came after
// it was read, no row would match.

/// Changes the row of a task whose status stays.
fn grow(connection: &Connection, row: i64, version: i64, change: &Change) -> Result<bool, Fault> {
    let updated = connection
        .prepare_cached("UPDATE tasks SET version = ?3, bytes = bytes + ?4 WHERE key = ?1 AND version = ?2")?
        .execute(params![row, version, version + integer(change.count), change.bytes()])?;
    Ok(updated > 0)
}

/// Changes the row of a task whose state, turns or status change, and which may end by that.
fn move_to(
    connection: &Connection,
    row: i64,
    version: i64,
    change: &Change,
    (state, pending, status_at): (State, i64, Option<i64>),
    ends: bool,
) -> Result<bool, Fault> {
    let sql = match ends {
        false => {
            "UPDATE tasks SET version = ?3, bytes = bytes + ?4, state = ?5, pending = ?6,
             status_at = coalesce(?7, status_at) WHERE key = ?1 AND version = ?2"
        }
        true => {
            "UPDATE tasks SET version = ?3, bytes = bytes + ?4, state = ?5, pending = ?6,
             status_at = coalesce(?7, status_at), ended_at = ?7 WHERE key = ?1 AND version = ?2"
        }
    };
    let (after, state) = (version + integer(change.count), schema::word(state));
    let updated = connection.prepare_cached(sql)?.execute(params![
        row,
        version,
        after,
        change.bytes(),
        state,
        pending,
        status_at
    ])?;
    Ok(updated > 0)
}

fn insert_events(connection: &Connection, row: i64, version: i64, change: &Change) -> Result<(), Fault> {
    if change.count > 0 {
        connection
            .prepare_cached(
                "INSERT INTO events (task, first, count, events, at) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![row, version + 1, integer(change.count), change.json, millis(change.at)])?;
    }
    Ok(())
}

/// Notes what a further message of the caller says. Most appends have none.
fn note_said(connection: &Connection, row: i64, said: &Said) -> Result<(), Fault> {
    if !said.is_nothing() {
        connection
            .prepare_cached(
                "UPDATE tasks SET executor = coalesce(?2, executor), text = coalesce(?3, text) WHERE key = ?1",
            )?
            .execute(params![row, said.executor, said.text])?;
    }
    Ok(())
}

fn take_in(connection: &Connection, key: &TaskKey, row: i64, change: &Change) -> Result<(), Fault> {
    if let Some(Once { message, digest }) = &change.once {
        connection
            .prepare_cached("INSERT INTO accepted (owner, message, digest, task) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![owner(key), message.as_str(), digest, row])?;
    }
    Ok(())
}

/// Checks for a repetition before the first change, so that it is a rejection and not a fault of the whole group. Nothing
/// is written between this check and the insert, because both are in one transaction of the only writer.
fn not_sent_before(connection: &Connection, owner: &Principal, change: &Change) -> Result<(), Fault> {
    let Some(once) = &change.once else { return Ok(()) };
    match read::accepted(connection, owner, once)? {
        Some(task) => Err(StoreError::Sent(task).into()),
        None => Ok(()),
    }
}

fn snapshot(connection: &Connection, key: &TaskKey, version: u64, json: &str) -> Result<u64, Fault> {
    // A newer snapshot may have been stored first, or the task was deleted.
    let row: Option<i64> = connection
        .prepare_cached(
            "UPDATE tasks SET snapshot_version = ?3
             WHERE owner = ?1 AND id = ?2 AND snapshot_version < ?3 AND version >= ?3 RETURNING key",
        )?
        .query_row(params![owner(key), key.task.as_str(), integer(version)], |row| row.get(0))
        .optional()?;
    if let Some(row) = row {
        connection
            .prepare_cached(
                "INSERT INTO snapshots (task, snapshot) VALUES (?1, ?2)
                 ON CONFLICT (task) DO UPDATE SET snapshot = excluded.snapshot",
            )?
            .execute(params![row, json])?;
    }
    Ok(0)
}

fn set_state(connection: &Connection, key: &StateKey, value: Option<&[u8]>) -> Result<u64, Fault> {
    let (owner, context) = (key.owner.name().unwrap_or_default(), key.context.as_str());
    match value {
        Some(value) => connection
            .prepare_cached(
                "INSERT INTO state (owner, context, executor, key, value) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (owner, context, executor, key) DO UPDATE SET value = excluded.value",
            )?
            .execute(params![owner, context, key.executor, key.key, value])?,
        None => connection
            .prepare_cached(
                "DELETE FROM state WHERE owner = ?1 AND context = ?2 AND executor = ?3 AND key = ?4",
            )?
            .execute(params![owner, context, key.executor, key.key])?,
    };
    Ok(0)
}

fn set_push_config(
    connection: &Connection,
    key: &TaskKey,
    id: &PushConfigId,
    json: &str,
    cursor: u64,
) -> Result<u64, Fault> {
    let row = row(connection, key)?;
    connection
        .prepare_cached(
            "INSERT INTO hooks (task, id, hook, cursor) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (task, id)
             DO UPDATE SET hook = excluded.hook, given_up_at = NULL, given_up = NULL",
        )?
        .execute(params![row, id.as_str(), json, integer(cursor)])?;
    Ok(0)
}

fn delete_push(connection: &Connection, key: &TaskKey, id: &PushConfigId) -> Result<u64, Fault> {
    let row = row(connection, key)?;
    connection
        .prepare_cached("DELETE FROM hooks WHERE task = ?1 AND id = ?2")?
        .execute(params![row, id.as_str()])?;
    Ok(0)
}

fn move_push_cursor(
    connection: &Connection,
    key: &TaskKey,
    id: &PushConfigId,
    cursor: u64,
    given_up: Option<&(Timestamp, String)>,
) -> Result<u64, Fault> {
    let (at, why) = given_up.map(|(at, why)| (millis(*at), why.as_str())).unzip();
    connection
        .prepare_cached(
            "UPDATE hooks SET cursor = ?3, given_up_at = ?4, given_up = ?5
             WHERE task = (SELECT key FROM tasks WHERE owner = ?1 AND id = ?2) AND id = ?6",
        )?
        .execute(params![owner(key), key.task.as_str(), integer(cursor), at, why, id.as_str()])?;
    Ok(0)
}

/// Returns the key of the task in the other tables.
fn row(connection: &Connection, key: &TaskKey) -> Result<i64, Fault> {
    let row = connection
        .prepare_cached("SELECT key FROM tasks WHERE owner = ?1 AND id = ?2")?
        .query_row(params![owner(key), key.task.as_str()], |row| row.get(0))
        .optional()?;
    Ok(row.ok_or(StoreError::NotFound)?)
}

fn forget(
    connection: &Connection,
    books: &mut Books,
    owner: &Principal,
    newest: &Ended,
) -> Result<u64, Fault> {
    let name = owner.name().unwrap_or_default();
    let mut delete = connection.prepare_cached(
        "DELETE FROM tasks WHERE key IN (
             SELECT key FROM tasks WHERE owner = ?1 AND ended_at IS NOT NULL AND (ended_at, id) <= (?2, ?3)
             ORDER BY ended_at, id LIMIT ?4)
         RETURNING context, bytes, state",
    )?;
    let most = i64::try_from(FORGET_AT_ONCE).unwrap_or(i64::MAX);
    let deleted = delete
        .query_map(params![name, newest.at, newest.id, most], |row| {
            let state = schema::state(row.get_ref(2)?.as_str()?);
            Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, state))
        })?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let count = deleted.len() as u64;
    let mut change = Holding::default();
    for (context, bytes, state) in deleted {
        if let Ok(state) = state {
            change.states.add(state, -1);
        }
        change.bytes -= bytes;
        connection
            .prepare_cached(
                "DELETE FROM state WHERE owner = ?1 AND context = ?2
                 AND NOT EXISTS (SELECT 1 FROM tasks WHERE owner = ?1 AND context = ?2)",
            )?
            .execute(params![name, context])?;
    }
    books.note(owner, change);
    // So that the metric shows what became free.
    books.room.measure(connection)?;
    Ok(count)
}

/// Whether a task with so many events beyond its snapshot needs a new one.
///
/// Reading a task costs its snapshot and the events beyond it. These may be half as many as the snapshot holds: the cost of
/// snapshots then stays in proportion to the cost of writing the events, however long the task gets. A task below the
/// first bound never has a snapshot, and most tasks are.
pub(super) fn is_worth_a_snapshot(version: u64, beyond: u64) -> bool {
    beyond >= (version.saturating_sub(beyond) / 2).max(FIRST_SNAPSHOT)
}

pub(super) fn owner(key: &TaskKey) -> &str {
    key.owner.name().unwrap_or_default()
}

/// Converts to SQLite's signed integers; neither sequence numbers nor times are that large.
pub(super) fn integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn natural(value: i64) -> u64 {
    u64::try_from(value).unwrap_or_default()
}

pub(super) fn millis(at: Timestamp) -> i64 {
    integer(at.millis())
}
