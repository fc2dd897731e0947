//! The memory that turns and live tasks take.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use talaria_budget::{Budget, Full};
use talaria_store::Memory;
use talaria_turns::{
    CallerLimits, Incoming, Limits, Message, Part, Principal, Query, Role, SendError, Shares, State,
    Store as _, StoreError, Turns,
};

use crate::kit::{Only, Scripted, message};

const MIB: usize = 1 << 20;

fn service(budget: &Budget, limits: Limits) -> (Turns, Arc<Scripted>, Arc<Memory>) {
    let (store, executor) = (Arc::new(Memory::new(100)), Arc::new(Scripted::default()));
    let route = Arc::new(Only(Arc::clone(&executor)));
    let turns = Turns::builder(Arc::clone(&store) as _, route, limits).budget(budget.clone()).build();
    (turns, executor, store)
}

/// A message of this size that is echoed.
fn large(bytes: usize) -> Incoming {
    let parts = vec![Part::text("x".repeat(bytes))];
    Incoming { message: Message { role: Role::User, ..Message::agent(parts) }.into(), ..message("") }
}

async fn stored(store: &Memory) -> usize {
    let all = Query { context: None, state: None, since: None, after: None, limit: 100, bytes: usize::MAX };
    store.list(&Principal::anyone(), &all).await.unwrap().total
}

#[tokio::test]
async fn a_turn_without_memory_is_rejected_before_anything_is_written() {
    let budget = Budget::new(32 * MIB);
    let (turns, executor, store) = service(&budget, Limits::default());
    let rest = budget.charge(31 * MIB).unwrap();
    let rejected = turns.send(large(MIB)).await.err().unwrap();
    assert!(matches!(rejected, SendError::NoMemory(_)), "{rejected}");
    assert_eq!((stored(&store).await, executor.runs.load(Ordering::SeqCst)), (0, 0));
    assert_eq!((turns.refused().no_memory, budget.used()), (1, 31 * MIB), "nothing stays charged");
    drop(rest);
    let task = turns.send(large(MIB)).await.unwrap().settled().await;
    assert_eq!(task.status.state, State::Completed);
}

#[tokio::test]
async fn a_message_that_can_never_fit_is_too_large_not_busy() {
    let budget = Budget::new(16 * MIB);
    let (turns, _, store) = service(&budget, Limits::default());
    let rejected = turns.send(large(8 * MIB)).await.err().unwrap();
    let said = rejected.to_string();
    assert!(matches!(rejected, SendError::TooLarge(_)), "{said}");
    assert!(said.contains("takes 83891") && said.ends_with("raise `limits.memory`"), "{said}");
    assert_eq!((stored(&store).await, budget.used()), (0, 0));
}

#[tokio::test]
async fn a_message_that_does_not_fit_its_executor_is_rejected_with_size_limit_and_fix() {
    let (turns, executor, store) = service(&Budget::unlimited(), Limits::default());
    executor.memory.store(10 * MIB, Ordering::SeqCst);
    let rejected = turns.send(large(6 * MIB)).await.err().unwrap();
    let said = rejected.to_string();
    assert!(matches!(rejected, SendError::TooLarge(_)), "{said}");
    assert!(said.contains("takes 62920") && said.contains("can take 5242880"), "{said}");
    assert!(said.ends_with("raise `scripted.memory`"), "{said}");
    assert_eq!((stored(&store).await, executor.runs.load(Ordering::SeqCst)), (0, 0));
    let task = turns.send(large(4 * MIB)).await.unwrap().settled().await;
    assert_eq!(task.status.state, State::Completed);
}

#[tokio::test]
async fn a_caller_that_takes_its_share_leaves_the_rest_to_the_others() {
    let (budget, executor) = (Budget::new(64 * MIB), Arc::new(Scripted::default()));
    let share = CallerLimits { memory: Some(300 << 10), ..CallerLimits::default() };
    let shares = Shares { callers: [(Principal::named("a"), share)].into(), ..Shares::default() };
    let route = Arc::new(Only(Arc::clone(&executor)));
    let turns = Turns::builder(Arc::new(Memory::new(100)) as _, route, Limits::default())
        .budget(budget.clone())
        .shares(shares)
        .build();
    let from =
        |caller: &str, incoming: Incoming| Incoming { principal: Principal::named(caller), ..incoming };
    let mut waiting = Vec::new();
    for _ in 0..2 {
        waiting.push(turns.send(from("a", message("wait"))).await.unwrap());
    }
    let rejected = turns.send(from("a", message("wait"))).await.err().unwrap();
    assert!(matches!(rejected, SendError::NoMemory(Full::Caller)), "{rejected}");
    assert_eq!((turns.refused().no_memory, turns.callers_memory_refused()), (0, 1));
    let rejected = turns.send(from("a", large(MIB))).await.err().unwrap().to_string();
    assert!(rejected.ends_with("raise `limits.caller.memory`"), "{rejected}");
    for other in ["b", ""] {
        turns.send(from(other, large(2 * MIB))).await.unwrap().settled().await;
    }
    for turn in waiting {
        executor.go.notify_one();
        turn.settled().await;
    }
    turns.drain(std::time::Duration::from_secs(60)).await;
    let (named, others) = turns.budgets_of_callers();
    let own = named[&Principal::named("a")].as_ref().unwrap();
    assert_eq!((own.used(), budget.used()), (0, 0), "everything is given back");
    assert!(others.is_none(), "only who has a limit has a budget");
}

#[tokio::test]
async fn a_waiting_turn_holds_its_memory_until_it_ends() {
    let budget = Budget::new(64 * MIB);
    let (turns, executor, _) = service(&budget, Limits::default());
    let accepted = turns.send(message("wait")).await.unwrap();
    let one = budget.used();
    assert!(one > 0 && one < MIB, "{one}");
    let second = turns.send(message("wait")).await.unwrap();
    assert!((2 * one..=2 * one + 1024).contains(&budget.used()), "{}", budget.used());
    for turn in [accepted, second] {
        executor.go.notify_one();
        turn.settled().await;
    }
    turns.drain(std::time::Duration::from_secs(60)).await;
    assert_eq!(budget.used(), 0, "everything is given back");
}

#[tokio::test]
async fn a_task_is_charged_while_it_is_read_and_rejected_if_it_does_not_fit() {
    let budget = Budget::new(64 * MIB);
    let (turns, _, _) = service(&budget, Limits::default());
    let task = turns.send(large(2 * MIB)).await.unwrap().settled().await;
    turns.drain(std::time::Duration::from_secs(60)).await;
    let (id, anyone) = (task.id.clone(), Principal::anyone());
    drop(task);
    assert_eq!(budget.used(), 0);
    let (_, reader) = turns.follow(&anyone, &id, Some(0)).await.unwrap();
    assert!(budget.used() >= 2 * MIB, "{}", budget.used());
    drop(reader);
    assert_eq!(budget.used(), 0);
    let _rest = budget.charge(63 * MIB).unwrap();
    let refused = turns.task(&anyone, &id).await.unwrap_err();
    assert!(matches!(refused, StoreError::NoMemory(_)), "{refused}");
}

#[tokio::test]
async fn a_task_that_is_too_large_takes_no_further_message() {
    let limits = Limits { task_bytes: 3 * MIB, ..Limits::default() };
    let (turns, _, store) = service(&Budget::unlimited(), limits);
    let task = turns.send(message("ask")).await.unwrap().settled().await;
    let next = |incoming: Incoming| Incoming { task: Some(task.id.clone()), ..incoming };
    let rejected = turns.send(next(large(3 * MIB))).await.err().unwrap();
    assert!(matches!(rejected, SendError::TaskTooLarge { .. }), "{rejected}");
    assert!(rejected.to_string().ends_with("start a new task"), "{rejected}");
    assert_eq!(turns.task(&Principal::anyone(), &task.id).await.unwrap().version, task.version);
    assert_eq!(stored(&store).await, 1);
    turns.send(next(large(MIB))).await.unwrap().settled().await;
}
