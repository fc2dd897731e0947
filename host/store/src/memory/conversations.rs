//! Which tasks belong to a conversation, so that what was said in it can be told without a look at all tasks.

use std::collections::{HashMap, VecDeque};

use talaria_turns::{ContextId, Principal, Recall, TaskId, TaskKey};

#[derive(Default)]
pub(super) struct Conversations(HashMap<(Principal, ContextId), VecDeque<Member>>);

struct Member {
    task: TaskId,
    /// The host made the conversation's id for this task or for one before it.
    host_made: bool,
}

impl Conversations {
    /// A new task joins its conversation.
    pub(super) fn join(&mut self, key: &TaskKey, context: &ContextId, host_made: bool) {
        let members = self.0.entry((key.owner.clone(), context.clone())).or_default();
        let host_made = host_made || members.back().is_some_and(|newest| newest.host_made);
        members.push_back(Member { task: key.task.clone(), host_made });
    }

    /// A task is forgotten; mostly it is the oldest.
    pub(super) fn leave(&mut self, key: &TaskKey, context: &ContextId) {
        let of = (key.owner.clone(), context.clone());
        let Some(members) = self.0.get_mut(&of) else { return };
        if let Some(at) = members.iter().position(|member| member.task == key.task) {
            members.remove(at);
        }
        if members.is_empty() {
            self.0.remove(&of);
        }
    }

    /// The tasks to recall, the present one first, then from the newest to the oldest; none where nothing may be told.
    pub(super) fn tasks<'a>(&'a self, recall: &'a Recall) -> impl Iterator<Item = &'a TaskId> {
        let members = self.0.get(&(recall.owner.clone(), recall.context.clone()));
        let present = members.into_iter().flatten().rev().find(|member| member.task == recall.present);
        let told = present.filter(|present| present.host_made || !recall.host_made_only);
        let earlier = members.filter(|_| told.is_some()).into_iter().flatten().rev();
        let earlier = earlier.filter(|member| member.task != recall.present);
        told.into_iter().chain(earlier).map(|member| &member.task)
    }
}
