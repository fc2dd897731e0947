//! A platform that answers nonsense, or nothing: the agent gets a clear result, and no delegation and no answer is lost.

use serde_json::json;
use talaria_fakes::Mood;

use crate::kit::{Agent, platform};

#[tokio::test]
async fn a_delegation_survives_every_nonsense_of_the_platform() {
    tokio::join!(
        survives(Mood::Html),
        survives(Mood::Empty),
        survives(Mood::Huge),
        survives(Mood::Refuses(500))
    );
}

async fn survives(mood: Mood) {
    let platform = platform().await;
    let agent = Agent::new(&platform).await;
    platform.be_at("/delegate", mood);
    let said = agent.ask("delegate_task_async", json!({ "workspace_id": "peer-1", "task": "x" })).await;
    assert_eq!(said["status"], "not sent yet", "{mood:?}: {said}");
    platform.be_at("/delegate", Mood::Well);
    platform.told_delegation(1).await;
    // The answer is there while nobody can read it.
    for path in ["/activity", "/delegations"] {
        platform.be_at(path, mood);
    }
    platform.answer_delegation(1, "found");
    let status = agent.ask("check_task_status", json!({ "task_id": said["delegation_id"] })).await;
    assert_eq!(status["status"], "working", "{mood:?}: {status}");
    for path in ["/activity", "/delegations"] {
        platform.be_at(path, Mood::Well);
    }
    assert!(platform.messages(1).await[0].to_string().contains("found"), "{mood:?}");
    assert_eq!((platform.delegated().len(), platform.delegated()[0].posts), (1, 1), "{mood:?}");
}

#[tokio::test]
async fn a_platform_that_takes_a_delegation_and_does_not_say_so_is_asked_again() {
    let platform = platform().await;
    let agent = Agent::new(&platform).await;
    platform.be_at("/delegate", Mood::Mute);
    let said = agent.ask("delegate_task_async", json!({ "workspace_id": "peer-1", "task": "x" })).await;
    assert_eq!(said["status"], "not sent yet", "{said}");
    platform.be_at("/delegate", Mood::Well);
    platform.answer_delegation(1, "found");
    assert!(platform.messages(1).await[0].to_string().contains("found"));
    assert_eq!(platform.delegated().len(), 1, "the key finds the first one");
}

#[tokio::test]
async fn a_platform_that_does_not_answer_is_given_up_within_the_call() {
    let platform = platform().await;
    let agent = Agent::new(&platform).await;
    platform.be(Mood::Hangs);
    let (memory, message, info) = tokio::join!(
        agent.ask("commit_memory", json!({ "content": "x" })),
        agent.ask("send_message_to_user", json!({ "message": "x" })),
        agent.ask("get_workspace_info", json!({})),
    );
    for said in [memory, message, info] {
        assert_eq!(said["status"], "failed", "{said}");
        assert!(said["reason"].as_str().unwrap().contains("did not answer"), "{said}");
        assert!(said["next_step"].is_string(), "{said}");
    }
}
