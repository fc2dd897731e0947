//! A reply that arrives after its turn has failed is added to its task, and nothing else changes.

use std::sync::Arc;

use talaria_turns::{
    Accepted, Content, Event, Incoming, Late, LateReplySink as _, Part, Principal, PushContent,
    PushNotification, State, Task, TaskId, TaskKey, Timestamp, Turns,
};

use crate::kit::message;
use crate::push::{config, key, numbers, service, store, with_push};

fn late(task: &TaskId, place: usize, text: &str) -> Late {
    Late {
        task: key(task),
        chat: None,
        message: "m".into(),
        place,
        at: Timestamp::from_millis(1_700_000_000_000),
        text: text.into(),
    }
}

async fn settled(turns: &Turns, incoming: Incoming) -> Arc<Task> {
    let accepted: Accepted = turns.send(incoming).await.unwrap();
    accepted.settled().await
}

#[tokio::test]
async fn a_failed_task_gets_a_late_reply_once_and_stays_failed() {
    let (turns, ..) = service(&store());
    let failed = settled(&turns, message("fail")).await;
    for _ in 0..2 {
        assert!(turns.deliver(&late(&failed.id, 0, "the answer")).await.unwrap());
    }
    assert!(turns.deliver(&late(&failed.id, 1, "another")).await.unwrap());
    let task = turns.task(&Principal::anyone(), &failed.id).await.unwrap();
    assert_eq!(task.status, failed.status);
    assert_eq!(task.history, failed.history);
    let artifacts: Vec<_> = task.artifacts.iter().map(|a| (a.id.as_str(), a.parts.as_slice())).collect();
    assert_eq!(
        artifacts,
        [("late-reply", [Part::text("the answer")].as_slice()), ("late-reply-2", &[Part::text("another")])]
    );
    let metadata = task.artifacts[0].metadata.as_ref().unwrap();
    assert_eq!(metadata["talaria/late"], "2023-11-14T22:13:20.000Z");
}

#[tokio::test]
async fn only_a_failed_task_takes_a_late_reply_and_a_running_one_not_yet() {
    let (turns, executor, _) = service(&store());
    let done = settled(&turns, message("hi")).await;
    assert!(turns.deliver(&late(&done.id, 0, "late")).await.unwrap(), "nothing more is to be done");
    assert_eq!(turns.task(&Principal::anyone(), &done.id).await.unwrap(), done);
    let nobody = TaskId::fresh();
    assert!(turns.deliver(&late(&nobody, 0, "late")).await.unwrap(), "forgotten");
    let working = turns.send(message("wait")).await.unwrap();
    assert!(!turns.deliver(&late(&working.task.id, 0, "late")).await.unwrap());
    executor.go.notify_one();
    let done = working.settled().await;
    assert_eq!((done.status.state, done.artifacts.len()), (State::Completed, 1));
    // And nobody else's.
    let failed = settled(&turns, message("fail")).await;
    let task = TaskKey { owner: Principal::named("another"), task: failed.id.clone() };
    assert!(turns.deliver(&Late { task, ..late(&failed.id, 0, "late") }).await.unwrap());
    assert!(turns.task(&Principal::anyone(), &failed.id).await.unwrap().artifacts.is_empty());
}

#[tokio::test]
async fn a_late_reply_is_pushed_in_both_forms_also_after_a_restart() {
    let store = store();
    let (turns, _, kept) = service(&store);
    let failed = settled(&turns, with_push("fail", config("events"))).await;
    let whole = talaria_turns::PushConfig { content: PushContent::Task, ..config("whole") };
    turns.set_push_config(&Principal::anyone(), &failed.id, whole).await.unwrap();
    let before = kept.until(2).await.len();
    turns.drain(std::time::Duration::ZERO).await;

    let (turns, _, kept) = service(&store);
    assert!(turns.deliver(&late(&failed.id, 0, "the answer")).await.unwrap());
    let told = kept.until(2).await;
    assert_eq!((before, told.len()), (2, 2), "what was told before is not told again");
    assert_eq!(numbers(&told), [failed.version + 1; 2]);
    for (_, notification) in told {
        let artifact = match notification {
            PushNotification::Event(_, entry) => match &*entry.event {
                Event::Late(artifact) => artifact.clone(),
                other => panic!("{other:?}"),
            },
            PushNotification::Task(task) => task.artifacts[0].clone(),
        };
        assert_eq!(artifact.parts[0].content, Content::Text("the answer".into()));
    }
}

#[tokio::test]
async fn a_reader_from_before_the_end_gets_the_late_reply_and_then_ends() {
    let (turns, ..) = service(&store());
    let failed = settled(&turns, message("fail")).await;
    turns.deliver(&late(&failed.id, 0, "the answer")).await.unwrap();
    let (_, mut reader) = turns.follow(&Principal::anyone(), &failed.id, Some(failed.version)).await.unwrap();
    let entry = reader.next().await.unwrap().unwrap();
    assert!(matches!(&*entry.event, Event::Late(_)), "{entry:?}");
    assert!(reader.next().await.unwrap().is_none());
}

#[tokio::test]
async fn a_task_with_a_push_configuration_allows_late_results_even_if_a_request_waits() {
    let (turns, executor, kept) = service(&store());
    let accepted = turns.send(with_push("wait", config("h"))).await.unwrap();
    let next = Incoming { task: Some(accepted.task.id.clone()), ..message("can you be told later?") };
    let next = turns.send(next).await.unwrap();
    executor.go.notify_one();
    let task = next.settled().await;
    assert_eq!(executor.async_delivery.lock().unwrap().as_slice(), [false, true], "{task:?}");
    drop(kept);
}
