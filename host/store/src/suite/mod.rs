//! What every store must do. A store's tests say `every_promise!(|| (an empty one, what it needs to stay))`.

pub(crate) mod hooks;
pub(crate) mod letters;
pub(crate) mod lists;
pub(crate) mod log;
pub(crate) mod once;
pub(crate) mod recall;
pub(crate) mod retention;

use std::sync::Arc;

use talaria_turns::{
    Artifact, ContextId, Event, Message, MessageId, Once, Part, Principal, Query, REPLY, Role, State, Status,
    Store, Task, TaskId, TaskKey, Timestamp,
};

/// Makes a test of each promise, with a store of its own.
macro_rules! every_promise {
    ($empty:expr) => {
        $crate::suite::every_promise! { $empty;
            log::a_task_is_what_its_events_add_up_to,
            log::a_key_is_taken_once,
            log::a_task_may_begin_with_nothing,
            log::sequence_numbers_have_no_gaps_and_resume_within_an_append,
            log::everything_comes_back_as_it_was_written,
            log::what_was_written_can_be_read_however_deep,
            log::only_one_of_eight_writers_wins,
            log::writers_that_try_again_all_get_through,
            log::an_illegal_event_changes_nothing,
            log::a_late_reply_leaves_the_end_where_it_was,
            log::a_long_task_is_the_same_as_its_events,
            log::another_owners_task_is_absent,
            log::state_belongs_to_owner_context_and_executor,
            log::a_turn_that_is_not_over_is_unfinished,
            log::everything_that_happened_can_be_read_in_its_order,
            once::of_many_writes_at_once_one_takes_the_message_in,
            once::what_is_sent_again_writes_nothing,
            once::another_digest_owner_or_id_is_another_message,
            once::a_message_leads_to_the_task_that_took_it_in,
            once::a_write_that_is_refused_takes_nothing_in,
            recall::a_conversation_is_told_in_its_order_without_the_present_message,
            recall::nobody_is_told_what_another_said,
            recall::who_made_the_conversations_id_is_known_as_long_as_it_lasts,
            recall::of_a_long_conversation_the_newest_is_told,
            letters::letters_come_back_in_the_order_in_which_they_came,
            letters::an_announcement_is_kept_as_it_is_and_replaced_as_a_whole,
            letters::what_is_discarded_takes_its_letters_along,
            lists::the_newest_status_comes_first_then_the_greater_id,
            lists::pages_give_every_task_once,
            lists::a_task_that_moves_between_pages_is_not_listed_twice,
            lists::filters_and_totals,
            lists::another_owners_tasks_are_not_listed,
            retention::forgets_by_age,
            retention::forgets_by_count,
            retention::never_forgets_what_has_not_ended,
            retention::forgets_many,
            hooks::a_hook_comes_back_as_it_was_set,
            hooks::another_owners_hooks_are_absent,
            hooks::a_hook_that_is_set_again_goes_on_where_it_was,
            hooks::open_hooks_are_those_that_may_have_something_to_tell,
            hooks::those_given_up_are_listed_newest_first_and_go_with_their_task,
            hooks::a_task_is_stuck_when_its_status_is_old,
            retention::what_executors_remember_goes_with_the_last_task_of_its_context,
        }
    };
    ($empty:expr; $($module:ident :: $promise:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $promise() {
                let (store, _kept) = ($empty)();
                $crate::suite::$module::$promise(std::sync::Arc::new(store)).await;
            }
        )*
    };
}
pub(crate) use every_promise;

/// A fresh key.
pub(crate) fn key(owner: &str) -> TaskKey {
    TaskKey { owner: Principal::named(owner), task: TaskId::fresh() }
}

pub(crate) fn message(id: &str, role: Role, text: &str) -> Message {
    let id: MessageId = id.parse().unwrap();
    Message { id, role, ..Message::agent(vec![Part::text(text)]) }
}

/// What a message is known by.
pub(crate) fn once(id: &str) -> Once {
    Once { message: id.parse().unwrap(), digest: [0; 32] }
}

pub(crate) fn accepted(id: &str) -> Event {
    let metadata = serde_json::json!({ "n": 1.5, "of": ["it", null] }).as_object().cloned();
    Event::Accepted { message: message(id, Role::User, "do it"), executor: "worker".into(), metadata }
}

/// A status of a given time.
pub(crate) fn status(state: State, at: u64, ends_turn: bool) -> Event {
    let status = Status { state, message: None, at: Timestamp::from_millis(at) };
    Event::Status { status, metadata: None, ends_turn }
}

pub(crate) fn delta(text: &str) -> Event {
    let artifact = Artifact::new(REPLY, vec![Part::text(text)]);
    Event::Artifact { artifact, append: true, last: false }
}

/// Something that leaves the task as it is.
pub(crate) fn note(text: &str) -> Event {
    Event::Note { name: "progress".into(), value: text.into() }
}

/// A fresh task with these events, in a context of its own.
pub(crate) async fn create(store: &dyn Store, owner: &str, events: &[Event]) -> TaskKey {
    let key = key(owner);
    store.create(&key, &ContextId::fresh(), events).await.unwrap();
    key
}

/// A task that must be there.
pub(crate) async fn task(store: &dyn Store, key: &TaskKey) -> Arc<Task> {
    store.task(key).await.unwrap().expect("the task is there")
}

/// Everything, as far as it goes on a page of 100.
pub(crate) fn all() -> Query {
    Query { context: None, state: None, since: None, after: None, limit: 100 }
}
