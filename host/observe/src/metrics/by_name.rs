//! What is counted for each executor, found by its name without a lock.

use std::sync::Arc;

use arc_swap::ArcSwap;

/// The executors that have numbers of their own; names come from the configuration and from uploads of the operator.
pub(super) const MOST: usize = 256;
/// The name under which the others are counted.
pub(super) const OTHERS: &str = "(others)";

/// Values by name, sorted. An entry stays until the end of the process, because a counter that vanishes looks like a restart.
pub(super) struct ByName<T>(ArcSwap<Vec<Entry<T>>>);

type Entry<T> = (Arc<str>, Arc<T>);

// === impl ByName ===

impl<T: Default> ByName<T> {
    /// Uses the value of this name, which it creates the first time.
    pub(super) fn with(&self, name: &str, count: impl FnOnce(&T)) {
        let known = self.0.load();
        if let Some((_, value)) = find(&known, name).ok().and_then(|at| known.get(at)) {
            return count(value);
        }
        drop(known);
        count(&self.create(name));
    }

    fn create(&self, name: &str) -> Arc<T> {
        self.0.rcu(|known| {
            let mut known = Vec::clone(known);
            let name = if known.len() < MOST || find(&known, name).is_ok() { name } else { OTHERS };
            if let Err(at) = find(&known, name) {
                known.insert(at, (name.into(), Arc::default()));
            }
            known
        });
        let known = self.0.load();
        let found = [name, OTHERS].into_iter().find_map(|name| find(&known, name).ok());
        found.and_then(|at| known.get(at)).map(|(_, value)| Arc::clone(value)).unwrap_or_default()
    }

    /// All of them.
    pub(super) fn all(&self) -> Arc<Vec<Entry<T>>> {
        self.0.load_full()
    }
}

impl<T> Default for ByName<T> {
    fn default() -> Self {
        Self(ArcSwap::default())
    }
}

fn find<T>(known: &[Entry<T>], name: &str) -> Result<usize, usize> {
    known.binary_search_by(|(known, _)| (**known).cmp(name))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn beyond_the_most_all_share_one_entry() {
        let all = ByName::<AtomicUsize>::default();
        for number in 0..MOST + 10 {
            for _ in 0..2 {
                all.with(&format!("executor-{number}"), |count| {
                    count.fetch_add(1, Ordering::Relaxed);
                });
            }
        }
        let all = all.all();
        assert_eq!(all.len(), MOST + 1);
        let (name, count) = &all[0];
        assert_eq!((&**name, count.load(Ordering::Relaxed)), (OTHERS, 20));
        assert!(all[1..].iter().all(|(_, count)| count.load(Ordering::Relaxed) == 2));
    }

    #[test]
    fn an_entry_is_created_once_by_many_threads() {
        let all = ByName::<AtomicUsize>::default();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for number in 0..100 {
                        all.with(["a", "b", "c"][number % 3], |count| {
                            count.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        let total: usize = all.all().iter().map(|(_, count)| count.load(Ordering::Relaxed)).sum();
        assert_eq!((all.all().len(), total), (3, 800));
    }
}
