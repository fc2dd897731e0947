//! The memory that callers may make the host hold.
//!
//! **Promise.** The sum of all [`Charge`]s stays within the limit of their [`Budget`], so no number of callers can take
//! more than that. Everything whose size a caller decides takes a charge: bodies as they arrive, the trees that they are
//! parsed into, responses until they are sent, tasks while they are live, and the memories of guests.
//!
//! **Bound.** [`Budget::new`] has one limit. A [`share`](Budget::share) has a smaller one and takes from its parent too, so
//! that one kind of use cannot take everything.
//!
//! **Failure.** A charge that does not fit fails at once with [`Full`], and nothing waits for room: a queue of requests that
//! wait for memory would take memory itself. Memory that is taken already, such as an event that is in the store, is
//! charged with [`Charge::force`]; the budget is then over its limit until enough is given back, and refuses everything else.
//!
//! **Why this way.** A charge is one atomic addition. A limit of the allocator would see everything, but could only abort
//! the process; a limit for each kind of use would have to be small enough for all of them at once.

#![forbid(unsafe_code)]

mod machine;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

pub use machine::Machine;

/// An amount of memory that is shared by all clones.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    limit: usize,
    used: AtomicUsize,
    refused: AtomicU64,
    parent: Option<Budget>,
}

/// A part of a budget. It is given back when this is dropped.
#[derive(Debug)]
pub struct Charge {
    budget: Budget,
    bytes: usize,
}

/// The budget is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the memory for requests and turns is used up; try again later")]
pub struct Full;

impl Default for Budget {
    /// Without a limit.
    fn default() -> Self {
        Self::unlimited()
    }
}

// === impl Budget ===

impl Budget {
    /// A budget of this many bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self::of(limit, None)
    }

    /// A budget that is never used up.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::new(usize::MAX)
    }

    /// A part of this budget with a limit of its own. What is charged to it is charged to this budget too.
    #[must_use]
    pub fn share(&self, limit: usize) -> Self {
        Self::of(limit.min(self.0.limit), Some(self.clone()))
    }

    fn of(limit: usize, parent: Option<Self>) -> Self {
        Self(Arc::new(Pool { limit, used: AtomicUsize::new(0), refused: AtomicU64::new(0), parent }))
    }

    /// Takes this many bytes until the charge is dropped.
    ///
    /// # Errors
    /// [`Full`] if there are not so many left.
    pub fn charge(&self, bytes: usize) -> Result<Charge, Full> {
        self.take(bytes).inspect_err(|_| self.count())?;
        Ok(Charge { budget: self.clone(), bytes })
    }

    /// A charge of nothing, to be grown.
    #[must_use]
    pub fn nothing(&self) -> Charge {
        Charge { budget: self.clone(), bytes: 0 }
    }

    /// The bytes that are charged now.
    #[must_use]
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// The most that can be charged.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// The charges that did not fit since the start, those of its shares included.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> Result<(), Full> {
        // Added before the check, so that two charges cannot both take the last bytes. Unlike a loop of compare and
        // exchange, this cannot be starved; a charge beside one that is about to be taken back may fail too early.
        let before = self.0.used.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.checked_add(bytes).is_some_and(|used| used <= self.0.limit);
        let taken = match &self.0.parent {
            _ if !fits => Err(Full),
            Some(parent) => parent.take(bytes),
            None => Ok(()),
        };
        if taken.is_err() {
            self.0.used.fetch_sub(bytes, Ordering::Relaxed);
        }
        taken
    }

    fn force(&self, bytes: usize) {
        self.0.used.fetch_add(bytes, Ordering::Relaxed);
        if let Some(parent) = &self.0.parent {
            parent.force(bytes);
        }
    }

    fn give_back(&self, bytes: usize) {
        self.0.used.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(parent) = &self.0.parent {
            parent.give_back(bytes);
        }
    }

    fn count(&self) {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
        if let Some(parent) = &self.0.parent {
            parent.count();
        }
    }
}

// === impl Charge ===

impl Charge {
    /// Takes more.
    ///
    /// # Errors
    /// [`Full`] if there is not so much left; the charge stays as it was.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Full> {
        self.budget.take(bytes).inspect_err(|_| self.budget.count())?;
        self.bytes = self.bytes.saturating_add(bytes);
        Ok(())
    }

    /// Takes more, even beyond the limit: for memory that is in use already.
    pub fn force(&mut self, bytes: usize) {
        self.budget.force(bytes);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Gives back all but this many bytes.
    pub fn shrink_to(&mut self, bytes: usize) {
        if let Some(rest) = self.bytes.checked_sub(bytes) {
            self.budget.give_back(rest);
            self.bytes = bytes;
        }
    }

    /// The bytes of this charge.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The budget that it was taken from.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_never_exceed_the_limit_and_are_given_back() {
        let budget = Budget::new(100);
        let first = budget.charge(60).unwrap();
        assert!(matches!(budget.charge(41), Err(Full)));
        assert_eq!((budget.used(), budget.refused()), (60, 1), "a charge that fails takes nothing");
        let mut second = budget.charge(40).unwrap();
        assert_eq!(second.grow(1), Err(Full));
        drop(first);
        assert_eq!(second.grow(60), Ok(()));
        second.shrink_to(10);
        assert_eq!((second.bytes(), budget.used()), (10, 10));
        second.shrink_to(50);
        assert_eq!(budget.used(), 10, "shrinking does not grow");
        drop(second);
        assert_eq!(budget.used(), 0);
        assert!(budget.charge(usize::MAX).is_err(), "a sum that overflows does not fit");
    }

    #[test]
    fn a_share_takes_from_its_parent_and_leaves_it_the_rest() {
        let budget = Budget::new(100);
        let share = budget.share(50);
        let _half = share.charge(50).unwrap();
        assert!(share.charge(1).is_err(), "its own limit");
        let rest = budget.charge(50).unwrap();
        drop(_half);
        assert!(budget.charge(51).is_err());
        let _again = share.charge(50).unwrap();
        assert_eq!((share.used(), budget.used()), (50, 100));
        drop(rest);
        let _other = budget.charge(50).unwrap();
        drop(_again);
        let _more = budget.charge(50).unwrap();
        assert!(share.charge(1).is_err(), "the parent's limit");
        assert_eq!((share.used(), budget.used()), (0, 100));
    }

    #[test]
    fn memory_in_use_is_charged_beyond_the_limit_and_then_nothing_else_fits() {
        let budget = Budget::new(100);
        let mut charge = budget.charge(90).unwrap();
        charge.force(30);
        assert_eq!(budget.used(), 120);
        assert!(budget.charge(1).is_err());
        drop(charge);
        assert!(budget.charge(100).is_ok());
    }

    #[test]
    fn charges_from_many_threads_stay_within_the_limit() {
        let budget = Budget::new(1_000);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        if let Ok(charge) = budget.charge(300) {
                            assert!(charge.bytes() == 300 && budget.charge(800).is_err());
                        }
                    }
                });
            }
        });
        assert_eq!(budget.used(), 0);
    }
}
