//! Turns on a thread with a runtime of its own, which the test's runtime is, beside a shared runtime.

use std::sync::Arc;
use std::time::Duration;

use talaria_engine::Limits;
use talaria_fakes::soon;
use talaria_rig::Rig;
use talaria_store::Memory;
use talaria_turns::{
    Executor, Incoming, Limits as TurnLimits, Message, NoExecutor, Part, Principal, Role, Route, RouteQuery,
    State, Turns,
};
use tokio::runtime::{Builder, Handle, Runtime};

struct Only(Arc<talaria_engine::Executor>);

impl Route for Only {
    fn pick(&self, _: &RouteQuery<'_>) -> Result<Arc<dyn Executor>, NoExecutor> {
        Ok(Arc::clone(&self.0) as _)
    }

    fn named(&self, _: &str) -> Option<Arc<dyn Executor>> {
        None
    }
}

/// The service, and the shared runtime that its engine was made on, as in the binary.
async fn service(limits: Limits) -> (Turns, Runtime) {
    let shared = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let rig = shared.spawn(Rig::new("hostile")).await.unwrap().limits(limits);
    let route = Arc::new(Only(Arc::new(rig.executor())));
    let turns = Turns::builder(Arc::new(Memory::new(100)), route, TurnLimits::default());
    (turns.shared_runtime(shared.handle().clone()).build(), shared)
}

fn message(text: &str) -> Incoming {
    Incoming {
        principal: Principal::anyone(),
        message: Message { role: Role::User, ..Message::agent(vec![Part::text(text)]) }.into(),
        task: None,
        context: None,
        streaming: false,
        async_delivery: false,
        metadata: None,
        push: None,
        trace: None,
    }
}

/// However many guests spin, they leave the thread that they began on, and other turns run there.
#[tokio::test]
async fn guests_that_spin_leave_their_worker_to_the_others() {
    let limits =
        Limits { deadline: Duration::from_secs(600), cpu: Duration::from_secs(600), ..Limits::default() };
    let (turns, shared) = service(limits).await;
    let mut spinning = Vec::new();
    for _ in 0..8 {
        spinning.push(turns.send(message("spin")).await.unwrap().task.id.clone());
    }
    let here = Handle::current();
    soon("the spinning guests leave", async {
        while here.metrics().num_alive_tasks() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    for _ in 0..50 {
        let task = turns.send(message("hash")).await.unwrap().settled().await;
        assert_eq!(task.status.state, State::Completed);
    }
    for task in &spinning {
        let task = turns.task(&Principal::anyone(), task).await.unwrap();
        assert_eq!(task.status.state, State::Working, "it spins all the time");
    }
    assert_eq!(turns.under_way(), spinning.len());
    // A cancel reaches a turn that moved, and a stop all others.
    let cancelled = turns.cancel(&Principal::anyone(), &spinning[0]).await.unwrap();
    assert_eq!(cancelled.status.state, State::Canceled);
    assert_eq!(turns.drain(Duration::ZERO).await, spinning.len() - 1);
    shared.shutdown_background();
}
