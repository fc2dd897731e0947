//! The reads. Each function sees one snapshot of the file, because its caller opened a transaction.

use std::sync::Arc;

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, Row, params, params_from_iter};
use serde::de::DeserializeOwned;
use talaria_turns::{
    Begin, ContextId, EVENTS_BYTES, Entry, Event, Logged, Once, Page, Place, Principal, Query, StateKey,
    StoreError, StoredPushConfig, Task, TaskId, TaskKey, Timestamp,
};

use super::fault::Fault;
use super::ledger::Ledger;
use super::schema;
use super::write::{Ended, integer, is_worth_a_snapshot, millis, natural, owner};
use crate::{append_of, number};

/// The columns of a task that are needed to fold it.
struct Found {
    row: i64,
    id: TaskId,
    context: ContextId,
    created_at: Timestamp,
    snapshot: u64,
}

/// The columns of [`Found`].
const FOUND: &str = "key, id, context, created_at, snapshot_version";

impl Found {
    fn read(row: &Row<'_>) -> Result<Self, Fault> {
        Ok(Self {
            row: row.get(0)?,
            id: row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?.parse()?,
            context: row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?.parse()?,
            created_at: Timestamp::from_millis(natural(row.get(3)?)),
            snapshot: natural(row.get(4)?),
        })
    }

    /// Applies the later events to the snapshot.
    fn fold(self, connection: &Connection) -> Result<Task, Fault> {
        let mut task = if self.snapshot == 0 {
            let mut task = Task::new(self.id, self.context);
            task.status.at = self.created_at;
            task
        } else {
            connection
                .prepare_cached("SELECT snapshot FROM snapshots WHERE task = ?1")?
                .query_one([self.row], |row| Ok(parse(bytes(row, 0)?)))??
        };
        // A snapshot lies between two appends, so no row is split.
        let mut later = connection
            .prepare_cached("SELECT events FROM events WHERE task = ?1 AND first > ?2 ORDER BY first")?;
        let mut rows = later.query(params![self.row, integer(self.snapshot)])?;
        while let Some(row) = rows.next()? {
            let events: Vec<Event> = parse(bytes(row, 0)?)?;
            for event in &events {
                task.apply(event).map_err(|error| Fault::Unreadable(error.to_string()))?;
            }
        }
        Ok(task)
    }
}

pub(super) fn bytes<'row>(row: &'row Row<'_>, column: usize) -> rusqlite::Result<&'row [u8]> {
    Ok(row.get_ref(column)?.as_bytes()?)
}

/// Parses JSON that this store wrote. Its depth is bounded: it is that of what a client or a guest sent, which had a bound,
/// and a few levels more. The default bound of the parser would reject what was accepted.
pub(super) fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, Fault> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    reader.disable_recursion_limit();
    let value = T::deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

fn find(connection: &Connection, key: &TaskKey) -> Result<Option<Found>, Fault> {
    let mut find =
        connection.prepare_cached(&format!("SELECT {FOUND} FROM tasks WHERE owner = ?1 AND id = ?2"))?;
    let mut rows = find.query(params![owner(key), key.task.as_str()])?;
    rows.next()?.map(Found::read).transpose()
}

pub(super) fn task(connection: &Connection, key: &TaskKey) -> Result<Option<Arc<Task>>, Fault> {
    find(connection, key)?.map(|found| found.fold(connection).map(Arc::new)).transpose()
}

/// Folds the task in a row, and returns the version that the row says it has.
pub(super) fn fold_row(connection: &Connection, row: i64) -> Result<Option<(Task, u64)>, Fault> {
    let mut find =
        connection.prepare_cached(&format!("SELECT {FOUND}, version FROM tasks WHERE key = ?1"))?;
    let mut rows = find.query([row])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let version = natural(row.get(5)?);
    Ok(Some((Found::read(row)?.fold(connection)?, version)))
}

/// Returns a task as JSON, and its version, if it still needs a snapshot.
pub(super) fn snapshot(connection: &Connection, key: &TaskKey) -> Result<Option<(u64, String)>, Fault> {
    let Some(found) = find(connection, key)? else { return Ok(None) };
    let snapshot = found.snapshot;
    let task = found.fold(connection)?;
    if !is_worth_a_snapshot(task.version, task.version - snapshot) {
        return Ok(None);
    }
    Ok(Some((task.version, serde_json::to_string(&task)?)))
}

pub(super) fn events(
    connection: &Connection,
    key: &TaskKey,
    after: u64,
    limit: usize,
) -> Result<Vec<Entry>, Fault> {
    let found = find(connection, key)?.ok_or(StoreError::NotFound)?;
    // Begins with the row that has the first event, which may have earlier ones too.
    let mut select = connection.prepare_cached(
        "SELECT first, count, events FROM events WHERE task = ?1 AND first >= coalesce(
             (SELECT max(first) FROM events WHERE task = ?1 AND first <= ?2), 0)
         ORDER BY first",
    )?;
    let mut rows = select.query(params![found.row, integer(after.saturating_add(1))])?;
    let (mut entries, mut size) = (Vec::new(), 0);
    while entries.len() < limit
        && size < EVENTS_BYTES
        && let Some(row) = rows.next()?
    {
        let (first, count) = (natural(row.get(0)?), natural(row.get(1)?));
        if first + count <= after.saturating_add(1) {
            continue;
        }
        let events: Vec<Event> = parse(bytes(row, 2)?)?;
        for (sequence, event) in (first..).zip(events).filter(|(sequence, _)| *sequence > after) {
            if entries.len() >= limit || size >= EVENTS_BYTES {
                break;
            }
            size += event.size();
            entries.push(Entry { sequence, event: Arc::new(event) });
        }
    }
    Ok(entries)
}

pub(super) fn times(
    connection: &Connection,
    key: &TaskKey,
    after: u64,
) -> Result<Vec<(u64, Timestamp)>, Fault> {
    let found = find(connection, key)?.ok_or(StoreError::NotFound)?;
    let mut select = connection.prepare_cached(
        "SELECT first, iif(at = 0, status_at, at) FROM events JOIN tasks ON tasks.key = events.task
         WHERE task = ?1 AND first >= coalesce(
             (SELECT max(first) FROM events WHERE task = ?1 AND first <= ?2), 0)
         ORDER BY first",
    )?;
    let time = |row: &Row<'_>| Ok((natural(row.get(0)?), Timestamp::from_millis(natural(row.get(1)?))));
    let times = select.query_map(params![found.row, integer(after.saturating_add(1))], time)?;
    Ok(times.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn log(connection: &Connection, begin: Begin, limit: usize) -> Result<Vec<Logged>, Fault> {
    let begin = match begin {
        Begin::At(number) => number,
        Begin::Last(appends) => {
            let last = connection
                .prepare_cached("SELECT coalesce(max(rowid), 0) FROM events")?
                .query_one([], |row| row.get(0))?;
            number((natural(last) + 1).saturating_sub(appends as u64), 0)
        }
    };
    let mut select = connection.prepare_cached(
        "SELECT owner, id, context, events.rowid, first, iif(at = 0, status_at, at), events
         FROM events JOIN tasks ON tasks.key = events.task WHERE events.rowid >= ?1 ORDER BY events.rowid",
    )?;
    let mut rows = select.query([integer(append_of(begin))])?;
    let mut log = Vec::new();
    while log.len() < limit
        && let Some(row) = rows.next()?
    {
        let (append, first) = (natural(row.get(3)?), natural(row.get(4)?));
        let (key, at) = (key_of(row)?, Timestamp::from_millis(natural(row.get(5)?)));
        let context: ContextId = row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?.parse()?;
        let events: Vec<Event> = parse(bytes(row, 6)?)?;
        let logged = (first..).zip(events).enumerate().map(|(place, (sequence, event))| Logged {
            number: number(append, place),
            at,
            key: key.clone(),
            context: context.clone(),
            entry: Entry { sequence, event: Arc::new(event) },
        });
        let room = limit - log.len();
        log.extend(logged.filter(|logged| logged.number >= begin).take(room));
    }
    Ok(log)
}

pub(super) fn list(
    connection: &Connection,
    ledger: &Ledger,
    owner: &Principal,
    query: &Query,
) -> Result<Page, Fault> {
    let mut filter = String::from("FROM tasks WHERE owner = ?");
    let mut values = vec![Value::from(owner.name().unwrap_or_default().to_owned())];
    if let Some(context) = &query.context {
        filter.push_str(" AND context = ?");
        values.push(context.to_string().into());
    }
    if let Some(state) = query.state {
        filter.push_str(" AND state = ?");
        values.push(schema::word(state).to_owned().into());
    }
    if let Some(since) = query.since {
        filter.push_str(" AND status_at >= ?");
        values.push(millis(since).into());
    }
    let total = if query.context.is_none() && query.since.is_none() {
        ledger.count_at(|| begin(connection), owner, query.state)?
    } else {
        let mut count = connection.prepare_cached(&format!("SELECT count(*) {filter}"))?;
        let total: i64 = count.query_one(params_from_iter(&values), |row| row.get(0))?;
        usize::try_from(total).unwrap_or_default()
    };
    if let Some(after) = &query.after {
        filter.push_str(" AND (status_at, id) < (?, ?)");
        values.extend([millis(after.at).into(), after.task.to_string().into()]);
    }
    // One more than requested, to see whether there is a next page. But no more than there are: after the last one, SQLite
    // would look at all other tasks of the owner in vain.
    let most = query.limit.saturating_add(1).min(total);
    values.push(integer(most as u64).into());
    let mut page = connection
        .prepare_cached(&format!("SELECT {FOUND} {filter} ORDER BY status_at DESC, id DESC LIMIT ?"))?;
    let mut rows = page.query(params_from_iter(&values))?;
    let (mut tasks, mut size): (Vec<Arc<Task>>, usize) = (Vec::new(), 0);
    let mut next = None;
    while let Some(row) = rows.next()? {
        // Folded one after the other: a page of the largest tasks would take gigabytes.
        let task = if tasks.len() < query.limit { Some(Found::read(row)?.fold(connection)?) } else { None };
        size = task.as_ref().map_or(size, |task| size.saturating_add(task.size()));
        match task {
            Some(task) if tasks.is_empty() || size <= query.bytes => tasks.push(Arc::new(task)),
            _ => {
                next = tasks.last().map(|last| Place { at: last.status.at, task: last.id.clone() });
                break;
            }
        }
    }
    Ok(Page { tasks, next, total })
}

/// Begins the snapshot that later reads of the same transaction see.
fn begin(connection: &Connection) -> Result<(), Fault> {
    let mut first = connection.prepare_cached("SELECT 1 FROM tasks LIMIT 1")?;
    Ok(first.query_row([], |_| Ok(())).optional().map(drop)?)
}

pub(super) fn accepted(
    connection: &Connection,
    owner: &Principal,
    once: &Once,
) -> Result<Option<TaskId>, Fault> {
    let id: Option<String> = connection
        .prepare_cached(
            "SELECT tasks.id FROM accepted JOIN tasks ON tasks.key = accepted.task
             WHERE accepted.owner = ?1 AND accepted.message = ?2 AND accepted.digest = ?3",
        )?
        .query_row(params![owner.name().unwrap_or_default(), once.message.as_str(), once.digest], |row| {
            row.get(0)
        })
        .optional()?;
    Ok(id.map(|id| id.parse()).transpose()?)
}

pub(super) fn unfinished(connection: &Connection) -> Result<Vec<TaskKey>, Fault> {
    let mut select = connection.prepare_cached(
        "SELECT owner, id, state FROM tasks INDEXED BY tasks_by_status WHERE pending > 0 OR state = 'working'
         ORDER BY key",
    )?;
    let mut rows = select.query([])?;
    let mut keys = Vec::new();
    while let Some(row) = rows.next()? {
        // Turns that waited when their task ended have ended with it.
        if schema::state(&row.get::<_, String>(2)?)?.is_terminal() {
            continue;
        }
        keys.push(key_of(row)?);
    }
    Ok(keys)
}

/// Which finished tasks of an owner are deleted, oldest first.
pub(super) struct Cut {
    pub(super) owner: Principal,
    /// Those that ended before this.
    pub(super) since: Timestamp,
    /// All but the newest of this number.
    pub(super) keep: Option<usize>,
    /// As many as hold this number of bytes.
    pub(super) excess: u64,
}

/// Returns the newest task of the owner to delete; all that ended before it are deleted too.
pub(super) fn newest_to_forget(connection: &Connection, cut: &Cut) -> Result<Option<Ended>, Fault> {
    let owner = cut.owner.name().unwrap_or_default();
    let ended = |row: &Row<'_>| Ok(Ended { at: row.get(0)?, id: row.get(1)? });
    let by_age = connection
        .prepare_cached(
            "SELECT ended_at, id FROM tasks WHERE owner = ?1 AND ended_at < ?2
             ORDER BY ended_at DESC, id DESC LIMIT 1",
        )?
        .query_row(params![owner, millis(cut.since)], ended)
        .optional()?;
    let by_count = match cut.keep {
        Some(keep) => connection
            .prepare_cached(
                "SELECT ended_at, id FROM tasks WHERE owner = ?1 AND ended_at IS NOT NULL
                 ORDER BY ended_at DESC, id DESC LIMIT 1 OFFSET ?2",
            )?
            .query_row(params![owner, integer(keep as u64)], ended)
            .optional()?,
        None => None,
    };
    let mut by_bytes = None;
    if cut.excess > 0 {
        let mut select = connection.prepare_cached(
            "SELECT ended_at, id, bytes FROM tasks WHERE owner = ?1 AND ended_at IS NOT NULL
             ORDER BY ended_at, id",
        )?;
        let mut rows = select.query([owner])?;
        let mut freed = 0;
        while freed < cut.excess
            && let Some(row) = rows.next()?
        {
            freed += natural(row.get(2)?);
            by_bytes = Some(ended(row)?);
        }
    }
    Ok([by_age, by_count, by_bytes].into_iter().flatten().max())
}

pub(super) fn stuck(connection: &Connection, before: Timestamp) -> Result<Vec<TaskKey>, Fault> {
    let mut select = connection.prepare_cached(
        "SELECT owner, id FROM tasks INDEXED BY tasks_open WHERE ended_at IS NULL AND status_at < ?1 ORDER BY key",
    )?;
    let mut rows = select.query([millis(before)])?;
    let mut keys = Vec::new();
    while let Some(row) = rows.next()? {
        keys.push(key_of(row)?);
    }
    Ok(keys)
}

/// Reads the key of a task from the first two columns.
fn key_of(row: &Row<'_>) -> Result<TaskKey, Fault> {
    let owner = Principal::named(&row.get::<_, String>(0)?);
    Ok(TaskKey { owner, task: row.get::<_, String>(1)?.parse()? })
}

pub(super) fn push_configs(connection: &Connection, key: &TaskKey) -> Result<Vec<StoredPushConfig>, Fault> {
    let found = find(connection, key)?.ok_or(StoreError::NotFound)?;
    stored(connection, "hooks.task = ?1 ORDER BY hooks.id", found.row)
}

pub(super) fn open_push_configs(connection: &Connection) -> Result<Vec<StoredPushConfig>, Fault> {
    let open = "given_up_at IS NULL AND (cursor < version OR ended_at IS NULL) ORDER BY hooks.task LIMIT ?1";
    stored(connection, open, i64::MAX)
}

pub(super) fn given_up(connection: &Connection, limit: usize) -> Result<Vec<StoredPushConfig>, Fault> {
    let newest = "given_up_at IS NOT NULL ORDER BY given_up_at DESC LIMIT ?1";
    stored(connection, newest, integer(limit as u64))
}

fn stored(connection: &Connection, which: &str, parameter: i64) -> Result<Vec<StoredPushConfig>, Fault> {
    let mut select = connection.prepare_cached(&format!(
        "SELECT owner, tasks.id, hook, cursor, given_up FROM hooks JOIN tasks ON tasks.key = hooks.task
         WHERE {which}"
    ))?;
    let mut rows = select.query([parameter])?;
    let mut configs = Vec::new();
    while let Some(row) = rows.next()? {
        let given_up: Option<String> = row.get(4)?;
        configs.push(StoredPushConfig {
            key: key_of(row)?,
            config: parse(bytes(row, 2)?)?,
            cursor: natural(row.get(3)?),
            given_up: given_up.map(|json| parse(json.as_bytes())).transpose()?,
        });
    }
    Ok(configs)
}

pub(super) fn state(connection: &Connection, key: &StateKey) -> Result<Option<Arc<[u8]>>, Fault> {
    let value = connection
        .prepare_cached(
            "SELECT value FROM state WHERE owner = ?1 AND context = ?2 AND executor = ?3 AND key = ?4",
        )?
        .query_row(
            params![key.owner.name().unwrap_or_default(), key.context.as_str(), key.executor, key.key],
            |row| Ok(Arc::from(bytes(row, 0)?)),
        )
        .optional()?;
    Ok(value)
}

pub(super) fn state_beside(connection: &Connection, key: &StateKey) -> Result<usize, Fault> {
    let bytes: i64 = connection
        .prepare_cached(
            "SELECT coalesce(sum(length(CAST(key AS BLOB)) + length(value)), 0) FROM state
             WHERE owner = ?1 AND context = ?2 AND executor = ?3 AND key <> ?4",
        )?
        .query_row(
            params![key.owner.name().unwrap_or_default(), key.context.as_str(), key.executor, key.key],
            |row| row.get(0),
        )?;
    Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
}
