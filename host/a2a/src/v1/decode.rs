//! 1.0 in.

use serde_json::Value;
use talaria_turns::{Content, Message, Part, Role};

use crate::hook;
use crate::operation::{Addressed, Configuration, SendMessage};
use crate::read::{Fields, Path};
use crate::refusal::Violation;

/// The parameters of `SendMessage`.
pub(crate) fn send_message(mut params: Fields<'_>) -> Result<SendMessage, Violation> {
    let addressed = params.object("message", message)?;
    Ok(SendMessage {
        addressed: addressed.ok_or_else(|| params.at("message").refuse("is required"))?,
        configuration: params.object("configuration", configuration)?.unwrap_or_default(),
        metadata: params.metadata("metadata")?,
    })
}

pub(crate) fn configuration(mut fields: Fields<'_>) -> Result<Configuration, Violation> {
    Ok(Configuration {
        return_immediately: fields.boolean("returnImmediately")?.unwrap_or(false),
        history_length: fields.count("historyLength")?,
        output_modes: fields.strings("acceptedOutputModes")?,
        hook: fields.object("taskPushNotificationConfig", hook::flat)?,
    })
}

pub(super) fn message(mut fields: Fields<'_>) -> Result<Addressed, Violation> {
    let id = fields.required_id("messageId")?;
    let role = role(&mut fields)?;
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

pub(crate) fn role(fields: &mut Fields<'_>) -> Result<Role, Violation> {
    let role = match fields.any("role") {
        Some(Value::String(name)) if name == "ROLE_USER" => Some(Role::User),
        Some(Value::String(name)) if name == "ROLE_AGENT" => Some(Role::Agent),
        Some(Value::Number(number)) if number.as_u64() == Some(1) => Some(Role::User),
        Some(Value::Number(number)) if number.as_u64() == Some(2) => Some(Role::Agent),
        _ => None,
    };
    role.ok_or_else(|| fields.at("role").refuse("is required and must be ROLE_USER or ROLE_AGENT"))
}

pub(super) fn part(value: Value, path: Path<'_>) -> Result<Part, Violation> {
    let mut fields = Fields::of(value, path)?;
    // `data` may hold any value, and null is one.
    let null = fields.is_written("data");
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
        (None, _) if null => Content::Data(Value::Null),
        (None, _) => return Err(path.refuse("must have one of text, raw, url or data")),
        (Some(_), Some(_)) => return Err(path.refuse("must have only one of text, raw, url and data")),
    };
    Ok(Part {
        content,
        media_type: fields.string("mediaType")?,
        filename: fields.string("filename")?,
        metadata: fields.metadata("metadata")?,
    })
}
