//! What is written, and how.
//!
//! A [`Write`] is worked out where it is asked for, JSON and all, so that the one writer does nothing but look at a
//! row and write. It can be run again: a group of writes that fails is taken apart. A write that is refused has
//! written nothing, since every check comes before the first change.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _, params};
use talaria_turns::{
    ContextId, Event, IllegalMove, Once, Principal, PushConfigId, State, StateKey, StoreError, TaskKey,
    Timestamp,
};

use super::fault::Fault;
use super::{callbacks, read, schema};

/// Tasks that one write forgets. Each has rows in four tables; as many keep the writer for some milliseconds.
pub(super) const FORGET_AT_ONCE: usize = 200;

/// Events that a task has before it gets a snapshot: several times what a turn without streaming makes.
pub(super) const FIRST_SNAPSHOT: u64 = 64;

/// One thing to write.
pub(super) enum Write {
    /// A new task.
    Create { key: TaskKey, context: ContextId, host_made: bool, change: Change },
    /// More events. Answers how many events the task has beyond its snapshot.
    Append { key: TaskKey, expected: u64, change: Change },
    /// A task as its events added up to a version that it has reached.
    Snapshot { key: TaskKey, version: u64, json: String },
    /// What an executor remembers.
    State { key: StateKey, value: Option<Arc<[u8]>> },
    /// A hook; one that is there keeps its cursor.
    SetPush { key: TaskKey, id: PushConfigId, json: String, cursor: u64 },
    /// A hook that is no more.
    DeletePush { key: TaskKey, id: PushConfigId },
    /// How far a hook is, and whether it is given up: since when, and why as JSON.
    MovePush { key: TaskKey, id: PushConfigId, cursor: u64, given_up: Option<(Timestamp, String)> },
    /// Tasks that ended, up to and with this one, but no more than [`FORGET_AT_ONCE`]. Answers how many.
    Forget { newest: Ended },
    /// Something about expected replies.
    Callbacks(callbacks::Write),
}

/// When a task ended, then its id and its owner, so that no two are equal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ended {
    pub(super) at: i64,
    pub(super) id: String,
    pub(super) owner: String,
}

/// What events do to a task's row.
pub(super) struct Change {
    count: u64,
    at: Timestamp,
    pub(super) json: String,
    /// For each state that the task may be in: the state after the events, or which of them is not legal.
    moves: [(State, Result<State, IllegalMove>); 8],
    /// When the last status among them began.
    status_at: Option<Timestamp>,
    /// Turns that are not over: so many more, but at least so many.
    turns: (i64, i64),
    /// The message that they take in once.
    once: Option<Once>,
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
}

// === impl Write ===

impl Write {
    /// Writes it, within the transaction that is open. What is refused has written nothing.
    pub(super) fn run(&self, connection: &Connection) -> Result<u64, Fault> {
        match self {
            Self::Create { key, context, host_made, change } => {
                create(connection, key, context, *host_made, change)
            }
            Self::Append { key, expected, change } => append(connection, key, *expected, change),
            Self::Snapshot { key, version, json } => snapshot(connection, key, *version, json),
            Self::State { key, value } => set_state(connection, key, value.as_deref()),
            Self::SetPush { key, id, json, cursor } => set_push_config(connection, key, id, json, *cursor),
            Self::DeletePush { key, id } => unhook(connection, key, id),
            Self::MovePush { key, id, cursor, given_up } => {
                move_push_cursor(connection, key, id, *cursor, given_up.as_ref())
            }
            Self::Forget { newest } => forget(connection, newest),
            Self::Callbacks(write) => write.run(connection),
        }
    }
}

fn create(
    connection: &Connection,
    key: &TaskKey,
    context: &ContextId,
    host_made: bool,
    change: &Change,
) -> Result<u64, Fault> {
    not_sent_before(connection, &key.owner, change)?;
    let state = change.after(State::Submitted)?;
    let status_at = change.status_at.unwrap_or(change.at);
    let created = connection
        .prepare_cached(
            "INSERT INTO tasks
                 (owner, id, context, version, state, status_at, created_at, ended_at, pending, host_made)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10 OR EXISTS
                 (SELECT 1 FROM tasks WHERE owner = ?1 AND context = ?3 AND host_made))
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
        ])?;
    if created == 0 {
        return Err(StoreError::Exists.into());
    }
    let row = connection.last_insert_rowid();
    insert_events(connection, row, 0, change)?;
    take_in(connection, key, row, change)?;
    Ok(0)
}

fn append(connection: &Connection, key: &TaskKey, expected: u64, change: &Change) -> Result<u64, Fault> {
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
    let state = change.after(state?)?;
    let ended = change.status_at.filter(|_| state.is_terminal());
    // The version again: were another to write between the two statements, nothing would match.
    let updated = connection
        .prepare_cached(
            "UPDATE tasks SET version = ?3, state = ?4, status_at = coalesce(?5, status_at), pending = ?6,
             ended_at = coalesce(?7, ended_at) WHERE key = ?1 AND version = ?2",
        )?
        .execute(params![
            row,
            version,
            version + integer(change.count),
            schema::word(state),
            change.status_at.map(millis),
            change.turns(pending),
            ended.map(millis),
        ])?;
    if updated == 0 {
        return Err(Fault::Unreadable(format!("task {} changed within a transaction", key.task)));
    }
    insert_events(connection, row, version, change)?;
    take_in(connection, key, row, change)?;
    Ok(natural(version - snapshot) + change.count)
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

fn take_in(connection: &Connection, key: &TaskKey, row: i64, change: &Change) -> Result<(), Fault> {
    if let Some(Once { message, digest }) = &change.once {
        connection
            .prepare_cached("INSERT INTO accepted (owner, message, digest, task) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![owner(key), message.as_str(), digest, row])?;
    }
    Ok(())
}

/// Looks before the first change, so that a repetition is refused and not a fault. Nobody writes between this and the
/// insert, which the table's key would refuse otherwise: both are in one transaction, and that is the only writer.
fn not_sent_before(connection: &Connection, owner: &Principal, change: &Change) -> Result<(), Fault> {
    let Some(once) = &change.once else { return Ok(()) };
    match read::accepted(connection, owner, once)? {
        Some(task) => Err(StoreError::Sent(task).into()),
        None => Ok(()),
    }
}

fn snapshot(connection: &Connection, key: &TaskKey, version: u64, json: &str) -> Result<u64, Fault> {
    // Another may have been faster, or the task is forgotten.
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

fn unhook(connection: &Connection, key: &TaskKey, id: &PushConfigId) -> Result<u64, Fault> {
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

/// What stands for the task in the other tables.
fn row(connection: &Connection, key: &TaskKey) -> Result<i64, Fault> {
    let row = connection
        .prepare_cached("SELECT key FROM tasks WHERE owner = ?1 AND id = ?2")?
        .query_row(params![owner(key), key.task.as_str()], |row| row.get(0))
        .optional()?;
    Ok(row.ok_or(StoreError::NotFound)?)
}

fn forget(connection: &Connection, newest: &Ended) -> Result<u64, Fault> {
    let mut delete = connection.prepare_cached(
        "DELETE FROM tasks WHERE key IN (
             SELECT key FROM tasks WHERE ended_at IS NOT NULL AND (ended_at, id, owner) <= (?1, ?2, ?3)
             ORDER BY ended_at, id, owner LIMIT ?4)
         RETURNING owner, context",
    )?;
    let most = i64::try_from(FORGET_AT_ONCE).unwrap_or(i64::MAX);
    let conversations = delete
        .query_map(params![newest.at, newest.id, newest.owner, most], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
        })?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    for (owner, context) in &conversations {
        connection
            .prepare_cached(
                "DELETE FROM state WHERE owner = ?1 AND context = ?2
                 AND NOT EXISTS (SELECT 1 FROM tasks WHERE owner = ?1 AND context = ?2)",
            )?
            .execute(params![owner, context])?;
    }
    Ok(conversations.len() as u64)
}

/// How many events beyond its snapshot make a task worth a new one.
///
/// Reading a task costs its snapshot and the events beyond it, so they may add half of what the snapshot holds: the
/// work of taking snapshots is then a part of the work of writing the events, however long the task gets. A task
/// below the first bound never has one, which spares most tasks all of it.
pub(super) fn is_worth_a_snapshot(version: u64, beyond: u64) -> bool {
    beyond >= (version.saturating_sub(beyond) / 2).max(FIRST_SNAPSHOT)
}

pub(super) fn owner(key: &TaskKey) -> &str {
    key.owner.name().unwrap_or_default()
}

/// SQLite's integers are signed; neither sequence numbers nor times reach that far.
pub(super) fn integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn natural(value: i64) -> u64 {
    u64::try_from(value).unwrap_or_default()
}

pub(super) fn millis(at: Timestamp) -> i64 {
    integer(at.millis())
}
