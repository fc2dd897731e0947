//! A client of gRPC: tonic's, with the messages of both versions.

use std::net::SocketAddr;

use bytes::{Buf as _, BufMut as _};
use prost::Message;
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tonic_types::StatusExt as _;

use crate::kit::{Host, fresh, patiently};

/// The messages of 1.0.
pub(crate) mod v1 {
    #![allow(clippy::all, unreachable_pub, dead_code, reason = "generated")]
    include!("../../src/grpc/generated/lf.a2a.v1.rs");
}

/// The messages of 0.3.
pub(crate) mod v03 {
    #![allow(clippy::all, unreachable_pub, dead_code, reason = "generated")]
    include!("../../src/grpc/generated/a2a.v1.rs");
}

/// Additional metadata of a call.
pub(crate) type Meta<'a> = &'a [(&'static str, &'a str)];

/// A client, whose calls are of 1.0 or of 0.3.
#[derive(Clone)]
pub(crate) struct Client {
    channel: Channel,
    service: &'static str,
}

/// Sends and receives bytes as they are.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, bytes: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&bytes);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining()).into()))
    }
}

// === impl Client ===

impl Client {
    pub(crate) async fn v1(host: &Host) -> Self {
        Self::at(host.address, "lf.a2a.v1.A2AService").await
    }

    pub(crate) async fn v03(host: &Host) -> Self {
        Self::at(host.address, "a2a.v1.A2AService").await
    }

    pub(crate) async fn at(address: SocketAddr, service: &'static str) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        Self { channel: patiently(endpoint.connect()).await.unwrap(), service }
    }

    /// Calls a method.
    pub(crate) async fn call<Q, R>(&self, method: &str, request: Q) -> Result<R, Status>
    where
        Q: Message + Send + Sync + 'static,
        R: Message + Default + Send + Sync + 'static,
    {
        self.call_as(&[], method, request).await.map(Response::into_inner)
    }

    /// Calls a method with additional metadata.
    pub(crate) async fn call_as<Q, R>(
        &self,
        meta: Meta<'_>,
        method: &str,
        request: Q,
    ) -> Result<Response<R>, Status>
    where
        Q: Message + Send + Sync + 'static,
        R: Message + Default + Send + Sync + 'static,
    {
        let mut grpc = self.ready().await;
        let path = self.path(method);
        patiently(grpc.unary(with(meta, request), path, ProstCodec::default())).await
    }

    /// Opens a stream.
    pub(crate) async fn stream<Q, R>(
        &self,
        meta: Meta<'_>,
        method: &str,
        request: Q,
    ) -> Result<Streaming<R>, Status>
    where
        Q: Message + Send + Sync + 'static,
        R: Message + Default + Send + Sync + 'static,
    {
        let mut grpc = self.ready().await;
        let path = self.path(method);
        let called = grpc.server_streaming(with(meta, request), path, ProstCodec::default());
        patiently(called).await.map(Response::into_inner)
    }

    /// Sends a message of these bytes.
    pub(crate) async fn raw(&self, meta: Meta<'_>, method: &str, bytes: &[u8]) -> Result<Vec<u8>, Status> {
        let mut grpc = self.ready().await;
        let path = self.path(method);
        patiently(grpc.unary(with(meta, bytes.to_vec()), path, Raw)).await.map(Response::into_inner)
    }

    async fn ready(&self) -> Grpc<Channel> {
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(usize::MAX);
        patiently(grpc.ready()).await.unwrap();
        grpc
    }

    fn path(&self, method: &str) -> http::uri::PathAndQuery {
        format!("/{}/{method}", self.service).parse().unwrap()
    }
}

fn with<T>(meta: Meta<'_>, message: T) -> Request<T> {
    let mut request = Request::new(message);
    for (name, value) in meta {
        request.metadata_mut().append(*name, value.parse().unwrap());
    }
    request
}

/// The rest of a stream: its messages, and the trailers of a stream that ended well or its status.
pub(crate) async fn rest<R>(stream: &mut Streaming<R>) -> (Vec<R>, Result<Option<MetadataMap>, Status>) {
    let mut messages = Vec::new();
    loop {
        match patiently(stream.message()).await {
            Ok(Some(message)) => messages.push(message),
            Ok(None) => return (messages, patiently(stream.trailers()).await),
            Err(status) => return (messages, Err(status)),
        }
    }
}

/// The code, the reason, and the fields that are wrong.
pub(crate) fn why(status: &Status) -> (Code, String, Vec<String>) {
    let details = status.get_error_details();
    let reason = details.error_info().map(|info| info.reason.clone()).unwrap_or_default();
    let fields = details.bad_request().into_iter().flat_map(|bad| &bad.field_violations);
    (status.code(), reason, fields.map(|violation| violation.field.clone()).collect())
}

/// A request of 1.0 to send one text.
pub(crate) fn saying(text: &str) -> v1::SendMessageRequest {
    let content = Some(v1::part::Content::Text(text.into()));
    let message = v1::Message {
        message_id: fresh(),
        role: v1::Role::User.into(),
        parts: vec![v1::Part { content, ..Default::default() }],
        ..Default::default()
    };
    v1::SendMessageRequest { message: Some(message), ..Default::default() }
}

/// A request of 0.3 to send one text and wait for the answer.
pub(crate) fn saying_03(text: &str) -> v03::SendMessageRequest {
    let part = Some(v03::part::Part::Text(text.into()));
    let message = v03::Message {
        message_id: fresh(),
        role: v03::Role::User.into(),
        content: vec![v03::Part { part, ..Default::default() }],
        ..Default::default()
    };
    let configuration = v03::SendMessageConfiguration { blocking: true, ..Default::default() };
    v03::SendMessageRequest { request: Some(message), configuration: Some(configuration), metadata: None }
}

/// The task in an answer to a send.
pub(crate) fn task(response: v1::SendMessageResponse) -> v1::Task {
    match response.payload {
        Some(v1::send_message_response::Payload::Task(task)) => task,
        other => panic!("not a task: {other:?}"),
    }
}

/// The text of the first part.
pub(crate) fn text(parts: &[v1::Part]) -> &str {
    match parts.first().and_then(|part| part.content.as_ref()) {
        Some(v1::part::Content::Text(text)) => text,
        other => panic!("not a text: {other:?}"),
    }
}

/// The number of an event.
pub(crate) fn number(metadata: Option<&Struct>) -> u64 {
    match metadata.and_then(|metadata| metadata.fields.get("talaria/event")) {
        Some(Value { kind: Some(Kind::NumberValue(number)) }) => *number as u64,
        other => panic!("no number: {other:?}"),
    }
}
