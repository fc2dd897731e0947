//! Chats: one task at a time has messages under way on a chat, and the others queue for it.
//!
//! A chat belongs to an executor. Executors choose the names, so that two chats of one name are two chats: an executor can
//! neither hold up the chat of another nor get what is meant for it.
//!
//! A task that holds a chat may acquire it again, once for each reply that it expects. The queue alone decides who is next: a
//! turn that leaves and is no longer in the queue was handed the chat already, and releases it.

use std::collections::VecDeque;

use talaria_turns::{CallbackError, ExpectedReply, TaskKey};
use tokio::sync::oneshot;

use super::Expectations;

/// The name of a chat, as its executor knows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChatKey {
    // First, so that the chats of one name are side by side.
    pub(crate) name: Box<str>,
    pub(crate) executor: Box<str>,
}

/// A chat on which a reply is expected, or for which a turn waits.
#[derive(Default)]
pub(super) struct Chat {
    /// The task that holds it, and how many times.
    pub(super) holder: Option<(TaskKey, usize)>,
    pub(super) queue: VecDeque<Queued>,
    /// The messages of its entries, oldest first.
    pub(super) messages: Vec<Box<str>>,
}

pub(super) struct Queued {
    ticket: u64,
    task: TaskKey,
    go: oneshot::Sender<()>,
}

/// Whether a task holds a chat.
pub(crate) enum Acquired {
    /// It does.
    Now,
    /// It is in the queue, with this ticket; the receiver resolves when it holds the chat.
    Queued(u64, oneshot::Receiver<()>),
}

// === impl Expectations ===

impl Expectations {
    /// Acquires a chat for a task, or a place in its queue.
    pub(crate) fn acquire_chat(&mut self, key: &ChatKey, task: &TaskKey) -> Result<Acquired, CallbackError> {
        if self.closing {
            return Err(CallbackError::Closing);
        }
        let chat = self.chats.entry(key.clone()).or_default();
        if chat.try_hold(task) {
            return Ok(Acquired::Now);
        }
        if chat.queue.len() >= self.limits.queue {
            let most = self.limits.queue;
            return Err(CallbackError::Full(format!("{most} turns wait for this chat, which is the most")));
        }
        self.tickets += 1;
        let (go, going) = oneshot::channel();
        chat.queue.push_back(Queued { ticket: self.tickets, task: task.clone(), go });
        Ok(Acquired::Queued(self.tickets, going))
    }

    /// Leaves the queue of a chat, or releases the chat if it was handed over already.
    pub(crate) fn leave_queue(&mut self, key: &ChatKey, ticket: u64) {
        let Some(chat) = self.chats.get_mut(key).filter(|_| !self.closing) else { return };
        match chat.queue.iter().position(|queued| queued.ticket == ticket) {
            Some(place) => drop(chat.queue.remove(place)),
            None => self.release_chat(key),
        }
    }

    /// Releases a chat once. If its task no longer holds it, the next in the queue does.
    pub(crate) fn release_chat(&mut self, key: &ChatKey) {
        let Some(chat) = self.chats.get_mut(key) else { return };
        match &mut chat.holder {
            Some((_, times)) if *times > 1 => *times -= 1,
            _ => match chat.queue.pop_front() {
                // A turn that no longer listens finds its ticket gone, and releases the chat.
                Some(Queued { task, go, .. }) => {
                    chat.holder = Some((task, 1));
                    let _ = go.send(());
                }
                None => {
                    chat.holder = None;
                    if chat.messages.is_empty() {
                        self.chats.remove(key);
                    }
                }
            },
        }
    }
}

// === impl ChatKey ===

impl ChatKey {
    /// The chat that a message belongs to, if any.
    pub(super) fn of(expected: &ExpectedReply) -> Option<Self> {
        Some(Self { name: expected.chat.clone()?, executor: expected.executor.clone() })
    }
}

// === impl Chat ===

impl Chat {
    /// Holds the chat for a task, if it is free or if the task holds it already.
    pub(super) fn try_hold(&mut self, task: &TaskKey) -> bool {
        match &mut self.holder {
            Some((holder, times)) if holder == task => *times += 1,
            Some(_) => return false,
            None => self.holder = Some((task.clone(), 1)),
        }
        true
    }
}
