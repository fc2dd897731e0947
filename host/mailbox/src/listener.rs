//! The callback listener: `POST /a2a/reply`, on an address of its own.
//!
//! | answer | when |
//! |---|---|
//! | 200 `{"ok":true}` | a turn has it, or will |
//! | 200 `{"ok":true,"stale":true}` | it came late, or before, or for nobody; it must not be sent again |
//! | 400 `{"ok":false,"error":"…"}` | it is no post |
//! | 401 `{"ok":false,"error":"unauthorized"}` | a secret is set, and the header has another or none |
//! | 413 | the body is over the bound |
//! | 503 | the store did not take it, or there is no room, for it or for its connection: it must be sent again |
//!
//! The texts are those of the Python bridge. The secret is compared in constant time, before the body is read. What a
//! peer costs that says nothing, or drips, is a socket for [`HEAD_TIMEOUT`] or [`BODY_TIMEOUT`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use subtle::ConstantTimeEq as _;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::Limits;
use crate::letter::Posted;
use crate::mailbox::{Mailbox, Receipt};

/// Takes posts in from the network.
pub struct Listener {
    mailbox: Mailbox,
    secret: Option<SecretString>,
    limits: Limits,
    /// The log has been told of a wrong secret; not again until a right one came.
    is_told: AtomicBool,
}

/// Where peers post.
const PATH: &str = "/a2a/reply";
/// What they prove themselves with.
const SECRET_HEADER: &str = "x-molecule-a2a-secret";
/// Longest wait for a request's head; it also ends idle connections.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait for a whole body: the peer gives up after as long.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait for requests under way when shutting down: what is left is a write to the store.
const GRACE: Duration = Duration::from_secs(2);

type Answer = Response<Full<Bytes>>;

// === impl Listener ===

impl Listener {
    /// A listener for a mailbox. With a secret every post must carry it.
    #[must_use]
    pub fn new(mailbox: Mailbox, secret: Option<SecretString>, limits: Limits) -> Self {
        let secret = secret.filter(|secret| !secret.expose_secret().is_empty());
        Self { mailbox, secret, limits, is_told: AtomicBool::new(false) }
    }

    /// Serves until `shutdown`, and then until posts under way are answered.
    pub async fn serve(self, listener: TcpListener, shutdown: CancellationToken) {
        let limits = talaria_listen::Limits {
            connections: self.limits.connections,
            // A 4xx would be the post's own fault, and the gateway would change it.
            busy: StatusCode::SERVICE_UNAVAILABLE,
            header_timeout: HEAD_TIMEOUT,
            grace: GRACE,
        };
        let shared = Arc::new(self);
        let handle = move |request| {
            let listener = Arc::clone(&shared);
            async move { listener.answer(request).await }
        };
        talaria_listen::serve(listener, limits, Arc::default(), shutdown, handle).await;
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        if request.uri().path() != PATH {
            return refused(StatusCode::NOT_FOUND, "not found");
        }
        if request.method() != Method::POST {
            let mut answer = refused(StatusCode::METHOD_NOT_ALLOWED, "method not allowed");
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
            return answer;
        }
        if !self.is_authentic(request.headers()) {
            if !self.is_told.swap(true, Ordering::Relaxed) {
                warn!("a callback has no secret or a wrong one; the peer and the bridge must have the same");
            }
            return refused(StatusCode::UNAUTHORIZED, "unauthorized");
        }
        self.is_told.store(false, Ordering::Relaxed);
        let body = Limited::new(request.into_body(), self.limits.body).collect();
        let body = match tokio::time::timeout(BODY_TIMEOUT, body).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                warn!(limit = self.limits.body, "a callback is too large");
                return refused(StatusCode::PAYLOAD_TOO_LARGE, "body too large");
            }
            Ok(Err(_)) => return refused(StatusCode::BAD_REQUEST, "invalid json"),
            Err(_) => return refused(StatusCode::REQUEST_TIMEOUT, "body too slow"),
        };
        let posted = match Posted::parse(&body) {
            Ok(posted) => posted,
            Err(invalid) => return refused(StatusCode::BAD_REQUEST, invalid.text()),
        };
        drop(body);
        match self.mailbox.post(&posted).await {
            Ok(Receipt::Taken) => reply(StatusCode::OK, &json!({ "ok": true })),
            Ok(Receipt::Stale) => reply(StatusCode::OK, &json!({ "ok": true, "stale": true })),
            Err(error) => {
                warn!(%error, "a callback was not stored");
                let mut answer = refused(StatusCode::SERVICE_UNAVAILABLE, "not stored; try again");
                answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
                answer
            }
        }
    }

    fn is_authentic(&self, headers: &HeaderMap) -> bool {
        let Some(secret) = &self.secret else { return true };
        let mut given = headers.get_all(SECRET_HEADER).iter();
        let (Some(given), None) = (given.next(), given.next()) else { return false };
        secret.expose_secret().as_bytes().ct_eq(given.as_bytes()).into()
    }
}

fn refused(status: StatusCode, error: &str) -> Answer {
    reply(status, &json!({ "ok": false, "error": error }))
}

fn reply(status: StatusCode, body: &Value) -> Answer {
    let mut answer = Response::new(Full::from(body.to_string()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}
