//! The mailbox: where out-of-band replies wait for the turns that expect them.
//!
//! **Promise.** A turn announces the reply before it sends the request that causes it, and the announcement is in the
//! store by then. Whatever an upstream posts is in the store before it is acknowledged, so a reply outlives the process:
//! a turn that comes back after a restart and announces the same message again gets what came meanwhile. Replies are
//! matched by the id of the message that they answer, never by chat. What answers nothing (a notice) goes to the turn
//! that is under way on its chat, and cannot end it. Of one chat one task at a time has a message under way; the others
//! wait in line, since a gateway that is busy answers several messages as one.
//!
//! **Bounds.** Announcements, turns in line for one chat, letters for one announcement, bytes of all letters, the size
//! of a post, connections, and the age of what nobody fetched ([`Limits`]). A turn that waits costs a row and an entry
//! of some hundred bytes; bodies are in the store until the turn asks for them.
//!
//! **Failure.** A store that does not take a letter makes the post fail with 503, and the peer tries again. A reply that
//! comes after its turn ended is kept for a day ([`Mailbox::late`]) and given to its task ([`Heir`](talaria_turns::Heir)),
//! again after every restart, until the task has it. One that nobody announced is acknowledged and dropped.
//!
//! **Why so.** Futures in a map, as the Python bridge had, lose every reply with the process. Matching by chat gives one
//! message the answer of another as soon as two are under way.
#![forbid(unsafe_code)]

mod book;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzz;
mod letter;
mod listener;
mod mailbox;

pub use letter::{Invalid, Posted};
pub use listener::Listener;
pub use mailbox::{Config, Counts, Mailbox, Receipt};

/// Bounds of a mailbox.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Announcements that are open at once; one more is refused. Ten times the turns that may be under way.
    pub open: usize,
    /// Turns in line for one chat; one more is refused. As many as may wait in one conversation.
    pub lane: usize,
    /// Notices that are kept for one announcement; further ones are dropped. An hour of "still working" is 20.
    pub notices: usize,
    /// Different replies that are kept for one announcement; further ones are dropped. One is the rule.
    pub replies: usize,
    /// Bytes of all letters; beyond it the oldest of ended turns go, and then posts are refused.
    pub bytes: usize,
    /// Announcements that are kept after they were answered, so that a doubled reply is known again. The number and the
    /// time are those of the newest Python bridge.
    pub answered: usize,
    /// And for how long.
    pub answered_for: std::time::Duration,
    /// Announcements that are kept after their turn ended without a reply.
    pub unanswered: usize,
    /// And for how long: hermes-agent itself tries for a day to deliver what it owes.
    pub unanswered_for: std::time::Duration,
    /// How long the chats of announcements from before a restart are kept free for the turns that come back.
    pub orphans_for: std::time::Duration,
    /// Bytes of one post.
    pub body: usize,
    /// Connections at once; one more is closed.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        let hours = |hours: u64| std::time::Duration::from_secs(hours * 3_600);
        Self {
            open: 10_000,
            lane: 100,
            notices: 64,
            replies: 4,
            bytes: 256 << 20,
            answered: 2_048,
            answered_for: hours(1),
            unanswered: 2_048,
            unanswered_for: hours(24),
            orphans_for: std::time::Duration::from_secs(60),
            body: 16 << 20,
            connections: 1_000,
        }
    }
}
