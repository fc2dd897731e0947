//! What is let go when it is too old or too much, and how much there is.

use talaria_turns::{Announced, Timestamp};

use super::{Book, Entry};
use crate::Limits;

/// How many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Turns that wait for a reply.
    pub waiting: usize,
    /// Turns in line for a chat.
    pub in_line: usize,
    /// Announcements from before a restart whose turns have not come back.
    pub orphans: usize,
    /// Turns that ended without a reply, for which one may still come.
    pub unanswered: usize,
    /// Replies that came after their turns ended.
    pub late: usize,
    /// Turns that ended with a reply, which are remembered to know it again.
    pub answered: usize,
    /// Bytes of all letters.
    pub bytes: usize,
}

// === impl Book ===

impl Book {
    /// Lets go of what is too old or too much. `boot` is when this process began to listen.
    pub(crate) fn sweep(&mut self, now: Timestamp, boot: Timestamp) {
        self.heirless.append(&mut self.not_yet);
        if boot < now.before(self.limits.orphans_for) {
            let orphans = self.entries.values().filter(|entry| entry.is_orphan);
            let orphans: Vec<Box<str>> = orphans.map(|entry| entry.announced.message.clone()).collect();
            for message in orphans {
                self.withdraw(&message, now);
                self.adopt(&message);
            }
        }
        let Limits { answered, answered_for, unanswered, unanswered_for, .. } = self.limits;
        for (is_over, most, age) in [
            (Entry::is_answered as fn(&Entry) -> bool, answered, answered_for),
            (Entry::is_unanswered_or_late, unanswered, unanswered_for),
        ] {
            let over = self.entries.values().filter(|entry| is_over(entry));
            // What ended before this process began is as old as the process: its turn may yet come back.
            let mut over: Vec<(Timestamp, Box<str>)> = over
                .filter_map(|entry| {
                    Some((entry.announced.closed?.max(boot), entry.announced.message.clone()))
                })
                .collect();
            over.sort_unstable();
            let too_many = over.len().saturating_sub(most);
            let expired = over.partition_point(|(closed, _)| *closed < now.before(age));
            for (_, message) in over.iter().take(too_many.max(expired)) {
                self.discard(message);
            }
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        let count = |fits: &dyn Fn(&Entry) -> bool| self.entries.values().filter(|e| fits(e)).count();
        Counts {
            waiting: count(&|entry| entry.announced.closed.is_none() && !entry.is_orphan),
            in_line: self.chats.values().map(|chat| chat.line.len()).sum(),
            orphans: count(&|entry| entry.is_orphan),
            unanswered: count(&Entry::is_unanswered),
            late: count(&|entry| entry.is_late),
            answered: count(&Entry::is_answered),
            bytes: self.bytes,
        }
    }

    /// The announcements whose late replies their tasks have not had, once. Of one task only the first that went unanswered
    /// counts: what a turn sent after it are commands, and nobody waits for what the gateway says to those.
    pub(crate) fn heirless(&mut self) -> Vec<Announced> {
        let heirless = std::mem::take(&mut self.heirless);
        let late =
            heirless.iter().filter_map(|message| self.entries.get(message)).filter(|late| late.is_late);
        let is_first = |late: &&Entry| {
            let place = |entry: &Entry| (entry.announced.at, entry.number);
            let unanswered = self.entries.values().filter(|entry| entry.is_unanswered_or_late());
            !unanswered
                .filter(|other| other.announced.task == late.announced.task)
                .any(|other| place(other) < place(late))
        };
        late.filter(is_first).map(|entry| entry.announced.clone()).collect()
    }

    /// The task of this announcement could not have them yet.
    pub(crate) fn not_yet(&mut self, message: &str) {
        self.not_yet.push(message.into());
    }

    /// The announcements with late replies, newest first.
    pub(crate) fn late(&self, limit: usize) -> Vec<Announced> {
        let mut late: Vec<&Announced> =
            self.entries.values().filter(|entry| entry.is_late).map(|entry| &entry.announced).collect();
        late.sort_unstable_by_key(|announced| std::cmp::Reverse(announced.closed));
        late.into_iter().take(limit).cloned().collect()
    }
}
