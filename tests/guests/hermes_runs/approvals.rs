//! The caller is asked for approvals, and only a clear answer allows a command.

use std::sync::Arc;

use serde_json::{Value, json};
use talaria_fakes::{FakeRuns, Reply, Script, soon};
use talaria_redact::Redactor;
use talaria_rig::Ran;
use talaria_turns::{Content, Emitted, FailureKind, Part, TurnSignal};
use tokio::sync::Notify;

use super::{converse, rig, says};

const COMMAND: &str = "rm -rf /srv/data";

fn script() -> Script {
    Script::new().tool_started("terminal", COMMAND).approval(COMMAND).completed("done")
}

async fn answered(script: Script, answers: impl IntoIterator<Item = Vec<Part>>) -> (Ran, Vec<String>) {
    let runs = FakeRuns::start([script]).await;
    let rig = rig(&runs).await;
    let ran = converse(&rig, rig.turn("hello"), answers).await;
    let choices = runs.choices();
    (ran, choices)
}

fn statuses(ran: &Ran) -> Vec<&str> {
    let statuses = ran.events.iter().filter_map(|event| match event {
        Emitted::Status(text) => Some(text.as_str()),
        _ => None,
    });
    statuses.collect()
}

#[tokio::test]
async fn an_answer_is_sent_in_the_gateways_own_word() {
    for (word, choice) in [
        ("yes", "once"),
        ("Yes!", "once"),
        (" y ", "once"),
        ("ok", "once"),
        ("approve", "once"),
        ("Approve once", "once"),
        ("`once`", "once"),
        ("/approve", "once"),
        ("session", "session"),
        ("allow session", "session"),
        ("no", "deny"),
        ("No.", "deny"),
        ("deny", "deny"),
    ] {
        let (ran, choices) = answered(script(), [says(word)]).await;
        assert_eq!(ran.text(), "done", "{word}");
        assert_eq!(choices, [choice], "{word}");
        assert_eq!(ran.questions.len(), 1);
    }
}

#[tokio::test]
async fn the_question_has_the_command_the_reason_and_the_choices() {
    let runs = FakeRuns::start([script()]).await;
    let rig = rig(&runs).await;
    let (running, mut said) = rig.begin(rig.turn("hello"));
    let (result, ()) = tokio::join!(running, async {
        loop {
            match said.recv().await {
                Some(TurnSignal::Checkpoint { kept, .. }) => kept.send(Ok(())).unwrap(),
                Some(TurnSignal::Ask { parts, answer }) => {
                    let Content::Text(text) = &parts[0].content else { panic!("{parts:?}") };
                    for expected in [COMMAND, "delete in root path", "`yes`", "`session`", "`no`"] {
                        assert!(text.contains(expected), "{expected} is not in {text}");
                    }
                    assert!(!text.contains("always"), "{text}");
                    let data = json!({ "approval": {
                        "command": COMMAND, "description": "delete in root path", "choices": ["once", "session", "deny"],
                    } });
                    assert_eq!(parts[1].content, Content::Data(data));
                    let word = Part::new(Content::Data(json!({ "choice": "session" })));
                    let message = talaria_turns::Message::agent(vec![word]);
                    answer.send(message.into()).unwrap();
                }
                Some(TurnSignal::Emitted(_)) => {}
                None => break,
            }
        }
    });
    assert!(result.is_ok());
    assert_eq!(runs.choices(), ["session"], "a program answers with data");
}

#[tokio::test]
async fn always_is_rejected_with_the_reason_and_asked_again() {
    for word in ["always", "Approve always", "ALWAYS"] {
        let (ran, choices) = answered(script(), [says(word), says("yes")]).await;
        assert_eq!(choices, ["once"]);
        assert!(
            ran.questions[1].starts_with("`always` would change what the agent may do for everybody"),
            "{:?}",
            ran.questions
        );
        assert!(ran.questions[1].contains(COMMAND));
    }
}

#[tokio::test]
async fn an_unclear_answer_is_asked_for_again_and_then_denied() {
    let unclear = [says("yes, but only in /tmp"), says("what does it do?"), says("")];
    let (ran, choices) = answered(script(), unclear).await;
    assert_eq!(ran.questions.len(), 3);
    assert_eq!(choices, ["deny"]);
    assert_eq!(ran.text(), "done", "the run goes on without the command");
    assert_eq!(statuses(&ran), ["No clear answer came, so the command was denied."]);

    for unclear in [
        says("yes yes"),
        says("yesterday"),
        says("not no"),
        says(&"y".repeat(1_000)),
        vec![Part::text("yes"), Part::text("no")],
    ] {
        let (_, choices) = answered(script(), [unclear, says("no")]).await;
        assert_eq!(choices, ["deny"]);
    }
}

#[tokio::test]
async fn a_choice_that_the_gateway_does_not_offer_is_rejected() {
    let request = json!({ "command": COMMAND, "description": "smart denied", "choices": ["once", "deny"] });
    let script = Script::new().approval_like(request, None).completed("done");
    let (ran, choices) = answered(script, [says("session"), says("once")]).await;
    assert!(!ran.questions[0].contains("`session`"));
    assert!(ran.questions[1].starts_with("That is not offered"), "{}", ran.questions[1]);
    assert_eq!(choices, ["once"]);
}

#[tokio::test]
async fn each_approval_has_a_question_of_its_own() {
    let script = Script::new().approval("rm -rf /a").approval("rm -rf /b").completed("done");
    let (ran, choices) = answered(script, [says("yes"), says("no")]).await;
    assert_eq!(choices, ["once", "deny"]);
    assert!(ran.questions[0].contains("rm -rf /a") && ran.questions[1].contains("rm -rf /b"));
}

#[tokio::test]
async fn a_void_question_is_withdrawn_and_the_run_is_followed() {
    let patience = Arc::new(Notify::new());
    let runs =
        FakeRuns::start([Script::new().approval_until(COMMAND, &patience).completed("did without")]).await;
    let rig = rig(&runs).await;
    let (running, mut said) = rig.begin(rig.turn("hello"));
    let mut statuses = Vec::new();
    let (result, ()) = tokio::join!(running, async {
        while let Some(piece) = said.recv().await {
            match piece {
                TurnSignal::Checkpoint { kept, .. } => kept.send(Ok(())).unwrap(),
                TurnSignal::Ask { mut answer, .. } => {
                    patience.notify_one();
                    soon("the question is withdrawn", answer.closed()).await;
                }
                TurnSignal::Emitted(event) if matches!(*event, Emitted::Tool(_)) => {}
                TurnSignal::Emitted(event) => statuses.push(*event),
            }
        }
    });
    assert_eq!(result.unwrap().parts, [Part::text("did without")]);
    let told = "The agent no longer waits for that approval and goes on without it.";
    assert_eq!(statuses, [Emitted::Status(told.into())]);
    assert_eq!(runs.choices(), [] as [&str; 0]);
}

#[tokio::test]
async fn an_answer_that_comes_too_late_does_not_allow_the_next_command() {
    let patience = Arc::new(Notify::new());
    let script = Script::new().approval_until("rm -rf /a", &patience).approval("rm -rf /b").completed("done");
    let runs = FakeRuns::start([script]).await;
    let rig = rig(&runs).await;
    let (running, mut said) = rig.begin(rig.turn("hello"));
    let mut questions = Vec::new();
    let (result, ()) = tokio::join!(running, async {
        while let Some(piece) = said.recv().await {
            match piece {
                TurnSignal::Checkpoint { kept, .. } => kept.send(Ok(())).unwrap(),
                TurnSignal::Ask { parts, answer } => {
                    questions.push(talaria_turns::message_text(&parts));
                    if questions.len() == 1 {
                        // The first approval expires and the gateway asks for the second; then the answer comes.
                        patience.notify_one();
                        while runs.asked_for() < 2 {
                            tokio::task::yield_now().await;
                        }
                        let _ = answer.send(talaria_turns::Message::agent(vec![Part::text("yes")]).into());
                    } else {
                        let _ = answer.send(talaria_turns::Message::agent(vec![Part::text("no")]).into());
                    }
                }
                TurnSignal::Emitted(_) => {}
            }
        }
    });
    assert!(result.is_ok(), "{result:?}");
    assert!(questions[1].contains("rm -rf /b"), "{questions:?}");
    assert_eq!(runs.choices(), ["deny"], "the yes was for the first");
}

#[tokio::test]
async fn an_approval_that_cannot_be_shown_is_denied() {
    let runs = FakeRuns::start([Script::new().breaks().approval(COMMAND).completed("done")]).await;
    let rig = rig(&runs).await;
    let ran = converse(&rig, rig.turn("hello"), []).await;
    assert_eq!(ran.text(), "done");
    assert_eq!(runs.choices(), ["deny"]);
    assert_eq!(statuses(&ran), ["A command needed approval, but what it was is lost; it was denied."]);
}

#[tokio::test]
async fn a_later_gateway_shows_it_in_its_status() {
    let runs = FakeRuns::start([Script::new().breaks().approval(COMMAND).completed("done")]).await;
    let id = format!("/v1/runs/run_{:032x}", 1);
    let rig = rig(&runs).await;
    runs.show_approvals();
    let ran = converse(&rig, rig.turn("hello"), [says("yes")]).await;
    assert!(ran.questions[0].contains(COMMAND), "{:?}", ran.questions);
    assert_eq!(runs.choices(), ["once"]);
    assert!(!runs.requests("GET", &id).is_empty());
}

#[tokio::test]
async fn a_decision_that_the_gateway_rejects_is_not_sent_twice() {
    for reply in [
        Reply::status(500, "text/plain", "500 Internal Server Error"),
        Reply::status(409, "application/json", r#"{"error":{"code":"approval_not_pending"}}"#),
        Reply::raw(b"".as_slice()),
    ] {
        let patience = Arc::new(Notify::new());
        let runs =
            FakeRuns::start([Script::new().approval_until(COMMAND, &patience).completed("done")]).await;
        let rig = rig(&runs).await;
        runs.next("POST", "/approval", reply);
        let (ran, ()) = tokio::join!(converse(&rig, rig.turn("hello"), [says("yes")]), async {
            while runs.requests("POST", "/approval").is_empty() {
                tokio::task::yield_now().await;
            }
            patience.notify_one();
        });
        assert_eq!(ran.text(), "done");
        assert_eq!(runs.requests("POST", "/approval").len(), 1);
    }
}

#[tokio::test]
async fn a_command_is_shown_as_it_is_but_for_secrets_of_the_host() {
    Redactor::process().learn(["abcdefgh12345678"]);
    let command = "curl -H 'Authorization: Bearer abcdefgh12345678' -H 'X-Api-Key: another-key-123'";
    let (ran, _) = answered(Script::new().approval(command).completed("ok"), [says("no")]).await;
    let shown = "curl -H 'Authorization: Bearer [REDACTED:secret]' -H 'X-Api-Key: another-key-123'";
    assert!(ran.questions[0].contains(shown), "{}", ran.questions[0]);
}

#[tokio::test]
async fn a_turn_that_is_cancelled_while_it_asks_ends() {
    let runs = FakeRuns::start([script()]).await;
    let rig = rig(&runs).await;
    let cancelled = tokio_util::sync::CancellationToken::new();
    let (running, mut said) = rig.begin_until(rig.turn("hello"), cancelled.clone());
    let (result, ()) = tokio::join!(running, async {
        let mut held = Vec::new();
        while let Some(piece) = said.recv().await {
            match piece {
                TurnSignal::Checkpoint { kept, .. } => kept.send(Ok(())).unwrap(),
                TurnSignal::Ask { answer, .. } => {
                    held.push(answer);
                    cancelled.cancel();
                }
                TurnSignal::Emitted(_) => {}
            }
        }
    });
    assert_eq!(result.unwrap_err().kind, FailureKind::Cancelled);
    assert_eq!(runs.choices(), [] as [&str; 0]);
}

#[tokio::test]
async fn an_open_question_is_checkpointed_until_it_is_answered() {
    let (ran, _) = answered(script(), [says("yes")]).await;
    let kept: Vec<Value> = ran.checkpoints.iter().map(|data| serde_json::from_slice(data).unwrap()).collect();
    let [run, asking, after] = kept.as_slice() else { panic!("{kept:?}") };
    assert_eq!(asking["asking"]["request"]["command"], COMMAND);
    assert_eq!(run, after);
}
