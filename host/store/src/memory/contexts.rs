//! The tasks of each context, so that its messages can be read without looking at all tasks.

use std::collections::{HashMap, VecDeque};

use talaria_turns::{ContextId, Principal, Recall, TaskId, TaskKey};

#[derive(Default)]
pub(super) struct Contexts(HashMap<(Principal, ContextId), VecDeque<Member>>);

struct Member {
    task: TaskId,
    /// Whether the host made the context's id for this task or for one before it.
    host_made: bool,
}

impl Contexts {
    /// Adds a new task to its context.
    pub(super) fn add(&mut self, key: &TaskKey, context: &ContextId, host_made: bool) {
        let members = self.0.entry((key.owner.clone(), context.clone())).or_default();
        let host_made = host_made || members.back().is_some_and(|newest| newest.host_made);
        members.push_back(Member { task: key.task.clone(), host_made });
    }

    /// Removes a deleted task, which is mostly the oldest.
    pub(super) fn remove(&mut self, key: &TaskKey, context: &ContextId) {
        let of = (key.owner.clone(), context.clone());
        let Some(members) = self.0.get_mut(&of) else { return };
        if let Some(at) = members.iter().position(|member| member.task == key.task) {
            members.remove(at);
        }
        if members.is_empty() {
            self.0.remove(&of);
        }
    }

    /// Returns the tasks of a context, in the order in which they were created.
    pub(super) fn members(&self, owner: &Principal, context: &ContextId) -> impl Iterator<Item = &TaskId> {
        self.0.get(&(owner.clone(), context.clone())).into_iter().flatten().map(|member| &member.task)
    }

    /// Returns the tasks to read: the present one, then from the newest to the oldest; none if they may not be read.
    pub(super) fn tasks<'a>(&'a self, recall: &'a Recall) -> impl Iterator<Item = &'a TaskId> {
        let members = self.0.get(&(recall.owner.clone(), recall.context.clone()));
        let present = members.into_iter().flatten().rev().find(|member| member.task == recall.present);
        let readable = present.filter(|present| present.host_made || !recall.host_made_only);
        let earlier = members.filter(|_| readable.is_some()).into_iter().flatten().rev();
        let earlier = earlier.filter(|member| member.task != recall.present);
        readable.into_iter().chain(earlier).map(|member| &member.task)
    }
}
