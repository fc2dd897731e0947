//! Broken and lying streams fail the turn with a sentence, and the message is sent once.

use serde_json::json;
use talaria_fakes::Say;

use super::{artifact, bare, piece, rig, streaming, task, update};

async fn fails(say: Say) -> String {
    let agent = streaming(say).await;
    agent.task(bare("WORKING", "", ""));
    let ran = rig(&agent).await.stream("hello").await;
    assert_eq!(agent.messages().len(), 1, "sent once");
    ran.failure().message.clone()
}

#[tokio::test]
async fn each_broken_or_lying_stream_is_a_sentence() {
    let working = || Say::stream([task("WORKING", "", "")]);
    let mut foreign = piece("x", false);
    foreign["artifactUpdate"]["taskId"] = json!("t2");
    let mut elsewhere = update("WORKING", "");
    elsewhere["statusUpdate"]["contextId"] = json!("c2");
    for (say, why) in [
        (
            Say::stream([]),
            "[agent error] its stream ended before it said what became of the message, which was not sent again",
        ),
        (working().raw("{\"jsonrpc\":"), "[agent error] an event of its stream is not JSON"),
        (
            working()
                .raw(&json!({ "jsonrpc": "2.0", "id": 99, "result": task("COMPLETED", "", "") }).to_string()),
            "[agent error] it answered another request than it was asked: the id is 99 and not 1",
        ),
        (
            working().raw(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"broke"}}"#),
            "[agent error -32603] broke",
        ),
        (working().item(foreign), "[agent error] it spoke of the task t2 and was asked about t1"),
        (working().item(elsewhere), "[agent error] it answered in the context c2 and was asked in c1"),
        (
            working().item(json!({ "message": { "parts": [{ "text": "hi" }] } })),
            "[agent error] it answered with a message after it had begun a task",
        ),
        (working().item(artifact(json!({}), false)), "[agent error] `artifactId` is missing in its answer"),
    ] {
        assert_eq!(fails(say).await, why);
    }
}

#[tokio::test]
async fn what_follows_the_end_of_a_task_is_not_read() {
    let late = Say::stream([task("COMPLETED", "", "done"), update("WORKING", "again"), piece("more", true)]);
    let agent = streaming(late).await;
    assert_eq!(rig(&agent).await.stream("hello").await.text(), "done");
}

#[tokio::test]
async fn items_of_later_versions_are_skipped() {
    let agent = streaming(Say::stream([
        task("WORKING", "", ""),
        json!({ "generation": { "taskId": "t1" } }),
        update("COMPLETED", "done"),
    ]))
    .await;
    assert_eq!(rig(&agent).await.stream("hello").await.text(), "done");
}
