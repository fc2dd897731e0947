//! Lists of tasks: newest status first, then by id, descending.
//!
//! A list without a context is merged from two orders: the tasks of the owner that ended, whose order is kept, and those that
//! have not, which are sorted here because their order changes with every status. So a page costs its tasks and the open
//! ones, however many ended, and a total costs nothing unless a time or a context is asked for.

use std::cmp::Reverse;
use std::sync::Arc;

use talaria_turns::{Page, Place, Principal, Query, StoreError, Task, TaskId, TaskKey, Timestamp};

use super::Inner;
use super::record::Record;

/// A task in the order of a list.
pub(super) type Listed<'a> = (Timestamp, &'a TaskId, &'a Record);

impl Inner {
    pub(super) fn list(&self, owner: &Principal, query: &Query) -> Result<Page, StoreError> {
        let total = match (&query.context, query.since) {
            (None, None) => self.owners.count(owner, query.state),
            _ => self.listed(owner, query, None).count(),
        };
        // No more than these follow, so nothing is looked at in vain after the last one.
        let mut rest = self.listed(owner, query, query.after.as_ref()).take(total).peekable();
        let (mut tasks, mut size): (Vec<Arc<Task>>, usize) = (Vec::new(), 0);
        while tasks.len() < query.limit
            && let Some((_, task, record)) = rest.peek()
        {
            let task = record.fold(&TaskKey { owner: owner.clone(), task: (*task).clone() })?;
            size = size.saturating_add(task.size());
            if !tasks.is_empty() && size > query.bytes {
                break;
            }
            tasks.push(task);
            rest.next();
        }
        let next = tasks.last().filter(|_| rest.peek().is_some());
        let next = next.map(|last| Place { at: last.status.at, task: last.id.clone() });
        Ok(Page { tasks, next, total })
    }

    /// Returns the tasks that fit, in the order of a list, after a place in it.
    pub(super) fn listed<'a>(
        &'a self,
        owner: &'a Principal,
        query: &'a Query,
        after: Option<&'a Place>,
    ) -> Box<dyn Iterator<Item = Listed<'a>> + 'a> {
        let place = after.map(|Place { at, task }| (*at, task.clone()));
        let find = move |task: &'a TaskId| {
            let record = self.tasks.get(&TaskKey { owner: owner.clone(), task: task.clone() })?;
            Some((record.status_at, task, record))
        };
        let sorted = |tasks: &mut dyn Iterator<Item = &'a TaskId>| {
            let listed = tasks.filter_map(find).filter(|(.., record)| record.fits(query));
            let mut listed: Vec<Listed<'a>> = listed
                .filter(|(at, task, _)| place.as_ref().is_none_or(|(last, id)| (at, *task) < (last, id)))
                .collect();
            listed.sort_unstable_by_key(|(at, task, _)| Reverse((*at, *task)));
            listed
        };
        if let Some(context) = &query.context {
            return Box::new(sorted(&mut self.contexts.members(owner, context)).into_iter());
        }
        let open = sorted(&mut self.owners.open(owner));
        let ended = self.owners.ended(owner, place);
        let ended = ended.take_while(|(at, _)| query.since.is_none_or(|since| *at >= since));
        let ended = ended.filter_map(move |(_, task)| find(task)).filter(|(.., record)| record.fits(query));
        let (mut open, mut ended) = (open.into_iter().peekable(), ended.peekable());
        Box::new(std::iter::from_fn(move || match (open.peek(), ended.peek()) {
            (Some((at, task, _)), Some((end, other, _))) if (at, task) < (end, other) => ended.next(),
            (Some(_), _) => open.next(),
            (None, _) => ended.next(),
        }))
    }
}
