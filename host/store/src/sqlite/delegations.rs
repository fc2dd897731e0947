//! Writes and reads delegations.

use async_trait::async_trait;
use rusqlite::{Connection, Row, params};
use talaria_turns::{
    Delegation, DelegationState, DelegationStore, Principal, StoreError, TaskKey, Timestamp,
};

use super::fault::Fault;
use super::write::{self, millis, natural};
use super::{Operation, Sqlite};

/// A write.
pub(super) enum Write {
    /// Inserts or replaces a delegation.
    Put(Box<Delegation>),
    /// Deletes delegations.
    Delete(Box<[Box<str>]>),
}

/// Every state, with its name in the file.
const STATES: [(DelegationState, &str); 5] = [
    (DelegationState::Sending, "sending"),
    (DelegationState::Working, "working"),
    (DelegationState::Completed, "completed"),
    (DelegationState::Failed, "failed"),
    (DelegationState::Withdrawn, "withdrawn"),
];

impl Write {
    /// Performs the write within the open transaction. A write that fails changes nothing.
    pub(super) fn run(&self, connection: &Connection) -> Result<u64, Fault> {
        match self {
            Self::Put(delegation) => put(connection, delegation)?,
            Self::Delete(ids) => {
                let mut delete = connection.prepare_cached("DELETE FROM delegations WHERE id = ?1")?;
                for id in ids {
                    delete.execute([id])?;
                }
            }
        }
        Ok(0)
    }
}

fn put(connection: &Connection, delegation: &Delegation) -> Result<(), Fault> {
    let known = STATES.into_iter().find(|(state, _)| *state == delegation.state);
    let state = known.map_or("", |(_, word)| word);
    connection
        .prepare_cached(
            "INSERT INTO delegations (id, target, target_name, task, context, state, remote, result, created,
                                      until, ended, message, told, turn_owner, turn_task)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
             ON CONFLICT (id) DO UPDATE SET target = excluded.target, target_name = excluded.target_name,
             task = excluded.task, context = excluded.context, state = excluded.state, remote = excluded.remote,
             result = excluded.result, created = excluded.created, until = excluded.until,
             ended = excluded.ended, message = excluded.message, told = excluded.told,
             turn_owner = excluded.turn_owner, turn_task = excluded.turn_task",
        )?
        .execute(params![
            delegation.id,
            delegation.target,
            delegation.target_name,
            delegation.task,
            delegation.context,
            state,
            delegation.remote,
            delegation.result,
            millis(delegation.created),
            millis(delegation.until),
            delegation.ended.map(millis),
            delegation.message,
            delegation.told.map(millis),
            delegation.turn.as_ref().map(|turn| turn.owner.name().unwrap_or_default()),
            delegation.turn.as_ref().map(|turn| turn.task.as_str()),
        ])?;
    Ok(())
}

fn delegations(connection: &Connection) -> Result<Vec<Delegation>, Fault> {
    let mut select = connection.prepare(
        "SELECT id, target, target_name, task, context, state, remote, result, created, until, ended, message, told,
                turn_owner, turn_task
         FROM delegations ORDER BY key",
    )?;
    let mut rows = select.query([])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        let word: String = row.get(5)?;
        let state = STATES.into_iter().find(|(_, known)| *known == word);
        let (state, _) =
            state.ok_or_else(|| Fault::Unreadable(format!("no state of a delegation is called {word:?}")))?;
        all.push(Delegation {
            id: row.get(0)?,
            target: row.get(1)?,
            target_name: row.get(2)?,
            task: row.get(3)?,
            context: row.get(4)?,
            state,
            remote: row.get(6)?,
            result: row.get(7)?,
            created: Timestamp::from_millis(natural(row.get(8)?)),
            until: Timestamp::from_millis(natural(row.get(9)?)),
            ended: timestamp(row, 10)?,
            message: row.get(11)?,
            told: timestamp(row, 12)?,
            turn: turn(row)?,
        });
    }
    Ok(all)
}

fn turn(row: &Row<'_>) -> Result<Option<TaskKey>, Fault> {
    let (owner, task): (Option<String>, Option<String>) = (row.get(13)?, row.get(14)?);
    let (Some(owner), Some(task)) = (owner, task) else { return Ok(None) };
    Ok(Some(TaskKey { owner: Principal::named(&owner), task: task.parse()? }))
}

fn timestamp(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Timestamp>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(|at| Timestamp::from_millis(natural(at))))
}

#[async_trait]
impl DelegationStore for Sqlite {
    async fn delegations(&self) -> Result<Vec<Delegation>, StoreError> {
        self.timed(Operation::Delegation, self.readers.read(delegations)).await
    }

    async fn put_delegation(&self, delegation: &Delegation) -> Result<(), StoreError> {
        let write = Write::Put(Box::new(delegation.clone()));
        self.timed(Operation::Delegation, self.writer.write(write::Write::Delegations(write))).await.map(drop)
    }

    async fn delete_delegations(&self, ids: &[Box<str>]) -> Result<(), StoreError> {
        self.timed(
            Operation::Delegation,
            self.writer.write(write::Write::Delegations(Write::Delete(ids.into()))),
        )
        .await
        .map(drop)
    }
}
