//! Version 0.3 as HTTP+JSON speaks it: ProtoJSON of `a2a.v1`, the proto before 1.0.
//!
//! What differs from 1.0: a message has `content` instead of `parts`, a part is `text`, `file` (`fileWithBytes` or
//! `fileWithUri`, `mimeType`, `name`) or `data` with a `data` of its own, a cancelled task has two Ls, and a status update
//! may be `final`. This is the reading half; the writing half is [`v1::Form::Old`](crate::v1::Form).

use serde_json::Value;
use talaria_turns::{Content, Message, Part};

use crate::operation::{Addressed, Configuration, SendMessage};
use crate::read::{Fields, Path};
use crate::refusal::Violation;
use crate::{hook, v1, v03};

/// The body of `message:send` and `message:stream`.
pub(crate) fn send_message(mut params: Fields<'_>) -> Result<SendMessage, Violation> {
    // `request` is the field's own name, which ProtoJSON reads beside the one that it writes.
    let addressed = match params.object("message", message)? {
        None => params.object("request", message)?,
        addressed => addressed,
    };
    Ok(SendMessage {
        addressed: addressed.ok_or_else(|| params.at("message").refuse("is required"))?,
        configuration: params.object("configuration", configuration)?.unwrap_or_default(),
        metadata: params.metadata("metadata")?,
    })
}

fn configuration(mut fields: Fields<'_>) -> Result<Configuration, Violation> {
    // ProtoJSON leaves out a `false`, so an absent one is a `false`: the SDKs ask not to wait in this way.
    let blocking = fields.boolean("blocking")?.unwrap_or(false);
    let hook = match fields.object("pushNotification", hook::old)? {
        None => fields.object("pushNotificationConfig", hook::old)?,
        hook => hook,
    };
    Ok(Configuration { return_immediately: !blocking, hook, ..v1::configuration(fields)? })
}

fn message(mut fields: Fields<'_>) -> Result<Addressed, Violation> {
    let id = fields.required_id("messageId")?;
    let role = v1::role(&mut fields)?;
    let mut parts = fields.list("content", part)?;
    if parts.is_empty() {
        // Some peers write the name of the other dialect.
        parts = fields.list("parts", part)?;
    }
    if parts.is_empty() {
        return Err(fields.at("content").refuse("must hold at least one part"));
    }
    Ok(Addressed {
        task: fields.id("taskId")?,
        context: fields.id("contextId")?,
        message: Message {
            id,
            role,
            parts,
            metadata: fields.metadata("metadata")?,
            extensions: fields.strings("extensions")?,
            reference_task_ids: Vec::new(),
        },
    })
}

fn part(value: Value, path: Path<'_>) -> Result<Part, Violation> {
    let mut fields = Fields::of(value, path)?;
    let mut members = [
        fields.text("text")?.map(Part::text),
        fields.object("file", file)?,
        fields.object("data", data)?.map(Part::new),
    ]
    .into_iter()
    .flatten();
    let mut part = match (members.next(), members.next()) {
        (Some(part), None) => part,
        (None, _) => return Err(path.refuse("must have one of text, file or data")),
        (Some(_), Some(_)) => return Err(path.refuse("must have only one of text, file and data")),
    };
    part.metadata = fields.metadata("metadata")?;
    v03::unwrap_data(&mut part);
    Ok(part)
}

fn data(mut fields: Fields<'_>) -> Result<Content, Violation> {
    let data = fields.metadata("data")?.ok_or_else(|| fields.at("data").refuse("is required"))?;
    Ok(Content::Data(Value::Object(data)))
}

fn file(mut fields: Fields<'_>) -> Result<Part, Violation> {
    let content = match (fields.bytes("fileWithBytes")?, fields.text("fileWithUri")?) {
        (Some(bytes), None) => Content::Bytes(bytes),
        (None, Some(uri)) => Content::Uri(uri),
        (None, None) => return Err(fields.path().refuse("must have one of fileWithBytes or fileWithUri")),
        (Some(_), Some(_)) => {
            return Err(fields.path().refuse("must have only one of fileWithBytes and fileWithUri"));
        }
    };
    Ok(Part {
        content,
        media_type: fields.string("mimeType")?,
        filename: fields.string("name")?,
        metadata: None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::samples;
    use crate::v1::{Form, MessageOut, PartOut};

    fn read_part(value: Value) -> Result<Part, Violation> {
        part(value, Path::Index(&Path::Field(&Path::Root, "content"), 0))
    }

    #[test]
    fn parts_have_their_old_names() {
        let file = Part {
            media_type: Some("text/plain".into()),
            filename: Some("o.txt".into()),
            ..Part::new(Content::Bytes(b"tck".into()))
        };
        for (part, written) in [
            (Part::text("hi"), json!({ "text": "hi" })),
            (file, json!({ "file": { "fileWithBytes": "dGNr", "mimeType": "text/plain", "name": "o.txt" } })),
            (Part::new(Content::Uri("x:y".into())), json!({ "file": { "fileWithUri": "x:y" } })),
            (Part::new(Content::Data(json!({ "a": 1 }))), json!({ "data": { "data": { "a": 1 } } })),
            (
                Part::new(Content::Data(json!([1]))),
                json!({ "data": { "data": { "value": [1] } }, "metadata": { "data_part_compat": true } }),
            ),
        ] {
            assert_eq!(serde_json::to_value(PartOut(Form::Old, &part)).unwrap(), written);
            assert_eq!(read_part(written), Ok(part));
        }
    }

    #[test]
    fn parts_that_are_none_or_two_are_refused() {
        for (bad, field) in [
            (json!({}), "content[0]"),
            (json!({ "text": "a", "file": { "fileWithUri": "x:y" } }), "content[0]"),
            (json!({ "file": {} }), "content[0].file"),
            (json!({ "file": { "fileWithUri": "x:y", "fileWithBytes": "" } }), "content[0].file"),
            (json!({ "data": { "a": 1 } }), "content[0].data.data"),
            (json!({ "data": { "data": [1] } }), "content[0].data.data"),
            (json!({ "raw": "dGNr" }), "content[0]"),
        ] {
            assert_eq!(read_part(bad.clone()).unwrap_err().field, field, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_message_comes_back_as_it_was(mut sample in samples::message(samples::part_of_03())) {
            sample.message.reference_task_ids.clear();
            let Addressed { message: said, task, context } = &sample;
            let written = serde_json::to_value(MessageOut(Form::Old, said, task.as_ref(), context.as_ref())).unwrap();
            let read = message(Fields::of(written, Path::Root).unwrap()).unwrap();
            prop_assert_eq!(read, sample);
        }
    }
}
