//! Which expectation a callback belongs to.
//!
//! A callback that names a message belongs to that message. One that names only a chat is a notice for the turn that is
//! running there, unless the upstream says that it is an answer whose message it has lost, and only one message can be
//! meant. In doubt it is a notice: a wrong answer is worse than none. If several executors have a chat of that name, it is
//! for none of them, since one of them may have taken the name to listen in.

use super::{ChatKey, Entry, Expectations, TurnState, UpstreamState};
use crate::callback::{Callback, CallbackKind, DeliveredAs};

/// Where a callback goes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Routed {
    /// Nowhere, for this reason.
    Stale(&'static str),
    /// To an expectation. Room is reserved for it until [`Expectations::stored`] or [`Expectations::not_stored`].
    For {
        /// The message of the expectation.
        message: Box<str>,
        /// What its turn is given the callback as.
        delivered_as: DeliveredAs,
        /// Whether the turn has ended.
        late: bool,
    },
    /// There is no room for it.
    Full,
}

// === impl Expectations ===

impl Expectations {
    /// Decides where a callback goes, and reserves room for it.
    pub(crate) fn route(&mut self, callback: &Callback, digest: &[u8; 32], bytes: usize) -> Routed {
        let (message, delivered_as) = match &callback.reply_to {
            Some(message) if self.entries.contains_key(message.as_str()) => match callback.kind {
                CallbackKind::DeliveryFailed => (message.as_str().into(), DeliveredAs::DeliveryFailed),
                CallbackKind::Plain | CallbackKind::Recovered | CallbackKind::Resumed => {
                    (message.as_str().into(), DeliveredAs::Reply)
                }
            },
            Some(_) => return Routed::Stale("nobody expects it"),
            None => match self.route_by_chat(callback, digest) {
                Ok(found) => found,
                Err(why) => return Routed::Stale(why),
            },
        };
        if !self.make_room(bytes, &message) {
            return Routed::Full;
        }
        let limits = self.limits;
        let Some(entry) = self.entries.get_mut(&message) else { return Routed::Stale("nobody expects it") };
        let late = entry.has_ended();
        match delivered_as {
            DeliveredAs::Reply if entry.replies.contains(digest) => return Routed::Stale("it came before"),
            DeliveredAs::Reply if entry.replies.len() >= limits.replies => {
                return Routed::Stale("there are too many replies");
            }
            DeliveredAs::Reply => entry.replies.push(*digest),
            DeliveredAs::Notice | DeliveredAs::DeliveryFailed => {
                if delivered_as == DeliveredAs::DeliveryFailed && entry.upstream == UpstreamState::Working {
                    entry.upstream = UpstreamState::DeliveryFailed;
                }
                if late || entry.notices >= limits.notices {
                    return Routed::Stale("its turn has ended or has too many notices");
                }
                entry.notices += 1;
            }
        }
        entry.bytes += bytes;
        self.bytes += bytes;
        Routed::For { message, delivered_as, late }
    }

    /// Finds the message of a callback that names none, among those of its chat.
    fn route_by_chat(
        &self,
        callback: &Callback,
        digest: &[u8; 32],
    ) -> Result<(Box<str>, DeliveredAs), &'static str> {
        let name = callback.chat.as_deref().ok_or("it names neither a message nor a chat")?;
        let from = ChatKey { name: name.into(), executor: "".into() };
        let chats = self.chats.range(from..).take_while(|(key, _)| *key.name == *name);
        let mut chats = chats.filter(|(_, chat)| !chat.messages.is_empty()).map(|(key, _)| key);
        let chat = match (chats.next(), chats.next()) {
            (Some(chat), None) => chat,
            (Some(_), Some(_)) => return Err("several executors have a chat of this name"),
            (None, _) => return Err("no turn runs on its chat"),
        };
        if matches!(callback.kind, CallbackKind::Recovered | CallbackKind::Resumed) {
            // A repeated answer has the same text. Two turns that end with the same text are two answers.
            if callback.kind == CallbackKind::Recovered
                && self.of_chat(chat).any(|entry| entry.replies.contains(digest))
            {
                return Err("it came before");
            }
            if let Some(entry) = self.only_missing(chat) {
                return Ok((entry.expected.message.clone(), DeliveredAs::Reply));
            }
        }
        let open = self.of_chat(chat).find(|entry| !entry.has_ended());
        let delivered_as = match callback.kind {
            CallbackKind::DeliveryFailed => DeliveredAs::DeliveryFailed,
            CallbackKind::Plain | CallbackKind::Recovered | CallbackKind::Resumed => DeliveredAs::Notice,
        };
        open.map(|entry| (entry.expected.message.clone(), delivered_as)).ok_or("no turn runs on its chat")
    }

    /// The one message of a chat whose answer is missing: the one whose delivery failed, or the only one without a reply.
    fn only_missing(&self, chat: &ChatKey) -> Option<&Entry> {
        let is_missing = |entry: &&Entry| entry.replies.is_empty() && entry.upstream != UpstreamState::Done;
        let missing: Vec<&Entry> = self.of_chat(chat).filter(is_missing).collect();
        let failed = missing.iter().copied().filter(|entry| entry.upstream == UpstreamState::DeliveryFailed);
        let failed: Vec<&Entry> = failed.collect();
        match (failed.as_slice(), missing.as_slice()) {
            ([entry], _) | ([], [entry]) => Some(entry),
            _ => None,
        }
    }

    /// Whether so many more bytes fit, if need be after the oldest ended entries are deleted.
    fn make_room(&mut self, bytes: usize, except: &str) -> bool {
        while self.bytes.saturating_add(bytes) > self.limits.bytes {
            let ended = self.entries.values().filter(|entry| entry.bytes > 0);
            let ended = ended.filter(|entry| *entry.expected.message != *except);
            let ended = ended.filter_map(|entry| Some((entry.expected.closed?, &entry.expected.message)));
            let Some((_, oldest)) = ended.min() else { return false };
            let oldest = oldest.clone();
            self.delete(&oldest);
        }
        true
    }

    /// Notes that a routed callback is in the store, and wakes its turn.
    pub(crate) fn stored(&mut self, message: &str, delivered_as: DeliveredAs, late: bool) {
        let Some(entry) = self.entries.get_mut(message) else { return };
        entry.callbacks += 1;
        entry.arrived.notify_waiters();
        if delivered_as != DeliveredAs::Reply {
            return;
        }
        if let (true, TurnState::Ended { has_late_reply }) = (late, &mut entry.turn) {
            *has_late_reply = true;
            self.late.push(message.into());
        }
        let (at, chat) = (entry.expected.at, ChatKey::of(&entry.expected));
        let before: Vec<Box<str>> = chat
            .iter()
            .flat_map(|chat| self.of_chat(chat))
            .filter(|other| other.has_ended() && other.expected.at <= at)
            .map(|other| other.expected.message.clone())
            .collect();
        for message in before {
            if let Some(entry) = self.entries.get_mut(&message) {
                entry.upstream = UpstreamState::Done;
            }
        }
    }

    /// Gives back the room of a routed callback that the store did not take; it may come again.
    pub(crate) fn not_stored(
        &mut self,
        message: &str,
        delivered_as: DeliveredAs,
        digest: &[u8; 32],
        bytes: usize,
    ) {
        let Some(entry) = self.entries.get_mut(message) else { return };
        match delivered_as {
            DeliveredAs::Reply => entry.replies.retain(|known| known != digest),
            DeliveredAs::Notice | DeliveredAs::DeliveryFailed => entry.notices -= 1,
        }
        entry.bytes -= bytes;
        self.bytes -= bytes;
    }
}
