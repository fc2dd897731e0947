//! The outbound calls that a guest waits for, polled by the future of the call into the guest, but not on the guest's stack.
//!
//! On that stack, the deep call stack of the HTTP client would stay allocated for as long as the guest waits. In a task of
//! its own, a call would cost allocations, and two hops between tasks and often between threads.
//!
//! All calls under way are polled whenever the guest is: before it, so that it finds a result that has arrived, and after
//! it, since it may have begun another call. So a guest that computes holds its own calls up for a tick at most.
//!
//! Dropping what the guest waits on ends the call. A guest that is dropped drops that too.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The outbound calls of one call of a guest. Clones share them.
///
/// Only the future of that call uses them, so nobody waits for the lock.
#[derive(Clone, Default)]
pub(crate) struct PendingCalls(Arc<Mutex<Calls>>);

#[derive(Default)]
struct Calls {
    begun: u64,
    under_way: Vec<PendingCall>,
}

struct PendingCall {
    id: u64,
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
    waiter: Option<Waker>,
}

/// The result of a call, once it has ended.
type Slot<T> = Arc<Mutex<Option<T>>>;

/// What the guest waits on.
pub(crate) struct CallResult<T> {
    calls: PendingCalls,
    id: u64,
    slot: Slot<T>,
}

// === impl PendingCalls ===

impl PendingCalls {
    /// Begins a call. Dropping its result ends it.
    ///
    /// The call's own future is created when it is first polled. A future that held it before that would be some KiB
    /// larger, and so would every future around it, on the guest's stack and on the heap.
    pub(crate) fn begin<T, F>(&self, call: impl FnOnce() -> F + Send + 'static) -> CallResult<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let slot: Slot<T> = Slot::default();
        let result = Arc::clone(&slot);
        let future = Box::pin(async move {
            let ended = Box::pin(call()).await;
            *lock(&result) = Some(ended);
        });
        let mut calls = lock(&self.0);
        calls.begun += 1;
        let id = calls.begun;
        calls.under_way.push(PendingCall { id, future, waiter: None });
        CallResult { calls: self.clone(), id, slot }
    }

    /// Returns the future of a guest and of the calls that it begins.
    pub(crate) fn alongside<F: Future>(
        &self,
        mut guest: Pin<&mut F>,
    ) -> impl Future<Output = F::Output> + Unpin {
        poll_fn(move |context| {
            self.poll(context);
            loop {
                if let Poll::Ready(returned) = guest.as_mut().poll(context) {
                    return Poll::Ready(returned);
                }
                if !self.poll(context) {
                    return Poll::Pending;
                }
            }
        })
    }

    /// Polls all calls, and returns whether one has ended.
    fn poll(&self, context: &mut Context<'_>) -> bool {
        let mut calls = lock(&self.0);
        let before = calls.under_way.len();
        calls.under_way.retain_mut(|call| {
            if call.future.as_mut().poll(context).is_pending() {
                return true;
            }
            // A waiter that is polled by the same task is polled next, and needs no wake. An engine that lets several
            // calls of a guest wait polls only those that were woken.
            if let Some(waiter) = call.waiter.take().filter(|waiter| !waiter.will_wake(context.waker())) {
                waiter.wake();
            }
            false
        });
        calls.under_way.len() < before
    }
}

// === impl CallResult ===

impl<T> Future for CallResult<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if let Some(result) = lock(&self.slot).take() {
            return Poll::Ready(result);
        }
        let mut calls = lock(&self.calls.0);
        if let Some(call) = calls.under_way.iter_mut().find(|call| call.id == self.id) {
            call.waiter.get_or_insert_with(|| context.waker().clone()).clone_from(context.waker());
        }
        Poll::Pending
    }
}

impl<T> Drop for CallResult<T> {
    fn drop(&mut self) {
        let mut calls = lock(&self.calls.0);
        let at = calls.under_way.iter().position(|call| call.id == self.id);
        let ended = at.map(|at| calls.under_way.swap_remove(at));
        drop(calls);
        drop(ended);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use tokio::sync::oneshot;

    use super::*;

    /// Counts how often it is woken.
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn all_calls_under_way_are_polled() {
        let calls = PendingCalls::default();
        let (first, second) = (oneshot::channel::<u8>(), oneshot::channel::<u8>());
        let guest = pin!(async {
            let first = calls.begin(|| first.1);
            let second = calls.begin(|| second.1);
            (second.await, first.await)
        });
        let mut both = calls.alongside(guest);
        assert!(futures_util::poll!(&mut both).is_pending());
        first.0.send(1).unwrap();
        assert!(futures_util::poll!(&mut both).is_pending(), "it waits for the second");
        second.0.send(2).unwrap();
        assert_eq!(both.await, (Ok(2), Ok(1)));
    }

    /// An engine that lets several calls of a guest wait gives each a waker of its own.
    #[tokio::test]
    async fn a_waiter_with_a_waker_of_its_own_is_woken() {
        let calls = PendingCalls::default();
        let woken = Arc::new(Woken(AtomicUsize::new(0)));
        let mut result = calls.begin(|| async {
            tokio::task::yield_now().await;
            1
        });
        let own = Waker::from(Arc::clone(&woken));
        let mut guest = pin!(poll_fn(|_| Pin::new(&mut result).poll(&mut Context::from_waker(&own))));
        let mut polls = 0;
        let guest = pin!(poll_fn(|context| {
            polls += 1;
            guest.as_mut().poll(context)
        }));
        assert_eq!(calls.alongside(guest).await, 1);
        assert_eq!((polls, woken.0.load(Ordering::Relaxed)), (2, 1));
    }

    #[tokio::test]
    async fn dropping_a_result_or_the_guest_ends_the_call() {
        let calls = PendingCalls::default();
        let (mut one, mut other) = (oneshot::channel::<()>(), oneshot::channel::<()>());
        {
            let guest = pin!(async {
                let dropped = calls.begin(|| one.1);
                let kept = calls.begin(|| other.1);
                tokio::task::yield_now().await;
                drop(dropped);
                kept.await
            });
            let mut both = calls.alongside(guest);
            assert!(futures_util::poll!(&mut both).is_pending());
            assert!(!one.0.is_closed());
            assert!(futures_util::poll!(&mut both).is_pending());
            assert!(one.0.is_closed());
            assert!(!other.0.is_closed());
        }
        other.0.closed().await;
        one.0.closed().await;
    }
}
