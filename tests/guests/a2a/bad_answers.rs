//! Answers that cannot be used fail the turn with a sentence, and the message is sent once.

use serde_json::json;
use talaria_fakes::{FakeAgent, Reply, Say, Spoken};

use super::{bare, next, rig, task};

async fn fails(say: Say) -> String {
    let agent = FakeAgent::start(Spoken::V1, false).await;
    agent.next("SendMessage", say);
    let ran = rig(&agent).await.setting("poll_seconds", 1).run("hello").await;
    assert_eq!(agent.messages().len(), 1, "sent once");
    ran.failure().message.clone()
}

#[tokio::test]
async fn each_answer_that_cannot_be_used_is_a_sentence() {
    let with = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut answer = task("WORKING", "", "");
        change(&mut answer["task"]);
        Say::result(answer)
    };
    for (say, why) in [
        (
            Say::reply(Reply::status(200, "text/html", "<html>sign in</html>")),
            "[agent error] it answered text/html that is not JSON: <html>sign in</html>",
        ),
        (
            Say::reply(Reply::status(301, "text/html", "").header("location", "https://new/")),
            "[agent error 301] it redirects to https://new/, and redirects are not followed; set `url` to where the agent is",
        ),
        (Say::reply(Reply::status(502, "text/plain", "bad gateway")), "[agent error 502] bad gateway"),
        (
            Say::misnumbered(task("COMPLETED", "", "hi")),
            "[agent error] it answered another request than it was asked: the id is 77 and not 1",
        ),
        (Say::error(-32005, "no images"), "[agent error -32005] no images"),
        (
            Say::result(json!({ "hello": 1 })),
            "[agent error] it answered without a task and without a message; the message was not sent again",
        ),
        (
            Say::result(json!("hi")),
            "[agent error] it answered something that is neither a task nor a message",
        ),
        (with(&|task| task["id"] = json!("")), "[agent error] `id` in its answer is no usable id"),
        (
            with(&|task| task["id"] = json!("x".repeat(300))),
            "[agent error] `id` in its answer is no usable id",
        ),
        (
            with(&|task| task["status"]["state"] = json!("TASK_STATE_DONE")),
            "[agent error] its task is in a state that the protocol does not have: \"TASK_STATE_DONE\"",
        ),
        (
            Say::result(task("COMPLETED", "", &"x".repeat(9 << 20))),
            "[agent error] its answer is larger than 8388608 bytes",
        ),
    ] {
        assert_eq!(fails(say).await, why);
    }
}

#[tokio::test]
async fn an_agent_that_breaks_off_may_have_the_message() {
    let why = fails(Say::reply(Reply::raw(""))).await;
    assert!(why.starts_with("[agent unreachable] "), "{why}");
    assert!(why.ends_with("the agent may have the message, which was not sent again"), "{why}");
}

#[tokio::test]
async fn an_answer_about_another_task_is_a_lie() {
    let agent = FakeAgent::start(Spoken::V1, false).await;
    agent.next("SendMessage", Say::result(task("WORKING", "", "")));
    let mut other = bare("COMPLETED", "", "secret of another");
    other["id"] = json!("t2");
    agent.task(other);
    let ran = rig(&agent).await.setting("poll_seconds", 1).run("hello").await;
    assert_eq!(ran.failure().message, "[agent error] it spoke of the task t2 and was asked about t1");
    assert_eq!(agent.messages().len(), 1);
}

#[tokio::test]
async fn an_answer_in_another_context_is_a_lie() {
    let agent = FakeAgent::start(Spoken::V1, false).await;
    agent.next("SendMessage", Say::result(task("COMPLETED", "", "hi")));
    let rig = rig(&agent).await;
    rig.run("hello").await.result.unwrap();
    let mut other = task("COMPLETED", "", "secret of another");
    other["task"]["contextId"] = json!("c2");
    agent.next("SendMessage", Say::result(other));
    let ran = rig.run("again").await;
    assert_eq!(ran.failure().message, "[agent error] it answered in the context c2 and was asked in c1");
}

#[tokio::test]
async fn an_answer_that_begins_another_task_than_the_one_it_was_for_is_a_lie() {
    let agent = FakeAgent::start(Spoken::V1, false).await;
    agent.next("SendMessage", Say::result(task("INPUT_REQUIRED", "when?", "")));
    let rig = rig(&agent).await;
    let turn = rig.turn("book");
    rig.execute(turn.clone()).await.result.unwrap();
    let mut other = task("COMPLETED", "", "hi");
    other["task"]["id"] = json!("t2");
    other["task"]["contextId"] = json!(null);
    agent.next("SendMessage", Say::result(other));
    let ran = rig.execute(next(&turn, "monday")).await;
    assert_eq!(ran.failure().message, "[agent error] it spoke of the task t2 and was asked about t1");
}
