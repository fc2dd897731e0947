//! A scripted agent on a real socket that answers in one piece or with events.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

/// A request that the agent received.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) version: Option<String>,
    pub(super) authorization: Option<String>,
    pub(super) last_event_id: Option<String>,
    pub(super) body: Value,
}

/// A response of the agent.
pub(super) enum Answers {
    Whole(u16, Value),
    Events(Vec<Step>),
}

/// One step of a stream.
pub(super) enum Step {
    /// An event with its id and result.
    Say(Option<u32>, Value),
    /// An event that is an error.
    Fail(Value),
    Wait(Arc<Notify>),
    /// The connection breaks.
    Cut,
    /// Nothing more happens, and the connection stays open.
    Hang,
}

type Script = dyn Fn(&Asked) -> Answers + Send + Sync;

/// A scripted agent that records the requests it receives. It ends with the test's runtime.
pub(super) struct FakeAgent {
    pub(super) url: String,
    pub(super) asked: Arc<Mutex<Vec<Asked>>>,
}

impl From<(u16, Value)> for Answers {
    fn from((status, value): (u16, Value)) -> Self {
        Self::Whole(status, value)
    }
}

impl From<Vec<Step>> for Answers {
    fn from(steps: Vec<Step>) -> Self {
        Self::Events(steps)
    }
}

impl Asked {
    /// The JSON-RPC method.
    pub(super) fn rpc(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }
}

impl FakeAgent {
    pub(super) async fn start<A: Into<Answers>>(
        script: impl Fn(&str, &Asked) -> A + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let own = url.clone();
        let script: Arc<Script> = Arc::new(move |asked| script(&own, asked).into());
        let (tracker, remembered) = (TaskTracker::new(), Arc::clone(&asked));
        tracker.clone().spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (script, remembered) = (Arc::clone(&script), Arc::clone(&remembered));
                tracker.spawn(async move {
                    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                        let (script, remembered) = (Arc::clone(&script), Arc::clone(&remembered));
                        async move {
                            let (head, body) = request.into_parts();
                            let header = |name: &str| Some(head.headers.get(name)?.to_str().ok()?.to_owned());
                            let body = body.collect().await.expect("a body").to_bytes();
                            let asked = Asked {
                                method: head.method.to_string(),
                                path: head.uri.path().into(),
                                version: header("a2a-version"),
                                authorization: header("authorization"),
                                last_event_id: header("last-event-id"),
                                body: serde_json::from_slice(&body).unwrap_or_default(),
                            };
                            remembered.lock().expect("no panic").push(asked.clone());
                            Ok::<_, Infallible>(respond(script(&asked)))
                        }
                    });
                    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
                });
            }
        });
        Self { url, asked }
    }

    /// An agent with a card for both versions that answers calls by a script.
    pub(super) async fn answering<A: Into<Answers>>(
        answer: impl Fn(&Asked) -> A + Send + Sync + 'static,
    ) -> Self {
        Self::start(move |url, asked| match asked.method.as_str() {
            "GET" if asked.path == "/.well-known/agent-card.json" => Answers::Whole(200, card(url)),
            "GET" => Answers::Whole(404, json!("nothing here")),
            _ => answer(asked).into(),
        })
        .await
    }

    /// The last request.
    pub(super) fn last(&self) -> Asked {
        self.asked.lock().expect("no panic").last().cloned().expect("something was asked")
    }

    /// The JSON-RPC methods that were called, in order.
    pub(super) fn calls(&self) -> Vec<String> {
        let asked = self.asked.lock().expect("no panic");
        asked.iter().filter(|asked| asked.method == "POST").map(|asked| asked.rpc().to_owned()).collect()
    }
}

fn respond(answers: Answers) -> http::Response<BoxBody<Bytes, io::Error>> {
    match answers {
        Answers::Whole(status, value) => {
            let body = match value {
                Value::String(text) => text,
                value => value.to_string(),
            };
            let body = Full::new(Bytes::from(body)).map_err(io::Error::other).boxed();
            http::Response::builder().status(status).body(body).expect("a response")
        }
        Answers::Events(steps) => {
            let frames = stream::iter(steps).then(|step| async move {
                let text = match step {
                    Step::Say(id, result) => {
                        let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
                        let data = json!({ "jsonrpc": "2.0", "id": 1, "result": result });
                        format!("{id}data: {data}\n\n")
                    }
                    Step::Fail(error) => {
                        format!("data: {}\n\n", json!({ "jsonrpc": "2.0", "id": 1, "error": error }))
                    }
                    Step::Wait(until) => {
                        until.notified().await;
                        ": go on\n\n".into()
                    }
                    Step::Cut => {
                        // The earlier events must have left before the connection breaks.
                        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                        return Err(io::Error::other("cut"));
                    }
                    Step::Hang => std::future::pending().await,
                };
                Ok(Frame::data(Bytes::from(text)))
            });
            let body = BodyExt::boxed(StreamBody::new(frames));
            let response =
                http::Response::builder().header("content-type", "text/event-stream; charset=utf-8");
            response.body(body).expect("a response")
        }
    }
}

pub(super) fn card(url: &str) -> Value {
    let interface =
        |version: &str| json!({ "url": url, "protocolBinding": "JSONRPC", "protocolVersion": version });
    json!({ "name": "agent", "supportedInterfaces": [interface("1.0"), interface("0.3")], "url": url })
}

pub(super) fn hello(asked: &Asked) -> (u16, Value) {
    let result = match asked.rpc() {
        "SendMessage" => json!({ "message": { "contextId": "c", "parts": [{ "text": "hello" }] } }),
        _ => json!({ "kind": "message", "contextId": "c", "parts": [{ "kind": "text", "text": "hello" }] }),
    };
    whole(result)
}

/// A result in one piece.
pub(super) fn whole(result: Value) -> (u16, Value) {
    (200, json!({ "jsonrpc": "2.0", "id": 1, "result": result }))
}

/// A JSON-RPC error in one piece.
pub(super) fn refusal(code: i64) -> (u16, Value) {
    (200, json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": code, "message": "no" } }))
}
