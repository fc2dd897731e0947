//! The operator's list of the tasks of all owners: the lists of the owners, merged.

use std::iter::Peekable;

use talaria_turns::{LOOKED_AT, Place, Principal, Query, Survey, Surveyed, TaskId, TaskKey, TaskRow};

use super::Inner;
use super::lists::Listed;
use super::record::Record;

type Cursor<'a> = (&'a Principal, Peekable<Box<dyn Iterator<Item = Listed<'a>> + 'a>>);

impl Inner {
    pub(super) fn survey(&self, survey: &Survey) -> Surveyed {
        let query = Query {
            context: survey.context.clone(),
            state: survey.state,
            since: None,
            after: None,
            limit: 0,
            bytes: 0,
        };
        let owners: Vec<Principal> = self.owners.all().into_iter().map(|(owner, _)| owner).collect();
        let asked = owners.iter().filter(|owner| survey.owner.as_ref().is_none_or(|only| only == *owner));
        let mut cursors: Vec<Cursor<'_>> = asked
            .map(|owner| (owner, self.listed(owner, &query, survey.after.as_ref()).peekable()))
            .collect();
        let mut page = Surveyed::default();
        let (mut looked_at, mut last) = (0, survey.after.clone());
        loop {
            let heads = cursors.iter_mut().filter_map(|(owner, rows)| {
                let place = rows.peek().map(|(at, task, _)| (*at, (*task).clone()))?;
                Some((place, *owner, rows))
            });
            let Some((place, owner, rows)) = heads.max_by(|(a, ..), (b, ..)| a.cmp(b)) else { break };
            if page.rows.len() >= survey.limit || looked_at >= LOOKED_AT {
                page.next = last;
                break;
            }
            looked_at += 1;
            last = Some(Place { at: place.0, task: place.1 });
            let row = rows.next().map(|(_, task, record)| row(owner, task, record));
            page.rows.extend(row.filter(|row| survey.fits(row)));
        }
        page
    }

    pub(super) fn find(&self, task: &TaskId) -> Option<TaskRow> {
        self.owners.all().into_iter().find_map(|(owner, _)| {
            let record = self.tasks.get(&TaskKey { owner: owner.clone(), task: task.clone() })?;
            Some(row(&owner, task, record))
        })
    }
}

fn row(owner: &Principal, task: &TaskId, record: &Record) -> TaskRow {
    TaskRow {
        key: TaskKey { owner: owner.clone(), task: task.clone() },
        context: record.context.clone(),
        state: record.state,
        at: record.status_at,
        executor: record.said.executor.clone(),
        text: record.said.text.clone().unwrap_or_default(),
    }
}
