//! Callers are held to their shares, and their places are given back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use talaria_store::Memory;
use talaria_turns::{
    CallerLimits, Incoming, Limits, OverShare, Principal, PushConfig, PushError, PushFailure, PushLimits,
    PushNotification, PushSender, Refused, Retention, SendError, Shares, State, Store, Timestamp, Turns,
};
use tokio::sync::Semaphore;

use crate::kit::{Only, Scripted, message};
use crate::push::{Kept, config};

/// A service on which `a` has these limits, and nobody else has any.
fn service(limits: CallerLimits, sender: Arc<dyn PushSender>) -> (Turns, Arc<Scripted>, Arc<dyn Store>) {
    let (executor, store) = (Arc::new(Scripted::default()), Arc::new(Memory::new(100)) as Arc<dyn Store>);
    let callers =
        HashMap::from([(Principal::named("a"), limits), (Principal::named("b"), CallerLimits::default())]);
    let route = Arc::new(Only(Arc::clone(&executor)));
    let turns = Turns::builder(Arc::clone(&store), route, Limits::default())
        .push_sender(sender, PushLimits { at_once: 4, ..PushLimits::default() })
        .shares(Shares { callers, ..Shares::default() })
        .build();
    (turns, executor, store)
}

fn limited(limits: CallerLimits) -> (Turns, Arc<Scripted>, Arc<dyn Store>) {
    service(limits, Arc::new(Kept::default()))
}

fn from(caller: &str, text: &str) -> Incoming {
    Incoming { principal: Principal::named(caller), ..message(text) }
}

/// What the caller has too much of.
async fn over(turns: &Turns, incoming: Incoming) -> OverShare {
    match turns.send(incoming).await {
        Err(SendError::OverShare(over) | SendError::Push(PushError::OverShare(over))) => over,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was accepted"),
    }
}

#[tokio::test]
async fn turns_of_one_caller_leave_room_for_the_others() {
    let (turns, executor, _) = limited(CallerLimits { turns: Some(1), ..CallerLimits::default() });
    let first = turns.send(from("a", "wait")).await.unwrap();
    assert_eq!(over(&turns, from("a", "hi")).await, OverShare::Turns(1));
    for other in ["b", ""] {
        turns.send(from(other, "hi")).await.unwrap().settled().await;
    }
    executor.go.notify_one();
    first.settled().await;
    // The place is free once the turn's last event is stored, which its reader may see a little earlier.
    while turns.under_way() > 0 {
        tokio::task::yield_now().await;
    }
    turns.send(from("a", "hi")).await.expect("there is room again").settled().await;
    assert_eq!(turns.refused(), Refused { caller_turns: 1, ..Refused::default() });
}

#[tokio::test]
async fn a_turn_that_asks_can_be_answered_though_the_share_is_used_up() {
    let limits = CallerLimits { turns: Some(1), bytes: Some(1), ..CallerLimits::default() };
    let (turns, ..) = limited(limits);
    let asked = turns.send(from("a", "question")).await.unwrap().settled().await;
    assert_eq!(asked.status.state, State::InputRequired);
    assert_eq!(over(&turns, from("a", "hi")).await, OverShare::Turns(1));
    let answer = Incoming { task: Some(asked.id.clone()), ..from("a", "this one") };
    turns.send(answer).await.unwrap();
    turns.drain(Duration::from_secs(300)).await;
    let task = turns.task(&Principal::named("a"), &asked.id).await.unwrap();
    assert_eq!(task.status.state, State::Completed);
}

#[tokio::test]
async fn a_caller_that_sends_too_fast_waits_for_its_next_turn() {
    let (turns, ..) = limited(CallerLimits { turns_per_minute: Some(6), ..CallerLimits::default() });
    for _ in 0..6 {
        turns.send(from("a", "hi")).await.unwrap().settled().await;
    }
    let OverShare::Rate { limit: 6, wait } = over(&turns, from("a", "hi")).await else { panic!() };
    assert!(wait <= Duration::from_secs(10), "{wait:?}");
    turns.send(from("b", "hi")).await.unwrap().settled().await;
    assert_eq!(turns.refused().caller_rate, 1);
}

#[tokio::test]
async fn a_caller_with_too_many_unfinished_tasks_is_rejected() {
    let (turns, _, store) = limited(CallerLimits { tasks: Some(4), ..CallerLimits::default() });
    let task = turns.send(from("a", "ask")).await.unwrap().settled().await.id.clone();
    for _ in 1..5 {
        turns.send(from("a", "ask")).await.unwrap().settled().await;
    }
    assert_eq!(over(&turns, from("a", "hi")).await, OverShare::Tasks { tasks: 5, limit: 4 });
    turns.wait_for_excess().await;
    turns.send(from("b", "hi")).await.unwrap().settled().await;
    turns.cancel(&Principal::named("a"), &task).await.unwrap();
    let callers = [(Principal::named("a"), CallerLimits { tasks: Some(4), ..CallerLimits::default() })];
    let shares = Arc::new(Shares { callers: callers.into(), ..Shares::default() });
    let retention = Retention { shares, ..Retention::since(Timestamp::from_millis(0)) };
    assert_eq!(store.forget(&retention).await.unwrap(), 1);
    turns.send(from("a", "hi")).await.expect("retention made room").settled().await;
}

#[tokio::test]
async fn a_caller_with_too_many_bytes_is_rejected() {
    let (turns, ..) = limited(CallerLimits { bytes: Some(2_000), ..CallerLimits::default() });
    let task = turns.send(from("a", "ask")).await.unwrap().settled().await.id.clone();
    let large = "x".repeat(3_000);
    turns.send(from("a", &large)).await.unwrap().settled().await;
    assert!(matches!(over(&turns, from("a", "hi")).await, OverShare::Bytes { limit: 2_000, .. }));
    let answer = Incoming { task: Some(task), ..from("a", "more") };
    assert!(matches!(over(&turns, answer).await, OverShare::Bytes { .. }), "in a task that exists too");
    turns.send(from("b", &large)).await.unwrap().settled().await;
    assert_eq!(turns.refused().caller_bytes, 2);
}

#[tokio::test]
async fn the_look_ups_of_webhooks_are_limited() {
    let (turns, ..) = limited(CallerLimits { webhooks_per_minute: Some(2), ..CallerLimits::default() });
    let with = |caller: &str| Incoming { push: Some(config("h")), ..from(caller, "hi") };
    let task = turns.send(with("a")).await.unwrap().settled().await.id.clone();
    turns.set_push_config(&Principal::named("a"), &task, config("other")).await.unwrap();
    let set = turns.set_push_config(&Principal::named("a"), &task, config("third")).await;
    assert!(matches!(set, Err(PushError::OverShare(OverShare::Webhooks { limit: 2, .. }))), "{set:?}");
    assert!(matches!(over(&turns, with("a")).await, OverShare::Webhooks { .. }));
    turns.send(from("a", "hi")).await.expect("without a webhook").settled().await;
    turns.send(with("b")).await.unwrap().settled().await;
    assert_eq!(turns.refused().caller_webhooks, 2);
}

/// Delivers nothing to `a`, and counts the deliveries to others.
struct Hangs(Semaphore);

#[async_trait]
impl PushSender for Hangs {
    async fn admits(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    async fn deliver(&self, config: &PushConfig, _: &PushNotification) -> Result<(), PushFailure> {
        if config.id.as_str() == "hangs" {
            std::future::pending::<()>().await;
        }
        self.0.add_permits(1);
        Ok(())
    }
}

#[tokio::test]
async fn webhooks_of_one_caller_that_hang_do_not_hold_up_the_others() {
    let sender = Arc::new(Hangs(Semaphore::new(0)));
    let (turns, ..) = service(CallerLimits::default(), Arc::clone(&sender) as _);
    for _ in 0..20 {
        let incoming = Incoming { push: Some(config("hangs")), ..from("a", "hi") };
        turns.send(incoming).await.unwrap().settled().await;
    }
    turns.send(Incoming { push: Some(config("works")), ..from("b", "hi") }).await.unwrap();
    let _ = sender.0.acquire_many(2).await.unwrap();
}
