//! The mailbox: where out-of-band replies wait for the turns that expect them.
//!
//! **Promise.** A turn records which reply it expects before it sends the request that causes it, and the expectation is in
//! the store by then. Every callback is in the store before it is acknowledged, so a reply survives the process: a turn
//! that comes back after a restart and expects the same reply gets what came meanwhile. Replies are matched by the id of the
//! message that they answer, never by chat. A callback without such an id is a notice: it goes to the turn that is running
//! on its chat, and cannot end it. One task at a time has messages under way on a chat, and the others queue for it, since a
//! busy upstream answers several messages as one.
//!
//! **Bounds.** Open expectations, turns in the queue of a chat, callbacks of an expectation, bytes of all callbacks, the
//! size of a body, connections, and the age of what nobody fetched ([`Limits`]). A waiting turn costs a row and an entry of
//! some hundred bytes; bodies stay in the store until the turn asks for them.
//!
//! **Failure.** If the store does not take a callback, the peer gets a 503 and tries again. A reply that comes after its
//! turn ended is kept for a day ([`Mailbox::late`]) and offered to its task ([`LateReplySink`](talaria_turns::LateReplySink)), again after
//! every restart, until the task has it. A reply that nobody expects is acknowledged and dropped.
//!
//! **Why so.** Futures in a map lose every reply with the process. Matching by chat gives one message the answer of
//! another as soon as two are under way.
//!
//! How a peer posts (path, proof of identity, shape of a body, answers) is a [`CallbackWire`]. A new callback transport
//! implements that trait, and nothing else in this crate changes.
#![forbid(unsafe_code)]

mod callback;
mod expectations;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzz;
mod listener;
mod mailbox;
mod waiting;
mod wire;

pub use callback::{Callback, CallbackKind, DeliveredAs, InvalidCallback};
pub use listener::Listener;
pub use mailbox::{Config, Counts, Mailbox, Receipt};
pub use wire::{Answer, CallbackWire, PlainWire, Pointer, SecretHeader};

/// Bounds of a mailbox.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Open expectations; one more is rejected. Ten times the number of turns that may run at once.
    pub open: usize,
    /// Turns in the queue of one chat; one more is rejected. As many as may wait in one context.
    pub queue: usize,
    /// Notices stored for one expectation; further ones are dropped. An hour of "still working" is 20.
    pub notices: usize,
    /// Different replies stored for one expectation; further ones are dropped. One is the rule.
    pub replies: usize,
    /// Bytes of all callbacks. Beyond it the oldest ended expectations are deleted, and then callbacks are rejected.
    pub bytes: usize,
    /// Expectations that are kept after they were answered, to recognise a repeated reply. The number and the time are
    /// those of the Python bridge.
    pub answered: usize,
    /// How long they are kept.
    pub answered_for: std::time::Duration,
    /// Expectations that are kept after their turn ended without a reply.
    pub unanswered: usize,
    /// How long they are kept. A day, since an upstream may try for as long to deliver what it owes.
    pub unanswered_for: std::time::Duration,
    /// How long the chats of expectations from before a restart are reserved for the turns that come back.
    pub orphans_for: std::time::Duration,
    /// Bytes of one body.
    pub body: usize,
    /// Connections at once; one more is closed.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        let hours = |hours: u64| std::time::Duration::from_secs(hours * 3_600);
        Self {
            open: 10_000,
            queue: 100,
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
