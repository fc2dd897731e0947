//! Lists of tasks.

use std::sync::Arc;

use talaria_turns::{
    ContextId, Event, Page, Place, Principal, Query, Retention, State, Store, TaskId, TaskKey, Timestamp,
};

use tokio::task::JoinSet;

use super::{accepted, all, create, status};

async fn list(store: &dyn Store, owner: &str, query: &Query) -> Page {
    store.list(&Principal::named(owner), query).await.unwrap()
}

fn ids(page: &Page) -> Vec<TaskId> {
    page.tasks.iter().map(|task| task.id.clone()).collect()
}

/// Creates a task whose status has the time `at`.
async fn at(store: &dyn Store, at: u64) -> TaskKey {
    create(store, "a", &[accepted("m"), status(State::Working, at, false)]).await
}

pub(crate) async fn the_newest_status_comes_first_then_the_greater_id(store: Arc<dyn Store>) {
    let mut made = Vec::new();
    for time in [5, 3, 5, 9, 3, 5] {
        made.push((time, at(&*store, time).await.task));
    }
    made.sort_by(|a, b| (b.0, b.1.as_str()).cmp(&(a.0, a.1.as_str())));
    let page = list(&*store, "a", &all()).await;
    assert_eq!(ids(&page), made.iter().map(|(_, id)| id.clone()).collect::<Vec<_>>());
    assert_eq!((page.total, page.next), (6, None));
    for listed in &page.tasks {
        let key = TaskKey { owner: Principal::named("a"), task: listed.id.clone() };
        assert_eq!(*listed, super::task(&*store, &key).await, "the whole task is listed");
    }
    let empty = list(&*store, "nobody", &all()).await;
    assert_eq!(empty, Page { tasks: vec![], next: None, total: 0 });
    let none = list(&*store, "a", &Query { limit: 0, ..all() }).await;
    assert_eq!((none.tasks.len(), none.next, none.total), (0, None, 6), "an empty page has no successor");
}

pub(crate) async fn pages_contain_every_task_once(store: Arc<dyn Store>) {
    for time in [1, 1, 1, 2, 2, 3, 4, 4, 4, 4] {
        at(&*store, time).await;
    }
    let whole = ids(&list(&*store, "a", &all()).await);
    for limit in 1..=11 {
        let (mut after, mut seen) = (None, Vec::new());
        loop {
            let page = list(&*store, "a", &Query { after, limit, ..all() }).await;
            assert!(!page.tasks.is_empty() && page.tasks.len() <= limit, "pages of {limit}");
            assert_eq!(page.total, 10, "the total counts all pages");
            seen.extend(ids(&page));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen, whole, "pages of {limit}");
    }
    let nowhere = Some(Place { at: Timestamp::from_millis(0), task: TaskId::fresh() });
    assert_eq!(list(&*store, "a", &Query { after: nowhere, ..all() }).await.tasks, vec![]);
    let far = Some(Place { at: Timestamp::from_millis(u64::MAX), task: TaskId::fresh() });
    assert_eq!(ids(&list(&*store, "a", &Query { after: far, ..all() }).await), whole);
}

pub(crate) async fn a_task_that_moves_between_pages_is_not_listed_twice(store: Arc<dyn Store>) {
    let mut keys = Vec::new();
    for time in 1..=6 {
        keys.push(at(&*store, time).await);
    }
    let first = list(&*store, "a", &Query { limit: 2, ..all() }).await;
    assert_eq!(ids(&first), [keys[5].task.clone(), keys[4].task.clone()]);
    // The last task of the page moves, another listed task ends, and a new task is created.
    store.append(&keys[4], 2, &[status(State::Working, 10, false)]).await.unwrap();
    store.append(&keys[5], 2, &[status(State::Completed, 11, true)]).await.unwrap();
    at(&*store, 12).await;
    let second = list(&*store, "a", &Query { after: first.next, limit: 2, ..all() }).await;
    assert_eq!(ids(&second), [keys[3].task.clone(), keys[2].task.clone()]);
    let third = list(&*store, "a", &Query { after: second.next, limit: 2, ..all() }).await;
    assert_eq!(ids(&third), [keys[1].task.clone(), keys[0].task.clone()]);
    assert_eq!((third.next, third.total), (None, 7));
}

pub(crate) async fn filters_and_totals(store: Arc<dyn Store>) {
    let contexts = [ContextId::fresh(), ContextId::fresh()];
    let states = [State::Working, State::Completed, State::InputRequired];
    let mut made = Vec::new();
    for time in 0..24_u64 {
        let (context, state) = (&contexts[usize::from(time % 4 == 0)], states[(time % 3) as usize]);
        let key = super::key("a");
        store.create(&key, context, &[accepted("m"), status(state, time, false)]).await.unwrap();
        made.push((time, context.clone(), state, key.task));
    }
    made.reverse();
    for context in [None, Some(&contexts[0]), Some(&contexts[1])] {
        for state in [None, Some(State::Completed), Some(State::Failed)] {
            for since in [None, Some(0), Some(7), Some(99), Some(u64::MAX)] {
                let fits: Vec<TaskId> = made
                    .iter()
                    .filter(|(time, its, now, _)| {
                        context.is_none_or(|context| context == its)
                            && state.is_none_or(|state| state == *now)
                            && since.is_none_or(|since| since <= *time)
                    })
                    .map(|(.., id)| id.clone())
                    .collect();
                let since = since.map(Timestamp::from_millis);
                let mut query = Query {
                    context: context.cloned(),
                    state,
                    since,
                    after: None,
                    limit: 5,
                    bytes: usize::MAX,
                };
                let mut seen = Vec::new();
                loop {
                    let page = list(&*store, "a", &query).await;
                    assert_eq!(page.total, fits.len(), "{query:?}");
                    seen.extend(ids(&page));
                    let Some(next) = page.next else { break };
                    query.after = Some(next);
                }
                assert_eq!(seen, fits, "{query:?}");
            }
        }
    }
    // A task is found by its current state.
    let (.., task) = made.iter().find(|(_, _, state, _)| *state == State::Working).unwrap();
    let key = TaskKey { owner: Principal::named("a"), task: task.clone() };
    store.append(&key, 2, &[Event::moved(State::Failed)]).await.unwrap();
    let failed = list(&*store, "a", &Query { state: Some(State::Failed), ..all() }).await;
    assert_eq!((ids(&failed), failed.total), (vec![key.task], 1));
    assert_eq!(list(&*store, "a", &Query { state: Some(State::Working), ..all() }).await.total, 7);
}

pub(crate) async fn another_owners_tasks_are_not_listed(store: Arc<dyn Store>) {
    let context = ContextId::fresh();
    let owners = ["", "a", "A", "a ", "b"];
    for owner in owners {
        let key = super::key(owner);
        store.create(&key, &context, &[status(State::Working, 5, false)]).await.unwrap();
        for query in [all(), Query { context: Some(context.clone()), ..all() }] {
            let page = list(&*store, owner, &query).await;
            assert_eq!((ids(&page), page.total), (vec![key.task.clone()], 1), "{owner:?}");
        }
    }
}

pub(crate) async fn a_page_ends_before_it_holds_too_many_bytes(store: Arc<dyn Store>) {
    let long = "x".repeat(100_000);
    for time in 1..=7 {
        at_with(&*store, time, &long).await;
    }
    let whole = list(&*store, "a", &all()).await;
    let size = whole.tasks[0].size();
    assert!(size > 100_000, "{size}");
    for (bytes, most) in [(0, 1), (size - 1, 1), (size, 1), (2 * size, 2), (3 * size + 1, 3), (usize::MAX, 7)]
    {
        let (mut after, mut seen) = (None, Vec::new());
        loop {
            let page = list(&*store, "a", &Query { after, bytes, ..all() }).await;
            assert!((1..=most).contains(&page.tasks.len()), "{} tasks in {bytes} bytes", page.tasks.len());
            assert_eq!(page.total, 7, "the total counts all pages");
            seen.extend(ids(&page));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen, ids(&whole), "pages of {bytes} bytes");
    }
}

/// Creates a task with a text, whose status has the time `at`.
async fn at_with(store: &dyn Store, at: u64, text: &str) {
    let message = super::message("m", talaria_turns::Role::User, text).into();
    let accepted = Event::Accepted { message, executor: "worker".into(), metadata: None, trace: None };
    create(store, "a", &[accepted, status(State::Working, at, false)]).await;
}

pub(crate) async fn totals_follow_every_change(store: Arc<dyn Store>) {
    let totals = async |state: Option<State>| {
        let page = list(&*store, "a", &Query { state, limit: 1, ..all() }).await;
        assert_eq!(page.tasks.len(), page.total.min(1), "{state:?}");
        page.total
    };
    let mut keys = Vec::new();
    for time in 1..=4 {
        keys.push(at(&*store, time).await);
    }
    create(&*store, "b", &[status(State::Working, 1, false)]).await;
    create(&*store, "a", &[accepted("m")]).await;
    store.append(&keys[0], 2, &[status(State::Failed, 5, true)]).await.unwrap();
    store
        .append(&keys[1], 2, &[status(State::InputRequired, 6, false), status(State::Completed, 7, true)])
        .await
        .unwrap();
    store.append(&keys[2], 2, &[status(State::Completed, 8, true)]).await.unwrap();
    store.append(&keys[2], 3, &[status(State::Working, 9, false)]).await.unwrap_err();
    store.append(&keys[3], 9, &[status(State::Completed, 9, true)]).await.unwrap_err();
    let of = [
        (None, 5),
        (Some(State::Submitted), 1),
        (Some(State::Working), 1),
        (Some(State::InputRequired), 0),
        (Some(State::Completed), 2),
        (Some(State::Failed), 1),
    ];
    for (state, total) in of {
        assert_eq!(totals(state).await, total, "{state:?}");
    }
    store.forget(&Retention::since(Timestamp::from_millis(8))).await.unwrap();
    assert_eq!((totals(None).await, totals(Some(State::Completed)).await), (3, 1));
    assert_eq!(totals(Some(State::Failed)).await, 0);
}

pub(crate) async fn a_total_counts_the_tasks_that_are_listed(store: Arc<dyn Store>) {
    let mut writing = JoinSet::new();
    let writer = Arc::clone(&store);
    writing.spawn(async move {
        for time in 0..100 {
            let key = at(&*writer, time).await;
            writer.append(&key, 2, &[status(State::Completed, time, true)]).await.unwrap();
        }
    });
    let mut is_last = false;
    while !is_last {
        is_last = writing.try_join_next().map(Result::unwrap).is_some();
        for state in [None, Some(State::Working), Some(State::Completed)] {
            let page = list(&*store, "a", &Query { state, limit: 1_000, ..all() }).await;
            assert_eq!(page.total, page.tasks.len(), "{state:?}");
        }
    }
    assert_eq!(list(&*store, "a", &all()).await.total, 100);
}
