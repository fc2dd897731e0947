//! An agent without streams is asked for its task.

use talaria_fakes::{FakeAgent, Reply, Say, Spoken};

use super::{bare, rig, task};

async fn agent() -> FakeAgent {
    let agent = FakeAgent::start(Spoken::V1, false).await;
    agent.next("SendMessage", Say::result(task("SUBMITTED", "", "")));
    agent
}

#[tokio::test]
async fn it_is_asked_until_its_task_is_over() {
    let agent = agent().await;
    agent.next("GetTask", Say::result(bare("WORKING", "on it", "")));
    agent.next("GetTask", Say::result(bare("COMPLETED", "", "done")));
    let ran = rig(&agent).await.setting("poll_seconds", 1).stream("hello").await;
    assert_eq!(ran.text(), "done");
    assert!(ran.events.contains(&talaria_turns::Emitted::Status("on it".into())));
    assert_eq!((agent.messages().len(), agent.asked("GetTask").len()), (1, 2));
    assert!(agent.asked("SubscribeToTask").is_empty());
}

#[tokio::test]
async fn it_is_asked_on_while_it_is_away() {
    let agent = agent().await;
    agent.next("GetTask", Say::reply(Reply::status(503, "text/plain", "restarting")));
    agent.next("GetTask", Say::reply(Reply::raw("nonsense")));
    agent.next("GetTask", Say::result(bare("COMPLETED", "", "back")));
    assert_eq!(rig(&agent).await.setting("poll_seconds", 1).run("hello").await.text(), "back");
    assert_eq!(agent.messages().len(), 1);
}

#[tokio::test]
async fn an_agent_that_streams_less_than_its_card_says_is_asked() {
    let agent = FakeAgent::start(Spoken::V1, true).await;
    agent.next("SendStreamingMessage", Say::error(-32004, "no streams here"));
    agent.next("SendMessage", Say::result(task("COMPLETED", "", "done")));
    assert_eq!(rig(&agent).await.run("hello").await.text(), "done");
}
