//! Translates what 1.0 says into 0.3.

use prost_types::value::Kind;
use prost_types::{Struct, Value};
use talaria_turns::{PushConfig, TaskId};

use super::{card, pb};
use crate::grpc::frame::frame;
use crate::grpc::json::{self, TooDeep};
use crate::grpc::v1::{self, pb as one};
use crate::operation::Answer;
use crate::update_stream::{StreamEvent, StreamItem};
use crate::v03::WRAPPED;

/// Encodes an answer as a frame.
pub(crate) fn answer(answer: &Answer) -> Result<Vec<u8>, TooDeep> {
    use one::send_message_response::Payload as Said;
    use pb::send_message_response::Payload;
    Ok(match answer {
        Answer::Sent(sent) => {
            let payload = v1::sent(sent)?.payload.map(|payload| match payload {
                Said::Task(told) => Payload::Task(task(told)),
                Said::Message(said) => Payload::Msg(message(said)),
            });
            frame(&pb::SendMessageResponse { payload })
        }
        Answer::Task(view) => frame(&task(v1::task(view)?)),
        Answer::Card(card) => frame(&card::v03(card)),
        Answer::PushConfig(task, config) => frame(&push_config(task, config)),
        Answer::PushConfigs(task, configs) => frame(&pb::ListTaskPushNotificationConfigResponse {
            configs: configs.iter().map(|config| push_config(task, config)).collect(),
            next_page_token: String::new(),
        }),
        // 0.3 cannot list tasks, so no request leads there.
        Answer::Tasks(_) | Answer::Done => frame(&()),
    })
}

/// Encodes an update as a message of a stream.
pub(crate) fn update(item: &StreamItem, sequence: u64) -> Result<pb::StreamResponse, TooDeep> {
    use one::stream_response::Payload as Said;
    use pb::stream_response::Payload;
    let is_last = matches!(item, StreamItem::Event(StreamEvent { last: true, .. }));
    let payload = v1::update(item, sequence)?.payload.map(|payload| match payload {
        Said::Task(told) => Payload::Task(task(told)),
        Said::Message(said) => Payload::Msg(message(said)),
        Said::StatusUpdate(update) => Payload::StatusUpdate(pb::TaskStatusUpdateEvent {
            task_id: update.task_id,
            context_id: update.context_id,
            status: update.status.map(status),
            r#final: is_last,
            metadata: update.metadata,
        }),
        Said::ArtifactUpdate(update) => Payload::ArtifactUpdate(pb::TaskArtifactUpdateEvent {
            task_id: update.task_id,
            context_id: update.context_id,
            artifact: update.artifact.map(artifact),
            append: update.append,
            last_chunk: update.last_chunk,
            metadata: update.metadata,
        }),
    });
    Ok(pb::StreamResponse { payload })
}

fn task(task: one::Task) -> pb::Task {
    pb::Task {
        id: task.id,
        context_id: task.context_id,
        status: task.status.map(status),
        artifacts: task.artifacts.into_iter().map(artifact).collect(),
        history: task.history.into_iter().map(message).collect(),
        metadata: task.metadata,
    }
}

fn status(status: one::TaskStatus) -> pb::TaskStatus {
    // The states have the same numbers.
    let one::TaskStatus { state, message: said, timestamp } = status;
    pb::TaskStatus { state, update: said.map(message), timestamp }
}

fn message(message: one::Message) -> pb::Message {
    pb::Message {
        message_id: message.message_id,
        context_id: message.context_id,
        task_id: message.task_id,
        // The roles have the same numbers.
        role: message.role,
        content: message.parts.into_iter().map(part).collect(),
        metadata: message.metadata,
        extensions: message.extensions,
    }
}

fn artifact(artifact: one::Artifact) -> pb::Artifact {
    pb::Artifact {
        artifact_id: artifact.artifact_id,
        name: artifact.name,
        description: artifact.description,
        parts: artifact.parts.into_iter().map(part).collect(),
        metadata: artifact.metadata,
        extensions: artifact.extensions,
    }
}

fn part(part: one::Part) -> pb::Part {
    use one::part::Content;
    use pb::file_part::File;
    use pb::part::Part;
    let one::Part { content, mut metadata, filename, media_type } = part;
    let file = |file| Part::File(pb::FilePart { file: Some(file), mime_type: media_type, name: filename });
    let part = content.map(|content| match content {
        Content::Text(text) => Part::Text(text),
        Content::Raw(bytes) => file(File::FileWithBytes(bytes)),
        Content::Url(uri) => file(File::FileWithUri(uri)),
        Content::Data(value) => Part::Data(pb::DataPart { data: Some(wrapped(value, &mut metadata)) }),
    });
    pb::Part { part, metadata }
}

/// Returns the object that data travels in, and marks it unless the data is that object itself.
fn wrapped(value: Value, metadata: &mut Option<Struct>) -> Struct {
    match value.kind {
        Some(Kind::StructValue(object)) => object,
        kind => {
            metadata.get_or_insert_default().fields.insert(WRAPPED.into(), true.into());
            json::member("value", Value { kind })
        }
    }
}

fn push_config(task: &TaskId, config: &PushConfig) -> pb::TaskPushNotificationConfig {
    let one::TaskPushNotificationConfig { id, url, authentication, .. } = v1::push_config(task, config);
    let authentication = authentication.map(|authentication| pb::AuthenticationInfo {
        schemes: vec![authentication.scheme],
        credentials: String::new(),
    });
    pb::TaskPushNotificationConfig {
        name: format!("tasks/{task}/pushNotificationConfigs/{id}"),
        push_notification_config: Some(pb::PushNotificationConfig {
            id,
            url,
            token: String::new(),
            authentication,
        }),
    }
}
