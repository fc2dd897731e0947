//! The admin server: health, metrics, what runs and what it does, changes of executors, and the console.
//!
//! | route | answers |
//! |---|---|
//! | `GET /healthz` | 200 as soon as it listens, which is before the executors are loaded |
//! | `GET /readyz` | 200 if a turn would be accepted and could succeed, else 503; JSON says why |
//! | `GET /metrics` | the numbers of [`talaria_observe::metrics`] |
//! | `GET /status`, `GET /stats` | what runs and how loaded it is; the numbers of the last hour |
//! | `GET /turns`, `GET /turns/{task}` | the turns of all callers; one of them, step by step |
//! | `POST /turns/{task}/cancel`, `…/answer` | cancels one; answers its question |
//! | `GET /events` | what changes, as server-sent events |
//! | `GET /config` | the configuration in effect, without secrets |
//! | `GET /log`, `PUT /log` | the log filter |
//! | `GET /mailbox` | the number of turns that wait for callbacks, and late replies |
//! | `GET /push/undelivered` | push notifications that were given up |
//! | `POST /push/undelivered/{task}/{id}/retry` | retries one |
//! | `GET /executors`, `GET /executors/{name}` | the executors: version, readiness, needs, settings, counts |
//! | `PUT /executors/{name}` | loads an upload and puts it into service |
//! | `PUT /executors/{name}/settings` | the same with other settings |
//! | `DELETE /executors/{name}` | takes one out of service |
//! | `POST /executors/{name}/reload`, `…/rollback` | reads its files again; goes back to the version before |
//! | `GET /audit` | the changes of executors, and what operators did |
//! | `/session` | signs in and out |
//! | `/a2a` | A2A, as the caller `console` |
//! | `GET /openapi.json` | the description of all this |
//! | `GET /`, `GET /assets/{file}` | the console |
//!
//! The server listens on loopback by default, and beyond loopback only with a token. Who may do what is in [`guard`].
//! Without a token everybody who can open a socket on this machine may read. Pages in the operator's browser may not:
//! [`talaria_listen::Door`] keeps them out.
//!
//! If a configured port is taken, the start fails, as with any bad configuration. If the default port is taken, a warning
//! says so and the host works without the admin server.

mod a2a;
mod events;
mod executors;
mod guard;
mod health;
mod late;
mod log;
mod openapi;
mod reply;
mod route;
mod session;
mod sign_in;
mod status;
mod turns;
mod undelivered;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use http::header::{ACCEPT, ALLOW, CACHE_CONTROL, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method, Request, StatusCode};
use hyper::body::Incoming;
use serde_json::json;
use talaria_a2a::{Auth, Counts, Inside, Token};
use talaria_listen::{Advice, Door};
use talaria_mailbox::Mailbox;
use talaria_observe::metrics::{Format, Metrics};
use talaria_turns::{Store, Turns};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info};

pub(crate) use events::publish;
use executors::Upload;
use guard::Who;
pub(crate) use health::Health;
use reply::{Reply, failure, not_found, ok, respond, unavailable, whole};
use route::Route;
use session::Sessions;
pub(crate) use status::About;
use undelivered::NotRetried;

use crate::config::{self, OpenPath};
use crate::console;
use crate::journal::Journal;
use talaria_executors::{Executors, What};

/// A few connections are enough for a probe, a scraper and operators with a page or two each.
const LIMITS: talaria_listen::Limits = talaria_listen::Limits {
    connections: 128,
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
    sessions: Sessions,
    started: Instant,
    /// Ends the streams.
    closing: CancellationToken,
    /// Set when the host is up.
    host: OnceLock<Host>,
}

/// The host, once it is up.
pub(crate) struct Host {
    pub(crate) health: Arc<Health>,
    pub(crate) turns: Turns,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) mailbox: Option<Mailbox>,
    pub(crate) executors: Arc<Executors>,
    /// Answers A2A requests.
    pub(crate) a2a: Inside,
    /// The numbers of the A2A server.
    pub(crate) server: Counts,
    pub(crate) about: About,
    /// For what is written after the answer.
    pub(crate) tracker: TaskTracker,
}

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
        let closing = CancellationToken::new();
        let (sessions, started, host) = (Sessions::default(), Instant::now(), OnceLock::new());
        Ok(Self { auth, open, metrics, sessions, started, closing, host })
    }

    /// Shows the host from now on.
    pub(crate) fn show(&self, host: Host) {
        let _ = self.host.set(host);
    }

    /// Serves until `shutdown`.
    pub(crate) async fn serve(self: Arc<Self>, listener: TcpListener, shutdown: CancellationToken) {
        // Beyond loopback there is a token.
        let door = Door::local([], ADVICE, |refusal| whole(refusal.response()));
        let door = if self.auth.is_required() { door.any_host() } else { door };
        let (closing, stopped) = (self.closing.clone(), shutdown.clone());
        let end_streams = async move {
            stopped.cancelled().await;
            closing.cancel();
        };
        let handle = move |request: Request<Incoming>| {
            let admin = Arc::clone(&self);
            async move {
                match Route::of(request.uri().path()) {
                    Route::A2a => admin.a2a(request).await,
                    _ => admin.handle(request).await,
                }
            }
        };
        let serving = talaria_listen::serve(listener, LIMITS, door, Arc::default(), shutdown, handle);
        tokio::join!(serving, end_streams);
    }

    /// Answers one request.
    async fn handle<B: Upload>(&self, request: Request<B>) -> Reply {
        let (request, body) = request.into_parts();
        let route = Route::of(request.uri.path());
        let mut reply =
            match self.admit(&route, &request).and_then(|who| allow(&route, &request).map(|()| who)) {
                Ok(who) => self.answer(&route, who, &request, body).await,
                Err(refusal) => *refusal,
            };
        if !matches!(route, Route::Console { .. }) {
            reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
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
        whole(talaria_listen::typed(StatusCode::OK, media, self.metrics.text(format)))
    }

    async fn answer(&self, route: &Route<'_>, who: Who, request: &Parts, body: impl Upload) -> Reply {
        let host = match (route, self.host.get()) {
            (Route::Health, _) => return ok(&json!({ "status": "ok" })),
            (Route::Metrics, _) => return self.metrics(&request.headers),
            (Route::Console { path }, _) => {
                let file = console::respond(path, &request.headers);
                return file.map_or_else(|| not_found("there is no such file"), whole);
            }
            (Route::OpenApi, _) => {
                return whole(talaria_listen::json(StatusCode::OK, openapi::DOCUMENT));
            }
            (Route::Session, host) => return self.session(host, request, body).await,
            (Route::Unknown, _) => {
                let message = "nothing is here; there are /healthz, /readyz, /metrics, /status, /turns, /executors, \
                               /audit, /mailbox and /push/undelivered; /openapi.json describes all";
                return not_found(message);
            }
            (_, None) => {
                let starting = json!({ "ready": false, "reason": "starting: executors are being loaded" });
                return respond(StatusCode::SERVICE_UNAVAILABLE, &starting);
            }
            (_, Some(host)) => host,
        };
        if let Some((change, name)) = route.change(&request.method) {
            return executors::change(host, change, name, request, body).await;
        }
        match route {
            Route::Status => ok(&status::show(self, host, who).await),
            Route::Stats => ok(&host.journal.stats(crate::journal::Stats::to_json)),
            Route::Turns => turns::list(host, request.uri.query()).await,
            Route::Turn { task } => turns::one(host, task).await,
            Route::Cancel { task } => turns::cancel(host, task, &who).await,
            Route::Answer { task } => turns::answer(host, task, &who, request, body).await,
            Route::Events => events::watch(host, self.closing.clone()),
            Route::Config => ok(&host.about.config),
            Route::Log if request.method == Method::PUT => log::set(host, &who, request, body).await,
            Route::Log => log::show(),
            Route::Mailbox => match late::list(host.mailbox.as_ref()).await {
                Ok(list) => ok(&list),
                Err(error) => unavailable(&error),
            },
            Route::Undelivered => match undelivered::list(&host.turns).await {
                Ok(list) => ok(&list),
                Err(error) => unavailable(&error),
            },
            Route::Retry { task, id } => match undelivered::retry(&host.turns, task, id).await {
                Ok(()) => {
                    host.executors.note(who.name(), What::Retried, Some(task), Some(id)).await;
                    respond(StatusCode::ACCEPTED, &json!({ "status": "retrying" }))
                }
                Err(error @ NotRetried::NotFound) => not_found(&error.to_string()),
                Err(NotRetried::Failed(error)) => unavailable(&error),
            },
            Route::Executors => executors::list(host).await,
            Route::Executor { name } => executors::one(host, name).await,
            Route::Audit => executors::audit(&host.executors).await,
            _ => {
                let report = host.health.report().await;
                let status = if report.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                respond(status, &json!(report))
            }
        }
    }

    /// Whether everybody on this machine may list all tasks by A2A. Before the host is up there are none to see.
    fn shows_all_tasks(&self) -> bool {
        self.host.get().is_none_or(|host| host.a2a.shows_all_tasks())
    }

    /// Whether callers of the A2A server need a token.
    fn calls_need_a_token(&self) -> bool {
        self.host.get().is_some_and(|host| host.a2a.needs_token())
    }
}

/// The rejection of a method that the path does not take.
fn allow(route: &Route<'_>, request: &Parts) -> Result<(), Box<Reply>> {
    let allowed = route.methods();
    if allowed.is_empty() || allowed.contains(&request.method) {
        return Ok(());
    }
    let allowed = allowed.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
    let message = format!("this path takes {allowed}");
    let mut reply = failure(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", &message);
    if let Ok(allowed) = HeaderValue::try_from(allowed) {
        reply.headers_mut().insert(ALLOW, allowed);
    }
    Err(reply.into())
}

#[cfg(test)]
mod tests;
