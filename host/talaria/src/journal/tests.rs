//! The journal of a service with an executor that does what it is told.

use async_trait::async_trait;
use talaria_store::Memory;
use talaria_turns::{
    Executor, Failure, FailureKind, FinalState, Limits, NoExecutor, Outcome, Principal, Route, RouteQuery,
    Scope, StepKind, Turns, message_text,
};

use super::*;
use crate::metered::tests::incoming;

/// Makes as many steps as the message says.
struct Steps;

#[async_trait]
impl Executor for Steps {
    fn name(&self) -> &str {
        "steps"
    }

    async fn execute(&self, turn: Turn, scope: Scope) -> Result<Outcome, Failure> {
        let text = message_text(&turn.message.parts);
        for _ in 0..text.parse().unwrap_or(0) {
            let step = scope.timeline().unwrap().step(StepKind::Call, &"x".repeat(500));
            step.failed("denied by policy", true);
        }
        match text.as_str() {
            "fail" => Err(Failure::new(FailureKind::Internal, "as told")),
            "wait" => {
                scope.cancelled().cancelled().await;
                Err(Failure::new(FailureKind::Cancelled, "cancelled"))
            }
            _ => Ok(Outcome { state: FinalState::Completed, parts: Vec::new(), usage: None, metadata: None }),
        }
    }

    async fn cancel(&self, _: Turn) -> Result<(), Failure> {
        Ok(())
    }
}

impl Route for Steps {
    fn pick(&self, _: &RouteQuery<'_>) -> Result<Arc<dyn Executor>, NoExecutor> {
        Ok(Arc::new(Self))
    }

    fn named(&self, _: &str) -> Option<Arc<dyn Executor>> {
        None
    }
}

fn turns(journal: &Arc<Journal>) -> Turns {
    Turns::builder(Arc::new(Memory::new(10_000)), Arc::new(Steps), Limits::default())
        .observer(Arc::clone(journal) as _)
        .build()
}

#[tokio::test]
async fn turns_are_known_while_they_run_and_after() {
    let journal = Arc::new(Journal::new(1 << 30));
    let turns = turns(&journal);
    let waiting = turns.send(incoming("wait")).await.unwrap();
    let task = waiting.task.id.clone();
    while journal.under_way().running == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(journal.under_way(), UnderWay { queued: 0, running: 1 });
    assert_eq!(journal.timelines(&task).len(), 1);
    turns.cancel(&Principal::anyone(), &task).await.unwrap();
    turns.send(incoming("fail")).await.unwrap().settled().await;
    turns.send(incoming("3")).await.unwrap().settled().await;
    turns.drain(Duration::from_secs(5)).await;
    assert_eq!(journal.under_way(), UnderWay { queued: 0, running: 0 });
    assert_eq!(journal.last(&task).map(|timeline| timeline.facts().ended.is_some()), Some(true));
    let counts = journal.stats(|stats| stats.of("steps"));
    assert_eq!(counts, Counts { turns: 3, failed: 1, denied: 3, faults: 1 });
}

#[tokio::test]
async fn the_bytes_of_ended_turns_are_bounded_and_the_oldest_go_first() {
    let journal = Arc::new(Journal::new(PART * 500_000));
    let turns = turns(&journal);
    let mut tasks = Vec::new();
    for _ in 0..20 {
        tasks.push(turns.send(incoming("100")).await.unwrap().settled().await.id.clone());
    }
    turns.drain(Duration::from_secs(5)).await;
    let known: Vec<bool> = tasks.iter().map(|task| journal.last(task).is_some()).collect();
    assert!(!known[0] && known[19], "{known:?}");
    assert_eq!(known.iter().filter(|known| **known).count(), 7, "of 70 kB each: {known:?}");
    assert!(journal.lock().bytes <= 500_000);
    assert_eq!(journal.lock().tasks.len(), 7);
}

#[tokio::test]
async fn the_number_of_ended_turns_is_bounded() {
    let journal = Arc::new(Journal::new(1 << 30));
    let turns = turns(&journal);
    for _ in 0..ENDED + 10 {
        turns.send(incoming("0")).await.unwrap().settled().await;
    }
    turns.drain(Duration::from_secs(5)).await;
    let timelines = journal.lock();
    assert_eq!((timelines.ended.len(), timelines.tasks.len()), (ENDED, ENDED));
}
