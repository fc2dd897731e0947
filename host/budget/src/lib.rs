//! The memory that callers may make the host hold.
//!
//! **Promise.** The sum of all [`Charge`]s stays within the limit of their [`Budget`], so no number of callers can take
//! more than that. Everything whose size a caller decides takes a charge: bodies as they arrive, the trees that they are
//! parsed into, responses until they are sent, tasks while they are live, and the memories of guests.
//!
//! **Bound.** [`Budget::new`] has one limit. A [`share`](Budget::share) has a smaller one and takes from its parent too, so
//! that one kind of use cannot take everything. A [`share_of`](Budget::share_of) a caller takes from that caller's own
//! [budget](Budget::of_caller) as well, whatever it is used for, so that one caller cannot.
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
    /// The budget of the caller that this is a share of.
    caller: Option<Budget>,
    /// What a charge fails with that does not fit here.
    full: Full,
}

/// A part of a budget. It is given back when this is dropped.
#[derive(Debug)]
pub struct Charge {
    budget: Budget,
    bytes: usize,
}

/// A budget is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// That of all callers.
    #[error("the memory for requests and turns is used up; try again later")]
    Host,
    /// That of one caller.
    #[error(
        "this caller takes all the memory that one may; try again later, or raise `limits.caller.memory`"
    )]
    Caller,
}

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
        Self::of(limit, None, None, Full::Host)
    }

    /// The budget of one caller, of this many bytes. It takes from no other: [`Budget::share_of`] combines the two.
    #[must_use]
    pub fn of_caller(limit: usize) -> Self {
        Self::of(limit, None, None, Full::Caller)
    }

    /// A budget that is never used up.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::new(usize::MAX)
    }

    /// A part of this budget with a limit of its own. What is charged to it is charged to this budget too.
    #[must_use]
    pub fn share(&self, limit: usize) -> Self {
        Self::of(limit.min(self.0.limit), Some(self.clone()), None, Full::Host)
    }

    /// The part of this budget that one caller may take: as much of it as `caller` has of the budget `whole`. What is charged
    /// to it is charged to this budget and to the caller's.
    #[must_use]
    pub fn share_of(&self, caller: &Self, whole: usize) -> Self {
        let part = self.0.limit as u128 * caller.0.limit as u128 / (whole as u128).max(1);
        let limit = usize::try_from(part).unwrap_or(usize::MAX).min(self.0.limit);
        Self::of(limit, Some(self.clone()), Some(caller.clone()), Full::Caller)
    }

    fn of(limit: usize, parent: Option<Self>, caller: Option<Self>, full: Full) -> Self {
        let (used, refused) = (AtomicUsize::new(0), AtomicU64::new(0));
        Self(Arc::new(Pool { limit, used, refused, parent, caller, full }))
    }

    /// Takes this many bytes until the charge is dropped.
    ///
    /// # Errors
    /// [`Full`] if there are not so many left.
    pub fn charge(&self, bytes: usize) -> Result<Charge, Full> {
        self.take(bytes).inspect_err(|full| self.count(*full))?;
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

    /// The charges that did not fit since the start, those of its shares included, but those of a caller over its own budget.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> Result<(), Full> {
        // Added before the check, so that two charges cannot both take the last bytes. Unlike a loop of compare and
        // exchange, this cannot be starved; a charge beside one that is about to be taken back may fail too early.
        let before = self.0.used.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.checked_add(bytes).is_some_and(|used| used <= self.0.limit);
        let take = |from: &Option<Self>| from.as_ref().map_or(Ok(()), |budget| budget.take(bytes));
        let taken = match fits {
            false => Err(self.0.full),
            true => take(&self.0.caller).and_then(|()| {
                take(&self.0.parent)
                    .inspect_err(|_| self.0.caller.iter().for_each(|one| one.give_back(bytes)))
            }),
        };
        if taken.is_err() {
            self.0.used.fetch_sub(bytes, Ordering::Relaxed);
        }
        taken
    }

    fn force(&self, bytes: usize) {
        self.0.used.fetch_add(bytes, Ordering::Relaxed);
        self.others().for_each(|budget| budget.force(bytes));
    }

    fn give_back(&self, bytes: usize) {
        self.0.used.fetch_sub(bytes, Ordering::Relaxed);
        self.others().for_each(|budget| budget.give_back(bytes));
    }

    fn count(&self, full: Full) {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
        let owner = match full {
            Full::Host => &self.0.parent,
            Full::Caller => &self.0.caller,
        };
        owner.iter().for_each(|budget| budget.count(full));
    }

    /// The budgets that this takes from.
    fn others(&self) -> impl Iterator<Item = &Self> {
        self.0.caller.iter().chain(&self.0.parent)
    }
}

// === impl Charge ===

impl Charge {
    /// Takes more.
    ///
    /// # Errors
    /// [`Full`] if there is not so much left; the charge stays as it was.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Full> {
        self.budget.take(bytes).inspect_err(|full| self.budget.count(*full))?;
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
        assert!(matches!(budget.charge(41), Err(Full::Host)));
        assert_eq!((budget.used(), budget.refused()), (60, 1), "a charge that fails takes nothing");
        let mut second = budget.charge(40).unwrap();
        assert_eq!(second.grow(1), Err(Full::Host));
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
    fn a_caller_takes_no_more_than_its_budget_whatever_for() {
        let host = Budget::new(100);
        let requests = host.share(60);
        let caller = Budget::of_caller(50);
        let (of_requests, of_host) = (requests.share_of(&caller, host.limit()), host.share_of(&caller, 100));
        assert_eq!((of_requests.limit(), of_host.limit()), (30, 50), "half of each");
        let first = of_requests.charge(30).unwrap();
        assert_eq!(of_requests.charge(1).err(), Some(Full::Caller), "half of the requests");
        let mut second = of_host.charge(20).unwrap();
        assert_eq!(second.grow(1), Err(Full::Caller), "both together");
        assert_eq!((caller.used(), requests.used(), host.used()), (50, 30, 50), "what fails takes nothing");
        let others = host.charge(50).unwrap();
        drop(first);
        let more = requests.charge(25).unwrap();
        assert_eq!(of_host.charge(10).err(), Some(Full::Host), "the host's own limit");
        assert_eq!((caller.used(), host.used()), (20, 95));
        second.force(40);
        assert_eq!((caller.used(), of_host.used(), host.used()), (60, 60, 135));
        drop((second, others, more));
        assert_eq!((caller.used(), of_host.used(), requests.used(), host.used()), (0, 0, 0, 0));
        assert_eq!((caller.refused(), requests.refused(), host.refused()), (2, 0, 1));
        assert_eq!(Budget::unlimited().share_of(&caller, usize::MAX).limit(), 50);
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
