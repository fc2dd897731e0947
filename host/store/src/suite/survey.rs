//! The operator's list of the tasks of all owners.

use std::sync::Arc;

use talaria_turns::{
    BEGINNING, ContextId, Event, Place, Principal, Role, State, Store, Survey, Surveyed, TaskId, TaskKey,
    Timestamp,
};

use super::{key, message, status};

fn page(limit: usize) -> Survey {
    Survey { limit, ..Survey::default() }
}

async fn survey(store: &dyn Store, survey: &Survey) -> Surveyed {
    store.survey(survey).await.unwrap()
}

fn ids(page: &Surveyed) -> Vec<TaskId> {
    page.rows.iter().map(|row| row.key.task.clone()).collect()
}

fn said(text: &str, executor: &str) -> Event {
    Event::Accepted {
        message: message("m", Role::User, text).into(),
        executor: executor.into(),
        metadata: None,
        trace: None,
    }
}

async fn create(store: &dyn Store, owner: &str, text: &str, executor: &str, state: (State, u64)) -> TaskKey {
    let events = [said(text, executor), status(state.0, state.1, state.0.is_terminal())];
    super::create(store, owner, &events).await
}

pub(crate) async fn the_tasks_of_all_owners_are_surveyed_newest_first(store: Arc<dyn Store>) {
    let mut made = Vec::new();
    for (time, owner) in [(5, "a"), (3, ""), (5, "b"), (9, "a"), (3, "b"), (5, "")] {
        let key = create(&*store, owner, "hello", "echo", (State::Working, time)).await;
        made.push((time, key));
    }
    made.sort_by(|a, b| (b.0, b.1.task.as_str()).cmp(&(a.0, a.1.task.as_str())));
    let whole: Vec<TaskId> = made.iter().map(|(_, key)| key.task.clone()).collect();
    let all = survey(&*store, &page(10)).await;
    assert_eq!((ids(&all), all.next.clone()), (whole.clone(), None));
    for ((time, key), row) in made.iter().zip(&all.rows) {
        assert_eq!((&row.key, row.at, row.state), (key, Timestamp::from_millis(*time), State::Working));
        assert_eq!((row.executor.as_deref(), &*row.text), (Some("echo"), "hello"));
        let task = super::task(&*store, key).await;
        assert_eq!((&row.context, row.at), (&task.context, task.status.at), "the row is of the task");
    }
    for limit in 1..=7 {
        let (mut after, mut seen) = (None, Vec::new());
        loop {
            let page = survey(&*store, &Survey { after, ..page(limit) }).await;
            seen.extend(ids(&page));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen, whole, "pages of {limit}");
    }
    let nowhere = Some(Place { at: Timestamp::from_millis(0), task: TaskId::fresh() });
    assert_eq!(survey(&*store, &Survey { after: nowhere, ..page(10) }).await, Surveyed::default());
}

pub(crate) async fn a_survey_is_filtered(store: Arc<dyn Store>) {
    let one = create(&*store, "a", "Plan a TRIP to Rome", "chat", (State::Working, 1)).await;
    let two = create(&*store, "b", "what is 100%_of it", "chat", (State::Completed, 2)).await;
    let three = create(&*store, "", "a trip", "other", (State::Failed, 3)).await;
    let context = super::task(&*store, &two).await.context.clone();
    let of = async |filter: Survey| ids(&survey(&*store, &Survey { limit: 10, ..filter }).await);
    let is = |keys: &[&TaskKey]| keys.iter().map(|key| key.task.clone()).collect::<Vec<_>>();
    let search = |text: &str| Survey { search: Some(text.into()), ..Survey::default() };
    let named = |owner: &str| Survey { owner: Some(Principal::named(owner)), ..Survey::default() };
    assert_eq!(of(named("a")).await, is(&[&one]));
    assert_eq!(of(named("")).await, is(&[&three]));
    assert_eq!(of(named("c")).await, is(&[]));
    assert_eq!(of(Survey { state: Some(State::Failed), ..Survey::default() }).await, is(&[&three]));
    assert_eq!(of(Survey { executor: Some("chat".into()), ..Survey::default() }).await, is(&[&two, &one]));
    assert_eq!(of(Survey { context: Some(context.clone()), ..Survey::default() }).await, is(&[&two]));
    let elsewhere = Survey { context: Some(ContextId::fresh()), ..Survey::default() };
    assert_eq!(of(elsewhere).await, is(&[]));
    assert_eq!(of(search("trip")).await, is(&[&three, &one]));
    assert_eq!(of(search("%_")).await, is(&[&two]), "a search has no wildcards");
    assert_eq!(of(search(one.task.as_str())).await, is(&[&one]));
    assert_eq!(of(search(context.as_str())).await, is(&[&two]));
    let both = Survey { executor: Some("chat".into()), ..search("trip") };
    assert_eq!(of(both).await, is(&[&one]));
}

pub(crate) async fn a_row_shows_the_last_message_and_the_present_state(store: Arc<dyn Store>) {
    let key = create(&*store, "a", "first", "chat", (State::InputRequired, 1)).await;
    let long = "x".repeat(BEGINNING + 40);
    store.append(&key, 2, &[said(&long, "other"), status(State::Working, 7, false)]).await.unwrap();
    let row = store.find(&key.task).await.unwrap().unwrap();
    assert_eq!((row.state, row.at), (State::Working, Timestamp::from_millis(7)));
    assert_eq!((row.executor.as_deref(), row.text.len()), (Some("other"), BEGINNING));
    let answer = Event::Answered(message("n", Role::User, "yes\nof course").into());
    store.append(&key, 4, &[answer]).await.unwrap();
    let row = store.find(&key.task).await.unwrap().unwrap();
    assert_eq!((row.executor.as_deref(), &*row.text), (Some("other"), "yes of course"));
    store.append(&key, 5, &[status(State::Completed, 9, true)]).await.unwrap();
    let row = store.find(&key.task).await.unwrap().unwrap();
    assert_eq!((row.state, &*row.text), (State::Completed, "yes of course"));
    assert_eq!(survey(&*store, &page(1)).await.rows, [row]);
}

pub(crate) async fn the_owner_of_a_task_is_found_by_its_id(store: Arc<dyn Store>) {
    let mut keys = vec![key("a"), key("b"), key("")];
    for key in &keys {
        store.create(key, &ContextId::fresh(), &[]).await.unwrap();
    }
    while let Some(key) = keys.pop() {
        let row = store.find(&key.task).await.unwrap().unwrap();
        assert_eq!((row.key, row.state, row.executor, &*row.text), (key, State::Submitted, None, ""));
    }
    assert_eq!(store.find(&TaskId::fresh()).await.unwrap(), None);
}

pub(crate) async fn the_times_of_appends_are_known(store: Arc<dyn Store>) {
    let before = Timestamp::now();
    let key = create(&*store, "a", "hello", "echo", (State::Working, 1)).await;
    store.append(&key, 2, &[Event::moved(State::Working)]).await.unwrap();
    store.append(&key, 3, &[Event::moved(State::Working), Event::moved(State::Completed)]).await.unwrap();
    let firsts = async |after: u64| -> Vec<u64> {
        let times = store.times(&key, after).await.unwrap();
        assert!(times.iter().all(|(_, at)| *at >= before && *at <= Timestamp::now()));
        times.into_iter().map(|(first, _)| first).collect()
    };
    assert_eq!(firsts(0).await, [1, 3, 4]);
    assert_eq!(firsts(1).await, [1, 3, 4], "the second event is in the first append");
    assert_eq!(firsts(2).await, [3, 4]);
    assert_eq!(firsts(4).await, [4]);
    store.times(&super::key("b"), 0).await.unwrap_err();
}
