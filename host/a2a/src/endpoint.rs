//! HTTP: which path, which method, who calls, and how much of a body.
//!
//! The order is the cheapest first: an unknown path costs nothing, a wrong token ends before the body is read, and a
//! body that is no request ends before anything is performed. Every request makes one line in the log: at `debug`
//! where HTTP was content, at `info` where it was not. The line has no word of what was said, and of an unknown path
//! not even the path.

use std::time::{Duration, Instant};

use http::header::{ALLOW, EXPECT, HeaderValue, WWW_AUTHENTICATE};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use tracing::{debug, info};

use crate::auth::Auth;
use crate::body;
use crate::card::Card;
use crate::jsonrpc::{self, Call};
use crate::operation::Operations;
use crate::respond::{self, Body};
use crate::version;

/// Where requests end.
pub(crate) struct Endpoint {
    pub(crate) operations: Operations,
    pub(crate) card: Card,
    pub(crate) auth: Auth,
    pub(crate) max_body: usize,
    pub(crate) body_timeout: Duration,
}

/// What a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    Rpc,
    Card,
    Unknown,
}

/// What the access log says beyond HTTP.
#[derive(Default)]
struct Note {
    rpc: &'static str,
    version: &'static str,
    code: Option<i32>,
}

// === impl Route ===

impl Route {
    fn of(path: &str) -> Self {
        match path {
            "/" => Self::Rpc,
            // The second is where 0.2 had it, and where the platform still looks.
            "/.well-known/agent-card.json" | "/.well-known/agent.json" => Self::Card,
            _ => Self::Unknown,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Rpc => "rpc",
            Self::Card => "card",
            Self::Unknown => "unknown",
        }
    }
}

// === impl Endpoint ===

impl Endpoint {
    /// Answers one request. It cannot fail: what goes wrong is an answer.
    pub(crate) async fn handle(&self, request: Request<Incoming>) -> Response<Body> {
        let started = Instant::now();
        let route = Route::of(request.uri().path());
        let method = request.method().clone();
        let (response, note) = match (route, &method) {
            (Route::Rpc, &Method::POST) => self.rpc(request).await,
            (Route::Card, &Method::GET | &Method::HEAD) => {
                (self.card.respond(&method, request.headers()), Note::default())
            }
            (Route::Rpc, _) => (wrong_method("POST"), Note::default()),
            (Route::Card, _) => (wrong_method("GET, HEAD"), Note::default()),
            (Route::Unknown, _) => {
                let message =
                    "nothing is here; POST / takes JSON-RPC, /.well-known/agent-card.json has the card";
                (respond::failure(StatusCode::NOT_FOUND, "NOT_FOUND", message), Note::default())
            }
        };
        let (status, millis, route) =
            (response.status().as_u16(), started.elapsed().as_millis() as u64, route.name());
        let Note { rpc, version, code } = note;
        // An extension method is text of the caller's.
        let method = if method.as_str().len() <= 8 { method.as_str() } else { "other" };
        if response.status().is_success() || response.status() == StatusCode::NOT_MODIFIED {
            debug!(method, route, status, rpc, version, code, millis, "request");
        } else {
            info!(method, route, status, rpc, version, code, millis, "request refused");
        }
        response
    }

    async fn rpc(&self, request: Request<Incoming>) -> (Response<Body>, Note) {
        let (head, body) = request.into_parts();
        let Some(caller) = self.auth.caller(&head.headers) else {
            return (unauthenticated(), Note::default());
        };
        let prompted = head.headers.contains_key(EXPECT);
        let call = match body::read(body, prompted, self.max_body, self.body_timeout).await {
            Ok(body) => Call::read(&head.headers, version::asked(&head.headers, head.uri.query()), &body),
            Err(refusal) => Call::refused(refusal),
        };
        // A turn may take minutes; the request's headers need not wait with it.
        drop(head);
        let Call { id, method, operation } = call;
        let answer = match operation {
            Ok(operation) => self.operations.perform(caller, operation).await,
            Err(refusal) => Err(refusal),
        };
        let (response, code) = jsonrpc::respond(&id, method, &answer);
        let (rpc, version) = method.map_or(("", ""), |method| (method.name, method.version.as_str()));
        (response, Note { rpc, version, code })
    }
}

fn unauthenticated() -> Response<Body> {
    let message = "this server needs a token that it knows: Authorization: Bearer TOKEN";
    let mut response = respond::failure(StatusCode::UNAUTHORIZED, "UNAUTHENTICATED", message);
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

fn wrong_method(allowed: &'static str) -> Response<Body> {
    let message = format!("this path takes {allowed}");
    let mut response = respond::failure(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", &message);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}
