//! HTTP: which path, which method, who calls, and how much of a body.
//!
//! The order is the cheapest first: an unknown path costs nothing, a wrong token ends before the body is read, and a
//! body that is no request ends before anything is performed. Every request makes one line in the log: at `debug`
//! where HTTP was content, at `info` where it was not. The line has no word of what was said, and of an unknown path
//! not even the path.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ALLOW, EXPECT, HeaderValue, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use talaria_listen::Peer;
use talaria_turns::Principal;
use tracing::{debug, info};

use crate::auth::Auth;
use crate::body;
use crate::capabilities;
use crate::cors::Cors;
use crate::jsonrpc::{self, Call};
use crate::offer::{LiveCard, Offer};
use crate::operation::{Caller, Operation, Operations, Reply, Verb};
use crate::origin;
use crate::refusal::Refusal;
use crate::respond::{self, Body};
use crate::rest::{self, Media};
use crate::route::{Rest, Route};
use crate::sse::Streaming;
use crate::version::{self, Version};

/// Where requests end.
pub(crate) struct Endpoint {
    pub(crate) operations: Operations,
    pub(crate) card: LiveCard,
    pub(crate) auth: Auth,
    pub(crate) cors: Cors,
    pub(crate) streaming: Streaming,
    pub(crate) max_body: usize,
    pub(crate) body_timeout: Duration,
}

/// What the access log says beyond HTTP.
#[derive(Default)]
struct Note {
    rpc: &'static str,
    version: &'static str,
    code: Option<i32>,
}

// === impl Endpoint ===

impl Endpoint {
    /// Answers one request. It cannot fail: what goes wrong is an answer.
    pub(crate) async fn handle(&self, request: Request<Incoming>) -> Response<Body> {
        let started = Instant::now();
        let asked = version::asked(request.headers(), request.uri().query());
        let route = Route::of(request.uri().path(), asked);
        let method = request.method().clone();
        let from = self.cors.allowed(request.headers());
        let preflight = match route {
            Route::Unknown => None,
            _ => self.cors.preflight(&method, request.headers()),
        };
        let (mut response, note) = match (&route, &method) {
            _ if preflight.is_some() => (preflight.unwrap_or_default(), Note::default()),
            (Route::Rpc, &Method::POST) => self.rpc(request).await,
            (Route::Rpc, _) => (wrong_method("POST"), Note::default()),
            (Route::Card, &Method::GET | &Method::HEAD) => {
                let (head, _) = request.into_parts();
                let asked = version::asked(&head.headers, head.uri.query());
                (self.card.respond(&method, &head.headers, asked, self.url(&head)), Note::default())
            }
            (Route::Card, _) => (wrong_method("GET, HEAD"), Note::default()),
            (Route::Rest(rest), method) => match rest.verb(method) {
                Some(verb) => self.rest(rest, verb, request).await,
                None => (wrong_method(&rest.allow()), Note::default()),
            },
            (Route::Unknown, _) => {
                let message = "nothing is here; POST / takes JSON-RPC, POST /message:send takes HTTP+JSON, \
                               /.well-known/agent-card.json has the card";
                (respond::failure(StatusCode::NOT_FOUND, "NOT_FOUND", message), Note::default())
            }
        };
        self.cors.mark(from, response.headers_mut());
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
        let offer = self.card.offer();
        let call = match self.body(&head, body).await {
            Ok(body) => {
                let asked = version::asked(&head.headers, head.uri.query());
                Call::read(&offer.capabilities, &head.headers, asked, &body)
            }
            Err(refusal) => Call::refused(refusal),
        };
        let Call { id, method, request, streams_errors } = call;
        let (reply, asked) = self.perform(&offer, caller, head, request).await;
        let (mut response, code) = jsonrpc::respond(id, method, streams_errors, reply, &self.streaming);
        let version = method.map_or(Version::V1, |method| method.version);
        echo(&offer, &asked, version, &mut response);
        let (rpc, version) = method.map_or(("", ""), |method| (method.name, method.version.as_str()));
        (response, Note { rpc, version, code })
    }

    async fn rest(&self, rest: &Rest, verb: Verb, request: Request<Incoming>) -> (Response<Body>, Note) {
        let (head, body) = request.into_parts();
        let Some(caller) = self.auth.caller(&head.headers) else {
            return (unauthenticated(), Note::default());
        };
        let offer = self.card.offer();
        let media = Media::of(&head.headers);
        let request = async {
            rest::admit(&offer.capabilities, rest, verb, &head)?;
            let body = if head.method == Method::POST { Some(self.body(&head, body).await?) } else { None };
            rest::read(rest, verb, &head, body.as_deref())
        };
        let request = request.await;
        let (reply, asked) = self.perform(&offer, caller, head, request).await;
        let (mut response, code) = rest::respond(rest, media, reply, &self.streaming);
        let version = rest.dialect.version();
        echo(&offer, &asked, version, &mut response);
        (response, Note { rpc: "", version: version.as_str(), code })
    }

    /// The second half is the extensions that the caller asked for, where there are any to echo.
    async fn perform(
        &self,
        offer: &Offer,
        caller: Principal,
        head: Parts,
        request: Result<crate::operation::Request, Refusal>,
    ) -> (Result<Reply, Refusal>, Vec<String>) {
        let asked: Vec<_> = capabilities::asked(&head.headers).into_iter().map(str::to_owned).collect();
        let is_card =
            matches!(&request, Ok(request) if matches!(request.operation, Operation::ExtendedCard(_)));
        let url = if is_card { self.url(&head) } else { None };
        // A turn may take minutes; the request's headers need not wait with it.
        drop(head);
        let reply = match request {
            // Boxed, since the server moves the future of a request around before it begins.
            Ok(request) => {
                let caller = Caller { principal: caller, extensions: &asked, url };
                Box::pin(self.operations.perform(offer, caller, request)).await
            }
            Err(refusal) => Err(refusal),
        };
        (reply, asked)
    }

    /// Where the request was sent, if that is to be followed and it says so.
    fn url(&self, head: &Parts) -> Option<String> {
        let peer = head.extensions.get::<Peer>().map(|peer| peer.0.ip());
        origin::of(head, peer, self.card.followed()?)
    }

    async fn body(&self, head: &Parts, body: Incoming) -> Result<Bytes, Refusal> {
        let prompted = head.headers.contains_key(EXPECT);
        body::read(body, prompted, self.max_body, self.body_timeout).await
    }
}

fn echo(offer: &Offer, asked: &[String], version: Version, response: &mut Response<Body>) {
    if !asked.is_empty() {
        let asked: Vec<_> = asked.iter().map(String::as_str).collect();
        offer.capabilities.echo(&asked, version, response.headers_mut());
    }
}

fn unauthenticated() -> Response<Body> {
    let message = "this server needs a token that it knows: Authorization: Bearer TOKEN";
    let mut response = respond::failure(StatusCode::UNAUTHORIZED, "UNAUTHENTICATED", message);
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

fn wrong_method(allowed: &str) -> Response<Body> {
    let message = format!("this path takes {allowed}");
    let mut response = respond::failure(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", &message);
    if let Ok(allowed) = HeaderValue::try_from(allowed) {
        response.headers_mut().insert(ALLOW, allowed);
    }
    response
}
