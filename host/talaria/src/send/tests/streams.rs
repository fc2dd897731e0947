//! A reply as it comes, in both versions, for people and for programs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::fake::{Answers, Asked, Fake, Step, card, refusal, whole};
use super::seat::Seat;
use crate::output::Format;

/// What is said about task `t`, in the version that was asked for.
pub(super) struct Says(pub(super) bool);

impl Says {
    /// As the caller speaks.
    pub(super) fn like(asked: &Asked) -> Self {
        Self(asked.version.as_deref() == Some("1.0"))
    }

    fn text(&self, text: &str) -> Value {
        if self.0 { json!([{ "text": text }]) } else { json!([{ "kind": "text", "text": text }]) }
    }

    fn status(&self, state: &str, said: &str) -> Value {
        let state = match self.0 {
            true => format!("TASK_STATE_{}", state.to_uppercase().replace('-', "_")),
            false => state.to_owned(),
        };
        match said {
            "" => json!({ "state": state }),
            said => json!({ "state": state, "message": { "messageId": "m", "parts": self.text(said) } }),
        }
    }

    fn wrap(&self, new: &str, old: &str, mut body: Value) -> Value {
        if self.0 {
            return json!({ new: body });
        }
        body["kind"] = old.into();
        body
    }

    /// The task itself, as `GetTask` shows it.
    pub(super) fn bare(&self, state: &str, said: &str, reply: &str) -> Value {
        let mut task = json!({ "id": "t", "contextId": "c", "status": self.status(state, said) });
        if !reply.is_empty() {
            task["artifacts"] = json!([{ "artifactId": "reply", "parts": self.text(reply) }]);
        }
        if !self.0 {
            task["kind"] = "task".into();
        }
        task
    }

    pub(super) fn task(&self, state: &str, said: &str, reply: &str) -> Value {
        let task = self.bare(state, said, reply);
        if self.0 { json!({ "task": task }) } else { task }
    }

    pub(super) fn stands(&self, state: &str, said: &str) -> Value {
        let update = json!({ "taskId": "t", "contextId": "c", "status": self.status(state, said) });
        self.wrap("statusUpdate", "status-update", update)
    }

    fn tool(&self, progress: Value) -> Value {
        let update = json!({ "taskId": "t", "contextId": "c", "status": self.status("working", ""),
            "metadata": { "talaria/tool-progress": progress } });
        self.wrap("statusUpdate", "status-update", update)
    }

    /// A piece of the answer, in a status.
    fn chunk(&self, text: &str) -> Value {
        let mut status = self.status("working", text);
        status["message"]["metadata"] = json!({ "talaria/chunk": true });
        let update = json!({ "taskId": "t", "contextId": "c", "status": status });
        self.wrap("statusUpdate", "status-update", update)
    }

    /// What the executor says about its work, beside the message.
    fn line(&self, text: &str) -> Value {
        let update = json!({ "taskId": "t", "contextId": "c", "status": self.status("working", ""),
            "metadata": { "talaria/status": text } });
        self.wrap("statusUpdate", "status-update", update)
    }

    pub(super) fn delta(&self, text: &str, append: bool) -> Value {
        let artifact = json!({ "artifactId": "reply", "parts": self.text(text) });
        let update = json!({ "taskId": "t", "contextId": "c", "artifact": artifact, "append": append });
        self.wrap("artifactUpdate", "artifact-update", update)
    }
}

/// Events with ids from 1.
pub(super) fn numbered(results: Vec<Value>) -> Vec<Step> {
    (1..).zip(results).map(|(id, result)| Step::Say(Some(id), result)).collect()
}

fn story(asked: &Asked) -> Vec<Step> {
    let says = Says::like(asked);
    numbered(vec![
        says.task("submitted", "", ""),
        says.stands("working", ""),
        says.tool(json!({ "id": "1", "name": "search", "state": "started", "label": "the\nweather" })),
        says.delta("It ra", false),
        says.stands("working", "still at it"),
        says.delta("ins\u{1b}[2J", true),
        says.stands("completed", ""),
    ])
}

#[tokio::test]
async fn the_words_come_as_they_are_said_in_both_versions() {
    for (version, method) in [("1.0", "SendStreamingMessage"), ("0.3", "message/stream")] {
        let fake = Fake::answering(story).await;
        let mut seat = Seat::new(Format::Text);
        assert_eq!(seat.send(&fake.url, &format!("hi --stream --protocol {version}")).await, 0);
        assert_eq!(seat.words.text(), "It rains\u{1b}[2J\n", "into a pipe it goes as it came");
        let notes = "submitted, task t, context c\nworking\ntool search started: the weather\n\
                     working: still at it\ncompleted, task t, context c\n";
        assert_eq!(seat.notes.text(), notes, "{version}");
        assert_eq!(fake.calls(), [method]);
    }
}

#[tokio::test]
async fn pieces_in_statuses_are_the_words_and_the_whole_says_nothing_new() {
    for version in ["1.0", "0.3"] {
        let fake = Fake::answering(|asked| {
            let says = Says::like(asked);
            numbered(vec![
                says.task("submitted", "", "of before"),
                says.stands("working", ""),
                says.line("still at it"),
                says.chunk("It ra"),
                says.tool(json!({ "id": "1", "name": "search", "state": "started", "label": "" })),
                says.chunk("ins"),
                says.delta("It rains", false),
                says.stands("completed", ""),
            ])
        })
        .await;
        let mut seat = Seat::new(Format::Text);
        assert_eq!(seat.send(&fake.url, &format!("hi --stream --task t --protocol {version}")).await, 0);
        assert_eq!(seat.words.text(), "It rains\n", "{version}");
        let notes = "submitted, task t, context c\nworking\nworking: still at it\ntool search started\n\
                     completed, task t, context c\n";
        assert_eq!(seat.notes.text(), notes, "{version}");
    }
}

#[tokio::test]
async fn a_terminal_gets_no_control_characters_and_notes_have_lines_of_their_own() {
    let fake = Fake::answering(story).await;
    let mut seat = Seat::new(Format::Text);
    let both = seat.words.clone();
    seat.desk.screen = crate::send::screen::Screen::new(Format::Text, both.sink(true), both.sink(true));
    assert_eq!(seat.send(&fake.url, "hi --stream").await, 0);
    let screen = "submitted, task t, context c\nworking\ntool search started: the weather\nIt ra\n\
                  working: still at it\nins\u{fffd}[2J\ncompleted, task t, context c\n";
    assert_eq!(both.text(), screen);
}

#[tokio::test]
async fn a_program_gets_an_event_a_line() {
    let fake = Fake::answering(story).await;
    let mut seat = Seat::new(Format::Json);
    assert_eq!(seat.send(&fake.url, "hi --stream").await, 0);
    let written = seat.words.text();
    let lines: Vec<Value> =
        written.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    assert_eq!(lines.len(), 7);
    assert_eq!(lines[0]["task"]["id"], "t");
    assert_eq!(lines[3]["artifactUpdate"]["artifact"]["parts"][0]["text"], "It ra");
    assert_eq!(lines[6]["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn a_text_that_is_replaced_is_said_again() {
    let fake = Fake::answering(|asked| {
        let says = Says::like(asked);
        let replaced = [says.delta("a draft", false), says.delta("the text", false), says.delta("!", true)];
        numbered(
            [vec![says.task("working", "", "")], replaced.into(), vec![says.stands("completed", "done")]]
                .concat(),
        )
    })
    .await;
    let mut seat = Seat::new(Format::Text);
    assert_eq!(seat.send(&fake.url, "hi --stream").await, 0);
    assert_eq!(seat.words.text(), "a draft\nthe text!\ndone\n");
}

#[tokio::test]
async fn a_message_is_a_whole_answer() {
    let fake = Fake::answering(|_| {
        let message = json!({ "message": { "contextId": "c", "parts": [{ "text": "hello" }] } });
        vec![Step::Say(None, message), Step::Hang]
    })
    .await;
    let mut seat = Seat::new(Format::Text);
    assert_eq!(seat.send(&fake.url, "hi --stream").await, 0);
    assert_eq!((seat.words.text(), seat.notes.text()), ("hello\n".into(), "message, context c\n".into()));
}

#[tokio::test]
async fn the_end_of_the_task_is_the_end() {
    let states = BTreeMap::from([("completed", 0), ("failed", 1), ("rejected", 1), ("canceled", 1)]);
    for (state, code) in states {
        let fake = Fake::answering(move |asked| {
            let says = Says::like(asked);
            let mut steps = numbered(vec![says.task("working", "", ""), says.stands(state, "that is all")]);
            steps.push(Step::Hang);
            steps
        })
        .await;
        let mut seat = Seat::new(Format::Text);
        assert_eq!(seat.send(&fake.url, "hi --stream").await, code, "{state}");
        assert_eq!(seat.words.text(), "that is all\n");
    }
}

#[tokio::test]
async fn what_a_task_had_before_is_not_said_again() {
    let fake = Fake::answering(|asked| {
        let says = Says::like(asked);
        numbered(vec![
            says.task("input-required", "which?", "of before"),
            says.stands("working", ""),
            says.delta("now", false),
            says.stands("completed", ""),
        ])
    })
    .await;
    let mut seat = Seat::new(Format::Text);
    assert_eq!(seat.send(&fake.url, "this --stream --task t").await, 0);
    assert_eq!(seat.words.text(), "now\n");
}

#[tokio::test]
async fn an_agent_that_answers_in_one_piece_is_understood() {
    let fake = Fake::answering(|asked| whole(Says::like(asked).task("completed", "", "hello"))).await;
    let mut seat = Seat::new(Format::Text);
    assert_eq!(seat.send(&fake.url, "hi --stream").await, 0);
    assert_eq!(seat.words.text(), "hello\n");
}

#[tokio::test]
async fn an_agent_that_does_not_stream_is_not_asked_to() {
    let fake = Fake::start(|url, _| {
        let mut card = card(url);
        card["capabilities"] = json!({ "streaming": false });
        (200, card)
    })
    .await;
    let mut seat = Seat::new(Format::Text);
    assert_eq!(seat.send(&fake.url, "hi --stream").await, 1);
    let error = "error: the agent does not stream, as its card says; leave out --stream, the reply comes in one piece\n";
    assert_eq!(seat.notes.text(), error);
    assert!(fake.calls().is_empty());
}

#[tokio::test]
async fn a_refusal_is_told_wherever_it_comes() {
    let refused = |answers: fn() -> Answers| async move {
        let fake = Fake::answering(move |_| answers()).await;
        let mut seat = Seat::new(Format::Json);
        assert_eq!(seat.send(&fake.url, "hi --stream").await, 1);
        (seat.words.text(), seat.notes.text())
    };
    let (words, notes) = refused(|| refusal(-32004).into()).await;
    assert_eq!(words, "{\"error\":{\"code\":-32004,\"message\":\"no\"}}\n");
    assert!(notes.ends_with("an agent that does not stream takes none with --stream\n"), "{notes}");
    let (words, _) =
        refused(|| vec![Step::Fail(json!({ "code": -32603, "message": "broken" }))].into()).await;
    assert_eq!(words, "{\"error\":{\"code\":-32603,\"message\":\"broken\"}}\n");
    let (_, notes) = refused(|| Answers::Whole(503, json!("later"))).await;
    assert!(notes.contains("answered with HTTP 503; it is busy, try again later"), "{notes}");
}
