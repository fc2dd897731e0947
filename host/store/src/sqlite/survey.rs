//! The operator's list of the tasks of all owners.
//!
//! There is no index over all owners: it would cost every change of a status a write. Each owner's tasks have the order of
//! the list already, so a page merges one cursor for each owner, and reads about as many rows as it shows. A filter that no
//! index has reads on, up to [`LOOKED_AT`] rows.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, Row, Rows, params, params_from_iter};
use talaria_turns::{
    Event, LOOKED_AT, Place, Principal, Said, Survey, Surveyed, TaskId, TaskKey, TaskRow, Timestamp,
};

use super::fault::Fault;
use super::read::{bytes, parse};
use super::schema;
use super::write::{millis, natural};

/// The bytes of a first append that a row of an earlier version is read from.
const FIRST: i64 = 64 << 10;

/// The columns of a row, see [`read`].
const COLUMNS: &str = "id, context, state, status_at, executor, text, key";

/// The cursors of the owners, each at its newest row.
struct Merge<'a> {
    connection: &'a Connection,
    cursors: Vec<Cursor<'a>>,
}

struct Cursor<'a> {
    owner: &'a Principal,
    rows: Rows<'a>,
    head: TaskRow,
}

/// One page. `owners` are all that have tasks.
pub(super) fn survey(
    connection: &Connection,
    owners: &[Principal],
    survey: &Survey,
) -> Result<Surveyed, Fault> {
    let mut sql = format!("SELECT {COLUMNS} FROM tasks WHERE owner = ?");
    let mut values = Vec::new();
    if let Some(context) = &survey.context {
        sql.push_str(" AND context = ?");
        values.push(Value::from(context.to_string()));
    }
    if let Some(state) = survey.state {
        sql.push_str(" AND state = ?");
        values.push(schema::word(state).to_owned().into());
    }
    if let Some(Place { at, task }) = &survey.after {
        sql.push_str(" AND (status_at, id) < (?, ?)");
        values.extend([millis(*at).into(), task.to_string().into()]);
    }
    sql.push_str(" ORDER BY status_at DESC, id DESC");
    let owners: Vec<&Principal> =
        owners.iter().filter(|owner| survey.owner.as_ref().is_none_or(|only| only == *owner)).collect();
    let mut statements =
        owners.iter().map(|_| connection.prepare_cached(&sql)).collect::<rusqlite::Result<Vec<_>>>()?;
    let mut cursors = Vec::new();
    for (owner, statement) in owners.into_iter().zip(&mut statements) {
        let name = Value::from(owner.name().unwrap_or_default().to_owned());
        let mut rows = statement.query(params_from_iter(std::iter::once(&name).chain(&values)))?;
        if let Some(row) = rows.next()? {
            let head = read(connection, owner, row)?;
            cursors.push(Cursor { owner, rows, head });
        }
    }
    let mut merge = Merge { connection, cursors };
    let mut page = Surveyed::default();
    let (mut looked_at, mut last) = (0, survey.after.clone());
    while let Some(row) = merge.peek() {
        if page.rows.len() >= survey.limit || looked_at >= LOOKED_AT {
            page.next = last;
            break;
        }
        looked_at += 1;
        last = Some(row.place());
        let is_shown = survey.fits(row);
        let row = merge.pop()?;
        page.rows.extend(row.filter(|_| is_shown));
    }
    Ok(page)
}

/// Finds a task by its id: a look-up for each owner.
pub(super) fn find(
    connection: &Connection,
    owners: &[Principal],
    task: &TaskId,
) -> Result<Option<TaskRow>, Fault> {
    let mut find =
        connection.prepare_cached(&format!("SELECT {COLUMNS} FROM tasks WHERE owner = ?1 AND id = ?2"))?;
    for owner in owners {
        let mut rows = find.query(params![owner.name().unwrap_or_default(), task.as_str()])?;
        if let Some(row) = rows.next()? {
            return read(connection, owner, row).map(Some);
        }
    }
    Ok(None)
}

fn read(connection: &Connection, owner: &Principal, row: &Row<'_>) -> Result<TaskRow, Fault> {
    let text = |column| Ok::<_, Fault>(row.get_ref(column)?.as_str().map_err(rusqlite::Error::from)?);
    let (executor, said): (Option<Box<str>>, Option<Box<str>>) = (row.get(4)?, row.get(5)?);
    let said = match said {
        Some(text) => Said { executor, text: Some(text) },
        None => first_said(connection, row.get(6)?)?,
    };
    Ok(TaskRow {
        key: TaskKey { owner: owner.clone(), task: text(0)?.parse()? },
        context: text(1)?.parse()?,
        state: schema::state(text(2)?)?,
        at: Timestamp::from_millis(natural(row.get(3)?)),
        executor: said.executor,
        text: said.text.unwrap_or_default(),
    })
}

/// What the first message of a task says, if the task is of a version that did not note it.
fn first_said(connection: &Connection, row: i64) -> Result<Said, Fault> {
    let mut select = connection.prepare_cached(
        "SELECT events FROM events WHERE task = ?1 AND first = 1 AND octet_length(events) <= ?2",
    )?;
    let events = select.query_row(params![row, FIRST], |row| Ok(parse::<Vec<Event>>(bytes(row, 0)?)));
    Ok(events.optional()?.transpose()?.map(|events| Said::of(&events)).unwrap_or_default())
}

// === impl Merge ===

impl Merge<'_> {
    /// The next row of the list.
    fn peek(&self) -> Option<&TaskRow> {
        self.newest().and_then(|at| self.cursors.get(at)).map(|cursor| &cursor.head)
    }

    fn pop(&mut self) -> Result<Option<TaskRow>, Fault> {
        let Some(at) = self.newest() else { return Ok(None) };
        let Some(cursor) = self.cursors.get_mut(at) else { return Ok(None) };
        let Some(row) = cursor.rows.next()? else { return Ok(Some(self.cursors.swap_remove(at).head)) };
        let next = read(self.connection, cursor.owner, row)?;
        Ok(Some(std::mem::replace(&mut cursor.head, next)))
    }

    fn newest(&self) -> Option<usize> {
        let place = |cursor: &Cursor<'_>| (cursor.head.at, cursor.head.key.task.clone());
        let heads = self.cursors.iter().enumerate();
        heads.max_by_key(|(_, cursor)| place(cursor)).map(|(at, _)| at)
    }
}

/// The owners of what the ledger counts.
pub(super) fn owners(ledger: &super::ledger::Ledger) -> Vec<Principal> {
    ledger.owners().into_iter().map(|(owner, _)| owner).collect()
}
