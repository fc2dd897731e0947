//! Replies printed while they arrive, in both versions, for people and for programs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::fake_agent::{Answers, Asked, FakeAgent, Step, card, refusal, whole};
use super::fake_terminal::FakeTerminal;
use crate::send::Format;

/// Results about task `t`, in the version of the request.
pub(super) struct Says(pub(super) bool);

impl Says {
    /// Speaks the version of the request.
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

    /// A piece of the answer, in a status message.
    fn chunk(&self, text: &str) -> Value {
        let mut status = self.status("working", text);
        status["message"]["metadata"] = json!({ "talaria/chunk": true });
        let update = json!({ "taskId": "t", "contextId": "c", "status": status });
        self.wrap("statusUpdate", "status-update", update)
    }

    /// An executor's remark on its work, beside the message.
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
async fn prints_the_reply_as_it_arrives_in_both_versions() {
    for (version, method) in [("1.0", "SendStreamingMessage"), ("0.3", "message/stream")] {
        let agent = FakeAgent::answering(story).await;
        let mut terminal = FakeTerminal::new(Format::Text);
        assert_eq!(terminal.send(&agent.url, &format!("hi --stream --protocol {version}")).await, 0);
        assert_eq!(terminal.stdout.text(), "It rains\u{1b}[2J\n", "a pipe gets the text unchanged");
        let notes = "submitted, task t, context c\nworking\ntool search started: the weather\n\
                     working: still at it\ncompleted, task t, context c\n";
        assert_eq!(terminal.stderr.text(), notes, "{version}");
        assert_eq!(agent.calls(), [method]);
    }
}

#[tokio::test]
async fn joins_pieces_in_status_messages_and_skips_the_whole() {
    for version in ["1.0", "0.3"] {
        let agent = FakeAgent::answering(|asked| {
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
        let mut terminal = FakeTerminal::new(Format::Text);
        assert_eq!(terminal.send(&agent.url, &format!("hi --stream --task t --protocol {version}")).await, 0);
        assert_eq!(terminal.stdout.text(), "It rains\n", "{version}");
        let notes = "submitted, task t, context c\nworking\nworking: still at it\ntool search started\n\
                     completed, task t, context c\n";
        assert_eq!(terminal.stderr.text(), notes, "{version}");
    }
}

#[tokio::test]
async fn a_terminal_gets_no_control_characters_and_each_note_its_own_line() {
    let agent = FakeAgent::answering(story).await;
    let mut terminal = FakeTerminal::new(Format::Text);
    let both = terminal.stdout.clone();
    terminal.terminal.renderer =
        crate::send::render::Renderer::new(Format::Text, both.sink(true), both.sink(true));
    assert_eq!(terminal.send(&agent.url, "hi --stream").await, 0);
    let screen = "submitted, task t, context c\nworking\ntool search started: the weather\nIt ra\n\
                  working: still at it\nins\u{fffd}[2J\ncompleted, task t, context c\n";
    assert_eq!(both.text(), screen);
}

#[tokio::test]
async fn a_program_gets_one_event_per_line() {
    let agent = FakeAgent::answering(story).await;
    let mut terminal = FakeTerminal::new(Format::Json);
    assert_eq!(terminal.send(&agent.url, "hi --stream").await, 0);
    let written = terminal.stdout.text();
    let lines: Vec<Value> =
        written.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    assert_eq!(lines.len(), 7);
    assert_eq!(lines[0]["task"]["id"], "t");
    assert_eq!(lines[3]["artifactUpdate"]["artifact"]["parts"][0]["text"], "It ra");
    assert_eq!(lines[6]["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn prints_a_replaced_text_again() {
    let agent = FakeAgent::answering(|asked| {
        let says = Says::like(asked);
        let replaced = [says.delta("a draft", false), says.delta("the text", false), says.delta("!", true)];
        numbered(
            [vec![says.task("working", "", "")], replaced.into(), vec![says.stands("completed", "done")]]
                .concat(),
        )
    })
    .await;
    let mut terminal = FakeTerminal::new(Format::Text);
    assert_eq!(terminal.send(&agent.url, "hi --stream").await, 0);
    assert_eq!(terminal.stdout.text(), "a draft\nthe text!\ndone\n");
}

#[tokio::test]
async fn a_message_ends_the_stream() {
    let agent = FakeAgent::answering(|_| {
        let message = json!({ "message": { "contextId": "c", "parts": [{ "text": "hello" }] } });
        vec![Step::Say(None, message), Step::Hang]
    })
    .await;
    let mut terminal = FakeTerminal::new(Format::Text);
    assert_eq!(terminal.send(&agent.url, "hi --stream").await, 0);
    assert_eq!(
        (terminal.stdout.text(), terminal.stderr.text()),
        ("hello\n".into(), "message, context c\n".into())
    );
}

#[tokio::test]
async fn a_terminal_state_ends_the_session() {
    let states = BTreeMap::from([("completed", 0), ("failed", 1), ("rejected", 1), ("canceled", 1)]);
    for (state, code) in states {
        let agent = FakeAgent::answering(move |asked| {
            let says = Says::like(asked);
            let mut steps = numbered(vec![says.task("working", "", ""), says.stands(state, "that is all")]);
            steps.push(Step::Hang);
            steps
        })
        .await;
        let mut terminal = FakeTerminal::new(Format::Text);
        assert_eq!(terminal.send(&agent.url, "hi --stream").await, code, "{state}");
        assert_eq!(terminal.stdout.text(), "that is all\n");
    }
}

#[tokio::test]
async fn does_not_repeat_the_artifacts_of_an_earlier_turn() {
    let agent = FakeAgent::answering(|asked| {
        let says = Says::like(asked);
        numbered(vec![
            says.task("input-required", "which?", "of before"),
            says.stands("working", ""),
            says.delta("now", false),
            says.stands("completed", ""),
        ])
    })
    .await;
    let mut terminal = FakeTerminal::new(Format::Text);
    assert_eq!(terminal.send(&agent.url, "this --stream --task t").await, 0);
    assert_eq!(terminal.stdout.text(), "now\n");
}

#[tokio::test]
async fn accepts_an_answer_in_one_piece() {
    let agent = FakeAgent::answering(|asked| whole(Says::like(asked).task("completed", "", "hello"))).await;
    let mut terminal = FakeTerminal::new(Format::Text);
    assert_eq!(terminal.send(&agent.url, "hi --stream").await, 0);
    assert_eq!(terminal.stdout.text(), "hello\n");
}

#[tokio::test]
async fn does_not_ask_for_a_stream_that_the_card_rules_out() {
    let agent = FakeAgent::start(|url, _| {
        let mut card = card(url);
        card["capabilities"] = json!({ "streaming": false });
        (200, card)
    })
    .await;
    let mut terminal = FakeTerminal::new(Format::Text);
    assert_eq!(terminal.send(&agent.url, "hi --stream").await, 1);
    let error = "error: the agent does not stream, as its card says; leave out --stream, the reply comes in one piece\n";
    assert_eq!(terminal.stderr.text(), error);
    assert!(agent.calls().is_empty());
}

#[tokio::test]
async fn reports_a_rejection_wherever_it_arrives() {
    let refused = |answers: fn() -> Answers| async move {
        let agent = FakeAgent::answering(move |_| answers()).await;
        let mut terminal = FakeTerminal::new(Format::Json);
        assert_eq!(terminal.send(&agent.url, "hi --stream").await, 1);
        (terminal.stdout.text(), terminal.stderr.text())
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
