//! The conformance component obeys the kits' prefixes.

use talaria_rig::Rig;
use talaria_turns::{Content, Emitted, FinalState, MessageId, Part, Turn};

async fn by_id(id: &str) -> talaria_rig::Ran {
    let rig = Rig::new("conformance").await;
    let turn = rig.turn("hello");
    let id: MessageId = id.parse().unwrap();
    rig.execute(Turn { message: talaria_turns::Message { id, ..(*turn.message).clone() }.into(), ..turn })
        .await
}

#[tokio::test]
async fn the_prefix_of_the_message_id_decides() {
    let completed = by_id("tck-complete-task-1234").await.result.unwrap();
    assert_eq!(completed.state, FinalState::Completed);
    assert_eq!(completed.metadata.unwrap()["talaria/status"], "Hello from TCK");

    let message = by_id("tck-message-response-1").await.result.unwrap();
    assert_eq!(message.parts, vec![Part::text("Direct message response")]);
    assert_eq!(message.metadata.unwrap()["talaria/reply"], "message");

    assert_eq!(by_id("tck-input-required-1").await.result.unwrap().state, FinalState::InputRequired);
    assert_eq!(by_id("tck-reject-task-1").await.result.unwrap().state, FinalState::Rejected);
    assert_eq!(by_id("anything").await.text(), "Completed: hello");
}

#[tokio::test]
async fn the_first_word_of_the_text_decides_too() {
    let rig = Rig::new("conformance").await;
    let ran = rig.run("tck-task-failure please").await;
    assert_eq!(ran.failure().message, "failed as asked");
}

#[tokio::test]
async fn artifacts_come_in_every_kind_and_in_chunks() {
    for (id, content) in [
        ("tck-artifact-text", Content::Text("Generated text content".into())),
        ("tck-artifact-file-url", Content::Uri("https://example.com/output.txt".into())),
        ("tck-artifact-file", Content::Bytes(b"tck".to_vec())),
        ("tck-artifact-data", Content::Data(serde_json::json!({ "key": "value", "count": 42 }))),
        ("tck-stream-001", Content::Text("Generated text content".into())),
    ] {
        let ran = by_id(id).await;
        let [Emitted::Artifact { artifact, append: false, last: true }] = ran.events.as_slice() else {
            panic!("{id}: {:?}", ran.events)
        };
        assert_eq!(artifact.parts[0].content, content, "{id}");
    }
    let chunks = by_id("tck-stream-artifact-chunked").await;
    let flags: Vec<_> = chunks
        .events
        .iter()
        .map(|event| match event {
            Emitted::Artifact { append, last, .. } => (*append, *last),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(flags, [(false, false), (true, true)]);
}

#[tokio::test]
async fn an_act_that_takes_time_or_another_party_says_so() {
    let challenged = by_id("tck-auth-required-1").await.result.unwrap();
    assert_eq!(challenged.state, FinalState::AuthRequired);
    assert!(!challenged.parts.is_empty(), "the caller must learn what to do");

    let long = by_id("tck-long-running-1").await;
    let [Emitted::Status { .. }, Emitted::Artifact { .. }] = long.events.as_slice() else {
        panic!("{:?}", long.events)
    };
    assert_eq!(long.result.unwrap().state, FinalState::Completed);
}

#[tokio::test]
async fn a_task_of_several_turns_asks_until_it_is_done() {
    let rig = Rig::new("conformance").await;
    let begun = rig.turn("tck-multi-turn start").message;
    for (text, state) in [("here is more", FinalState::InputRequired), ("done", FinalState::Completed)] {
        let turn = rig.turn(text);
        let ran = rig.execute(Turn { history: vec![begun.clone()].into(), ..turn }).await;
        assert_eq!(ran.result.unwrap().state, state, "{text}");
    }
}
