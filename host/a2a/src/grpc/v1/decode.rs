//! Decodes the requests of 1.0.
//!
//! All fields but the parts of a message become the members of an object and go through the decoders that JSON has, so that
//! every binding holds a request to the same rules, with the same words. Parts, which hold files, are decoded directly.

use serde_json::{Map, Value, json};
use talaria_budget::Charge;
use talaria_turns::{Content, Part};

use super::pb;
use crate::dialect::finish_message;
use crate::grpc::{Params, frame, json};
use crate::json_fields::{Fields, Path};
use crate::operation::{Addressed, Verb};
use crate::rejection::{Rejection, Violation};
use crate::v1;

/// Decodes a request.
pub(crate) fn read(verb: Verb, bytes: &[u8], charge: &mut Charge) -> Result<Params, Rejection> {
    let params = match verb {
        Verb::Send | Verb::Stream => return Ok(send(frame::message(bytes, charge)?)?),
        Verb::Get => {
            let pb::GetTaskRequest { tenant, id, history_length } = frame::message(bytes, charge)?;
            json!({ "tenant": tenant, "id": id, "historyLength": history_length })
        }
        Verb::List => {
            let request: pb::ListTasksRequest = frame::message(bytes, charge)?;
            json!({
                "tenant": request.tenant,
                "contextId": request.context_id,
                "status": request.status,
                "pageSize": request.page_size,
                "pageToken": request.page_token,
                "historyLength": request.history_length,
                "statusTimestampAfter": request.status_timestamp_after.map(|at| at.to_string()),
                "includeArtifacts": request.include_artifacts,
            })
        }
        Verb::Cancel => {
            let pb::CancelTaskRequest { tenant, id, .. } = frame::message(bytes, charge)?;
            json!({ "tenant": tenant, "id": id })
        }
        Verb::Subscribe => {
            let pb::SubscribeToTaskRequest { tenant, id } = frame::message(bytes, charge)?;
            json!({ "tenant": tenant, "id": id })
        }
        Verb::ExtendedCard => {
            let pb::GetExtendedAgentCardRequest { tenant } = frame::message(bytes, charge)?;
            json!({ "tenant": tenant })
        }
        Verb::CreatePushConfig => push_config(frame::message(bytes, charge)?),
        Verb::GetPushConfig => {
            let request = frame::message(bytes, charge)?;
            let pb::GetTaskPushNotificationConfigRequest { tenant, task_id, id } = request;
            json!({ "tenant": tenant, "taskId": task_id, "id": id })
        }
        Verb::ListPushConfigs => {
            let request: pb::ListTaskPushNotificationConfigsRequest = frame::message(bytes, charge)?;
            json!({
                "tenant": request.tenant,
                "taskId": request.task_id,
                "pageSize": request.page_size,
                "pageToken": request.page_token,
            })
        }
        Verb::DeletePushConfig => {
            let request = frame::message(bytes, charge)?;
            let pb::DeleteTaskPushNotificationConfigRequest { tenant, task_id, id } = request;
            json!({ "tenant": tenant, "taskId": task_id, "id": id })
        }
    };
    Ok(Params { params, message: None })
}

fn send(request: pb::SendMessageRequest) -> Result<Params, Violation> {
    let pb::SendMessageRequest { tenant, message, configuration, metadata } = request;
    let metadata = json::metadata(metadata, Path::Field(&Path::Root, "metadata"))?;
    let mut params = with_members([("tenant", tenant.into())]);
    if let Some(metadata) = metadata {
        params.insert("metadata".into(), metadata.into());
    }
    if let Some(configuration) = configuration {
        let push = configuration.task_push_notification_config.map(push_config);
        params.insert(
            "configuration".into(),
            json!({
                "acceptedOutputModes": configuration.accepted_output_modes,
                "historyLength": configuration.history_length,
                "returnImmediately": configuration.return_immediately,
                "taskPushNotificationConfig": push,
            }),
        );
    }
    Ok(Params { params: params.into(), message: message.map(message_of).transpose()? })
}

fn message_of(message: pb::Message) -> Result<Addressed, Violation> {
    let pb::Message { message_id, context_id, task_id, role, parts, metadata, .. } = message;
    let path = Path::Field(&Path::Root, "message");
    let mut members = with_members([
        ("messageId", message_id.into()),
        ("contextId", context_id.into()),
        ("taskId", task_id.into()),
        ("role", role.into()),
        ("extensions", message.extensions.into()),
        ("referenceTaskIds", message.reference_task_ids.into()),
    ]);
    if let Some(metadata) = json::metadata(metadata, Path::Field(&path, "metadata"))? {
        members.insert("metadata".into(), metadata.into());
    }
    let (mut addressed, mut rest) = addressed(members, "parts", parts, part)?;
    addressed.message.reference_task_ids = rest.strings("referenceTaskIds")?;
    Ok(addressed)
}

/// Returns an object with these members.
pub(crate) fn with_members<const N: usize>(members: [(&str, Value); N]) -> Map<String, Value> {
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Decodes a message from its other members and its parts. `parts_name` is the field that the parts are in. Returns what is left
/// of the members too.
pub(crate) fn addressed<P>(
    members: Map<String, Value>,
    parts_name: &'static str,
    parts: Vec<P>,
    part: fn(P, Path<'_>) -> Result<Part, Violation>,
) -> Result<(Addressed, Fields<'static>), Violation> {
    let mut fields = Fields::of(members.into(), Path::Field(&Path::Root, "message"))?;
    let id = fields.required_id("messageId")?;
    let role = v1::role(&mut fields)?;
    let path = fields.at(parts_name);
    let parts =
        parts.into_iter().enumerate().map(|(index, content)| part(content, Path::Index(&path, index)));
    let parts = parts.collect::<Result<_, _>>()?;
    let addressed = finish_message(&mut fields, id, role, parts_name, parts)?;
    Ok((addressed, fields))
}

fn part(part: pb::Part, path: Path<'_>) -> Result<Part, Violation> {
    let pb::Part { content, metadata, filename, media_type } = part;
    let content = match content {
        Some(pb::part::Content::Text(text)) => Content::Text(text),
        Some(pb::part::Content::Raw(bytes)) => Content::Bytes(bytes),
        Some(pb::part::Content::Url(uri)) => Content::Uri(uri),
        Some(pb::part::Content::Data(data)) => Content::Data(json::plain(data, Path::Field(&path, "data"))?),
        None => return Err(path.violation("must have one of text, raw, url or data")),
    };
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    Ok(Part {
        content,
        media_type: some(media_type),
        filename: some(filename),
        metadata: json::metadata(metadata, Path::Field(&path, "metadata"))?,
    })
}

fn push_config(config: pb::TaskPushNotificationConfig) -> Value {
    let pb::TaskPushNotificationConfig { tenant, id, task_id, url, token, authentication } = config;
    let authentication = authentication.map(|pb::AuthenticationInfo { scheme, credentials }| {
        json!({ "scheme": scheme, "credentials": credentials })
    });
    json!({
        "tenant": tenant, "id": id, "taskId": task_id, "url": url, "token": token, "authentication": authentication,
    })
}
