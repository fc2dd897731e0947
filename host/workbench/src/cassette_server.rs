//! The upstream of a trial: every call of the executor ends here, whatever address it names.
//!
//! The server answers from the cassette, or without one through the caller's [`Responder`]. A call that no exchange matches
//! gets a 501 and is kept for the report. In the cancel step the server holds the call that triggers the cancellation and
//! never answers it, so that only the cancellation can end the turn. It listens on loopback, on a port that the system
//! chooses.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use secrecy::{ExposeSecret as _, SecretString};
use talaria_egress::Pattern;
use talaria_listen::{Advice, Door, Limits};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cassette::{Cassette, Exchange};
use crate::timeline::Timeline;

/// The largest request body: what the egress sends at most.
const LARGEST_BODY: usize = 16 << 20;
/// A trial runs one turn at a time, but a turn may make many calls.
const LIMITS: Limits = Limits {
    connections: 256,
    busy: StatusCode::TOO_MANY_REQUESTS,
    header_timeout: Duration::from_secs(30),
    stall: Duration::from_secs(30),
    grace: Duration::ZERO,
};

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Answers calls when there is no cassette. The second argument is the value of `authorization` that the request carries.
pub type Responder = Arc<
    dyn Fn(Request<Incoming>, SecretString) -> BoxFuture<'static, Response<UnsyncBoxBody<Bytes, Infallible>>>
        + Send
        + Sync,
>;

/// A running server.
pub(crate) struct CassetteServer {
    answers: Answers,
    timeline: Arc<Timeline>,
    /// Cancels the turn whose call is held.
    hold: Mutex<Option<CancellationToken>>,
    unanswered: Mutex<Vec<String>>,
}

enum Answers {
    Cassette { exchanges: Vec<(Exchange, AtomicU32)> },
    Responder { bearer: SecretString, responder: Responder },
}

/// A response on its way. If the executor closes it early, the timeline says so.
struct Sending {
    pieces: std::vec::IntoIter<String>,
    sent: usize,
    all: usize,
    pause: Duration,
    cut: bool,
    call: String,
    timeline: Arc<Timeline>,
}

// === impl CassetteServer ===

impl CassetteServer {
    /// Starts the server; it runs until `shutdown`. The responder answers if there is no cassette, whatever key the executor
    /// sends.
    pub(crate) async fn start(
        cassette: Option<&Cassette>,
        responder: Responder,
        key: &SecretString,
        timeline: &Arc<Timeline>,
        tracker: &TaskTracker,
        shutdown: CancellationToken,
    ) -> io::Result<(Arc<Self>, SocketAddr)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let answers = match cassette {
            Some(cassette) => {
                let fresh = |exchange: &Exchange| (exchange.clone(), AtomicU32::new(0));
                Answers::Cassette { exchanges: cassette.exchanges.iter().map(fresh).collect() }
            }
            None => {
                let bearer = format!("Bearer {}", key.expose_secret()).into();
                Answers::Responder { bearer, responder }
            }
        };
        let upstream = Arc::new(Self {
            answers,
            timeline: Arc::clone(timeline),
            hold: Mutex::default(),
            unanswered: Mutex::default(),
        });
        let handler = Arc::clone(&upstream);
        let advice = Advice { host: "", origin: "it is for the trial alone" };
        // Calls name the upstream that the executor wants.
        let door = Door::local([], advice, |refusal| {
            refusal.response().map(|body| body.map_err(never).boxed_unsync())
        })
        .any_host();
        let serving =
            talaria_listen::serve(listener, LIMITS, door, Arc::default(), shutdown, move |request| {
                let upstream = Arc::clone(&handler);
                async move { upstream.answer(request).await }
            });
        tracker.spawn(serving);
        Ok((upstream, address))
    }

    /// Starts a part of the trial: the counts of `times` start over.
    pub(crate) fn rewind(&self) {
        if let Answers::Cassette { exchanges } = &self.answers {
            exchanges.iter().for_each(|(_, answered)| answered.store(0, Ordering::Relaxed));
        }
    }

    /// Holds the call that triggers the cancellation, and cancels; `None` lets calls through again.
    pub(crate) fn hold(&self, cancel: Option<CancellationToken>) {
        *self.hold.lock().unwrap_or_else(PoisonError::into_inner) = cancel;
    }

    /// Takes the calls that no exchange matched.
    pub(crate) fn unanswered(&self) -> Vec<String> {
        std::mem::take(&mut *self.unanswered.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn answer(&self, mut request: Request<Incoming>) -> Response<Body> {
        let host =
            request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default().to_owned();
        let call = format!("{} {host}{}", request.method(), request.uri().path());
        let patterns: Vec<Pattern> = ["http", "https"]
            .iter()
            .filter_map(|scheme| {
                format!("{} {scheme}://{host}{}", request.method(), request.uri().path()).parse().ok()
            })
            .collect();
        let exchanges = match &self.answers {
            Answers::Responder { bearer, responder } => {
                self.hold_if(true, &call).await;
                // The executor may call its key anything and send it anywhere; it counts as the right one.
                if let Ok(value) = HeaderValue::try_from(bearer.expose_secret()) {
                    request.headers_mut().insert(AUTHORIZATION, value);
                }
                let response = responder(request, bearer.clone()).await;
                return response.map(|body| body.map_err(never).boxed_unsync());
            }
            Answers::Cassette { exchanges } => exchanges,
        };
        let body = match Limited::new(request.into_body(), LARGEST_BODY).collect().await {
            Ok(body) => body.to_bytes(),
            Err(_) => return plain(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large, or broke off"),
        };
        let body = String::from_utf8_lossy(&body);
        let matching = exchanges.iter().find(|(exchange, answered)| {
            exchange.matches(&patterns, &body)
                && exchange.times.is_none_or(|times| answered.load(Ordering::Relaxed) < times)
        });
        let Some((exchange, answered)) = matching else {
            let shown: String = body.chars().take(200).collect();
            let mut unanswered = self.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
            unanswered.push(if shown.is_empty() { call.clone() } else { format!("{call} with {shown}") });
            return plain(StatusCode::NOT_IMPLEMENTED, "the cassette has no answer for this call");
        };
        answered.fetch_add(1, Ordering::Relaxed);
        let chosen = exchanges.iter().any(|(exchange, _)| exchange.cancel);
        self.hold_if(exchange.cancel || !chosen, &call).await;
        if let Some(delay) = exchange.delay {
            tokio::time::sleep(delay.get()).await;
        }
        self.play(exchange, call)
    }

    /// In the cancel step, cancels the turn and waits forever if this call triggers the cancellation.
    async fn hold_if(&self, is_the_one: bool, call: &str) {
        let cancel = self.hold.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(cancel) = cancel.filter(|cancel| is_the_one && !cancel.is_cancelled()) {
            self.timeline.note("upstream", call, "held; the turn is cancelled");
            cancel.cancel();
            std::future::pending::<Infallible>().await;
        }
    }

    fn play(&self, exchange: &Exchange, call: String) -> Response<Body> {
        let (pieces, kind) = exchange.pieces();
        let sending = Sending {
            all: pieces.len(),
            pieces: pieces.into_iter(),
            sent: 0,
            pause: exchange.pause.map_or(Duration::ZERO, |pause| pause.get()),
            cut: exchange.cut,
            call,
            timeline: Arc::clone(&self.timeline),
        };
        let body = stream::unfold(sending, async |mut sending| {
            let piece = sending.next().await?;
            Some((piece, sending))
        });
        let mut response = Response::new(StreamBody::new(body).boxed_unsync());
        *response.status_mut() = StatusCode::from_u16(exchange.status).unwrap_or_default();
        let headers = response.headers_mut();
        if let Some(kind) = kind {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        for (name, value) in &exchange.headers {
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                headers.insert(name, value);
            }
        }
        response
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Full::from(text).map_err(never).boxed_unsync());
    *response.status_mut() = status;
    response
}

fn never(never: Infallible) -> io::Error {
    match never {}
}

// === impl Sending ===

impl Sending {
    async fn next(&mut self) -> Option<Result<Frame<Bytes>, io::Error>> {
        let Some(piece) = self.pieces.next() else {
            return std::mem::take(&mut self.cut).then(|| Err(io::Error::other("the cassette cuts it")));
        };
        if self.sent > 0 {
            tokio::time::sleep(self.pause).await;
        }
        self.sent += 1;
        Some(Ok(Frame::data(Bytes::from(piece))))
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if self.sent < self.all {
            let result = format!("closed by the executor after {} of {} pieces", self.sent, self.all);
            self.timeline.note("upstream", self.call.clone(), result);
        }
    }
}
