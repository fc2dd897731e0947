//! Turns that compute, on a thread with a runtime of its own. The test's own runtime is such a thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use talaria_store::Memory;
use talaria_turns::{
    Executor, Failure, FinalState, Limits, NoExecutor, Outcome, Part, Principal, Route, RouteQuery, Scope,
    State, Turn, Turns, message_text,
};
use tokio::runtime::{Builder, Runtime};

use crate::kit::{message, text};

/// Names the thread that it ends on; "spin" computes until it is released.
#[derive(Default)]
struct Spinner {
    release: AtomicBool,
    ended: AtomicBool,
}

struct Only(Arc<Spinner>);

#[async_trait]
impl Executor for Spinner {
    fn name(&self) -> &str {
        "spinner"
    }

    async fn execute(&self, turn: Turn, _: Scope) -> Result<Outcome, Failure> {
        if message_text(&turn.message.parts) == "spin" {
            // As the engine does it: it computes, and yields at each tick until it has moved. From then on this holds its thread.
            while std::thread::current().name() != Some("shared") {
                let began = Instant::now();
                while began.elapsed() < Duration::from_millis(10) {
                    std::hint::spin_loop();
                }
                tokio::task::yield_now().await;
            }
            while !self.release.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            self.ended.store(true, Ordering::SeqCst);
        }
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        let parts = vec![Part::text(name)];
        Ok(Outcome { state: FinalState::Completed, parts, usage: None, metadata: None })
    }

    async fn cancel(&self, _: Turn) -> Result<(), Failure> {
        Ok(())
    }
}

impl Route for Only {
    fn pick(&self, _: &RouteQuery<'_>) -> Result<Arc<dyn Executor>, NoExecutor> {
        Ok(Arc::clone(&self.0) as _)
    }

    fn named(&self, _: &str) -> Option<Arc<dyn Executor>> {
        None
    }
}

fn shared() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).thread_name("shared").enable_all().build().unwrap()
}

fn service(shared: &Runtime) -> (Turns, Arc<Spinner>) {
    let spinner = Arc::new(Spinner::default());
    let route = Arc::new(Only(Arc::clone(&spinner)));
    let turns = Turns::builder(Arc::new(Memory::new(10)), route, Limits::default());
    (turns.shared_runtime(shared.handle().clone()).build(), spinner)
}

/// If the turn did not move, this test would not go on: there is no other thread.
#[tokio::test]
async fn a_turn_that_computes_moves_and_holds_up_no_other_turn_of_its_thread() {
    let shared = shared();
    let (turns, spinner) = service(&shared);
    let spinning = turns.send(message("spin")).await.unwrap();
    for _ in 0..10 {
        let task = turns.send(message("hi")).await.unwrap().settled().await;
        assert_eq!(task.status.state, State::Completed);
    }
    assert!(!spinner.ended.load(Ordering::SeqCst));
    assert_eq!(turns.under_way(), 1, "a turn that moved counts once");
    spinner.release.store(true, Ordering::SeqCst);
    let task = spinning.settled().await;
    assert_eq!((task.status.state, text(task.text_reply()).as_str()), (State::Completed, "shared"));
    assert_eq!(turns.drain(Duration::from_secs(300)).await, 0);
    shared.shutdown_background();
}

#[tokio::test]
async fn a_drain_waits_for_a_turn_that_moved() {
    let shared = shared();
    let (turns, spinner) = service(&shared);
    let spinning = turns.send(message("spin")).await.unwrap();
    let mut drain = std::pin::pin!(turns.drain(Duration::from_secs(300)));
    assert!(futures_util::poll!(&mut drain).is_pending());
    spinner.release.store(true, Ordering::SeqCst);
    assert_eq!(drain.await, 0);
    let task = turns.task(&Principal::anyone(), &spinning.task.id).await.unwrap();
    assert_eq!(task.status.state, State::Completed);
    shared.shutdown_background();
}
