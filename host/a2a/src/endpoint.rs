//! The HTTP side of a request: path, method, caller and body.
//!
//! The checks run from cheap to expensive: an unknown path costs nothing, a wrong token ends the request before its body is
//! read, and a malformed body ends it before anything is performed. A response before the body closes an HTTP/1.1
//! connection and says so, or the client would lose its next request on a connection that it takes for idle.
//!
//! Every request logs one line, see [`crate::access`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, EXPECT, HeaderValue, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Version as HttpVersion};
use hyper::body::{Body as _, Incoming};
use talaria_budget::Charge;
use talaria_listen::Peer;
use talaria_turns::{Principal, TraceSampler};

use crate::access::{self, Noted, RequestObserver};
use crate::auth::Auth;
use crate::body;
use crate::cors::Cors;
use crate::grpc;
use crate::jsonrpc::{self, Call};
use crate::live_card::{CardSnapshot, LiveCard};
use crate::memory;
use crate::open_stream::Streaming;
use crate::operation::{self, Caller, Operation, Operations, Reply, Verb};
use crate::origin;
use crate::rejection::{ErrorKind, Rejection};
use crate::respond::{self, Body};
use crate::rest::{self, Media};
use crate::route::{Rest, Route};
use crate::service_params::ServiceParams;
use crate::trace;
use crate::version::Version;

/// Answers every request to the server.
pub(crate) struct Endpoint {
    pub(crate) operations: Operations,
    pub(crate) card: LiveCard,
    pub(crate) auth: Auth,
    pub(crate) cors: Cors,
    pub(crate) streaming: Streaming,
    /// The same for the callers with limits of their own.
    pub(crate) shares: HashMap<Principal, Streaming>,
    pub(crate) max_body: usize,
    pub(crate) body_timeout: Duration,
    pub(crate) observers: Vec<Arc<dyn RequestObserver>>,
    /// Decides which requests are traced; `None` if traces are off.
    pub(crate) sampler: Option<Arc<dyn TraceSampler>>,
}

/// Who sends a request that another server of the host passes on. Only the host adds it to a request.
#[derive(Debug, Clone)]
pub(crate) struct Vouched {
    pub(crate) caller: Principal,
    /// The path below which that server serves A2A.
    pub(crate) prefix: &'static str,
}

/// The fields of the access log beside those of HTTP.
#[derive(Default)]
struct LogFields {
    rpc: &'static str,
    version: &'static str,
    code: Option<i32>,
    /// The status that HTTP would have said, where it is another.
    status: Option<StatusCode>,
}

// === impl Endpoint ===

impl Endpoint {
    /// Answers one request to a port that serves gRPC alone.
    pub(crate) async fn handle_grpc(&self, request: Request<Incoming>) -> Response<Body> {
        if grpc::is_call(request.method(), request.version(), request.headers()) {
            return self.handle(request).await;
        }
        let message = "this port serves gRPC alone: HTTP/2 without TLS, POST, content-type: application/grpc";
        respond::failure(StatusCode::UNSUPPORTED_MEDIA_TYPE, "INVALID_ARGUMENT", message)
    }

    /// Answers one request. Errors become responses.
    pub(crate) async fn handle(&self, request: Request<Incoming>) -> Response<Body> {
        let started = Instant::now();
        let (head, body) = request.into_parts();
        let has_connection = head.version < HttpVersion::HTTP_2;
        let mut noted = Noted { peer: head.extensions.get::<Peer>().map(|peer| peer.0), ..Noted::default() };
        // Taken by what reads it.
        let mut body = Some(body);
        let params = ServiceParams::read(&head.headers, head.uri.query());
        let is_grpc = grpc::is_call(&head.method, head.version, &head.headers);
        let route = if is_grpc { Route::Grpc } else { Route::of(head.uri.path(), params.version()) };
        let method = head.method.clone();
        let origin = self.cors.allowed(&head.headers);
        let preflight = match route {
            Route::Unknown => None,
            _ => self.cors.preflight(&method, &head.headers),
        };
        if let (Some(sampler), None, Route::Rpc | Route::Rest(_) | Route::Grpc) =
            (&self.sampler, &preflight, &route)
        {
            noted.trace = Some(sampler.sample(trace::of(&head.headers).as_ref()));
        }
        let (mut response, fields) = match preflight {
            Some(response) => (response, LogFields::default()),
            None => self.dispatch(&route, head, &mut body, params, &noted).await,
        };
        if has_connection && body.is_some_and(|body| !body.is_end_stream()) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        self.cors.mark(origin, response.headers_mut());
        let LogFields { rpc, version, code, status } = fields;
        let request = access::Request {
            method: access::method_name(&method),
            operation: if rpc.is_empty() { route.name() } else { rpc },
            version,
            status: status.unwrap_or(response.status()),
            code,
            took: started.elapsed(),
            task: noted.task.get(),
            trace: noted.trace.as_ref(),
        };
        noted.log(route.name(), &request);
        for observer in &self.observers {
            observer.answered(&request);
        }
        response
    }

    async fn dispatch(
        &self,
        route: &Route,
        head: Parts,
        body: &mut Option<Incoming>,
        params: ServiceParams,
        noted: &Noted,
    ) -> (Response<Body>, LogFields) {
        let response = match (route, &head.method) {
            (Route::Rpc, &Method::POST) => return self.rpc(head, body, params, noted).await,
            (Route::Rpc, _) => wrong_method("POST"),
            (Route::Grpc, _) => return self.grpc(head, body, params, noted).await,
            (Route::Card, method @ (&Method::GET | &Method::HEAD)) => {
                self.card.respond(method, &head.headers, params.version(), self.url(&head))
            }
            (Route::Card, _) => wrong_method("GET, HEAD"),
            (Route::Rest(rest), method) => match rest.verb(method) {
                Some(verb) => return self.rest((rest, verb), head, body, params, noted).await,
                None => wrong_method(&rest.allow()),
            },
            (Route::Unknown, _) => {
                let message = "nothing is here; POST / takes JSON-RPC, POST /message:send takes HTTP+JSON, \
                               /.well-known/agent-card.json has the card";
                respond::failure(StatusCode::NOT_FOUND, "NOT_FOUND", message)
            }
        };
        (response, LogFields::default())
    }

    async fn rpc(
        &self,
        head: Parts,
        body: &mut Option<Incoming>,
        params: ServiceParams,
        noted: &Noted,
    ) -> (Response<Body>, LogFields) {
        let Some(caller) = self.caller(&head) else {
            noted.rejected(&Rejection::unauthenticated());
            return (unauthenticated(), LogFields::default());
        };
        noted.caller(&caller);
        let (card, streaming) = (self.card.snapshot(), self.streaming(&caller));
        let mut charge = streaming.budget.nothing();
        let call = match self.body(&head, body, &mut charge).await {
            Ok(body) => {
                let call = Call::read(&card.capabilities, &head.headers, &params, &body, &mut charge);
                charge.shrink_to(charge.bytes().saturating_sub(body.len()));
                call
            }
            Err(rejection) => Call::rejected(rejection),
        };
        let Call { id, method, request, streams_errors } = call;
        let reply = self.perform(&card, caller, head, &params, (request, charge), noted).await;
        let _ = reply.as_ref().inspect_err(|rejection| noted.rejected(rejection));
        let (mut response, code) = jsonrpc::respond(id, method, streams_errors, reply, streaming);
        let version = method.map_or(Version::V1, |method| method.version);
        card.capabilities.echo(&params.extensions, version, response.headers_mut());
        let (rpc, version) = method.map_or(("", ""), |method| (method.name, method.version.as_str()));
        (response, LogFields { rpc, version, code, status: None })
    }

    async fn rest(
        &self,
        (rest, verb): (&Rest, Verb),
        head: Parts,
        body: &mut Option<Incoming>,
        params: ServiceParams,
        noted: &Noted,
    ) -> (Response<Body>, LogFields) {
        let Some(caller) = self.caller(&head) else {
            noted.rejected(&Rejection::unauthenticated());
            return (unauthenticated(), LogFields::default());
        };
        noted.caller(&caller);
        let (card, streaming) = (self.card.snapshot(), self.streaming(&caller));
        let media = Media::of(&head.headers);
        let mut charge = streaming.budget.nothing();
        let request = async {
            rest::admit(&card.capabilities, rest, verb, &params)?;
            let is_post = head.method == Method::POST;
            let body = if is_post { Some(self.body(&head, body, &mut charge).await?) } else { None };
            let request = rest::read(&card.capabilities, rest, verb, &head, body.as_deref(), &mut charge);
            charge.shrink_to(charge.bytes().saturating_sub(body.map_or(0, |body| body.len())));
            request
        };
        let request = request.await;
        let reply = self.perform(&card, caller, head, &params, (request, charge), noted).await;
        let _ = reply.as_ref().inspect_err(|rejection| noted.rejected(rejection));
        let (mut response, code) = rest::respond(rest, media, reply, streaming);
        let version = rest.dialect.version();
        card.capabilities.echo(&params.extensions, version, response.headers_mut());
        (response, LogFields { rpc: "", version: version.as_str(), code, status: None })
    }

    async fn grpc(
        &self,
        head: Parts,
        body: &mut Option<Incoming>,
        params: ServiceParams,
        noted: &Noted,
    ) -> (Response<Body>, LogFields) {
        let (card, caller) = (self.card.snapshot(), self.caller(&head));
        let streaming = caller.as_ref().map_or(&self.streaming, |caller| self.streaming(caller));
        let version = grpc::version_of(head.uri.path());
        let call = grpc::Call::of(&head);
        let (method, deadline) = match &call {
            Ok(call) => (Some(call.method), call.deadline),
            Err(_) => (None, None),
        };
        let answer = async {
            let call = call?;
            let caller = caller.ok_or_else(Rejection::unauthenticated)?;
            noted.caller(&caller);
            call.admit(&card.capabilities, &params)?;
            let mut charge = streaming.budget.nothing();
            let body = self.body(&head, body, &mut charge).await?;
            let request = call.read(&card.capabilities, &head.headers, &body, &mut charge);
            charge.shrink_to(charge.bytes().saturating_sub(body.len()));
            drop(body);
            self.perform(&card, caller, head, &params, (request, charge), noted).await
        };
        // Boxed because the server moves the future of a request before it starts.
        let reply = Box::pin(grpc::Call::in_time(deadline, answer)).await;
        let _ = reply.as_ref().inspect_err(|rejection| noted.rejected(rejection));
        let (mut response, kind) = grpc::respond(version, method, deadline, reply, streaming);
        card.capabilities.echo(&params.extensions, version, response.headers_mut());
        let (rpc, version) = method.map_or(("", ""), |method| (method.name(), method.version.as_str()));
        let code = kind.map(ErrorKind::code);
        (response, LogFields { rpc, version, code, status: kind.map(ErrorKind::jsonrpc_status) })
    }

    async fn perform(
        &self,
        card: &CardSnapshot,
        caller: Principal,
        head: Parts,
        params: &ServiceParams,
        (request, charge): (Result<operation::Request, Rejection>, Charge),
        noted: &Noted,
    ) -> Result<Reply, Rejection> {
        let request = request?;
        let is_card = matches!(request.operation, Operation::ExtendedCard(_));
        let url = if is_card { self.url(&head) } else { None };
        // A turn may take minutes; the request's headers need not stay in memory for it.
        drop(head);
        let caller = Caller { principal: caller, extensions: &params.extensions, url, charge, noted };
        // Boxed because the server moves the future of a request before it starts.
        Box::pin(self.operations.perform(card, caller, request)).await
    }

    /// The caller; `None` if its token is missing or wrong.
    fn caller(&self, head: &Parts) -> Option<Principal> {
        match head.extensions.get::<Vouched>() {
            Some(vouched) => Some(vouched.caller.clone()),
            None => self.auth.caller(&head.headers),
        }
    }

    /// The address that the request was sent to, if the card follows it and it is known.
    fn url(&self, head: &Parts) -> Option<String> {
        let peer = head.extensions.get::<Peer>().map(|peer| peer.0.ip());
        let mut url = origin::of(head, peer, self.card.trusted_proxies()?)?;
        if let Some(vouched) = head.extensions.get::<Vouched>() {
            url.push_str(vouched.prefix);
        }
        Some(url)
    }

    /// Reads a body, which is charged together with the head.
    async fn body(
        &self,
        head: &Parts,
        body: &mut Option<Incoming>,
        charge: &mut Charge,
    ) -> Result<Bytes, Rejection> {
        let Some(body) = body.take() else { return Ok(Bytes::new()) };
        memory::request(charge, head)?;
        let expects_continue = head.headers.contains_key(EXPECT);
        // A body that can never fit is too large, and not to be sent again.
        let limit = self.max_body.min(charge.budget().limit());
        body::read(body, expects_continue, limit, self.body_timeout, charge).await
    }

    /// What the streams and the memory of a caller are bounded by.
    fn streaming(&self, caller: &Principal) -> &Streaming {
        self.shares.get(caller).unwrap_or(&self.streaming)
    }
}

fn unauthenticated() -> Response<Body> {
    let Rejection { kind, message, .. } = Rejection::unauthenticated();
    let (status, name) = kind.rest_status();
    let mut response = respond::failure(status, name, &message);
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
