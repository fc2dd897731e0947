//! The admin server: health, readiness, metrics, and changes of executors.
//!
//! | route | answers |
//! |---|---|
//! | `GET /healthz` | 200 as soon as it listens, which is before the executors are loaded |
//! | `GET /readyz` | 200 if a turn would be accepted and could succeed, else 503; JSON says why |
//! | `GET /metrics` | the numbers of [`talaria_observe::metrics`] |
//! | `GET /mailbox` | the number of turns that wait for callbacks, and late replies |
//! | `GET /push/undelivered` | push notifications that were given up |
//! | `POST /push/undelivered/{task}/{id}/retry` | retries one |
//! | `GET /executors`, `GET /executors/{name}` | the executors: version, readiness, fallback |
//! | `PUT /executors/{name}` | loads an upload and puts it into service |
//! | `DELETE /executors/{name}` | takes one out of service |
//! | `POST /executors/{name}/reload`, `…/rollback` | reads its files again; goes back to the version before |
//! | `GET /audit` | the changes of executors, and who made them |
//!
//! The server listens on loopback by default, and beyond loopback only with a token. If a token is configured, every route
//! but those in `admin.open` needs it; without one, executors cannot be changed. Without a token everybody who can open a socket on
//! this machine may read. Pages in the operator's browser may not: [`talaria_listen::Door`] keeps them out.
//!
//! If a configured port is taken, the start fails, as with any bad configuration. If the default port is taken, a warning
//! says so and the host works without the admin server.

mod executors;
mod health;
mod late;
mod route;
mod undelivered;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::header::{ACCEPT, ALLOW, CACHE_CONTROL, HeaderValue, WWW_AUTHENTICATE};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use serde_json::{Value, json};
use talaria_a2a::{Auth, Token};
use talaria_listen::{Advice, Door, error as failure};
use talaria_mailbox::Mailbox;
use talaria_observe::metrics::{Format, Metrics};
use talaria_turns::Turns;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use executors::Upload;
pub(crate) use health::Health;
use route::Route;
use undelivered::NotRetried;

use crate::config::{self, OpenPath};
use talaria_executors::Executors;

/// A few connections are enough for a probe, a scraper and an operator.
const LIMITS: talaria_listen::Limits = talaria_listen::Limits {
    connections: 64,
    busy: StatusCode::TOO_MANY_REQUESTS,
    header_timeout: Duration::from_secs(10),
    stall: Duration::from_secs(10),
    grace: Duration::from_secs(1),
};

const ADVICE: Advice = Advice {
    host: "call it by its address; with `admin.token` any name will do",
    origin: "use a program that is not a web page",
};

/// The state behind the routes.
pub(crate) struct Admin {
    auth: Auth,
    open: Vec<OpenPath>,
    metrics: Metrics,
    /// Set when the host is up.
    host: OnceLock<Host>,
}

/// The host, once it is up.
struct Host {
    health: Arc<Health>,
    turns: Turns,
    mailbox: Option<Mailbox>,
    executors: Arc<Executors>,
}

type Reply = Response<Full<Bytes>>;

/// Binds the configured address. If the default address is taken, the inner error is a warning.
pub(crate) async fn bind(config: &config::Admin) -> anyhow::Result<Result<TcpListener, String>> {
    let at = config.listen;
    match TcpListener::bind(at).await {
        Ok(listener) => Ok(Ok(listener)),
        Err(error) if !config.chosen => Ok(Err(format!(
            "no health and no metrics: cannot listen on {at} ({error}); choose another with `admin.listen`"
        ))),
        Err(error) => {
            Err(error).with_context(|| format!("cannot listen on {at}; choose another with `admin.listen`"))
        }
    }
}

// === impl Admin ===

impl Admin {
    pub(crate) fn new(config: &config::Admin, metrics: Metrics) -> anyhow::Result<Self> {
        let token = config.token.clone().map(|token| Token::new("admin", token)).transpose()?;
        let (auth, open) = (Auth::new(token.into_iter().collect()), config.open.clone());
        Ok(Self { auth, open, metrics, host: OnceLock::new() })
    }

    /// Shows the host from now on.
    pub(crate) fn show(
        &self,
        health: Arc<Health>,
        turns: Turns,
        executors: Arc<Executors>,
        mailbox: Option<Mailbox>,
    ) {
        let _ = self.host.set(Host { health, turns, executors, mailbox });
    }

    /// Serves until `shutdown`.
    pub(crate) async fn serve(self: Arc<Self>, listener: TcpListener, shutdown: CancellationToken) {
        // Beyond loopback there is a token.
        let door = Door::local([], ADVICE, |refusal| refusal.response());
        let door = if self.auth.is_required() { door.any_host() } else { door };
        let handle = move |request: Request<Incoming>| {
            let admin = Arc::clone(&self);
            async move { admin.handle(request).await }
        };
        talaria_listen::serve(listener, LIMITS, door, Arc::default(), shutdown, handle).await;
    }

    /// Answers one request. Only uploads have a body.
    async fn handle<B: Upload>(&self, request: Request<B>) -> Reply {
        let (request, body) = request.into_parts();
        let route = Route::of(request.uri.path());
        let change = route.change(&request.method);
        let mut reply = match (self.refuse(&route, &request), change, self.host.get()) {
            (Some(refusal), _, _) => refusal,
            (None, Some((change, name)), Some(host)) => {
                executors::change(host, change, name, &request.headers, body).await
            }
            (None, None, _) if matches!(route, Route::Metrics) => self.metrics(&request.headers),
            _ => self.answer(&route).await,
        };
        reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let (route, status) = (route.name(), reply.status().as_u16());
        if reply.status().is_client_error() {
            info!(route, status, "admin request rejected");
        } else {
            debug!(route, status, "admin request");
        }
        reply
    }

    /// The numbers, in the format that the scraper wants.
    fn metrics(&self, headers: &HeaderMap) -> Reply {
        let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
        let format = Format::accepted(accept);
        let media = HeaderValue::from_static(format.media_type());
        talaria_listen::typed(StatusCode::OK, media, self.metrics.text(format))
    }

    async fn answer(&self, route: &Route<'_>) -> Reply {
        let host = match (route, self.host.get()) {
            (Route::Health, _) => return respond(StatusCode::OK, &json!({ "status": "ok" })),
            (Route::Unknown, _) => {
                let message = "nothing is here; there are /healthz, /readyz, /metrics, /executors, /audit, \
                               /mailbox and /push/undelivered";
                return failure(StatusCode::NOT_FOUND, "NOT_FOUND", message);
            }
            (_, None) => {
                let starting = json!({ "ready": false, "reason": "starting: executors are being loaded" });
                return respond(StatusCode::SERVICE_UNAVAILABLE, &starting);
            }
            (_, Some(host)) => host,
        };
        match route {
            Route::Mailbox => match late::list(host.mailbox.as_ref()).await {
                Ok(list) => respond(StatusCode::OK, &list),
                Err(error) => unavailable(&error),
            },
            Route::Undelivered => match undelivered::list(&host.turns).await {
                Ok(list) => respond(StatusCode::OK, &list),
                Err(error) => unavailable(&error),
            },
            Route::Retry { task, id } => match undelivered::retry(&host.turns, task, id).await {
                Ok(()) => respond(StatusCode::ACCEPTED, &json!({ "status": "retrying" })),
                Err(error @ NotRetried::NotFound) => {
                    failure(StatusCode::NOT_FOUND, "NOT_FOUND", &error.to_string())
                }
                Err(NotRetried::Failed(error)) => unavailable(&error),
            },
            Route::Executors => executors::list(&host.executors),
            Route::Executor { name } => executors::one(&host.executors, name),
            Route::Audit => executors::audit(&host.executors).await,
            _ => {
                let report = host.health.report().await;
                let status = if report.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                respond(status, &json!(report))
            }
        }
    }

    /// The rejection of a request, if any. The cheapest check comes first, and strangers learn nothing.
    fn refuse(&self, route: &Route<'_>, request: &http::request::Parts) -> Option<Reply> {
        let is_open = route.as_open().is_some_and(|path| self.open.contains(&path));
        if !is_open && self.auth.caller(&request.headers).is_none() {
            let message = "this server needs the token of `admin.token`: Authorization: Bearer TOKEN";
            let mut reply = failure(StatusCode::UNAUTHORIZED, "UNAUTHENTICATED", message);
            reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return Some(reply);
        }
        let allowed = route.methods();
        if allowed.is_empty() || allowed.contains(&request.method) {
            let is_open = route.change(&request.method).is_some() && !self.auth.is_required();
            let message = "changing executors needs a token: set `admin.token`";
            return is_open.then(|| failure(StatusCode::FORBIDDEN, "NO_TOKEN", message));
        }
        let allowed = allowed.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
        let message = format!("this path takes {allowed}");
        let mut reply = failure(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", &message);
        if let Ok(allowed) = HeaderValue::try_from(allowed) {
            reply.headers_mut().insert(ALLOW, allowed);
        }
        Some(reply)
    }
}

/// A failure of the store. The operator may read its text.
fn unavailable(error: &dyn std::error::Error) -> Reply {
    failure(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", &error.to_string())
}

fn respond(status: StatusCode, body: &Value) -> Reply {
    talaria_listen::json(status, body.to_string())
}

#[cfg(test)]
mod tests;
