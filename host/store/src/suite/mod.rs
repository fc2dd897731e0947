//! The tests that every store must pass. The tests of a store call
//! `every_promise!(|| (an empty store, a value to keep alive as long as the store))`.

pub(crate) mod callbacks;
pub(crate) mod delegations;
pub(crate) mod lists;
pub(crate) mod log;
pub(crate) mod once;
pub(crate) mod push;
pub(crate) mod recall;
pub(crate) mod retention;
pub(crate) mod survey;

use std::sync::Arc;

use talaria_turns::{
    Artifact, ContextId, Event, Message, MessageId, Once, Part, Principal, Query, REPLY, Role, State, Status,
    Store, Task, TaskId, TaskKey, Timestamp,
};

/// Defines one test per promise, each with its own store.
macro_rules! every_promise {
    ($empty:expr) => {
        $crate::suite::every_promise! { $empty;
            log::a_task_is_the_fold_of_its_events,
            log::a_key_can_be_created_once,
            log::a_task_may_begin_without_events,
            log::sequence_numbers_have_no_gaps_and_resume_within_an_append,
            log::events_are_read_back_unchanged,
            log::deeply_nested_events_can_be_read_back,
            log::only_one_of_eight_writers_wins,
            log::writers_that_retry_all_succeed,
            log::an_illegal_event_changes_nothing,
            log::a_late_reply_does_not_change_the_final_status,
            log::a_long_task_equals_the_fold_of_its_events,
            log::another_owners_task_is_absent,
            log::state_belongs_to_owner_context_and_executor,
            log::a_task_with_an_open_turn_is_unfinished,
            log::the_log_of_all_tasks_is_read_in_order,
            once::one_of_many_concurrent_writes_accepts_the_message,
            once::a_repeated_message_writes_nothing,
            once::another_digest_owner_or_id_is_another_message,
            once::a_message_leads_to_the_task_that_accepted_it,
            once::a_rejected_write_accepts_no_message,
            recall::a_context_is_recalled_in_order_without_the_current_message,
            recall::the_messages_of_another_owner_are_not_recalled,
            recall::the_origin_of_a_context_id_is_known_as_long_as_the_context_exists,
            recall::the_newest_messages_of_a_long_context_are_recalled,
            callbacks::callbacks_are_read_back_in_the_order_of_arrival,
            callbacks::an_expected_reply_is_stored_unchanged_and_replaced_as_a_whole,
            callbacks::deleting_an_expected_reply_deletes_its_callbacks,
            delegations::delegations_are_read_back_unchanged_in_their_order,
            delegations::a_delegation_is_replaced_as_a_whole_and_deleted,
            lists::the_newest_status_comes_first_then_the_greater_id,
            lists::pages_contain_every_task_once,
            lists::a_task_that_moves_between_pages_is_not_listed_twice,
            lists::filters_and_totals,
            lists::totals_follow_every_change,
            lists::a_total_counts_the_tasks_that_are_listed,
            lists::another_owners_tasks_are_not_listed,
            lists::a_page_ends_before_it_holds_too_many_bytes,
            survey::the_tasks_of_all_owners_are_surveyed_newest_first,
            survey::a_survey_is_filtered,
            survey::a_row_shows_the_last_message_and_the_present_state,
            survey::the_times_of_appends_are_known,
            survey::the_owner_of_a_task_is_found_by_its_id,
            log::a_page_of_large_events_ends_early_and_resumes,
            retention::deletes_by_age,
            retention::deletes_by_count,
            retention::the_load_of_one_owner_deletes_no_task_of_another,
            retention::an_owner_is_cut_to_its_share,
            retention::what_an_owner_has_is_counted,
            retention::never_deletes_a_task_that_is_not_over,
            retention::deletes_many,
            push::a_push_configuration_is_read_back_unchanged,
            push::the_push_configurations_of_another_owner_are_absent,
            push::a_push_configuration_that_is_set_again_keeps_its_cursor,
            push::open_push_configurations_are_those_with_something_left_to_send,
            push::abandoned_push_configurations_are_listed_newest_first_and_deleted_with_their_task,
            push::a_task_is_stuck_when_its_status_is_old,
            retention::the_state_of_executors_is_deleted_with_the_last_task_of_its_context,
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

/// Returns an unused key.
pub(crate) fn key(owner: &str) -> TaskKey {
    TaskKey { owner: Principal::named(owner), task: TaskId::fresh() }
}

pub(crate) fn message(id: &str, role: Role, text: &str) -> Message {
    let id: MessageId = id.parse().unwrap();
    Message { id, role, ..Message::agent(vec![Part::text(text)]) }
}

/// Shares events, as a write takes them.
pub(crate) fn shared(events: &[Event]) -> Vec<Arc<Event>> {
    events.iter().cloned().map(Arc::new).collect()
}

/// Returns the identity of a message.
pub(crate) fn once(id: &str) -> Once {
    Once { message: id.parse().unwrap(), digest: [0; 32] }
}

pub(crate) fn accepted(id: &str) -> Event {
    let metadata = serde_json::json!({ "n": 1.5, "of": ["it", null] }).as_object().cloned();
    let message = message(id, Role::User, "do it").into();
    Event::Accepted { message, executor: "worker".into(), metadata: metadata.map(Arc::new), trace: None }
}

/// Returns a status with a given time.
pub(crate) fn status(state: State, at: u64, ends_turn: bool) -> Event {
    let status = Status { state, message: None, at: Timestamp::from_millis(at) };
    Event::Status { status, metadata: None, ends_turn }
}

pub(crate) fn delta(text: &str) -> Event {
    let artifact = Artifact::new(REPLY, vec![Part::text(text)]).into();
    Event::Artifact { artifact, append: true, last: false }
}

/// Returns an event that does not change the task.
pub(crate) fn note(text: &str) -> Event {
    Event::Note { name: "progress".into(), value: text.into() }
}

/// Creates a task with these events, in its own context.
pub(crate) async fn create(store: &dyn Store, owner: &str, events: &[Event]) -> TaskKey {
    let key = key(owner);
    store.create(&key, &ContextId::fresh(), events).await.unwrap();
    key
}

/// Returns a task that must exist.
pub(crate) async fn task(store: &dyn Store, key: &TaskKey) -> Arc<Task> {
    store.task(key).await.unwrap().expect("the task exists")
}

/// Returns a query for the first 100 tasks.
pub(crate) fn all() -> Query {
    Query { context: None, state: None, since: None, after: None, limit: 100, bytes: usize::MAX }
}
