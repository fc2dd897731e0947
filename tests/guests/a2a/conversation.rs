//! Several turns: questions of the agent, its context, and tasks that are over.

use serde_json::{Value, json};
use talaria_fakes::{FakeAgent, Say, Spoken};
use talaria_turns::{Executor as _, FinalState, Turn, message_text};

use super::{bare, next, rig, streaming, task, update};

/// An agent that asks for the date.
async fn asking() -> FakeAgent {
    streaming(Say::stream([task("WORKING", "", ""), update("INPUT_REQUIRED", "when?")])).await
}

fn addressed(message: &Value) -> (&Value, &Value) {
    (&message["taskId"], &message["contextId"])
}

#[tokio::test]
async fn a_question_ends_the_turn_and_the_answer_goes_into_the_same_task() {
    let agent = asking().await;
    let rig = rig(&agent).await;
    let turn = rig.turn("book");
    let outcome = rig.execute(turn.clone()).await.result.unwrap();
    assert_eq!((outcome.state, message_text(&outcome.parts).as_str()), (FinalState::InputRequired, "when?"));
    agent.next("SendStreamingMessage", Say::stream([task("COMPLETED", "", "booked")]));
    assert_eq!(rig.execute(next(&turn, "monday")).await.text(), "booked");
    let messages = agent.messages();
    assert_eq!(addressed(&messages[0]), (&Value::Null, &Value::Null));
    assert_eq!(addressed(&messages[1]), (&json!("t1"), &json!("c1")));
    assert_eq!(messages[1]["messageId"], format!("{}-2", turn.task));
}

#[tokio::test]
async fn another_task_of_the_context_is_another_task_of_the_agents() {
    let agent = asking().await;
    let rig = rig(&agent).await;
    let first = rig.turn("book");
    rig.execute(first.clone()).await.result.unwrap();
    let other =
        json!({ "task": { "id": "t2", "contextId": "c1", "status": { "state": "TASK_STATE_COMPLETED" } } });
    agent.next("SendStreamingMessage", Say::stream([other]));
    rig.run("something else").await.result.unwrap();
    agent.next("SendStreamingMessage", Say::stream([task("COMPLETED", "", "booked")]));
    assert_eq!(rig.execute(next(&first, "monday")).await.text(), "booked");
    let messages = agent.messages();
    assert_eq!(addressed(&messages[1]), (&Value::Null, &json!("c1")));
    assert_eq!(addressed(&messages[2]), (&json!("t1"), &json!("c1")));
}

#[tokio::test]
async fn the_old_question_is_not_taken_for_a_new_one() {
    let agent = FakeAgent::start(Spoken::V1, false).await;
    agent.next("SendMessage", Say::result(task("INPUT_REQUIRED", "when?", "")));
    let rig = rig(&agent).await.setting("poll_seconds", 1);
    let turn = rig.turn("book");
    assert_eq!(rig.execute(turn.clone()).await.result.unwrap().state, FinalState::InputRequired);
    // It answers with the task as it was, and goes on later.
    agent.next("SendMessage", Say::result(task("INPUT_REQUIRED", "when?", "")));
    agent.next("GetTask", Say::result(bare("INPUT_REQUIRED", "when?", "")));
    agent.next("GetTask", Say::result(bare("COMPLETED", "", "booked")));
    assert_eq!(rig.execute(next(&turn, "monday")).await.text(), "booked");
}

#[tokio::test]
async fn an_answer_to_a_task_that_is_over_begins_another_in_its_context() {
    let agent = asking().await;
    let rig = rig(&agent).await;
    let turn = rig.turn("book");
    rig.execute(turn.clone()).await.result.unwrap();
    agent.next("SendStreamingMessage", Say::error(-32004, "task t1 is failed"));
    agent.task(bare("FAILED", "too late", ""));
    let other = json!({ "task": {
        "id": "t2", "contextId": "c1", "status": { "state": "TASK_STATE_COMPLETED" },
        "artifacts": [{ "artifactId": "a", "parts": [{ "text": "anew" }] }],
    } });
    agent.next("SendStreamingMessage", Say::stream([other]));
    assert_eq!(rig.execute(next(&turn, "monday")).await.text(), "anew");
    let messages = agent.messages();
    assert_eq!(addressed(&messages[1]), (&json!("t1"), &json!("c1")));
    assert_eq!(addressed(&messages[2]), (&Value::Null, &json!("c1")));
    assert_eq!(messages.len(), 3);
}

/// hermes-agent does.
#[tokio::test]
async fn an_agent_that_begins_a_task_for_each_message_of_a_context_is_followed() {
    let agent = asking().await;
    let rig = rig(&agent).await;
    let turn = rig.turn("book");
    rig.execute(turn.clone()).await.result.unwrap();
    let other = json!({ "task": {
        "id": "t2", "contextId": "c1", "status": { "state": "TASK_STATE_COMPLETED" },
        "artifacts": [{ "artifactId": "a", "parts": [{ "text": "booked" }] }],
    } });
    agent.next("SendStreamingMessage", Say::stream([other]));
    assert_eq!(rig.execute(next(&turn, "monday")).await.text(), "booked");
}

#[tokio::test]
async fn a_refused_answer_to_a_task_that_is_open_is_a_failure_and_sent_once() {
    let agent = asking().await;
    let rig = rig(&agent).await;
    let turn = rig.turn("book");
    rig.execute(turn.clone()).await.result.unwrap();
    agent.next("SendStreamingMessage", Say::error(-32602, "no dates"));
    agent.task(bare("INPUT_REQUIRED", "when?", ""));
    let ran = rig.execute(next(&turn, "monday")).await;
    assert_eq!(ran.failure().message, "[agent error -32602] no dates");
    assert_eq!(agent.messages().len(), 2);
}

#[tokio::test]
async fn an_agent_that_went_on_after_an_authentication_is_not_asked_again() {
    let agent =
        streaming(Say::stream([task("WORKING", "", ""), update("AUTH_REQUIRED", "log in there")])).await;
    let rig = rig(&agent).await;
    let turn = rig.turn("pay");
    let outcome = rig.execute(turn.clone()).await.result.unwrap();
    assert_eq!(
        (outcome.state, message_text(&outcome.parts).as_str()),
        (FinalState::AuthRequired, "log in there")
    );
    agent.task(bare("COMPLETED", "", "paid"));
    assert_eq!(rig.execute(next(&turn, "done")).await.text(), "paid");
    assert_eq!(agent.messages().len(), 1);
}

#[tokio::test]
async fn a_cancel_of_a_task_that_waits_finds_the_agents_task() {
    let agent = asking().await;
    let rig = rig(&agent).await;
    let turn = rig.turn("book");
    let ran = rig.execute(turn.clone()).await;
    agent.task(bare("CANCELED", "", ""));
    let checkpoint = ran.checkpoints.last().cloned();
    rig.executor().cancel(Turn { checkpoint, ..turn }).await.unwrap();
    assert_eq!(talaria_fakes::params(&agent.asked("CancelTask")[0])["id"], "t1");
}
