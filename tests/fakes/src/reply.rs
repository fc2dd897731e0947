//! Replies of the fake gateway, in the shapes of the real one (hermes-agent 0.19).

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc, oneshot};

pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// A provider's key that the real gateway leaks in the text of a failure.
pub const PROVIDER_KEY: &str = "sk-fakekey1234567890abcdef";
/// The key as the gateway masks it, in the places where it does.
const MASKED_KEY: &str = "sk-fak...cdef";

/// A reply of the gateway.
#[derive(Debug, Clone)]
pub struct Reply(pub(crate) Kind);

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Response { status: u16, headers: Vec<(String, String)>, body: Vec<Step> },
    Hang,
    Raw(Bytes),
    Later(Later),
}

/// A reply that is decided after its request was taken. Can be waited for once.
pub(crate) type Later = Arc<Mutex<Option<oneshot::Receiver<Reply>>>>;

/// A streamed reply, event by event.
#[derive(Debug, Clone, Default)]
pub struct Stream(Vec<Step>);

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Bytes(Bytes),
    Wait(Arc<Notify>),
    Pause(Duration),
    Repeat(Bytes, Duration),
    Hold(#[expect(dead_code, reason = "it is there to be dropped")] Arc<dyn Any + Send + Sync>),
    Hang,
    Cut,
    Feed(Feed),
}

/// Bytes that arrive while the reply is being sent: `None` ends it, and a dropped sender cuts it off. Can be read once; a
/// second reader waits forever.
pub(crate) type Feed = Arc<Mutex<Option<mpsc::UnboundedReceiver<Option<Bytes>>>>>;

// === impl Reply ===

impl Reply {
    /// A buffered completion with this text, 11 tokens in and 7 out.
    #[must_use]
    pub fn completion(text: &str) -> Self {
        Self::content(&json!(text))
    }

    /// A buffered completion with any `content`.
    #[must_use]
    pub fn content(content: &Value) -> Self {
        Self::json(&completion(content, "stop"))
    }

    /// A provider's failure as the real gateway reports it: HTTP 200, the text with the key as content, and the masked
    /// text beside it. `text` may contain [`PROVIDER_KEY`].
    #[must_use]
    pub fn error_in_200(text: &str) -> Self {
        let masked = text.replace(PROVIDER_KEY, MASKED_KEY);
        let mut body = completion(&json!(text), "error");
        merge(&mut body, json!({ "hermes": failed(&masked) }));
        Self::json(&body)
            .header("x-hermes-completed", "false")
            .header("x-hermes-partial", "false")
            .header("x-hermes-error", &masked)
    }

    /// HTTP 200 with this JSON.
    #[must_use]
    pub fn json(body: &Value) -> Self {
        Self::status(200, "application/json; charset=utf-8", body.to_string())
    }

    /// Any status and body.
    #[must_use]
    pub fn status(status: u16, content_type: &str, body: impl Into<Bytes>) -> Self {
        Self(Kind::Response {
            status,
            headers: vec![("content-type".into(), content_type.into())],
            body: vec![Step::Bytes(body.into())],
        })
    }

    /// A streamed completion: the role, these deltas, the end.
    #[must_use]
    pub fn stream<'a>(deltas: impl IntoIterator<Item = &'a str>) -> Self {
        deltas.into_iter().fold(Stream::new(), Stream::delta).finish("stop").into()
    }

    /// Never answers.
    #[must_use]
    pub fn hang() -> Self {
        Self(Kind::Hang)
    }

    /// Answers with what the sender says; if it is dropped, never.
    pub(crate) fn later() -> (oneshot::Sender<Self>, Self) {
        let (sender, receiver) = oneshot::channel();
        (sender, Self(Kind::Later(Arc::new(Mutex::new(Some(receiver))))))
    }

    /// Writes these bytes instead of a response, then closes the connection.
    #[must_use]
    pub fn raw(bytes: impl Into<Bytes>) -> Self {
        Self(Kind::Raw(bytes.into()))
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        if let Kind::Response { headers, .. } = &mut self.0 {
            headers.push((name.into(), value.into()));
        }
        self
    }

    /// Holds the body back until `released` is notified.
    #[must_use]
    pub fn slow(mut self, released: &Arc<Notify>) -> Self {
        if let Kind::Response { body, .. } = &mut self.0 {
            body.insert(0, Step::Wait(Arc::clone(released)));
        }
        self
    }
}

impl From<Stream> for Reply {
    fn from(Stream(body): Stream) -> Self {
        let headers = [("content-type", "text/event-stream"), ("cache-control", "no-cache")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        Self(Kind::Response { status: 200, headers, body })
    }
}

// === impl Stream ===

impl Stream {
    /// Sends the role chunk, which the gateway sends at once.
    #[must_use]
    pub fn new() -> Self {
        Self::default().chunk(json!({ "role": "assistant" }), Value::Null, json!({}))
    }

    /// Sends a piece of the answer.
    #[must_use]
    pub fn delta(self, text: &str) -> Self {
        self.chunk(json!({ "content": text }), Value::Null, json!({}))
    }

    /// Reports that a tool starts.
    #[must_use]
    pub fn tool_running(self, tool: &str, call: &str, label: &str) -> Self {
        let data =
            json!({ "tool": tool, "emoji": "💻", "label": label, "toolCallId": call, "status": "running" });
        self.event("hermes.tool.progress", &data)
    }

    /// Reports that a tool has ended.
    #[must_use]
    pub fn tool_completed(self, tool: &str, call: &str) -> Self {
        self.event(
            "hermes.tool.progress",
            &json!({ "tool": tool, "toolCallId": call, "status": "completed" }),
        )
    }

    /// Sends the comment that the gateway sends after 30 s of silence.
    #[must_use]
    pub fn keepalive(self) -> Self {
        self.bytes(": keepalive\n\n")
    }

    /// Sends the last chunk, with usage, and `[DONE]`.
    #[must_use]
    pub fn finish(self, reason: &str) -> Self {
        self.chunk(json!({}), reason.into(), json!({ "usage": usage() })).bytes("data: [DONE]\n\n")
    }

    /// Sends the last chunk of a failure, which the gateway does not mask in a stream, and `[DONE]`.
    #[must_use]
    pub fn fail(self, text: &str) -> Self {
        let extra = json!({
            "usage": usage(),
            "error": { "message": text, "type": "agent_error" },
            "hermes": failed(text),
        });
        self.chunk(json!({}), "error".into(), extra).bytes("data: [DONE]\n\n")
    }

    /// Sends a tool call of the model in the provider's form; `arguments` is JSON text.
    #[must_use]
    pub fn tool_call(self, id: &str, tool: &str, arguments: &str) -> Self {
        let function = json!({ "name": tool, "arguments": arguments });
        let call = json!({ "index": 0, "id": id, "type": "function", "function": function });
        self.chunk(json!({ "tool_calls": [call] }), Value::Null, json!({}))
    }

    /// Repeats a piece of the answer forever, with a pause before each.
    #[must_use]
    pub fn delta_every(self, pause: Duration, text: &str) -> Self {
        let Self(mut steps) = self;
        let Self(piece) = Self(Vec::new()).delta(text);
        steps.extend(piece.into_iter().map(|step| match step {
            Step::Bytes(bytes) => Step::Repeat(bytes, pause),
            other => other,
        }));
        Self(steps)
    }

    /// Pauses like a slow model.
    #[must_use]
    pub fn pause(mut self, time: Duration) -> Self {
        self.0.push(Step::Pause(time));
        self
    }

    /// Holds a value until the stream gets here or its connection is closed.
    #[must_use]
    pub fn hold(mut self, value: impl Any + Send + Sync) -> Self {
        self.0.push(Step::Hold(Arc::new(value)));
        self
    }

    /// Stays silent until `released` is notified.
    #[must_use]
    pub fn wait(mut self, released: &Arc<Notify>) -> Self {
        self.0.push(Step::Wait(Arc::clone(released)));
        self
    }

    /// Breaks the connection in the middle of the body.
    #[must_use]
    pub fn cut(mut self) -> Self {
        self.0.push(Step::Cut);
        self
    }

    /// Stays silent forever.
    #[must_use]
    pub fn hang(mut self) -> Self {
        self.0.push(Step::Hang);
        self
    }

    /// Sends any event.
    pub(crate) fn feed(feed: Feed) -> Self {
        Self(vec![Step::Feed(feed)])
    }

    /// Sends raw bytes.
    #[must_use]
    pub fn bytes(mut self, bytes: impl Into<Bytes>) -> Self {
        self.0.push(Step::Bytes(bytes.into()));
        self
    }

    fn event(self, name: &str, data: &Value) -> Self {
        self.bytes(format!("event: {name}\ndata: {data}\n\n"))
    }

    fn chunk(self, delta: Value, finish_reason: Value, extra: Value) -> Self {
        let mut chunk = json!({
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_790_000_000, "model": "hermes-agent",
            "choices": [{ "index": 0, "delta": delta, "finish_reason": finish_reason }],
        });
        merge(&mut chunk, extra);
        self.bytes(format!("data: {chunk}\n\n"))
    }
}

// === to the wire ===

pub(crate) fn response(status: u16, headers: &[(String, String)], body: Vec<Step>) -> Response<Body> {
    // A body in one piece has a length, like the real gateway's.
    let body = match body.as_slice() {
        [Step::Bytes(bytes)] => {
            let whole = http_body_util::Full::new(bytes.clone());
            whole.map_err(|never| match never {}).boxed_unsync()
        }
        _ => streamed(body),
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).expect("a status from 100 to 999");
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a header's name");
        response.headers_mut().append(name, HeaderValue::from_str(value).expect("a header's value"));
    }
    response
}

fn streamed(steps: Vec<Step>) -> Body {
    let frames = stream::unfold(VecDeque::from(steps), |mut steps| async move {
        loop {
            match steps.pop_front()? {
                Step::Bytes(bytes) => return Some((Ok(Frame::data(bytes)), steps)),
                Step::Wait(released) => released.notified().await,
                Step::Pause(time) => tokio::time::sleep(time).await,
                Step::Repeat(bytes, every) => {
                    tokio::time::sleep(every).await;
                    steps.push_front(Step::Repeat(bytes.clone(), every));
                    return Some((Ok(Frame::data(bytes)), steps));
                }
                Step::Hold(_) => {}
                Step::Hang => std::future::pending().await,
                Step::Feed(feed) => {
                    let taken = feed.lock().unwrap().take();
                    let Some(mut receiver) = taken else { return std::future::pending().await };
                    match receiver.recv().await {
                        Some(Some(bytes)) => {
                            *feed.lock().unwrap() = Some(receiver);
                            steps.push_front(Step::Feed(feed));
                            return Some((Ok(Frame::data(bytes)), steps));
                        }
                        Some(None) => {}
                        None => steps.push_front(Step::Cut),
                    }
                }
                Step::Cut => {
                    // The server flushes at the end of the body, but drops buffered bytes on an error.
                    tokio::task::yield_now().await;
                    return Some((Err(io::Error::other("cut by the script")), steps));
                }
            }
        }
    });
    StreamBody::new(frames).boxed_unsync()
}

// === shapes ===

fn completion(content: &Value, finish_reason: &str) -> Value {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1_790_000_000, "model": "hermes-agent",
        "choices": [{
            "index": 0,
            "message": { "role": "assistant", "content": content },
            "finish_reason": finish_reason,
        }],
        "usage": usage(),
    })
}

fn usage() -> Value {
    json!({ "prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18 })
}

fn failed(error: &str) -> Value {
    json!({ "completed": false, "partial": false, "failed": true, "error": error, "error_code": "agent_error" })
}

fn merge(into: &mut Value, extra: Value) {
    if let (Value::Object(into), Value::Object(extra)) = (into, extra) {
        into.extend(extra);
    }
}
