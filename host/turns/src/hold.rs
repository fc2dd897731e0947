//! Tasks that stay open after their turn, because work for them goes on elsewhere.
//!
//! A turn may have given work away: it completes with a promise, and the result comes later. Its task is then *held*: it is
//! working, but has no turn. Its caller goes on waiting, and gets the answer to the next message of the task instead of the
//! promise. The holder ends that by sending the task a message ([`Turns::send`](crate::Turns::send)), or by
//! [`Turns::release`](crate::Turns::release), which completes it with the answer that it has.
//!
//! A held task takes no place among the turns, in the lane of its context or in memory; other turns of the context run.
//! After a restart a held task that nobody holds any more is released.

use crate::store::TaskKey;

/// Decides which tasks are held. Its methods run within a turn or an append, so they must not block.
pub trait Hold: Send + Sync + 'static {
    /// Whether the task stays open although its turn has completed. A holder that no longer holds a task says so here
    /// before it releases the task; otherwise a turn that ends at the same time could leave the task open.
    fn is_held(&self, task: &TaskKey) -> bool;

    /// The task was cancelled or failed, so nobody waits for the work any more.
    fn is_over(&self, task: &TaskKey);
}
