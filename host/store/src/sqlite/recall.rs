//! Reads the earlier messages of a context, from the events of its newest tasks.
//!
//! Two bounds of [`Recall`] apply here: the tasks that are looked at, and the bytes of events that are read. A context of
//! ten thousand tasks costs what its newest ones cost, because an index returns them from the newest on. If the bytes run
//! out within a task, its last events are read and nothing older.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use talaria_turns::{Event, Extent, Message, Recall, Recollection, TaskId};

use super::fault::Fault;
use super::read::{bytes, parse};
use super::write::{integer, natural};

/// The columns of a task that matter here.
struct Found {
    row: i64,
    id: TaskId,
    pending: u64,
}

impl Found {
    fn read(row: &Row<'_>) -> Result<Self, Fault> {
        let id = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?.parse()?;
        Ok(Self { row: row.get(0)?, id, pending: natural(row.get(2)?) })
    }
}

pub(super) fn read(connection: &Connection, recall: &Recall) -> Result<Vec<Arc<Message>>, Fault> {
    let (owner, context) = (recall.owner.name().unwrap_or_default(), recall.context.as_str());
    let mut found = Recollection::new(recall);
    let mut room = Recall::READ;
    let present = connection
        .prepare_cached(
            "SELECT key, id, pending, host_made FROM tasks WHERE owner = ?1 AND id = ?2 AND context = ?3",
        )?
        .query_row(params![owner, recall.present.as_str(), context], |row| {
            Ok((Found::read(row), row.get::<_, bool>(3)?))
        })
        .optional()?;
    // Every task of a context has the mark that the host made the context's id.
    let Some((present, host_made)) = present else { return Ok(Vec::new()) };
    if recall.host_made_only && !host_made {
        return Ok(Vec::new());
    }
    let present = present?;
    let row = present.row;
    add(connection, &mut found, present, &mut room)?;
    let mut earlier = connection.prepare_cached(
        "SELECT key, id, pending FROM tasks WHERE owner = ?1 AND context = ?2 AND key <> ?3
         ORDER BY key DESC LIMIT ?4",
    )?;
    let mut rows = earlier.query(params![owner, context, row, integer(Recall::TASKS as u64)])?;
    while found.has_room()
        && let Some(row) = rows.next()?
    {
        add(connection, &mut found, Found::read(row)?, &mut room)?;
    }
    Ok(found.messages())
}

/// Adds the messages of one task, and takes the bytes that were read off `room`.
fn add(
    connection: &Connection,
    found: &mut Recollection,
    task: Found,
    room: &mut usize,
) -> Result<(), Fault> {
    let mut select =
        connection.prepare_cached("SELECT first, events FROM events WHERE task = ?1 ORDER BY first DESC")?;
    let mut rows = select.query([task.row])?;
    let mut extent = Extent::Whole;
    let mut appends: Vec<Vec<Event>> = Vec::new();
    while let Some(row) = rows.next()? {
        let json = bytes(row, 1)?;
        match room.checked_sub(json.len()) {
            Some(left) => *room = left,
            None => {
                extent = Extent::Tail { pending: usize::try_from(task.pending).unwrap_or(usize::MAX) };
                break;
            }
        }
        appends.push(parse(json)?);
    }
    found.add(&task.id, appends.iter().rev().flatten(), extent);
    Ok(())
}
