//! 0.3 in.

use serde_json::Value;
use talaria_turns::{Content, Message, Metadata, Part, Role};

use super::WRAPPED;
use crate::hook;
use crate::operation::{Addressed, Configuration, SendMessage};
use crate::read::{Fields, Path};
use crate::refusal::Violation;

/// The parameters of `message/send`.
pub(crate) fn send_message(mut params: Fields<'_>) -> Result<SendMessage, Violation> {
    let addressed = params.object("message", message)?;
    Ok(SendMessage {
        addressed: addressed.ok_or_else(|| params.at("message").refuse("is required"))?,
        configuration: params.object("configuration", configuration)?.unwrap_or_default(),
        metadata: params.metadata("metadata")?,
    })
}

fn configuration(mut fields: Fields<'_>) -> Result<Configuration, Violation> {
    Ok(Configuration {
        return_immediately: !fields.boolean("blocking")?.unwrap_or(true),
        history_length: fields.count("historyLength")?,
        output_modes: fields.strings("acceptedOutputModes")?,
        hook: fields.object("pushNotificationConfig", hook::old)?,
    })
}

pub(super) fn message(mut fields: Fields<'_>) -> Result<Addressed, Violation> {
    if kind(&mut fields)?.is_some_and(|kind| kind != "message") {
        return Err(fields.at("kind").refuse("must be message"));
    }
    let id = fields.required_id("messageId")?;
    let role = match fields.any("role") {
        Some(Value::String(name)) if name == "user" => Role::User,
        Some(Value::String(name)) if name == "agent" => Role::Agent,
        _ => return Err(fields.at("role").refuse("is required and must be user or agent")),
    };
    let parts = fields.list("parts", part)?;
    if parts.is_empty() {
        return Err(fields.at("parts").refuse("must hold at least one part"));
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
            reference_task_ids: fields.strings("referenceTaskIds")?,
        },
    })
}

/// The discriminator, by its name or by the one that 0.2 had.
fn kind(fields: &mut Fields<'_>) -> Result<Option<String>, Violation> {
    match fields.string("kind")? {
        Some(kind) => Ok(Some(kind)),
        None => fields.string("type"),
    }
}

pub(super) fn part(value: Value, path: Path<'_>) -> Result<Part, Violation> {
    let mut fields = Fields::of(value, path)?;
    if let Some(root) = fields.any("root") {
        return part(root, fields.at("root"));
    }
    let kind = kind(&mut fields)?;
    let mut members = [
        fields.text("text")?.map(|text| ("text", Part::text(text))),
        fields.object("file", file)?.map(|file| ("file", file)),
        fields.any("data").map(|value| ("data", Part::new(Content::Data(value)))),
    ]
    .into_iter()
    .flatten();
    let (holds, mut part) = match (members.next(), members.next()) {
        (Some(member), None) => member,
        (Some(_), Some(_)) => return Err(path.refuse("must have only one of text, file and data")),
        (None, _) => {
            return Err(match kind.as_deref() {
                Some("text") => fields.at("text").refuse("is required"),
                Some("file") => fields.at("file").refuse("is required"),
                Some("data") => fields.at("data").refuse("is required"),
                _ => path.refuse("must have one of text, file or data"),
            });
        }
    };
    if kind.is_some_and(|kind| kind != holds) {
        return Err(fields.at("kind").refuse(format!("must be {holds}, which is what the part holds")));
    }
    part.metadata = fields.metadata("metadata")?;
    unwrap_data(&mut part);
    Ok(part)
}

/// Takes data that is no object out of the object that it travels in. The mark goes with it: it is about how the data
/// is written, and is made again where it is.
pub(crate) fn unwrap_data(part: &mut Part) {
    let Content::Data(data) = &mut part.content else { return };
    if let Value::Object(object) = data {
        if !is_wrapped(part.metadata.as_ref()) {
            return;
        }
        let Some(value) = object.swap_remove("value") else { return };
        *data = value;
    }
    if let Some(metadata) = &mut part.metadata
        && metadata.shift_remove(WRAPPED).is_some()
        && metadata.is_empty()
    {
        part.metadata = None;
    }
}

fn is_wrapped(metadata: Option<&Metadata>) -> bool {
    metadata.and_then(|metadata| metadata.get(WRAPPED)) == Some(&Value::Bool(true))
}

fn file(mut fields: Fields<'_>) -> Result<Part, Violation> {
    let content = match (fields.bytes("bytes")?, fields.text("uri")?) {
        (Some(bytes), None) => Content::Bytes(bytes),
        (None, Some(uri)) => Content::Uri(uri),
        (None, None) => return Err(fields.path().refuse("must have one of bytes or uri")),
        (Some(_), Some(_)) => return Err(fields.path().refuse("must have only one of bytes and uri")),
    };
    Ok(Part {
        content,
        media_type: fields.string("mimeType")?,
        filename: fields.string("name")?,
        metadata: None,
    })
}
