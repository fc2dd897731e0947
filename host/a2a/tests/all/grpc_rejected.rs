//! Bad input over gRPC: a precise status, with the field and the reason in its details, and nothing is written.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use talaria_budget::Budget;
use talaria_turns::Limits;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::grpc_kit::{Client, Meta, saying, saying_03, task, v1, v03, why};
use crate::kit::{Host, patiently};

type Sent = Result<v1::SendMessageResponse, Status>;

/// A change that makes a request bad, and the field that is wrong then.
type Bad = (&'static str, fn(&mut v1::SendMessageRequest), &'static str);

fn message(request: &mut v1::SendMessageRequest) -> &mut v1::Message {
    request.message.as_mut().unwrap()
}

fn configuration(request: &mut v1::SendMessageRequest) -> &mut v1::SendMessageConfiguration {
    request.configuration.get_or_insert_default()
}

const BAD: [Bad; 16] = [
    ("no message", |request| request.message = None, "message"),
    ("no id", |request| message(request).message_id.clear(), "message.message_id"),
    ("no role", |request| message(request).role = 0, "message.role"),
    ("an unknown role", |request| message(request).role = 99, "message.role"),
    ("no parts", |request| message(request).parts.clear(), "message.parts"),
    ("an empty part", |request| message(request).parts[0].content = None, "message.parts[0]"),
    ("a control character", |request| message(request).task_id = "a\nb".into(), "message.task_id"),
    ("a long id", |request| message(request).context_id = "x".repeat(10_000), "message.context_id"),
    ("NaN", |request| message(request).metadata = Some(nan()), "message.metadata"),
    (
        "NaN in a part",
        |request| message(request).parts[0].metadata = Some(nan()),
        "message.parts[0].metadata",
    ),
    (
        "NaN as data",
        |request| message(request).parts[0].content = Some(v1::part::Content::Data(f64::NAN.into())),
        "message.parts[0].data",
    ),
    ("NaN in the request", |request| request.metadata = Some(nan()), "metadata"),
    (
        "a negative length",
        |request| configuration(request).history_length = Some(-1),
        "configuration.history_length",
    ),
    (
        "a push configuration without a URL",
        |request| configuration(request).task_push_notification_config = Some(Default::default()),
        "configuration.task_push_notification_config.url",
    ),
    (
        "a push configuration with a broken scheme",
        |request| {
            let authentication = v1::AuthenticationInfo { scheme: "a b".into(), ..Default::default() };
            configuration(request).task_push_notification_config = Some(v1::TaskPushNotificationConfig {
                url: "https://a".into(),
                authentication: Some(authentication),
                ..Default::default()
            });
        },
        "configuration.task_push_notification_config.authentication.scheme",
    ),
    (
        "a push configuration without a scheme",
        |request| {
            configuration(request).task_push_notification_config = Some(v1::TaskPushNotificationConfig {
                url: "https://a".into(),
                authentication: Some(Default::default()),
                ..Default::default()
            });
        },
        "configuration.task_push_notification_config.authentication.scheme",
    ),
];

fn nan() -> prost_types::Struct {
    prost_types::Struct { fields: [("x".into(), f64::NAN.into())].into() }
}

#[tokio::test]
async fn a_bad_field_is_named_in_the_details() {
    let host = Host::start().await;
    let client = Client::v1(&host).await;
    for (what, spoil, field) in BAD {
        for method in ["SendMessage", "SendStreamingMessage"] {
            let mut request = saying("hello");
            spoil(&mut request);
            let status = client.call::<_, v1::SendMessageResponse>(method, request).await.unwrap_err();
            let found = why(&status);
            let expected = (Code::InvalidArgument, "INVALID_PARAMS".to_owned(), vec![field.to_owned()]);
            assert_eq!(found, expected, "{what}: {status:?}");
            assert!(status.message().starts_with(field), "{what}: {status:?}");
        }
    }
    assert_eq!(host.made(), 0);
}

#[tokio::test]
async fn bad_parameters_of_the_other_operations_are_named_too() {
    let host = Host::start().await;
    let client = Client::v1(&host).await;
    let get = client.call::<_, v1::Task>("GetTask", v1::GetTaskRequest::default()).await.unwrap_err();
    assert_eq!(why(&get).2, ["id"]);
    let list = |request| {
        let client = client.clone();
        async move {
            let status = client.call::<_, v1::ListTasksResponse>("ListTasks", request).await.unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument);
            why(&status).2
        }
    };
    let bad = v1::ListTasksRequest { status: 99, ..Default::default() };
    assert_eq!(list(bad).await, ["status"], "an unknown state");
    let bad = v1::ListTasksRequest { page_size: Some(0), ..Default::default() };
    assert_eq!(list(bad).await, ["page_size"]);
    let bad = v1::ListTasksRequest { page_size: Some(101), ..Default::default() };
    assert_eq!(list(bad).await, ["page_size"]);
    let bad = v1::ListTasksRequest { page_token: "x".into(), ..Default::default() };
    assert_eq!(list(bad).await, ["page_token"]);
    let at = prost_types::Timestamp { seconds: i64::MAX, nanos: i32::MIN };
    let bad = v1::ListTasksRequest { status_timestamp_after: Some(at), ..Default::default() };
    assert_eq!(list(bad).await, ["status_timestamp_after"]);
    for (last, method) in [("x", "SubscribeToTask"), ("1", "SendStreamingMessage")] {
        let meta = &[("last-event-id", last)];
        let status = match method {
            "SubscribeToTask" => {
                let request = v1::SubscribeToTaskRequest { id: "t".into(), ..Default::default() };
                client.call_as::<_, v1::StreamResponse>(meta, method, request).await.unwrap_err()
            }
            _ => client.call_as::<_, v1::StreamResponse>(meta, method, saying("hello")).await.unwrap_err(),
        };
        assert_eq!(why(&status).2, ["last-event-id"], "{status:?}");
    }
    assert_eq!(host.made(), 0);
}

#[tokio::test]
async fn every_error_has_its_code_and_its_reason() {
    let host = Host::with(|config| config.card.streaming = false, Limits::default()).await;
    let client = Client::v1(&host).await;
    let is = |status: Status, code, reason: &str| {
        let (found, said, _) = why(&status);
        assert_eq!((found, &*said), (code, reason), "{status:?}");
    };
    let get = |id: &str| v1::GetTaskRequest { id: id.into(), ..Default::default() };
    let missing = client.call::<_, v1::Task>("GetTask", get("nowhere")).await;
    is(missing.unwrap_err(), Code::NotFound, "TASK_NOT_FOUND");
    let stream = client.call::<_, v1::StreamResponse>("SendStreamingMessage", saying("hello")).await;
    is(stream.unwrap_err(), Code::FailedPrecondition, "UNSUPPORTED_OPERATION");
    let push =
        v1::TaskPushNotificationConfig { task_id: "t".into(), url: "https://a".into(), ..Default::default() };
    let push =
        client.call::<_, v1::TaskPushNotificationConfig>("CreateTaskPushNotificationConfig", push).await;
    is(push.unwrap_err(), Code::FailedPrecondition, "PUSH_NOTIFICATION_NOT_SUPPORTED");
    let card =
        client.call::<_, v1::AgentCard>("GetExtendedAgentCard", v1::GetExtendedAgentCardRequest::default());
    is(card.await.unwrap_err(), Code::FailedPrecondition, "UNSUPPORTED_OPERATION");
    for version in ["0.3", "99.0", "x"] {
        let meta = &[("a2a-version", version)];
        let other = client.call_as::<_, v1::Task>(meta, "GetTask", get("t")).await;
        is(other.unwrap_err(), Code::FailedPrecondition, "VERSION_NOT_SUPPORTED");
    }
    for method in ["Nothing", "sendMessage", "SendMessage/"] {
        is(client.raw(&[], method, b"").await.unwrap_err(), Code::Unimplemented, "METHOD_NOT_FOUND");
    }
    let mut named = saying("hello");
    message(&mut named).task_id = "nowhere".into();
    let named: Sent = client.call("SendMessage", named).await;
    is(named.unwrap_err(), Code::NotFound, "TASK_NOT_FOUND");
    assert_eq!(host.made(), 0);

    let old = Client::v03(&host).await;
    let missing = v03::GetTaskRequest { name: "tasks/nowhere".into(), ..Default::default() };
    let missing = old.call::<_, v03::Task>("GetTask", missing).await.unwrap_err();
    assert_eq!(
        missing.message(),
        "TaskNotFoundError: task nowhere not found",
        "clients of 0.3 read the class"
    );
}

#[tokio::test]
async fn a_message_over_the_bound_is_rejected_and_the_connection_lives() {
    let host = Host::with(|config| config.limits.body = 10_000, Limits::default()).await;
    let client = Client::v1(&host).await;
    for size in [10_000, 100_000, 1_000_000] {
        let sent: Sent = client.call("SendMessage", saying(&"x".repeat(size))).await;
        let status = sent.unwrap_err();
        assert_eq!(
            why(&status),
            (Code::ResourceExhausted, "REQUEST_TOO_LARGE".into(), Vec::new()),
            "{status:?}"
        );
        assert!(status.message().contains("10000 bytes"), "{status:?}");
        assert!(status.get_error_details().retry_info().is_none(), "it would be too large again");
    }
    assert_eq!(host.made(), 0);
    let _: v1::SendMessageResponse = client.call("SendMessage", saying("hello")).await.unwrap();
}

#[tokio::test]
async fn a_broken_message_is_rejected() {
    let host = Host::start().await;
    let client = Client::v1(&host).await;
    let whole = saying("hello").encode_to_vec();
    for cut in 1..whole.len() {
        // Some cuts leave a message that lacks something, which is another error.
        let status = client.raw(&[], "SendMessage", &whole[..cut]).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{cut}: {status:?}");
    }
    for bytes in [b"\xff\xff\xff".as_slice(), b"\x12\x03\x0a\x01\xff", b"\x0f", &[0x12; 4096]] {
        let status = client.raw(&[], "SendMessage", bytes).await.unwrap_err();
        assert_eq!(why(&status), (Code::InvalidArgument, "PARSE_ERROR".into(), Vec::new()), "{status:?}");
        assert!(status.message().starts_with("the message cannot be decoded: "), "{status:?}");
    }
    // Fields that we do not know are nothing bad.
    let mut more = whole.clone();
    more.extend(b"\xfa\x01\x03abc");
    client.raw(&[], "SendMessage", &more).await.unwrap();
    assert_eq!(host.made(), 1);
}

const SEND: &str = "/lf.a2a.v1.A2AService/SendMessage";

/// Sends any body, without a client of gRPC, and returns the status.
async fn raw(host: &Host, meta: Meta<'_>, body: &[u8]) -> (u16, String) {
    raw_to(host, SEND, meta, body).await
}

/// The frame of a message.
fn framed(message: &impl Message) -> Vec<u8> {
    let message = message.encode_to_vec();
    let mut frame = vec![0];
    frame.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    frame.extend(message);
    frame
}

async fn raw_to(host: &Host, path: &str, meta: Meta<'_>, body: &[u8]) -> (u16, String) {
    let mut request = http::Request::post(format!("http://{}{path}", host.address));
    for (name, value) in meta {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::copy_from_slice(body))).unwrap();
    let io = TokioIo::new(host.connect().await);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    let clients = tokio_util::task::TaskTracker::new();
    clients.spawn(connection);
    let answer = patiently(sender.send_request(request)).await.unwrap();
    let status = answer.status().as_u16();
    let code =
        |headers: &http::HeaderMap| headers.get("grpc-status").map(|code| code.to_str().unwrap().to_owned());
    let head = code(answer.headers());
    let trailers = answer.into_body().collect().await.unwrap().trailers().and_then(code);
    (status, head.or(trailers).unwrap_or_default())
}

const GRPC: (&str, &str) = ("content-type", "application/grpc");

#[tokio::test]
async fn a_body_that_is_not_one_message_is_rejected() {
    let host = Host::start().await;
    let frame = framed(&saying("hello"));
    let invalid = (200, (Code::InvalidArgument as i32).to_string());
    let twice = [frame.clone(), frame.clone()].concat();
    let mut compressed = frame.clone();
    compressed[0] = 1;
    let huge = b"\0\xff\xff\xff\xff".to_vec();
    for body in [b"".to_vec(), b"\0".to_vec(), frame[..frame.len() - 1].to_vec(), twice, compressed, huge] {
        assert_eq!(raw(&host, &[GRPC], &body).await, invalid, "{body:?}");
    }
    let gzip = &[GRPC, ("grpc-encoding", "gzip")];
    assert_eq!(raw(&host, gzip, &frame).await, (200, (Code::Unimplemented as i32).to_string()));
    let timeout = &[GRPC, ("grpc-timeout", "soon")];
    assert_eq!(raw(&host, timeout, &frame).await, invalid);
    for media in ["application/grpc-web", "application/grpc+json", "application/octet-stream"] {
        let (status, _) = raw(&host, &[("content-type", media)], &frame).await;
        assert_eq!(status, 404, "{media}: there is nothing at this path for other media types");
    }
    assert_eq!(host.made(), 0);
    let (status, code) = raw(&host, &[GRPC, ("grpc-encoding", "identity")], &frame).await;
    assert_eq!((status, &*code, host.made()), (200, "0", 1));
}

#[tokio::test]
async fn metadata_that_is_too_large_is_rejected_and_the_connection_lives() {
    let host = Host::start().await;
    let client = Client::v1(&host).await;
    let large = "x".repeat(20_000);
    let meta = [("x-large", large.as_str())];
    let sent: Result<tonic::Response<v1::SendMessageResponse>, Status> =
        client.call_as(&meta, "SendMessage", saying("hello")).await;
    let status = sent.unwrap_err();
    assert_ne!(status.code(), Code::Ok);
    assert_eq!(host.made(), 0, "{status:?}");
    let _: v1::SendMessageResponse = client.call("SendMessage", saying("hello")).await.unwrap();
}

/// tonic's client would end a call at its deadline by itself.
#[tokio::test]
async fn a_deadline_ends_the_wait_and_not_the_turn() {
    let host = Host::start().await;
    let exceeded = (200, (Code::DeadlineExceeded as i32).to_string());
    let late = raw(&host, &[GRPC, ("grpc-timeout", "300m")], &framed(&saying("wait"))).await;
    assert_eq!(late, exceeded);
    let id = host.next_waiting().await;
    let subscribe = framed(&v1::SubscribeToTaskRequest { id: id.as_str().into(), ..Default::default() });
    let path = "/lf.a2a.v1.A2AService/SubscribeToTask";
    for timeout in ["1u", "300m"] {
        let late = raw_to(&host, path, &[GRPC, ("grpc-timeout", timeout)], &subscribe).await;
        assert_eq!(late, exceeded, "{timeout}");
    }
    host.script.go.add_permits(1);
    assert_eq!(host.ended(&id).await["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(host.made(), 1, "nothing was written twice");
}

#[tokio::test]
async fn a_turn_that_does_not_fit_is_told_when_to_come_back() {
    let budget = Budget::new(64 << 20);
    let host = Host::budgeted(&budget).await;
    let _rest = budget.charge(63 << 20).unwrap();
    let (new, old) = (Client::v1(&host).await, Client::v03(&host).await);
    let text = "x".repeat(200_000);
    for status in [
        new.call::<_, v1::SendMessageResponse>("SendMessage", saying(&text)).await.unwrap_err(),
        new.call::<_, v1::SendMessageResponse>("SendStreamingMessage", saying(&text)).await.unwrap_err(),
        old.call::<_, v03::SendMessageResponse>("SendMessage", saying_03(&text)).await.unwrap_err(),
    ] {
        assert_eq!(why(&status), (Code::ResourceExhausted, "BUSY".into(), Vec::new()), "{status:?}");
        let wait = status.get_error_details().retry_info().unwrap().retry_delay.unwrap();
        assert_eq!(wait.as_secs(), 1);
    }
    assert_eq!((host.made(), budget.used()), (0, 63 << 20), "nothing is written and nothing stays charged");
}

#[tokio::test]
async fn data_too_deep_for_protobuf_is_not_sent() {
    let host = Host::start().await;
    let client = Client::v1(&host).await;
    let deep = (0..40).fold(serde_json::json!(1), |inner, _| serde_json::json!([inner]));
    let said = serde_json::json!({
        "messageId": "deep", "role": "ROLE_USER", "parts": [{ "text": "as-task" }, { "data": deep }],
    });
    let sent = host.call("SendMessage", &serde_json::json!({ "message": said })).await;
    let id = sent["result"]["task"]["id"].as_str().unwrap().to_owned();
    let get = v1::GetTaskRequest { id: id.clone(), ..Default::default() };
    let status = client.call::<_, v1::Task>("GetTask", get).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
    let without = v1::GetTaskRequest { id, history_length: Some(0), ..Default::default() };
    let found: v1::Task = client.call("GetTask", without).await.unwrap();
    assert_eq!(found.status.unwrap().state(), v1::TaskState::Completed);
}

#[tokio::test]
async fn a_page_of_another_site_is_refused_in_grpc() {
    let host = Host::start().await;
    for meta in [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")] {
        let refused = raw(&host, &[GRPC, meta], b"").await;
        assert_eq!(refused, (200, (Code::PermissionDenied as i32).to_string()), "{meta:?}");
    }
    assert_eq!(host.made(), 0);
}

#[tokio::test]
async fn a_duplicate_of_a_named_caller_is_written_once() {
    let token = talaria_a2a::Token::new("peer", secrecy::SecretString::from("s3cret")).unwrap();
    let host = Host::with(|config| config.tokens = vec![token], Limits::default()).await;
    let client = Client::v1(&host).await;
    let known = &[("authorization", "Bearer s3cret")];
    let late = &[GRPC, ("authorization", "Bearer s3cret"), ("grpc-timeout", "300m")];
    let request = saying("wait");
    let exceeded = (200, (Code::DeadlineExceeded as i32).to_string());
    assert_eq!(raw(&host, late, &framed(&request)).await, exceeded);
    let id = host.next_waiting().await;
    host.script.go.add_permits(1);
    let mut again = request;
    again.configuration =
        Some(v1::SendMessageConfiguration { return_immediately: true, ..Default::default() });
    let answer = client.call_as(known, "SendMessage", again).await.unwrap().into_inner();
    assert_eq!((&*task(answer).id, host.made()), (id.as_str(), 1));
}
