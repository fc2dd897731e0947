//! gRPC through the real binary: on the port of the other bindings, and on a port of its own.

use prost::Message;
use serde_json::Value;
use talaria_fakes::{Exported, FakeCollector};
use tonic::client::Grpc;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::bridge::Start;

/// The messages of 1.0.
mod v1 {
    #![allow(clippy::all, dead_code, unreachable_pub, reason = "generated")]
    include!("../../host/a2a/src/grpc/generated/lf.a2a.v1.rs");
}

async fn call<Q, R>(address: &str, method: &str, token: Option<&str>, request: Q) -> Result<R, Status>
where
    Q: Message + Send + Sync + 'static,
    R: Message + Default + Send + Sync + 'static,
{
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.unwrap();
    let mut request = Request::new(request);
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    let path = format!("/lf.a2a.v1.A2AService/{method}").parse().unwrap();
    grpc.unary(request, path, ProstCodec::default()).await.map(Response::into_inner)
}

fn saying(text: &str) -> v1::SendMessageRequest {
    let content = Some(v1::part::Content::Text(text.into()));
    let message = v1::Message {
        message_id: "m1".into(),
        role: v1::Role::User.into(),
        parts: vec![v1::Part { content, ..Default::default() }],
        ..Default::default()
    };
    v1::SendMessageRequest { message: Some(message), ..Default::default() }
}

/// The addresses of gRPC on a card.
fn offered(card: &Value) -> Vec<&str> {
    let interfaces = card["supportedInterfaces"].as_array().unwrap();
    let grpc = interfaces.iter().filter(|interface| interface["protocolBinding"] == "GRPC");
    grpc.map(|interface| interface["url"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn the_card_leads_to_grpc_on_the_same_port() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = Start::new(folder.path()).arg("--demo").up();
    let card = bridge.request("GET", "/.well-known/agent-card.json", &[], "").await;
    let card: Value = serde_json::from_slice(&card.body).unwrap();
    let [one, other] = offered(&card)[..] else { panic!("{card}") };
    assert_eq!(one, other, "both versions");
    let answer: v1::SendMessageResponse = call(one, "SendMessage", None, saying("hello")).await.unwrap();
    let Some(v1::send_message_response::Payload::Message(message)) = answer.payload else {
        panic!("{answer:?}");
    };
    let said = message.parts[0].content.clone();
    let Some(v1::part::Content::Text(said)) = said else { panic!("{said:?}") };
    assert!(said.starts_with("You said: \"hello\""), "{said}");
}

#[tokio::test]
async fn a_port_for_grpc_alone_asks_for_the_same_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[a2a.auth]\ntokens = [{ name = \"alice\", token = { env = \"ALICE_TOKEN\" } }]\n\
                  [a2a.grpc]\nlisten = \"127.0.0.1:0\"\n";
    let bridge = Start::new(folder.path())
        .config(config)
        .arg("--demo")
        .env("ALICE_TOKEN", "alice-token-0123456789")
        .up();
    let own = bridge.banner["grpc"].as_str().unwrap().to_owned();
    let card = bridge.request("GET", "/.well-known/agent-card.json", &[], "").await;
    let card: Value = serde_json::from_slice(&card.body).unwrap();
    assert_eq!(offered(&card), [&own, &own]);

    let list = v1::ListTasksRequest::default;
    let refused = call::<_, v1::ListTasksResponse>(&own, "ListTasks", None, list()).await;
    assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated);
    let token = Some("alice-token-0123456789");
    let sent: v1::SendMessageResponse = call(&own, "SendMessage", token, saying("hello")).await.unwrap();
    assert!(sent.payload.is_some());
    let listed: v1::ListTasksResponse = call(&own, "ListTasks", token, list()).await.unwrap();
    assert_eq!(listed.total_size, 1);
    let url = format!("http://{own}");
    let other = crate::bridge::request(&url, "GET", "/.well-known/agent-card.json", &[], "");
    assert_eq!(other.await.status, 415, "nothing but gRPC is here");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_in_the_metadata_of_a_call_goes_on() {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let collector = FakeCollector::start().await;
    let folder = tempfile::tempdir().unwrap();
    let bridge = Start::new(folder.path())
        .arg("--demo")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.endpoint())
        .env("OTEL_BSP_SCHEDULE_DELAY", "50")
        .up();
    let channel = Endpoint::from_shared(bridge.url().to_owned()).unwrap().connect().await.unwrap();
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.unwrap();
    let mut request = Request::new(saying("hello"));
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    request.metadata_mut().insert("traceparent", parent.parse().unwrap());
    let path = "/lf.a2a.v1.A2AService/SendMessage".parse().unwrap();
    let codec = ProstCodec::<_, v1::SendMessageResponse>::default();
    grpc.unary(request, path, codec).await.unwrap();
    let is_complete = |spans: &[Exported]| {
        ["a2a.request", "turn"].iter().all(|name| spans.iter().any(|span| span.name == *name))
    };
    let spans = collector.until("the request and its turn", is_complete).await;
    assert!(spans.iter().all(|span| span.trace == TRACE), "{spans:#?}");
    let request = spans.iter().find(|span| span.name == "a2a.request").unwrap();
    assert_eq!(request.parent, "00f067aa0ba902b7");
    assert_eq!(request.attribute("rpc.method"), "/lf.a2a.v1.A2AService/SendMessage");
}
