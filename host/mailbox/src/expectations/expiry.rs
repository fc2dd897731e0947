//! What is deleted because it is too old or too much, which tasks get late replies, and how much there is of everything.

use talaria_turns::{ExpectedReply, Timestamp};

use super::{Entry, Expectations};
use crate::Limits;

/// What a mailbox holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Turns that wait for a reply.
    pub waiting: usize,
    /// Turns in the queue of a chat.
    pub in_line: usize,
    /// Expectations from before a restart whose turns have not come back.
    pub orphans: usize,
    /// Turns that ended without a reply, for which one may still come.
    pub unanswered: usize,
    /// Turns that got a reply after they had ended.
    pub late: usize,
    /// Turns that ended with a reply, remembered to recognise a repeated one.
    pub answered: usize,
    /// Bytes of all callbacks.
    pub bytes: usize,
}

// === impl Expectations ===

impl Expectations {
    /// Deletes what is too old or too much. `boot` is the time at which this process began to listen.
    pub(crate) fn sweep(&mut self, now: Timestamp, boot: Timestamp) {
        self.late.append(&mut self.late_retries);
        if boot < now.before(self.limits.orphans_for) {
            let orphans = self.entries.values().filter(|entry| entry.is_orphaned());
            let orphans: Vec<Box<str>> = orphans.map(|entry| entry.expected.message.clone()).collect();
            for message in orphans {
                self.withdraw(&message, now);
            }
        }
        let Limits { answered, answered_for, unanswered, unanswered_for, .. } = self.limits;
        for (is_over, most, age) in [
            (Entry::is_answered as fn(&Entry) -> bool, answered, answered_for),
            (Entry::is_unanswered_or_late, unanswered, unanswered_for),
        ] {
            let over = self.entries.values().filter(|entry| is_over(entry));
            // An entry that ended before this process began counts as ended then: its turn may yet come back.
            let mut over: Vec<(Timestamp, Box<str>)> = over
                .filter_map(|entry| Some((entry.expected.closed?.max(boot), entry.expected.message.clone())))
                .collect();
            over.sort_unstable();
            let too_many = over.len().saturating_sub(most);
            let expired = over.partition_point(|(closed, _)| *closed < now.before(age));
            for (_, message) in over.iter().take(too_many.max(expired)) {
                self.delete(message);
            }
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        let count = |fits: fn(&Entry) -> bool| self.entries.values().filter(|entry| fits(entry)).count();
        Counts {
            waiting: count(|entry| !entry.has_ended() && !entry.is_orphaned()),
            in_line: self.chats.values().map(|chat| chat.queue.len()).sum(),
            orphans: count(Entry::is_orphaned),
            unanswered: count(Entry::is_unanswered),
            late: count(Entry::has_late_reply),
            answered: count(Entry::is_answered),
            bytes: self.bytes,
        }
    }

    /// Takes the expectations whose late replies are to be given to their tasks. Of one task only the first unanswered
    /// message counts: what a turn sends after it are commands, and nobody waits for the upstream's answers to those.
    pub(crate) fn take_late(&mut self) -> Vec<ExpectedReply> {
        let messages = std::mem::take(&mut self.late);
        let late = messages.iter().filter_map(|message| self.entries.get(message));
        let is_first = |late: &&Entry| {
            let place = |entry: &Entry| (entry.expected.at, entry.number);
            let unanswered = self.entries.values().filter(|entry| entry.is_unanswered_or_late());
            !unanswered
                .filter(|other| other.expected.task == late.expected.task)
                .any(|other| place(other) < place(late))
        };
        late.filter(|entry| entry.has_late_reply())
            .filter(is_first)
            .map(|entry| entry.expected.clone())
            .collect()
    }

    /// Offers the late replies to a message again with the next sweep.
    pub(crate) fn retry_late(&mut self, message: &str) {
        self.late_retries.push(message.into());
    }

    /// The expectations with late replies, newest first.
    pub(crate) fn late(&self, limit: usize) -> Vec<ExpectedReply> {
        let late = self.entries.values().filter(|entry| entry.has_late_reply());
        let mut late: Vec<&ExpectedReply> = late.map(|entry| &entry.expected).collect();
        late.sort_unstable_by_key(|expected| std::cmp::Reverse(expected.closed));
        late.into_iter().take(limit).cloned().collect()
    }
}
