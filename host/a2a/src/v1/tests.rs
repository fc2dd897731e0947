use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use talaria_turns::{Artifact, Content, Event, Message, Metadata, Part, State, Status, Task, Timestamp};

use super::decode::{message, part};
use super::encode::{AnswerOut, MessageOut, PartOut, Proto};
use crate::json_fields::{Fields, Path};
use crate::operation::{Addressed, Answer, Sent, View};
use crate::rejection::Violation;
use crate::samples;

fn read_part(value: Value) -> Result<Part, Violation> {
    part(value, Path::Index(&Path::Field(&Path::Root, "parts"), 0))
}

fn read_message(value: Value) -> Result<Addressed, Violation> {
    message(Fields::of(value, Path::Field(&Path::Root, "message")).unwrap())
}

fn write_message(addressed: &Addressed) -> String {
    let Addressed { message, task, context } = addressed;
    serde_json::to_string(&MessageOut(Proto::V1, message, task.as_ref(), context.as_ref())).unwrap()
}

fn task() -> Task {
    let mut task = Task::new("t1".parse().unwrap(), "c1".parse().unwrap());
    let mut question = Message::agent(vec![Part::text("which one?")]);
    question.id = "m2".parse().unwrap();
    let artifact = Artifact {
        id: "a1".into(),
        name: Some("output".into()),
        description: None,
        parts: vec![
            Part {
                media_type: Some("text/plain".into()),
                filename: Some("o.txt".into()),
                ..Part::new(Content::Bytes(b"tck".into()))
            },
            Part::new(Content::Data(json!({ "key": "value", "count": 42 }))),
        ],
        metadata: None,
        extensions: Vec::new(),
    };
    task.apply(&Event::Artifact { artifact: artifact.into(), append: false, last: true }).unwrap();
    let status = Status {
        state: State::InputRequired,
        message: Some(question.into()),
        at: Timestamp::from_millis(1_794_793_978_686),
    };
    let metadata = json!({ "talaria/reply": "task", "usage": { "input_tokens": 1 } }).as_object().cloned();
    task.apply(&Event::Status { status, metadata, ends_turn: false }).unwrap();
    let mut first = Message::agent(vec![Part::text("hi")]);
    (first.id, first.role) = ("m1".parse().unwrap(), talaria_turns::Role::User);
    task.apply(&Event::Accepted { message: first.into(), executor: "e".into(), metadata: None, trace: None })
        .unwrap();
    task
}

#[test]
fn encodes_a_task_as_the_proto_defines_it() {
    let view = View::new(Arc::new(task()), None);
    let written =
        serde_json::to_string(&AnswerOut(Proto::V1, &Answer::Sent(Sent::Task(view.clone())))).unwrap();
    assert_eq!(
        written,
        concat!(
            r#"{"task":{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_INPUT_REQUIRED","message":"#,
            r#"{"messageId":"m2","contextId":"c1","taskId":"t1","role":"ROLE_AGENT","parts":[{"text":"which one?"}]},"#,
            r#""timestamp":"2026-11-16T01:52:58.686Z"},"artifacts":[{"artifactId":"a1","name":"output","parts":["#,
            r#"{"raw":"dGNr","filename":"o.txt","mediaType":"text/plain"},{"data":{"key":"value","count":42}}]}],"#,
            r#""history":[{"messageId":"m1","contextId":"c1","taskId":"t1","role":"ROLE_USER","parts":[{"text":"hi"}]}],"#,
            r#""metadata":{"usage":{"input_tokens":1}}}}"#
        )
    );
    let bare = serde_json::to_value(AnswerOut(Proto::V1, &Answer::Task(view))).unwrap();
    assert_eq!(bare["id"], "t1", "GetTask answers with the task itself");
}

#[test]
fn the_rust_sdk_reads_our_tasks() {
    let view = View::new(Arc::new(task()), None);
    let ours = serde_json::to_value(AnswerOut(Proto::V1, &Answer::Sent(Sent::Task(view)))).unwrap();
    let theirs: a2a::SendMessageResponse = serde_json::from_value(ours.clone()).unwrap();
    assert_eq!(serde_json::to_value(theirs).unwrap(), ours);
}

#[test]
fn decodes_every_form_of_protojson() {
    let read = read_message(json!({
        "message_id": "m", "context_id": "c", "taskId": null, "role": 1, "unknown": [1],
        "parts": [{ "raw": "-_8", "media_type": "x/y", "filename": "" }, { "data": null }, { "kind": "text", "text": "" }],
        "reference_task_ids": ["t"],
    }))
    .unwrap();
    assert_eq!(read.context.unwrap().as_str(), "c");
    assert_eq!(read.task, None);
    assert_eq!(
        read.message.parts,
        [
            Part { media_type: Some("x/y".into()), ..Part::new(Content::Bytes(vec![0xfb, 0xff])) },
            Part::new(Content::Data(Value::Null)),
            Part::text(""),
        ]
    );
    assert_eq!(read.message.reference_task_ids, ["t"]);
}

#[test]
fn rejects_a_part_with_no_content_or_with_two() {
    for (bad, field) in [
        (json!({}), "parts[0]"),
        (json!({ "text": null }), "parts[0]"),
        (json!({ "kind": "file", "file": { "uri": "x:y" } }), "parts[0]"),
        (json!({ "text": "a", "url": "x:y" }), "parts[0]"),
        (json!({ "text": "a", "data": 1 }), "parts[0]"),
        (json!("text"), "parts[0]"),
        (json!({ "text": 1 }), "parts[0].text"),
        (json!({ "raw": "!" }), "parts[0].raw"),
        (json!({ "text": "a", "metadata": [] }), "parts[0].metadata"),
        (json!({ "text": "a", "filename": 1 }), "parts[0].filename"),
    ] {
        assert_eq!(read_part(bad.clone()).unwrap_err().field, field, "{bad}");
    }
}

proptest! {
    #[test]
    fn a_part_survives_the_round_trip(sample in samples::part()) {
        let written = serde_json::to_string(&PartOut(Proto::V1, &sample)).unwrap();
        prop_assert_eq!(read_part(serde_json::from_str(&written).unwrap()).unwrap(), sample);
    }

    #[test]
    fn a_message_survives_the_round_trip(sample in samples::message(samples::part())) {
        let written = write_message(&sample);
        let read = read_message(serde_json::from_str(&written).unwrap()).unwrap();
        prop_assert_eq!(write_message(&read), written);
        prop_assert_eq!(read, sample);
    }

    #[test]
    fn the_rust_sdk_reads_every_message(mut sample in samples::message(samples::part())) {
        // The SDK drops empty metadata, which the proto keeps.
        let full = |metadata: &mut Option<Metadata>| *metadata = metadata.take().filter(|map| !map.is_empty());
        full(&mut sample.message.metadata);
        sample.message.parts.iter_mut().for_each(|part| full(&mut part.metadata));
        let ours: Value = serde_json::from_str(&write_message(&sample)).unwrap();
        let theirs: a2a::Message = serde_json::from_value(ours.clone()).unwrap();
        prop_assert_eq!(serde_json::to_value(theirs).unwrap(), ours);
    }
}
