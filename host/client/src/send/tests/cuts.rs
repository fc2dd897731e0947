//! A stream that breaks off is resumed where it ended, or the task is polled.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::fake_agent::{Answers, FakeAgent, Step, refusal, whole};
use super::fake_terminal::FakeTerminal;
use super::streams::{Says, numbered};
use crate::send::Format;

/// The start of a turn, then the given step.
fn beginning(says: &Says, ending: Option<Step>) -> Vec<Step> {
    let mut steps =
        numbered(vec![says.task("working", "", ""), says.delta("one ", false), says.delta("two ", true)]);
    steps.extend(ending);
    steps
}

#[tokio::test]
async fn resumes_a_cut_stream_after_its_last_event() {
    let versions = [
        ("1.0", ["SendStreamingMessage", "SubscribeToTask", "SubscribeToTask"]),
        ("0.3", ["message/stream", "tasks/resubscribe", "tasks/resubscribe"]),
    ];
    for (version, calls) in versions {
        let resumed = AtomicUsize::new(0);
        let agent = FakeAgent::answering(move |asked| {
            let says = Says::like(asked);
            if asked.rpc().to_lowercase().contains("stream") {
                return beginning(&says, Some(Step::Cut));
            }
            assert_eq!(asked.body["params"]["id"], "t");
            match resumed.fetch_add(1, Ordering::Relaxed) {
                // An orderly end counts as a cut while the task is not over.
                0 => vec![Step::Say(Some(4), says.delta("three ", true))],
                _ => vec![
                    Step::Say(Some(5), says.delta("four", true)),
                    Step::Say(Some(6), says.stands("completed", "")),
                ],
            }
        })
        .await;
        let mut terminal = FakeTerminal::new(Format::Text);
        assert_eq!(terminal.send(&agent.url, &format!("hi --stream --protocol {version}")).await, 0);
        assert_eq!(terminal.stdout.text(), "one two three four\n");
        assert_eq!(agent.calls(), calls);
        let ids: Vec<_> =
            agent.asked.lock().expect("no panic").iter().map(|asked| asked.last_event_id.clone()).collect();
        assert_eq!(ids, [None, None, Some("3".into()), Some("4".into())]);
        let notes = terminal.stderr.text();
        assert!(notes.contains("the stream broke off; going on after event 3…\n"), "{notes}");
        assert!(notes.contains("the stream broke off; going on after event 4…\n"), "{notes}");
    }
}

#[tokio::test]
async fn prints_only_the_missing_text_of_a_snapshot_after_a_cut() {
    let agent = FakeAgent::answering(|asked| {
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
    let mut terminal = FakeTerminal::new(Format::Text);
    assert_eq!(terminal.send(&agent.url, "hi --stream").await, 0);
    assert_eq!(terminal.stdout.text(), "one two three four\n");
}

#[tokio::test]
async fn polls_an_agent_that_does_not_number_its_events() {
    for (version, get) in [("1.0", "GetTask"), ("0.3", "tasks/get")] {
        let asked_before = AtomicUsize::new(0);
        let agent = FakeAgent::answering(move |asked| -> Answers {
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
        let mut terminal = FakeTerminal::new(Format::Text);
        assert_eq!(terminal.send(&agent.url, &format!("hi --stream --protocol {version}")).await, 0);
        assert_eq!(terminal.stdout.text(), "one two three four\ndone\n");
        assert_eq!(agent.calls()[1..], [get, get]);
        assert!(terminal.stderr.text().contains("the stream broke off; asking for the task from now on…\n"));
    }
}

#[tokio::test]
async fn polls_when_the_agent_rejects_the_resumption() {
    let agent = FakeAgent::answering(|asked| -> Answers {
        let says = Says::like(asked);
        match asked.rpc() {
            "SendStreamingMessage" => beginning(&says, Some(Step::Cut)).into(),
            "SubscribeToTask" => refusal(-32004).into(),
            _ => whole(says.bare("failed", "broken", "one two ")).into(),
        }
    })
    .await;
    let mut terminal = FakeTerminal::new(Format::Json);
    assert_eq!(terminal.send(&agent.url, "hi --stream").await, 1);
    assert_eq!(agent.calls(), ["SendStreamingMessage", "SubscribeToTask", "GetTask"]);
    let last = terminal.stdout.text().lines().last().map(str::to_owned).expect("a line");
    assert!(last.starts_with("{\"task\":{\"id\":\"t\""), "{last}");
}

#[tokio::test]
async fn gives_up_after_five_attempts() {
    let agent = FakeAgent::answering(|asked| -> Answers {
        match asked.rpc() {
            "SendStreamingMessage" => beginning(&Says::like(asked), Some(Step::Cut)).into(),
            _ => (503, serde_json::json!("down")).into(),
        }
    })
    .await;
    let mut terminal = FakeTerminal::new(Format::Text);
    assert_eq!(terminal.send(&agent.url, "hi --stream").await, 1);
    let attempts = agent.calls().iter().filter(|call| *call == "SubscribeToTask").count();
    assert_eq!((attempts, agent.calls().len()), (5, 7), "five streams, then one poll");
    assert_eq!(terminal.stdout.text(), "one two \n", "the line is ended");
    assert!(terminal.stderr.text().contains("answered with HTTP 503"));
}

#[tokio::test]
async fn does_not_resume_a_stream_that_named_no_task() {
    let agent = FakeAgent::answering(|_| vec![Step::Cut]).await;
    let mut terminal = FakeTerminal::new(Format::Text);
    assert_eq!(terminal.send(&agent.url, "hi --stream --task t").await, 1);
    let error = "error: the stream broke off before the agent named a task; the turn may still go on\n";
    assert_eq!(terminal.stderr.text(), error);
}

#[tokio::test]
async fn the_time_limit_covers_the_whole_stream() {
    let agent = FakeAgent::answering(|asked| beginning(&Says::like(asked), Some(Step::Hang))).await;
    let mut terminal = FakeTerminal::new(Format::Text);
    assert_eq!(terminal.send(&agent.url, "hi --stream --timeout 1s").await, 1);
    assert!(terminal.stderr.text().contains("error: no reply within 1s; the turn may still go on"));
}
