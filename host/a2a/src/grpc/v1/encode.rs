//! Encodes answers and updates as 1.0 has them. 0.3 is translated from these.

use prost_types::Struct;
use talaria_turns::{
    Artifact, Authentication, Content, ContextId, Message, Metadata, Part, PushConfig, Role, State, Status,
    TaskId, Timestamp, keys,
};

use super::{card, pb};
use crate::grpc::frame::frame;
use crate::grpc::json::{self, TooDeep};
use crate::operation::{Addressed, Answer, Listed, Sent, View};
use crate::stream_form::{Piece, Rendered};
use crate::update_stream::{StreamEvent, StreamItem, TaskRef};

/// Encodes an answer as a frame.
pub(crate) fn answer(answer: &Answer) -> Result<Vec<u8>, TooDeep> {
    Ok(match answer {
        Answer::Sent(said) => frame(&sent(said)?),
        Answer::Task(view) => frame(&task(view)?),
        Answer::Tasks(listed) => frame(&tasks(listed)?),
        Answer::Card(card) => frame(&card::v1(card)),
        Answer::PushConfig(task, config) => frame(&push_config(task, config)),
        Answer::PushConfigs(task, configs) => frame(&pb::ListTaskPushNotificationConfigsResponse {
            configs: configs.iter().map(|config| push_config(task, config)).collect(),
            next_page_token: String::new(),
        }),
        Answer::Done => frame(&()),
    })
}

pub(crate) fn sent(sent: &Sent) -> Result<pb::SendMessageResponse, TooDeep> {
    use pb::send_message_response::Payload;
    let payload = match sent {
        Sent::Task(view) => Payload::Task(task(view)?),
        Sent::Message(message) => Payload::Message(addressed(message)?),
    };
    Ok(pb::SendMessageResponse { payload: Some(payload) })
}

/// Encodes an update as a message of a stream. Its metadata has the number from which a reader can resume.
pub(crate) fn update(item: &StreamItem, sequence: u64) -> Result<pb::StreamResponse, TooDeep> {
    use pb::stream_response::Payload;
    let numbered = |metadata: &mut Option<Struct>| {
        // Exact for 285 years of a thousand events a millisecond.
        let number = (sequence as f64).into();
        metadata.get_or_insert_default().fields.insert(keys::EVENT.into(), number);
    };
    let payload = match item {
        StreamItem::Task(view) => {
            let mut task = task(view)?;
            numbered(&mut task.metadata);
            Payload::Task(task)
        }
        StreamItem::Message(message) => Payload::Message(addressed(message)?),
        StreamItem::Event(event) => {
            let mut payload = event_payload(event)?;
            match &mut payload {
                Payload::StatusUpdate(update) => numbered(&mut update.metadata),
                Payload::ArtifactUpdate(update) => numbered(&mut update.metadata),
                Payload::Task(_) | Payload::Message(_) => {}
            }
            payload
        }
    };
    Ok(pb::StreamResponse { payload: Some(payload) })
}

fn event_payload(event: &StreamEvent) -> Result<pb::stream_response::Payload, TooDeep> {
    use pb::stream_response::Payload;
    let TaskRef { task, context } = &*event.task_ref;
    let (task_id, context_id) = (task.as_str().to_owned(), context.as_str().to_owned());
    let (status, metadata) = match event.rendered() {
        Rendered::Status(status, metadata) => (status_of(status, task, context)?, shown(metadata)?),
        Rendered::Progress(status, text) => {
            let silent = pb::TaskStatus {
                state: state(status.state).into(),
                message: None,
                timestamp: Some(timestamp(status.at)),
            };
            (silent, Some(json::member(keys::STATUS, text)))
        }
        Rendered::Chunk(parts) => {
            let message = pb::Message {
                // Derived from the event, so that a resumed stream sends the same id.
                message_id: format!("chunk-{task}-{}", event.sequence),
                context_id: context_id.clone(),
                task_id: task_id.clone(),
                role: pb::Role::Agent.into(),
                parts: parts.iter().map(part).collect::<Result<_, _>>()?,
                metadata: Some(json::member(keys::CHUNK, true)),
                ..Default::default()
            };
            (bare_status(State::Working, Some(message)), None)
        }
        Rendered::Artifact(Piece { artifact, parts, append, last, is_chunk }) => {
            return Ok(Payload::ArtifactUpdate(pb::TaskArtifactUpdateEvent {
                task_id,
                context_id,
                artifact: Some(artifact_of(artifact, parts)?),
                append,
                last_chunk: last,
                metadata: is_chunk.then(|| json::member(keys::CHUNK, true)),
            }));
        }
        Rendered::Note(name, value) => {
            (bare_status(event.state, None), Some(json::member(keys::note(name), json::value(value)?)))
        }
        Rendered::Nothing => (bare_status(event.state, None), None),
    };
    let status = Some(status);
    Ok(Payload::StatusUpdate(pb::TaskStatusUpdateEvent { task_id, context_id, status, metadata }))
}

pub(crate) fn task(view: &View) -> Result<pb::Task, TooDeep> {
    let task = &*view.task;
    let shown_artifacts = if view.artifacts { task.artifacts.as_slice() } else { &[] };
    let artifacts = shown_artifacts.iter().map(|artifact| artifact_of(artifact, &artifact.parts));
    let history =
        view.history().iter().map(|message| message_of(message, Some(&task.id), Some(&task.context)));
    Ok(pb::Task {
        id: task.id.as_str().into(),
        context_id: task.context.as_str().into(),
        status: Some(status_of(&task.status, &task.id, &task.context)?),
        artifacts: artifacts.collect::<Result<_, _>>()?,
        history: history.collect::<Result<_, _>>()?,
        metadata: shown(Some(&task.metadata))?,
    })
}

fn tasks(listed: &Listed) -> Result<pb::ListTasksResponse, TooDeep> {
    let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    Ok(pb::ListTasksResponse {
        tasks: listed.tasks.iter().map(task).collect::<Result<_, _>>()?,
        next_page_token: listed.next.clone(),
        page_size: number(listed.page_size),
        total_size: number(listed.total),
    })
}

fn status_of(status: &Status, task: &TaskId, context: &ContextId) -> Result<pb::TaskStatus, TooDeep> {
    let message = status.message.as_deref().map(|message| message_of(message, Some(task), Some(context)));
    Ok(pb::TaskStatus {
        timestamp: Some(timestamp(status.at)),
        ..bare_status(status.state, message.transpose()?)
    })
}

fn bare_status(of: State, message: Option<pb::Message>) -> pb::TaskStatus {
    pb::TaskStatus { state: state(of).into(), message, timestamp: None }
}

fn addressed(Addressed { message, task, context }: &Addressed) -> Result<pb::Message, TooDeep> {
    message_of(message, task.as_ref(), context.as_ref())
}

fn message_of(
    message: &Message,
    task: Option<&TaskId>,
    context: Option<&ContextId>,
) -> Result<pb::Message, TooDeep> {
    let Message { id, role, parts, metadata, extensions, reference_task_ids } = message;
    let role = match role {
        Role::User => pb::Role::User,
        Role::Agent => pb::Role::Agent,
    };
    Ok(pb::Message {
        message_id: id.as_str().into(),
        context_id: context.map(|context| context.as_str().to_owned()).unwrap_or_default(),
        task_id: task.map(|task| task.as_str().to_owned()).unwrap_or_default(),
        role: role.into(),
        parts: parts.iter().map(part).collect::<Result<_, _>>()?,
        metadata: metadata.as_ref().map(json::object).transpose()?,
        extensions: extensions.clone(),
        reference_task_ids: reference_task_ids.clone(),
    })
}

fn artifact_of(artifact: &Artifact, parts: &[Part]) -> Result<pb::Artifact, TooDeep> {
    let Artifact { id, name, description, metadata, extensions, .. } = artifact;
    let nothing = [Part::text("")];
    let parts = if parts.is_empty() { &nothing } else { parts };
    Ok(pb::Artifact {
        artifact_id: id.clone(),
        name: name.clone().unwrap_or_default(),
        description: description.clone().unwrap_or_default(),
        parts: parts.iter().map(part).collect::<Result<_, _>>()?,
        metadata: metadata.as_ref().map(json::object).transpose()?,
        extensions: extensions.clone(),
    })
}

fn part(part: &Part) -> Result<pb::Part, TooDeep> {
    let Part { content, media_type, filename, metadata } = part;
    let content = match content {
        Content::Text(text) => pb::part::Content::Text(text.clone()),
        Content::Bytes(bytes) => pb::part::Content::Raw(bytes.clone()),
        Content::Uri(uri) => pb::part::Content::Url(uri.clone()),
        Content::Data(value) => pb::part::Content::Data(json::value(value)?),
    };
    Ok(pb::Part {
        content: Some(content),
        metadata: metadata.as_ref().map(json::object).transpose()?,
        filename: filename.clone().unwrap_or_default(),
        media_type: media_type.clone().unwrap_or_default(),
    })
}

/// A task's metadata, without the entries that are not for the caller.
fn shown(metadata: Option<&Metadata>) -> Result<Option<Struct>, TooDeep> {
    let entries = metadata.into_iter().flatten().filter(|(name, _)| *name != keys::REPLY);
    let shown = json::object(entries)?;
    Ok(Some(shown).filter(|shown| !shown.fields.is_empty()))
}

pub(crate) fn push_config(task: &TaskId, config: &PushConfig) -> pb::TaskPushNotificationConfig {
    let scheme = |authentication: &Authentication| pb::AuthenticationInfo {
        scheme: authentication.scheme.clone(),
        credentials: String::new(),
    };
    pb::TaskPushNotificationConfig {
        id: config.id.as_str().into(),
        task_id: task.as_str().into(),
        url: config.url.clone(),
        authentication: config.authentication.as_ref().map(scheme),
        ..Default::default()
    }
}

fn state(state: State) -> pb::TaskState {
    match state {
        State::Submitted => pb::TaskState::Submitted,
        State::Working => pb::TaskState::Working,
        State::InputRequired => pb::TaskState::InputRequired,
        State::AuthRequired => pb::TaskState::AuthRequired,
        State::Completed => pb::TaskState::Completed,
        State::Failed => pb::TaskState::Failed,
        State::Canceled => pb::TaskState::Canceled,
        State::Rejected => pb::TaskState::Rejected,
    }
}

fn timestamp(at: Timestamp) -> prost_types::Timestamp {
    let millis = at.millis();
    let nanos = (millis % 1000) as i32 * 1_000_000;
    prost_types::Timestamp { seconds: i64::try_from(millis / 1000).unwrap_or(i64::MAX), nanos }
}
