//! gRPC in 0.3: the same operations in the older proto.

use std::sync::Arc;

use async_trait::async_trait;
use secrecy::SecretString;
use talaria_a2a::Token;
use talaria_turns::{Limits, PushConfig, PushFailure, PushNotification, PushSender};
use tonic::Code;

use crate::grpc_kit::v03::{self, part, send_message_response, stream_response};
use crate::grpc_kit::{Client, number, rest, saying_03, why};
use crate::kit::Host;

struct Silent;

#[async_trait]
impl PushSender for Silent {
    async fn admits(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    async fn deliver(&self, _: &PushConfig, _: &PushNotification) -> Result<(), PushFailure> {
        Ok(())
    }
}

fn text(parts: &[v03::Part]) -> &str {
    match parts.first().and_then(|part| part.part.as_ref()) {
        Some(part::Part::Text(text)) => text,
        other => panic!("not a text: {other:?}"),
    }
}

fn task(response: v03::SendMessageResponse) -> v03::Task {
    match response.payload {
        Some(send_message_response::Payload::Task(task)) => task,
        other => panic!("not a task: {other:?}"),
    }
}

#[tokio::test]
async fn a_send_blocks_if_asked_and_tasks_are_found_by_name() {
    let host = Host::start().await;
    let client = Client::v03(&host).await;
    let answer: v03::SendMessageResponse = client.call("SendMessage", saying_03("hello")).await.unwrap();
    let Some(send_message_response::Payload::Msg(message)) = answer.payload else { panic!("{answer:?}") };
    assert_eq!(text(&message.content), "echo: hello");

    let mut request = saying_03("stuck");
    request.configuration = Some(v03::SendMessageConfiguration::default());
    let stuck = task(client.call("SendMessage", request).await.unwrap());
    assert!(!stuck.status.as_ref().unwrap().state().as_str_name().contains("COMPLETED"), "it did not block");
    host.next_waiting().await;
    let name = format!("tasks/{}", stuck.id);
    let get = v03::GetTaskRequest { name: name.clone(), history_length: 1 };
    let found: v03::Task = client.call("GetTask", get).await.unwrap();
    assert_eq!(text(&found.history[0].content), "stuck");
    let cancelled: v03::Task = client.call("CancelTask", v03::CancelTaskRequest { name }).await.unwrap();
    assert_eq!(cancelled.status.unwrap().state(), v03::TaskState::Cancelled);
    let bad = v03::CancelTaskRequest { name: stuck.id };
    let status = client.call::<_, v03::Task>("CancelTask", bad).await.unwrap_err();
    assert_eq!((status.code(), why(&status).2), (Code::InvalidArgument, vec!["name".to_owned()]));
}

#[tokio::test]
async fn files_and_data_have_the_shapes_of_0_3() {
    let host = Host::start().await;
    let client = Client::v03(&host).await;
    let mut request = saying_03("as-task");
    let file = |file| {
        part::Part::File(v03::FilePart { file: Some(file), mime_type: "a/b".into(), name: "n".into() })
    };
    let object = |name: &str, value: prost_types::Value| prost_types::Struct {
        fields: [(name.to_owned(), value)].into(),
    };
    let list = prost_types::Value::from(vec![1.0.into()]);
    let parts = [
        (file(v03::file_part::File::FileWithBytes(vec![0, 0xff])), None),
        (file(v03::file_part::File::FileWithUri("x:y".into())), None),
        (part::Part::Data(v03::DataPart { data: Some(object("a", 1.0.into())) }), None),
        // What is not an object travels in one, with a mark that the SDKs share.
        (
            part::Part::Data(v03::DataPart { data: Some(object("value", list)) }),
            Some(object("data_part_compat", true.into())),
        ),
    ]
    .map(|(part, metadata)| v03::Part { part: Some(part), metadata });
    request.request.as_mut().unwrap().content.extend(parts.clone());
    let sent = task(client.call("SendMessage", request).await.unwrap());
    assert_eq!(sent.history[0].content[1..], parts);

    let empty = |part| {
        let mut request = saying_03("hello");
        request.request.as_mut().unwrap().content.push(v03::Part { part, metadata: None });
        request
    };
    for (part, field) in [
        (None, "message.content[1]"),
        (Some(part::Part::File(v03::FilePart::default())), "message.content[1].file"),
        (Some(part::Part::Data(v03::DataPart { data: None })), "message.content[1].data.data"),
    ] {
        let sent = client.call::<_, v03::SendMessageResponse>("SendMessage", empty(part)).await;
        assert_eq!(why(&sent.unwrap_err()).2, [field]);
    }
}

#[tokio::test]
async fn the_last_status_of_a_stream_is_final() {
    let host = Host::start().await;
    let client = Client::v03(&host).await;
    let mut stream = client.stream(&[], "SendStreamingMessage", saying_03("say")).await.unwrap();
    let (messages, ended) = rest::<v03::StreamResponse>(&mut stream).await;
    assert!(ended.is_ok(), "{ended:?}");
    let finals: Vec<_> = messages
        .iter()
        .filter_map(|message| match message.payload.as_ref().unwrap() {
            stream_response::Payload::StatusUpdate(update) => Some(update.r#final),
            _ => None,
        })
        .collect();
    assert_eq!(finals.iter().filter(|is_final| **is_final).count(), 1);
    assert_eq!(finals.last(), Some(&true));
    let Some(stream_response::Payload::Task(first)) = &messages[0].payload else { panic!("{messages:?}") };
    assert_eq!(number(first.metadata.as_ref()), 1);

    // A task that is over is shown once.
    let name = format!("tasks/{}", first.id);
    let again = v03::TaskSubscriptionRequest { name };
    let mut stream = client.stream(&[], "TaskSubscription", again).await.unwrap();
    let (messages, ended) = rest::<v03::StreamResponse>(&mut stream).await;
    assert!(ended.is_ok() && messages.len() == 1, "{messages:?}");
}

#[tokio::test]
async fn the_life_of_a_push_configuration_in_0_3_over_grpc() {
    let host = Host::pushing(Arc::new(Silent), |_| {}).await;
    let client = Client::v03(&host).await;
    let asking = task(client.call("SendMessage", saying_03("ask")).await.unwrap());
    let parent = format!("tasks/{}", asking.id);
    let authentication =
        v03::AuthenticationInfo { schemes: vec!["Bearer".into()], credentials: "s3cret".into() };
    let config = v03::PushNotificationConfig {
        id: String::new(),
        url: "https://hooks.example/a".into(),
        token: "t0k".into(),
        authentication: Some(authentication),
    };
    let create = v03::CreateTaskPushNotificationConfigRequest {
        parent: parent.clone(),
        config_id: "c".into(),
        config: Some(v03::TaskPushNotificationConfig {
            name: String::new(),
            push_notification_config: Some(config.clone()),
        }),
    };
    let name = format!("{parent}/pushNotificationConfigs/c");
    let shown = v03::TaskPushNotificationConfig {
        name: name.clone(),
        push_notification_config: Some(v03::PushNotificationConfig {
            id: "c".into(),
            token: String::new(),
            authentication: Some(v03::AuthenticationInfo {
                schemes: vec!["Bearer".into()],
                credentials: String::new(),
            }),
            ..config
        }),
    };
    let created: v03::TaskPushNotificationConfig =
        client.call("CreateTaskPushNotificationConfig", create).await.unwrap();
    assert_eq!(created, shown);
    let get = v03::GetTaskPushNotificationConfigRequest { name: name.clone() };
    let found: v03::TaskPushNotificationConfig =
        client.call("GetTaskPushNotificationConfig", get).await.unwrap();
    assert_eq!(found, shown);
    let list = || v03::ListTaskPushNotificationConfigRequest { parent: parent.clone(), ..Default::default() };
    let listed: v03::ListTaskPushNotificationConfigResponse =
        client.call("ListTaskPushNotificationConfig", list()).await.unwrap();
    assert_eq!(listed.configs, [shown]);
    let delete = v03::DeleteTaskPushNotificationConfigRequest { name };
    client.call::<_, ()>("DeleteTaskPushNotificationConfig", delete).await.unwrap();
    let listed: v03::ListTaskPushNotificationConfigResponse =
        client.call("ListTaskPushNotificationConfig", list()).await.unwrap();
    assert_eq!(listed.configs, []);
    let nothing = v03::CreateTaskPushNotificationConfigRequest { parent, ..Default::default() };
    let refused =
        client.call::<_, v03::TaskPushNotificationConfig>("CreateTaskPushNotificationConfig", nothing).await;
    assert_eq!(why(&refused.unwrap_err()).2, ["config"]);
}

#[tokio::test]
async fn the_extended_card_has_the_fields_of_0_3() {
    let token = Token::new("peer", SecretString::from("s3cret")).unwrap();
    let host = Host::with(
        |config| {
            config.tokens = vec![token];
            config.card.extended_card = true;
        },
        Limits::default(),
    )
    .await;
    let client = Client::v03(&host).await;
    let known = &[("authorization", "Bearer s3cret")];
    let card: v03::AgentCard =
        client.call_as(known, "GetAgentCard", v03::GetAgentCardRequest {}).await.unwrap().into_inner();
    assert!(card.supports_authenticated_extended_card && card.url.starts_with("http://"), "{card:?}");
    let grpc = card.additional_interfaces.iter().find(|interface| interface.transport == "GRPC");
    assert_eq!(grpc.map(|interface| interface.url.clone()), Some(host.address.to_string()));
    assert!(card.security[0].schemes.contains_key("bearer"));
    let version = &[("authorization", "Bearer s3cret"), ("a2a-version", "1.0")];
    let other =
        client.call_as::<_, v03::AgentCard>(version, "GetAgentCard", v03::GetAgentCardRequest {}).await;
    assert_eq!(why(&other.unwrap_err()).1, "VERSION_NOT_SUPPORTED");
}
