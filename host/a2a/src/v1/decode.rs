//! Decodes 1.0.

use serde_json::Value;
use talaria_turns::{Content, Part, Role};

use crate::dialect::{finish_message, finish_send};
use crate::json_fields::{Fields, Path};
use crate::operation::{Addressed, Configuration, SendMessage};
use crate::push;
use crate::rejection::Violation;

/// Decodes the parameters of `SendMessage`.
pub(crate) fn send_message(mut params: Fields<'_>) -> Result<SendMessage, Violation> {
    let message = params.object("message", message)?;
    finish_send(params, message, configuration)
}

pub(crate) fn configuration(mut fields: Fields<'_>) -> Result<Configuration, Violation> {
    Ok(Configuration {
        return_immediately: fields.boolean("returnImmediately")?.unwrap_or(false),
        history_length: fields.count("historyLength")?,
        output_modes: fields.strings("acceptedOutputModes")?,
        push: fields.object("taskPushNotificationConfig", push::flat)?,
    })
}

pub(super) fn message(mut fields: Fields<'_>) -> Result<Addressed, Violation> {
    let id = fields.required_id("messageId")?;
    let role = role(&mut fields)?;
    let parts = fields.list("parts", part)?;
    let mut addressed = finish_message(&mut fields, id, role, "parts", parts)?;
    addressed.message.reference_task_ids = fields.strings("referenceTaskIds")?;
    Ok(addressed)
}

pub(crate) fn role(fields: &mut Fields<'_>) -> Result<Role, Violation> {
    let role = match fields.any("role") {
        Some(Value::String(name)) if name == "ROLE_USER" => Some(Role::User),
        Some(Value::String(name)) if name == "ROLE_AGENT" => Some(Role::Agent),
        Some(Value::Number(number)) if number.as_u64() == Some(1) => Some(Role::User),
        Some(Value::Number(number)) if number.as_u64() == Some(2) => Some(Role::Agent),
        _ => None,
    };
    role.ok_or_else(|| fields.at("role").violation("is required and must be ROLE_USER or ROLE_AGENT"))
}

pub(super) fn part(value: Value, path: Path<'_>) -> Result<Part, Violation> {
    let mut fields = Fields::of(value, path)?;
    // `data` may hold any value, null included.
    let has_data = fields.is_written("data");
    let mut members = [
        fields.text("text")?.map(Content::Text),
        fields.bytes("raw")?.map(Content::Bytes),
        fields.text("url")?.map(Content::Uri),
        fields.any("data").map(Content::Data),
    ]
    .into_iter()
    .flatten();
    let content = match (members.next(), members.next()) {
        (Some(content), None) => content,
        (None, _) if has_data => Content::Data(Value::Null),
        (None, _) => return Err(path.violation("must have one of text, raw, url or data")),
        (Some(_), Some(_)) => return Err(path.violation("must have only one of text, raw, url and data")),
    };
    Ok(Part {
        content,
        media_type: fields.string("mediaType")?,
        filename: fields.string("filename")?,
        metadata: fields.metadata("metadata")?,
    })
}
