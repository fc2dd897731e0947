//! The messages of a context that a turn can recall.

use std::sync::Arc;

use talaria_turns::{
    ContextId, Event, Message, Onto, Principal, Recall, Retention, Role, State, Store, TaskKey, Timestamp,
};

use super::{accepted, delta, key, shared, status};

fn recall(present: &TaskKey, context: &ContextId) -> Recall {
    Recall {
        owner: present.owner.clone(),
        context: context.clone(),
        present: present.task.clone(),
        host_made_only: false,
        messages: 100,
        bytes: 100_000,
    }
}

/// Returns the events of a task whose only turn has ended.
fn turn(id: &str, answer: &str, at: u64) -> [Event; 3] {
    [accepted(id), delta(answer), status(State::Completed, at, true)]
}

async fn said(store: &dyn Store, recall: &Recall) -> Vec<String> {
    let line = |message: Arc<Message>| match message.role {
        Role::User => format!("> {}", message.id),
        Role::Agent => format!("< {}", talaria_turns::message_text(&message.parts)),
    };
    store.recall(recall).await.unwrap().into_iter().map(line).collect()
}

pub(crate) async fn a_context_is_recalled_in_order_without_the_current_message(store: Arc<dyn Store>) {
    let (context, elsewhere) = (ContextId::fresh(), ContextId::fresh());
    let asking = key("a");
    let first = [accepted("m1"), delta("one"), status(State::InputRequired, 1, true)];
    store.create(&asking, &context, &first).await.unwrap();
    let between = key("a");
    store.create(&between, &context, &turn("m2", "two", 2)).await.unwrap();
    store.create(&key("a"), &elsewhere, &turn("x", "of another context", 3)).await.unwrap();
    store.create(&key("b"), &context, &turn("y", "of another caller", 4)).await.unwrap();
    let failed = [accepted("m3"), delta("half"), status(State::Failed, 5, true)];
    store.create(&key("a"), &context, &failed).await.unwrap();
    let under_way = [status(State::Working, 6, false), accepted("m4"), accepted("m5")];
    store.append(&asking, 3, &under_way).await.unwrap();
    assert_eq!(said(&*store, &recall(&asking, &context)).await, ["> m2", "< two", "> m1", "< one"]);

    let present = key("a");
    store.create(&present, &context, &[accepted("m6")]).await.unwrap();
    assert_eq!(said(&*store, &recall(&present, &context)).await, ["> m1", "< one", "> m2", "< two"]);
    let few = Recall { messages: 3, ..recall(&present, &context) };
    assert_eq!(said(&*store, &few).await, ["< one", "> m2", "< two"]);
    let none = Recall { messages: 0, ..recall(&present, &context) };
    assert!(said(&*store, &none).await.is_empty());
}

pub(crate) async fn the_messages_of_another_owner_are_not_recalled(store: Arc<dyn Store>) {
    let context = ContextId::fresh();
    let mine = key("a");
    store.create(&mine, &context, &turn("m1", "one", 1)).await.unwrap();
    for owner in [Principal::named("b"), Principal::anyone()] {
        let guess = Recall { owner: owner.clone(), ..recall(&mine, &context) };
        assert!(said(&*store, &guess).await.is_empty(), "{owner:?}");
        let theirs = TaskKey { owner, task: mine.task.clone() };
        store.create(&theirs, &context, &[accepted("m2")]).await.unwrap();
        assert!(said(&*store, &recall(&theirs, &context)).await.is_empty());
    }
    // The same holds for a context that the current task does not belong to.
    let present = key("a");
    store.create(&present, &ContextId::fresh(), &[accepted("m3")]).await.unwrap();
    assert!(said(&*store, &recall(&present, &context)).await.is_empty());
}

pub(crate) async fn the_origin_of_a_context_id_is_known_as_long_as_the_context_exists(store: Arc<dyn Store>) {
    let (made, chosen) = (ContextId::fresh(), ContextId::fresh());
    let only = |key: &TaskKey, context: &ContextId| Recall { host_made_only: true, ..recall(key, context) };
    let begin = async |context: &ContextId, host_made: bool, events: &[Event]| {
        let key = key("");
        store.write(&key, Onto::Nothing { context, host_made }, &shared(events), None).await.unwrap();
        key
    };
    begin(&made, true, &turn("m1", "one", 1)).await;
    begin(&made, false, &turn("m2", "two", 2)).await;
    begin(&chosen, false, &turn("m3", "three", 3)).await;
    let present = begin(&made, false, &[accepted("m4")]).await;
    assert_eq!(said(&*store, &only(&present, &made)).await, ["> m1", "< one", "> m2", "< two"]);
    let stranger = begin(&chosen, false, &[accepted("m5")]).await;
    assert!(said(&*store, &only(&stranger, &chosen)).await.is_empty());
    assert_eq!(said(&*store, &recall(&stranger, &chosen)).await.len(), 2);
    // The task that the id was made for is deleted; the rest does not change.
    assert_eq!(store.forget(&Retention::since(Timestamp::from_millis(2))).await.unwrap(), 1);
    assert_eq!(said(&*store, &only(&present, &made)).await, ["> m2", "< two"]);
}

pub(crate) async fn the_newest_messages_of_a_long_context_are_recalled(store: Arc<dyn Store>) {
    let context = ContextId::fresh();
    for number in 0..1_500 {
        store.create(&key("a"), &context, &turn(&format!("m{number}"), "so", number)).await.unwrap();
    }
    let present = key("a");
    store.create(&present, &context, &[accepted("now")]).await.unwrap();
    let all = Recall { messages: usize::MAX, bytes: usize::MAX, ..recall(&present, &context) };
    let recalled = said(&*store, &all).await;
    assert!(recalled.len() <= 2 * Recall::TASKS, "at most {} tasks are read", Recall::TASKS);
    assert_eq!(recalled.last().unwrap(), "< so");
    assert_eq!(recalled[recalled.len() - 2], "> m1499");
    let few = Recall { messages: 4, ..recall(&present, &context) };
    assert_eq!(said(&*store, &few).await, ["> m1498", "< so", "> m1499", "< so"]);
    let small = Recall { bytes: 300, ..recall(&present, &context) };
    assert_eq!(said(&*store, &small).await, ["> m1498", "< so", "> m1499", "< so"]);
}
