//! Writes and reads expected replies and their callbacks. The table of callbacks is called `letters`.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use talaria_turns::{
    CallbackHeader, CallbackStore, ExpectedReply, Principal, StoreError, StoredCallback, TaskKey, Timestamp,
};

use super::fault::Fault;
use super::write::{self, millis, natural};
use super::{Operation, Sqlite};

/// A write.
pub(super) enum Write {
    /// Inserts or replaces an expected reply.
    Expect(ExpectedReply),
    /// Marks expected replies as withdrawn.
    Withdraw(Box<[Box<str>]>, Timestamp),
    /// Deletes expected replies and their callbacks.
    Delete(Box<[Box<str>]>),
    /// Inserts a callback for an expected reply.
    Put(Box<str>, StoredCallback),
}

impl Write {
    /// Performs the write within the open transaction. A write that fails changes nothing.
    pub(super) fn run(&self, connection: &Connection) -> Result<u64, Fault> {
        match self {
            Self::Expect(expected) => expect(connection, expected)?,
            Self::Withdraw(messages, at) => {
                let mut close =
                    connection.prepare_cached("UPDATE expected SET closed_at = ?2 WHERE message = ?1")?;
                for message in messages {
                    close.execute(params![message, millis(*at)])?;
                }
            }
            Self::Delete(messages) => {
                let mut delete = connection.prepare_cached("DELETE FROM expected WHERE message = ?1")?;
                for message in messages {
                    delete.execute([message])?;
                }
            }
            Self::Put(message, callback) => put(connection, message, callback)?,
        }
        Ok(0)
    }
}

fn expect(connection: &Connection, expected: &ExpectedReply) -> Result<(), Fault> {
    let ExpectedReply { message, chat, task, executor, at, closed } = expected;
    connection
        .prepare_cached(
            "INSERT INTO expected (message, chat, owner, task, executor, at, closed_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (message) DO UPDATE SET chat = excluded.chat, owner = excluded.owner,
             task = excluded.task, executor = excluded.executor, at = excluded.at, closed_at = excluded.closed_at",
        )?
        .execute(params![
            message,
            chat,
            write::owner(task),
            task.task.as_str(),
            executor,
            millis(*at),
            closed.map(millis),
        ])?;
    connection
        .prepare_cached(
            "UPDATE letters SET is_late = 0
             WHERE is_late AND expected = (SELECT key FROM expected WHERE message = ?1)",
        )?
        .execute([message])?;
    Ok(())
}

fn put(connection: &Connection, message: &str, callback: &StoredCallback) -> Result<(), Fault> {
    let inserted = connection
        .prepare_cached(
            "INSERT INTO letters (expected, is_reply, is_late, digest, at, body)
             SELECT key, ?2, ?3, ?4, ?5, ?6 FROM expected WHERE message = ?1",
        )?
        .execute(params![
            message,
            callback.is_reply,
            callback.is_late,
            callback.digest,
            millis(callback.at),
            callback.body
        ])?;
    match inserted {
        0 => Err(StoreError::NotFound.into()),
        _ => Ok(()),
    }
}

fn expected(connection: &Connection) -> Result<(Vec<ExpectedReply>, Vec<CallbackHeader>), Fault> {
    let mut select = connection
        .prepare("SELECT message, chat, owner, task, executor, at, closed_at FROM expected ORDER BY key")?;
    let mut rows = select.query([])?;
    let mut expected = Vec::new();
    while let Some(row) = rows.next()? {
        let (owner, task): (String, String) = (row.get(2)?, row.get(3)?);
        let owner = if owner.is_empty() { Principal::anyone() } else { Principal::named(&owner) };
        expected.push(ExpectedReply {
            message: row.get(0)?,
            chat: row.get(1)?,
            task: TaskKey { owner, task: task.parse()? },
            executor: row.get(4)?,
            at: timestamp(row, 5)?,
            closed: row.get::<_, Option<i64>>(6)?.map(|at| Timestamp::from_millis(natural(at))),
        });
    }
    let mut select = connection.prepare(
        "SELECT expected.message, is_reply, is_late, digest, length(body)
         FROM letters JOIN expected ON expected.key = letters.expected ORDER BY number",
    )?;
    let header = |row: &Row<'_>| {
        Ok(CallbackHeader {
            message: row.get(0)?,
            is_reply: row.get(1)?,
            is_late: row.get(2)?,
            digest: row.get(3)?,
            bytes: usize::try_from(row.get::<_, i64>(4)?).unwrap_or_default(),
        })
    };
    let headers = select.query_map([], header)?.collect::<rusqlite::Result<_>>()?;
    Ok((expected, headers))
}

fn callback(connection: &Connection, message: &str, place: usize) -> Result<Option<StoredCallback>, Fault> {
    let found = connection
        .prepare_cached(
            "SELECT is_reply, is_late, digest, letters.at, body
             FROM letters JOIN expected ON expected.key = letters.expected
             WHERE message = ?1 ORDER BY number LIMIT 1 OFFSET ?2",
        )?
        .query_row(params![message, i64::try_from(place).unwrap_or(i64::MAX)], |row| {
            Ok(StoredCallback {
                is_reply: row.get(0)?,
                is_late: row.get(1)?,
                digest: row.get(2)?,
                at: timestamp(row, 3)?,
                body: row.get(4)?,
            })
        })
        .optional()?;
    Ok(found)
}

fn timestamp(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    Ok(Timestamp::from_millis(natural(row.get(column)?)))
}

#[async_trait]
impl CallbackStore for Sqlite {
    async fn expected(&self) -> Result<(Vec<ExpectedReply>, Vec<CallbackHeader>), StoreError> {
        self.timed(Operation::Callback, self.readers.read(expected)).await
    }

    async fn expect(&self, expected: &ExpectedReply) -> Result<(), StoreError> {
        self.write_callbacks(Write::Expect(expected.clone())).await
    }

    async fn withdraw(&self, messages: &[Box<str>], at: Timestamp) -> Result<(), StoreError> {
        self.write_callbacks(Write::Withdraw(messages.into(), at)).await
    }

    async fn delete(&self, messages: &[Box<str>]) -> Result<(), StoreError> {
        self.write_callbacks(Write::Delete(messages.into())).await
    }

    async fn put(&self, message: &str, callback: &StoredCallback) -> Result<(), StoreError> {
        self.write_callbacks(Write::Put(message.into(), callback.clone())).await
    }

    async fn callback(&self, message: &str, place: usize) -> Result<Option<StoredCallback>, StoreError> {
        let message = message.to_owned();
        self.timed(
            Operation::Callback,
            self.look_ups.read(move |connection| callback(connection, &message, place)),
        )
        .await
    }
}

impl Sqlite {
    async fn write_callbacks(&self, write: Write) -> Result<(), StoreError> {
        self.timed(Operation::Callback, self.writer.write(write::Write::Callbacks(write))).await.map(drop)
    }
}
