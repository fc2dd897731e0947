//! A stream that ends or breaks before its task does is followed on.

use serde_json::json;
use talaria_fakes::Say;
use talaria_turns::FailureKind;

use super::{artifact, bare, piece, rig, stream_against, streaming, task, update};

#[tokio::test]
async fn a_broken_stream_is_opened_again_and_nothing_is_sent_twice() {
    let agent = streaming(Say::stream([task("WORKING", "", ""), piece("one ", false)]).cut()).await;
    agent.next("GetTask", Say::result(bare("WORKING", "", "one ")));
    let resumed = [task("WORKING", "", "one two "), piece("three", true), update("COMPLETED", "")];
    agent.next("SubscribeToTask", Say::stream(resumed));
    let ran = rig(&agent).await.stream("hello").await;
    assert_eq!(ran.deltas().concat(), "one two three");
    assert_eq!(ran.text(), "one two three");
    assert_eq!(agent.messages().len(), 1);
}

#[tokio::test]
async fn pieces_that_were_missed_are_in_the_whole_answer() {
    // This agent does not say where its task is when it is followed again.
    let agent = streaming(Say::stream([task("WORKING", "", ""), piece("one ", false)]).cut()).await;
    agent.next("GetTask", Say::result(bare("WORKING", "", "one ")));
    agent.next("SubscribeToTask", Say::stream([piece("three", true)]).cut());
    agent.next("GetTask", Say::result(bare("COMPLETED", "", "one two three")));
    let ran = rig(&agent).await.stream("hello").await;
    assert_eq!(ran.text(), "one two three");
}

#[tokio::test]
async fn the_task_decides_if_the_stream_ends_early() {
    for end in
        [Say::stream([task("WORKING", "", "")]), Say::stream([task("WORKING", "", ""), piece("o", false)])]
    {
        let agent = streaming(end).await;
        agent.task(bare("COMPLETED", "", "one"));
        assert_eq!(rig(&agent).await.stream("hello").await.text(), "one");
        assert_eq!(agent.messages().len(), 1);
    }
}

/// hermes-agent names its artifact anew whenever it shows it.
#[tokio::test]
async fn an_answer_that_changes_its_id_is_one_answer() {
    let agent = streaming(Say::stream([task("WORKING", "", ""), piece("one", false)])).await;
    let mut done = bare("COMPLETED", "one", "one");
    done["artifacts"][0]["artifactId"] = json!("b");
    agent.task(done);
    let ran = rig(&agent).await.stream("hello").await;
    assert_eq!((ran.text(), ran.deltas().concat().as_str()), ("one", "one"));
    assert_eq!(ran.events.len(), 1);
}

#[tokio::test]
async fn a_task_that_the_agent_forgot_is_a_failure() {
    let agent = streaming(Say::stream([task("WORKING", "", "")])).await;
    let ran = rig(&agent).await.stream("hello").await;
    assert_eq!(
        ran.failure().message,
        "[agent error] it does not know its task any more, and its answer is lost"
    );
    assert_eq!(agent.messages().len(), 1);
}

#[tokio::test]
async fn the_agents_failure_is_ours_and_its_rejection_too() {
    let ran = stream_against(Say::stream([task("WORKING", "", ""), update("FAILED", "no model")])).await;
    assert_eq!((ran.failure().kind, ran.failure().message.as_str()), (FailureKind::Upstream, "no model"));
    let ran = stream_against(Say::stream([task("CANCELED", "", "")])).await;
    assert_eq!(ran.failure().message, "[agent error] it cancelled its task, and does not say why");
    let ran = stream_against(Say::stream([task("FAILED", "", "")])).await;
    assert_eq!(ran.failure().message, "[agent error] its task failed, and it does not say why");
    let rejected = stream_against(Say::stream([update("REJECTED", "not my job")])).await.result.unwrap();
    assert_eq!(rejected.state, talaria_turns::FinalState::Rejected);
    assert_eq!(talaria_turns::message_text(&rejected.parts), "not my job");
}

#[tokio::test]
async fn an_artifact_that_is_seen_again_is_not_sent_again() {
    let file = json!({ "artifactId": "f", "parts": [{ "raw": "AAAA" }] });
    let mut working = bare("WORKING", "", "");
    working["artifacts"] = json!([file]);
    let mut done = bare("COMPLETED", "", "");
    done["artifacts"] = json!([file]);
    let agent = streaming(Say::stream([
        json!({ "task": working }),
        artifact(
            json!({
                "artifactId": "g", "parts": [{ "raw": "BBBB" }],
            }),
            false,
        ),
    ]))
    .await;
    agent.task(done);
    let ran = rig(&agent).await.stream("hello").await;
    let ids = ran.events.iter().filter_map(|event| match event {
        talaria_turns::Emitted::Artifact { artifact, .. } => Some(artifact.id.as_str()),
        _ => None,
    });
    assert_eq!(ids.collect::<Vec<_>>(), ["f", "g"]);
}
