//! An agent that asks, a person who answers, and Ctrl-C.

use std::io::{self, BufReader, Read};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use tokio::sync::Notify;

use super::fake::{Answers, Asked, Fake, Step, refusal, whole};
use super::seat::Seat;
use super::streams::{Says, numbered};
use crate::output::Format;
use crate::send::desk::Keyboard;

/// Asks twice, then answers.
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
async fn the_person_at_the_terminal_answers() {
    for flags in ["hi", "hi --stream", "hi --protocol 0.3", "hi --stream --protocol 0.3"] {
        let fake = Fake::answering(asking).await;
        let mut seat = Seat::new(Format::Text).typing("that one\n\n yes \n");
        assert_eq!(seat.send(&fake.url, flags).await, 0, "{flags}");
        assert_eq!(seat.words.text(), "It is done.\n", "{flags}");
        let notes = seat.notes.text();
        assert!(
            notes.contains("Which one?\n> ") && notes.contains("Sure?\n> > "),
            "an empty line is no answer: {notes}"
        );
        assert!(notes.ends_with("completed, task t, context c\n"), "{notes}");
        assert_eq!(fake.calls().len(), 3);
    }
}

#[tokio::test]
async fn a_program_gets_the_last_word_as_its_one_document() {
    let fake = Fake::answering(asking).await;
    let mut seat = Seat::new(Format::Json).typing("that one\nyes\n");
    assert_eq!(seat.send(&fake.url, "hi").await, 0);
    let document: serde_json::Value = serde_json::from_str(&seat.words.text()).expect("one document");
    assert_eq!(document["task"]["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn without_a_person_the_next_step_is_told() {
    for flags in ["hi", "hi --stream"] {
        let fake = Fake::answering(asking).await;
        let mut seat = Seat::new(Format::Text);
        assert_eq!(seat.send(&fake.url, flags).await, 0);
        assert_eq!(seat.words.text(), "Which one?\n");
        let next = format!("answer with: talaria send {} TEXT --task t\n", fake.url);
        assert!(seat.notes.text().ends_with(&next), "{}", seat.notes.text());
        assert_eq!(fake.calls().len(), 1);
    }
}

#[tokio::test]
async fn a_person_who_does_not_answer_is_told_the_next_step() {
    let fake = Fake::answering(asking).await;
    let mut seat = Seat::new(Format::Text).typing("");
    assert_eq!(seat.send(&fake.url, "hi --stream").await, 0);
    assert!(seat.notes.text().contains("the agent asks for more; answer with: "));
}

/// A keyboard that nobody types on.
struct Silence(Receiver<()>);

impl Read for Silence {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        // The end of the test is the end of input.
        Ok(self.0.recv().map_or(0, |()| 0))
    }
}

#[tokio::test]
async fn control_c_at_a_question_leaves_the_task_as_it_is() {
    let fake = Fake::answering(asking).await;
    let mut seat = Seat::new(Format::Text);
    let (_typist, silence) = mpsc::channel();
    seat.desk.keyboard = Keyboard::new(BufReader::new(Silence(silence)), true);
    let (notes, press) = (seat.notes.clone(), seat.press.clone());
    let (code, ()) = tokio::join!(seat.send(&fake.url, "hi --stream"), async {
        notes.until("Which one?\n> ").await;
        press.send(()).expect("somebody listens");
    });
    assert_eq!(code, 130);
    assert_eq!(fake.calls(), ["SendStreamingMessage"]);
    assert!(seat.notes.text().contains("the agent asks for more"));
}

#[tokio::test]
async fn control_c_cancels_and_waits_for_the_end_in_both_versions() {
    for (version, cancel) in [("1.0", "CancelTask"), ("0.3", "tasks/cancel")] {
        let cancelled = Arc::new(Notify::new());
        let fake = Fake::answering(move |asked| -> Answers {
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
        let mut seat = Seat::new(Format::Text);
        let (notes, press) = (seat.notes.clone(), seat.press.clone());
        let flags = format!("hi --stream --protocol {version}");
        let (code, ()) = tokio::join!(seat.send(&fake.url, &flags), async {
            notes.until("working").await;
            press.send(()).expect("somebody listens");
        });
        assert_eq!(code, 130);
        assert_eq!(fake.last().rpc(), cancel);
        let notes = seat.notes.text();
        assert!(notes.contains("cancelling…"), "{notes}");
        assert!(notes.ends_with("canceled, task t, context c\n"), "{notes}");
    }
}

/// A stream that does not end, and a cancel that is refused.
fn stubborn(asked: &Asked) -> Answers {
    let says = Says::like(asked);
    match asked.rpc() {
        "CancelTask" => refusal(-32002).into(),
        _ => vec![Step::Say(Some(1), says.task("working", "", "")), Step::Hang].into(),
    }
}

#[tokio::test]
async fn a_second_control_c_waits_for_nothing() {
    let fake = Fake::answering(stubborn).await;
    let mut seat = Seat::new(Format::Text);
    let (notes, press) = (seat.notes.clone(), seat.press.clone());
    let (code, ()) = tokio::join!(seat.send(&fake.url, "hi --stream"), async {
        notes.until("working").await;
        press.send(()).expect("somebody listens");
        notes.until("not cancelled: the agent refused: no (-32002)").await;
        press.send(()).expect("somebody listens");
    });
    assert_eq!(code, 130);
    assert!(seat.notes.text().ends_with("stopped waiting; the turn may still go on\n"));
}

#[tokio::test]
async fn the_wait_for_the_end_is_bounded() {
    let fake = Fake::answering(stubborn).await;
    let mut seat = Seat::new(Format::Text);
    seat.desk.pace.cancel = Duration::from_millis(50);
    let (notes, press) = (seat.notes.clone(), seat.press.clone());
    let (code, ()) = tokio::join!(seat.send(&fake.url, "hi --stream"), async {
        notes.until("working").await;
        press.send(()).expect("somebody listens");
    });
    assert_eq!(code, 130);
    assert!(seat.notes.text().contains("task t has not ended within 50ms\n"));
}

#[tokio::test]
async fn control_c_without_a_known_task_stops_waiting() {
    let started = Arc::new(Notify::new());
    for (flags, calls) in [("hi", 1), ("hi --stream", 1), ("hi --task t", 2)] {
        let begun = Arc::clone(&started);
        let fake = Fake::answering(move |asked| -> Answers {
            if asked.rpc() == "CancelTask" {
                return refusal(-32002).into();
            }
            begun.notify_one();
            vec![Step::Hang].into()
        })
        .await;
        let mut seat = Seat::new(Format::Text);
        seat.desk.pace.cancel = Duration::from_millis(50);
        let press = seat.press.clone();
        let (code, ()) = tokio::join!(seat.send(&fake.url, flags), async {
            started.notified().await;
            press.send(()).expect("somebody listens");
        });
        assert_eq!((code, fake.calls().len()), (130, calls), "{flags}");
    }
}
