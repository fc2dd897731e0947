//! Tasks, their events, and the state of executors.

use std::sync::Arc;

use talaria_turns::{
    Artifact, Begin, Content, ContextId, EVENTS_BYTES, Event, Logged, Message, Part, Principal, Retention,
    Role, State, StateKey, Status, Store, StoreError, Task, TaskKey, Timestamp,
};

use super::{accepted, create, delta, key, message, note, status, task};

pub(crate) async fn a_task_is_the_fold_of_its_events(store: Arc<dyn Store>) {
    let (key, context) = (key("a"), ContextId::fresh());
    let events = [accepted("m1"), Event::moved(State::Working), delta("Hel"), note("half"), delta("lo")];
    store.create(&key, &context, &events[..1]).await.unwrap();
    let created = task(&*store, &key).await;
    assert_eq!((created.version, created.status.state), (1, State::Submitted));
    assert_eq!(created.context, context);
    store.append(&key, 1, &events[1..3]).await.unwrap();
    store.append(&key, 3, &events[3..]).await.unwrap();
    let found = task(&*store, &key).await;
    let mut folded = Task::new(key.task.clone(), context);
    for event in &events {
        folded.apply(event).unwrap();
    }
    assert_eq!(*found, folded);
    assert_eq!(found.artifacts[0].parts, vec![Part::text("Hello")]);
    assert_eq!(store.task(&super::key("a")).await.unwrap(), None, "no other task exists");
}

pub(crate) async fn a_key_can_be_created_once(store: Arc<dyn Store>) {
    let key = create(&*store, "a", &[accepted("m1")]).await;
    let before = task(&*store, &key).await;
    let again = store.create(&key, &ContextId::fresh(), &[accepted("m2")]).await;
    assert!(matches!(again, Err(StoreError::Exists)), "{again:?}");
    assert_eq!(task(&*store, &key).await, before);
}

pub(crate) async fn a_task_may_begin_without_events(store: Arc<dyn Store>) {
    let earliest = Timestamp::now();
    let key = create(&*store, "a", &[]).await;
    let found = task(&*store, &key).await;
    assert_eq!((found.version, found.status.state), (0, State::Submitted));
    assert!(found.status.at >= earliest && found.status.at <= Timestamp::now(), "the time of creation");
    assert_eq!(task(&*store, &key).await, found, "the time does not change");
    assert_eq!(store.events(&key, 0, 10).await.unwrap(), vec![]);
    store.append(&key, 0, &[]).await.unwrap();
    assert_eq!(task(&*store, &key).await, found, "appending nothing changes nothing");
    store.append(&key, 0, &[accepted("m1")]).await.unwrap();
    assert_eq!(task(&*store, &key).await.version, 1);
}

pub(crate) async fn sequence_numbers_have_no_gaps_and_resume_within_an_append(store: Arc<dyn Store>) {
    let key = create(&*store, "a", &[note("1"), note("2")]).await;
    let mut version = 2;
    for count in [1, 5, 3, 1, 4] {
        let events: Vec<Event> = (1..=count).map(|more| note(&(version + more).to_string())).collect();
        store.append(&key, version, &events).await.unwrap();
        version += count;
    }
    let all = store.events(&key, 0, 100).await.unwrap();
    assert_eq!(all.iter().map(|entry| entry.sequence).collect::<Vec<_>>(), (1..=16).collect::<Vec<_>>());
    for entry in &all {
        assert_eq!(*entry.event, note(&entry.sequence.to_string()), "each at its position");
    }
    for after in 0..=16 {
        for limit in 0..=17 {
            let rest = store.events(&key, after, limit).await.unwrap();
            let from = usize::try_from(after).unwrap();
            assert_eq!(rest, all[from..(from + limit).min(16)], "after {after}, at most {limit}");
        }
    }
    for beyond in [17, 1 << 40, u64::MAX - 1, u64::MAX] {
        assert_eq!(store.events(&key, beyond, 3).await.unwrap(), vec![], "there is nothing beyond the end");
    }
    assert_eq!(store.events(&key, 0, usize::MAX).await.unwrap().len(), 16);
}

pub(crate) async fn events_are_read_back_unchanged(store: Arc<dyn Store>) {
    let value = serde_json::json!({
        "z": 1, "a": [1e300, -0.1, 0.1 + 0.2, u64::MAX, i64::MIN, null, true], "text": "\u{0}\"\\\n\u{1F97E}",
    });
    let metadata = value.as_object().cloned();
    let parts = vec![
        Part::text("a\u{0}b 🥾 \u{2028}"),
        Part::new(Content::Data(value.clone())),
        Part { media_type: Some("image/png".into()), ..Part::new(Content::Bytes((0..=255).collect())) },
        Part {
            filename: Some("f".into()),
            metadata: metadata.clone(),
            ..Part::new(Content::Uri("x:y".into()))
        },
    ];
    let said = Message {
        parts: parts.clone(),
        metadata: metadata.clone(),
        extensions: vec!["urn:one".into()],
        reference_task_ids: vec!["another".into()],
        ..message("m2", Role::Agent, "")
    };
    let artifact = Artifact {
        id: "a".into(),
        name: Some("name".into()),
        description: Some("what it is".into()),
        parts,
        metadata: metadata.clone(),
        extensions: vec!["urn:two".into()],
    };
    let at = Timestamp::from_millis(1_700_000_000_123);
    let events = [
        accepted("m1"),
        Event::Status {
            status: Status { state: State::InputRequired, message: Some(said.into()), at },
            metadata: metadata.clone(),
            ends_turn: false,
        },
        Event::Answered(message("m3", Role::User, "yes").into()),
        Event::Checkpoint((0..=255).rev().collect()),
        Event::Artifact { artifact: artifact.clone().into(), append: false, last: true },
        Event::Note { name: "it".into(), value },
    ];
    let key = create(&*store, "", &events[..2]).await;
    store.append(&key, 2, &events[2..]).await.unwrap();
    let found: Vec<Event> =
        store.events(&key, 0, 10).await.unwrap().into_iter().map(|entry| (*entry.event).clone()).collect();
    assert_eq!(found, events);
    let found = task(&*store, &key).await;
    let mut folded = Task::new(key.task.clone(), found.context.clone());
    for event in &events {
        folded.apply(event).unwrap();
    }
    assert_eq!(*found, folded);
}

pub(crate) async fn deeply_nested_events_can_be_read_back(store: Arc<dyn Store>) {
    // As deep as the parsers of the servers allow.
    let deep = (0..127).fold(serde_json::json!("bottom"), |inside, _| serde_json::json!([inside]));
    let events = vec![
        Event::Note { name: "deep".into(), value: deep.clone() },
        Event::said(State::Working, vec![Part::new(Content::Data(deep))]),
    ];
    let key = create(&*store, "a", &events).await;
    assert_eq!(task(&*store, &key).await.version, 2);
    assert_eq!(store.events(&key, 0, 10).await.unwrap().len(), 2);
}

pub(crate) async fn only_one_of_eight_writers_wins(store: Arc<dyn Store>) {
    let key = create(&*store, "a", &[note("1")]).await;
    let mut set = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let (store, key) = (Arc::clone(&store), key.clone());
        set.spawn(async move { store.append(&key, 1, &[note(&writer.to_string()), note("more")]).await });
    }
    let mut won = 0;
    for result in set.join_all().await {
        match result {
            Ok(()) => won += 1,
            Err(StoreError::Conflict { expected: 1, actual: 3 }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(won, 1);
    assert_eq!(store.events(&key, 0, 10).await.unwrap().len(), 3);
    let ahead = store.append(&key, 9, &[note("from the future")]).await;
    assert!(matches!(ahead, Err(StoreError::Conflict { expected: 9, actual: 3 })), "{ahead:?}");
}

pub(crate) async fn writers_that_retry_all_succeed(store: Arc<dyn Store>) {
    const WRITERS: u64 = 8;
    const EACH: u64 = 20;
    let key = create(&*store, "a", &[]).await;
    let mut set = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let (store, key) = (Arc::clone(&store), key.clone());
        set.spawn(async move {
            let mut version = 0;
            for number in 0..EACH {
                loop {
                    match store.append(&key, version, &[note(&format!("{writer}/{number}"))]).await {
                        Ok(()) => break version += 1,
                        Err(StoreError::Conflict { actual, .. }) => version = actual,
                        Err(other) => panic!("{other}"),
                    }
                }
            }
        });
    }
    set.join_all().await;
    let entries = store.events(&key, 0, usize::MAX).await.unwrap();
    let sequences: Vec<u64> = entries.iter().map(|entry| entry.sequence).collect();
    assert_eq!(sequences, (1..=WRITERS * EACH).collect::<Vec<_>>());
    for writer in 0..WRITERS {
        let own: Vec<&Event> = entries.iter().map(|entry| &*entry.event).filter(|event| {
            matches!(event, Event::Note { value, .. } if value.as_str().unwrap().starts_with(&format!("{writer}/")))
        }).collect();
        let expected: Vec<Event> = (0..EACH).map(|number| note(&format!("{writer}/{number}"))).collect();
        assert_eq!(own, expected.iter().collect::<Vec<_>>(), "in the writer's order, each once");
    }
}

pub(crate) async fn an_illegal_event_changes_nothing(store: Arc<dyn Store>) {
    let key = create(&*store, "a", &[accepted("m1"), Event::moved(State::Working)]).await;
    let before = task(&*store, &key).await;
    let rejected = [
        vec![accepted("m2"), Event::moved(State::Completed), note("after the end")],
        vec![accepted("m2"), Event::moved(State::Submitted)],
    ];
    for events in rejected {
        let result = store.append(&key, 2, &events).await;
        assert!(matches!(result, Err(StoreError::Illegal(_))), "{result:?}");
    }
    assert_eq!(task(&*store, &key).await, before, "all or nothing");
    assert_eq!(store.events(&key, 0, 10).await.unwrap().len(), 2);

    store.append(&key, 2, &[Event::moved(State::Completed)]).await.unwrap();
    let ended = task(&*store, &key).await;
    for event in [note("late"), delta("late"), accepted("m3"), Event::moved(State::Completed)] {
        let result = store.append(&key, 3, &[event]).await;
        assert!(matches!(result, Err(StoreError::Illegal(_))), "terminal is final: {result:?}");
    }
    assert_eq!(task(&*store, &key).await, ended);

    let never = super::key("a");
    let events = [Event::moved(State::Failed), note("after the end")];
    let result = store.create(&never, &ContextId::fresh(), &events).await;
    assert!(matches!(result, Err(StoreError::Illegal(_))), "{result:?}");
    assert_eq!(store.task(&never).await.unwrap(), None);
}

pub(crate) async fn a_late_reply_does_not_change_the_final_status(store: Arc<dyn Store>) {
    let Event::Artifact { artifact, .. } = delta("late") else { panic!("an artifact") };
    let late = Event::Late(artifact.clone());
    let failed = create(&*store, "a", &[accepted("m1"), Event::moved(State::Failed)]).await;
    let before = task(&*store, &failed).await;
    store.append(&failed, 2, std::slice::from_ref(&late)).await.unwrap();
    let after = task(&*store, &failed).await;
    assert_eq!((&after.status, after.version, &after.artifacts), (&before.status, 3, &vec![artifact]));
    assert_eq!(*store.events(&failed, 2, 10).await.unwrap()[0].event, late);
    // The task ended before the late reply.
    let just_after = Timestamp::from_millis(before.status.at.millis() + 1);
    assert_eq!(store.forget(&Retention::since(just_after)).await.unwrap(), 1);

    let done = create(&*store, "a", &[accepted("m1"), Event::moved(State::Completed)]).await;
    let result = store.append(&done, 2, &[late]).await;
    assert!(matches!(result, Err(StoreError::Illegal(_))), "{result:?}");
}

pub(crate) async fn a_long_task_equals_the_fold_of_its_events(store: Arc<dyn Store>) {
    let key = create(&*store, "a", &[accepted("m1"), Event::moved(State::Working)]).await;
    let mut folded = (*task(&*store, &key).await).clone();
    for round in 0..300 {
        let mut events = vec![delta(&format!("{round} ")), note("meanwhile")];
        if round % 50 == 49 {
            events.push(Event::said(State::Working, vec![Part::text("still at it")]));
        }
        store.append(&key, folded.version, &events).await.unwrap();
        for event in &events {
            folded.apply(event).unwrap();
        }
        if round % 7 == 0 {
            assert_eq!(*task(&*store, &key).await, folded, "round {round}");
        }
    }
    store.append(&key, folded.version, &[Event::moved(State::Completed)]).await.unwrap();
    let found = task(&*store, &key).await;
    assert_eq!((found.version, found.status.state), (folded.version + 1, State::Completed));
    assert_eq!(found.artifacts, folded.artifacts);
    assert_eq!(store.events(&key, 0, usize::MAX).await.unwrap().len() as u64, found.version);
}

pub(crate) async fn another_owners_task_is_absent(store: Arc<dyn Store>) {
    let mine = create(&*store, "a", &[accepted("m1")]).await;
    for other in [Principal::named("b"), Principal::anyone()] {
        let theirs = TaskKey { owner: other.clone(), task: mine.task.clone() };
        assert_eq!(store.task(&theirs).await.unwrap(), None);
        let append = store.append(&theirs, 1, &[note("2")]).await;
        assert!(matches!(append, Err(StoreError::NotFound)), "{append:?}");
        let events = store.events(&theirs, 0, 10).await;
        assert!(matches!(events, Err(StoreError::NotFound)), "{events:?}");
        store.create(&theirs, &ContextId::fresh(), &[]).await.expect("another owner may use the same id");
        assert_eq!(task(&*store, &mine).await.version, 1);
    }
}

pub(crate) async fn state_belongs_to_owner_context_and_executor(store: Arc<dyn Store>) {
    let key = StateKey {
        owner: Principal::named("a"),
        context: ContextId::fresh(),
        executor: "one".into(),
        key: "session".into(),
    };
    assert_eq!(store.state(&key).await.unwrap(), None);
    store.set_state(&key, None).await.expect("deleting absent state succeeds");
    store.set_state(&key, Some(b"s1".as_slice().into())).await.unwrap();
    store.set_state(&key, Some([0, 255].as_slice().into())).await.unwrap();
    assert_eq!(store.state(&key).await.unwrap().as_deref(), Some([0, 255].as_slice()));
    assert_eq!(store.state_beside(&key).await.unwrap(), 0, "an entry does not count itself");
    let beside = StateKey { key: "ü".into(), ..key.clone() };
    assert_eq!(store.state_beside(&beside).await.unwrap(), key.key.len() + 2);
    store.set_state(&beside, Some(b"xyz".as_slice().into())).await.unwrap();
    assert_eq!(store.state_beside(&key).await.unwrap(), 2 + 3, "in bytes, the key included");
    store.set_state(&beside, None).await.unwrap();
    let others = [
        StateKey { owner: Principal::named("b"), ..key.clone() },
        StateKey { owner: Principal::anyone(), ..key.clone() },
        StateKey { context: ContextId::fresh(), ..key.clone() },
        StateKey { executor: "two".into(), ..key.clone() },
        StateKey { key: "other".into(), ..key.clone() },
    ];
    for other in &others {
        assert_eq!(store.state(other).await.unwrap(), None, "{other:?}");
        store.set_state(other, Some([].as_slice().into())).await.unwrap();
        assert_eq!(store.state(other).await.unwrap().as_deref(), Some([].as_slice()), "empty is not absent");
    }
    store.set_state(&key, None).await.unwrap();
    assert_eq!(store.state(&key).await.unwrap(), None);
    for other in &others {
        assert!(store.state(other).await.unwrap().is_some(), "{other:?}");
    }
}

pub(crate) async fn a_task_with_an_open_turn_is_unfinished(store: Arc<dyn Store>) {
    let submitted = create(&*store, "a", &[accepted("m1")]).await;
    let working = create(&*store, "", &[accepted("m1"), status(State::Working, 1, false)]).await;
    let asking = create(&*store, "b", &[accepted("m1"), status(State::InputRequired, 1, false)]).await;
    let queued =
        create(&*store, "b", &[accepted("m2"), accepted("m3"), status(State::Working, 1, true)]).await;
    let again = create(&*store, "b", &[accepted("m4"), status(State::InputRequired, 1, true)]).await;
    store.append(&again, 2, &[status(State::Working, 2, true), accepted("m5")]).await.unwrap();
    let held = create(&*store, "b", &[accepted("m0"), status(State::Working, 1, true)]).await;
    // Not unfinished: a task that waits for the caller, has ended, or has ended with a turn in its queue.
    create(&*store, "a", &[accepted("m6"), status(State::InputRequired, 1, true)]).await;
    create(&*store, "a", &[accepted("m7"), status(State::Failed, 1, true)]).await;
    create(&*store, "a", &[accepted("m8"), accepted("m9"), status(State::Canceled, 1, true)]).await;

    let mut expected = vec![submitted, working, asking, queued, again, held];
    for left in (0..=expected.len()).rev() {
        let mut found = store.unfinished().await.unwrap();
        found.sort_by(|a, b| a.task.as_str().cmp(b.task.as_str()));
        let mut sorted = expected.clone();
        sorted.sort_by(|a, b| a.task.as_str().cmp(b.task.as_str()));
        assert_eq!(found, sorted, "{left} left");
        if let Some(next) = expected.pop() {
            let version = task(&*store, &next).await.version;
            store.append(&next, version, &[Event::ended(State::Completed, vec![], None)]).await.unwrap();
        }
    }
}

pub(crate) async fn the_log_of_all_tasks_is_read_in_order(store: Arc<dyn Store>) {
    let earliest = Timestamp::now();
    assert_eq!(store.log(Begin::At(0), 10).await.unwrap(), vec![]);
    assert_eq!(store.log(Begin::Last(10), 10).await.unwrap(), vec![]);
    let (mine, theirs, context) = (key("a"), key("b"), ContextId::fresh());
    store.create(&mine, &context, &[accepted("m1"), note("1")]).await.unwrap();
    store.create(&theirs, &ContextId::fresh(), &[note("2")]).await.unwrap();
    store.append(&mine, 2, &[]).await.unwrap();
    store.append(&mine, 2, &[note("3"), note("4"), Event::moved(State::Completed)]).await.unwrap();
    store.append(&theirs, 1, &[note("5")]).await.unwrap();

    let all = store.log(Begin::At(0), 100).await.unwrap();
    let place = |logged: &Logged| (logged.key.clone(), logged.entry.sequence);
    let expected = [(&mine, 1), (&mine, 2), (&theirs, 1), (&mine, 3), (&mine, 4), (&mine, 5), (&theirs, 2)];
    assert_eq!(all.iter().map(place).collect::<Vec<_>>(), expected.map(|(key, n)| (key.clone(), n)));
    assert!(all.is_sorted_by(|a, b| a.number < b.number));
    assert!(all.iter().all(|logged| logged.at >= earliest && logged.at <= Timestamp::now()));
    assert_eq!((&all[0].context, &*all[3].entry.event), (&context, &note("3")));
    for (from, logged) in all.iter().enumerate() {
        for limit in 0..=8 {
            let rest = store.log(Begin::At(logged.number), limit).await.unwrap();
            assert_eq!(rest, all[from..(from + limit).min(7)], "from {from}, at most {limit}");
        }
        let rest = store.log(Begin::At(logged.number + 1), 100).await.unwrap();
        assert_eq!(rest, all[from + 1..], "after {from}");
    }
    for (appends, events) in [(0, 0), (1, 1), (2, 4), (3, 5), (4, 7), (usize::MAX, 7)] {
        let last = store.log(Begin::Last(appends), 100).await.unwrap();
        assert_eq!(last, all[7 - events..], "the last {appends} appends");
    }
    assert_eq!(store.log(Begin::At(u64::MAX), 10).await.unwrap(), vec![]);
    store.forget(&Retention::since(Timestamp::from_millis(u64::MAX >> 1)).tasks(0)).await.unwrap();
    let left: Vec<_> = store.log(Begin::At(0), 10).await.unwrap().iter().map(place).collect();
    assert_eq!(left, [(theirs.clone(), 1), (theirs, 2)], "a deleted task leaves a gap");
}

pub(crate) async fn a_page_of_large_events_ends_early_and_resumes(store: Arc<dyn Store>) {
    let large = delta(&"x".repeat(EVENTS_BYTES / 4));
    let key = create(&*store, "a", &[accepted("m")]).await;
    // In one append and in several.
    store.append(&key, 1, &vec![large.clone(); 6]).await.unwrap();
    for version in 7..13 {
        store.append(&key, version, std::slice::from_ref(&large)).await.unwrap();
    }
    let (mut after, mut pages) = (0, 0);
    loop {
        let page = store.events(&key, after, 100).await.unwrap();
        if page.is_empty() {
            break;
        }
        let size: usize = page.iter().map(|entry| entry.event.size()).sum();
        assert!(size < EVENTS_BYTES + large.size(), "{size}");
        assert_eq!(page[0].sequence, after + 1, "without gaps");
        after = page.last().unwrap().sequence;
        pages += 1;
    }
    assert_eq!(after, 13, "every event is read");
    assert!(pages > 2, "{pages} pages");
}
