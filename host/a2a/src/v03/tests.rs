use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use talaria_turns::{Content, Event, Message, Part, State, Status, Task, Timestamp};

use super::decode::{message, part};
use super::encode::{AnswerOut, MessageOut, PartOut};
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
    let out = MessageOut { message, task: task.as_ref(), context: context.as_ref(), is_result: false };
    serde_json::to_string(&out).unwrap()
}

#[test]
fn encodes_a_task_with_kinds_and_usage() {
    let mut task = Task::new("t1".parse().unwrap(), "c1".parse().unwrap());
    let status =
        Status { state: State::Completed, message: None, at: Timestamp::from_millis(1_794_793_978_686) };
    let metadata = json!({ "talaria/reply": "task", "usage": { "input_tokens": 1 } }).as_object().cloned();
    task.apply(&Event::Status { status, metadata, ends_turn: false }).unwrap();
    task.history
        .push(Arc::new(Message { id: "m1".parse().unwrap(), ..Message::agent(vec![Part::text("hi")]) }));
    let answer = Answer::Sent(Sent::Task(View::new(Arc::new(task), None)));
    assert_eq!(
        serde_json::to_string(&AnswerOut(&answer)).unwrap(),
        concat!(
            r#"{"kind":"task","id":"t1","contextId":"c1","status":{"state":"completed","#,
            r#""timestamp":"2026-11-16T01:52:58.686Z"},"history":[{"kind":"message","messageId":"m1","#,
            r#""contextId":"c1","taskId":"t1","role":"agent","parts":[{"kind":"text","text":"hi"}]}],"#,
            r#""metadata":{"usage":{"input_tokens":1}},"usage":{"input_tokens":1}}"#
        )
    );
}

#[test]
fn decodes_the_forms_that_peers_send() {
    let text = Part::text("hi");
    for form in [
        json!({ "kind": "text", "text": "hi" }),
        json!({ "type": "text", "text": "hi" }),
        json!({ "text": "hi" }),
        json!({ "root": { "kind": "text", "text": "hi" } }),
        json!({ "root": { "text": "hi" }, "kind": null }),
    ] {
        assert_eq!(read_part(form.clone()), Ok(text.clone()), "{form}");
    }
    let file = Part {
        media_type: Some("text/plain".into()),
        filename: Some("o.txt".into()),
        ..Part::new(Content::Bytes(b"tck".into()))
    };
    for form in [
        json!({ "kind": "file", "file": { "bytes": "dGNr", "mimeType": "text/plain", "name": "o.txt" } }),
        json!({ "file": { "bytes": "dGNr", "mime_type": "text/plain", "name": "o.txt", "uri": null } }),
    ] {
        assert_eq!(read_part(form.clone()), Ok(file.clone()), "{form}");
    }
    for form in [
        json!({ "kind": "data", "data": { "value": [1] }, "metadata": { "data_part_compat": true } }),
        json!({ "data": [1] }),
    ] {
        assert_eq!(read_part(form.clone()), Ok(Part::new(Content::Data(json!([1])))), "{form}");
    }
}

#[test]
fn the_mark_of_wrapped_data_is_encoded_once_and_removed_when_decoded() {
    for mark in [true, false] {
        let list = json!({ "kind": "data", "data": [1], "metadata": { "data_part_compat": mark, "a": 1 } });
        let read = read_part(list).unwrap();
        assert_eq!(
            read.metadata,
            json!({ "a": 1 }).as_object().cloned(),
            "a list is not wrapped, whatever the mark says"
        );
        // A caller of 1.0 may send the mark.
        let metadata = json!({ "data_part_compat": mark }).as_object().cloned();
        let part = Part { metadata, ..Part::new(Content::Data(json!([1]))) };
        assert_eq!(
            serde_json::to_string(&PartOut(&part)).unwrap(),
            r#"{"kind":"data","data":{"value":[1]},"metadata":{"data_part_compat":true}}"#
        );
    }
    let object = json!({ "kind": "data", "data": { "a": 1 }, "metadata": { "data_part_compat": true } });
    assert_eq!(serde_json::to_value(PartOut(&read_part(object.clone()).unwrap())).unwrap(), object);
}

#[test]
fn rejects_a_part_whose_kind_contradicts_its_content() {
    for (bad, field) in [
        (json!({}), "parts[0]"),
        (json!({ "kind": "text" }), "parts[0].text"),
        (json!({ "kind": "file" }), "parts[0].file"),
        (json!({ "kind": "data" }), "parts[0].data"),
        (json!({ "kind": "image", "text": "a" }), "parts[0].kind"),
        (json!({ "kind": "text", "data": {} }), "parts[0].kind"),
        (json!({ "kind": "text", "text": "a", "data": {} }), "parts[0]"),
        (json!({ "kind": "file", "file": {} }), "parts[0].file"),
        (json!({ "kind": "file", "file": { "bytes": "", "uri": "x:y" } }), "parts[0].file"),
        (json!({ "kind": "file", "file": "x:y" }), "parts[0].file"),
        (json!({ "kind": 1, "text": "a" }), "parts[0].kind"),
        (json!({ "root": { "text": 1 } }), "parts[0].root.text"),
    ] {
        assert_eq!(read_part(bad.clone()).unwrap_err().field, field, "{bad}");
    }
}

#[test]
fn a_message_may_omit_its_kind_but_not_have_another() {
    let form =
        |kind: Value| json!({ "kind": kind, "messageId": "m", "role": "user", "parts": [{ "text": "hi" }] });
    assert!(read_message(form(json!("message"))).is_ok());
    assert!(read_message(form(Value::Null)).is_ok());
    assert_eq!(read_message(form(json!("task"))).unwrap_err().field, "message.kind");
}

proptest! {
    #[test]
    fn a_part_survives_the_round_trip(sample in samples::part_of_03()) {
        let written = serde_json::to_string(&PartOut(&sample)).unwrap();
        prop_assert_eq!(read_part(serde_json::from_str(&written).unwrap()).unwrap(), sample);
    }

    #[test]
    fn a_message_survives_the_round_trip(sample in samples::message(samples::part_of_03())) {
        let written = write_message(&sample);
        let read = read_message(serde_json::from_str(&written).unwrap()).unwrap();
        prop_assert_eq!(write_message(&read), written);
        prop_assert_eq!(read, sample);
    }
}
