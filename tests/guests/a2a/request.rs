//! What the agent is sent, in each version and binding.

use serde_json::json;
use talaria_fakes::{FakeAgent, Say, Spoken, params};
use talaria_turns::{Content, Message, Part, Turn};

use super::{KEY, bare, rig, task};

#[tokio::test]
async fn a_turn_is_one_message_of_1_0() {
    let agent = FakeAgent::start(Spoken::V1, false).await;
    agent.want_token("a-token-of-16-chars");
    agent.next("SendMessage", Say::result(task("COMPLETED", "", "hi there")));
    let rig = rig(&agent).await.secret(KEY, "a-token-of-16-chars");
    let turn = rig.turn("hello");
    let ran = rig.execute(turn.clone()).await;
    assert_eq!(ran.text(), "hi there");
    let sent = agent.asked("SendMessage");
    assert_eq!((sent.len(), sent[0].path.as_str()), (1, "/rpc"));
    assert_eq!(sent[0].header("a2a-version"), Some("1.0"));
    assert_eq!(
        params(&sent[0]),
        json!({
            "message": {
                "messageId": format!("{}-1", turn.task), "role": "ROLE_USER", "parts": [{ "text": "hello" }],
                "metadata": { "talaria/hops": 1 },
            },
            "configuration": { "returnImmediately": true },
        })
    );
}

#[tokio::test]
async fn a_turn_is_one_message_of_0_3() {
    let agent = FakeAgent::start(Spoken::V03, false).await;
    let answer = json!({
        "kind": "task", "id": "t1", "contextId": "c1", "status": { "state": "completed" },
        "artifacts": [{ "artifactId": "a", "parts": [{ "kind": "text", "text": "hi there" }] }],
    });
    agent.next("SendMessage", Say::result(answer));
    let rig = rig(&agent).await;
    assert_eq!(rig.run("hello").await.text(), "hi there");
    let sent = agent.asked("SendMessage").remove(0);
    assert_eq!((sent.json()["method"].as_str(), sent.header("a2a-version")), (Some("message/send"), None));
    let sent = params(&sent);
    assert_eq!(sent["configuration"], json!({ "blocking": false }));
    assert_eq!((&sent["message"]["kind"], &sent["message"]["role"]), (&json!("message"), &json!("user")));
    assert_eq!(sent["message"]["parts"], json!([{ "kind": "text", "text": "hello" }]));
}

#[tokio::test]
async fn an_agent_with_http_and_json_alone_is_spoken_to_in_that() {
    let agent = FakeAgent::start(Spoken::Rest, true).await;
    agent.next("SendStreamingMessage", Say::stream([task("WORKING", "", "")]));
    agent.task(bare("COMPLETED", "", "hi there"));
    let rig = rig(&agent).await.setting("tenant", "a b");
    let ran = rig.run("hello").await;
    assert_eq!(ran.text(), "hi there");
    assert_eq!(agent.asked("SendStreamingMessage")[0].path, "/rpc/a%20b/message:stream");
    assert_eq!(agent.asked("GetTask")[0].path, "/rpc/a%20b/tasks/t1?historyLength=0");
}

#[tokio::test]
async fn files_and_data_go_both_ways() {
    let agent = FakeAgent::start(Spoken::V1, false).await;
    let answer = json!({ "message": { "contextId": "c1", "parts": [
        { "text": "here" }, { "raw": "cG5n", "mediaType": "image/png", "filename": "a.png" },
        { "url": "https://f/x", "mediaType": "text/csv" }, { "data": [1, { "a": null }] },
    ] } });
    agent.next("SendMessage", Say::result(answer));
    let rig = rig(&agent).await;
    let file = Part {
        media_type: Some("image/png".into()),
        filename: Some("b.png".into()),
        ..Part::new(Content::Bytes(vec![0xff, 0xfe]))
    };
    let parts = vec![Part::text("look"), file, Part::new(Content::Data(json!([2])))];
    let outcome = rig.execute(rig.turn_of(parts)).await.result.unwrap();
    assert_eq!(
        agent.messages()[0]["parts"],
        json!([
            { "text": "look" }, { "raw": "//4=", "mediaType": "image/png", "filename": "b.png" }, { "data": [2] },
        ])
    );
    let contents: Vec<_> = outcome.parts.iter().map(|part| &part.content).collect();
    assert_eq!(
        contents,
        [
            &Content::Text("here".into()),
            &Content::Bytes(b"png".to_vec()),
            &Content::Uri("https://f/x".into()),
            &Content::Data(json!([1, { "a": null }])),
        ]
    );
    assert_eq!(outcome.parts[1].filename.as_deref(), Some("a.png"));
}

#[tokio::test]
async fn what_is_for_this_host_stays_here_and_hops_are_counted() {
    let agent = FakeAgent::start(Spoken::V1, false).await;
    agent.next("SendMessage", Say::result(task("COMPLETED", "", "hi")));
    let rig = rig(&agent).await;
    let turn = rig.turn("hello");
    let metadata = json!({ "talaria/executor": "a2a", "talaria/hops": 3, "session": { "user_id": "u" } });
    let message = Message { metadata: metadata.as_object().cloned(), ..(*turn.message).clone() };
    let modes = json!({ "talaria/output-modes": ["text/html"], "talaria/tenant": "t", "mine": 1 });
    let metadata = modes.as_object().cloned().map(Into::into);
    rig.execute(Turn { message: message.into(), metadata, ..turn }).await.result.unwrap();
    let sent = params(&agent.asked("SendMessage")[0]);
    assert_eq!(sent["message"]["metadata"], json!({ "session": { "user_id": "u" }, "talaria/hops": 4 }));
    assert_eq!(sent["metadata"], json!({ "mine": 1 }));
    assert_eq!(sent["configuration"]["acceptedOutputModes"], json!(["text/html"]));
}
