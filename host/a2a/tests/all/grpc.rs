//! gRPC in 1.0: every operation does what it does in the other bindings.

use std::sync::Arc;

use async_trait::async_trait;
use secrecy::SecretString;
use talaria_a2a::Token;
use talaria_turns::{Limits, PushConfig, PushFailure, PushNotification, PushSender};
use tonic::Code;

use crate::grpc_kit::v1::{self, send_message_response, stream_response};
use crate::grpc_kit::{Client, number, rest, saying, task, text, why};
use crate::kit::Host;

/// Accepts every webhook and sends nothing.
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

/// What a message of a stream says, and its number.
fn brief(message: &v1::StreamResponse) -> (u64, String) {
    let state = |status: &Option<v1::TaskStatus>| {
        status.as_ref().unwrap().state().as_str_name().trim_start_matches("TASK_STATE_").to_lowercase()
    };
    match message.payload.as_ref().unwrap() {
        stream_response::Payload::Task(task) => {
            (number(task.metadata.as_ref()), format!("task {}", state(&task.status)))
        }
        stream_response::Payload::Message(message) => (0, format!("message {}", text(&message.parts))),
        stream_response::Payload::StatusUpdate(update) => {
            let said = update.status.as_ref().unwrap().message.as_ref();
            let said = said.map(|message| format!(" {:?}", text(&message.parts))).unwrap_or_default();
            let keys: String = update
                .metadata
                .iter()
                .flat_map(|metadata| metadata.fields.keys())
                .filter(|key| *key != "talaria/event")
                .map(|key| format!(" {key}"))
                .collect();
            (number(update.metadata.as_ref()), format!("status {}{said}{keys}", state(&update.status)))
        }
        stream_response::Payload::ArtifactUpdate(update) => {
            let artifact = update.artifact.as_ref().unwrap();
            let append = if update.append { " append" } else { "" };
            let last = if update.last_chunk { " last" } else { "" };
            let brief =
                format!("artifact {} {:?}{append}{last}", artifact.artifact_id, text(&artifact.parts));
            (number(update.metadata.as_ref()), brief)
        }
    }
}

#[tokio::test]
async fn a_send_is_answered_with_a_message_or_a_task() {
    let host = Host::start().await;
    let client = Client::v1(&host).await;
    let answer = client.call_as(&[("a2a-version", "1.0")], "SendMessage", saying("hello")).await.unwrap();
    assert_eq!(answer.metadata().get("a2a-version").unwrap(), "1.0");
    let answer: v1::SendMessageResponse = answer.into_inner();
    let Some(send_message_response::Payload::Message(message)) = answer.payload else {
        panic!("{answer:?}");
    };
    assert_eq!((text(&message.parts), message.role()), ("echo: hello", v1::Role::Agent));
    assert!(!message.context_id.is_empty());

    let sent = task(client.call("SendMessage", saying("file")).await.unwrap());
    assert_eq!(sent.status.as_ref().unwrap().state(), v1::TaskState::Completed);
    assert!(sent.status.as_ref().unwrap().timestamp.is_some());
    let file = &sent.artifacts[0].parts[0];
    assert_eq!(file.content, Some(v1::part::Content::Raw(b"tck".into())));
    assert_eq!(file.media_type, "text/plain");
    let found: v1::Task = client
        .call(
            "GetTask",
            v1::GetTaskRequest { id: sent.id.clone(), history_length: Some(0), ..Default::default() },
        )
        .await
        .unwrap();
    assert_eq!(found, v1::Task { history: Vec::new(), ..sent.clone() });
    let found: v1::Task = client
        .call("GetTask", v1::GetTaskRequest { id: sent.id.clone(), ..Default::default() })
        .await
        .unwrap();
    assert_eq!(text(&found.history[0].parts), "file");
}

#[tokio::test]
async fn every_kind_of_part_arrives_as_it_was_sent() {
    let host = Host::start().await;
    let client = Client::v1(&host).await;
    let data = prost_types::Value::from(vec![1.5.into(), prost_types::Value::from(true)]);
    let metadata = prost_types::Struct { fields: [("k".into(), "v".into())].into() };
    let parts: Vec<_> = [
        v1::part::Content::Text("as-task".into()),
        v1::part::Content::Raw(vec![0, 0xff]),
        v1::part::Content::Url("https://files.example/a".into()),
        v1::part::Content::Data(data),
    ]
    .into_iter()
    .map(|content| v1::Part {
        content: Some(content),
        metadata: Some(metadata.clone()),
        filename: "a.bin".into(),
        media_type: "application/x-a".into(),
    })
    .collect();
    let mut request = saying("");
    let message = request.message.as_mut().unwrap();
    message.parts = parts.clone();
    message.metadata = Some(metadata);
    message.extensions = vec!["urn:x".into()];
    message.reference_task_ids = vec!["other".into()];
    let said = message.clone();
    let sent = task(client.call("SendMessage", request).await.unwrap());
    let stored = &sent.history[0];
    assert_eq!(stored.parts, parts);
    let v1::Message { metadata, extensions, reference_task_ids, message_id, .. } = stored;
    assert_eq!(
        (metadata, extensions, reference_task_ids, message_id),
        (&said.metadata, &said.extensions, &said.reference_task_ids, &said.message_id)
    );
}

#[tokio::test]
async fn a_stream_has_every_update_in_order_and_resumes_exactly() {
    let host = Host::start().await;
    let client = Client::v1(&host).await;
    let mut stream = client.stream(&[], "SendStreamingMessage", saying("say wait")).await.unwrap();
    let first: v1::StreamResponse = stream.message().await.unwrap().unwrap();
    let id = host.next_waiting().await;
    // The client is gone; the turn carries on.
    drop(stream);
    let subscribe = || v1::SubscribeToTaskRequest { id: id.as_str().into(), ..Default::default() };
    let mut cut = client.stream(&[("last-event-id", "1")], "SubscribeToTask", subscribe()).await.unwrap();
    let second: v1::StreamResponse = cut.message().await.unwrap().unwrap();
    let seen = number(match second.payload.as_ref().unwrap() {
        stream_response::Payload::StatusUpdate(update) => update.metadata.as_ref(),
        other => panic!("{other:?}"),
    });
    drop(cut);
    let last = seen.to_string();
    let mut stream =
        client.stream(&[("last-event-id", &last)], "SubscribeToTask", subscribe()).await.unwrap();
    host.script.go.add_permits(1);
    let (messages, trailers) = rest::<v1::StreamResponse>(&mut stream).await;
    assert!(trailers.is_ok(), "{trailers:?}");
    let all: Vec<_> = [first, second].iter().chain(&messages).map(brief).collect();
    let expected = [
        (1, "task submitted"),
        (2, "status working"),
        (3, "status working talaria/status"),
        (4, "status working talaria/tool-progress"),
        (5, "status working talaria/mood"),
        (6, "status working \"Hel\""),
        (8, "artifact doc \"one \""),
        (9, "artifact doc \"two\" append last"),
        (10, "status working \"lo\""),
        (11, "artifact reply \"Hello\" last"),
        (12, "status completed tool_trace"),
    ];
    assert_eq!(all, expected.map(|(number, brief)| (number, brief.to_owned())));
}

#[tokio::test]
async fn a_stream_may_be_a_single_message() {
    let host = Host::start().await;
    let client = Client::v1(&host).await;
    let mut stream = client.stream(&[], "SendStreamingMessage", saying("as-message")).await.unwrap();
    let (messages, _) = rest::<v1::StreamResponse>(&mut stream).await;
    let briefs: Vec<_> = messages.iter().map(|message| brief(message).1).collect();
    assert_eq!(briefs, ["message echo: as-message"]);
}

#[tokio::test]
async fn tasks_are_listed_and_cancelled() {
    let host = Host::start().await;
    let client = Client::v1(&host).await;
    for _ in 0..3 {
        let _: v1::SendMessageResponse = client.call("SendMessage", saying("hello")).await.unwrap();
    }
    let mut request = saying("stuck");
    request.configuration =
        Some(v1::SendMessageConfiguration { return_immediately: true, ..Default::default() });
    let stuck = task(client.call("SendMessage", request).await.unwrap());
    host.next_waiting().await;
    let page = |token: &str| v1::ListTasksRequest {
        page_size: Some(3),
        page_token: token.into(),
        include_artifacts: Some(true),
        ..Default::default()
    };
    let first: v1::ListTasksResponse = client.call("ListTasks", page("")).await.unwrap();
    assert_eq!((first.tasks.len(), first.page_size, first.total_size), (3, 3, 4));
    let second: v1::ListTasksResponse = client.call("ListTasks", page(&first.next_page_token)).await.unwrap();
    assert_eq!((second.tasks.len(), &*second.next_page_token), (1, ""));
    let working = v1::ListTasksRequest { status: v1::TaskState::Working.into(), ..Default::default() };
    let working: v1::ListTasksResponse = client.call("ListTasks", working).await.unwrap();
    assert_eq!(working.tasks.iter().map(|task| &task.id).collect::<Vec<_>>(), [&stuck.id]);
    let since = prost_types::Timestamp { seconds: 4_000_000_000, nanos: 1 };
    let none = v1::ListTasksRequest { status_timestamp_after: Some(since), ..Default::default() };
    let none: v1::ListTasksResponse = client.call("ListTasks", none).await.unwrap();
    assert_eq!(none.total_size, 0);

    let cancel = || v1::CancelTaskRequest { id: stuck.id.clone(), ..Default::default() };
    let cancelled: v1::Task = client.call("CancelTask", cancel()).await.unwrap();
    assert_eq!(cancelled.status.unwrap().state(), v1::TaskState::Canceled);
    let again = client.call::<_, v1::Task>(
        "CancelTask",
        v1::CancelTaskRequest { id: first.tasks.last().unwrap().id.clone(), ..Default::default() },
    );
    let (code, reason, _) = why(&again.await.unwrap_err());
    assert_eq!((code, &*reason), (Code::FailedPrecondition, "TASK_NOT_CANCELABLE"));
}

#[tokio::test]
async fn the_life_of_a_push_configuration() {
    let host = Host::pushing(Arc::new(Silent), |_| {}).await;
    let client = Client::v1(&host).await;
    let asking = task(client.call("SendMessage", saying("ask")).await.unwrap());
    let config = v1::TaskPushNotificationConfig {
        id: "c".into(),
        task_id: asking.id.clone(),
        url: "https://hooks.example/a".into(),
        token: "t0k".into(),
        authentication: Some(v1::AuthenticationInfo {
            scheme: "Bearer".into(),
            credentials: "s3cret".into(),
        }),
        ..Default::default()
    };
    let shown = v1::TaskPushNotificationConfig {
        token: String::new(),
        authentication: Some(v1::AuthenticationInfo { scheme: "Bearer".into(), ..Default::default() }),
        ..config.clone()
    };
    let created: v1::TaskPushNotificationConfig =
        client.call("CreateTaskPushNotificationConfig", config).await.unwrap();
    assert_eq!(created, shown, "secrets are not shown again");
    let one = v1::GetTaskPushNotificationConfigRequest {
        task_id: asking.id.clone(),
        id: "c".into(),
        ..Default::default()
    };
    let found: v1::TaskPushNotificationConfig =
        client.call("GetTaskPushNotificationConfig", one.clone()).await.unwrap();
    assert_eq!(found, shown);
    let all = v1::ListTaskPushNotificationConfigsRequest { task_id: asking.id.clone(), ..Default::default() };
    let listed: v1::ListTaskPushNotificationConfigsResponse =
        client.call("ListTaskPushNotificationConfigs", all).await.unwrap();
    assert_eq!(listed.configs, [shown]);
    let delete = v1::DeleteTaskPushNotificationConfigRequest {
        task_id: asking.id.clone(),
        id: "c".into(),
        ..Default::default()
    };
    client.call::<_, ()>("DeleteTaskPushNotificationConfig", delete).await.unwrap();
    let gone = client.call::<_, v1::TaskPushNotificationConfig>("GetTaskPushNotificationConfig", one).await;
    assert_eq!(gone.unwrap_err().code(), Code::NotFound);

    let mut inline = saying("hello");
    let push = v1::TaskPushNotificationConfig { url: "https://hooks.example/b".into(), ..Default::default() };
    inline.configuration = Some(v1::SendMessageConfiguration {
        task_push_notification_config: Some(push),
        ..Default::default()
    });
    let sent = task(client.call("SendMessage", inline).await.unwrap());
    let all = v1::ListTaskPushNotificationConfigsRequest { task_id: sent.id, ..Default::default() };
    let listed: v1::ListTaskPushNotificationConfigsResponse =
        client.call("ListTaskPushNotificationConfigs", all).await.unwrap();
    assert_eq!(listed.configs[0].url, "https://hooks.example/b");
}

#[tokio::test]
async fn only_callers_with_a_token_are_served_and_see_the_extended_card() {
    let token = Token::new("peer", SecretString::from("s3cret")).unwrap();
    let host = Host::with(
        |config| {
            config.tokens = vec![token];
            config.card.extended_card = true;
        },
        Limits::default(),
    )
    .await;
    let client = Client::v1(&host).await;
    let card = || v1::GetExtendedAgentCardRequest::default();
    for meta in [&[][..], &[("authorization", "Bearer wrong")]] {
        let refused = client.call_as::<_, v1::AgentCard>(meta, "GetExtendedAgentCard", card()).await;
        let status = refused.unwrap_err();
        assert_eq!(why(&status), (Code::Unauthenticated, "UNAUTHENTICATED".into(), Vec::new()), "{status:?}");
        let refused =
            client.call_as::<_, v1::SendMessageResponse>(meta, "SendMessage", saying("hello")).await;
        assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated);
    }
    assert_eq!(host.made(), 0);
    let known = &[("authorization", "Bearer s3cret")];
    let card: v1::AgentCard =
        client.call_as(known, "GetExtendedAgentCard", card()).await.unwrap().into_inner();
    assert_eq!((&*card.name, card.capabilities.unwrap().extended_agent_card), ("Talaria", Some(true)));
    let interfaces: Vec<_> = (card.supported_interfaces.iter())
        .filter(|interface| interface.protocol_binding == "GRPC")
        .map(|interface| (interface.url.clone(), &*interface.protocol_version))
        .collect();
    let address = host.address.to_string();
    assert_eq!(interfaces, [(address.clone(), "1.0"), (address, "0.3")]);
    assert!(matches!(
        card.security_schemes["bearer"].scheme,
        Some(v1::security_scheme::Scheme::HttpAuthSecurityScheme(ref http)) if http.scheme == "Bearer"
    ));
    assert!(card.security_requirements[0].schemes.contains_key("bearer"));
    assert_eq!(card.skills[0].id, "chat");
}

#[tokio::test]
async fn a_tenant_and_extensions_reach_the_turn() {
    let host = Host::start().await;
    let client = Client::v1(&host).await;
    let request = v1::SendMessageRequest { tenant: "acme".into(), ..saying("tenant") };
    let meta = &[("a2a-extensions", "urn:talaria:stream:whole, urn:other")];
    let answer = client.call_as(meta, "SendMessage", request).await.unwrap();
    assert_eq!(answer.metadata().get("a2a-extensions").unwrap(), "urn:talaria:stream:whole");
    let answer: v1::SendMessageResponse = answer.into_inner();
    let Some(send_message_response::Payload::Message(message)) = answer.payload else {
        panic!("{answer:?}");
    };
    assert_eq!(text(&message.parts), "acme");
}

#[tokio::test]
async fn a_shutdown_ends_streams_with_the_number_to_resume_from() {
    let host = Host::start().await;
    let client = Client::v1(&host).await;
    let mut stream = client.stream(&[], "SendStreamingMessage", saying("wait")).await.unwrap();
    let first: v1::StreamResponse = stream.message().await.unwrap().unwrap();
    assert_eq!(brief(&first), (1, "task submitted".into()));
    host.next_waiting().await;
    host.shutdown.cancel();
    let (_, ended) = rest::<v1::StreamResponse>(&mut stream).await;
    let status = ended.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert_eq!(status.metadata().get("last-event-id").unwrap(), "2");
}
