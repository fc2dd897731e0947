//! A stream of the agent becomes the events of the turn.

use serde_json::json;
use talaria_fakes::Say;
use talaria_turns::{Content, Emitted, Part, Usage};

use super::{artifact, piece, rig, stream_against, streaming, task, update};

#[tokio::test]
async fn the_answer_arrives_in_pieces_and_as_a_whole() {
    let ran = stream_against(Say::stream([
        task("SUBMITTED", "", ""),
        update("WORKING", "thinking"),
        piece("Hel", false),
        piece("lo", true),
        update("COMPLETED", ""),
    ]))
    .await;
    assert_eq!(ran.deltas().concat(), "Hello");
    assert_eq!(ran.text(), "Hello");
    assert!(ran.events.contains(&Emitted::Status("thinking".into())), "{:?}", ran.events);
}

#[tokio::test]
async fn a_caller_that_does_not_read_along_gets_the_answer_alone() {
    let agent = streaming(Say::stream([
        task("SUBMITTED", "", ""),
        update("WORKING", "thinking"),
        piece("Hel", false),
        piece("lo", true),
        update("COMPLETED", ""),
    ]))
    .await;
    let ran = rig(&agent).await.run("hello").await;
    assert_eq!((ran.text(), ran.events.len()), ("Hello", 0));
    assert_eq!(agent.messages().len(), 1);
    assert!(agent.asked("GetTask").is_empty(), "the stream said everything");
}

#[tokio::test]
async fn an_answer_that_is_sent_again_as_a_whole_is_one_answer() {
    let whole = artifact(json!({ "artifactId": "a", "parts": [{ "text": "Hello" }] }), false);
    let said = [
        task("WORKING", "", ""),
        piece("Hel", false),
        piece("lo", true),
        whole,
        update("COMPLETED", "Hello"),
    ];
    let ran = stream_against(Say::stream(said)).await;
    assert_eq!(ran.deltas().concat(), "Hello");
    assert_eq!(ran.text(), "Hello");
    assert_eq!(ran.result.unwrap().metadata, None, "the status said the same");
}

#[tokio::test]
async fn pieces_of_a_talaria_are_pieces_of_the_answer() {
    let chunk = |text: &str| {
        let mut update = update("WORKING", text);
        update["statusUpdate"]["status"]["message"]["metadata"] = json!({ "talaria/chunk": true });
        update
    };
    let mut tool = update("WORKING", "");
    tool["statusUpdate"]["metadata"] =
        json!({ "talaria/tool-progress": { "id": "1", "name": "ls", "state": "started", "label": "/" } });
    let whole = artifact(json!({ "artifactId": "reply", "parts": [{ "text": "Hello" }] }), false);
    let mut done = update("COMPLETED", "");
    done["statusUpdate"]["metadata"] = json!({ "usage": { "input_tokens": 3, "output_tokens": 4 } });
    let ran =
        stream_against(Say::stream([task("WORKING", "", ""), chunk("Hel"), tool, chunk("lo"), whole, done]))
            .await;
    assert_eq!(ran.deltas().concat(), "Hello");
    assert!(ran.events.iter().any(|event| matches!(event, Emitted::Tool(tool) if tool.name == "ls")));
    let outcome = ran.result.unwrap();
    assert_eq!(outcome.usage, Some(Usage { input_tokens: 3, output_tokens: 4 }));
    assert_eq!(outcome.parts, [Part::text("Hello")]);
}

#[tokio::test]
async fn other_artifacts_are_passed_on_under_their_names() {
    let file = json!({
        "artifactId": "f", "name": "picture", "description": "of a cat", "metadata": { "k": 1 },
        "parts": [{ "raw": "cG5n", "mediaType": "image/png", "filename": "a.png" }],
    });
    let ran = stream_against(Say::stream([
        task("WORKING", "", ""),
        piece("see", false),
        artifact(file, false),
        update("COMPLETED", "done"),
    ]))
    .await;
    let found = ran.events.iter().find_map(|event| match event {
        Emitted::Artifact { artifact, append: false, .. } => Some(artifact),
        _ => None,
    });
    let found = found.expect("the file");
    assert_eq!((found.id.as_str(), found.name.as_deref()), ("f", Some("picture")));
    assert_eq!(found.parts[0].content, Content::Bytes(b"png".to_vec()));
    assert_eq!(found.metadata, json!({ "k": 1 }).as_object().cloned());
    assert_eq!(ran.text(), "see");
    let metadata = ran.result.unwrap().metadata;
    assert_eq!(metadata, json!({ "talaria/status": "done" }).as_object().cloned());
}

#[tokio::test]
async fn an_artifact_that_is_larger_than_an_event_comes_with_the_answer() {
    let large = "QUJD".repeat(400 << 10);
    let ran = stream_against(Say::stream([
        task("WORKING", "", ""),
        artifact(json!({ "artifactId": "f", "parts": [{ "raw": large, "filename": "large.bin" }] }), false),
        piece(&"ä".repeat(1 << 20), false),
        update("COMPLETED", ""),
    ]))
    .await;
    assert_eq!(ran.deltas().concat(), "ä".repeat(1 << 20));
    let outcome = ran.result.unwrap();
    let [text, file] = outcome.parts.as_slice() else { panic!("{} parts", outcome.parts.len()) };
    assert!(matches!(&text.content, Content::Text(text) if text.len() == 2 << 20));
    assert!(matches!(&file.content, Content::Bytes(bytes) if bytes.len() == 1200 << 10));
    assert_eq!(file.filename.as_deref(), Some("large.bin"));
}

#[tokio::test]
async fn a_message_is_an_answer_too() {
    let message = json!({ "message": { "contextId": "c1", "parts": [{ "text": "hi" }] } });
    assert_eq!(stream_against(Say::stream([message.clone()])).await.text(), "hi");
    assert_eq!(stream_against(Say::result(message)).await.text(), "hi", "instead of a stream");
}
