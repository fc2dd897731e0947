//! Retention: which finished tasks are kept, and what each owner has in the store.
//!
//! Tasks are deleted by age, by the number of all tasks and by the shares of their owners. The number of all tasks is
//! divided fairly: the owner that has the most loses its oldest first. So the load of one caller deletes no task of
//! another that is within its equal part. A rule by age alone over all owners would let a caller that is busy delete
//! everybody's tasks.

use std::sync::Arc;

use crate::model::{Principal, Timestamp};
use crate::shares::Shares;

/// What the store holds for an owner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Kept {
    /// The tasks.
    pub tasks: usize,
    /// The tasks among them that ended, which retention may delete.
    pub finished: usize,
    /// The bytes of their events, as JSON.
    pub bytes: u64,
}

/// Which finished tasks are kept. The others are deleted, oldest first. A task that has not ended is never deleted.
#[derive(Debug, Clone)]
pub struct Retention {
    /// Those that did not end before this.
    pub since: Timestamp,
    /// So many of all owners together. Beyond that, the owner that has the most loses its oldest; an owner that has no
    /// more than an equal part of this number loses nothing, whatever the others do.
    pub tasks: usize,
    /// What each owner may have at most. Unfinished tasks count, and are not deleted.
    pub shares: Arc<Shares>,
}

// === impl Retention ===

impl Retention {
    /// Keeps everything that ended at this time or later.
    #[must_use]
    pub fn since(since: Timestamp) -> Self {
        Self { since, tasks: usize::MAX, shares: Arc::default() }
    }

    /// Keeps the newest `tasks` only.
    #[must_use]
    pub fn tasks(self, tasks: usize) -> Self {
        Self { tasks, ..self }
    }

    /// Returns how many finished tasks each of these owners may keep, in the same order: by [`Retention::tasks`], and by
    /// the tasks of its share. Stores call this, so that all of them delete the same.
    #[must_use]
    pub fn finished(&self, owners: &[(Principal, Kept)]) -> Vec<usize> {
        let have: Vec<usize> = owners.iter().map(|(owner, kept)| self.of_share(owner, *kept)).collect();
        let mut keep = have.clone();
        let mut total: usize = have.iter().sum();
        if total <= self.tasks {
            return keep;
        }
        // Lowers the level of those that have the most until it all fits.
        let mut levels = have;
        levels.sort_unstable_by(|a, b| b.cmp(a));
        let mut level = 0;
        for (count, (most, next)) in
            (1..).zip(levels.iter().zip(levels.iter().skip(1).chain(std::iter::once(&0))))
        {
            let excess = total - self.tasks;
            if excess <= (most - next) * count {
                level = most - excess.div_ceil(count);
                break;
            }
            total -= (most - next) * count;
        }
        keep.iter_mut().for_each(|keep| *keep = (*keep).min(level));
        // What does not divide evenly goes to the first ones that would lose by it.
        let mut left = self.tasks.saturating_sub(keep.iter().sum());
        for (keep, (owner, kept)) in keep.iter_mut().zip(owners) {
            if left > 0 && *keep == level && self.of_share(owner, *kept) > level {
                *keep += 1;
                left -= 1;
            }
        }
        keep
    }

    /// The finished tasks that an owner may keep by its share of tasks.
    fn of_share(&self, owner: &Principal, kept: Kept) -> usize {
        let unfinished = kept.tasks.saturating_sub(kept.finished);
        let room = self.shares.of(owner).tasks.map_or(usize::MAX, |tasks| tasks.saturating_sub(unfinished));
        kept.finished.min(room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_most_loses_first_and_nobody_within_an_equal_part_loses() {
        let cases: [(&[usize], usize, &[usize]); 9] = [
            (&[4, 2], 9, &[4, 2]),
            (&[4, 2], 5, &[3, 2]),
            (&[4, 2], 4, &[2, 2]),
            (&[9, 1, 1], 4, &[2, 1, 1]),
            (&[9, 8, 1], 6, &[3, 2, 1]),
            (&[5, 5, 5], 10, &[4, 3, 3]),
            (&[1_000, 3], 10, &[7, 3]),
            (&[3, 3], 0, &[0, 0]),
            (&[], 0, &[]),
        ];
        for (have, tasks, kept) in cases {
            let owners: Vec<_> = (0..)
                .zip(have)
                .map(|(number, finished): (usize, _)| {
                    let kept = Kept { tasks: *finished, finished: *finished, bytes: 0 };
                    (Principal::named(&format!("caller-{number}")), kept)
                })
                .collect();
            let retention = Retention::since(Timestamp::from_millis(0)).tasks(tasks);
            assert_eq!(retention.finished(&owners), kept, "{have:?} into {tasks}");
        }
    }

    #[test]
    fn unfinished_tasks_count_towards_a_share() {
        let owner = Principal::named("a");
        let limits = crate::CallerLimits { tasks: Some(5), ..Default::default() };
        let shares = Arc::new(Shares { callers: [(owner.clone(), limits)].into(), ..Shares::default() });
        let retention = Retention { shares, ..Retention::since(Timestamp::from_millis(0)) };
        let kept = |tasks, finished| [(owner.clone(), Kept { tasks, finished, bytes: 0 })];
        assert_eq!(retention.finished(&kept(9, 6)), [2]);
        assert_eq!(retention.finished(&kept(9, 1)), [0]);
        assert_eq!(retention.finished(&kept(4, 3)), [3]);
    }
}
