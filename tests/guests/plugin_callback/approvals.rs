//! Commands that the gateway does not run without approval.

use std::sync::Arc;

use talaria_fakes::{FakePlugin, Step};
use talaria_rig::MailHost;
use talaria_turns::{Content, Message, Part, Turn};

use super::{Running, rig, says};

async fn dangerous() -> FakePlugin {
    FakePlugin::start(|_| vec![Step::Approval("rm -rf /tmp/x".into())]).await
}

/// Answers with these until the turn ends; returns the questions, the commands and the outcome.
async fn answered(answers: Vec<Arc<Message>>) -> (Vec<String>, Vec<String>, String) {
    let (plugin, mail) = (dangerous().await, MailHost::start().await);
    let rig = rig(&plugin, &mail).await;
    let mut running = Running::begin(&rig, rig.turn("clean up"));
    let mut questions = Vec::new();
    for answer in answers {
        let (question, to) = running.question().await;
        questions.push(question);
        to.send(answer).unwrap();
    }
    let ended = running.end().await.unwrap();
    (questions, plugin.commands(), ended)
}

#[tokio::test]
async fn an_approval_is_a_question_and_its_answer_a_command() {
    for (answer, command, ended) in [
        ("approve", "/approve", "ran rm -rf /tmp/x"),
        ("Yes!", "/approve", "ran rm -rf /tmp/x"),
        ("/approve", "/approve", "ran rm -rf /tmp/x"),
        ("approve session", "/approve session", "ran rm -rf /tmp/x"),
        ("deny", "/deny", "was not allowed to run rm -rf /tmp/x"),
        ("No.", "/deny", "was not allowed to run rm -rf /tmp/x"),
    ] {
        let (questions, commands, text) = answered(vec![says(answer)]).await;
        assert_eq!(
            questions,
            [
                "⚠️ **Dangerous command requires approval:**\n```\nrm -rf /tmp/x\n```\nReason: delete in root path\n\n\
                 Answer with one of `approve`, `approve session`, `deny`."
            ]
        );
        assert_eq!((commands, text.as_str()), (vec![command.to_owned()], ended), "{answer}");
    }
}

#[tokio::test]
async fn a_structured_answer_is_accepted() {
    let data = Part::new(Content::Data(serde_json::json!({ "choice": "session" })));
    let answer = Arc::new(Message { parts: vec![Part::text("whatever"), data], ..(*says("")).clone() });
    assert_eq!(answered(vec![answer]).await.1, ["/approve session"]);
}

#[tokio::test]
async fn no_caller_can_approve_for_ever() {
    for always in ["always", "approve always", "/approve always"] {
        let (questions, commands, _) = answered(vec![says(always), says("deny")]).await;
        assert!(questions[1].contains("cannot be approved for ever from here"), "{}", questions[1]);
        assert_eq!(commands, ["/deny"], "{always}");
    }
}

#[tokio::test]
async fn an_unusable_answer_is_asked_for_again_and_then_denied() {
    let (questions, commands, ended) = answered(vec![says("what?"), says("yes and no"), says("/yolo")]).await;
    assert_eq!(questions.len(), 3);
    assert!(questions[2].contains("That is no answer to this question."), "{}", questions[2]);
    assert_eq!(
        (commands, ended.as_str()),
        (vec!["/deny".to_owned()], "was not allowed to run rm -rf /tmp/x")
    );
}

#[tokio::test]
async fn an_answer_that_comes_after_the_agent_went_on_changes_nothing() {
    let (plugin, mail) = (dangerous().await, MailHost::start().await);
    let rig = rig(&plugin, &mail).await;
    let mut running = Running::begin(&rig, rig.turn("clean up"));
    let (_, to) = running.question().await;
    let message = plugin.messages().remove(0);
    // The approval expires at the gateway.
    plugin.callback(&mail.url, message.chat(), Some(message.id()), "I left it alone").await;
    to.send(says("approve")).unwrap();
    assert_eq!(running.end().await.unwrap(), "I left it alone");
    assert!(plugin.commands().is_empty(), "{:?}", plugin.commands());
}

#[tokio::test]
async fn an_answer_decides_only_about_the_command_that_was_asked_about() {
    let (plugin, mail) = (dangerous().await, MailHost::start().await);
    let rig = rig(&plugin, &mail).await;
    let mut running = Running::begin(&rig, rig.turn("clean up"));
    let (_, to) = running.question().await;
    let message = plugin.messages().remove(0);
    let other = "⚠️ **Dangerous command requires approval:**\n```\nmkfs /dev/sda\n```\nReason: format\n\nReply `/approve` to \
                 execute this one operation, or `/deny` to cancel.";
    plugin.callback(&mail.url, message.chat(), None, other).await;
    to.send(says("approve")).unwrap();
    let (question, to) = running.question().await;
    assert!(question.contains("mkfs /dev/sda") && !question.contains("approve session"), "{question}");
    assert!(plugin.commands().is_empty(), "nothing was approved that the caller did not see");
    to.send(says("approve session")).unwrap();
    let (question, to) = running.question().await;
    assert!(question.contains("no answer to this question"), "what is not offered is not taken: {question}");
    to.send(says("deny")).unwrap();
    assert_eq!(running.end().await.unwrap(), "was not allowed to run rm -rf /tmp/x");
    assert_eq!(plugin.commands(), ["/deny"]);
}

#[tokio::test]
async fn an_approval_is_not_given_again_after_a_restart() {
    let plugin =
        FakePlugin::start(|_| vec![Step::Approval("first".into()), Step::Approval("second".into())]).await;
    let mail = MailHost::start().await;
    let rig = rig(&plugin, &mail).await;
    let turn = rig.turn("clean up");
    // The host dies while the second question is open.
    let mut before = Running::begin(&rig, turn.clone());
    let mut checkpoint = Vec::new();
    let mut asked = 0;
    while asked < 2 {
        match before.said.recv().await.unwrap() {
            talaria_turns::TurnSignal::Checkpoint { data, kept } => {
                checkpoint = data;
                kept.send(Ok(())).unwrap();
            }
            talaria_turns::TurnSignal::Ask { answer, .. } => {
                asked += 1;
                if asked == 1 {
                    answer.send(says("approve")).unwrap();
                } else {
                    std::mem::forget(answer);
                }
            }
            talaria_turns::TurnSignal::Emitted(_) => {}
        }
    }
    before.end.abort();
    assert_eq!(plugin.commands(), ["/approve"]);
    // The restarted turn asks both again; the host has the first answer.
    let mut after = Running::begin(&rig, Turn { checkpoint: Some(checkpoint), ..turn });
    let (question, to) = after.question().await;
    assert!(question.contains("first"), "{question}");
    to.send(says("approve")).unwrap();
    let (question, to) = after.question().await;
    assert!(question.contains("second"), "{question}");
    assert_eq!(plugin.commands(), ["/approve"], "the first approval must not become the second's");
    to.send(says("deny")).unwrap();
    assert_eq!(after.end().await.unwrap(), "was not allowed to run second");
    assert_eq!(plugin.commands(), ["/approve", "/deny"]);
}
