//! A task in memory: its events, and the values that lists and checks need.

use std::sync::Arc;

use talaria_turns::{
    ContextId, Entry, Event, Logged, Once, Query, Said, State, StoreError, StoredPushConfig, Task, TaskKey,
    Timestamp,
};

use crate::{append_of, number};

/// A task.
pub(super) struct Record {
    pub(super) context: ContextId,
    pub(super) created_at: Timestamp,
    pub(super) state: State,
    /// The time of the status, which is the last one if the task has ended.
    pub(super) status_at: Timestamp,
    /// What the operator's list shows.
    pub(super) said: Said,
    /// The messages that it accepted once.
    pub(super) accepted: Vec<Once>,
    /// The bytes of the events as JSON.
    pub(super) bytes: u64,
    pub(super) events: Vec<Arc<Event>>,
    pub(super) appends: Vec<Append>,
    /// The push configurations, ordered by id.
    pub(super) push: Vec<StoredPushConfig>,
}

#[derive(Clone, Copy)]
pub(super) struct Append {
    /// The index of its first event in the events of the task.
    pub(super) begin: usize,
    /// The number among all appends.
    pub(super) number: u64,
    pub(super) at: Timestamp,
}

// === impl Record ===

impl Record {
    /// The number of events.
    pub(super) fn version(&self) -> u64 {
        self.events.len() as u64
    }

    /// Folds the events into the task.
    pub(super) fn fold(&self, key: &TaskKey) -> Result<Arc<Task>, StoreError> {
        let mut task = Task::new(key.task.clone(), self.context.clone());
        task.status.at = self.created_at;
        for event in &self.events {
            task.apply(event)?;
        }
        Ok(Arc::new(task))
    }

    pub(super) fn fits(&self, query: &Query) -> bool {
        query.context.as_ref().is_none_or(|context| *context == self.context)
            && query.state.is_none_or(|state| state == self.state)
            && query.since.is_none_or(|since| self.status_at >= since)
    }

    /// Returns the events with this number or a greater one.
    pub(super) fn since<'a>(&'a self, key: &'a TaskKey, first: u64) -> impl Iterator<Item = Logged> + 'a {
        let from = self.appends.partition_point(|append| append.number < append_of(first));
        let appends = self.appends.get(from..).unwrap_or_default().iter().enumerate();
        let each = move |(nth, append): (usize, &Append)| {
            let end = self.appends.get(from + nth + 1).map_or(self.events.len(), |next| next.begin);
            let Append { begin, number: append, at } = *append;
            let events = self.events.get(begin..end).unwrap_or_default().iter().enumerate();
            events.map(move |(place, event)| Logged {
                number: number(append, place),
                at,
                key: key.clone(),
                context: self.context.clone(),
                entry: Entry { sequence: (begin + place + 1) as u64, event: Arc::clone(event) },
            })
        };
        appends.flat_map(each).filter(move |logged| logged.number >= first)
    }
}
