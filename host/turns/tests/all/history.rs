//! A turn can read the earlier messages of its context.

use std::sync::Arc;

use talaria_store::Memory;
use talaria_turns::{ContextId, Incoming, Limits, Principal, Store, Task, Turns};

use crate::kit::{message, on, service, text};

const ASK: &str = "what was said?";
/// A host that strangers can call.
const STRANGERS: Limits = Limits {
    turns: 100,
    lane: 100,
    history: 100,
    task_bytes: 1 << 30,
    trusts_chosen_contexts: false,
    strangers_call: true,
    anyone_may_approve: false,
    hops: 8,
};

async fn say(turns: &Turns, owner: &str, context: Option<&ContextId>, what: &str) -> Arc<Task> {
    let incoming =
        Incoming { principal: Principal::named(owner), context: context.cloned(), ..message(what) };
    turns.send(incoming).await.unwrap().settled().await
}

async fn told(turns: &Turns, owner: &str, context: Option<&ContextId>) -> String {
    text(say(turns, owner, context, ASK).await.text_reply())
}

#[tokio::test]
async fn a_context_continues_over_tasks_and_a_restart() {
    let store: Arc<dyn Store> = Arc::new(Memory::new(100));
    let (turns, _) = on(Arc::clone(&store), Limits::default());
    let first = say(&turns, "alice", None, "I am Ada").await;
    say(&turns, "alice", Some(&first.context), "fail").await;
    assert_eq!(told(&turns, "alice", Some(&first.context)).await, "I am Ada; I am Ada");
    let (restarted, _) = on(store, Limits::default());
    assert_eq!(
        told(&restarted, "alice", Some(&first.context)).await,
        "I am Ada; I am Ada; what was said?; I am Ada; I am Ada"
    );
    assert_eq!(told(&restarted, "alice", None).await, "", "another conversation knows nothing of it");
    assert_eq!(told(&restarted, "bob", Some(&first.context)).await, "", "nor does another caller");
}

#[tokio::test]
async fn the_turns_of_a_task_before_this_one_belong_to_it() {
    let (turns, _) = service(Limits::default());
    let asked = say(&turns, "alice", None, "ask").await;
    let next =
        Incoming { principal: Principal::named("alice"), task: Some(asked.id.clone()), ..message(ASK) };
    let task = turns.send(next).await.unwrap().settled().await;
    assert_eq!(text(task.text_reply()), "ask; which?");
}

#[tokio::test]
async fn callers_without_a_name_read_only_contexts_whose_id_the_host_made() {
    let (turns, _) = service(STRANGERS);
    let made = say(&turns, "", None, "mine").await;
    assert_eq!(told(&turns, "", Some(&made.context)).await, "mine; mine");
    let chosen: ContextId = "chosen".parse().unwrap();
    say(&turns, "", Some(&chosen), "a stranger's").await;
    assert_eq!(told(&turns, "", Some(&chosen)).await, "");
    say(&turns, "alice", Some(&chosen), "alice's").await;
    assert_eq!(told(&turns, "alice", Some(&chosen)).await, "alice's; alice's", "a name is proof enough");
}

#[tokio::test]
async fn a_trusted_host_lets_them_read_contexts_whose_id_was_chosen() {
    let (turns, _) = service(Limits::default());
    let chosen: ContextId = "chosen".parse().unwrap();
    say(&turns, "", Some(&chosen), "mine").await;
    assert_eq!(told(&turns, "", Some(&chosen)).await, "mine; mine");
}
