//! A gateway in this process that speaks like hermes-agent, so that a newcomer sees a real turn without installing it.
//!
//! It speaks what the real gateway speaks on the routes that `chat-completions` uses (buffered and streamed completions,
//! health, models), with its quirks: a key on everything but health, plain-text errors for unknown routes, a rejection of
//! any `Origin`, a failure inside a 200. So a turn through `--demo` takes the same way as any other: component, grant,
//! secret, egress, socket. Its answers are canned:
//!
//! | prompt | answer |
//! |---|---|
//! | starts with `fail` | a failed run, reported in a 200 |
//! | starts with `slow` | the usual one, after two seconds |
//! | contains `tool` | the usual one; streamed, with the progress of a tool before it |
//! | anything else | the prompt, and how to get real answers |
//!
//! It listens on loopback, on a port that the system picks, with a key made for this process. Connections, the size of a
//! request and the time to send its head are bounded. It runs until its token is cancelled.

mod script;

use std::convert::Infallible;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, ORIGIN};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited, StreamBody};
use hyper::body::{Body, Frame};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use talaria_listen::{Advice, Door, Limits};
use talaria_redact::Redactor;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use script::{Ending, Turn};

/// The largest request body, as in the real gateway.
const LARGEST_BODY: usize = 10_000_000;
/// As many connections as a demo needs, and far fewer than a process has files.
const LIMITS: Limits = Limits {
    connections: 256,
    busy: StatusCode::SERVICE_UNAVAILABLE,
    header_timeout: Duration::from_secs(30),
    stall: Duration::from_secs(30),
    grace: Duration::from_secs(2),
};
/// The pause between two pieces of a streamed answer, so that the streaming is visible.
const PIECE_PAUSE: Duration = Duration::from_millis(20);

/// An answer of the demo gateway.
pub type Reply = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// A running gateway.
#[derive(Debug)]
pub struct DemoGateway {
    /// Its address, as for `HERMES_API_BASE`.
    pub base_url: String,
    /// Its key, as for `API_SERVER_KEY`.
    pub api_key: SecretString,
}

/// Starts the gateway. It runs until `shutdown`, as a task of `tracker`.
///
/// # Errors
/// If no port on loopback is free.
pub async fn start(tracker: &TaskTracker, shutdown: CancellationToken) -> io::Result<DemoGateway> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let base_url = format!("http://{}/v1", listener.local_addr()?);
    let api_key = SecretString::from(format!("demo-{}", uuid::Uuid::new_v4().simple()));
    Redactor::process().learn([api_key.expose_secret()]);
    let expected = SecretString::from(format!("Bearer {}", api_key.expose_secret()));
    let key = Arc::new(expected);
    let handle = move |request| {
        let key = Arc::clone(&key);
        async move { answer(request, &key).await }
    };
    let advice = Advice { host: "call it by its address", origin: "it is for the demo alone" };
    let door = Door::local([], advice, |_| plain(StatusCode::FORBIDDEN, ""));
    tracker.spawn(talaria_listen::serve(listener, LIMITS, door, Arc::default(), shutdown, handle));
    Ok(DemoGateway { base_url, api_key })
}

/// Answers a request; `key` is the value of `authorization` that it must carry.
pub async fn answer<B>(request: Request<B>, key: &SecretString) -> Reply
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if request.headers().contains_key(ORIGIN) {
        return plain(StatusCode::FORBIDDEN, "");
    }
    let (head, body) = request.into_parts();
    let route = head.uri.path();
    let allowed = match route {
        "/health" | "/v1/health" | "/v1/models" => Method::GET,
        "/v1/chat/completions" => Method::POST,
        _ => return plain(StatusCode::NOT_FOUND, "404: Not Found"),
    };
    if head.method != allowed {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed");
    }
    if route.ends_with("/health") {
        let health = json!({ "status": "ok", "platform": "hermes-agent", "version": "talaria-demo" });
        return document(StatusCode::OK, &health);
    }
    let given = head.headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
    if given != Some(key.expose_secret().as_bytes()) {
        let error = json!({ "message": "Invalid API key", "type": "invalid_request_error", "code": "invalid_api_key" });
        return document(StatusCode::UNAUTHORIZED, &json!({ "error": error }));
    }
    if route == "/v1/models" {
        let model = json!({ "id": "hermes-agent", "object": "model", "owned_by": "hermes" });
        return document(StatusCode::OK, &json!({ "object": "list", "data": [model] }));
    }
    let body = match Limited::new(body, LARGEST_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            return refusal(StatusCode::PAYLOAD_TOO_LARGE, "Request body too large", Some("body_too_large"));
        }
        Err(_) => return refusal(StatusCode::BAD_REQUEST, "Invalid JSON in request body", None),
    };
    let Ok(body) = serde_json::from_slice::<Value>(&body) else {
        return refusal(StatusCode::BAD_REQUEST, "Invalid JSON in request body", None);
    };
    if !body.is_object() {
        return plain(StatusCode::INTERNAL_SERVER_ERROR, "500 Internal Server Error");
    }
    let Some(turn) = Turn::read(&body) else {
        return refusal(StatusCode::BAD_REQUEST, "Missing or invalid 'messages' field", None);
    };
    tokio::time::sleep(turn.pause()).await;
    complete(&turn)
}

/// The answer to a turn.
fn complete(turn: &Turn) -> Reply {
    let mut reply = match turn.stream {
        false => document(StatusCode::OK, &turn.completion()),
        true => events(turn.events()),
    };
    let headers = reply.headers_mut();
    let session =
        HeaderValue::try_from(turn.session()).unwrap_or_else(|_| HeaderValue::from_static("api-demo"));
    headers.insert("x-hermes-session-id", session);
    if let (Ending::Failed(error), false) = (&turn.ending, turn.stream) {
        headers.insert("x-hermes-completed", HeaderValue::from_static("false"));
        headers.insert("x-hermes-partial", HeaderValue::from_static("false"));
        headers.insert("x-hermes-error", HeaderValue::from_static(error));
    }
    reply
}

// === replies ===

fn document(status: StatusCode, body: &Value) -> Reply {
    reply(status, "application/json; charset=utf-8", Full::from(body.to_string()).boxed_unsync())
}

/// The gateway's error for a request that it could parse.
fn refusal(status: StatusCode, message: &str, code: Option<&str>) -> Reply {
    let error = json!({ "message": message, "type": "invalid_request_error", "param": null, "code": code });
    document(status, &json!({ "error": error }))
}

fn plain(status: StatusCode, text: &'static str) -> Reply {
    reply(status, "text/plain; charset=utf-8", Full::from(text).boxed_unsync())
}

/// Server-sent events, one at a time.
fn events(events: Vec<String>) -> Reply {
    let pieces = stream::unfold((events.into_iter(), false), |(mut events, begun)| async move {
        let event = events.next()?;
        if begun {
            tokio::time::sleep(PIECE_PAUSE).await;
        }
        Some((Ok(Frame::data(Bytes::from(event))), (events, true)))
    });
    let mut reply = reply(StatusCode::OK, "text/event-stream", StreamBody::new(pieces).boxed_unsync());
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    reply
}

fn reply(status: StatusCode, kind: &'static str, body: UnsyncBoxBody<Bytes, Infallible>) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    reply
}

#[cfg(test)]
mod tests;
