//! What the mailbox knows without asking the store: who expects what, on which chat, and who is next.
//!
//! No I/O and no clock here: a method is given the time, decides, and returns. Bodies are never here; of a letter only
//! its digest is, and its place.

mod age;
mod chat;

use std::collections::HashMap;
use std::sync::Arc;

use talaria_turns::{Announced, CallbackError, Envelope, Timestamp};
use tokio::sync::Notify;

use self::chat::Chat;
use crate::Limits;
use crate::letter::{Kind, Posted, Role};

pub use self::age::Counts;
pub(crate) use self::chat::Entered;

pub(crate) struct Book {
    limits: Limits,
    entries: HashMap<Box<str>, Entry>,
    chats: HashMap<Box<str>, Chat>,
    open: usize,
    bytes: usize,
    tickets: u64,
    closing: bool,
    /// Withdrawn, and the store does not know it yet.
    withdrawn: Vec<Box<str>>,
    /// Forgotten, and the store does not know it yet.
    discarded: Vec<Box<str>>,
    /// Late, and its task has not had it yet.
    heirless: Vec<Box<str>>,
    /// The same, to be tried with the next sweep.
    not_yet: Vec<Box<str>>,
}

/// An announcement and what came for it.
struct Entry {
    announced: Announced,
    /// Greater than that of what was announced before.
    number: u64,
    /// Open since before a restart; no turn has come back for it.
    is_orphan: bool,
    /// As such it holds its chat.
    holds_chat: bool,
    /// The replies that came, or are on their way to the store.
    replies: Vec<[u8; 32]>,
    /// The notices that came, or are on their way to the store.
    notices: usize,
    /// Letters in the store.
    letters: usize,
    /// Bytes of all letters.
    bytes: usize,
    /// A reply came after the turn ended.
    is_late: bool,
    /// The gateway said that it could not deliver the answer.
    is_undelivered: bool,
    /// The gateway is through with it: it answered a later message of the chat.
    is_settled: bool,
    arrived: Arc<Notify>,
}

/// An announcement that was taken.
pub(crate) struct Opened {
    /// Wakes its turn.
    pub(crate) arrived: Arc<Notify>,
    /// See [`Awaited::overtakes`](talaria_turns::Awaited::overtakes).
    pub(crate) overtakes: bool,
    /// It was not known before.
    pub(crate) is_new: bool,
}

/// Where a post goes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Routed {
    /// Nowhere, for this reason.
    Stale(&'static str),
    /// To an announcement. Room is reserved for it until [`Book::kept`] or [`Book::unkept`].
    For {
        /// The announcement.
        message: Box<str>,
        /// What its turn is told that it is.
        role: Role,
        /// Its turn has ended.
        late: bool,
    },
    /// There is no room.
    Full,
}

// === impl Book ===

impl Book {
    /// What a store kept. What was open is an orphan, and its chat stays taken.
    pub(crate) fn new(limits: Limits, announced: Vec<Announced>, letters: Vec<Envelope>) -> Self {
        let mut book = Self {
            limits,
            entries: HashMap::new(),
            chats: HashMap::new(),
            open: 0,
            bytes: 0,
            tickets: 0,
            closing: false,
            withdrawn: Vec::new(),
            discarded: Vec::new(),
            heirless: Vec::new(),
            not_yet: Vec::new(),
        };
        for announced in announced {
            let is_open = announced.closed.is_none();
            book.open += usize::from(is_open);
            let mut holds_chat = false;
            if let Some(name) = &announced.chat {
                let chat = book.chats.entry(name.clone()).or_default();
                chat.messages.push(announced.message.clone());
                holds_chat = is_open && chat.try_hold(&announced.task);
            }
            let message = announced.message.clone();
            book.tickets += 1;
            let number = book.tickets;
            let entry = Entry { number, is_orphan: is_open, holds_chat, ..Entry::new(announced) };
            book.entries.insert(message, entry);
        }
        for letter in letters {
            let Some(entry) = book.entries.get_mut(&letter.message) else { continue };
            entry.letters += 1;
            entry.bytes += letter.bytes;
            book.bytes += letter.bytes;
            if letter.is_reply {
                entry.replies.push(letter.digest);
                entry.is_late |= letter.is_late;
            } else {
                entry.notices += 1;
            }
        }
        // Which of their tasks have had them is not kept: a task knows by itself.
        let late = book.entries.values().filter(|entry| entry.is_late);
        book.heirless = late.map(|entry| entry.announced.message.clone()).collect();
        book
    }

    /// Takes nothing more; whoever waits or is in line is told.
    pub(crate) fn close(&mut self) {
        self.closing = true;
        for chat in self.chats.values_mut() {
            chat.line.clear();
        }
        for entry in self.entries.values() {
            entry.arrived.notify_waiters();
        }
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    /// Takes an announcement. Where it names a chat, its task has entered it.
    pub(crate) fn announce(&mut self, announced: &Announced) -> Result<Opened, CallbackError> {
        if self.closing {
            return Err(CallbackError::Closing);
        }
        let overtakes = announced.chat.as_deref().is_some_and(|chat| self.is_dirty(chat, announced));
        if let Some(entry) = self.entries.get_mut(&announced.message) {
            let known = &entry.announced;
            let is_open = known.closed.is_none();
            let same = (&known.task, &known.executor, &known.chat)
                == (&announced.task, &announced.executor, &announced.chat);
            if !same || (is_open && !entry.is_orphan) {
                return Err(CallbackError::Duplicate(announced.message.clone()));
            }
            entry.announced.closed = None;
            entry.is_late = false;
            self.open += usize::from(!is_open);
            let arrived = Arc::clone(&entry.arrived);
            // The turn that came back holds its chat by itself.
            self.adopt(&announced.message);
            return Ok(Opened { arrived, overtakes, is_new: false });
        }
        if self.open >= self.limits.open {
            let most = self.limits.open;
            return Err(CallbackError::Full(format!("{most} replies are expected, which is the most")));
        }
        self.open += 1;
        self.tickets += 1;
        let entry = Entry { number: self.tickets, ..Entry::new(announced.clone()) };
        let arrived = Arc::clone(&entry.arrived);
        self.entries.insert(announced.message.clone(), entry);
        if let Some(name) = &announced.chat {
            self.chats.entry(name.clone()).or_default().messages.push(announced.message.clone());
        }
        Ok(Opened { arrived, overtakes, is_new: true })
    }

    /// An orphan is none any more, and does not hold its chat.
    fn adopt(&mut self, message: &str) {
        let Some(entry) = self.entries.get_mut(message) else { return };
        entry.is_orphan = false;
        if std::mem::take(&mut entry.holds_chat)
            && let Some(chat) = entry.announced.chat.clone()
        {
            self.leave(&chat);
        }
    }

    /// Whether the gateway may be at work on an earlier message of the chat.
    fn is_dirty(&self, chat: &str, announced: &Announced) -> bool {
        self.of_chat(chat).any(|entry| {
            entry.is_unanswered() && !entry.is_settled && entry.announced.message != announced.message
        })
    }

    /// Withdraws an announcement; it is remembered for a while.
    pub(crate) fn withdraw(&mut self, message: &str, now: Timestamp) {
        let Some(entry) = self.entries.get_mut(message) else { return };
        if entry.announced.closed.replace(now).is_none() {
            self.open -= 1;
        }
        self.withdrawn.push(message.into());
    }

    /// Forgets an announcement.
    pub(crate) fn discard(&mut self, message: &str) {
        let Some(entry) = self.entries.remove(message) else { return };
        self.bytes -= entry.bytes;
        if entry.announced.closed.is_none() {
            self.open -= 1;
        }
        self.discarded.push(message.into());
        let Some(name) = &entry.announced.chat else { return };
        if let Some(chat) = self.chats.get_mut(name) {
            chat.messages.retain(|known| **known != *message);
            if chat.messages.is_empty() && chat.holder.is_none() && chat.line.is_empty() {
                self.chats.remove(name);
            }
        }
    }

    /// Letters in the store for a message.
    pub(crate) fn letters(&self, message: &str) -> usize {
        self.entries.get(message).map_or(0, |entry| entry.letters)
    }

    /// What the store does not know yet: withdrawn, and forgotten.
    pub(crate) fn take_changes(&mut self) -> (Vec<Box<str>>, Vec<Box<str>>) {
        let entries = &self.entries;
        let mut withdrawn = std::mem::take(&mut self.withdrawn);
        withdrawn.retain(|message| entries.get(message).is_some_and(|e| e.announced.closed.is_some()));
        (withdrawn, std::mem::take(&mut self.discarded))
    }

    /// The store did not take them.
    pub(crate) fn put_back(&mut self, withdrawn: Vec<Box<str>>, discarded: Vec<Box<str>>) {
        self.withdrawn.extend(withdrawn);
        self.discarded.extend(discarded);
    }

    /// Decides where a post goes, and reserves room for it.
    pub(crate) fn route(&mut self, posted: &Posted, digest: &[u8; 32], bytes: usize) -> Routed {
        let (message, role) = match &posted.reply_to {
            Some(message) if self.entries.contains_key(message.as_str()) => match posted.kind {
                Kind::DeliveryFailed => (message.as_str().into(), Role::DeliveryFailed),
                Kind::Plain | Kind::Recovered | Kind::Resumed => (message.as_str().into(), Role::Reply),
            },
            Some(_) => return Routed::Stale("nobody expects it"),
            None => match self.about_chat(posted, digest) {
                Ok(found) => found,
                Err(why) => return Routed::Stale(why),
            },
        };
        if !self.has_room(bytes, &message) {
            return Routed::Full;
        }
        let limits = self.limits;
        let Some(entry) = self.entries.get_mut(&message) else { return Routed::Stale("nobody expects it") };
        let late = entry.announced.closed.is_some();
        match role {
            Role::Reply if entry.replies.contains(digest) => return Routed::Stale("it came before"),
            Role::Reply if entry.replies.len() >= limits.replies => {
                return Routed::Stale("there are too many replies");
            }
            Role::Reply => entry.replies.push(*digest),
            Role::Notice | Role::DeliveryFailed => {
                entry.is_undelivered |= role == Role::DeliveryFailed;
                if late || entry.notices >= limits.notices {
                    return Routed::Stale("a notice without a turn to read it, or too many");
                }
                entry.notices += 1;
            }
        }
        entry.bytes += bytes;
        self.bytes += bytes;
        Routed::For { message, role, late }
    }

    /// A post that answers no message: what it can be, of all that is expected on its chat.
    fn about_chat(&self, posted: &Posted, digest: &[u8; 32]) -> Result<(Box<str>, Role), &'static str> {
        let chat = posted.chat.as_deref().ok_or("it names neither a message nor a chat")?;
        if matches!(posted.kind, Kind::Recovered | Kind::Resumed) {
            // What is delivered again is the same; two turns that end with the same words are two answers.
            if posted.kind == Kind::Recovered
                && self.of_chat(chat).any(|entry| entry.replies.contains(digest))
            {
                return Err("it came before");
            }
            // It is somebody's answer. Whose can be told where the gateway had said that it could not deliver one, or
            // where only one is missing; else it is a notice, since a wrong answer is worse than none.
            let missing: Vec<&Entry> =
                self.of_chat(chat).filter(|entry| entry.replies.is_empty() && !entry.is_settled).collect();
            let undelivered: Vec<&Entry> =
                missing.iter().copied().filter(|entry| entry.is_undelivered).collect();
            if let ([entry], _) | ([], [entry]) = (undelivered.as_slice(), missing.as_slice()) {
                return Ok((entry.announced.message.clone(), Role::Reply));
            }
        }
        let open = self.of_chat(chat).find(|entry| entry.announced.closed.is_none());
        let role = if posted.kind == Kind::DeliveryFailed { Role::DeliveryFailed } else { Role::Notice };
        open.map(|entry| (entry.announced.message.clone(), role)).ok_or("no turn is under way on its chat")
    }

    fn of_chat(&self, chat: &str) -> impl Iterator<Item = &Entry> {
        let messages = self.chats.get(chat).map(|chat| chat.messages.as_slice()).unwrap_or_default();
        messages.iter().filter_map(|message| self.entries.get(message))
    }

    /// Whether so many more bytes fit, if need be when the oldest of ended turns are forgotten.
    fn has_room(&mut self, bytes: usize, except: &str) -> bool {
        while self.bytes.saturating_add(bytes) > self.limits.bytes {
            let ended = self.entries.values().filter(|entry| entry.bytes > 0);
            let ended = ended.filter(|entry| *entry.announced.message != *except);
            let ended = ended.filter_map(|entry| Some((entry.announced.closed?, &entry.announced.message)));
            let Some((_, oldest)) = ended.min() else { return false };
            let oldest = oldest.clone();
            self.discard(&oldest);
        }
        true
    }

    /// The letter is in the store.
    pub(crate) fn kept(&mut self, message: &str, role: Role, late: bool) {
        let Some(entry) = self.entries.get_mut(message) else { return };
        entry.letters += 1;
        entry.arrived.notify_waiters();
        if role != Role::Reply {
            return;
        }
        if late && entry.announced.closed.is_some() {
            entry.is_late = true;
            self.heirless.push(message.into());
        }
        let (at, chat) = (entry.announced.at, entry.announced.chat.clone());
        let before: Vec<Box<str>> = chat
            .iter()
            .flat_map(|chat| self.of_chat(chat))
            .filter(|other| other.announced.closed.is_some() && other.announced.at <= at)
            .map(|other| other.announced.message.clone())
            .collect();
        for message in before {
            if let Some(entry) = self.entries.get_mut(&message) {
                entry.is_settled = true;
            }
        }
    }

    /// The store did not take the letter: it may come again.
    pub(crate) fn unkept(&mut self, message: &str, role: Role, digest: &[u8; 32], bytes: usize) {
        let Some(entry) = self.entries.get_mut(message) else { return };
        match role {
            Role::Reply => entry.replies.retain(|known| known != digest),
            Role::Notice | Role::DeliveryFailed => entry.notices -= 1,
        }
        entry.bytes -= bytes;
        self.bytes -= bytes;
    }
}

// === impl Entry ===

impl Entry {
    fn new(announced: Announced) -> Self {
        Self {
            announced,
            number: 0,
            is_orphan: false,
            holds_chat: false,
            replies: Vec::new(),
            notices: 0,
            letters: 0,
            bytes: 0,
            is_late: false,
            is_undelivered: false,
            is_settled: false,
            arrived: Arc::default(),
        }
    }

    /// Its turn ended without a reply, and none came since.
    fn is_unanswered(&self) -> bool {
        self.announced.closed.is_some() && self.replies.is_empty()
    }

    fn is_unanswered_or_late(&self) -> bool {
        self.is_unanswered() || self.is_late
    }

    fn is_answered(&self) -> bool {
        self.announced.closed.is_some() && !self.is_unanswered_or_late()
    }
}

#[cfg(test)]
mod tests;
