//! The memory store and the SQLite store agree after any sequence of calls.

use std::sync::Arc;

use proptest::prelude::*;
use talaria_turns::{
    Artifact, ContextId, Event, Message, Metadata, Once, Onto, Part, Place, Principal, Query, Recall,
    Retention, Role, State, StateKey, Status, Store, StoreError, TaskId, TaskKey, Timestamp, TraceContext,
};

use super::empty;
use crate::Memory;
use crate::suite::{message, shared};

const OWNERS: [&str; 3] = ["", "a", "b"];

#[derive(Debug, Clone)]
enum Step {
    Create { owner: usize, task: usize, context: usize, at: u64, events: Vec<Event> },
    Append { owner: usize, task: usize, behind: u64, events: Vec<Event> },
    Remember { owner: usize, context: usize, value: Option<Vec<u8>> },
    Forget { before: u64, keep: usize },
}

fn state() -> impl Strategy<Value = State> {
    prop_oneof![
        1 => Just(State::Submitted),
        8 => Just(State::Working),
        3 => Just(State::InputRequired),
        1 => Just(State::AuthRequired),
        2 => Just(State::Completed),
        1 => Just(State::Failed),
        1 => Just(State::Canceled),
        1 => Just(State::Rejected),
    ]
}

fn said() -> impl Strategy<Value = Arc<Message>> {
    (0..30_u8, ".{0,9}").prop_map(|(id, text)| Arc::new(message(&format!("m{id}"), Role::User, &text)))
}

fn event() -> impl Strategy<Value = Event> {
    let metadata = proptest::option::of(("[a-c]", any::<f64>()).prop_map(|(key, value)| {
        let value = serde_json::Number::from_f64(value).map_or(serde_json::Value::Null, Into::into);
        [(key, value)].into_iter().collect::<Metadata>()
    }));
    let status = (state(), 0..20_u64, proptest::option::of(said()), metadata.clone(), any::<bool>());
    let artifact =
        ("[a-b]|reply", proptest::collection::vec(".{0,9}".prop_map(Part::text), 0..3), any::<bool>());
    prop_oneof![
        (said(), metadata).prop_map(|(message, metadata)| Event::Accepted {
            message,
            executor: "it".into(),
            metadata: metadata.map(Arc::new),
            trace: Some(TraceContext::root(true)),
        }),
        said().prop_map(Event::Answered),
        status.prop_map(|(state, at, message, metadata, ends_turn)| {
            let status = Status { state, message, at: Timestamp::from_millis(at) };
            Event::Status { status, metadata, ends_turn }
        }),
        proptest::collection::vec(any::<u8>(), 0..9).prop_map(Event::Checkpoint),
        artifact.prop_map(|(id, parts, append)| {
            let artifact =
                Artifact { id, name: None, description: None, parts, metadata: None, extensions: vec![] };
            Event::Artifact { artifact: artifact.into(), append, last: !append }
        }),
        ".{0,9}".prop_map(|text| Event::Note { name: "n".into(), value: text.into() }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let events = |most| proptest::collection::vec(event(), 0..most);
    // Now and then enough events for a snapshot.
    let many = prop_oneof![9 => events(5), 1 => events(90)];
    prop_oneof![
        3 => (0..3_usize, 0..6_usize, 0..3_usize, 0..20_u64, events(4)).prop_map(
            |(owner, task, context, at, events)| Step::Create { owner, task, context, at, events }
        ),
        9 => (0..3_usize, 0..6_usize, prop_oneof![9 => Just(0), 1 => 1..3_u64], many).prop_map(
            |(owner, task, behind, events)| Step::Append { owner, task, behind, events }
        ),
        1 => (0..3_usize, 0..3_usize, proptest::option::of(proptest::collection::vec(any::<u8>(), 0..4)))
            .prop_map(|(owner, context, value)| Step::Remember { owner, context, value }),
        1 => (0..12_u64, 2..9_usize).prop_map(|(before, keep)| Step::Forget { before, keep }),
    ]
}

fn key(owner: usize, task: usize) -> TaskKey {
    let task: TaskId = format!("task-{task}").parse().unwrap();
    TaskKey { owner: Principal::named(OWNERS[owner]), task }
}

fn context(number: usize) -> ContextId {
    format!("context-{number}").parse().unwrap()
}

fn remembered(owner: usize, number: usize) -> StateKey {
    StateKey {
        owner: Principal::named(OWNERS[owner]),
        context: context(number),
        executor: "it".into(),
        key: "k".into(),
    }
}

async fn take(store: &dyn Store, step: &Step) -> Result<usize, StoreError> {
    match step {
        Step::Create { owner, task, context: number, at, events } => {
            // First a status with a fixed time, so that the clock does not matter.
            let status = Status { state: State::Submitted, message: None, at: Timestamp::from_millis(*at) };
            let mut all = vec![Event::Status { status, metadata: None, ends_turn: false }];
            all.extend(events.iter().cloned());
            let context = context(*number);
            let onto = Onto::Nothing { context: &context, host_made: at.is_multiple_of(2) };
            store.write(&key(*owner, *task), onto, &shared(&all), once(events).as_ref()).await.map(|()| 0)
        }
        Step::Append { owner, task, behind, events } => {
            let key = key(*owner, *task);
            let version = store.task(&key).await?.map_or(0, |task| task.version);
            let onto = Onto::Version(version.saturating_sub(*behind));
            store.write(&key, onto, &shared(events), once(events).as_ref()).await.map(|()| 0)
        }
        Step::Remember { owner, context, value } => {
            let value = value.as_deref().map(Into::into);
            store.set_state(&remembered(*owner, *context), value).await.map(|()| 0)
        }
        Step::Forget { before, keep } => {
            store.forget(&Retention::since(Timestamp::from_millis(*before)).tasks(*keep)).await
        }
    }
}

/// The first message is accepted once, unless its id is a small one.
fn once(events: &[Event]) -> Option<Once> {
    let message = events.iter().find_map(|event| match event {
        Event::Accepted { message, .. } | Event::Answered(message) => Some(message),
        _ => None,
    })?;
    (message.id.as_str().len() > 2).then(|| Once { message: message.id.clone(), digest: [0; 32] })
}

/// The results of every read.
async fn look(store: &dyn Store) -> Vec<String> {
    let mut seen = Vec::new();
    for (owner, name) in OWNERS.into_iter().enumerate() {
        for task in 0..6 {
            let key = key(owner, task);
            seen.push(format!("{:?}", store.task(&key).await));
            for (after, limit) in [(0, usize::MAX), (1, 2), (3, 5), (70, 3), (u64::MAX, 1)] {
                seen.push(format!("{:?}", store.events(&key, after, limit).await));
            }
        }
        let principal = Principal::named(name);
        seen.push(format!("{:?}", store.kept(&principal).await));
        for (number, task, few) in (0..3).flat_map(|n| (0..6).flat_map(move |t| [(n, t, 3), (n, t, 99)])) {
            let recall = Recall {
                owner: principal.clone(),
                context: context(number),
                present: key(owner, task).task,
                host_made_only: few == 99,
                messages: few,
                bytes: 1_000,
            };
            seen.push(format!("{recall:?}: {:?}", store.recall(&recall).await));
        }
        for number in 0..3 {
            seen.push(format!("{:?}", store.state(&remembered(owner, number)).await));
        }
        for query in queries() {
            seen.push(format!("{query:?}: {:?}", store.list(&principal, &query).await));
        }
    }
    let mut unfinished: Vec<String> =
        store.unfinished().await.unwrap().iter().map(|key| format!("{key:?}")).collect();
    unfinished.sort();
    seen.extend(unfinished);
    seen
}

fn queries() -> Vec<Query> {
    let place = Place { at: Timestamp::from_millis(9), task: "task-3".parse().unwrap() };
    let mut queries = Vec::new();
    for context in [None, Some(context(0))] {
        for state in [None, Some(State::Working)] {
            for since in [None, Some(Timestamp::from_millis(5))] {
                for after in [None, Some(place.clone())] {
                    queries.push(Query {
                        context: context.clone(),
                        state,
                        since,
                        after,
                        limit: 2,
                        bytes: usize::MAX,
                    });
                }
            }
        }
    }
    queries
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn memory_and_sqlite_agree(steps in proptest::collection::vec(step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (sqlite, _folder) = empty();
            let memory = Memory::new(1_000);
            for step in &steps {
                let results = (take(&memory, step).await, take(&sqlite, step).await);
                prop_assert_eq!(format!("{:?}", results.0), format!("{:?}", results.1), "{:?}", step);
            }
            prop_assert_eq!(look(&memory).await, look(&sqlite).await);
            Ok(())
        })?;
    }
}
