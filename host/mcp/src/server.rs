//! The server: `POST /mcp` on an address of this machine.
//!
//! | status | when |
//! |---|---|
//! | 200 | a response, also one that carries an error |
//! | 202 | a notification |
//! | 400 | the body is not a request |
//! | 401 | the bearer token is missing or wrong |
//! | 403 | a web page calls, or `Host` is a name other than `localhost` |
//! | 404, 405, 415 | another path, another method, not JSON |
//! | 408, 413 | the body took too long, or is over the limit |
//! | 503 | too many connections, or no memory for the body |
//!
//! A web page is refused at the [`Door`]. The rest of the head is checked before a byte of the body is read. The body and
//! the values that it becomes are charged to the host's budget until the call has ended.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ALLOW, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use secrecy::{ExposeSecret as _, SecretString};
use subtle::ConstantTimeEq as _;
use talaria_budget::Budget;
use talaria_listen::{Advice, BodyError, Door, discard_body, error, json, read_body};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::Tools;
use crate::rpc::{self, Answer};

/// The path of the endpoint.
pub const PATH: &str = "/mcp";

const ADVICE: Advice =
    Advice { host: "use the address in `tools.listen`", origin: "tools are called by programs" };

/// The largest body. Larger than any argument that a tool takes, so that the tool can say which one is too long.
const BODY: usize = 16 << 20;
/// Connections at once. There is one agent, which keeps a few open.
const CONNECTIONS: usize = 16;
/// The longest wait for the head of a request; longer than clients keep an idle connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(300);
/// The longest wait for a whole body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest time that a client may take nothing of a response.
const STALL: Duration = Duration::from_secs(30);
/// The longest wait for calls in progress on shutdown.
const GRACE: Duration = Duration::from_secs(2);

/// Serves tools.
pub struct Server {
    tools: Arc<dyn Tools>,
    name: String,
    token: SecretString,
    /// The memory for bodies.
    budget: Budget,
}

// === impl Server ===

impl Server {
    /// A server of this name, for clients that know the token.
    pub fn new(name: impl Into<String>, token: SecretString, tools: Arc<dyn Tools>) -> Self {
        Self { tools, name: name.into(), token, budget: Budget::unlimited() }
    }

    /// Charges bodies to this budget.
    #[must_use]
    pub fn with_budget(self, budget: Budget) -> Self {
        Self { budget, ..self }
    }

    /// Serves until `shutdown`.
    pub async fn serve(self, listener: TcpListener, shutdown: CancellationToken) {
        let limits = talaria_listen::Limits {
            connections: CONNECTIONS,
            busy: StatusCode::SERVICE_UNAVAILABLE,
            header_timeout: HEAD_TIMEOUT,
            stall: STALL,
            grace: GRACE,
        };
        let door = Door::local([], ADVICE, |refusal| refusal.response());
        let shared = Arc::new(self);
        let handle = move |request| {
            let server = Arc::clone(&shared);
            async move { server.respond(request).await }
        };
        talaria_listen::serve(listener, limits, door, Arc::default(), shutdown, handle).await;
    }

    async fn respond(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, mut body) = request.into_parts();
        if let Some(rejected) = self.rejected(&head) {
            discard_body(body, BODY).await;
            return rejected;
        }
        let mut charge = self.budget.nothing();
        let body = match read_body(&mut body, BODY, BODY_TIMEOUT, &mut charge).await {
            Ok(body) if charge.grow(rpc::room(&body)).is_ok() => body,
            Ok(_) | Err(BodyError::Full(_)) => {
                discard_body(body, BODY).await;
                let text = "no memory for the body now; try again";
                let mut response = error(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", text);
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
                return response;
            }
            Err(BodyError::TooLarge) => {
                let text = format!("the body is longer than {BODY} bytes");
                return error(StatusCode::PAYLOAD_TOO_LARGE, "PAYLOAD_TOO_LARGE", &text);
            }
            Err(BodyError::TooSlow) => {
                return error(StatusCode::REQUEST_TIMEOUT, "TIMEOUT", "the body took too long");
            }
            Err(BodyError::Incomplete) => {
                return error(StatusCode::BAD_REQUEST, "INCOMPLETE", "the body is incomplete");
            }
        };
        let version = head.headers.get("mcp-protocol-version").and_then(|value| value.to_str().ok());
        match Box::pin(rpc::answer(self.tools.as_ref(), &self.name, version, &body)).await {
            Answer::Accepted => {
                let mut response = Response::new(Full::default());
                *response.status_mut() = StatusCode::ACCEPTED;
                response
            }
            Answer::Response(value) => json(StatusCode::OK, value.to_string()),
            Answer::Invalid(value) => json(StatusCode::BAD_REQUEST, value.to_string()),
        }
    }

    /// The answer to a request that is rejected by its head.
    fn rejected(&self, head: &http::request::Parts) -> Option<Response<Full<Bytes>>> {
        let headers = &head.headers;
        if head.uri.path() != PATH {
            return Some(error(StatusCode::NOT_FOUND, "NOT_FOUND", "the endpoint is /mcp"));
        }
        if !self.knows_the_token(headers) {
            let text = "the bearer token is missing or wrong";
            let mut response = error(StatusCode::UNAUTHORIZED, "UNAUTHENTICATED", text);
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return Some(response);
        }
        if head.method != Method::POST {
            let text = "this server has no streams and no sessions; use POST";
            let mut response = error(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", text);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
            return Some(response);
        }
        let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let media_type = media_type.split(';').next().unwrap_or_default().trim();
        if !media_type.eq_ignore_ascii_case("application/json") {
            let text = "the body must be application/json";
            return Some(error(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UNSUPPORTED_MEDIA_TYPE", text));
        }
        None
    }

    fn knows_the_token(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
        let Some((scheme, token)) = given.split_at_checked("Bearer ".len()) else { return false };
        scheme.eq_ignore_ascii_case(b"Bearer ")
            && bool::from(self.token.expose_secret().as_bytes().ct_eq(token.trim_ascii()))
    }
}

#[cfg(test)]
mod tests;
