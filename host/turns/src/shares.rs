//! The shares of callers: how much of the host one caller may take, so that the others find room.
//!
//! A message that is over a share of its sender is rejected before anything is written, with the limit, the key that
//! raises it and the time after which a retry makes sense. A turn gives its place back when it ends.
//!
//! Two of the limits count what the store holds. Retention keeps a caller at its share by deleting its oldest finished
//! tasks ([`Retention`](crate::Retention)), and runs at once when a caller is over ([`Callers::wait_for_excess`]). So a
//! message is rejected only when the caller is over by another quarter: retention has not come to it yet, or has
//! nothing to delete, because the tasks are unfinished.
//!
//! What a caller makes the host hold in memory is charged to its own budget and to the host's ([`Caller::budget`]).
//! Requests and responses are charged to it too, by the server, so that no other kind of use goes round it.
//!
//! Callers and their limits are known at the start. So the records are one map that never changes: a turn costs one
//! look-up without a lock, and there is nothing to drop when a caller is idle. All callers that the map does not name share
//! one record: those without a name, who cannot be told apart. By default it limits nothing beyond the host's own limits.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use talaria_budget::Budget;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use crate::model::Principal;
use crate::retention::Kept;

/// The limits of one caller. `None` leaves it to the limits of the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallerLimits {
    /// The turns that may wait or run at once.
    pub turns: Option<usize>,
    /// The messages that are accepted in a minute.
    pub turns_per_minute: Option<u32>,
    /// The tasks that are stored.
    pub tasks: Option<usize>,
    /// The bytes of these tasks.
    pub bytes: Option<u64>,
    /// The push configurations that are checked in a minute; each check looks up a name.
    pub webhooks_per_minute: Option<u32>,
    /// The bytes that its requests, responses, tasks and turns may take in memory.
    pub memory: Option<usize>,
}

/// The limits of every caller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shares {
    /// The callers with limits of their own.
    pub callers: HashMap<Principal, CallerLimits>,
    /// The limits of all others, together.
    pub others: CallerLimits,
}

/// What a caller has too much of. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OverShare {
    /// Too many turns wait or run.
    #[error(
        "{0} turns of this caller are under way, which is the most; try again later, or raise `limits.caller.turns`"
    )]
    Turns(usize),
    /// Too many messages came within a minute.
    #[error(
        "this caller may send {limit} messages a minute; try again in {} s, or raise `limits.caller.turns_per_minute`",
        seconds(*.wait)
    )]
    Rate {
        /// The limit.
        limit: u32,
        /// When there is room for the next one.
        wait: Duration,
    },
    /// Too many tasks are stored.
    #[error(
        "this caller has {tasks} tasks, more than its {limit}, and too few are finished; try again later, or raise `limits.caller.tasks`"
    )]
    Tasks {
        /// The tasks that are stored.
        tasks: usize,
        /// The limit.
        limit: usize,
    },
    /// The tasks take too many bytes.
    #[error(
        "the tasks of this caller take {bytes} bytes, more than its {limit}; try again later, or raise `limits.caller.bytes`"
    )]
    Bytes {
        /// The bytes that are stored.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// Too many push configurations came within a minute.
    #[error(
        "this caller may set {limit} webhooks a minute; try again in {} s, or raise `limits.caller.webhooks_per_minute`",
        seconds(*.wait)
    )]
    Webhooks {
        /// The limit.
        limit: u32,
        /// When there is room for the next one.
        wait: Duration,
    },
}

/// The records of all callers.
pub(crate) struct Callers {
    named: HashMap<Principal, Arc<Caller>>,
    others: Arc<Caller>,
    /// Notified when a caller has more in the store than its share.
    excess: Notify,
}

/// The record of one caller.
pub(crate) struct Caller {
    limits: CallerLimits,
    under_way: AtomicUsize,
    turns: Mutex<Bucket>,
    webhooks: Mutex<Bucket>,
    /// The room for its deliveries of push notifications; `None` leaves it to the dispatcher's own.
    deliveries: Option<Semaphore>,
    /// Its own budget, if it has one.
    own: Option<Budget>,
    /// What its turns and tasks are charged to.
    budget: Budget,
}

/// A turn that counts towards its caller's share until this is dropped.
pub(crate) struct TurnShare(Option<Arc<Caller>>);

/// Counts events per minute: holds a minute's worth of them and fills up steadily, so a burst passes and a flood does not.
struct Bucket {
    left: f64,
    at: Option<Instant>,
}

/// How long to wait with a retry if turns have to end first. Turns last seconds to minutes.
const RETRY_TURNS: Duration = Duration::from_secs(1);
/// The same if retention has to make room first, which it begins to do at once.
const RETRY_KEPT: Duration = Duration::from_secs(10);
const MINUTE: f64 = 60.0;

// === impl Shares ===

impl Shares {
    /// The limits of a caller.
    #[must_use]
    pub fn of(&self, caller: &Principal) -> &CallerLimits {
        self.callers.get(caller).unwrap_or(&self.others)
    }
}

// === impl OverShare ===

impl OverShare {
    /// How long to wait with a retry.
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        match self {
            Self::Turns(_) => RETRY_TURNS,
            Self::Rate { wait, .. } | Self::Webhooks { wait, .. } => *wait,
            Self::Tasks { .. } | Self::Bytes { .. } => RETRY_KEPT,
        }
    }
}

// === impl Callers ===

impl Callers {
    /// Makes the records. A named caller may use a quarter of the deliveries at once, so that webhooks of one that hang do
    /// not hold up the others'. What all of them take is charged to `budget`.
    pub(crate) fn new(shares: &Shares, deliveries: usize, budget: &Budget) -> Self {
        let named = |(name, limits): (&Principal, &CallerLimits)| {
            (name.clone(), Arc::new(Caller::new(*limits, Some(deliveries.div_ceil(4)), budget)))
        };
        Self {
            named: shares.callers.iter().map(named).collect(),
            others: Arc::new(Caller::new(shares.others, None, budget)),
            excess: Notify::new(),
        }
    }

    pub(crate) fn of(&self, caller: &Principal) -> &Arc<Caller> {
        self.named.get(caller).unwrap_or(&self.others)
    }

    /// The budget of each caller that the map names, if it has one of its own, and that of all others together.
    pub(crate) fn budgets(&self) -> (HashMap<Principal, Option<Budget>>, Option<Budget>) {
        let named = self.named.iter().map(|(name, caller)| (name.clone(), caller.own.clone()));
        (named.collect(), self.others.own.clone())
    }

    /// What was refused because a caller took all of its memory.
    pub(crate) fn memory_refused(&self) -> u64 {
        let callers = self.named.values().chain([&self.others]);
        callers.filter_map(|caller| caller.own.as_ref()).map(Budget::refused).sum()
    }

    /// Checks what a caller has in the store. Asks for retention if that is over its share.
    pub(crate) fn check_kept(&self, limits: &CallerLimits, kept: Kept) -> Result<(), OverShare> {
        let over = |used: u64, limit: u64| (used >= limit, used >= limit.saturating_add((limit / 4).max(1)));
        let tasks = limits.tasks.map_or((false, false), |limit| over(kept.tasks as u64, limit as u64));
        let bytes = limits.bytes.map_or((false, false), |limit| over(kept.bytes, limit));
        if tasks.0 || bytes.0 {
            self.excess.notify_one();
        }
        match (limits.tasks, limits.bytes) {
            (Some(limit), _) if tasks.1 => Err(OverShare::Tasks { tasks: kept.tasks, limit }),
            (_, Some(limit)) if bytes.1 => Err(OverShare::Bytes { bytes: kept.bytes, limit }),
            _ => Ok(()),
        }
    }

    /// Returns when a caller has more in the store than its share. One task may wait.
    pub(crate) async fn wait_for_excess(&self) {
        self.excess.notified().await;
    }
}

// === impl Caller ===

impl Caller {
    fn new(limits: CallerLimits, deliveries: Option<usize>, budget: &Budget) -> Self {
        let own = limits.memory.map(Budget::of_caller);
        let of_own = |own| budget.share_of(own, budget.limit());
        Self {
            limits,
            budget: own.as_ref().map_or_else(|| budget.clone(), of_own),
            own,
            under_way: AtomicUsize::new(0),
            turns: Mutex::new(Bucket::new()),
            webhooks: Mutex::new(Bucket::new()),
            deliveries: deliveries.map(|count| Semaphore::new(count.max(1))),
        }
    }

    pub(crate) fn limits(&self) -> &CallerLimits {
        &self.limits
    }

    /// What its turns and tasks are charged to.
    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The room for its deliveries, if it has one of its own.
    pub(crate) fn deliveries(&self) -> Option<&Semaphore> {
        self.deliveries.as_ref()
    }

    /// Takes a place for a turn. A message to a turn that asks may take one of a few more places: turns that wait for
    /// answers hold theirs, and must not keep their caller from answering.
    pub(crate) fn begin_turn(self: &Arc<Self>, is_asked_for: bool) -> Result<TurnShare, OverShare> {
        let place = match self.limits.turns {
            None => TurnShare(None),
            Some(limit) => {
                // Counted before the check, so that two turns cannot both take the last place.
                let before = self.under_way.fetch_add(1, Ordering::Relaxed);
                let place = TurnShare(Some(Arc::clone(self)));
                let more = if is_asked_for { (limit / 4).max(1) } else { 0 };
                if before >= limit + more {
                    return Err(OverShare::Turns(limit));
                }
                place
            }
        };
        match self.limits.turns_per_minute {
            Some(limit) => {
                take(&self.turns, limit).map_err(|wait| OverShare::Rate { limit, wait })?;
                Ok(place)
            }
            None => Ok(place),
        }
    }

    /// Counts the check of a push configuration.
    pub(crate) fn check_webhook(&self) -> Result<(), OverShare> {
        match self.limits.webhooks_per_minute {
            Some(limit) => take(&self.webhooks, limit).map_err(|wait| OverShare::Webhooks { limit, wait }),
            None => Ok(()),
        }
    }
}

impl Drop for TurnShare {
    fn drop(&mut self) {
        if let Some(caller) = &self.0 {
            caller.under_way.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

// === impl Bucket ===

impl Bucket {
    fn new() -> Self {
        Self { left: 0.0, at: None }
    }

    /// Takes one of `limit` per minute; otherwise returns when there is one.
    fn take(&mut self, limit: u32, now: Instant) -> Result<(), Duration> {
        let most = f64::from(limit.max(1));
        let per_second = most / MINUTE;
        let filled = |at: Instant| self.left + now.duration_since(at).as_secs_f64() * per_second;
        self.left = self.at.map_or(most, filled).min(most);
        self.at = Some(now);
        if self.left < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - self.left) / per_second));
        }
        self.left -= 1.0;
        Ok(())
    }
}

fn take(bucket: &Mutex<Bucket>, limit: u32) -> Result<(), Duration> {
    bucket.lock().unwrap_or_else(PoisonError::into_inner).take(limit, Instant::now())
}

/// Whole seconds, rounded up.
fn seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(limits: CallerLimits) -> Arc<Caller> {
        Arc::new(Caller::new(limits, None, &Budget::unlimited()))
    }

    #[test]
    fn a_place_is_free_again_when_its_turn_ends() {
        let caller = caller(CallerLimits { turns: Some(2), ..CallerLimits::default() });
        let first = caller.begin_turn(false).unwrap();
        let _second = caller.begin_turn(false).unwrap();
        for _ in 0..3 {
            assert_eq!(
                caller.begin_turn(false).err(),
                Some(OverShare::Turns(2)),
                "a rejected turn takes no place"
            );
        }
        drop(first);
        caller.begin_turn(false).unwrap();
    }

    #[test]
    fn a_burst_passes_and_a_flood_waits() {
        let mut now = Instant::now();
        let mut bucket = Bucket::new();
        for _ in 0..60 {
            bucket.take(60, now).unwrap();
        }
        assert_eq!(bucket.take(60, now), Err(Duration::from_secs(1)));
        now += Duration::from_secs(1);
        bucket.take(60, now).unwrap();
        bucket.take(60, now).unwrap_err();
        now += Duration::from_secs(3_600);
        for _ in 0..60 {
            bucket.take(60, now).unwrap();
        }
        bucket.take(60, now).expect_err("an idle hour is worth no more than a minute");
    }

    #[tokio::test]
    async fn a_caller_over_its_share_calls_retention_before_it_is_rejected() {
        let limits = CallerLimits { tasks: Some(8), bytes: Some(100), ..CallerLimits::default() };
        let callers = Callers::new(&Shares::default(), 64, &Budget::unlimited());
        let kept = |tasks, bytes| Kept { tasks, finished: 0, bytes };
        let check = |kept| callers.check_kept(&limits, kept);
        check(kept(7, 99)).unwrap();
        check(kept(9, 99)).unwrap();
        callers.wait_for_excess().await;
        assert_eq!(check(kept(10, 99)), Err(OverShare::Tasks { tasks: 10, limit: 8 }));
        callers.wait_for_excess().await;
        check(kept(7, 124)).unwrap();
        assert_eq!(check(kept(7, 125)), Err(OverShare::Bytes { bytes: 125, limit: 100 }));
    }

    #[test]
    fn callers_without_a_share_of_their_own_share_one() {
        let few = CallerLimits { turns: Some(1), ..CallerLimits::default() };
        let shares = Shares { callers: HashMap::from([(Principal::named("a"), few)]), others: few };
        let callers = Callers::new(&shares, 64, &Budget::unlimited());
        let _own = callers.of(&Principal::named("a")).begin_turn(false).unwrap();
        let _shared = callers.of(&Principal::anyone()).begin_turn(false).unwrap();
        assert!(callers.of(&Principal::named("b")).begin_turn(false).is_err());
    }
}
