//! Decodes the requests of 0.3, as `v1` does: everything but the parts of a message through the decoders of JSON.

use serde_json::{Value, json};
use talaria_budget::Charge;
use talaria_turns::{Content, Part};

use super::pb;
use crate::grpc::v1::{addressed, with_members};
use crate::grpc::{Params, frame, json};
use crate::json_fields::Path;
use crate::operation::{Addressed, Verb};
use crate::rejection::{Rejection, Violation};
use crate::v03::unwrap_data;

const TASKS: &str = "tasks/";
const CONFIGS: &str = "/pushNotificationConfigs";

/// Decodes a request. 0.3 has no list, so no request leads there.
pub(crate) fn read(verb: Verb, bytes: &[u8], charge: &mut Charge) -> Result<Params, Rejection> {
    let params = match verb {
        Verb::Send | Verb::Stream => return Ok(send(frame::message(bytes, charge)?)?),
        Verb::Get => {
            let pb::GetTaskRequest { name, history_length } = frame::message(bytes, charge)?;
            json!({ "id": task("name", &name)?, "historyLength": presence(history_length) })
        }
        Verb::Cancel => {
            let pb::CancelTaskRequest { name } = frame::message(bytes, charge)?;
            json!({ "id": task("name", &name)? })
        }
        Verb::Subscribe => {
            let pb::TaskSubscriptionRequest { name } = frame::message(bytes, charge)?;
            json!({ "id": task("name", &name)? })
        }
        Verb::CreatePushConfig => create(frame::message(bytes, charge)?)?,
        Verb::GetPushConfig => {
            let pb::GetTaskPushNotificationConfigRequest { name } = frame::message(bytes, charge)?;
            config_named(&name)?
        }
        Verb::DeletePushConfig => {
            let pb::DeleteTaskPushNotificationConfigRequest { name } = frame::message(bytes, charge)?;
            config_named(&name)?
        }
        Verb::ListPushConfigs => {
            let pb::ListTaskPushNotificationConfigRequest { parent, page_size, page_token } =
                frame::message(bytes, charge)?;
            json!({ "taskId": parent_task(&parent)?, "pageSize": page_size, "pageToken": page_token })
        }
        Verb::ExtendedCard | Verb::List => {
            let pb::GetAgentCardRequest {} = frame::message(bytes, charge)?;
            json!({})
        }
    };
    Ok(Params { params, message: None })
}

fn send(request: pb::SendMessageRequest) -> Result<Params, Violation> {
    let pb::SendMessageRequest { request, configuration, metadata } = request;
    let metadata = json::metadata(metadata, Path::Field(&Path::Root, "metadata"))?;
    let mut params = with_members([]);
    if let Some(metadata) = metadata {
        params.insert("metadata".into(), metadata.into());
    }
    if let Some(configuration) = configuration {
        params.insert(
            "configuration".into(),
            json!({
                "acceptedOutputModes": configuration.accepted_output_modes,
                "historyLength": presence(configuration.history_length),
                "blocking": configuration.blocking,
                "pushNotification": configuration.push_notification.map(push_config),
            }),
        );
    }
    Ok(Params { params: params.into(), message: request.map(message_of).transpose()? })
}

fn message_of(message: pb::Message) -> Result<Addressed, Violation> {
    let pb::Message { message_id, context_id, task_id, role, content, metadata, extensions } = message;
    let path = Path::Field(&Path::Root, "message");
    let mut members = with_members([
        ("messageId", message_id.into()),
        ("contextId", context_id.into()),
        ("taskId", task_id.into()),
        ("role", role.into()),
        ("extensions", extensions.into()),
    ]);
    if let Some(metadata) = json::metadata(metadata, Path::Field(&path, "metadata"))? {
        members.insert("metadata".into(), metadata.into());
    }
    addressed(members, "content", content, part).map(|(addressed, _)| addressed)
}

fn part(part: pb::Part, path: Path<'_>) -> Result<Part, Violation> {
    let pb::Part { part: content, metadata } = part;
    let mut part = match content {
        Some(pb::part::Part::Text(text)) => Part::text(text),
        Some(pb::part::Part::File(file)) => file_part(file, Path::Field(&path, "file"))?,
        Some(pb::part::Part::Data(pb::DataPart { data })) => {
            let path = Path::Field(&path, "data");
            let path = Path::Field(&path, "data");
            let data = json::metadata(data, path)?.ok_or_else(|| path.violation("is required"))?;
            Part::new(Content::Data(data.into()))
        }
        None => return Err(path.violation("must have one of text, file or data")),
    };
    part.metadata = json::metadata(metadata, Path::Field(&path, "metadata"))?;
    unwrap_data(&mut part);
    Ok(part)
}

fn file_part(file: pb::FilePart, path: Path<'_>) -> Result<Part, Violation> {
    let pb::FilePart { file, mime_type, name } = file;
    let content = match file {
        Some(pb::file_part::File::FileWithBytes(bytes)) => Content::Bytes(bytes),
        Some(pb::file_part::File::FileWithUri(uri)) => Content::Uri(uri),
        None => return Err(path.violation("must have one of file_with_bytes or file_with_uri")),
    };
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    Ok(Part { content, media_type: some(mime_type), filename: some(name), metadata: None })
}

fn create(request: pb::CreateTaskPushNotificationConfigRequest) -> Result<Value, Violation> {
    let pb::CreateTaskPushNotificationConfigRequest { parent, config_id, config } = request;
    let config = config.and_then(|config| config.push_notification_config);
    let config = config.ok_or_else(|| {
        Path::Field(&Path::Root, "config").violation("must have a push_notification_config")
    })?;
    Ok(json!({
        "taskId": parent_task(&parent)?,
        "configId": config_id,
        "config": { "pushNotificationConfig": push_config(config) },
    }))
}

fn push_config(config: pb::PushNotificationConfig) -> Value {
    let pb::PushNotificationConfig { id, url, token, authentication } = config;
    let authentication = authentication.map(|pb::AuthenticationInfo { schemes, credentials }| {
        json!({ "schemes": schemes, "credentials": credentials })
    });
    let mut members = with_members([
        ("url", url.into()),
        ("token", token.into()),
        ("authentication", authentication.unwrap_or_default()),
    ]);
    // A configuration without an id is the task's only one.
    if !id.is_empty() {
        members.insert("id".into(), id.into());
    }
    members.into()
}

/// A number without presence: zero is what a client sends that says nothing.
fn presence(number: i32) -> Option<i32> {
    Some(number).filter(|number| *number != 0)
}

/// The id in `tasks/ID`.
fn task<'n>(field: &'static str, name: &'n str) -> Result<&'n str, Violation> {
    let id = name.strip_prefix(TASKS).filter(|id| !id.is_empty() && !id.contains('/'));
    id.ok_or_else(|| Path::Field(&Path::Root, field).violation("must be tasks/ID"))
}

/// The id in `tasks/ID`, which the proto of 0.3 also calls the parent of `tasks/ID/pushNotificationConfigs`.
fn parent_task(parent: &str) -> Result<&str, Violation> {
    task("parent", parent.strip_suffix(CONFIGS).unwrap_or(parent))
}

/// The ids in `tasks/ID/pushNotificationConfigs/ID`.
fn config_named(name: &str) -> Result<Value, Violation> {
    let (task, config) = name
        .strip_prefix(TASKS)
        .and_then(|rest| rest.split_once('/'))
        .and_then(|(task, rest)| Some((task, rest.strip_prefix("pushNotificationConfigs/")?)))
        .filter(|(task, config)| !task.is_empty() && !config.is_empty() && !config.contains('/'))
        .ok_or_else(|| {
            Path::Field(&Path::Root, "name").violation("must be tasks/ID/pushNotificationConfigs/ID")
        })?;
    Ok(json!({ "taskId": task, "id": config }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_resources_have_their_ids() {
        assert_eq!(task("name", "tasks/t1"), Ok("t1"));
        for bad in ["", "t1", "tasks/", "tasks/a/b", "task/t1"] {
            assert_eq!(task("name", bad).unwrap_err().field, "name", "{bad}");
        }
        assert_eq!(parent_task("tasks/t1"), Ok("t1"));
        assert_eq!(parent_task("tasks/t1/pushNotificationConfigs"), Ok("t1"));
        let found = config_named("tasks/t1/pushNotificationConfigs/c1");
        assert_eq!(found, Ok(json!({ "taskId": "t1", "id": "c1" })));
        for bad in ["", "tasks/t1", "tasks/t1/pushNotificationConfigs/", "tasks//pushNotificationConfigs/c"] {
            assert_eq!(config_named(bad).unwrap_err().field, "name", "{bad}");
        }
    }
}
