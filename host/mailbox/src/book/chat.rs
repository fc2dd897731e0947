//! Chats: of each, one task at a time has messages under way, and the others are in line.
//!
//! A task that has a chat may enter it again, once for each of its announcements. Who is next is decided by the line alone:
//! whoever is no longer in it when it goes away had the chat already, and gives it back.

use std::collections::VecDeque;

use talaria_turns::{CallbackError, TaskKey};
use tokio::sync::oneshot;

use super::Book;

/// A chat that something is expected on, or that somebody waits for.
#[derive(Default)]
pub(super) struct Chat {
    /// The task that has it, and how often.
    pub(super) holder: Option<(TaskKey, usize)>,
    pub(super) line: VecDeque<Waiting>,
    /// Its announcements, oldest first.
    pub(super) messages: Vec<Box<str>>,
}

pub(super) struct Waiting {
    ticket: u64,
    task: TaskKey,
    go: oneshot::Sender<()>,
}

/// Whether a task may have a chat.
pub(crate) enum Entered {
    /// It has it.
    Now,
    /// It is in line, with a ticket.
    Later(u64, oneshot::Receiver<()>),
}

// === impl Book ===

impl Book {
    /// Takes a chat for a task, or a place in its line. A task that has it has it at once.
    pub(crate) fn enter(&mut self, name: &str, task: &TaskKey) -> Result<Entered, CallbackError> {
        if self.closing {
            return Err(CallbackError::Closing);
        }
        let chat = self.chats.entry(name.into()).or_default();
        if chat.try_hold(task) {
            return Ok(Entered::Now);
        }
        if chat.line.len() >= self.limits.lane {
            let most = self.limits.lane;
            return Err(CallbackError::Full(format!("{most} turns wait for this chat, which is the most")));
        }
        self.tickets += 1;
        let (go, going) = oneshot::channel();
        chat.line.push_back(Waiting { ticket: self.tickets, task: task.clone(), go });
        Ok(Entered::Later(self.tickets, going))
    }

    /// Gives up a place in line; if its time had come already, the chat.
    pub(crate) fn give_up(&mut self, name: &str, ticket: u64) {
        let Some(chat) = self.chats.get_mut(name).filter(|_| !self.closing) else { return };
        match chat.line.iter().position(|waiting| waiting.ticket == ticket) {
            Some(place) => drop(chat.line.remove(place)),
            None => self.leave(name),
        }
    }

    /// Gives the chat back, once; whoever is next has it.
    pub(crate) fn leave(&mut self, name: &str) {
        let Some(chat) = self.chats.get_mut(name) else { return };
        match &mut chat.holder {
            Some((_, times)) if *times > 1 => *times -= 1,
            _ => match chat.line.pop_front() {
                // One that no longer listens finds that its ticket is gone, and leaves.
                Some(Waiting { task, go, .. }) => {
                    chat.holder = Some((task, 1));
                    let _ = go.send(());
                }
                None => {
                    chat.holder = None;
                    if chat.messages.is_empty() {
                        self.chats.remove(name);
                    }
                }
            },
        }
    }
}

// === impl Chat ===

impl Chat {
    /// Takes it if nobody has it and nobody is in line, or if the task has it already.
    pub(super) fn try_hold(&mut self, task: &TaskKey) -> bool {
        match &mut self.holder {
            Some((holder, times)) if holder == task => *times += 1,
            Some(_) => return false,
            None => self.holder = Some((task.clone(), 1)),
        }
        true
    }
}
