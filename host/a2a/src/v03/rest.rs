//! Decodes 0.3 as HTTP+JSON has it: ProtoJSON of `a2a.v1`, the proto before 1.0.
//!
//! It differs from 1.0 as follows: a message has `content` instead of `parts`; a part is `text`, `file` (`fileWithBytes` or
//! `fileWithUri`, `mimeType`, `name`) or `data` with a nested `data`; a cancelled task is spelt with two Ls; a status update may
//! be `final`. Encoding is [`v1::Proto::V03`](crate::v1::Proto).

use serde_json::Value;
use talaria_turns::{Content, Part};

use super::unwrap_data;
use crate::dialect::{finish_message, finish_send};
use crate::json_fields::{Fields, Path};
use crate::operation::{Addressed, Configuration, SendMessage};
use crate::rejection::Violation;
use crate::{push, v1};

/// Decodes the body of `message:send` and `message:stream`.
pub(crate) fn send_message(mut params: Fields<'_>) -> Result<SendMessage, Violation> {
    // `request` is the field's name in the proto; ProtoJSON accepts it beside the JSON name.
    let message = match params.object("message", message)? {
        None => params.object("request", message)?,
        message => message,
    };
    finish_send(params, message, configuration)
}

pub(crate) fn configuration(mut fields: Fields<'_>) -> Result<Configuration, Violation> {
    // ProtoJSON omits `false`, so an absent field means `false`; this is how the SDKs ask not to block.
    let blocking = fields.boolean("blocking")?.unwrap_or(false);
    let push = match fields.object("pushNotification", push::v03)? {
        None => fields.object("pushNotificationConfig", push::v03)?,
        push => push,
    };
    Ok(Configuration { return_immediately: !blocking, push, ..v1::configuration(fields)? })
}

fn message(mut fields: Fields<'_>) -> Result<Addressed, Violation> {
    let id = fields.required_id("messageId")?;
    let role = v1::role(&mut fields)?;
    let mut parts = fields.list("content", part)?;
    if parts.is_empty() {
        // Some peers use the name of the other dialect.
        parts = fields.list("parts", part)?;
    }
    // `a2a.v1` has no references to other tasks.
    finish_message(&mut fields, id, role, "content", parts)
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
        (None, _) => return Err(path.violation("must have one of text, file or data")),
        (Some(_), Some(_)) => return Err(path.violation("must have only one of text, file and data")),
    };
    part.metadata = fields.metadata("metadata")?;
    unwrap_data(&mut part);
    Ok(part)
}

fn data(mut fields: Fields<'_>) -> Result<Content, Violation> {
    let data = fields.metadata("data")?.ok_or_else(|| fields.at("data").violation("is required"))?;
    Ok(Content::Data(Value::Object(data)))
}

fn file(mut fields: Fields<'_>) -> Result<Part, Violation> {
    let content = match (fields.bytes("fileWithBytes")?, fields.text("fileWithUri")?) {
        (Some(bytes), None) => Content::Bytes(bytes),
        (None, Some(uri)) => Content::Uri(uri),
        (None, None) => return Err(fields.path().violation("must have one of fileWithBytes or fileWithUri")),
        (Some(_), Some(_)) => {
            return Err(fields.path().violation("must have only one of fileWithBytes and fileWithUri"));
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
    use crate::v1::{MessageOut, PartOut, Proto};

    fn read_part(value: Value) -> Result<Part, Violation> {
        part(value, Path::Index(&Path::Field(&Path::Root, "content"), 0))
    }

    #[test]
    fn parts_have_the_names_of_a2a_v1() {
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
            assert_eq!(serde_json::to_value(PartOut(Proto::V03, &part)).unwrap(), written);
            assert_eq!(read_part(written), Ok(part));
        }
    }

    #[test]
    fn rejects_a_part_with_no_content_or_with_two() {
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
        fn a_message_survives_the_round_trip(mut sample in samples::message(samples::part_of_03())) {
            sample.message.reference_task_ids.clear();
            let Addressed { message: said, task, context } = &sample;
            let written = serde_json::to_value(MessageOut(Proto::V03, said, task.as_ref(), context.as_ref())).unwrap();
            let read = message(Fields::of(written, Path::Root).unwrap()).unwrap();
            prop_assert_eq!(read, sample);
        }
    }
}
