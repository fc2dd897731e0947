//! The callback listener: `POST` to the path of a [`CallbackWire`], on an address of its own.
//!
//! | status | when |
//! |---|---|
//! | 200 | a turn has the callback or will, or there is no use for it; the peer must not send it again |
//! | 400 | the wire rejected the body |
//! | 401 | the path lacks its token, or the wire did not accept the head or the body as the peer's |
//! | 403 | a web page sent it, or its host is another name than that of the reply URL |
//! | 404, 405 | another path, another method |
//! | 408, 413 | the body took too long, or is over the limit |
//! | 503 | the store failed, or there is no memory or room for the callback or its connection; the peer must send it again |
//!
//! A page in a browser on this machine could post here, and so could any other process. If the wire has no secret to check,
//! the URL that upstreams are given ends in one ([`Config::path_token`](crate::Config::path_token)), and no other is served.
//!
//! The wire chooses the bodies of these answers but of a 403, and may choose other statuses. The head is verified before the body is
//! read. A peer that sends nothing, or slowly, holds a socket for [`HEAD_TIMEOUT`] or [`BODY_TIMEOUT`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use secrecy::ExposeSecret as _;
use serde_json::json;
use subtle::ConstantTimeEq as _;
use talaria_budget::Budget;
use talaria_listen::{Advice, BodyError, Door, Refusal, Spread, read_body};
use talaria_turns::TraceContext;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::mailbox::{Mailbox, Receipt};
use crate::wire::Answer;

/// Accepts callbacks from the network.
pub struct Listener {
    mailbox: Mailbox,
    /// Whether an unauthorized callback was logged since the last authorized one.
    warned: AtomicBool,
    /// The memory for bodies.
    budget: Budget,
    spread: Spread,
    /// Whether the peers' places in a trace are read.
    is_traced: bool,
}

const ADVICE: Advice = Advice {
    host: "for upstreams that use another, set `callback.url` to it, or set `callback.secret`",
    origin: "callbacks come from programs",
};

const WRONG_SECRET: &str = "its secret is missing or wrong; set the same secret here and for the peer";

/// Longest wait for the head of a request; it also ends idle connections.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait for a whole body. The peer gives up after as long.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time that a peer may take nothing of an answer.
const STALL: Duration = Duration::from_secs(30);
/// Longest wait for open requests on shutdown; all that is left of them is a write to the store.
const GRACE: Duration = Duration::from_secs(2);

// === impl Listener ===

impl Listener {
    /// A listener that speaks the mailbox's wire, within the mailbox's limits.
    #[must_use]
    pub fn new(mailbox: Mailbox) -> Self {
        Self {
            mailbox,
            warned: AtomicBool::new(false),
            budget: Budget::unlimited(),
            spread: Spread::default(),
            is_traced: false,
        }
    }

    /// Reads the places in a trace that peers send, and links them to the waits that they end.
    #[must_use]
    pub fn traced(self) -> Self {
        Self { is_traced: true, ..self }
    }

    /// Charges bodies to this budget.
    #[must_use]
    pub fn with_budget(self, budget: Budget) -> Self {
        Self { budget, ..self }
    }

    /// Spreads connections to these workers.
    #[must_use]
    pub fn with_workers(self, spread: Spread) -> Self {
        Self { spread, ..self }
    }

    /// Serves until `shutdown`, and then until open requests are answered.
    pub async fn serve(self, listener: TcpListener, shutdown: CancellationToken) {
        let limits = talaria_listen::Limits {
            connections: self.mailbox.limits().connections,
            // A 4xx would blame the callback, and the peer would change it.
            busy: StatusCode::SERVICE_UNAVAILABLE,
            header_timeout: HEAD_TIMEOUT,
            stall: STALL,
            grace: GRACE,
        };
        let name = self.mailbox.reply_url().parse::<Uri>().ok().and_then(|url| url.host().map(str::to_owned));
        let door = Door::local(name, ADVICE, refuse);
        let door = if self.mailbox.path_token().is_some() { door } else { door.any_host() };
        let spread = self.spread.clone();
        let shared = Arc::new(self);
        let handle = move |request| {
            let listener = Arc::clone(&shared);
            async move { listener.respond(request).await }
        };
        spread.serve(listener, limits, door, Arc::default(), shutdown, handle).await;
    }

    async fn respond(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let wire = self.mailbox.wire();
        let rejected = |status, error| wire.answer(&Answer::Rejected(status, error));
        let token = match (request.uri().path().strip_prefix(wire.path()), self.mailbox.path_token()) {
            (Some(""), _) => "",
            (Some(rest), Some(_)) if rest.starts_with('/') => rest.trim_start_matches('/'),
            _ => return rejected(StatusCode::NOT_FOUND, "not found"),
        };
        if request.method() != Method::POST {
            let mut response = rejected(StatusCode::METHOD_NOT_ALLOWED, "method not allowed");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
            return response;
        }
        if let Some(expected) = self.mailbox.path_token()
            && !bool::from(expected.expose_secret().as_bytes().ct_eq(token.as_bytes()))
        {
            return self.unauthorized(
                "it was posted to another address than the one in its request; set a secret here and for the peer",
            );
        }
        let (head, body) = request.into_parts();
        if !wire.verify_head(&head) {
            return self.unauthorized(WRONG_SECRET);
        }
        let limit = self.mailbox.limits().body;
        // The body, and the callback that it becomes.
        let mut charge = self.budget.nothing();
        let body = match read_body(body, limit, BODY_TIMEOUT, &mut charge).await {
            Ok(body) if charge.grow(body.len()).is_ok() => body,
            Ok(_) | Err(BodyError::Full(_)) => {
                warn!("callback rejected: no memory; the peer must send it again");
                return self.try_again("no memory; try again");
            }
            Err(BodyError::TooLarge) => {
                warn!(limit, "callback rejected: body too large");
                return rejected(StatusCode::PAYLOAD_TOO_LARGE, "body too large");
            }
            Err(BodyError::Incomplete) => return rejected(StatusCode::BAD_REQUEST, "incomplete body"),
            Err(BodyError::TooSlow) => return rejected(StatusCode::REQUEST_TIMEOUT, "body too slow"),
        };
        if !wire.verify_body(&head, &body) {
            return self.unauthorized(WRONG_SECRET);
        }
        self.warned.store(false, Ordering::Relaxed);
        let callback = match wire.parse(&body) {
            Ok(callback) => callback,
            Err(invalid) => return wire.answer(&Answer::Invalid(&invalid.0)),
        };
        drop(body);
        let trace = self.is_traced.then(|| trace_of(&head)).flatten();
        match self.mailbox.post_traced(&callback, trace).await {
            Ok(Receipt::Accepted) => wire.answer(&Answer::Accepted),
            Ok(Receipt::Stale) => wire.answer(&Answer::Stale),
            Err(error) => {
                warn!(%error, "callback not stored; the peer must send it again");
                self.try_again("not stored; try again")
            }
        }
    }

    fn try_again(&self, why: &'static str) -> Response<Full<Bytes>> {
        let mut response =
            self.mailbox.wire().answer(&Answer::Rejected(StatusCode::SERVICE_UNAVAILABLE, why));
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        response
    }

    fn unauthorized(&self, why: &'static str) -> Response<Full<Bytes>> {
        if !self.warned.swap(true, Ordering::Relaxed) {
            warn!(why, "callback rejected");
        }
        self.mailbox.wire().answer(&Answer::Unauthorized)
    }
}

/// The peer's place in a trace, if the request has one in its exact form.
fn trace_of(head: &Parts) -> Option<TraceContext> {
    let mut parents = head.headers.get_all("traceparent").iter();
    let (Some(parent), None) = (parents.next(), parents.next()) else { return None };
    TraceContext::parse(parent.to_str().ok()?, None)
}

/// The response to a request that the door refused, in the usual form of a wire.
fn refuse(refusal: &Refusal<'_>) -> Response<Full<Bytes>> {
    let body = json!({ "ok": false, "error": refusal.message });
    talaria_listen::json(refusal.status, body.to_string())
}
