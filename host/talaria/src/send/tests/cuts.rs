//! A stream that breaks off is taken up again where it ended, or the task is asked for.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::fake::{Answers, Fake, Step, refusal, whole};
use super::seat::Seat;
use super::streams::{Says, numbered};
use crate::output::Format;

/// The beginning of a turn, then the cut.
fn beginning(says: &Says, ending: Option<Step>) -> Vec<Step> {
    let mut steps =
        numbered(vec![says.task("working", "", ""), says.delta("one ", false), says.delta("two ", true)]);
    steps.extend(ending);
    steps
}

#[tokio::test]
async fn a_cut_stream_is_taken_up_after_its_last_event_in_both_versions() {
    let versions = [
        ("1.0", ["SendStreamingMessage", "SubscribeToTask", "SubscribeToTask"]),
        ("0.3", ["message/stream", "tasks/resubscribe", "tasks/resubscribe"]),
    ];
    for (version, calls) in versions {
        let resumed = AtomicUsize::new(0);
        let fake = Fake::answering(move |asked| {
            let says = Says::like(asked);
            if asked.rpc().to_lowercase().contains("stream") {
                return beginning(&says, Some(Step::Cut));
            }
            assert_eq!(asked.body["params"]["id"], "t");
            match resumed.fetch_add(1, Ordering::Relaxed) {
                // An end in order is a cut too, when the task is not at its own.
                0 => vec![Step::Say(Some(4), says.delta("three ", true))],
                _ => vec![
                    Step::Say(Some(5), says.delta("four", true)),
                    Step::Say(Some(6), says.stands("completed", "")),
                ],
            }
        })
        .await;
        let mut seat = Seat::new(Format::Text);
        assert_eq!(seat.send(&fake.url, &format!("hi --stream --protocol {version}")).await, 0);
        assert_eq!(seat.words.text(), "one two three four\n");
        assert_eq!(fake.calls(), calls);
        let ids: Vec<_> =
            fake.asked.lock().expect("no panic").iter().map(|asked| asked.last_event_id.clone()).collect();
        assert_eq!(ids, [None, None, Some("3".into()), Some("4".into())]);
        let notes = seat.notes.text();
        assert!(notes.contains("the stream broke off; going on after event 3…\n"), "{notes}");
        assert!(notes.contains("the stream broke off; going on after event 4…\n"), "{notes}");
    }
}

#[tokio::test]
async fn a_snapshot_after_the_cut_adds_what_is_missing() {
    let fake = Fake::answering(|asked| {
        let says = Says::like(asked);
        match asked.rpc() {
            "SendStreamingMessage" => beginning(&says, None),
            _ => vec![
                Step::Say(Some(9), says.task("working", "", "one two three ")),
                Step::Say(Some(10), says.delta("four", true)),
                Step::Say(Some(11), says.stands("completed", "")),
            ],
        }
    })
    .await;
    let mut seat = Seat::new(Format::Text);
    assert_eq!(seat.send(&fake.url, "hi --stream").await, 0);
    assert_eq!(seat.words.text(), "one two three four\n");
}

#[tokio::test]
async fn an_agent_without_event_ids_is_asked_for_the_task() {
    for (version, get) in [("1.0", "GetTask"), ("0.3", "tasks/get")] {
        let asked_before = AtomicUsize::new(0);
        let fake = Fake::answering(move |asked| -> Answers {
            let says = Says::like(asked);
            if asked.rpc().to_lowercase().contains("stream") {
                let steps = beginning(&says, Some(Step::Cut)).into_iter().map(|step| match step {
                    Step::Say(_, result) => Step::Say(None, result),
                    step => step,
                });
                return steps.collect::<Vec<_>>().into();
            }
            match asked_before.fetch_add(1, Ordering::Relaxed) {
                0 => whole(says.bare("working", "", "one two three ")).into(),
                _ => whole(says.bare("completed", "done", "one two three four")).into(),
            }
        })
        .await;
        let mut seat = Seat::new(Format::Text);
        assert_eq!(seat.send(&fake.url, &format!("hi --stream --protocol {version}")).await, 0);
        assert_eq!(seat.words.text(), "one two three four\ndone\n");
        assert_eq!(fake.calls()[1..], [get, get]);
        assert!(seat.notes.text().contains("the stream broke off; asking for the task from now on…\n"));
    }
}

#[tokio::test]
async fn a_refusal_to_go_on_leads_to_the_task() {
    let fake = Fake::answering(|asked| -> Answers {
        let says = Says::like(asked);
        match asked.rpc() {
            "SendStreamingMessage" => beginning(&says, Some(Step::Cut)).into(),
            "SubscribeToTask" => refusal(-32004).into(),
            _ => whole(says.bare("failed", "broken", "one two ")).into(),
        }
    })
    .await;
    let mut seat = Seat::new(Format::Json);
    assert_eq!(seat.send(&fake.url, "hi --stream").await, 1);
    assert_eq!(fake.calls(), ["SendStreamingMessage", "SubscribeToTask", "GetTask"]);
    let last = seat.words.text().lines().last().map(str::to_owned).expect("a line");
    assert!(last.starts_with("{\"task\":{\"id\":\"t\""), "{last}");
}

#[tokio::test]
async fn five_attempts_are_made_and_then_the_agent_is_given_up() {
    let fake = Fake::answering(|asked| -> Answers {
        match asked.rpc() {
            "SendStreamingMessage" => beginning(&Says::like(asked), Some(Step::Cut)).into(),
            _ => (503, serde_json::json!("down")).into(),
        }
    })
    .await;
    let mut seat = Seat::new(Format::Text);
    assert_eq!(seat.send(&fake.url, "hi --stream").await, 1);
    let attempts = fake.calls().iter().filter(|call| *call == "SubscribeToTask").count();
    assert_eq!((attempts, fake.calls().len()), (5, 7), "five streams, then the task itself once");
    assert_eq!(seat.words.text(), "one two \n", "the line is ended");
    assert!(seat.notes.text().contains("answered with HTTP 503"));
}

#[tokio::test]
async fn a_stream_that_breaks_off_before_it_began_is_not_taken_up() {
    let fake = Fake::answering(|_| vec![Step::Cut]).await;
    let mut seat = Seat::new(Format::Text);
    assert_eq!(seat.send(&fake.url, "hi --stream --task t").await, 1);
    let error = "error: the stream broke off before the agent named a task; the turn may still go on\n";
    assert_eq!(seat.notes.text(), error);
}

#[tokio::test]
async fn a_stream_has_the_time_of_a_turn() {
    let fake = Fake::answering(|asked| beginning(&Says::like(asked), Some(Step::Hang))).await;
    let mut seat = Seat::new(Format::Text);
    assert_eq!(seat.send(&fake.url, "hi --stream --timeout 1s").await, 1);
    assert!(seat.notes.text().contains("error: no reply within 1s; the turn may still go on"));
}
