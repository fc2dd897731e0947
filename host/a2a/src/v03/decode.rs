//! Decodes 0.3 as JSON-RPC has it.

use serde_json::Value;
use talaria_turns::{Content, Metadata, Part, Role};

use super::WRAPPED;
use crate::dialect::{finish_message, finish_send};
use crate::json_fields::{Fields, Path};
use crate::operation::{Addressed, Configuration, SendMessage};
use crate::push;
use crate::rejection::Violation;

/// Decodes the parameters of `message/send`.
pub(crate) fn send_message(mut params: Fields<'_>) -> Result<SendMessage, Violation> {
    let message = params.object("message", message)?;
    finish_send(params, message, configuration)
}

fn configuration(mut fields: Fields<'_>) -> Result<Configuration, Violation> {
    Ok(Configuration {
        return_immediately: !fields.boolean("blocking")?.unwrap_or(true),
        history_length: fields.count("historyLength")?,
        output_modes: fields.strings("acceptedOutputModes")?,
        push: fields.object("pushNotificationConfig", push::v03)?,
    })
}

pub(super) fn message(mut fields: Fields<'_>) -> Result<Addressed, Violation> {
    if kind(&mut fields)?.is_some_and(|kind| kind != "message") {
        return Err(fields.at("kind").violation("must be message"));
    }
    let id = fields.required_id("messageId")?;
    let role = match fields.any("role") {
        Some(Value::String(name)) if name == "user" => Role::User,
        Some(Value::String(name)) if name == "agent" => Role::Agent,
        _ => return Err(fields.at("role").violation("is required and must be user or agent")),
    };
    let parts = fields.list("parts", part)?;
    let mut addressed = finish_message(&mut fields, id, role, "parts", parts)?;
    addressed.message.reference_task_ids = fields.strings("referenceTaskIds")?;
    Ok(addressed)
}

/// Returns the discriminator, which 0.2 calls `type`.
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
        (Some(_), Some(_)) => return Err(path.violation("must have only one of text, file and data")),
        (None, _) => {
            return Err(match kind.as_deref() {
                Some("text") => fields.at("text").violation("is required"),
                Some("file") => fields.at("file").violation("is required"),
                Some("data") => fields.at("data").violation("is required"),
                _ => path.violation("must have one of text, file or data"),
            });
        }
    };
    if kind.is_some_and(|kind| kind != holds) {
        return Err(fields.at("kind").violation(format!("must be {holds}, which is what the part holds")));
    }
    part.metadata = fields.metadata("metadata")?;
    unwrap_data(&mut part);
    Ok(part)
}

/// Unwraps data that is not an object from the object that it travels in, and removes the mark that says so. The mark
/// belongs to the encoding; the encoder sets it again.
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
        (None, None) => return Err(fields.path().violation("must have one of bytes or uri")),
        (Some(_), Some(_)) => return Err(fields.path().violation("must have only one of bytes and uri")),
    };
    Ok(Part {
        content,
        media_type: fields.string("mimeType")?,
        filename: fields.string("name")?,
        metadata: None,
    })
}
