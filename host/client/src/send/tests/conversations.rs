//! Agents that ask for input, people who answer, and Ctrl-C.

use std::io::{self, BufReader, Read};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use tokio::sync::Notify;

use super::fake_agent::{Answers, Asked, FakeAgent, Step, refusal, whole};
use super::fake_terminal::FakeTerminal;
use super::streams::{Says, numbered};
use crate::send::Format;
use crate::send::terminal::Keyboard;

/// An agent that asks twice, then answers.
fn asking(asked: &Asked) -> Answers {
    let says = Says::like(asked);
    let message = &asked.body["params"]["message"];
    let text = message["parts"][0]["text"].as_str().unwrap_or_default();
    let goes_on = message["taskId"] == "t" && message["contextId"] == "c";
    let (state, said, reply) = match text {
        "hi" => ("input-required", "Which one?", ""),
        "that one" if goes_on => ("input-required", "Sure?", ""),
        "yes" if goes_on => ("completed", "", "It is done."),
        _ => ("failed", "what?", ""),
    };
    if asked.rpc().to_lowercase().contains("stream") {
        let mut events = vec![says.task("working", "", "")];
        if !reply.is_empty() {
            events.push(says.delta(reply, false));
        }
        events.push(says.stands(state, said));
        return numbered(events).into();
    }
    whole(says.task(state, said, reply)).into()
}

#[tokio::test]
async fn the_person_at_the_terminal_answers_questions() {
    for flags in ["hi", "hi --stream", "hi --protocol 0.3", "hi --stream --protocol 0.3"] {
        let agent = FakeAgent::answering(asking).await;
        let mut terminal = FakeTerminal::new(Format::Text).typing("that one\n\n yes \n");
        assert_eq!(terminal.send(&agent.url, flags).await, 0, "{flags}");
        assert_eq!(terminal.stdout.text(), "It is done.\n", "{flags}");
        let notes = terminal.stderr.text();
        assert!(
            notes.contains("Which one?\n> ") && notes.contains("Sure?\n> > "),
            "an empty line is not an answer: {notes}"
        );
        assert!(notes.ends_with("completed, task t, context c\n"), "{notes}");
        assert_eq!(agent.calls().len(), 3);
    }
}

#[tokio::test]
async fn a_program_gets_only_the_last_answer() {
    let agent = FakeAgent::answering(asking).await;
    let mut terminal = FakeTerminal::new(Format::Json).typing("that one\nyes\n");
    assert_eq!(terminal.send(&agent.url, "hi").await, 0);
    let document: serde_json::Value = serde_json::from_str(&terminal.stdout.text()).expect("one document");
    assert_eq!(document["task"]["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn suggests_the_next_step_without_a_terminal() {
    for flags in ["hi", "hi --stream"] {
        let agent = FakeAgent::answering(asking).await;
        let mut terminal = FakeTerminal::new(Format::Text);
        assert_eq!(terminal.send(&agent.url, flags).await, 0);
        assert_eq!(terminal.stdout.text(), "Which one?\n");
        let next = format!("answer with: talaria send {} TEXT --task t\n", agent.url);
        assert!(terminal.stderr.text().ends_with(&next), "{}", terminal.stderr.text());
        assert_eq!(agent.calls().len(), 1);
    }
}

#[tokio::test]
async fn suggests_the_next_step_at_end_of_input() {
    let agent = FakeAgent::answering(asking).await;
    let mut terminal = FakeTerminal::new(Format::Text).typing("");
    assert_eq!(terminal.send(&agent.url, "hi --stream").await, 0);
    assert!(terminal.stderr.text().contains("the agent asks for more; answer with: "));
}

/// A keyboard that nobody uses.
struct Silence(Receiver<()>);

impl Read for Silence {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        // Input ends with the test.
        Ok(self.0.recv().map_or(0, |()| 0))
    }
}

#[tokio::test]
async fn ctrl_c_at_a_question_leaves_the_task_alone() {
    let agent = FakeAgent::answering(asking).await;
    let mut terminal = FakeTerminal::new(Format::Text);
    let (_typist, silence) = mpsc::channel();
    terminal.terminal.keyboard = Keyboard::new(BufReader::new(Silence(silence)), true);
    let (stderr, press) = (terminal.stderr.clone(), terminal.press.clone());
    let (code, ()) = tokio::join!(terminal.send(&agent.url, "hi --stream"), async {
        stderr.until("Which one?\n> ").await;
        press.send(()).expect("somebody listens");
    });
    assert_eq!(code, 130);
    assert_eq!(agent.calls(), ["SendStreamingMessage"]);
    assert!(terminal.stderr.text().contains("the agent asks for more"));
}

#[tokio::test]
async fn ctrl_c_cancels_the_task_and_waits_for_its_end() {
    for (version, cancel) in [("1.0", "CancelTask"), ("0.3", "tasks/cancel")] {
        let cancelled = Arc::new(Notify::new());
        let agent = FakeAgent::answering(move |asked| -> Answers {
            let says = Says::like(asked);
            if asked.rpc() == cancel {
                assert_eq!(asked.body["params"]["id"], "t");
                cancelled.notify_one();
                return whole(says.bare("canceled", "", "")).into();
            }
            let mut steps = numbered(vec![says.task("submitted", "", ""), says.stands("working", "")]);
            steps.extend([
                Step::Wait(Arc::clone(&cancelled)),
                Step::Say(Some(3), says.stands("canceled", "")),
            ]);
            steps.into()
        })
        .await;
        let mut terminal = FakeTerminal::new(Format::Text);
        let (stderr, press) = (terminal.stderr.clone(), terminal.press.clone());
        let flags = format!("hi --stream --protocol {version}");
        let (code, ()) = tokio::join!(terminal.send(&agent.url, &flags), async {
            stderr.until("working").await;
            press.send(()).expect("somebody listens");
        });
        assert_eq!(code, 130);
        assert_eq!(agent.last().rpc(), cancel);
        let notes = terminal.stderr.text();
        assert!(notes.contains("cancelling…"), "{notes}");
        assert!(notes.ends_with("canceled, task t, context c\n"), "{notes}");
    }
}

/// An agent whose stream does not end and that rejects the cancellation.
fn stubborn(asked: &Asked) -> Answers {
    let says = Says::like(asked);
    match asked.rpc() {
        "CancelTask" => refusal(-32002).into(),
        _ => vec![Step::Say(Some(1), says.task("working", "", "")), Step::Hang].into(),
    }
}

#[tokio::test]
async fn a_second_ctrl_c_stops_waiting() {
    let agent = FakeAgent::answering(stubborn).await;
    let mut terminal = FakeTerminal::new(Format::Text);
    let (stderr, press) = (terminal.stderr.clone(), terminal.press.clone());
    let (code, ()) = tokio::join!(terminal.send(&agent.url, "hi --stream"), async {
        stderr.until("working").await;
        press.send(()).expect("somebody listens");
        stderr.until("not cancelled: the agent refused: no (-32002)").await;
        press.send(()).expect("somebody listens");
    });
    assert_eq!(code, 130);
    assert!(terminal.stderr.text().ends_with("stopped waiting; the turn may still go on\n"));
}

#[tokio::test]
async fn the_wait_for_a_cancelled_task_is_bounded() {
    let agent = FakeAgent::answering(stubborn).await;
    let mut terminal = FakeTerminal::new(Format::Text);
    terminal.terminal.pace.cancel = Duration::from_millis(50);
    let (stderr, press) = (terminal.stderr.clone(), terminal.press.clone());
    let (code, ()) = tokio::join!(terminal.send(&agent.url, "hi --stream"), async {
        stderr.until("working").await;
        press.send(()).expect("somebody listens");
    });
    assert_eq!(code, 130);
    assert!(terminal.stderr.text().contains("task t has not ended within 50ms\n"));
}

#[tokio::test]
async fn ctrl_c_without_a_known_task_stops_waiting() {
    let started = Arc::new(Notify::new());
    for (flags, calls) in [("hi", 1), ("hi --stream", 1), ("hi --task t", 2)] {
        let begun = Arc::clone(&started);
        let agent = FakeAgent::answering(move |asked| -> Answers {
            if asked.rpc() == "CancelTask" {
                return refusal(-32002).into();
            }
            begun.notify_one();
            vec![Step::Hang].into()
        })
        .await;
        let mut terminal = FakeTerminal::new(Format::Text);
        terminal.terminal.pace.cancel = Duration::from_millis(50);
        let press = terminal.press.clone();
        let (code, ()) = tokio::join!(terminal.send(&agent.url, flags), async {
            started.notified().await;
            press.send(()).expect("somebody listens");
        });
        assert_eq!((code, agent.calls().len()), (130, calls), "{flags}");
    }
}
