//! Callers without a name, on a host that strangers can reach.

use std::sync::atomic::Ordering;

use talaria_turns::{Incoming, Limits, Principal, SendError, State};

use crate::kit::{message, service, text};

fn strangers() -> Limits {
    Limits { strangers_call: true, anyone_may_approve: false, ..Limits::default() }
}

fn from(name: &str, text: &str) -> Incoming {
    Incoming { principal: Principal::named(name), ..message(text) }
}

#[tokio::test]
async fn a_stranger_approves_nothing() {
    for prompt in ["approval", "approval at the end"] {
        let (turns, executor) = service(strangers());
        let asked = turns.send(message(prompt)).await.unwrap().settled().await;
        assert_eq!(asked.status.state, State::InputRequired);
        let yes = Incoming { task: Some(asked.id.clone()), ..message("once") };
        let refused = turns.send(yes).await.err().unwrap();
        assert!(matches!(&refused, SendError::ApprovalNeedsName(task) if *task == asked.id), "{refused}");
        let after = turns.task(&Principal::anyone(), &asked.id).await.unwrap();
        assert_eq!(
            (after.version, executor.runs.load(Ordering::SeqCst)),
            (asked.version, 1),
            "nothing changed"
        );
        let cancelled = turns.cancel(&Principal::anyone(), &asked.id).await.unwrap();
        assert_eq!(cancelled.status.state, State::Canceled, "{prompt}");
    }
}

#[tokio::test]
async fn a_named_caller_approves_and_a_stranger_answers_other_questions() {
    let (turns, _) = service(strangers());
    let asked = turns.send(from("platform", "approval")).await.unwrap().settled().await;
    let yes = Incoming { task: Some(asked.id.clone()), ..from("platform", "once") };
    let done = turns.send(yes).await.unwrap().settled().await;
    assert_eq!(text(done.text_reply()), "you said once");

    let asked = turns.send(message("question")).await.unwrap().settled().await;
    let answer = Incoming { task: Some(asked.id.clone()), ..message("that one") };
    let done = turns.send(answer).await.unwrap().settled().await;
    assert_eq!(text(done.text_reply()), "you said that one");
}

#[tokio::test]
async fn anyone_approves_where_the_host_lets_them() {
    let (turns, _) = service(Limits { anyone_may_approve: true, ..strangers() });
    let asked = turns.send(message("approval")).await.unwrap().settled().await;
    let yes = Incoming { task: Some(asked.id.clone()), ..message("once") };
    let done = turns.send(yes).await.unwrap().settled().await;
    assert_eq!(text(done.text_reply()), "you said once");
}

#[tokio::test]
async fn the_task_of_a_stranger_has_an_id_that_cannot_be_guessed() {
    // The first digit of the third group is the version: 4 is random, 7 counts up.
    let version = |id: &str| id.chars().nth(14).unwrap();
    let (turns, _) = service(strangers());
    assert_eq!(version(turns.send(message("hi")).await.unwrap().task.id.as_str()), '4');
    assert_eq!(version(turns.send(from("platform", "hi")).await.unwrap().task.id.as_str()), '7');
}
