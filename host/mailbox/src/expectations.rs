//! What the mailbox knows without asking the store: which turn expects which reply, on which chat, and who is next.
//!
//! There is no I/O and no clock here: a method gets the time, decides and returns. Bodies stay in the store; of a callback
//! only its digest and its place are in memory.
//!
//! | file | decides |
//! |---|---|
//! | `routing` | which expectation a callback belongs to |
//! | `chats` | which task may use a chat, and the queue behind it |
//! | `expiry` | what is deleted because it is too old or too much, and who gets late replies |

mod chats;
mod expiry;
mod routing;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use talaria_turns::{CallbackError, CallbackHeader, ExpectedReply, Timestamp};
use tokio::sync::Notify;

use self::chats::Chat;
use crate::Limits;

pub(crate) use self::chats::{Acquired, ChatKey};
pub use self::expiry::Counts;
pub(crate) use self::routing::Routed;

/// All expected replies, and the chats that they belong to.
pub(crate) struct Expectations {
    limits: Limits,
    entries: HashMap<Box<str>, Entry>,
    chats: BTreeMap<ChatKey, Chat>,
    /// Entries whose turns have not ended.
    open: usize,
    /// Bytes of all callbacks.
    bytes: usize,
    tickets: u64,
    closing: bool,
    /// Withdrawn here, not yet in the store.
    withdrawn: Vec<Box<str>>,
    /// Deleted here, not yet in the store.
    deleted: Vec<Box<str>>,
    /// Messages with late replies that their tasks have not been given.
    late: Vec<Box<str>>,
    /// The same, to be tried again with the next sweep.
    late_retries: Vec<Box<str>>,
}

/// An expected reply and what came for it.
struct Entry {
    expected: ExpectedReply,
    /// Greater than that of every earlier entry.
    number: u64,
    turn: TurnState,
    upstream: UpstreamState,
    /// Digests of the replies that are in the store, or on their way there.
    replies: Vec<[u8; 32]>,
    /// Notices that are in the store, or on their way there.
    notices: usize,
    /// Callbacks in the store.
    callbacks: usize,
    /// Bytes of its callbacks.
    bytes: usize,
    arrived: Arc<Notify>,
}

/// What the turn of an entry is doing.
enum TurnState {
    /// It waits for the reply.
    Waiting,
    /// The host restarted, and the turn has not come back. The entry may hold its chat in the turn's place.
    Orphaned { holds_chat: bool },
    /// It has ended, and `expected.closed` says when. A reply may have come after that.
    Ended { has_late_reply: bool },
}

/// What is known of the upstream's work on the message of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UpstreamState {
    /// It may be at work on it.
    Working,
    /// It reported that it could not deliver the answer.
    DeliveryFailed,
    /// It is through with it, because it answered a later message of the chat.
    Done,
}

/// An expectation that was recorded.
pub(crate) struct Opened {
    /// Wakes its turn.
    pub(crate) arrived: Arc<Notify>,
    /// See [`Awaited::overtakes`](talaria_turns::Awaited::overtakes).
    pub(crate) overtakes: bool,
    /// Whether it is new; otherwise its turn came back for it.
    pub(crate) is_new: bool,
}

// === impl Expectations ===

impl Expectations {
    /// Restores what a store kept. Entries that were open become orphans, and keep their chats.
    pub(crate) fn new(limits: Limits, expected: Vec<ExpectedReply>, callbacks: Vec<CallbackHeader>) -> Self {
        let mut restored = Self {
            limits,
            entries: HashMap::new(),
            chats: BTreeMap::new(),
            open: 0,
            bytes: 0,
            tickets: 0,
            closing: false,
            withdrawn: Vec::new(),
            deleted: Vec::new(),
            late: Vec::new(),
            late_retries: Vec::new(),
        };
        for expected in expected {
            restored.restore(expected);
        }
        for callback in callbacks {
            let Some(entry) = restored.entries.get_mut(&callback.message) else { continue };
            entry.callbacks += 1;
            entry.bytes += callback.bytes;
            restored.bytes += callback.bytes;
            if !callback.is_reply {
                entry.notices += 1;
                continue;
            }
            entry.replies.push(callback.digest);
            if let TurnState::Ended { has_late_reply } = &mut entry.turn {
                *has_late_reply |= callback.is_late;
            }
        }
        // Which tasks have been given their late replies is not stored: a task recognises one that it has.
        let late = restored.entries.values().filter(|entry| entry.has_late_reply());
        restored.late = late.map(|entry| entry.expected.message.clone()).collect();
        restored
    }

    fn restore(&mut self, expected: ExpectedReply) {
        let is_open = expected.closed.is_none();
        self.open += usize::from(is_open);
        let mut holds_chat = false;
        if let Some(key) = ChatKey::of(&expected) {
            let chat = self.chats.entry(key).or_default();
            chat.messages.push(expected.message.clone());
            holds_chat = is_open && chat.try_hold(&expected.task);
        }
        self.tickets += 1;
        let turn = match is_open {
            true => TurnState::Orphaned { holds_chat },
            false => TurnState::Ended { has_late_reply: false },
        };
        let message = expected.message.clone();
        self.entries.insert(message, Entry { turn, ..Entry::new(expected, self.tickets) });
    }

    /// Accepts nothing more, and wakes every turn that waits for a reply or a chat.
    pub(crate) fn close(&mut self) {
        self.closing = true;
        for chat in self.chats.values_mut() {
            chat.queue.clear();
        }
        for entry in self.entries.values() {
            entry.arrived.notify_waiters();
        }
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    /// Records an expectation. If it names a chat, its task must have acquired it.
    pub(crate) fn expect(&mut self, expected: &ExpectedReply) -> Result<Opened, CallbackError> {
        if self.closing {
            return Err(CallbackError::Closing);
        }
        let overtakes = ChatKey::of(expected).is_some_and(|chat| self.is_busy(&chat, expected));
        if self.entries.contains_key(&expected.message) {
            let arrived = self.come_back(expected)?;
            return Ok(Opened { arrived, overtakes, is_new: false });
        }
        if self.open >= self.limits.open {
            let most = self.limits.open;
            return Err(CallbackError::Full(format!("{most} replies are expected, which is the most")));
        }
        self.open += 1;
        self.tickets += 1;
        let entry = Entry::new(expected.clone(), self.tickets);
        let arrived = Arc::clone(&entry.arrived);
        self.entries.insert(expected.message.clone(), entry);
        if let Some(key) = ChatKey::of(expected) {
            self.chats.entry(key).or_default().messages.push(expected.message.clone());
        }
        Ok(Opened { arrived, overtakes, is_new: true })
    }

    /// The same turn expects the same reply again, after a restart or after it was cut off.
    fn come_back(&mut self, expected: &ExpectedReply) -> Result<Arc<Notify>, CallbackError> {
        let duplicate = || CallbackError::Duplicate(expected.message.clone());
        let entry = self.entries.get_mut(&expected.message).ok_or_else(duplicate)?;
        let known = &entry.expected;
        let is_same = (&known.task, &known.executor, &known.chat)
            == (&expected.task, &expected.executor, &expected.chat);
        if !is_same || matches!(entry.turn, TurnState::Waiting) {
            return Err(duplicate());
        }
        let before = std::mem::replace(&mut entry.turn, TurnState::Waiting);
        entry.expected.closed = None;
        let arrived = Arc::clone(&entry.arrived);
        match before {
            // The turn that came back has acquired its chat by itself.
            TurnState::Orphaned { holds_chat: true } => self.release_chat_of(&expected.message),
            TurnState::Orphaned { holds_chat: false } | TurnState::Waiting => {}
            TurnState::Ended { .. } => self.open += 1,
        }
        Ok(arrived)
    }

    fn release_chat_of(&mut self, message: &str) {
        if let Some(chat) = self.entries.get(message).and_then(|entry| ChatKey::of(&entry.expected)) {
            self.release_chat(&chat);
        }
    }

    /// Whether the upstream may be at work on an earlier message of the chat.
    fn is_busy(&self, chat: &ChatKey, expected: &ExpectedReply) -> bool {
        self.of_chat(chat).any(|entry| {
            entry.is_unanswered()
                && entry.upstream != UpstreamState::Done
                && entry.expected.message != expected.message
        })
    }

    /// Ends an expectation. The entry stays for a while, to recognise replies that come late or again.
    pub(crate) fn withdraw(&mut self, message: &str, now: Timestamp) {
        let Some(entry) = self.entries.get_mut(message) else { return };
        entry.expected.closed = Some(now);
        let ended = TurnState::Ended { has_late_reply: entry.has_late_reply() };
        let before = std::mem::replace(&mut entry.turn, ended);
        self.withdrawn.push(message.into());
        match before {
            TurnState::Ended { .. } => {}
            TurnState::Waiting | TurnState::Orphaned { holds_chat: false } => self.open -= 1,
            TurnState::Orphaned { holds_chat: true } => {
                self.open -= 1;
                self.release_chat_of(message);
            }
        }
    }

    /// Deletes an entry, with its callbacks.
    pub(crate) fn delete(&mut self, message: &str) {
        let Some(entry) = self.entries.remove(message) else { return };
        self.bytes -= entry.bytes;
        if !entry.has_ended() {
            self.open -= 1;
        }
        self.deleted.push(message.into());
        let Some(key) = ChatKey::of(&entry.expected) else { return };
        if let Some(chat) = self.chats.get_mut(&key) {
            chat.messages.retain(|known| **known != *message);
            if chat.messages.is_empty() && chat.holder.is_none() && chat.queue.is_empty() {
                self.chats.remove(&key);
            }
        }
    }

    /// The number of callbacks in the store for a message.
    pub(crate) fn callbacks(&self, message: &str) -> usize {
        self.entries.get(message).map_or(0, |entry| entry.callbacks)
    }

    /// Takes the messages whose withdrawal, and those whose deletion, is not in the store yet.
    pub(crate) fn take_unsaved(&mut self) -> (Vec<Box<str>>, Vec<Box<str>>) {
        let entries = &self.entries;
        let mut withdrawn = std::mem::take(&mut self.withdrawn);
        withdrawn.retain(|message| entries.get(message).is_some_and(Entry::has_ended));
        (withdrawn, std::mem::take(&mut self.deleted))
    }

    /// Puts back what the store did not take.
    pub(crate) fn put_back(&mut self, withdrawn: Vec<Box<str>>, deleted: Vec<Box<str>>) {
        self.withdrawn.extend(withdrawn);
        self.deleted.extend(deleted);
    }

    fn of_chat(&self, chat: &ChatKey) -> impl Iterator<Item = &Entry> {
        let messages = self.chats.get(chat).map(|chat| chat.messages.as_slice()).unwrap_or_default();
        messages.iter().filter_map(|message| self.entries.get(message))
    }
}

// === impl Entry ===

impl Entry {
    fn new(expected: ExpectedReply, number: u64) -> Self {
        Self {
            expected,
            number,
            turn: TurnState::Waiting,
            upstream: UpstreamState::Working,
            replies: Vec::new(),
            notices: 0,
            callbacks: 0,
            bytes: 0,
            arrived: Arc::default(),
        }
    }

    fn has_ended(&self) -> bool {
        matches!(self.turn, TurnState::Ended { .. })
    }

    fn is_orphaned(&self) -> bool {
        matches!(self.turn, TurnState::Orphaned { .. })
    }

    fn has_late_reply(&self) -> bool {
        matches!(self.turn, TurnState::Ended { has_late_reply: true })
    }

    /// The turn ended without a reply, and none came since.
    fn is_unanswered(&self) -> bool {
        self.has_ended() && self.replies.is_empty()
    }

    fn is_unanswered_or_late(&self) -> bool {
        self.is_unanswered() || self.has_late_reply()
    }

    fn is_answered(&self) -> bool {
        self.has_ended() && !self.is_unanswered_or_late()
    }
}

#[cfg(test)]
mod tests;
